//! The changes since a checkpoint in memory, from which the feed takes before-images (RFC 0041).
//!
//! It must never answer for a key that no change has touched: the checkpoint has the value of that
//! key. Changes are added in the order of the feed, whose times never fall.

use super::rows::BeforeColumn;
use crate::read::value::LastingEntry;
use siltstone_base::entry::check_value;
use siltstone_base::{Entry, Error, Kind, MergeOperator, Result, Seq, UnixMillis};
use siltstone_merge::{LookupStep, ReadView, Resolve};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Maximum bytes of the changed keys in memory.
const MOST_BYTES: usize = 1 << 30;
/// Memory for a key or a range besides its bytes: nodes of the tree, and lengths.
const BYTES_BESIDE: usize = 96;

/// The state of all keys that have changed since the checkpoint.
pub(crate) struct ChangeOverlay {
    /// The state before the last read.
    settled: OverlayLayer,
    /// The changes of the last read, which the caller may read again.
    recent: OverlayLayer,
    operator: Option<Arc<dyn MergeOperator>>,
    most: usize,
}

/// Changed keys, and the ranges that were deleted before their newest changes.
#[derive(Debug, Default)]
struct OverlayLayer {
    keys: BTreeMap<Vec<u8>, KeyHistory>,
    deleted: DeletedRanges,
    bytes: usize,
}

/// The versions of a key that still have an effect, oldest first.
#[derive(Clone, Debug, Default)]
struct KeyHistory {
    versions: Vec<KeyVersion>,
    /// Whether the versions are all, so that the value at the checkpoint has no effect.
    is_whole: bool,
}

#[derive(Clone, Debug)]
struct KeyVersion {
    kind: Kind,
    expires_at: Option<UnixMillis>,
    value: Vec<u8>,
}

/// A value, and the time until which it stays the same; `None`: forever.
struct LastingValue<'a> {
    value: Option<Cow<'a, [u8]>>,
    lasts_until: Option<UnixMillis>,
}

/// The union of deleted ranges: first keys, and exclusive end keys.
#[derive(Debug, Default)]
struct DeletedRanges(BTreeMap<Vec<u8>, Vec<u8>>);

impl ChangeOverlay {
    /// No changes yet.
    pub(crate) fn new(operator: Option<Arc<dyn MergeOperator>>) -> ChangeOverlay {
        let (settled, recent) = (OverlayLayer::default(), OverlayLayer::default());
        ChangeOverlay { settled, recent, operator, most: MOST_BYTES }
    }

    /// Whether the value of `key` at the checkpoint has an effect on its value at the time `at`.
    pub(crate) fn needs_base(&self, key: &[u8], at: UnixMillis) -> bool {
        self.history(key).is_none_or(|history| history.needs_base(at))
    }

    /// Appends the before-image of `change`, which was committed at `at`, to `images`, and adds the
    /// change. `base` is the value of its key at the checkpoint, as of the time `at`.
    ///
    /// # Errors
    /// Invalid for a key with operands of an operator that is not known; the operator's errors;
    /// Unsupported if the column is full; Invalid if the changes exceed the maximum of memory.
    pub(crate) fn push(
        &mut self,
        change: &Entry<'_>,
        at: UnixMillis,
        base: Option<&LastingEntry>,
        images: &mut BeforeColumn,
    ) -> Result<()> {
        if change.kind == Kind::RangeDelete {
            images.push(None)?;
            return self.add(change, at);
        }
        let untouched = KeyHistory::default();
        let history = self.history(change.key).unwrap_or(&untouched);
        let before = history.resolve(change.key, at, base, self.operator.as_ref())?;
        images.push(before.value.as_deref())?;
        let next = history.followed_by(change, Some(before), base, self.operator.as_deref());
        self.recent.insert(change.key, next);
        self.check_room()
    }

    /// Adds a change without its before-image, and without the value at the checkpoint.
    ///
    /// # Errors
    /// Invalid if the changes exceed the maximum of memory.
    pub(crate) fn add(&mut self, change: &Entry<'_>, at: UnixMillis) -> Result<()> {
        if change.kind == Kind::RangeDelete {
            self.recent.delete_range(change.key, change.value);
            return self.check_room();
        }
        let untouched = KeyHistory::default();
        let history = self.history(change.key).unwrap_or(&untouched);
        let known = change.kind == Kind::Merge && !history.needs_base(at);
        let before = match known {
            true => history.resolve(change.key, at, None, self.operator.as_ref()).ok(),
            false => None,
        };
        let next = history.followed_by(change, before, None, self.operator.as_deref());
        self.recent.insert(change.key, next);
        self.check_room()
    }

