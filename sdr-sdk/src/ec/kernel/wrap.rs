//! Compiles the algorithms for one instruction set.

/// A kernel `$name` over vectors `$vector`, in functions that may use `$features`.
macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident, $vector:ty $(, $features:literal)?) => {
        $(#[$doc])*
        pub(in crate::ec) struct $name;

        impl $crate::ec::kernel::Kernel for $name {
            unsafe fn product(&self, p: &$crate::ec::kernel::Product<'_>) {
                $(#[target_feature(enable = $features)])?
                unsafe fn run(p: &$crate::ec::kernel::Product<'_>) {
                    // SAFETY: promised by the caller of the trait's method.
                    unsafe { $crate::ec::kernel::product::run::<$vector>(p) }
                }
                // SAFETY: the CPU has the features, promised by the caller; the rest is passed on.
                unsafe { run(p) }
            }

            unsafe fn transform(&self, t: &$crate::ec::kernel::Transform<'_>) {
                $(#[target_feature(enable = $features)])?
                unsafe fn run(t: &$crate::ec::kernel::Transform<'_>) {
                    // SAFETY: promised by the caller of the trait's method.
                    unsafe { $crate::ec::kernel::transform::run::<$vector>(t) }
                }
                // SAFETY: the CPU has the features, promised by the caller; the rest is passed on.
                unsafe { run(t) }
            }
        }
    };
}
pub(super) use kernel;
