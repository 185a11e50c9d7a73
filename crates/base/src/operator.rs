//! The merge operator: a user function that folds operands into a value.

use crate::error::Result;

/// Folds operands. Must be associative over operands: folding some of them early and the result
/// later gives the same value.
pub trait MergeOperator: Send + Sync {
    /// Name recorded in the manifest; every process that opens the database must have an operator
    /// with this name.
    fn name(&self) -> &str;

    /// Whether `operand` can be folded; called before it is written. By default all operands are
    /// accepted.
    ///
    /// # Errors
    /// Invalid, with a description of a valid operand.
    fn check(&self, _operand: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Whether equal arguments give equal bytes in every process and version. A flush folds only
    /// then: its upload may be repeated, and must be the same.
    fn is_repeatable(&self) -> bool {
        false
    }

    /// The value of `key` after `operands` (oldest first) are applied to `base` (`None` if the key
    /// had no value).
    ///
    /// # Errors
    /// Errors of the user's function. A read fails with them; a flush or compaction keeps the
    /// operands unchanged.
    fn fold(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>>;

    /// Folds operands (oldest first) into one operand when the base is unknown, or returns `None`
    /// if the operator cannot; then the operands are kept unchanged.
    ///
    /// # Errors
    /// As [`MergeOperator::fold`].
    fn fold_operands(&self, _key: &[u8], _operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
}
