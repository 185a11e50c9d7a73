//! Entries and their order.

use crate::error::{Error, Result};
use crate::id::Seq;
use crate::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use std::cmp::Ordering;
use std::time::Duration;

/// Absolute time in milliseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// The expiry of a value that is written now and lives for `life`: rounded up to milliseconds,
    /// so that no value expires early. Every way to write uses this function.
    ///
    /// # Errors
    /// Invalid for a zero duration, and for an expiry beyond 64 bits of milliseconds.
    pub fn after(self, life: Duration) -> Result<UnixMillis> {
        if life.is_zero() {
            return Err(Error::invalid(
                "the time to live (ttl) must be above 0; to remove a key, delete it",
            ));
        }
        let millis = u64::try_from(life.as_nanos().div_ceil(1_000_000)).ok();
        let at = millis.and_then(|millis| self.0.checked_add(millis));
        let too_long = || Error::invalid("the time to live (ttl) is too long");
        at.map(UnixMillis).ok_or_else(too_long)
    }
}

/// The effect of an entry on its key. The numbers are stored and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The key has this value from here on.
    Put = 1,
    /// The key has no value from here on (a tombstone).
    Delete = 2,
    /// An operand: the merge operator folds it into the older value.
    Merge = 3,
    /// Every key in `[key, value)` has no value from here on. Only batches contain it; memtables
    /// and tables store range deletes beside their entries ([`crate::range_delete`]).
    RangeDelete = 4,
}

impl Kind {
    /// The kind stored as `byte`.
    ///
    /// # Errors
    /// Unsupported for a number that this version does not know.
    #[inline]
    pub fn from_byte(byte: u8) -> Result<Kind> {
        match byte {
            1 => Ok(Kind::Put),
            2 => Ok(Kind::Delete),
            3 => Ok(Kind::Merge),
            4 => Ok(Kind::RangeDelete),
            _ => Err(Error::unsupported("an entry of a kind that this version does not know")
                .with("kind", byte)),
        }
    }

    /// Whether an entry of this kind, with or without an expiry, is a *plain* value: if a reader
    /// sees it, it decides the value of the key, and older entries do not matter.
    #[must_use]
    #[inline]
    pub const fn is_plain(self, expires: bool) -> bool {
        matches!(self, Kind::Put) && !expires
    }
}

/// One version of one key, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// User key, 1 to 65,535 bytes.
    pub key: &'a [u8],
    /// Position in the history.
    pub seq: Seq,
    /// The effect of the entry.
    pub kind: Kind,
    /// The entry counts as a tombstone from this time on. `None`: never.
    pub expires_at: Option<UnixMillis>,
    /// Value, operand, or the exclusive end of a range delete; empty for a tombstone.
    pub value: &'a [u8],
}

impl Entry<'_> {
    /// Whether the entry has expired at `now` (including the exact millisecond).
    #[must_use]
    #[inline]
    pub fn is_expired(&self, now: UnixMillis) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Order of the internal keys: user key ascending bytewise, then sequence number descending,
    /// so that of one key the newest version comes first.
    #[must_use]
    pub fn compare_internal(&self, other: &Entry<'_>) -> Ordering {
        compare_internal(self.key, self.seq, other.key, other.seq)
    }
}

/// Order of internal keys `(key, seq)`: key ascending, sequence number descending. Two versions of
/// a key never have the same sequence number in one database, so the kind does not matter.
#[must_use]
pub fn compare_internal(a_key: &[u8], a_seq: Seq, b_key: &[u8], b_seq: Seq) -> Ordering {
    a_key.cmp(b_key).then_with(|| b_seq.cmp(&a_seq))
}

/// Checks a user key.
///
/// # Errors
/// Invalid if it is empty or longer than 65,535 bytes.
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() {
        return Err(Error::invalid("a key must have at least 1 byte"));
    }
    if key.len() > MAX_KEY_BYTES {
        return Err(Error::invalid("a key has at most 65535 bytes").with("bytes", key.len()));
    }
    Ok(())
}

/// Checks a value.
///
/// # Errors
/// Invalid if it has 4 GiB - 1 bytes or more.
pub fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > MAX_VALUE_BYTES {
        return Err(Error::invalid("a value is smaller than 4 GiB").with("bytes", value.len()));
    }
    Ok(())
}

/// The smallest key greater than every key that starts with `prefix`: the exclusive end of the
/// prefix's range. `None` if there is no end (an empty prefix, or all bytes 0xff).
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    if let Some(byte) = end.last_mut() {
        *byte += 1;
    }
    Some(end)
}

/// The smallest key greater than `key`.
#[must_use]
pub fn key_after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn newest_version_of_a_key_comes_first() {
        assert_eq!(compare_internal(b"a", Seq(2), b"a", Seq(1)), Ordering::Less);
        assert_eq!(compare_internal(b"a", Seq(1), b"b", Seq(9)), Ordering::Less);
    }

    #[test]
    fn a_live_entry_ends_after_its_time_and_never_before() {
        let now = UnixMillis(1_000);
        for (nanos, end) in [(1, 1_001), (1_000_000, 1_001), (1_000_001, 1_002)] {
            assert_eq!(now.after(Duration::from_nanos(nanos)).unwrap(), UnixMillis(end));
        }
        let longest = Duration::from_millis(u64::MAX - 1_000);
        assert_eq!(now.after(longest).unwrap(), UnixMillis(u64::MAX));
        for refused in [Duration::ZERO, longest + Duration::from_nanos(1), Duration::MAX] {
            assert_eq!(now.after(refused).unwrap_err().kind(), ErrorKind::Invalid, "{refused:?}");
        }
    }

    #[test]
    fn prefix_end_skips_trailing_ff() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }

    #[test]
    fn no_key_is_between_a_key_and_the_next() {
        assert_eq!(key_after(b"a\xff"), b"a\xff\0");
        assert_eq!(key_after(b""), b"\0");
    }

    #[test]
    fn keys_are_checked() {
        assert!(check_key(b"").is_err());
        assert!(check_key(&[0; 65_535]).is_ok());
        assert!(check_key(&[0; 65_536]).is_err());
    }
}
