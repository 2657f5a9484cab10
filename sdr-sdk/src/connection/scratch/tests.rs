use super::*;
use crate::memory::{RecvBuf, Region, RegionId};
use proptest::prelude::*;

/// As a context does: it keeps an entry of each region.
#[derive(Default)]
struct Context(Vec<Arc<Region>>);

impl Context {
    fn register(&mut self, len: usize) -> Option<SendBuf> {
        let region = Region::map(len).ok()?;
        self.0.push(region.clone());
        Some(RecvBuf::whole(1, region, RegionId(self.0.len() as u32)).freeze())
    }
}

fn take(s: &mut Scratch, c: &mut Context, bytes: usize) -> Option<SendBuf> {
    s.take(bytes, |len| c.register(len))
}

#[test]
fn a_block_is_lent_to_one_at_a_time() {
    let (mut s, mut c) = (Scratch::new(4 * LEAST), Context::default());
    let a = take(&mut s, &mut c, 100).unwrap();
    let b = take(&mut s, &mut c, 100).unwrap();
    assert_ne!(a.base(), b.base());
    let at = a.base();
    // A slice of it is a claim as well.
    let part = a.slice(10, 20);
    drop(a);
    let d = take(&mut s, &mut c, 100).unwrap();
    assert_ne!(d.base(), at);
    drop(part);
    assert_eq!(take(&mut s, &mut c, 100).unwrap().base(), at);
    assert_eq!(c.0.len(), 3);
}

#[test]
fn the_pool_has_a_limit_and_small_blocks_make_room_for_large_ones() {
    let (mut s, mut c) = (Scratch::new(4 * LEAST), Context::default());
    assert!(take(&mut s, &mut c, 4 * LEAST + 1).is_none());
    let small: Vec<_> = (0..4).map(|_| take(&mut s, &mut c, 1).unwrap()).collect();
    assert!(take(&mut s, &mut c, 1).is_none(), "all lent");
    drop(small);
    assert!(take(&mut s, &mut c, 4 * LEAST).is_some());
    // The others were given up: the context has the last entry.
    assert_eq!(c.0.iter().filter(|r| Arc::strong_count(r) == 1).count(), 4);
}

#[test]
fn no_memory_is_none() {
    for most in [0, 1] {
        let mut s = Scratch::new(most);
        assert!(s.take(1, |_| None).is_none());
        assert!(s.take(usize::MAX, |_| panic!("nothing to register")).is_none());
    }
    assert!(Scratch::new(0).take(1, |_| panic!("a pool of nothing")).is_none());
    // A registration that failed costs nothing.
    let (mut s, mut c) = (Scratch::new(LEAST), Context::default());
    assert!(s.take(1, |_| None).is_none());
    assert!(take(&mut s, &mut c, 1).is_some());
}

proptest! {
    #[test]
    fn bounded_and_never_shared(
        most in 0usize..20, calls in prop::collection::vec((0usize..6, 1usize..8 * LEAST), 1..80),
    ) {
        let (mut s, mut c) = (Scratch::new(most * LEAST), Context::default());
        let mut lent: Vec<SendBuf> = Vec::new();
        for (give_back, bytes) in calls {
            if give_back > 2 && !lent.is_empty() {
                lent.swap_remove(give_back % lent.len());
            }
            if let Some(b) = take(&mut s, &mut c, bytes) {
                prop_assert!(b.len_bytes() >= bytes);
                prop_assert!(lent.iter().all(|l| l.base() != b.base()));
                lent.push(b);
            }
            // What the pool holds: the context's entry is not the last.
            let held: usize = c.0.iter().filter(|r| Arc::strong_count(r) > 1).map(|r| r.len()).sum();
            prop_assert!(held <= s.most() && held == s.bytes);
        }
    }
}
