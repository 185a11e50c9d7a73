//! The merge operator: the user's function that folds operands into a value.

use crate::error::Result;

/// Folds operands. Must be associative over operands: folding some of them early and the result
/// later gives the same value.
pub trait MergeOperator: Send + Sync {
    /// Name recorded in the manifest; every process that opens the database must bring the same.
    fn name(&self) -> &str;

    /// The value of `key` after `operands` (oldest first) are applied to `base` (`None` when the
    /// key had no value).
    ///
    /// # Errors
    /// What the user's function raised; the read or compaction fails with it.
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
