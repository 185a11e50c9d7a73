//! `WriteBatch`: operations for one atomic commit.

use crate::bytes::BytesArg;
use crate::commit::Commit;
use crate::database::Database;
use crate::deletion::Deletion;
use crate::duration::seconds_of;
use crate::error::{self, Raise};
use crate::expiry::expires_at;
use crate::write::accept_batch;
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use siltstone::{Batch, Error, UnixMillis};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Operations for one atomic commit, in order. Use it in one thread at a time.
#[pyclass(frozen, module = "siltstone")]
pub(crate) struct WriteBatch {
    state: Mutex<BatchState>,
    /// Set for a batch created by `Database.batch()`.
    database: Option<Py<Database>>,
}

struct BatchState {
    batch: Batch,
    /// Set once the `with` block has ended: no operation may be added any more.
    ended: bool,
    commit: Option<Py<Commit>>,
}

impl WriteBatch {
    pub(crate) fn bound_to(database: Py<Database>) -> Self {
        WriteBatch { database: Some(database), ..WriteBatch::new() }
    }

    /// Calls `work` with the operations while the lock is held.
    ///
    /// # Errors
    /// Invalid while another thread uses the batch.
    pub(crate) fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Batch) -> PyResult<T>,
    ) -> PyResult<T> {
        work(&self.lock(py)?.batch)
    }

    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, BatchState>> {
        self.state
            .try_lock()
            .ok_or_else(|| error::invalid(py, "a write batch is used by one thread at a time"))
    }

    pub(crate) fn add(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut Batch) -> siltstone::Result<()>,
    ) -> PyResult<()> {
        let mut state = self.lock(py)?;
        if state.ended {
            return Err(error::invalid(py, "the batch's with block has ended; make another batch"));
        }
        operation(&mut state.batch).raise(py)
    }
}

#[pymethods]
impl WriteBatch {
    /// An empty batch.
    #[new]
    pub(crate) fn new() -> Self {
        let state = BatchState { batch: Batch::new(), ended: false, commit: None };
        WriteBatch { state: Mutex::new(state), database: None }
    }

    /// Sets `key` to `value`.
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
    ) -> PyResult<()> {
        let expires_at = expires_at(py, ttl, expire_at)?;
        self.add(py, |batch| batch.put(key.as_ref(), value.as_ref(), expires_at))
    }

    /// Adds a merge operand to `key`. The commit raises Invalid if the database was opened
    /// without a merge operator.
    ///
    /// :param ttl: as for `put`.
    /// :param expire_at: as for `put`.
    #[pyo3(signature = (key, operand, *, ttl=None, expire_at=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: BytesArg<'_>,
        operand: BytesArg<'_>,
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let expires_at = expires_at(py, ttl, expire_at)?;
        self.add(py, |batch| batch.merge(key.as_ref(), operand.as_ref(), expires_at))
    }

    /// Deletes `key`. Deleting an absent key succeeds.
    fn delete(&self, py: Python<'_>, key: BytesArg<'_>) -> PyResult<()> {
        self.add(py, |batch| batch.delete(key.as_ref()))
    }

    /// Deletes all keys of `[start, end)`, or all keys with `prefix`. Later operations of the
    /// batch are not affected. Without `start` the range begins at the first key. Without `end` it
    /// ends after the last key, and counts as two operations.
    ///
    /// :raises Invalid: if no argument is given, `prefix` is given together with a bound, a bound
    ///     or the prefix is empty or too long, or `start` is not below `end`.
    #[pyo3(signature = (start=None, end=None, *, prefix=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<BytesArg<'_>>,
        end: Option<BytesArg<'_>>,
        prefix: Option<BytesArg<'_>>,
    ) -> PyResult<()> {
        let deletion = Deletion::of(py, start, end, prefix)?;
        self.add(py, |batch| deletion.add(batch))
    }

    /// Removes all operations.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.add(py, |batch| {
            batch.clear();
            Ok(())
        })
    }

    /// Size of the encoded operations in bytes, which `max_batch_bytes` limits.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.batch.as_bytes().len())
    }

    /// The Commit, after the `with` block of a batch from `Database.batch()`; otherwise None.
    #[getter]
    fn commit(&self, py: Python<'_>) -> PyResult<Option<Py<Commit>>> {
        Ok(self.lock(py)?.commit.as_ref().map(|commit| commit.clone_ref(py)))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.batch.ops() as usize)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        if slf.get().database.is_none() {
            let text = "only a batch from Database.batch() commits at the end of its with block";
            return Err(error::invalid(slf.py(), text));
        }
        Ok(slf)
    }

    /// Commits when the block ended well, discards otherwise.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let mut state = self.lock(py)?;
        let again = std::mem::replace(&mut state.ended, true);
        if !kind.is_none() || again {
            return Ok(());
        }
        let Some(database) = &self.database else { return Ok(()) };
        let batch = std::mem::take(&mut state.batch);
        let commit = accept_batch(py, database.get(), &batch)?;
        state.commit = Some(Py::new(py, commit)?);
        Ok(())
    }

    fn __repr__(&self) -> String {
        match self.state.try_lock() {
            Some(state) if state.commit.is_some() => "<siltstone.WriteBatch, committed>".to_owned(),
            Some(state) if state.ended => "<siltstone.WriteBatch, discarded>".to_owned(),
            Some(state) => {
                let (operations, bytes) = (state.batch.ops(), state.batch.as_bytes().len());
                format!("<siltstone.WriteBatch of {operations} operations, {bytes} bytes>")
            }
            None => "<siltstone.WriteBatch, in use>".to_owned(),
        }
    }
}

/// The time to live given by the argument, if any. The engine checks its upper bound.
///
/// # Errors
/// TypeError if it is not a duration; Invalid if it is not above zero.
pub(crate) fn time_to_live(ttl: Option<Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(ttl) = ttl else { return Ok(None) };
    let py = ttl.py();
    let refused = |seconds: f64| {
        let text = "the time to live (ttl) must be above 0, and have an end; to remove a key, \
                    delete it";
        let error = Error::invalid(text).with("seconds", seconds);
        error::exception(py, &error)
    };
    let seconds = seconds_of(&ttl, "ttl")?;
    // A time below one nanosecond becomes one nanosecond; the engine rounds every time up to a
    // millisecond.
    let life = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds > 0.0);
    life.map(|life| Some(life.max(Duration::from_nanos(1)))).ok_or_else(|| refused(seconds))
}

/// The expiry of an entry with this time to live that is written now, outside of any database: the
/// current time is read here.
///
/// # Errors
/// Invalid if the expiry is too far in the future.
#[expect(clippy::disallowed_methods, reason = "no engine handle whose clock could be asked")]
pub(crate) fn ending(life: Duration) -> siltstone::Result<UnixMillis> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(now.as_millis() as u64).after(life)
}
