//! The operands collected for one fold, concatenated in one reused buffer.

use siltstone_base::entry::check_value;
use siltstone_base::{MergeOperator, Result};

/// The order in which operands are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandOrder {
    /// The order of a forward cursor and of a look-up.
    NewestFirst,
    /// The order of a backward cursor.
    OldestFirst,
}

#[derive(Debug, Default)]
pub(crate) struct Operands {
    bytes: Vec<u8>,
    /// The end of each in `bytes`, in the order of collection.
    ends: Vec<usize>,
}

impl Operands {
    pub(crate) fn push(&mut self, operand: &[u8]) {
        self.bytes.extend_from_slice(operand);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Replaces the operands from number `kept` on, which were collected newest first, by one
    /// operand, if the operator can make one; returns it.
    pub(crate) fn fold_from(
        &mut self,
        operator: &dyn MergeOperator,
        key: &[u8],
        kept: usize,
    ) -> Option<&[u8]> {
        let mut operands = self.slices(kept);
        operands.reverse();
        if operands.len() < 2 {
            return None;
        }
        let folded = operator.fold_operands(key, &operands).ok()??;
        check_value(&folded).ok()?;
        let start = self.start(kept);
        self.bytes.truncate(start);
        self.ends.truncate(kept);
        self.push(&folded);
        self.bytes.get(start..)
    }

    /// The start of operand number `n`.
    fn start(&self, n: usize) -> usize {
        n.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }

    /// The operands from number `from` on, in the order of collection.
    fn slices(&self, from: usize) -> Vec<&[u8]> {
        let mut start = self.start(from);
        let mut operands = Vec::with_capacity(self.ends.len().saturating_sub(from));
        for end in self.ends.iter().skip(from) {
            // Every end was the length of `bytes` at some time since it was cleared.
            operands.push(self.bytes.get(start..*end).unwrap_or_default());
            start = *end;
        }
        operands
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The value of `key` after all operands on `base`.
    ///
    /// # Errors
    /// The operator's errors; Invalid if its value is too large.
    pub(crate) fn fold(
        &self,
        operator: &dyn MergeOperator,
        key: &[u8],
        base: Option<&[u8]>,
        met: OperandOrder,
    ) -> Result<Vec<u8>> {
        let mut operands = self.slices(0);
        if met == OperandOrder::NewestFirst {
            operands.reverse();
        }
        folded(operator, key, base, &operands)
    }
}

/// The value of `key` after `operands`, oldest first, on `base`.
///
/// # Errors
/// The operator's errors; Invalid if its value is too large. Both with the key.
pub(crate) fn folded(
    operator: &dyn MergeOperator,
    key: &[u8],
    base: Option<&[u8]>,
    operands: &[&[u8]],
) -> Result<Vec<u8>> {
    let value = operator.fold(key, base, operands);
    let value = value.and_then(|value| check_value(&value).map(|()| value));
    value.map_err(|error| error.with("key", key.escape_ascii()))
}