    /// The changes of the last read were used: the state is that after them.
    pub(crate) fn settle(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        for (start, end) in &recent.deleted.0 {
            self.settled.delete_range(start, end);
        }
        for (key, history) in recent.keys {
            self.settled.insert(&key, history);
        }
    }

    /// Takes the changes of the last read back: they will be read again.
    pub(crate) fn take_back(&mut self) {
        self.recent = OverlayLayer::default();
    }

    /// Forgets all changes.
    pub(crate) fn clear(&mut self) {
        (self.settled, self.recent) = (OverlayLayer::default(), OverlayLayer::default());
    }

    /// The versions of `key` since the checkpoint; `None` if no change has touched it.
    fn history(&self, key: &[u8]) -> Option<&KeyHistory> {
        self.recent.history(key).or_else(|| self.settled.history(key))
    }

    fn check_room(&self) -> Result<()> {
        let bytes = self.settled.bytes + self.recent.bytes;
        if bytes <= self.most {
            return Ok(());
        }
        Err(Error::invalid(
            "the keys that have changed since the checkpoint exceed the memory for before-images; \
             take a newer checkpoint, read the changes up to it, and go on with it as the base",
        )
        .with("bytes", bytes)
        .with("maximum", self.most))
    }
}

impl OverlayLayer {
    fn history(&self, key: &[u8]) -> Option<&KeyHistory> {
        static DELETED: KeyHistory = KeyHistory { versions: Vec::new(), is_whole: true };
        let found = self.keys.get(key);
        found.or_else(|| self.deleted.has(key).then_some(&DELETED))
    }

    fn insert(&mut self, key: &[u8], history: KeyHistory) {
        self.bytes += history.bytes();
        match self.keys.get_mut(key) {
            Some(known) => self.bytes -= std::mem::replace(known, history).bytes(),
            None => {
                self.bytes += key.len() + BYTES_BESIDE;
                self.keys.insert(key.to_vec(), history);
            }
        }
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        if start >= end {
            return;
        }
        let within = (Bound::Included(start), Bound::Excluded(end));
        let keys: Vec<Vec<u8>> =
            self.keys.range::<[u8], _>(within).map(|(key, _)| key.clone()).collect();
        for key in keys {
            let gone = self.keys.remove(&key).map_or(0, |history| history.bytes());
            self.bytes -= gone + key.len() + BYTES_BESIDE;
        }
        let before = self.deleted.bytes_near(start, end);
        self.deleted.add(start, end);
        self.bytes = (self.bytes + self.deleted.bytes_near(start, end)).saturating_sub(before);
    }
}

impl KeyHistory {
    fn bytes(&self) -> usize {
        self.versions.iter().map(|version| version.value.len() + size_of::<KeyVersion>()).sum()
    }

    /// Whether the value below the versions has an effect: nothing above it has expired.
    fn needs_base(&self, at: UnixMillis) -> bool {
        !self.is_whole && !self.versions.iter().any(|version| version.has_expired(at))
    }

