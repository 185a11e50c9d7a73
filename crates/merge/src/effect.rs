//! The effect of an entry at a given time. Expiry is evaluated only here.

use siltstone_base::{Entry, Error, Kind, Result, UnixMillis};

/// The effect of an entry on its key at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The key has the entry's value; older entries do not matter.
    Value,
    /// The key has no value; older entries do not matter. A tombstone, or an expired entry of any
    /// kind: if it were ignored instead, the version below would become visible again.
    Absent,
    /// The entry's operand is folded into the older value.
    Operand,
}

/// The effect of `entry` at `now`.
///
/// # Errors
/// Internal for a range delete, which is never among entries.
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
