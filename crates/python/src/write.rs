//! `write` and `put_many`: many operations as one atomic batch.

use crate::batch::WriteBatch;
use crate::bytes::{Elements, HOLD, elements, hold, refuse_unpaired, row};
use crate::column::{Column, each_row, null};
use crate::commit::Commit;
use crate::database::Database;
use crate::error::{self, Raise};
use crate::expiry::LifetimeArguments;
use crate::frames::{is_arrow, is_arrow_column};
use crate::wait::wait;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use siltstone::{Batch, LargeWrite, UnixMillis};

/// Batches up to so many bytes are accepted with the interpreter lock held.
pub(crate) const BYTES_WITH_LOCK: usize = 64 << 10;

#[pymethods]
impl Database {
    /// Commits a WriteBatch, or an Arrow table or record batch with the columns `key` and
    /// `value`, as one atomic batch.
    ///
    /// :raises Invalid: if a column is missing, a column has nulls, or the batch is larger than
    ///     `max_batch_bytes`.
    fn write(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<Commit> {
        with_rows(py, self, batch, |batch| accept_batch(py, self, batch))
    }

    /// Sets each key to the value at the same position, in one atomic batch. Keys and values are
    /// sequences of bytes, or two Arrow arrays of binary or text.
    ///
    /// :param ttl: as for `put`, for all rows.
    /// :param expire_at: as for `put`, for all rows.
    /// :raises Invalid: if the lengths differ, an array has nulls, or the batch is larger than
    ///     `max_batch_bytes`; as for `put`.
    /// :raises TypeError: if an argument is a single key or value, a set or a mapping, or an
    ///     element has the wrong type; the text names its row.
    #[pyo3(signature = (keys, values, *, ttl=None, expire_at=None))]
    fn put_many(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Commit> {
        let life = LifetimeArguments::of(ttl, expire_at)?;
        accept_batch(py, self, &beside(py, self, (keys, values), life)?)
    }
}

/// Calls `work` with the batch that `data` is: a WriteBatch, or Arrow data with two columns.
///
/// # Errors
/// TypeError for anything else; Invalid for missing columns, nulls, and too many bytes.
pub(crate) fn with_rows<T>(
    py: Python<'_>,
    database: &Database,
    data: &Bound<'_, PyAny>,
    work: impl FnOnce(&Batch) -> PyResult<T>,
) -> PyResult<T> {
    if let Ok(batch) = data.cast::<WriteBatch>() {
        return batch.get().with(py, work);
    }
    if !is_arrow(data)? {
        let name = data.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "batch: expected a WriteBatch or Arrow data with the columns key and value, not {name}"
        )));
    }
    let mut growing = GrowingBatch::for_database(py, database, LifetimeArguments::Endless)?;
    each_row(data, |position, row| growing.put(py, position, row))?;
    work(&growing.batch)
}

/// A batch that sets every key to the value beside it, for `life`.
///
/// # Errors
/// TypeError for what is neither two Arrow arrays nor two sequences of bytes; Invalid for lengths
/// that differ, nulls, and too many bytes.
pub(crate) fn beside(
    py: Python<'_>,
    database: &Database,
    (keys, values): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    life: LifetimeArguments,
) -> PyResult<Batch> {
    let mut growing = GrowingBatch::for_database(py, database, life)?;
    match (is_arrow_column(keys)?, is_arrow_column(values)?) {
        (true, true) => {
            let keys = Column::from_python(keys, "keys")?;
            growing.columns(py, &keys, &Column::from_python(values, "values")?)?;
        }
        (false, false) => growing.sequences(keys, values)?,
        _ => {
            return Err(PyTypeError::new_err(
                "keys and values must both be Arrow arrays, or both be sequences of bytes",
            ));
        }
    }
    Ok(growing.batch)
}

/// A batch under construction that refuses to outgrow what the database takes.
struct GrowingBatch {
    batch: Batch,
    max_bytes: usize,
    /// When what is put expires.
    expires_at: Option<UnixMillis>,
}

