//! The operands collected for one fold, concatenated in one reused buffer.

use siltstone_base::entry::check_value;
use siltstone_base::{MergeOperator, Result};

/// In which order operands are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandOrder {
    /// As a forward cursor and a look-up meet them.
    NewestFirst,
    /// As a backward cursor meets them.
    OldestFirst,
}

#[derive(Debug, Default)]
pub(crate) struct Operands {
    bytes: Vec<u8>,
    /// Where each ends in `bytes`, in the order they were met.
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

    /// Puts one operand in the place of those from number `kept` on, which were met newest first,
    /// where the operator makes one of them: it.
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

    /// Where operand number `n` begins.
    fn start(&self, n: usize) -> usize {
        n.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }

    /// The operands from number `from` on, as they were met.
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
    /// What the operator answers; Invalid when its value is too large.
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
        let value = operator.fold(key, base, &operands)?;
        check_value(&value)?;
        Ok(value)
    }
}
