//! One key's value, from its versions.

use crate::effect::{Effect, effect_of};
use crate::operands::{Met, Operands};
use crate::view::ReadView;
use siltstone_base::{Entry, Result, Seq};

/// What a look-up does after an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
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
/// whatever sources they come from, until the answer is one of the three that say done or there are
/// no more, and then calls [`Resolve::finish`]. Allocates only once an operand is met.
#[derive(Debug)]
pub struct Resolve<'a> {
    key: &'a [u8],
    view: &'a ReadView,
    operands: Operands,
    folded: Option<Vec<u8>>,
    /// The newest range delete met that the view sees: what is older is hidden.
    deleted: Seq,
}

impl<'a> Resolve<'a> {
    /// For `key`, as seen from `view`.
    #[must_use]
    pub fn new(key: &'a [u8], view: &'a ReadView) -> Self {
        let operands = Operands::default();
        Resolve { key, view, operands, folded: None, deleted: Seq::NONE }
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
    pub fn push(&mut self, entry: Entry<'_>) -> Result<Flow> {
        if entry.seq > self.view.seq {
            return Ok(Flow::NeedOlder);
        }
        let effect = if entry.seq < self.deleted {
            Effect::Absent
        } else {
            effect_of(&entry, self.view.now)?
        };
        match effect {
            Effect::Operand => {
                self.view.operator()?;
                self.operands.push(entry.value);
                Ok(Flow::NeedOlder)
            }
            Effect::Value if self.operands.is_empty() => Ok(Flow::Value),
            Effect::Absent if self.operands.is_empty() => Ok(Flow::Absent),
            Effect::Value => self.fold(Some(entry.value)),
            Effect::Absent => self.fold(None),
        }
    }

    /// Whether a value that the view sees is the answer as it lies: no newer operand was met, and
    /// no range delete.
    #[must_use]
    #[inline]
    pub fn takes_value(&self) -> bool {
        self.operands.is_empty() && self.folded.is_none() && self.deleted.is_none()
    }

    fn fold(&mut self, base: Option<&[u8]>) -> Result<Flow> {
        let operator = self.view.operator()?;
        self.folded = Some(self.operands.fold(operator, self.key, base, Met::NewestFirst)?);
        self.operands.clear();
        Ok(Flow::Folded)
    }

    /// The value, where it was folded: after [`Flow::Folded`], or after [`Flow::NeedOlder`] when
    /// there is nothing older. `None` when the key has none.
    ///
    /// # Errors
    /// What the operator answers.
    pub fn finish(mut self) -> Result<Option<Vec<u8>>> {
        if !self.operands.is_empty() {
            self.fold(None)?;
        }
        Ok(self.folded)
    }
}
