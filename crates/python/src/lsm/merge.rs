//! `merge_sorted`: merges several tables and memtables.

use super::memtable::{MemTable, MemTableSnapshot};
use super::reader::SstReader;
use super::target::effects;
use crate::bytes::BytesArg;
use crate::error::Raise;
use crate::process::Process;
use crate::range::range;
use crate::scan::{Pull, Scan, ScanItems};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use siltstone::tables::{MergeInput, Merged};

/// Reads several tables and memtables as one, in key order. If several readers have a key, the
/// first reader in the list wins: list the newest first.
///
/// :param tombstones: also yield deleted and expired keys, with None as the value (null in Arrow).
///     Otherwise they are left out.
/// :raises Unsupported: if a table has merge operands.
/// :raises Corruption, Unavailable, Timeout, Denied: while the rows are read.
#[pyfunction]
#[pyo3(signature = (readers, *, start=None, end=None, prefix=None, limit=None, tombstones=false))]
pub(crate) fn merge_sorted(
    py: Python<'_>,
    readers: &Bound<'_, PyAny>,
    start: Option<BytesArg<'_>>,
    end: Option<BytesArg<'_>>,
    prefix: Option<BytesArg<'_>>,
    limit: Option<Bound<'_, PyAny>>,
    tombstones: bool,
) -> PyResult<Scan> {
    let range = range(py, start, end, prefix, false, limit)?;
    let inputs = readers.try_iter()?.map(|reader| input(&reader?)).collect::<PyResult<_>>()?;
    let process = Process::current(py)?;
    let now = effects(process).clock.now();
    let merged = Merged::new(inputs, range, tombstones, now).raise(py)?;
    Ok(Scan::new(process, Pull::Merged(Box::new(merged)), ScanItems::Items))
}

fn input(reader: &Bound<'_, PyAny>) -> PyResult<MergeInput> {
    let py = reader.py();
    if let Ok(table) = reader.cast::<SstReader>() {
        return table.get().file(py).map(MergeInput::Table);
    }
    if let Ok(table) = reader.cast::<MemTable>() {
        return table.get().view(py).map(MergeInput::Memory);
    }
    if let Ok(snapshot) = reader.cast::<MemTableSnapshot>() {
        return snapshot.get().view(py).map(MergeInput::Memory);
    }
    let given = reader.get_type().name()?;
    let text = format!("merge_sorted takes SstReader, MemTable and MemTableSnapshot, not {given}");
    Err(PyTypeError::new_err(text))
}
