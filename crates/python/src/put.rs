//! `put`, `merge`, `delete`, `delete_range` and the item operators: small writes, accepted with the
//! interpreter lock held.

use crate::bytes::BytesArg;
use crate::commit::Commit;
use crate::conditional::condition;
use crate::database::Database;
use crate::deletion::Deletion;
use crate::error::Raise;
use crate::expiry::LifetimeArguments;
use crate::wait::wait;
use pyo3::prelude::*;
use siltstone::Accept;

#[pymethods]
impl Database {
    /// Sets `key` to `value`. Visible to this handle at once, durable within `flush_interval`,
    /// or when somebody waits for the Commit. Waits only while `max_memtable_bytes` are unflushed.
    ///
    /// :param ttl: the key is gone after this long, rounded up to milliseconds.
    /// :param expire_at: the key is gone from then on: an aware datetime, in place of `ttl`.
    ///     One that has passed hides what was there.
    /// :param if_absent: only where the key is absent.
    /// :param if_value: only where the key has this value.
    /// :raises Conflict: it is not so; `context["key"]` names the key.
    /// :raises Invalid: an empty or oversized key or value, a ttl that is not above 0, or endless.
    /// :raises Closed, Fenced, Timeout, Unavailable: as their texts say.
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

    /// Deletes `key`; that it was absent is no error.
    ///
    /// :param if_value: only where the key has this value.
    /// :raises Conflict: it has not; `context["key"]` names the key.
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

    /// Adds a merge operand to `key`: reads fold it into the value by the merge operator that
    /// the database was opened with.
    ///
    /// :param ttl: after this long the operand is gone, and with it what it was added to.
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
    ) -> PyResult<Commit> {
        let life = LifetimeArguments::of(ttl, expire_at)?;
        self.accept(py, |database| {
            database.merge_until(key.as_ref(), operand.as_ref(), life.end(database)?)
        })
    }

    /// Deletes every key of `[start, end)`, or every key with `prefix`, by one entry, however
    /// many there are: what is written later stays. Without a start it begins with the first key,
    /// without an end it goes on to the last. Compactions leave tables that it covers unread.
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
    /// Makes the write until it is accepted; waits where the engine answers with pressure.
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
