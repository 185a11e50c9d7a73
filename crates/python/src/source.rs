//! The reads that Database, Reader, Snapshot and Transaction share. Each read method exists once,
//! here.

use crate::held::Held;
use pyo3::prelude::*;
use siltstone::{Answer, Keys, Result, ScanRange, Value};
use std::ops::Deref;

/// The interface shared by the readable handles of the engine.
pub(crate) trait Readable: Send + Sync + 'static {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>>;
    /// The values of `keys`, in the order of `keys`.
    fn get_many(&self, keys: Keys) -> Result<Answer<Vec<Option<Value>>>>;
}

macro_rules! readable {
    ($($engine:ident),+) => {$(
        impl Readable for siltstone::$engine {
            fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
                siltstone::$engine::get(self, key)
            }

            fn get_many(&self, keys: Keys) -> Result<Answer<Vec<Option<Value>>>> {
                siltstone::$engine::get_many(self, keys)
            }
        }
    )+};
}

readable!(Database, Reader, Snapshot, Transaction);

/// A Python class with read methods.
pub(crate) trait Source {
    /// The engine handle behind it.
    type Engine: Readable;
    /// Access to the engine handle: a plain reference if the handle never changes.
    type Guard<'a>: Deref<Target = Held<Self::Engine>>
    where
        Self: 'a;

