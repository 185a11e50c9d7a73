//! When a poll for a newer manifest lists (rule M4). Most polls read only the next number, and
//! freed numbers can hide a newer manifest from them.

use std::time::Duration;

/// Time without a change after which a reader counts as idle. An idle reader polls less often.
/// Except in polls that list, it reads only the log. This does not apply if the poll interval was
/// set explicitly.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(60);
/// The first pause of an idle reader. A change is visible within five seconds, including half a
/// second of requests.
pub(crate) const IDLE_PAUSE: Duration = Duration::from_millis(4500);
/// The longest pause of an idle reader. A poll after a pause of more than
/// [`LONGEST_WITHOUT_LISTING`] makes four requests: one read of the log, two listings, one read of
/// the manifest. So an idle reader makes about one request in eleven seconds.
pub(crate) const LONGEST_IDLE_PAUSE: Duration = Duration::from_secs(45);
/// Between the two, the pause is the time without a change, divided by this number. A change is
/// then visible after a twentieth of the time without one.
pub(crate) const IDLE_TIME_A_PAUSE: u32 = 20;

/// The pause of a reader without a change for `idle`.
pub(crate) fn idle_pause(idle: Duration) -> Duration {
    (idle / IDLE_TIME_A_PAUSE).clamp(IDLE_PAUSE, LONGEST_IDLE_PAUSE)
}

/// One poll in this many is a listing (rule M4).
pub(crate) const LIST_EVERY: u32 = 16;
/// A pause of this many poll intervals counts as long: numbers may have been freed during it.
pub(crate) const LONG_PAUSE_INTERVALS: u32 = 10;
/// Time after the last listing at which the next poll lists, however few polls came between. A
/// collector may use any grace period, also none, so no time is short enough for safety. This
/// bounds how far a reader that polls by itself can fall behind. At the default interval
/// [`LIST_EVERY`] polls take this time; at longer intervals every poll lists.
pub(crate) const LONGEST_WITHOUT_LISTING: Duration = Duration::from_secs(16);
