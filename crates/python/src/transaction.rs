//! `Transaction`: reads from one snapshot and writes of one batch, committed atomically.

use crate::bytes::BytesArg;
use crate::commit::Commit;
use crate::database::Database;
use crate::deletion::Deletion;
use crate::error::{self, Raise};
use crate::expiry::LifetimeArguments;
use crate::held::Held;
use crate::process::Process;
use crate::source::{Source, reads};
use crate::wait::wait;
use crate::write::BYTES_WITH_LOCK;
use parking_lot::Mutex;
use pyo3::prelude::*;
use siltstone::{Accept, Isolation, Result, ScanRange};

/// A transaction, from `Database.transaction`. Its reads see the database as of its begin,
/// together with its own writes. Other handles see its writes only after the commit, all at once. A
/// transaction takes no locks: if another commit conflicts, its commit raises Conflict, and the
/// transaction is over. As a context manager it commits at the end of the block, and rolls back if
/// the block raises.
#[pyclass(frozen, weakref, module = "siltstone")]
pub(crate) struct Transaction {
    held: Held<siltstone::Transaction>,
    committed: Mutex<Option<Py<Commit>>>,
    /// Keeps the database open: an unreferenced database is closed.
    _database: Py<Database>,
}

/// A position in a transaction, for `rollback_to`.
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
    /// The last sequence number of other writes that the transaction sees.
    #[getter]
    fn seq(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.held.get(py)?.seq().get())
    }

    /// The isolation level: "serializable" or "snapshot".
    #[getter]
    fn isolation(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(name(self.held.get(py)?.isolation()))
    }

    /// The Commit, after a commit with at least one write; otherwise None.
    #[getter]
    fn committed(&self, py: Python<'_>) -> Option<Py<Commit>> {
        self.committed.lock().as_ref().map(|commit| commit.clone_ref(py))
    }

    /// Sets `key` to `value`.
    ///
    /// :param ttl: time to live, counted from now; the key expires after it.
    /// :param expire_at: an aware datetime, instead of `ttl`: the key expires at this time. A time
    ///     in the past hides the previous value.
    /// :raises Invalid: if the key is empty, or either is too long, or `ttl` is not positive and
    ///     finite.
    /// :raises Closed: if the transaction is over.
    #[pyo3(signature = (key, value, *, ttl=None, expire_at=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: BytesArg<'_>,
        value: BytesArg<'_>,
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (engine, life) = (self.held.get(py)?, LifetimeArguments::of(ttl, expire_at)?);
        let expires_at = life.end_in(engine).raise(py)?;
        engine.put(key.as_ref(), value.as_ref(), expires_at).raise(py)
    }

    /// Adds a merge operand to `key`.
    ///
    /// :param ttl: as for `put`.
    /// :param expire_at: as for `put`.
    /// :raises Invalid: if the database was opened without a merge operator, or the operator does
    ///     not accept the operand; as for `put`.
    #[pyo3(signature = (key, operand, *, ttl=None, expire_at=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: BytesArg<'_>,
        operand: BytesArg<'_>,
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (engine, life) = (self.held.get(py)?, LifetimeArguments::of(ttl, expire_at)?);
        let expires_at = life.end_in(engine).raise(py)?;
        engine.merge(key.as_ref(), operand.as_ref(), expires_at).raise(py)
    }

    /// Deletes `key`. Deleting an absent key succeeds.
    fn delete(&self, py: Python<'_>, key: BytesArg<'_>) -> PyResult<()> {
        self.held.get(py)?.delete(key.as_ref()).raise(py)
    }

    /// Deletes all keys of `[start, end)`, or all keys with `prefix`. Later writes of the
    /// transaction are not affected. Without `start` the range begins at the first key. Without
    /// `end` it ends after the last key, and counts as two operations.
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
        deletion.write_in(self.held.get(py)?).raise(py)
    }

    fn __setitem__(&self, py: Python<'_>, key: BytesArg<'_>, value: BytesArg<'_>) -> PyResult<()> {
        self.put(py, key, value, None, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: BytesArg<'_>) -> PyResult<()> {
        self.delete(py, key)
    }

    /// Returns a savepoint for `rollback_to`.
    ///
    /// :raises Closed: if the transaction is over.
    fn savepoint(&self, py: Python<'_>) -> PyResult<Savepoint> {
        self.held.get(py)?.savepoint().raise(py).map(Savepoint)
    }

    /// Discards all writes since the savepoint. Reads since the savepoint still count for
    /// conflicts, because later writes may depend on them. The savepoint can be used again; later
    /// savepoints are discarded.
    ///
    /// :raises Invalid: if the savepoint belongs to another transaction, or was discarded.
    fn rollback_to(&self, py: Python<'_>, savepoint: &Savepoint) -> PyResult<()> {
        self.held.get(py)?.rollback_to(&savepoint.0).raise(py)
    }

    /// Commits all writes: they become visible at once, and durable like those of a put. Returns
    /// None if the transaction has no writes. The call waits only while `max_memtable_bytes` are
    /// unflushed. An interrupted wait commits nothing and leaves the transaction open.
    ///
    /// :raises Conflict: if another commit changed data that the transaction depends on;
    ///     `context["key"]` names the key (escaped as in a bytes literal). The transaction is over:
    ///     run it again, or use `siltstone.retry`.
    /// :raises Invalid: if the writes are larger than `max_batch_bytes`.
    /// :raises Closed: if the transaction is over, or the database was closed.
    /// :raises Fenced, Timeout, Unavailable: see `siltstone.exceptions`.
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

    /// Discards all writes and ends the transaction. A second call, or a call after the commit,
    /// has no effect.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.held.get(py)?.rollback();
        Ok(())
    }

    /// As `rollback`.
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
        // A forked child has no part in the transaction; its exception, which may be SystemExit,
        // goes on.
        if self.held.is_stale() && !kind.is_none() {
            return Ok(());
        }
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
    /// Begins a transaction. Use it in a `with` block, which commits at the end.
    ///
    /// :param isolation: "serializable": the commit raises Conflict if another commit changed any
    ///     data that the transaction has read, including keys that it looked for and did not find.
    ///     "snapshot": the commit raises Conflict if another commit wrote a key that the
    ///     transaction writes. Two transactions may then each change data that the other has read
    ///     (write skew).
    /// :raises Invalid: if `isolation` has another value.
    /// :raises Closed, Fenced: if the handle can no longer be used.
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
