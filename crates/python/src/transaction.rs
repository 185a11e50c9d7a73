//! `Transaction`: reads from one snapshot and writes of one batch, committed atomically.

use crate::bytes::BytesArg;
use crate::commit::Commit;
use crate::database::Database;
use crate::deletion::Deletion;
use crate::error::{self, Raise};
use crate::expiry::Life;
use crate::held::Held;
use crate::process::Process;
use crate::source::{Source, reads};
use crate::wait::wait;
use crate::write::BYTES_WITH_LOCK;
use parking_lot::Mutex;
use pyo3::prelude::*;
use siltstone::{Accept, Isolation, Result, ScanRange};

/// A transaction, returned by `Database.transaction`. Its reads see the database as of its begin,
/// plus its own writes. Other readers see these writes only after the commit, all at once. A
/// transaction takes no locks: if another commit conflicts with it, its commit raises Conflict and
/// the transaction is over. Used as a context manager, it commits if the block ends normally and
/// rolls back if the block raises.
#[pyclass(frozen, weakref, module = "siltstone")]
pub(crate) struct Transaction {
    held: Held<siltstone::Transaction>,
    committed: Mutex<Option<Py<Commit>>>,
    /// Keeps the database open: an unreferenced database is closed.
    _database: Py<Database>,
}

/// A savepoint of a transaction, for `rollback_to`.
#[pyclass(frozen, module = "siltstone")]
pub(crate) struct Savepoint(siltstone::Savepoint);

impl Transaction {
    /// The engine's transaction and its process.
    ///
    /// # Errors
    /// Closed in a forked child.
    pub(crate) fn engine(
        &self,
        py: Python<'_>,
    ) -> PyResult<(&siltstone::Transaction, &'static Process)> {
        Ok((self.held.get(py)?, self.held.process()))
    }
}

impl Source for Transaction {
    type Engine = siltstone::Transaction;
    type Guard<'a> = &'a Held<siltstone::Transaction>;

    fn held(&self, _py: Python<'_>) -> PyResult<Self::Guard<'_>> {
        Ok(&self.held)
    }

    fn open_scan(engine: &siltstone::Transaction, range: ScanRange) -> Result<siltstone::Scan> {
        engine.scan(range)
    }
}

reads!(Transaction);

/// Tries to commit once; releases the interpreter lock if this may take long.
///
/// # Errors
/// Conflict, and the errors of a write.
pub(crate) fn try_commit(
    py: Python<'_>,
    engine: &siltstone::Transaction,
) -> PyResult<Option<Accept>> {
    if engine.is_light(BYTES_WITH_LOCK) {
        return engine.commit().raise(py);
    }
    py.detach(|| engine.commit()).raise(py)
}

#[pymethods]
impl Transaction {
    /// The last sequence number of other writers that the transaction sees.
    #[getter]
    fn seq(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.held.get(py)?.seq().get())
    }

    /// The isolation level: "serializable" or "snapshot".
    #[getter]
    fn isolation(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(name(self.held.get(py)?.isolation()))
    }

    /// The Commit, if the transaction was committed and had written something; otherwise None.
    #[getter]
    fn committed(&self, py: Python<'_>) -> Option<Py<Commit>> {
        self.committed.lock().as_ref().map(|commit| commit.clone_ref(py))
    }

