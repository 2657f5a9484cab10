//! Raw slices for tests. Outside `sdr-sdk` nothing makes one yet; a function of `Region` would replace this file.
//!
//! The layout of a Rust struct is not specified, so it is found out: a slice is made of words that are all different and
//! valid in every place, and its methods tell which word is which.
#![expect(unsafe_code, reason = "makes a raw slice of a whole region")]

use std::mem::{MaybeUninit, size_of, transmute};
use std::sync::Arc;

use sdr_sdk::memory::{RawSlice, Region, RegionId};

const WORDS: usize = size_of::<RawSlice>() / size_of::<usize>();

/// All of a region.
pub(crate) fn whole(region: &Arc<Region>, id: RegionId) -> RawSlice {
    // Halves that are all different.
    let probe: [usize; WORDS] = std::array::from_fn(|i| (2 * i + 2) << 32 | (2 * i + 1));
    // SAFETY: every byte is initialised and every word is not zero, so that any field can be in any place: a pointer that
    // is not null, a length, a number. The pointer is not used.
    let sample: RawSlice = unsafe { transmute(probe) };
    let word = |value: usize| probe.iter().position(|w| *w == value).expect("one of the words");
    let (pointer, length) = (word(sample.as_ptr().addr()), word(sample.len()));
    let RegionId(half) = sample.region();
    let id_at = if cfg!(target_endian = "little") { half - 1 } else { (half - 1) ^ 1 } as usize;
    let mut slice = MaybeUninit::<RawSlice>::zeroed();
    let base: *mut u8 = slice.as_mut_ptr().cast();
    // SAFETY: the three fields are in these places, inside and aligned, and with them every field is valid: the base of a
    // region is not null.
    unsafe {
        base.cast::<*mut u8>().add(pointer).write(region.base().as_ptr());
        base.cast::<usize>().add(length).write(region.len());
        base.cast::<u32>().add(id_at).write(id.0);
        slice.assume_init()
    }
}

#[test]
fn a_slice_is_the_whole_region() {
    let region = Region::map(12_345).unwrap();
    let slice = whole(&region, RegionId(77));
    assert_eq!((slice.as_ptr(), slice.len()), (region.base().as_ptr(), 12_345));
    assert_eq!(slice.region(), RegionId(77));
}
