//! `put`, `merge`, `delete`, `delete_range` and the item operators: small writes, accepted while
//! the interpreter lock is held.

use crate::bytes::BytesArg;
use crate::commit::Commit;
use crate::conditional::condition;
use crate::database::Database;
use crate::deletion::Deletion;
use crate::error::Raise;
use crate::expiry::Life;
use crate::wait::wait;
use pyo3::prelude::*;
use siltstone::Accept;

#[pymethods]
impl Database {
    /// Set `key` to `value`. The write is visible to this handle at once, and durable within
    /// `flush_interval` or when a caller waits for the Commit. Waits only while
    /// `max_memtable_bytes` are unflushed.
    ///
    /// :param ttl: time until the key expires, rounded up to milliseconds.
    /// :param expire_at: aware datetime at which the key expires, instead of `ttl`. A datetime in
    ///     the past hides the previous value.
    /// :param if_absent: write only if the key is absent.
    /// :param if_value: write only if the key has this value.
    /// :raises Conflict: the condition does not hold; `context["key"]` is the key.
    /// :raises Invalid: the key or the value is empty or oversized, or `ttl` is not positive and
    ///     finite.
    /// :raises Closed, Fenced: the handle is closed, or another writer has taken over.
    /// :raises Timeout, Unavailable: the store did not answer in time or cannot be reached.
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python method")]
    #[pyo3(signature = (key, value, *, ttl=None, expire_at=None, if_absent=false, if_value=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: BytesArg<'_>,
        value: BytesArg<'_>,
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
        if_absent: bool,
        if_value: Option<BytesArg<'_>>,
    ) -> PyResult<Commit> {
        let life = Life::of(ttl, expire_at)?;
        if let Some(condition) = condition(py, if_absent, if_value)? {
            return self.on_condition(py, |database| {
                database.put_if(key.as_ref(), value.as_ref(), life.end(database)?, condition)
            });
        }
        self.accept(py, |database| {
            database.put_until(key.as_ref(), value.as_ref(), life.end(database)?)
        })
    }

    /// Delete `key`. Deleting an absent key is not an error.
    ///
    /// :param if_value: delete only if the key has this value.
    /// :raises Conflict: the key has another value or is absent; `context["key"]` is the key.
    #[pyo3(signature = (key, *, if_value=None))]
    fn delete(
        &self,
        py: Python<'_>,
        key: BytesArg<'_>,
        if_value: Option<BytesArg<'_>>,
    ) -> PyResult<Commit> {
        if let Some(condition) = condition(py, false, if_value)? {
            return self.on_condition(py, |database| database.delete_if(key.as_ref(), condition));
        }
        self.accept(py, |database| database.delete(key.as_ref()))
    }

    /// Add a merge operand to `key`. Reads fold the operands into the value with the merge operator
    /// that the database was opened with.
    ///
    /// :param ttl: time until the operand expires, together with the value that it was added to.
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
    ) -> PyResult<Commit> {
        let life = Life::of(ttl, expire_at)?;
        self.accept(py, |database| {
            database.merge_until(key.as_ref(), operand.as_ref(), life.end(database)?)
        })
    }

    /// Delete every key in `[start, end)`, or every key with `prefix`, with a single entry,
    /// independent of the number of keys. Later writes are not affected. Without `start` the range
    /// begins at the first key; without `end` it extends to the last key. Compactions drop tables
    /// that the deletion covers without reading them.
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
    ) -> PyResult<Commit> {
        let deletion = Deletion::of(py, start, end, prefix)?;
        self.accept(py, |database| deletion.write(database))
    }

    fn __setitem__(&self, py: Python<'_>, key: BytesArg<'_>, value: BytesArg<'_>) -> PyResult<()> {
        self.accept(py, |database| database.put(key.as_ref(), value.as_ref(), None)).map(drop)
    }

    fn __delitem__(&self, py: Python<'_>, key: BytesArg<'_>) -> PyResult<()> {
        self.accept(py, |database| database.delete(key.as_ref())).map(drop)
    }
}

impl Database {
    /// Repeats the write until the engine accepts it; waits while the engine reports pressure.
    pub(crate) fn accept(
        &self,
        py: Python<'_>,
        write: impl Fn(&siltstone::Database) -> siltstone::Result<Accept>,
    ) -> PyResult<Commit> {
        let held = self.held();
        let engine = held.get(py)?;
        loop {
            match write(engine).raise(py)? {
                Accept::Accepted(commit) => return Ok(Commit::new(held.process(), commit)),
                Accept::Pressure(stall) => wait(py, held.process(), stall)?,
            }
        }
    }
}
