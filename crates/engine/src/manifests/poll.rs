//! How often a look for a newer manifest is a listing (rule M4): reads of the next number can be
//! fooled by freed ones.

use std::time::Duration;

/// A reader that has found nothing for so long polls less often, and reads the log alone except in
/// the polls that list, unless its interval was set by hand.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(60);
/// The first pause of an idle reader: a change is visible within five seconds, half a second of
/// requests included.
pub(crate) const IDLE_PAUSE: Duration = Duration::from_millis(4500);
/// The longest pause. A poll that follows a pause of more than [`LONGEST_WITHOUT_LISTING`] costs
/// four requests (one read of the log, two listings, one read of the manifest): one in eleven
/// seconds.
pub(crate) const LONGEST_IDLE_PAUSE: Duration = Duration::from_secs(45);
/// Between the two the pause is the time without a change, divided by this: a change is visible
/// after a twentieth of the time for which there was none.
pub(crate) const IDLE_TIME_A_PAUSE: u32 = 20;

/// The pause of a reader that has found nothing for `idle`.
pub(crate) fn idle_pause(idle: Duration) -> Duration {
    (idle / IDLE_TIME_A_PAUSE).clamp(IDLE_PAUSE, LONGEST_IDLE_PAUSE)
}

/// One poll in so many is a listing (rule M4).
pub(crate) const LIST_EVERY: u32 = 16;
/// A pause of so many poll intervals counts as long: numbers may have been freed meanwhile.
pub(crate) const LONG_PAUSE_INTERVALS: u32 = 10;
/// So long after the last listing the next poll is one, however few polls came between. No time is
/// shorter than every grace period, since a collector may use none: what this bounds is how far a
/// reader that polls by itself can fall behind. It is what [`LIST_EVERY`] polls take at the usual
/// interval; with longer intervals every poll lists, and is rare.
pub(crate) const LONGEST_WITHOUT_LISTING: Duration = Duration::from_secs(16);