    /// The handle.
    ///
    /// # Errors
    /// Closed; for a reader in a forked child, the errors of reopening it.
    fn held(&self, py: Python<'_>) -> PyResult<Self::Guard<'_>>;

    /// Refreshes the handle before a scan, if it is older than its maximum staleness.
    ///
    /// # Errors
    /// Closed; the errors of a refresh.
    fn fresh(_engine: &Self::Engine) -> Result<Answer<()>> {
        Ok(Answer::Ready(()))
    }

    /// Begins a scan.
    ///
    /// # Errors
    /// Closed, Fenced.
    fn open_scan(engine: &Self::Engine, range: ScanRange) -> Result<siltstone::Scan>;

    /// Begins a scan after [`Source::fresh`].
    ///
    /// # Errors
    /// Closed, Fenced.
    fn open_fresh_scan(engine: &Self::Engine, range: ScanRange) -> Result<siltstone::Scan> {
        Self::open_scan(engine, range)
    }
}

/// The read methods of one class, without `__len__`.
macro_rules! lookups {
    ($class:ident) => {
        #[pymethods]
        impl $class {
            /// Returns the value of `key`, or `default` if the key is absent.
            ///
            /// :raises Invalid: if the key is empty or too long.
            /// :raises Closed, Fenced: if the handle can no longer be used.
            /// :raises Unavailable, Timeout, Denied, Corruption: see `siltstone.exceptions`.
            #[pyo3(signature = (key, default=None))]
            fn get<'py>(
                &self,
                py: Python<'py>,
                key: $crate::bytes::BytesArg<'_>,
                default: Option<Bound<'py, PyAny>>,
            ) -> PyResult<Option<Bound<'py, PyAny>>> {
                Ok($crate::get::get(py, self, key.as_ref())?.or(default))
            }

            fn __getitem__<'py>(
                &self,
                py: Python<'py>,
                key: $crate::bytes::BytesArg<'_>,
            ) -> PyResult<Bound<'py, PyAny>> {
                $crate::get::get(py, self, key.as_ref())?
                    .ok_or_else(|| $crate::get::absent(py, key.as_ref()))
            }

            fn __contains__(
                &self,
                py: Python<'_>,
                key: $crate::bytes::BytesArg<'_>,
            ) -> PyResult<bool> {
                $crate::get::find(py, self, key.as_ref()).map(|value| value.is_some())
            }

            /// Returns the values of `keys`, in the order of `keys`, all from one state of the
            /// database; None for an absent key.
            ///
            /// For an Arrow array of binary or text the result is an Arrow array of binary
            /// (of large binary if the values exceed 2 GiB), of the same library if that is
            /// pyarrow or arro3. A null key gives a null.
            ///
            /// :raises TypeError: if `keys` is a single key, or an element is not a key; the text
            ///     names its row.
            fn get_many<'py>(
                &self,
                py: Python<'py>,
                keys: &Bound<'py, PyAny>,
            ) -> PyResult<Bound<'py, PyAny>> {
                $crate::get_many::get_many(py, self, keys)
            }

            /// Iterates over the keys and values of `[start, end)`, or of the keys with `prefix`,
            /// in the state at the time of the call.
            ///
            /// :param reverse: iterate from the greatest key to the smallest.
            /// :param limit: maximum number of rows.
            /// :raises Invalid: if `prefix` is given together with a bound, or `limit` is negative.
            #[pyo3(signature = (start=None, end=None, *, prefix=None, reverse=false, limit=None))]
            fn scan(
                &self,
                py: Python<'_>,
                start: Option<$crate::bytes::BytesArg<'_>>,
                end: Option<$crate::bytes::BytesArg<'_>>,
                prefix: Option<$crate::bytes::BytesArg<'_>>,
                reverse: bool,
                limit: Option<Bound<'_, PyAny>>,
            ) -> PyResult<$crate::scan::Scan> {
                let range = $crate::range::range(py, start, end, prefix, reverse, limit)?;
                $crate::scan::open(py, self, range, $crate::scan::ScanItems::Items)
            }

            /// As `scan`.
            #[pyo3(signature = (start=None, end=None, *, prefix=None, reverse=false, limit=None))]
            fn items(
                &self,
                py: Python<'_>,
                start: Option<$crate::bytes::BytesArg<'_>>,
                end: Option<$crate::bytes::BytesArg<'_>>,
                prefix: Option<$crate::bytes::BytesArg<'_>>,
                reverse: bool,
                limit: Option<Bound<'_, PyAny>>,
            ) -> PyResult<$crate::scan::Scan> {
                let range = $crate::range::range(py, start, end, prefix, reverse, limit)?;
                $crate::scan::open(py, self, range, $crate::scan::ScanItems::Items)
            }

            /// As `scan`, but yields only the keys.
            #[pyo3(signature = (start=None, end=None, *, prefix=None, reverse=false, limit=None))]
            fn keys(
                &self,
                py: Python<'_>,
                start: Option<$crate::bytes::BytesArg<'_>>,
                end: Option<$crate::bytes::BytesArg<'_>>,
                prefix: Option<$crate::bytes::BytesArg<'_>>,
                reverse: bool,
                limit: Option<Bound<'_, PyAny>>,
            ) -> PyResult<$crate::scan::Scan> {
                let range = $crate::range::range(py, start, end, prefix, reverse, limit)?;
                $crate::scan::open(py, self, range, $crate::scan::ScanItems::Keys)
            }

            /// As `scan`, but yields only the values.
            #[pyo3(signature = (start=None, end=None, *, prefix=None, reverse=false, limit=None))]
            fn values(
                &self,
                py: Python<'_>,
                start: Option<$crate::bytes::BytesArg<'_>>,
                end: Option<$crate::bytes::BytesArg<'_>>,
                prefix: Option<$crate::bytes::BytesArg<'_>>,
                reverse: bool,
                limit: Option<Bound<'_, PyAny>>,
            ) -> PyResult<$crate::scan::Scan> {
                let range = $crate::range::range(py, start, end, prefix, reverse, limit)?;
                $crate::scan::open(py, self, range, $crate::scan::ScanItems::Values)
            }

            fn __iter__(&self, py: Python<'_>) -> PyResult<$crate::scan::Scan> {
                let everything = siltstone::ScanRange::default();
                $crate::scan::open(py, self, everything, $crate::scan::ScanItems::Keys)
            }

            fn __bool__(&self) -> bool {
                true
            }
        }
    };
}
pub(crate) use lookups;

/// The read methods of a class without a length.
macro_rules! reads {
    ($class:ident) => {
        $crate::source::lookups!($class);

        #[pymethods]
        impl $class {
            fn __len__(&self) -> PyResult<usize> {
                Err(pyo3::exceptions::PyTypeError::new_err($crate::source::NO_LENGTH))
            }
        }
    };
}
pub(crate) use reads;

/// The error text for `len()`.
pub(crate) const NO_LENGTH: &str = "a database has no len(): counting means reading every key, \
     since older versions and deletions lie in several layers; use sum(1 for _ in db), or the \
     estimate in stats().table_rows";