    /// The value at the time `at`.
    fn resolve<'a>(
        &'a self,
        key: &[u8],
        at: UnixMillis,
        base: Option<&'a LastingEntry>,
        operator: Option<&Arc<dyn MergeOperator>>,
    ) -> Result<LastingValue<'a>> {
        let operator = operator.cloned();
        let view = ReadView { seq: Seq::MAX, now: at, operator, recorded_operator: None };
        let mut resolve = Resolve::new(key, &view).noting_newest();
        let base = base.filter(|_| !self.is_whole);
        let mut value = None;
        let mut ends = false;
        for version in self.versions.iter().rev() {
            match resolve.push(version.entry(key))? {
                LookupStep::NeedOlder => continue,
                LookupStep::Value => value = Some(Cow::Borrowed(&version.value[..])),
                LookupStep::Absent | LookupStep::Folded => {}
            }
            ends = true;
            break;
        }
        if let Some(base) = base.filter(|_| !ends) {
            let (kind, value_of_base) = (Kind::Put, &base.entry.value[..]);
            let expires_at = base.lasts_until;
            let entry = Entry { key, seq: Seq(1), kind, expires_at, value: value_of_base };
            if resolve.push(entry)? == LookupStep::Value {
                value = Some(Cow::Borrowed(value_of_base));
            }
        }
        let lasts_until = resolve.newest().and_then(|newest| newest.lasts_until);
        let value = match value {
            Some(value) => Some(value),
            None => resolve.finish()?.map(Cow::Owned),
        };
        Ok(LastingValue { value, lasts_until })
    }

    /// The versions after `change`. `before` is the value before it, if that is known, and `base`
    /// the value at the checkpoint.
    fn followed_by(
        &self,
        change: &Entry<'_>,
        before: Option<LastingValue<'_>>,
        base: Option<&LastingEntry>,
        operator: Option<&dyn MergeOperator>,
    ) -> KeyHistory {
        let version = KeyVersion {
            kind: change.kind,
            expires_at: change.expires_at,
            value: change.value.to_vec(),
        };
        match (change.kind, before) {
            (Kind::Put, _) => KeyHistory { versions: vec![version], is_whole: true },
            (Kind::Merge, Some(before)) => {
                let folded = operator.and_then(|one| before.folded(change, one));
                match folded {
                    Some(value) => {
                        let put = KeyVersion { kind: Kind::Put, value, ..version };
                        KeyHistory { versions: vec![put], is_whole: true }
                    }
                    None => self.with_operand(version, change.key, base, operator),
                }
            }
            (Kind::Merge, None) => self.with_operand(version, change.key, None, operator),
            _ => KeyHistory { versions: Vec::new(), is_whole: true },
        }
    }

    /// The versions with one more operand. Two operands become one if the operator can fold them,
    /// and the newer one does not expire later (rule H5).
    fn with_operand(
        &self,
        operand: KeyVersion,
        key: &[u8],
        base: Option<&LastingEntry>,
        operator: Option<&dyn MergeOperator>,
    ) -> KeyHistory {
        let mut next = self.clone();
        // A value at the checkpoint that never expires need not be read again.
        if let Some(base) = base.filter(|base| base.lasts_until.is_none() && !self.is_whole) {
            let (kind, value) = (Kind::Put, base.entry.value.to_vec());
            next.versions.insert(0, KeyVersion { kind, expires_at: None, value });
            next.is_whole = true;
        }
        let last = next.versions.last().filter(|last| last.kind == Kind::Merge);
        let last = last.filter(|last| lasts(operand.expires_at) <= lasts(last.expires_at));
        let folded = operator.zip(last).and_then(|(operator, last)| {
            let folded = operator.fold_operands(key, &[&last.value, &operand.value]).ok()??;
            check_value(&folded).is_ok().then_some(folded)
        });
        match folded {
            Some(value) => {
                next.versions.pop();
                next.versions.push(KeyVersion { value, ..operand });
            }
            None => next.versions.push(operand),
        }
        next
    }
}

impl KeyVersion {
    fn has_expired(&self, at: UnixMillis) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= at)
    }

    fn entry<'a>(&'a self, key: &'a [u8]) -> Entry<'a> {
        let KeyVersion { kind, expires_at, value } = self;
        Entry { key, seq: Seq(1), kind: *kind, expires_at: *expires_at, value }
    }
}

impl LastingValue<'_> {
    /// The value after the operand `change`, if the two can be one value at every later time. An
    /// operator that fails here fails for the change that needs the value.
    fn folded(&self, change: &Entry<'_>, operator: &dyn MergeOperator) -> Option<Vec<u8>> {
        let is_exact = self.value.is_none() || lasts(change.expires_at) <= lasts(self.lasts_until);
        let fold = || operator.fold(change.key, self.value.as_deref(), &[change.value]).ok();
        let folded = is_exact.then(fold).flatten();
        folded.filter(|value| check_value(value).is_ok())
    }
}

/// Order of expiries: `None` is the latest.
fn lasts(expires_at: Option<UnixMillis>) -> (bool, Option<UnixMillis>) {
    (expires_at.is_none(), expires_at)
}

impl DeletedRanges {
    fn has(&self, key: &[u8]) -> bool {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        self.0.range::<[u8], _>(up_to).next_back().is_some_and(|(_, end)| key < &end[..])
    }

    /// Adds a range, joined with the ranges that it overlaps or touches.
    fn add(&mut self, start: &[u8], end: &[u8]) {
        let (mut first, mut last) = (start.to_vec(), end.to_vec());
        for (other, other_end) in self.near(start, end) {
            self.0.remove(&other);
            first = first.min(other);
            last = last.max(other_end);
        }
        self.0.insert(first, last);
    }

    /// The ranges that overlap or touch a range.
    fn near(&self, start: &[u8], end: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let up_to = (Bound::Unbounded, Bound::Included(end));
        let below = self.0.range::<[u8], _>(up_to).rev();
        let near = below.take_while(|(_, other_end)| &other_end[..] >= start);
        near.map(|(other, other_end)| (other.clone(), other_end.clone())).collect()
    }

    fn bytes_near(&self, start: &[u8], end: &[u8]) -> usize {
        let near = self.near(start, end);
        near.iter().map(|(start, end)| start.len() + end.len() + BYTES_BESIDE).sum()
    }
}

#[cfg(test)]
mod tests;