    /// Set `key` to `value`.
    ///
    /// :param ttl: time until the key expires, counted from now.
    /// :param expire_at: aware datetime at which the key expires, instead of `ttl`. A datetime in
    ///     the past hides the previous value.
    /// :raises Invalid: the key or the value is empty or oversized, or `ttl` is not positive and
    ///     finite.
    /// :raises Closed: the transaction is over.
    #[pyo3(signature = (key, value, *, ttl=None, expire_at=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: BytesArg<'_>,
        value: BytesArg<'_>,
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (engine, life) = (self.held.get(py)?, Life::of(ttl, expire_at)?);
        let expires_at = life.end_in(engine).raise(py)?;
        engine.put(key.as_ref(), value.as_ref(), expires_at).raise(py)
    }

    /// Add a merge operand to `key`.
    ///
    /// :param ttl: as for `put`.
    /// :param expire_at: as for `put`.
    /// :raises Invalid: the database was opened without a merge operator, or the operator rejects
    ///     the operand; otherwise as for `put`.
    #[pyo3(signature = (key, operand, *, ttl=None, expire_at=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: BytesArg<'_>,
        operand: BytesArg<'_>,
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (engine, life) = (self.held.get(py)?, Life::of(ttl, expire_at)?);
        let expires_at = life.end_in(engine).raise(py)?;
        engine.merge(key.as_ref(), operand.as_ref(), expires_at).raise(py)
    }

    /// Delete `key`. Deleting an absent key is not an error.
    fn delete(&self, py: Python<'_>, key: BytesArg<'_>) -> PyResult<()> {
        self.held.get(py)?.delete(key.as_ref()).raise(py)
    }

    /// Delete every key in `[start, end)`, or every key with `prefix`. Later writes of the
    /// transaction are not affected. Without `start` the range begins at the first key; without
    /// `end` it extends to the last key and counts as two operations.
    ///
    /// :raises Invalid: no argument is given, `prefix` is given together with a bound, a bound or
    ///     the prefix is empty or oversized, or `start` is not below `end`.
    #[pyo3(signature = (start=None, end=None, *, prefix=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<BytesArg<'_>>,
        end: Option<BytesArg<'_>>,
        prefix: Option<BytesArg<'_>>,
    ) -> PyResult<()> {
        let deletion = Deletion::of(py, start, end, prefix)?;
        deletion.write_in(self.held.get(py)?).raise(py)
    }

    fn __setitem__(&self, py: Python<'_>, key: BytesArg<'_>, value: BytesArg<'_>) -> PyResult<()> {
        self.put(py, key, value, None, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: BytesArg<'_>) -> PyResult<()> {
        self.delete(py, key)
    }

    /// Return a savepoint for `rollback_to`.
    ///
    /// :raises Closed: the transaction is over.
    fn savepoint(&self, py: Python<'_>) -> PyResult<Savepoint> {
        self.held.get(py)?.savepoint().raise(py).map(Savepoint)
    }

    /// Discard everything written since the savepoint. Reads since then still count for conflicts,
    /// because they may have influenced later writes. The savepoint stays valid; later savepoints
    /// are removed.
    ///
    /// :raises Invalid: the savepoint belongs to another transaction, or was removed by an earlier
    ///     `rollback_to`.
    fn rollback_to(&self, py: Python<'_>, savepoint: &Savepoint) -> PyResult<()> {
        self.held.get(py)?.rollback_to(&savepoint.0).raise(py)
    }

    /// Commit: all writes become visible at once, and durable as after a put. Return None if
    /// nothing was written. Waits only while `max_memtable_bytes` are unflushed. A wait that is
    /// interrupted has committed nothing and leaves the transaction open.
    ///
    /// :raises Conflict: another commit changed data that this transaction depends on;
    ///     `context["key"]` is the key (escaped as in a bytes literal). The transaction is over:
    ///     run it again, or use `siltstone.retry`.
    /// :raises Invalid: more than `max_batch_bytes` were written.
    /// :raises Closed: the transaction is over, or the database was closed.
    /// :raises Fenced: another writer has taken over.
    /// :raises Timeout, Unavailable: the store did not answer in time or cannot be reached.
    fn commit(&self, py: Python<'_>) -> PyResult<Option<Py<Commit>>> {
        let (engine, process) = self.engine(py)?;
        loop {
            match try_commit(py, engine)? {
                None => return Ok(None),
                Some(Accept::Pressure(room)) => wait(py, process, room)?,
                Some(Accept::Accepted(commit)) => {
                    let commit = Py::new(py, Commit::new(process, commit))?;
                    *self.committed.lock() = Some(commit.clone_ref(py));
                    return Ok(Some(commit));
                }
            }
        }
    }

    /// Discard all writes and end the transaction. Calling it again, or after a commit, has no
    /// effect.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.held.get(py)?.rollback();
        Ok(())
    }

    /// Same as `rollback`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.rollback(py)
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().held.get(slf.py())?;
        Ok(slf)
    }

    /// Commits if the block ended normally, rolls back otherwise.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let engine = self.held.get(py)?;
        if !kind.is_none() {
            engine.rollback();
            return Ok(());
        }
        if engine.ended().is_some() {
            return Ok(());
        }
        // After a failed commit the transaction is still open, and no caller will retry it.
        self.commit(py).map(drop).inspect_err(|_| engine.rollback())
    }

    fn __repr__(&self) -> String {
        let Some(engine) = self.held.peek() else {
            return "<siltstone.Transaction of the process before a fork>".to_owned();
        };
        let (isolation, state) = (name(engine.isolation()), engine.ended().unwrap_or("open"));
        format!("<siltstone.Transaction {isolation}, seq={}, {state}>", engine.seq().get())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "a Transaction cannot be pickled: it belongs to the one writer of the database, and to \
             this process",
        ))
    }
}

#[pymethods]
impl Savepoint {
    fn __repr__(&self) -> &'static str {
        "<siltstone.Savepoint>"
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "a Savepoint cannot be pickled: it belongs to its transaction",
        ))
    }
}

#[pymethods]
impl Database {
    /// Begin a transaction, for a `with` block, which commits it if the block ends normally.
    ///
    /// :param isolation: "serializable": the commit raises Conflict if any data that the
    ///     transaction read has changed since, including keys that it looked for and did not find.
    ///     "snapshot": the commit raises Conflict only if another commit has written a key that
    ///     this transaction writes; two transactions may each change data that the other has read
    ///     (write skew).
    /// :raises Invalid: `isolation` is another value.
    /// :raises Closed, Fenced: the handle is closed, or another writer has taken over.
    #[pyo3(signature = (isolation="serializable"))]
    fn transaction(slf: Bound<'_, Self>, isolation: &str) -> PyResult<Transaction> {
        let py = slf.py();
        let wanted = [Isolation::Serializable, Isolation::Snapshot];
        let wanted = wanted.into_iter().find(|one| name(*one) == isolation).ok_or_else(|| {
            let text = format!("isolation is 'serializable' or 'snapshot', not '{isolation}'");
            error::invalid(py, text)
        })?;
        let held = slf.get().held();
        let held = Held::new(held.process(), held.get(py)?.transaction(wanted).raise(py)?);
        Ok(Transaction { held, committed: Mutex::default(), _database: slf.unbind() })
    }
}

fn name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Serializable => "serializable",
        Isolation::Snapshot => "snapshot",
    }
}
