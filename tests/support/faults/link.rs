//! Bandwidth, and a client that aborts slow requests.
//!
//! ```text
//! request:  there ──── body ────┐                 ┌──── answer ──── back
//! limit:    └──────────────────── of the whole time ───────────────┘
//! ```
//! Bodies of one process are transferred one after the other over its link, each at the full speed:
//! other transfers delay them, as on a shared link. A link is not a fault that ends: it stays the
//! same when the faults are healed.

use crate::sim::ProcessId;
use std::collections::BTreeMap;
use std::time::Duration;

/// The connection between a process and the store.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Bytes per second, in one direction.
    pub bytes_per_second: u64,
    /// How long the client waits for a request without a body.
    pub limit: Duration,
    /// How much longer it waits: one second per this many bytes; `None`: no longer for any body.
    pub limit_bytes_per_second: Option<u64>,
}

impl Link {
    fn seconds(bytes: u64, per_second: u64) -> Duration {
        Duration::from_micros(bytes.saturating_mul(1_000_000) / per_second.max(1))
    }

    /// How long the client waits for a request with a body of this length.
    #[must_use]
    pub fn limit_of(&self, bytes: u64) -> Duration {
        let growth = self.limit_bytes_per_second.map(|rate| Link::seconds(bytes, rate));
        self.limit + growth.unwrap_or_default()
    }
}

/// Until when each process's link is in use.
#[derive(Default)]
pub(super) struct Traffic {
    taken_until: BTreeMap<ProcessId, Duration>,
}

impl Traffic {
    /// The duration of a body that starts at `now`. An aborted one frees the link at its limit.
    pub(super) fn take(
        &mut self,
        link: Link,
        process: ProcessId,
        (now, bytes): (Duration, u64),
    ) -> Duration {
        let free = self.taken_until.entry(process).or_default();
        let begins = now.max(*free);
        let ends = begins + Link::seconds(bytes, link.bytes_per_second);
        *free = begins.max(ends.min(now + link.limit_of(bytes)));
        ends - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_a_link_and_one_given_up_frees_it() {
        let limit = Duration::from_secs(4);
        let link = Link { bytes_per_second: 100, limit, limit_bytes_per_second: None };
        let (one, two) = (ProcessId::NETWORK, Duration::from_secs(2));
        let mut traffic = Traffic::default();
        assert_eq!(traffic.take(link, one, (Duration::ZERO, 200)), two);
        assert_eq!(traffic.take(link, one, (Duration::ZERO, 200)), two * 2);
        assert_eq!(traffic.take(link, one, (two * 2, 1000)), two * 5);
        assert_eq!(traffic.take(link, one, (two * 2, 0)), limit);
        let growing = Link { limit_bytes_per_second: Some(50), ..link };
        assert_eq!((link.limit_of(500), growing.limit_of(500)), (limit, limit + two * 5));
    }
}
