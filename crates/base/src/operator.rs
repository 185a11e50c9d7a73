//! The merge operator: a function of the user that folds operands into a value.

use crate::error::Result;

/// Folds operands. Must be associative over operands: folding some of them early and the result
/// later gives the same value.
pub trait MergeOperator: Send + Sync {
    /// Name recorded in the manifest; every process that opens the database must bring the same.
    fn name(&self) -> &str;

    /// Whether `operand` is one that can be folded, asked before it is written. All are, unless the
    /// operator says otherwise.
    ///
    /// # Errors
    /// Invalid, with what an operand must be.
    fn check(&self, _operand: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Whether equal arguments always give equal bytes, in every process and version. Only then a
    /// flush may fold: its upload may be repeated, and must be the same.
    fn is_repeatable(&self) -> bool {
        false
    }

    /// The value of `key` after `operands` (oldest first) are applied to `base` (`None` when the
    /// key had no value).
    ///
    /// # Errors
    /// What the user's function raised. A read fails with it; a flush or compaction keeps the
    /// operands as they are.
    fn fold(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>>;

    /// Folds operands (oldest first) into one operand when no base is known yet, or `None` when
    /// the operator cannot; then the operands are kept as they are.
    ///
    /// # Errors
    /// As [`MergeOperator::fold`].
    fn fold_operands(&self, _key: &[u8], _operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
}
