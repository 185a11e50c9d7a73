//! Sequence numbers at which readers of this process read. The retention floor must never exceed
//! the lowest of them.

use crate::read::Pin;
use parking_lot::Mutex;
use siltstone_base::Seq;
use std::collections::BTreeMap;

/// Counts of the pins that bound the floor, by sequence number.
#[derive(Debug, Default)]
pub(crate) struct HeldSeqs(Mutex<BTreeMap<Seq, usize>>);

impl HeldSeqs {
    /// Takes a pin with `pin` and counts it until it is released. The pin is taken under the lock
    /// of the counts, so that no floor is published between taking and counting it.
    pub(crate) fn hold(&self, pin: impl FnOnce() -> Pin) -> Pin {
        let mut held = self.0.lock();
        let pin = pin();
        *held.entry(pin.seq).or_insert(0) += 1;
        pin
    }

    pub(crate) fn release(&self, seq: Seq) {
        let mut held = self.0.lock();
        if let Some(count) = held.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                held.remove(&seq);
            }
        }
    }

    /// The lowest pinned number, or the result of `next`, the number of the next pin, if that is
    /// lower. Calls `next` under the lock of the counts.
    pub(crate) fn floor(&self, next: impl FnOnce() -> Seq) -> Seq {
        let held = self.0.lock();
        let next = next();
        held.keys().next().copied().unwrap_or(next).min(next)
    }

    /// All pinned numbers, ascending.
    pub(crate) fn seqs(&self) -> Vec<Seq> {
        self.0.lock().keys().copied().collect()
    }

    /// Number of pins.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().values().sum()
    }
}
