//! The retention rules for the versions of one user key (rules H1 to H6). RFC 0005 gives the reason
//! for each.

use crate::deletes::Deletes;
use crate::effect::{Effect, effect_of};
use crate::fold::{Ground, Version, fold_stripe};
use crate::retention::Retention;
use siltstone_base::{Entry, Kind, RangeDelete, Result, Seq};

/// The form in which a retained, borrowed entry is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetainedForm {
    AsItIs,
    /// With sequence number 0.
    AtZero,
    /// With only its key and sequence number: a tombstone, or an expired entry.
    AsTombstone,
}

impl RetainedForm {
    /// The entry in this form.
    #[inline]
    pub(crate) fn of<'e>(self, entry: &Entry<'e>) -> Entry<'e> {
        match self {
            RetainedForm::AsItIs => *entry,
            RetainedForm::AtZero => Entry { seq: Seq::NONE, ..*entry },
            RetainedForm::AsTombstone => {
                Entry { kind: Kind::Delete, expires_at: None, value: &[], ..*entry }
            }
        }
    }
}

/// The decision about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepVerdict {
    /// It was dropped, or collected.
    Entry,
    /// It is kept, in this form.
    EntryKept(RetainedForm),
    /// It has a later key and was not consumed; versions of the previous key are kept.
    GroupKept,
    /// It has a later key and was not consumed; nothing of the previous key is kept.
    NothingKept,
    /// There was no entry and nothing is left.
    End,
}

/// The rules, and the state of the current key.
#[derive(Debug)]
pub(crate) struct Keep {
    rules: Retention,
    deletes: Deletes,
    key: Vec<u8>,
    /// The stripe of `key` whose value or tombstone was found: older versions in it are hidden
    /// (rule H1).
    closed: Option<u64>,
    /// Versions of `key` that wait for older ones, newest first.
    group: Vec<Version>,
    /// Kept versions of a group, oldest first: taken from the end.
    kept: Vec<Version>,
}

/// The number of snapshots below `seq`: a snapshot reads its own sequence number. Above the floor
/// every sequence number counts as one.
fn stripe_of(rules: &Retention, seq: Seq) -> u64 {
    let bounds = &rules.snapshot_bounds;
    match rules.floor {
        Some(floor) if seq > floor => (bounds.len() as u64).saturating_add(seq.get() - floor.get()),
        _ => bounds.partition_point(|bound| *bound < seq) as u64,
    }
}

impl Keep {
    pub(crate) fn new(mut rules: Retention) -> Self {
        rules.snapshot_bounds.sort_unstable();
        let deletes = std::mem::take(&mut rules.range_deletes);
        let deletes = Deletes::new(deletes, |seq| stripe_of(&rules, seq));
        Keep { rules, deletes, key: Vec::new(), closed: None, group: Vec::new(), kept: Vec::new() }
    }

