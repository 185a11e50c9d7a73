//! The value of one key, computed from its versions.

use crate::effect::{Effect, effect_of};
use crate::operands::{OperandOrder, Operands};
use crate::view::ReadView;
use siltstone_base::{Entry, Result, Seq, UnixMillis};

/// What a look-up does after an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupStep {
    /// Done: the value of the entry just pushed is the answer, as it lies. Nothing was copied.
    Value,
    /// Done: the key has no value.
    Absent,
    /// Done: [`Resolve::finish`] answers the folded value.
    Folded,
    /// Go on to the next older version, wherever it is.
    NeedOlder,
}

/// Finds the value of one key. The caller pushes versions of the key from newest to oldest,
/// across all sources, until the answer is one of the three that say done or there are
/// no more, and then calls [`Resolve::finish`]. Allocates only once an operand is met.
#[derive(Debug)]
pub struct Resolve<'a> {
    key: &'a [u8],
    view: &'a ReadView,
    operands: Operands,
    folded: Option<Vec<u8>>,
    /// The newest range delete met that the view sees: what is older is hidden.
    deleted: Seq,
    /// The newest entry that the value is made of, once it was met; noted where it is asked for.
    newest: Option<Newest>,
    notes_newest: bool,
}

/// Of the newest entry that a value is made of: its number, and when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    /// Its number; 0 where a compaction has cleared it.
    pub seq: Seq,
    /// When it ends, and with it the value.
    pub expires_at: Option<UnixMillis>,
}

impl<'a> Resolve<'a> {
    /// For `key`, as seen from `view`.
    #[must_use]
    pub fn new(key: &'a [u8], view: &'a ReadView) -> Self {
        let operands = Operands::default();
        let (folded, deleted, newest) = (None, Seq::NONE, None);
        Resolve { key, view, operands, folded, deleted, newest, notes_newest: false }
    }

    /// The same, which notes the newest entry that the value is made of.
    #[must_use]
    pub fn noting_newest(self) -> Self {
        Resolve { notes_newest: true, ..self }
    }

    /// The newest entry that the value is made of, where there is a value, and it was to be noted.
    #[must_use]
    pub fn newest(&self) -> Option<Newest> {
        self.newest
    }

    /// A range delete at `seq`, which the view sees, deletes the key. Told before the entries of
    /// its own source are pushed; all older sources are hidden by it, and need not be asked.
    #[inline]
    pub fn delete_older_than(&mut self, seq: Seq) {
        self.deleted = self.deleted.max(seq);
    }

    /// Whether a range delete was met: there is nothing to find in older sources.
    #[must_use]
    #[inline]
    pub fn is_deleted_below(&self) -> bool {
        !self.deleted.is_none()
    }

    /// Takes the next older version of the key. One that is newer than the view is passed over.
    ///
    /// # Errors
    /// Invalid for an operand without an operator; Internal for a range delete; what the
    /// operator answers.
    pub fn push(&mut self, entry: Entry<'_>) -> Result<LookupStep> {
        if entry.seq > self.view.seq {
            return Ok(LookupStep::NeedOlder);
        }
        let effect = if entry.seq < self.deleted {
            Effect::Absent
        } else {
            effect_of(&entry, self.view.now)?
        };
        if self.notes_newest && self.newest.is_none() && effect != Effect::Absent {
            self.newest = Some(Newest { seq: entry.seq, expires_at: entry.expires_at });
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

    /// Whether a value that the view sees is the answer as it lies: no newer operand was met, no
    /// range delete, and the caller needs only the value.
    #[must_use]
    #[inline]
    pub fn takes_value(&self) -> bool {
        self.operands.is_empty()
            && self.folded.is_none()
            && self.deleted.is_none()
            && !self.notes_newest
    }

    /// Operands that were pushed and not folded yet.
    #[must_use]
    pub fn operands(&self) -> usize {
        self.operands.len()
    }

    /// Puts one operand in the place of all but the newest `kept` ones, where the operator can make
    /// one. Returns it, so that the caller can keep it. The value stays what it would be.
    ///
    /// An operator that fails here is asked again by the fold that needs it, and fails the read
    /// then.
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
    /// What the operator answers.
    pub fn finish(&mut self) -> Result<Option<Vec<u8>>> {
        if !self.operands.is_empty() {
            self.fold(None)?;
        }
        Ok(self.folded.take())
    }
}
