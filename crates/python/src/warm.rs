//! `warm`: reads a range into the block cache ahead of its first use.

use crate::aio::pending::Pending;
use crate::database::Database;
use crate::error::Raise;
use crate::reader::Reader;
use crate::snapshot::Snapshot;
use crate::source::Source;
use crate::wait::wait;
use pyo3::prelude::*;
use siltstone::{Answer, Result, ScanRange};
use std::future::Future;

/// The work that warms `range`.
fn warming<S: Source>(
    py: Python<'_>,
    source: &S,
    range: ScanRange,
) -> PyResult<impl Future<Output = Result<u64>> + Send + use<S>> {
    let held = source.held(py)?;
    if let Answer::Pending(looks) = S::fresh(held.get(py)?).raise(py)? {
        wait(py, held.process(), looks)?;
    }
    let scan = S::open_fresh_scan(held.get(py)?, range).raise(py)?;
    Ok(scan.warm())
}

macro_rules! warmed {
    ($($class:ident),+) => {$(
        #[pymethods]
        impl $class {
            /// Reads the blocks of `[start, end)`, or of the keys with `prefix`, into the block
            /// cache ahead of their first use, and returns the bytes of the keys and values that it
            /// read. It stops when the cache is three quarters full: point reads have the rest. A
            /// table that the system maps from a local folder is left to the page cache.
            ///
            /// :raises Invalid: if `prefix` is given together with a bound.
            /// :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: as for `get`.
            #[pyo3(signature = (start=None, end=None, *, prefix=None))]
            fn warm(
                &self,
                py: Python<'_>,
                start: Option<$crate::bytes::BytesArg<'_>>,
                end: Option<$crate::bytes::BytesArg<'_>>,
                prefix: Option<$crate::bytes::BytesArg<'_>>,
            ) -> PyResult<u64> {
                let range = $crate::range::range(py, start, end, prefix, false, None)?;
                let work = warming(py, self, range)?;
                wait(py, Source::held(self, py)?.process(), work)
            }

            /// `warm`: a Pending of the bytes.
            fn _begin_warm(
                &self,
                py: Python<'_>,
                start: Option<$crate::bytes::BytesArg<'_>>,
                end: Option<$crate::bytes::BytesArg<'_>>,
                prefix: Option<$crate::bytes::BytesArg<'_>>,
            ) -> PyResult<Pending> {
                let range = $crate::range::range(py, start, end, prefix, false, None)?;
                let work = Box::pin(warming(py, self, range)?);
                let give = |py: Python<'_>, bytes: u64| {
                    Ok(bytes.into_pyobject(py)?.into_any().unbind())
                };
                Ok(Pending::running(Source::held(self, py)?.process(), work, give))
            }
        }
    )+};
}

warmed!(Database, Reader, Snapshot);
