//! Jobs that do not fit: a typed error that says which, and no byte changed.

use super::{Message, UNTOUCHED, coders};
use crate::ec::{Code, DecodePlan, EcError, EncodeJob, Stripes};

#[test]
fn layouts() {
    for k in [0, 225, usize::MAX] {
        assert_eq!(Stripes::new(100, 10, k, 1), Err(EcError::DataSymbols { k }));
    }
    for (bytes, payload, depth) in [(0, 10, 1), (100, 0, 1), (100, 10, 0)] {
        assert!(matches!(Stripes::new(bytes, payload, 4, depth), Err(EcError::Zero { .. })));
    }
    let huge = Stripes::new(usize::MAX, 1, 224, usize::MAX).unwrap();
    assert_eq!((huge.groups(), huge.parity_bytes(32)), (1, None));
}

#[test]
fn plans() {
    let plan = |k, missing: &[u8], rows: &[u8]| DecodePlan::new(Code::Mds, k, missing, rows).err();
    assert_eq!(plan(4, &[0, 1], &[0]), Some(EcError::Losses { missing: 2, rows: 1 }));
    assert_eq!(plan(4, &[0], &[0, 1]), Some(EcError::Losses { missing: 1, rows: 2 }));
    assert_eq!(plan(4, &[], &[]), Some(EcError::Zero { what: "the number of missing symbols" }));
    assert_eq!(plan(4, &[1, 1], &[0, 1]), Some(EcError::Order { row: 1 }));
    assert_eq!(plan(4, &[0, 1], &[3, 2]), Some(EcError::Order { row: 2 }));
    assert_eq!(plan(4, &[4], &[0]), Some(EcError::Outside { what: "data row", got: 4, limit: 4 }));
    let beyond = EcError::Rows { code: Code::Mds, k: 224, rows: 33, limit: 32 };
    assert_eq!(plan(224, &[4], &[32]), Some(beyond));
    assert_eq!(plan(0, &[0], &[0]), Some(EcError::DataSymbols { k: 0 }));
    assert!(matches!(DecodePlan::new(Code::Xor, 4, &[0], &[1]), Err(EcError::Rows { limit: 1, .. })));
    assert_eq!(Code::Mds.coefficient(224, 32, 0), None);
    assert_eq!(Code::Xor.coefficient(4, 0, 4), None);
}

#[test]
fn jobs() {
    for (_, coder) in coders() {
        let layout = Stripes::new(3 * 2 * 10 - 12, 10, 4, 2).unwrap();
        let mut message = Message::new(Code::Mds, layout, 3);
        let before = message.data.clone();
        let c = &*coder;
        assert!(matches!(message.encode(c, 1, 0..3, 0..2), Err(EcError::Outside { what: "group", .. })));
        assert!(matches!(message.encode(c, 0, 0..3, 0..3), Err(EcError::Outside { what: "stripe", .. })));
        assert!(matches!(message.encode(c, 0, 0..3, 1..1), Err(EcError::Zero { .. })));
        assert!(matches!(message.encode(c, 0, 2..2, 0..2), Err(EcError::Zero { .. })));
        assert!(matches!(message.encode(c, 0, 0..4, 0..2), Err(EcError::Outside { what: "parity row", .. })));
        let plan = |k, missing: &[u8], rows: &[u8]| DecodePlan::new(Code::Mds, k, missing, rows).unwrap();
        // Rows 0 and 1 are whole, row 2 has a short symbol in stripe 0 and none in stripe 1, row 3 has none.
        let absent = message.decode(c, &plan(4, &[3], &[0]), 0, 0..1);
        assert_eq!(absent, Err(EcError::NotInMessage { row: 3, stripe: 0 }));
        let absent = message.decode(c, &plan(4, &[0, 2], &[0, 1]), 0, 0..2);
        assert_eq!(absent, Err(EcError::NotInMessage { row: 2, stripe: 1 }));
        assert_eq!(message.decode(c, &plan(5, &[0], &[0]), 0, 0..1), Err(EcError::Plan { plan: 5, job: 4 }));
        let unallocated = message.decode(c, &plan(4, &[0], &[3]), 0, 0..1);
        assert_eq!(unallocated, Err(EcError::Outside { what: "parity row", got: 4, limit: 3 }));
        message.parity.truncate(59);
        let short = message.encode(c, 0, 0..3, 0..2);
        assert_eq!(short, Err(EcError::Length { what: "the parity buffer", needed: 60, got: 59 }));
        message.data.push(0);
        let long = message.encode(c, 0, 0..2, 0..2);
        assert_eq!(long, Err(EcError::Length { what: "the data", needed: 48, got: 49 }));
        message.data.pop();
        message.code = Code::Xor;
        assert!(matches!(message.encode(c, 0, 0..2, 0..2), Err(EcError::Rows { limit: 1, .. })));
        assert_eq!(message.data, before);
        assert!(message.parity.iter().all(|&b| b == UNTOUCHED));
    }
}

#[test]
fn overlapping_memory() {
    use crate::ec::{Readable, Writable};
    use std::ptr::NonNull;
    let mut bytes = vec![UNTOUCHED; 100];
    let base = NonNull::new(bytes.as_mut_ptr()).unwrap();
    for (_, coder) in coders() {
        // SAFETY: both views are inside `bytes`, which lives on and is used by one thread.
        let (data, parity) = unsafe { (Readable::from_raw(base, 60), Writable::from_raw(base.add(59), 30)) };
        let layout = Stripes::new(60, 10, 6, 1).unwrap();
        let job = EncodeJob {
            code: Code::Mds,
            layout,
            group: 0,
            stripes: 0..1,
            rows: 0..2,
            allocated: 2,
            data,
            parity,
        };
        assert_eq!(coder.encode(&job), Err(EcError::Overlap));
    }
    assert!(bytes.iter().all(|&b| b == UNTOUCHED));
}

#[test]
fn back_ends() {
    use crate::ec::{Backend, Fast};
    for backend in Backend::available() {
        assert_eq!(Backend::named(backend.name()), Ok(backend));
        assert_eq!(Fast::with(backend).unwrap().backend(), backend);
    }
    let other = if cfg!(target_arch = "x86_64") { Backend::Neon } else { Backend::Avx2 };
    assert!(matches!(Fast::with(other), Err(EcError::Backend { .. })));
    match Backend::named("abacus") {
        Err(EcError::Backend { asked, found }) => {
            assert_eq!(asked, "abacus");
            assert!(found.starts_with("portable"));
        }
        other => panic!("{other:?}"),
    }
}
