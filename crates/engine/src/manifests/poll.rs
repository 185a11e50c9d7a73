//! How often a look for a newer manifest is a listing (rule M4): reads of the next number can be
//! fooled by freed ones.

use std::time::Duration;

/// A reader that has found nothing for so long looks less often, and in the log alone but for the
/// looks that list, unless its interval was set by hand.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(60);
/// How often then: what changes is to be seen within five seconds, half a second of requests
/// included. Three reads of the log and a look of three requests (two listings and a read) come in
/// 18 s, which is one in three seconds.
pub(crate) const IDLE_PAUSE: Duration = Duration::from_millis(4500);
/// One poll in so many is a listing (rule M4).
pub(crate) const LIST_EVERY: u32 = 16;
/// A pause of so many poll intervals counts as long: numbers may have been freed meanwhile.
pub(crate) const LONG_PAUSE_INTERVALS: u32 = 10;
/// So long after the last listing the next poll is one, however few polls came between. No time is
/// shorter than every grace period, since a collector may use none: what this bounds is how far a
/// reader that polls by itself can fall behind. It is what [`LIST_EVERY`] polls take at the usual
/// interval; with longer intervals every poll lists, and is rare.
pub(crate) const LONGEST_WITHOUT_LISTING: Duration = Duration::from_secs(16);
