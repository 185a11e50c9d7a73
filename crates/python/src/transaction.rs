//! `Transaction`: reads at one moment and writes of one batch, committed together or not at all.

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

/// A transaction, from `Database.transaction`. Its reads see the database as it was when it
/// began, under its own writes; nobody else sees these until it commits, all at once. It waits for
/// nobody: where another commit came between it raises Conflict, and is over. As a context manager
/// it commits when the block ends well, and rolls back on an exception.
#[pyclass(frozen, weakref, module = "siltstone")]
pub(crate) struct Transaction {
    held: Held<siltstone::Transaction>,
    committed: Mutex<Option<Py<Commit>>>,
    /// What would be closed if nobody held it.
    _database: Py<Database>,
}

/// A moment of a transaction that `rollback_to` goes back to.
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

/// One try of a commit; gives the interpreter lock up where it may take long.
///
/// # Errors
/// Conflict, and what a write raises.
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
    /// The last sequence number of others that it sees.
    #[getter]
    fn seq(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.held.get(py)?.seq().get())
    }

    /// What its commit depends on: "serializable" or "snapshot".
    #[getter]
    fn isolation(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(name(self.held.get(py)?.isolation()))
    }

    /// The Commit, once it was committed and had written something.
    #[getter]
    fn committed(&self, py: Python<'_>) -> Option<Py<Commit>> {
        self.committed.lock().as_ref().map(|commit| commit.clone_ref(py))
    }

    /// Sets `key` to `value`.
    ///
    /// :param ttl: the key is gone after this long, counted from now.
    /// :param expire_at: the key is gone from then on: an aware datetime, in place of `ttl`.
    ///     One that has passed hides what was there.
    /// :raises Invalid: an empty or oversized key or value, a ttl that is not above 0, or endless.
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
        let (engine, life) = (self.held.get(py)?, LifetimeArguments::of(ttl, expire_at)?);
        let expires_at = life.end_in(engine).raise(py)?;
        engine.put(key.as_ref(), value.as_ref(), expires_at).raise(py)
    }

    /// Adds a merge operand to `key`.
    ///
    /// :param ttl: as for `put`.
    /// :param expire_at: as for `put`.
    /// :raises Invalid: no merge operator was brought; an operand that it does not take; as `put`.
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

    /// Deletes `key`; that it was absent is no error.
    fn delete(&self, py: Python<'_>, key: BytesArg<'_>) -> PyResult<()> {
        self.held.get(py)?.delete(key.as_ref()).raise(py)
    }

    /// Deletes every key of `[start, end)`, or every key with `prefix`; what the transaction
    /// does after it stays. Without a start it begins with the first key, without an end it goes
    /// on to the last, and counts as two operations.
    ///
    /// :raises Invalid: no argument, `prefix` together with a bound; an empty or oversized bound or
    ///     prefix, a start that is not below the end.
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

    /// A moment that `rollback_to` can go back to.
    ///
    /// :raises Closed: the transaction is over.
    fn savepoint(&self, py: Python<'_>) -> PyResult<Savepoint> {
        self.held.get(py)?.savepoint().raise(py).map(Savepoint)
    }

    /// Forgets what was written since the savepoint. What was read since still counts: it may
    /// have decided what is written now. The savepoint stays, later ones go.
    ///
    /// :raises Invalid: a savepoint of another transaction, or one that went with an earlier one.
    fn rollback_to(&self, py: Python<'_>, savepoint: &Savepoint) -> PyResult<()> {
        self.held.get(py)?.rollback_to(&savepoint.0).raise(py)
    }

    /// Commits: everything that was written becomes visible at once, and durable as after a put.
    /// None where nothing was written. Waits only while `max_memtable_bytes` are unflushed; a wait
    /// that is interrupted has committed nothing, and leaves the transaction open.
    ///
    /// :raises Conflict: another commit changed what it depends on; `context["key"]` names the key
    ///     (escaped as in a bytes literal). The transaction is over: run it again, or have
    ///     `siltstone.retry` do it.
    /// :raises Invalid: more than `max_batch_bytes` were written.
    /// :raises Closed: the transaction is over, or the database was closed.
    /// :raises Fenced, Timeout, Unavailable: as their texts say.
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

    /// Forgets everything that was written, and ends the transaction. Doing it twice, or after a
    /// commit, changes nothing.
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

    /// Commits when the block ended well, rolls back otherwise.
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
        // Open after a commit that failed: nobody will try again.
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
    /// Begins a transaction: for a `with` block, which commits it when it ends well.
    ///
    /// :param isolation: "serializable": its commit is Conflict where anything that it has read was
    ///     changed meanwhile, what it looked for and did not find included. "snapshot": where a key
    ///     that it writes was written meanwhile; two transactions may each change what the other
    ///     one has read (write skew).
    /// :raises Invalid: another isolation.
    /// :raises Closed, Fenced: the handle is of no use any more.
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
