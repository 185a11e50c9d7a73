//! The versions of one user key, added one by one in either direction until its value is known.

use crate::effect::{Effect, effect_of};
use crate::operands::{OperandOrder, Operands};
use crate::view::ReadView;
use siltstone_base::{Entry, Result, Seq};

/// The result of adding an entry to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupVerdict {
    /// It was consumed.
    Entry,
    /// It was consumed and is itself the item.
    EntryIsItem,
    /// It was consumed and completed the item, which is in the group.
    EntryMadeItem,
    /// It has a later key and was not consumed; it completed the item, which is in the group.
    ItemBefore,
    /// It has a later key and was not consumed; the key before it has no value.
    NothingYet,
    /// There was no entry and there is no item.
    End,
}

#[derive(Debug, Default)]
pub(crate) struct Group {
    key: Vec<u8>,
    /// The number of the newest visible version so far.
    seq: Seq,
    /// Versions of `key` were added and the value is not complete. Otherwise all later versions of
    /// `key` are hidden.
    open: bool,
    operands: Operands,
    /// The item's value; backward also the base, until the value is complete.
    value: Vec<u8>,
    /// Backward: `value` is the base of the versions so far.
    has_base: bool,
}

impl Group {
    pub(crate) fn item(&self) -> (&[u8], &[u8]) {
        (&self.key, &self.value)
    }

    pub(crate) fn seq(&self) -> Seq {
        self.seq
    }

    /// Whether older versions of the key may still matter.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether this is, or was last, the key of the group.
    #[inline]
    pub(crate) fn is_of(&self, key: &[u8]) -> bool {
        self.key == key
    }

    /// Drops the versions that were added: their key has no value, and its other versions are not
    /// looked at.
    pub(crate) fn forget(&mut self) {
        self.open = false;
        self.operands.clear();
        self.has_base = false;
    }

    /// The newest visible version of a key was its item, unchanged.
    #[inline]
    pub(crate) fn settle_as(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
    }

    #[inline]
    fn begin(&mut self, entry: &Entry<'_>) {
        self.settle_as(entry.key);
        self.seq = entry.seq;
        self.operands.clear();
        self.has_base = false;
    }

    /// Folds the collected operands onto `base`.
    fn fold(&mut self, view: &ReadView, base: Option<&[u8]>, met: OperandOrder) -> Result<()> {
        self.open = false;
        self.value = self.operands.fold(view.operator()?, &self.key, base, met)?;
        Ok(())
    }

    /// Newest version first: the first value or tombstone completes the key.
    #[inline]
    pub(crate) fn take_forward(
        &mut self,
        view: &ReadView,
        entry: Option<Entry<'_>>,
    ) -> Result<GroupVerdict> {
        let Some(entry) = entry.filter(|entry| !self.open || entry.key == self.key) else {
            if self.open {
                self.fold(view, None, OperandOrder::NewestFirst)?;
                return Ok(GroupVerdict::ItemBefore);
            }
            return Ok(GroupVerdict::End);
        };
        let effect = effect_of(&entry, view.now)?;
        if entry.seq > view.seq || !self.open && entry.key == self.key {
            return Ok(GroupVerdict::Entry);
        }
        if !self.open {
            self.begin(&entry);
        }
        match effect {
            Effect::Operand => {
                view.operator()?;
                self.operands.push(entry.value);
                self.open = true;
                Ok(GroupVerdict::Entry)
            }
            Effect::Absent if !self.open => Ok(GroupVerdict::Entry),
            Effect::Value if !self.open => Ok(GroupVerdict::EntryIsItem),
            settled => {
                let base = (settled == Effect::Value).then_some(entry.value);
                self.fold(view, base, OperandOrder::NewestFirst)?;
                Ok(GroupVerdict::EntryMadeItem)
            }
        }
    }

    /// Oldest version first: every visible version changes the result of the older ones, and the
    /// next key completes it.
    pub(crate) fn take_backward(
        &mut self,
        view: &ReadView,
        entry: Option<Entry<'_>>,
    ) -> Result<GroupVerdict> {
        let Some(entry) = entry.filter(|entry| !self.open || entry.key == self.key) else {
            return self.settle(view);
        };
        let effect = effect_of(&entry, view.now)?;
        if entry.seq > view.seq {
            return Ok(GroupVerdict::Entry);
        }
        if !self.open {
            self.begin(&entry);
            self.open = true;
        }
        self.seq = entry.seq;
        match effect {
            Effect::Operand => self.operands.push(entry.value),
            Effect::Absent => {
                self.operands.clear();
                self.has_base = false;
            }
            Effect::Value => {
                self.operands.clear();
                self.value.clear();
                self.value.extend_from_slice(entry.value);
                self.has_base = true;
            }
        }
        Ok(GroupVerdict::Entry)
    }

    fn settle(&mut self, view: &ReadView) -> Result<GroupVerdict> {
        if !self.open {
            return Ok(GroupVerdict::End);
        }
        self.open = false;
        if !self.operands.is_empty() {
            let base = std::mem::take(&mut self.value);
            self.fold(view, self.has_base.then_some(&base), OperandOrder::OldestFirst)?;
            return Ok(GroupVerdict::ItemBefore);
        }
        Ok(if self.has_base { GroupVerdict::ItemBefore } else { GroupVerdict::NothingYet })
    }
}
