//! Events in order of time, and of insertion at the same time.
//!
//! A link without jitter delivers in the order it was given, so the queue is a FIFO and a heap beside it that only takes
//! what is earlier than the FIFO's end.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use sdr_sdk::types::Nanos;

/// When an event is due, and its place among those due at the same time.
pub(super) type Due = (Nanos, u64);

struct Entry<T> {
    due: Due,
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    /// Reversed: the heap gives the greatest, the queue wants the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.due.cmp(&self.due)
    }
}

/// A priority queue that is a FIFO while events are added in order.
pub(super) struct EventQueue<T> {
    fifo: VecDeque<Entry<T>>,
    heap: BinaryHeap<Entry<T>>,
}

impl<T> EventQueue<T> {
    pub(super) fn new() -> Self {
        Self { fifo: VecDeque::new(), heap: BinaryHeap::new() }
    }

    /// The second part of `due` grows from call to call.
    pub(super) fn push(&mut self, due: Due, what: T) {
        let entry = Entry { due, what };
        match self.fifo.back() {
            Some(last) if last.due > due => self.heap.push(entry),
            _ => self.fifo.push_back(entry),
        }
    }

    /// The last of the FIFO when it is due at `at`, to be merged with.
    pub(super) fn last_at(&mut self, at: Nanos) -> Option<&mut T> {
        self.fifo.back_mut().filter(|e| e.due.0 == at).map(|e| &mut e.what)
    }

    /// When the next is due.
    pub(super) fn head(&self) -> Option<Due> {
        match (self.fifo.front(), self.heap.peek()) {
            (Some(f), Some(h)) => Some(f.due.min(h.due)),
            (f, h) => f.or(h).map(|e| e.due),
        }
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let from_heap = match (self.fifo.front(), self.heap.peek()) {
            (Some(f), Some(h)) => h.due < f.due,
            (f, _) => f.is_none(),
        };
        if from_heap { self.heap.pop() } else { self.fifo.pop_front() }.map(|e| e.what)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn order_is_that_of_a_stable_sort(ops in prop::collection::vec((0u64..20, any::<bool>()), 0..200)) {
            let (mut queue, mut naive) = (EventQueue::new(), Vec::new());
            for (order, (at, pop)) in (0u64..).zip(ops) {
                queue.push((Nanos(at), order), order);
                naive.push((Nanos(at), order));
                naive.sort();
                prop_assert_eq!(queue.head(), naive.first().copied());
                if pop {
                    prop_assert_eq!(queue.pop(), Some(naive.remove(0).1));
                }
            }
            while let Some(order) = queue.pop() {
                prop_assert_eq!(order, naive.remove(0).1);
            }
            prop_assert!(naive.is_empty());
        }
    }
}
