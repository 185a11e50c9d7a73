//! `MemTable` and its snapshots.

use super::pairs::{Pairs, each_of_sequences};
use super::target::effects;
use crate::batch::WriteBatch;
use crate::bytes::BytesArg;
use crate::error::Raise;
use crate::expiry::expires_at;
use crate::held::Held;
use crate::process::Process;
use crate::range::count;
use crate::source::{Source, lookups, reads};
use pyo3::prelude::*;
use siltstone::tables::{MemoryTable, View};
use siltstone::{Batch, Result, ScanRange, Seq, UnixMillis};

/// Batches up to this many bytes are inserted while the interpreter lock is held.
const BYTES_WITH_LOCK: usize = 64 << 10;

/// A sorted buffer of writes in memory, with its own history: the first operation has sequence
/// number 1. It keeps every version. Any number of threads can read; one thread at a time can
/// write.
///
/// Reads see the newest version of each key.
#[pyclass(frozen, weakref, module = "siltstone.lsm")]
pub(crate) struct MemTable {
    held: Held<MemoryTable>,
}

impl Source for MemTable {
    type Engine = MemoryTable;
    type Guard<'a> = &'a Held<MemoryTable>;

    fn held(&self, _: Python<'_>) -> PyResult<Self::Guard<'_>> {
        Ok(&self.held)
    }

    fn open_scan(engine: &MemoryTable, range: ScanRange) -> Result<siltstone::Scan> {
        Ok(engine.view().scan(range))
    }
}

lookups!(MemTable);

impl MemTable {
    /// A view of the current content.
    pub(super) fn view(&self, py: Python<'_>) -> PyResult<View> {
        Ok(self.held.get(py)?.view())
    }

    fn insert(&self, py: Python<'_>, batch: &Batch) -> PyResult<u64> {
        let table = self.held.get(py)?;
        let written = if batch.as_bytes().len() <= BYTES_WITH_LOCK {
            table.write(batch)
        } else {
            py.detach(|| table.write(batch))
        };
        Ok(written.raise(py)?.get())
    }

    fn put_until(
        &self,
        py: Python<'_>,
        key: &[u8],
        value: &[u8],
        expires_at: Option<UnixMillis>,
    ) -> PyResult<u64> {
        let mut batch = Batch::new();
        batch.put(key, value, expires_at).raise(py)?;
        self.insert(py, &batch)
    }
}

#[pymethods]
impl MemTable {
    /// Creates an empty memtable.
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let process = Process::current(py)?;
        Ok(MemTable { held: Held::new(process, MemoryTable::new(effects(process))) })
    }

    /// Sets `key` to `value`, and returns the sequence number.
    ///
    /// :param ttl: time to live, counted from now; the key expires after it.
    /// :param expire_at: an aware datetime, instead of `ttl`: the key expires at this time. A time
    ///     in the past hides the previous value.
    /// :raises Invalid: if the key is empty, or either is too long, or `ttl` is not positive and
    ///     finite.
    #[pyo3(signature = (key, value, *, ttl=None, expire_at=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: BytesArg<'_>,
        value: BytesArg<'_>,
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let expires_at = expires_at(py, ttl, expire_at)?;
        self.put_until(py, key.as_ref(), value.as_ref(), expires_at)
    }

    /// Deletes `key`, and returns the sequence number of the tombstone.
    fn delete(&self, py: Python<'_>, key: BytesArg<'_>) -> PyResult<u64> {
        let mut batch = Batch::new();
        batch.delete(key.as_ref()).raise(py)?;
        self.insert(py, &batch)
    }

    /// Sets each key to the value at the same position, atomically, and returns the last
    /// sequence number.
    ///
    /// :raises Invalid: if the lengths differ or an array has nulls; as for `put`. Nothing is
    ///     written.
    fn put_many<'py>(
        &self,
        py: Python<'py>,
        keys: Bound<'py, PyAny>,
        values: Bound<'py, PyAny>,
    ) -> PyResult<u64> {
        let mut batch = Batch::new();
        match Pairs::of(keys, values)? {
            Pairs::Sequences(keys, values) => {
                each_of_sequences(&keys, &values, |key, value| {
                    batch.put(key, value, None).raise(py)
                })?;
            }
            Pairs::Columns(keys, values) => {
                let put_all = || {
                    let mut pairs = keys.rows().zip(values.rows());
                    pairs.try_for_each(|(key, value)| {
                        batch.put(key.unwrap_or_default(), value.unwrap_or_default(), None)
                    })
                };
                py.detach(put_all).raise(py)?;
            }
        }
        self.insert(py, &batch)
    }

    /// Applies the operations of a batch, atomically, and returns the last sequence number.
    fn write(&self, py: Python<'_>, batch: &WriteBatch) -> PyResult<u64> {
        batch.with(py, |batch| self.insert(py, batch))
    }

    fn __setitem__(&self, py: Python<'_>, key: BytesArg<'_>, value: BytesArg<'_>) -> PyResult<()> {
        self.put_until(py, key.as_ref(), value.as_ref(), None).map(drop)
    }

    fn __delitem__(&self, py: Python<'_>, key: BytesArg<'_>) -> PyResult<()> {
        self.delete(py, key).map(drop)
    }

    /// Returns a view of the state after the operation `seq`; None: the current state.
    ///
    /// :raises Invalid: if no operation has this sequence number yet.
    #[pyo3(signature = (seq=None))]
    fn snapshot(
        &self,
        py: Python<'_>,
        seq: Option<Bound<'_, PyAny>>,
    ) -> PyResult<MemTableSnapshot> {
        let table = self.held.get(py)?;
        let view = match seq {
            None => table.view(),
            Some(seq) => table.view_at(Seq(count(&seq, "seq", 0)?)).raise(py)?,
        };
        Ok(MemTableSnapshot { held: Held::new(self.held.process(), view) })
    }

    /// The last sequence number; 0 if the memtable is empty.
    #[getter]
    fn seq(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.held.get(py)?.last_seq().get())
    }

    /// Approximate size in memory, in bytes.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.held.get(py)?.bytes())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.held.get(py)?.entries())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let table = self.held.get(py)?;
        let (entries, bytes) = (table.entries(), table.bytes());
        Ok(format!("<siltstone.lsm.MemTable of {entries} entries, {bytes} bytes>"))
    }
}

/// The state of a `MemTable` at one sequence number. It keeps the memory of the memtable.
#[pyclass(frozen, weakref, module = "siltstone.lsm")]
pub(crate) struct MemTableSnapshot {
    held: Held<View>,
}

impl MemTableSnapshot {
    /// The view of the memtable.
    pub(super) fn view(&self, py: Python<'_>) -> PyResult<View> {
        self.held.get(py).cloned()
    }
}

impl Source for MemTableSnapshot {
    type Engine = View;
    type Guard<'a> = &'a Held<View>;

    fn held(&self, _: Python<'_>) -> PyResult<Self::Guard<'_>> {
        Ok(&self.held)
    }

    fn open_scan(engine: &View, range: ScanRange) -> Result<siltstone::Scan> {
        Ok(engine.scan(range))
    }
}

reads!(MemTableSnapshot);

#[pymethods]
impl MemTableSnapshot {
    /// The last sequence number that the snapshot sees.
    #[getter]
    fn seq(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.held.get(py)?.seq().get())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<siltstone.lsm.MemTableSnapshot at {}>", self.seq(py)?))
    }
}