    /// The first kept entry of a group.
    pub(crate) fn front(&self) -> Option<Entry<'_>> {
        self.kept.last().map(|version| Entry {
            key: &self.key,
            seq: version.seq,
            kind: version.kind,
            expires_at: version.expires_at,
            value: &version.value,
        })
    }

    /// Drops the first one and returns whether there is another.
    pub(crate) fn drop_front(&mut self) -> bool {
        self.kept.pop();
        !self.kept.is_empty()
    }

    /// The range deletes that are kept, of all keys.
    pub(crate) fn range_deletes(&self) -> Vec<RangeDelete> {
        self.deletes.kept(self.rules.bottom)
    }

    fn stripe_of(&self, seq: Seq) -> u64 {
        stripe_of(&self.rules, seq)
    }

    /// Rule H6, for the oldest kept put of a key.
    fn may_zero(&self, stripe: u64) -> bool {
        self.rules.zero_seqs && self.rules.bottom && stripe == 0
    }

    /// Consumes the next entry, or leaves it and settles the group before it.
    #[inline]
    pub(crate) fn take(&mut self, entry: Option<&Entry<'_>>) -> Result<KeepVerdict> {
        let collecting = !self.group.is_empty();
        let Some(entry) = entry.filter(|entry| !collecting || entry.key == self.key) else {
            return if collecting { self.settle() } else { Ok(KeepVerdict::End) };
        };
        if entry.key != self.key {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            self.closed = None;
        }
        let effect = effect_of(entry, self.rules.now)?;
        let stripe = self.stripe_of(entry.seq);
        if self.closed == Some(stripe) {
            return Ok(KeepVerdict::Entry);
        }
        if !self.deletes.is_empty() && self.deletes.hide(entry.key, entry.seq, stripe) {
            return Ok(KeepVerdict::Entry);
        }
        if effect != Effect::Operand {
            self.closed = Some(stripe);
        }
        // Whether a tombstone at the bottom can be dropped, or an operand folded, depends on older
        // versions. Everything else is decided immediately.
        let waits = match effect {
            Effect::Value => false,
            Effect::Absent => self.rules.bottom,
            Effect::Operand => self.rules.operator.is_some(),
        };
        if collecting || waits {
            self.collect(entry, effect);
            return Ok(KeepVerdict::Entry);
        }
        Ok(KeepVerdict::EntryKept(match effect {
            Effect::Absent => RetainedForm::AsTombstone,
            Effect::Value if self.may_zero(stripe) => RetainedForm::AtZero,
            _ => RetainedForm::AsItIs,
        }))
    }

    #[inline(never)]
    fn collect(&mut self, entry: &Entry<'_>, effect: Effect) {
        let Entry { seq, kind, expires_at, value, .. } = *entry;
        self.group.push(match effect {
            Effect::Absent => {
                Version { seq, kind: Kind::Delete, expires_at: None, value: Vec::new() }
            }
            _ => Version { seq, kind, expires_at, value: value.to_vec() },
        });
    }

    /// Decides about the group, stripe by stripe from the oldest on: the versions kept in an older
    /// stripe determine whether a tombstone above it is still needed.
    #[inline(never)]
    fn settle(&mut self) -> Result<KeepVerdict> {
        let mut versions = std::mem::take(&mut self.group);
        versions.reverse();
        let mut below = !self.rules.bottom;
        let stripe_of = |version: &Version| self.stripe_of(version.seq);
        let mut kept = Vec::new();
        let one = |a: &Version, b: &Version| stripe_of(a) == stripe_of(b);
        for stripe in versions.chunk_by(one) {
            let of_stripe = self.keep_of_stripe(stripe, below)?;
            below |= !of_stripe.is_empty();
            kept.extend(of_stripe);
        }
        if let Some(oldest) = kept.first_mut()
            && oldest.kind == Kind::Put
            && self.may_zero(self.stripe_of(oldest.seq))
        {
            oldest.seq = Seq::NONE;
        }
        self.kept = kept;
        Ok(if self.kept.is_empty() { KeepVerdict::NothingKept } else { KeepVerdict::GroupKept })
    }

    /// The kept versions of one stripe. `versions` are oldest first: at most one value or
    /// tombstone, and operands on it; `below` says whether older versions may exist (rules H2, H4).
    fn keep_of_stripe(&self, versions: &[Version], below: bool) -> Result<Vec<Version>> {
        let (base, operands) = match versions {
            [base, operands @ ..] if base.kind != Kind::Merge => (Some(base), operands),
            operands => (None, operands),
        };
        let tombstone = base.filter(|base| base.kind == Kind::Delete);
        let (Some(operator), false) = (&self.rules.operator, operands.is_empty()) else {
            let needless = tombstone.is_some() && !below;
            return Ok(if needless { operands.to_vec() } else { versions.to_vec() });
        };
        let ground = match base {
            Some(_) if tombstone.is_some() => Ground::Nothing,
            Some(value) => Ground::Value(value.clone()),
            None if below => Ground::Unknown,
            None => Ground::Nothing,
        };
        // Operands on a tombstone become a value, which also hides everything below. Operands that
        // cannot be folded stay unchanged: one bad operand must not prevent flushes or compactions
        // of a database.
        let folded = fold_stripe(&self.key, operator.as_ref(), ground, operands);
        Ok(folded.unwrap_or_else(|_| versions.to_vec()))
    }
}