impl GrowingBatch {
    fn for_database(
        py: Python<'_>,
        database: &Database,
        life: LifetimeArguments,
    ) -> PyResult<GrowingBatch> {
        let engine = database.held().get(py)?;
        let expires_at = life.end(engine).raise(py)?;
        let max_bytes = engine.options().max_batch_bytes;
        Ok(GrowingBatch { batch: Batch::new(), max_bytes, expires_at })
    }

    fn put(
        &mut self,
        py: Python<'_>,
        position: usize,
        (key, value): (&[u8], &[u8]),
    ) -> PyResult<()> {
        let added = self.batch.put(key, value, self.expires_at);
        added.map_err(|error| error.with("row", position)).raise(py)?;
        if self.batch.as_bytes().len() > self.max_bytes {
            let text = format!(
                "the data is over max_batch_bytes ({} bytes): write it in several batches, or use \
                 load(), which takes any amount",
                self.max_bytes
            );
            return Err(error::invalid(py, text));
        }
        Ok(())
    }

    fn columns(&mut self, py: Python<'_>, keys: &Column, values: &Column) -> PyResult<()> {
        if keys.len() != values.len() {
            return Err(lengths_differ(py, keys.len(), values.len()));
        }
        for (position, (key, value)) in keys.rows().zip(values.rows()).enumerate() {
            let key = key.ok_or_else(|| null(py, "key", position))?;
            let value = value.ok_or_else(|| null(py, "value", position))?;
            self.put(py, position, (key, value))?;
        }
        Ok(())
    }

    fn sequences(&mut self, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = keys.py();
        refuse_unpaired(keys, "keys")?;
        refuse_unpaired(values, "values")?;
        let (mut keys, mut values) = (elements(keys)?, elements(values)?);
        let (mut some, mut beside) = (Vec::with_capacity(HOLD), Vec::with_capacity(HOLD));
        let mut rows = 0;
        loop {
            hold(&mut keys, &mut some)?;
            hold(&mut values, &mut beside)?;
            for (key, value) in some.iter().zip(&beside) {
                let (key, value) = (row(key, "keys", rows)?, row(value, "values", rows)?);
                self.put(py, rows, (key.as_ref(), value.as_ref()))?;
                rows += 1;
            }
            if some.len() != beside.len() {
                let before = rows - some.len().min(beside.len());
                let all = |held: &[_], rest: Elements<'_>| before + held.len() + rest.count();
                return Err(lengths_differ(py, all(&some, keys), all(&beside, values)));
            }
            if some.len() < HOLD {
                return Ok(());
            }
        }
    }
}

fn lengths_differ(py: Python<'_>, keys: usize, values: usize) -> PyErr {
    error::invalid(py, format!("there are {keys} keys and {values} values"))
}

/// Commits `batch`, by its upload where it skips the memtable; gives the interpreter lock up for a
/// large one.
pub(crate) fn accept_batch(py: Python<'_>, database: &Database, batch: &Batch) -> PyResult<Commit> {
    let held = database.held();
    let engine = held.get(py)?;
    if let Some(large) = begin_large(py, engine, batch)? {
        return Ok(Commit::new(held.process(), wait(py, held.process(), large)?));
    }
    if batch.as_bytes().len() <= BYTES_WITH_LOCK {
        return database.accept(py, |engine| engine.write(batch));
    }
    database.accept(py, |engine| py.detach(|| engine.write(batch)))
}

/// The write of a batch that skips the memtable; `None` for one that does not.
pub(crate) fn begin_large(
    py: Python<'_>,
    engine: &siltstone::Database,
    batch: &Batch,
) -> PyResult<Option<LargeWrite>> {
    let bytes = batch.as_bytes().len();
    // Asked first: most batches are below the bound, and giving the lock up costs them.
    if engine.options().writes.skip_memtable_bytes.is_none_or(|bound| bytes < bound) {
        return Ok(None);
    }
    let begin = || engine.write_large(batch);
    if bytes <= BYTES_WITH_LOCK { begin() } else { py.detach(begin) }.raise(py)
}
