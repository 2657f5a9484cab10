//! Wrong uses of the SDK that the types refuse. What the compiler says is beside each case; after a change that is meant,
//! `TRYBUILD=overwrite` writes it anew.

#[test]
#[ignore = "compiles a crate; run by `cargo xtask compile-fail`"]
fn wrong_uses_do_not_compile() {
    trybuild::TestCases::new().compile_fail("compile_fail/*.rs");
}
