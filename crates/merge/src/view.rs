//! The view of a reader: sequence number, time and merge operator.

use siltstone_base::{Error, MergeOperator, Result, Seq, UnixMillis};
use std::fmt;
use std::sync::Arc;

/// The position and time of a reader. Fixed for the life of a get, a snapshot or a scan, so that
/// all of its results belong to one moment.
#[derive(Clone)]
pub struct ReadView {
    /// Entries with a larger sequence number are invisible to this reader. [`Seq::MAX`]: all are
    /// visible.
    pub seq: Seq,
    /// Entries that expire at or before this time have expired.
    pub now: UnixMillis,
    /// Folds operands; `None` if the database was opened without one.
    pub operator: Option<Arc<dyn MergeOperator>>,
    /// Name of the operator that the database records, for the error without an operator.
    pub recorded_operator: Option<Arc<str>>,
}

impl fmt::Debug for ReadView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadView")
            .field("seq", &self.seq)
            .field("now", &self.now)
            .field("operator", &self.operator.as_ref().map(|operator| operator.name()))
            .finish()
    }
}

impl ReadView {
    /// The operator.
    ///
    /// # Errors
    /// Invalid if there is none: operands alone are not a value.
    pub(crate) fn operator(&self) -> Result<&dyn MergeOperator> {
        self.operator.as_deref().ok_or_else(|| self.missing_operator())
    }

    #[cold]
    fn missing_operator(&self) -> Error {
        let error = Error::invalid(
            "the key holds merge operands: open the database with its merge operator",
        );
        match &self.recorded_operator {
            Some(name) => error.with("merge operator", name),
            None => error,
        }
    }
}
