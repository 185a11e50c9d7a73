//! `put`, `merge`, `delete`, `delete_range` and the item operators: small writes, accepted while
//! the interpreter lock is held.

use crate::bytes::BytesArg;
use crate::commit::Commit;
use crate::conditional::{IfValue, condition};
use crate::database::Database;
use crate::deletion::Deletion;
use crate::error::Raise;
use crate::expiry::LifetimeArguments;
use crate::wait::wait;
use pyo3::prelude::*;
use siltstone::Accept;

#[pymethods]
impl Database {
    /// Sets `key` to `value`. The write is visible to this handle at once. It is durable within
    /// `flush_interval`, or as soon as a caller waits for the Commit; with `writes.wal_enabled` off
    /// once its memtable is flushed. The call waits only while `max_memtable_bytes` are unflushed.
    ///
    /// :param ttl: time to live; the key expires after it. Rounded up to milliseconds.
    /// :param expire_at: an aware datetime, instead of `ttl`: the key expires at this time. A time
    ///     in the past hides the previous value.
    /// :param if_absent: write only if the key is absent.
    /// :param if_value: write only if the key has this value; None, as `get` returns it, means
    ///     that it must be absent.
    /// :raises Conflict: if the condition does not hold; `context["key"]` names the key.
    /// :raises Invalid: if the key is empty, or either is too long, or `ttl` is not positive and
    ///     finite.
    /// :raises Closed, Fenced, Timeout, Unavailable: see `siltstone.exceptions`.
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python method")]
    #[pyo3(signature = (
        key, value, *, ttl=None, expire_at=None, if_absent=false, if_value=IfValue::Anything
    ))]
    fn put(
        &self,
        py: Python<'_>,
        key: BytesArg<'_>,
        value: BytesArg<'_>,
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
        if_absent: bool,
        if_value: IfValue<'_>,
    ) -> PyResult<Commit> {
        let life = LifetimeArguments::of(ttl, expire_at)?;
        if let Some(condition) = condition(py, if_absent, if_value)? {
            return self.on_condition(py, |database| {
                database.put_if(key.as_ref(), value.as_ref(), life.end(database)?, condition)
            });
        }
        self.accept(py, |database| {
            database.put_until(key.as_ref(), value.as_ref(), life.end(database)?)
        })
    }

    /// Deletes `key`. Deleting an absent key succeeds.
    ///
    /// :param if_value: delete only if the key has this value; None means that it must be absent.
    /// :raises Conflict: if the condition does not hold; `context["key"]` names the key.
    #[pyo3(signature = (key, *, if_value=IfValue::Anything))]
    fn delete(&self, py: Python<'_>, key: BytesArg<'_>, if_value: IfValue<'_>) -> PyResult<Commit> {
        if let Some(condition) = condition(py, false, if_value)? {
            return self.on_condition(py, |database| database.delete_if(key.as_ref(), condition));
        }
        self.accept(py, |database| database.delete(key.as_ref()))
    }

    /// Adds a merge operand to `key`. Reads fold it into the value with the merge operator that
    /// the database was opened with.
    ///
    /// :param ttl: time to live. After it the operand expires, together with the value that it was
    ///     added to.
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
    ) -> PyResult<Commit> {
        let life = LifetimeArguments::of(ttl, expire_at)?;
        self.accept(py, |database| {
            database.merge_until(key.as_ref(), operand.as_ref(), life.end(database)?)
        })
    }

    /// Deletes all keys of `[start, end)`, or all keys with `prefix`, with one entry,
    /// independent of their number. Later writes are not affected. Without `start` the range begins
    /// at the first key; without `end` it ends after the last. Compactions do not read tables that
    /// the range covers completely.
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
