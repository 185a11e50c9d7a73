//! `approximate_size`: the approximate size of a range, from metadata alone.

use crate::aio::pending::Pending;
use crate::database::Database;
use crate::error::Raise;
use crate::reader::Reader;
use crate::snapshot::Snapshot;
use crate::source::Source;
use crate::transaction::Transaction;
use crate::wait::wait;
use pyo3::prelude::*;
use siltstone::{Answer, Result, ScanRange, Size};

/// A handle that can estimate sizes.
trait Measured {
    /// The approximate size of `range`.
    fn size(&self, range: ScanRange) -> Result<Answer<Size>>;
}

/// Makes a `siltstone.Size`.
fn object(py: Python<'_>, size: Size) -> PyResult<Py<PyAny>> {
    let class = py.import("siltstone.stats")?.getattr("Size")?;
    Ok(class.call1((size.bytes, size.rows))?.unbind())
}

fn measure<S: Source<Engine: Measured>>(
    py: Python<'_>,
    source: &S,
    range: ScanRange,
) -> PyResult<Py<PyAny>> {
    let held = source.held(py)?;
    let size = match held.get(py)?.size(range).raise(py)? {
        Answer::Ready(size) => size,
        Answer::Pending(size) => wait(py, held.process(), size)?,
    };
    object(py, size)
}

fn begin_measure<S: Source<Engine: Measured>>(
    py: Python<'_>,
    source: &S,
    range: ScanRange,
) -> PyResult<Py<PyAny>> {
    let held = source.held(py)?;
    match held.get(py)?.size(range).raise(py)? {
        Answer::Ready(size) => object(py, size),
        Answer::Pending(size) => {
            Ok(Py::new(py, Pending::running(held.process(), size, object))?.into_any())
        }
    }
}

macro_rules! measured {
    ($($class:ident),+) => {$(
        impl Measured for siltstone::$class {
            fn size(&self, range: ScanRange) -> Result<Answer<Size>> {
                self.approximate_size(range)
            }
        }

        #[pymethods]
        impl $class {
            /// Estimates the stored size of `[start, end)`, or of the keys with `prefix`, from
            /// metadata alone: no block is read. A table at an edge of the range costs one request
            /// if its index is not in memory.
            ///
            /// The estimate counts stored data: it includes older versions and deleted or expired
            /// rows until a compaction drops them and, in memory, writes after a snapshot. Bytes
            /// are the compressed bytes of blocks, and the bytes of memtables. The estimate is
            /// never too low, and too high by at most two blocks for each layer
            /// (`read_amplification` of `stats()` is the number of layers). The rows of a table at
            /// an edge are estimated in proportion to its bytes; all other rows are exact.
            ///
            /// :raises Invalid: if `prefix` is given together with a bound.
            /// :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: as for `get`.
            #[pyo3(signature = (start=None, end=None, *, prefix=None))]
            fn approximate_size(
                &self,
                py: Python<'_>,
                start: Option<$crate::bytes::BytesArg<'_>>,
                end: Option<$crate::bytes::BytesArg<'_>>,
                prefix: Option<$crate::bytes::BytesArg<'_>>,
            ) -> PyResult<Py<PyAny>> {
                measure(py, self, $crate::range::range(py, start, end, prefix, false, None)?)
            }

            /// `approximate_size`: the size, or a Pending.
            fn _begin_size(
                &self,
                py: Python<'_>,
                start: Option<$crate::bytes::BytesArg<'_>>,
                end: Option<$crate::bytes::BytesArg<'_>>,
                prefix: Option<$crate::bytes::BytesArg<'_>>,
            ) -> PyResult<Py<PyAny>> {
                begin_measure(py, self, $crate::range::range(py, start, end, prefix, false, None)?)
            }
        }
    )+};
}

measured!(Database, Reader, Snapshot, Transaction);
