//! The value of one key, computed from its versions.

use crate::effect::{Effect, effect_of};
use crate::operands::{OperandOrder, Operands};
use crate::view::ReadView;
use siltstone_base::{Entry, Result, Seq, UnixMillis};

/// The next step of a look-up after an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupStep {
    /// Done: the value of the entry that was just pushed is the result, unchanged. Nothing was
    /// copied.
    Value,
    /// Done: the key has no value.
    Absent,
    /// Done: [`Resolve::finish`] returns the folded value.
    Folded,
    /// Continue with the next older version, in any source.
    NeedOlder,
}

/// Finds the value of one key. The caller pushes versions of the key from newest to oldest, across
/// all sources, until the result is one of the three that mean "done" or there are no more, and
/// then calls [`Resolve::finish`]. It allocates only after an operand.
#[derive(Debug)]
pub struct Resolve<'a> {
    key: &'a [u8],
    view: &'a ReadView,
    operands: Operands,
    folded: Option<Vec<u8>>,
    /// The newest visible range delete of the key: older entries are hidden.
    deleted: Seq,
    /// The newest entry of the value, once it was pushed; recorded only on request.
    newest: Option<Newest>,
    notes_newest: bool,
}

/// The sequence number and expiry of the newest entry of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    /// Its number; 0 if a compaction has cleared it.
    pub seq: Seq,
    /// The expiry of the entry, and of the value.
    pub expires_at: Option<UnixMillis>,
    /// The earliest expiry of the entries of the value: until then the value stays the same. `None`
    /// if none of them expires.
    pub lasts_until: Option<UnixMillis>,
}

impl<'a> Resolve<'a> {
    /// For `key`, in `view`.
    #[must_use]
    pub fn new(key: &'a [u8], view: &'a ReadView) -> Self {
        let operands = Operands::default();
        let (folded, deleted, newest) = (None, Seq::NONE, None);
        Resolve { key, view, operands, folded, deleted, newest, notes_newest: false }
    }

    /// The same, and records the newest entry of the value.
    #[must_use]
    pub fn noting_newest(self) -> Self {
        Resolve { notes_newest: true, ..self }
    }

    /// The newest entry of the value, if there is a value and recording was requested.
    #[must_use]
    pub fn newest(&self) -> Option<Newest> {
        self.newest
    }

    /// A visible range delete at `seq` deletes the key. Called before the entries of its own source
    /// are pushed; all older sources are hidden by it and need not be read.
    #[inline]
    pub fn delete_older_than(&mut self, seq: Seq) {
        self.deleted = self.deleted.max(seq);
    }

    /// Whether there was a range delete: older sources need not be read.
    #[must_use]
    #[inline]
    pub fn is_deleted_below(&self) -> bool {
        !self.deleted.is_none()
    }

    /// Adds the next older version of the key. A version that is newer than the view is ignored.
    ///
    /// # Errors
    /// Invalid for an operand without an operator; Internal for a range delete; the operator's
    /// errors.
    pub fn push(&mut self, entry: Entry<'_>) -> Result<LookupStep> {
        if entry.seq > self.view.seq {
            return Ok(LookupStep::NeedOlder);
        }
        let effect = if entry.seq < self.deleted {
            Effect::Absent
        } else {
            effect_of(&entry, self.view.now)?
        };
        if self.notes_newest && effect != Effect::Absent {
            self.note(&entry);
        }
        match effect {
            Effect::Operand => {
                self.view.operator()?;
                self.operands.push(entry.value);
                Ok(LookupStep::NeedOlder)
            }
            Effect::Value if self.operands.is_empty() => Ok(LookupStep::Value),
            Effect::Absent if self.operands.is_empty() => Ok(LookupStep::Absent),
            Effect::Value => self.fold(Some(entry.value)),
            Effect::Absent => self.fold(None),
        }
    }

    fn note(&mut self, entry: &Entry<'_>) {
        let Entry { seq, expires_at, .. } = *entry;
        let noted = self.newest.get_or_insert(Newest { seq, expires_at, lasts_until: expires_at });
        noted.lasts_until = noted.lasts_until.into_iter().chain(expires_at).min();
    }

    /// Whether a visible value is the unchanged result: there was no newer operand, no range
    /// delete, and the caller needs only the value.
    #[must_use]
    #[inline]
    pub fn takes_value(&self) -> bool {
        self.operands.is_empty()
            && self.folded.is_none()
            && self.deleted.is_none()
            && !self.notes_newest
    }

    /// Number of operands that were pushed and not folded yet.
    #[must_use]
    pub fn operands(&self) -> usize {
        self.operands.len()
    }

    /// Replaces all operands except the newest `kept` by one, if the operator can make one. Returns
    /// it, so that the caller can store it. The resulting value is the same.
    ///
    /// If an operator fails here, the fold that needs it calls it again, and then the read fails.
    pub fn fold_older_operands(&mut self, kept: usize) -> Option<&[u8]> {
        let operator = self.view.operator().ok()?;
        self.operands.fold_from(operator, self.key, kept)
    }

    fn fold(&mut self, base: Option<&[u8]>) -> Result<LookupStep> {
        let operator = self.view.operator()?;
        self.folded =
            Some(self.operands.fold(operator, self.key, base, OperandOrder::NewestFirst)?);
        self.operands.clear();
        Ok(LookupStep::Folded)
    }

    /// The folded value: after [`LookupStep::Folded`], or after [`LookupStep::NeedOlder`] if there
    /// are no older versions. `None` if the key has no value.
    ///
    /// # Errors
    /// The operator's errors.
    pub fn finish(&mut self) -> Result<Option<Vec<u8>>> {
        if !self.operands.is_empty() {
            self.fold(None)?;
        }
        Ok(self.folded.take())
    }
}
