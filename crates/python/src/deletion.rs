//! Conversion of the arguments of `delete_range`.

use crate::bytes::BytesArg;
use crate::error;
use pyo3::prelude::*;
use siltstone::{Accept, Batch, LEAST_KEY, Result, ScanRange};

/// A range of keys to delete.
pub(crate) enum Deletion {
    /// `[start, end)`.
    Between(Vec<u8>, Vec<u8>),
    /// All keys from this one on.
    From(Vec<u8>),
}

impl Deletion {
    /// Converts the arguments.
    ///
    /// # Errors
    /// Invalid if no argument is given, if a prefix is given together with a bound, or if the
    /// prefix is empty.
    pub(crate) fn of(
        py: Python<'_>,
        start: Option<BytesArg<'_>>,
        end: Option<BytesArg<'_>>,
        prefix: Option<BytesArg<'_>>,
    ) -> PyResult<Deletion> {
        let bytes = |bound: BytesArg<'_>| bound.as_ref().to_vec();
        let (start, end) = match (start, end, prefix) {
            (None, None, None) => {
                let text = "delete_range takes a start, an end or a prefix: without any of them it \
                            would delete every key, which delete_range(start=b'\\x00') says";
                return Err(error::invalid(py, text));
            }
            (start, end, None) => (start.map(bytes), end.map(bytes)),
            (None, None, Some(prefix)) if prefix.as_ref().is_empty() => {
                let text = "every key has the empty prefix: to delete every key, say \
                            delete_range(start=b'\\x00')";
                return Err(error::invalid(py, text));
            }
            (None, None, Some(prefix)) => {
                let ScanRange { start, end, .. } = ScanRange::prefix(prefix.as_ref());
                (start, end)
            }
            _ => return Err(error::invalid(py, "give either prefix, or start and end")),
        };
        let start = start.unwrap_or_else(|| LEAST_KEY.to_vec());
        Ok(match end {
            Some(end) => Deletion::Between(start, end),
            None => Deletion::From(start),
        })
    }

    /// Writes the deletion to a database.
    ///
    /// # Errors
    /// Invalid if a bound is not a valid key or the bounds are out of order; Closed, Fenced.
    pub(crate) fn write(&self, database: &siltstone::Database) -> Result<Accept> {
        match self {
            Deletion::Between(start, end) => database.delete_range(start, end),
            Deletion::From(start) => database.delete_from(start),
        }
    }

    /// Adds the deletion to a transaction.
    ///
    /// # Errors
    /// As [`Deletion::add`]; Closed once the transaction is over.
    pub(crate) fn write_in(&self, transaction: &siltstone::Transaction) -> Result<()> {
        match self {
            Deletion::Between(start, end) => transaction.delete_range(start, end),
            Deletion::From(start) => transaction.delete_from(start),
        }
    }

    /// Adds the deletion to a batch.
    ///
    /// # Errors
    /// Invalid if a bound is not a valid key or the bounds are out of order.
    pub(crate) fn add(&self, batch: &mut Batch) -> Result<()> {
        match self {
            Deletion::Between(start, end) => batch.delete_range(start, end),
            Deletion::From(start) => batch.delete_from(start),
        }
    }
}
