//! The history: its hash, and the latest events.

use std::collections::VecDeque;
use std::time::Duration;

/// Events kept for the report of a failure.
const RECENT_EVENTS: usize = 60;

/// One event.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    /// The number of its process.
    pub(crate) process: u32,
    pub(crate) what: &'static str,
    pub(crate) detail: u64,
}

/// The whole history.
pub(crate) struct Trace {
    hash: u64,
    recent: VecDeque<Event>,
}

impl Default for Trace {
    fn default() -> Self {
        Trace { hash: 0xcbf2_9ce4_8422_2325, recent: VecDeque::new() }
    }
}

impl Trace {
    /// Folds an event into the hash (FNV-1a over its numbers and its name).
    pub(crate) fn note(&mut self, event: Event) {
        let numbers = [event.at.as_nanos() as u64, u64::from(event.process), event.detail];
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        for byte in bytes.chain(event.what.bytes()) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if self.recent.len() == RECENT_EVENTS {
            self.recent.pop_front();
        }
        self.recent.push_back(event);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The latest, oldest first.
    pub(crate) fn recent(&self) -> impl Iterator<Item = &Event> {
        self.recent.iter()
    }
}
