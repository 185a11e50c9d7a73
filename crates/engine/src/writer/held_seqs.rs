//! Who in this process reads at which sequence number: what the floor goes by.

use crate::read::Pin;
use parking_lot::Mutex;
use siltstone_base::Seq;
use std::collections::BTreeMap;

/// Pins that count for the floor, by their sequence numbers.
#[derive(Debug, Default)]
pub(crate) struct HeldSeqs(Mutex<BTreeMap<Seq, usize>>);

impl HeldSeqs {
    /// Counts what `pin` takes until it is released. It is taken under the lock of the count, so
    /// that no floor is published between taking the moment and counting it.
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

    /// The oldest, or what `next` answers if that is older: where the next would be. Asked under
    /// the lock of the count.
    pub(crate) fn floor(&self, next: impl FnOnce() -> Seq) -> Seq {
        let held = self.0.lock();
        let next = next();
        held.keys().next().copied().unwrap_or(next).min(next)
    }

    /// All of them, ascending.
    pub(crate) fn seqs(&self) -> Vec<Seq> {
        self.0.lock().keys().copied().collect()
    }

    /// How many pins there are.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().values().sum()
    }
}
