//! The reads of Database, Reader, Snapshot and Transaction for `siltstone.aio`: answered at once if
//! the data is in memory.

use crate::aio::pending::Pending;
use crate::aio::scan::AsyncScan;
use crate::array;
use crate::bytes::to_python;
use crate::column::Column;
use crate::database::Database;
use crate::error::Raise;
use crate::frames::is_arrow_column;
use crate::get_many::{KEYS_WITH_LOCK, list, pack};
use crate::reader::Reader;
use crate::scan::ScanItems;
use crate::snapshot::Snapshot;
use crate::source::{Readable, Source};
use crate::transaction::Transaction;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use siltstone::{Answer, ScanRange, Value};

/// The value of `key`, or a Pending for it.
fn begin_get<'py, S: Source>(
    py: Python<'py>,
    source: &S,
    key: &[u8],
    default: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let held = source.held(py)?;
    match held.get(py)?.get(key).raise(py)? {
        Answer::Ready(Some(value)) => Ok(to_python(py, &value)?.into_any()),
        Answer::Ready(None) => Ok(default.unwrap_or_else(|| py.None().into_bound(py))),
        Answer::Pending(answer) => {
            let default = default.map(Bound::unbind);
            let finish = move |py: Python<'_>, value: Option<Value>| match value {
                Some(value) => Ok(to_python(py, &value)?.into_any().unbind()),
                None => Ok(default.unwrap_or_else(|| py.None())),
            };
            let pending = Pending::running(held.process(), answer, finish);
            Ok(Bound::new(py, pending)?.into_any())
        }
    }
}

/// Whether `key` is present, or a Pending for the answer.
fn begin_contains<'py, S: Source>(
    py: Python<'py>,
    source: &S,
    key: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let truth = |py: Python<'_>, value: Option<Value>| {
        Ok(PyBool::new(py, value.is_some()).to_owned().into_any().unbind())
    };
    let held = source.held(py)?;
    match held.get(py)?.get(key).raise(py)? {
        Answer::Ready(value) => Ok(truth(py, value)?.into_bound(py)),
        Answer::Pending(answer) => {
            let pending = Pending::running(held.process(), answer, truth);
            Ok(Bound::new(py, pending)?.into_any())
        }
    }
}

/// The values of `keys`, or a Pending for them.
fn begin_get_many<'py, S: Source>(
    py: Python<'py>,
    source: &S,
    keys: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let column = is_arrow_column(keys)?.then(|| Column::from_python(keys, "keys")).transpose()?;
    let packed = match &column {
        Some(column) => column.packed_keys(),
        None => pack(keys)?,
    };
    let held = source.held(py)?;
    let engine = held.get(py)?;
    let answer = if packed.len() <= KEYS_WITH_LOCK {
        engine.get_many(packed)
    } else {
        py.detach(|| engine.get_many(packed))
    };
    match answer.raise(py)? {
        Answer::Ready(values) => many(keys, column, values),
        Answer::Pending(answer) => {
            let asked = keys.clone().unbind();
            let finish = move |py: Python<'_>, values: Vec<Option<Value>>| {
                many(asked.bind(py), column, values).map(Bound::unbind)
            };
            let pending = Pending::running(held.process(), answer, finish);
            Ok(Bound::new(py, pending)?.into_any())
        }
    }
}

/// The result of `get_many`: an Arrow array for Arrow keys.
fn many<'py>(
    asked: &Bound<'py, PyAny>,
    column: Option<Column>,
    values: Vec<Option<Value>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = asked.py();
    if let Some(column) = column {
        return array::answer(py, asked, column.nulls_kept(values));
    }
    list(py, &values)
}

/// Begins a scan of the current state.
fn begin_scan<S: Source>(
    py: Python<'_>,
    source: &S,
    range: ScanRange,
    yields: &str,
) -> PyResult<AsyncScan> {
    let yields = match yields {
        "keys" => ScanItems::Keys,
        "values" => ScanItems::Values,
        _ => ScanItems::Items,
    };
    let held = source.held(py)?;
    let scan = S::open_scan(held.get(py)?, range).raise(py)?;
    Ok(AsyncScan::new(held.process(), scan, yields))
}

/// The `_begin` methods of the reads of one class. Private: called by `siltstone.aio`.
macro_rules! begun_reads {
    ($class:ident) => {
        #[pymethods]
        impl $class {
            /// `get`: the value, or a Pending.
            fn _begin_get<'py>(
                &self,
                py: Python<'py>,
                key: $crate::bytes::BytesArg<'_>,
                default: Option<Bound<'py, PyAny>>,
            ) -> PyResult<Bound<'py, PyAny>> {
                begin_get(py, self, key.as_ref(), default)
            }

            /// `contains`: the answer, or a Pending.
            fn _begin_contains<'py>(
                &self,
                py: Python<'py>,
                key: $crate::bytes::BytesArg<'_>,
            ) -> PyResult<Bound<'py, PyAny>> {
                begin_contains(py, self, key.as_ref())
            }

            /// `get_many`: the values, or a Pending.
            fn _begin_get_many<'py>(
                &self,
                py: Python<'py>,
                keys: &Bound<'py, PyAny>,
            ) -> PyResult<Bound<'py, PyAny>> {
                begin_get_many(py, self, keys)
            }

            /// `scan`, `items`, `keys` and `values`, selected by the items that they yield.
            #[expect(clippy::too_many_arguments, reason = "the arguments of scan")]
            fn _begin_scan(
                &self,
                py: Python<'_>,
                yields: &str,
                start: Option<$crate::bytes::BytesArg<'_>>,
                end: Option<$crate::bytes::BytesArg<'_>>,
                prefix: Option<$crate::bytes::BytesArg<'_>>,
                reverse: bool,
                limit: Option<Bound<'_, PyAny>>,
            ) -> PyResult<AsyncScan> {
                let range = $crate::range::range(py, start, end, prefix, reverse, limit)?;
                begin_scan(py, self, range, yields)
            }
        }
    };
}

begun_reads!(Database);
begun_reads!(Reader);
begun_reads!(Snapshot);
begun_reads!(Transaction);
