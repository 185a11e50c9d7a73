//! The effect of an entry at a given time. Expiry is evaluated only here.

use siltstone_base::{Entry, Error, Kind, Result, UnixMillis};

/// What an entry does to its key at a given moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The key has the entry's value; nothing older matters.
    Value,
    /// The key has no value; nothing older matters. A tombstone, or an entry of any kind that has
    /// expired: if it were passed over instead, the version below would come back to life.
    Absent,
    /// The entry's operand is folded into what is older.
    Operand,
}

/// The effect of `entry` at `now`.
///
/// # Errors
/// Internal for a range delete, which stands beside entries.
#[inline]
pub(crate) fn effect_of(entry: &Entry<'_>, now: UnixMillis) -> Result<Effect> {
    match entry.kind {
        Kind::RangeDelete => Err(Error::internal("a range delete stands among entries")),
        Kind::Delete => Ok(Effect::Absent),
        _ if entry.is_expired(now) => Ok(Effect::Absent),
        Kind::Put => Ok(Effect::Value),
        Kind::Merge => Ok(Effect::Operand),
    }
}
