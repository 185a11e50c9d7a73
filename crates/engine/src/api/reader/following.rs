//! The background task of a reader that refreshes it, and the schedule of these refreshes.

use super::{ReaderShared, TARGET, in_millis};
use crate::follower::following::PollMode;
use crate::manifests::poll::{IDLE_AFTER, idle_pause};
use siltstone_base::{ManifestId, Result, Seq};
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Follows the writer until the reader is closed or dropped.
pub(super) async fn follow(shared: Weak<ReaderShared>) {
    let mut quiet = IdleSince::default();
    let mut failures = Failures::default();
    loop {
        let (pause, look) = {
            let Some(shared) = shared.upgrade() else { return };
            let (pause, look) = quiet.next(&shared);
            (shared.context.env.clock.sleep(pause), look)
        };
        pause.await;
        let Some(shared) = shared.upgrade() else { return };
        if shared.health.is_closed() {
            return;
        }
        // The next refresh retries after an error; `refresh()` also returns the error.
        let refreshed = shared.refresh(look).await;
        if !shared.health.is_closed() {
            failures.note(&refreshed);
        }
    }
}

/// The pause before a refresh that decides whether the reader ends.
const CONFIRMS_AFTER: Duration = Duration::from_secs(1);

/// Looks in a row that failed: told with back-off, at the first and whenever they have doubled.
#[derive(Default)]
struct Failures {
    in_a_row: u64,
}

impl Failures {
    fn note(&mut self, refreshed: &Result<()>) {
        let before = self.in_a_row;
        match refreshed {
            Ok(()) => {
                self.in_a_row = 0;
                if before > 0 {
                    log::info!(target: TARGET, "event=refresh_recovers failures={before}");
                }
            }
            Err(error) => {
                self.in_a_row += 1;
                if self.in_a_row.is_power_of_two() {
                    let (times, kind) = (self.in_a_row, error.kind().name());
                    log::warn!(
                        target: TARGET,
                        "event=refresh_fails failures={times} kind={kind} error={:?}",
                        error.to_string(),
                    );
                }
            }
        }
    }
}

/// The time since which a reader has found no new data.
#[derive(Default)]
struct IdleSince {
    /// The commit that last changed tables and the last sequence number that it saw, and when it
    /// saw them first.
    saw: Option<(ManifestId, Seq, Duration)>,
}

impl IdleSince {
    /// The pause before the next look, and what kind of look that is.
    fn next(&mut self, shared: &ReaderShared) -> (Duration, PollMode) {
        let (pause, look) = self.usual(shared);
        // With a maximum staleness, few reads should wait for a refresh.
        let look = match shared.options.readers.max_staleness {
            Some(bound) if shared.age() > bound / 2 => PollMode::Thoroughly,
            _ => look,
        };
        if shared.health.is_doubtful() {
            return (pause.min(CONFIRMS_AFTER), PollMode::Thoroughly);
        }
        let elapsed = in_millis(shared.context.env.clock.elapsed());
        // A due refresh that failed is retried at the usual interval.
        let next = shared.next_look.load(Ordering::Acquire).checked_sub(elapsed);
        let next = next.filter(|next| *next > 0).map_or(pause, Duration::from_millis);
        (pause.min(next), look)
    }

    fn usual(&mut self, shared: &ReaderShared) -> (Duration, PollMode) {
        let interval = shared.options.poll_interval();
        if shared.options.manifest_poll_interval.is_some() {
            return (interval, PollMode::Cheaply);
        }
        let now = shared.context.env.clock.monotonic();
        let (tables, seq) = {
            let view = shared.view.read();
            (view.manifest.tables_since, view.seq)
        };
        let since = match self.saw {
            Some((old, last, since)) if (old, last) == (tables, seq) => since,
            _ => now,
        };
        self.saw = Some((tables, seq, since));
        let idle = now.saturating_sub(since);
        if idle < IDLE_AFTER {
            return (interval, PollMode::Cheaply);
        }
        // Twice in the half of its lifetime after which a lease is renewed.
        let pause =
            idle_pause(idle).min(shared.options.readers.checkpoint_lifetime / 4).max(interval);
        (pause, PollMode::Seldom)
    }
}
