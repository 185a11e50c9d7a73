//! Expiry of written entries: after a time to live, or at a point in time.

use crate::batch::{ending, time_to_live};
use crate::error::{self, Raise};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDateTime;
use siltstone::{Result, UnixMillis};
use std::time::Duration;

/// The lifetime of an entry, from the arguments `ttl` and `expire_at`.
#[derive(Clone, Copy)]
pub(crate) enum LifetimeArguments {
    Endless,
    For(Duration),
    Until(UnixMillis),
}

impl LifetimeArguments {
    /// Converts the two arguments.
    ///
    /// # Errors
    /// Invalid if both are given, or if the time to live is not above zero; TypeError if `ttl` is
    /// not a duration, or if `expire_at` is not an aware datetime.
    pub(crate) fn of(
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<LifetimeArguments> {
        match expire_at {
            None => {
                Ok(time_to_live(ttl)?.map_or(LifetimeArguments::Endless, LifetimeArguments::For))
            }
            Some(at) if ttl.is_some() => {
                Err(error::invalid(at.py(), "give either ttl or expire_at: one end, not two"))
            }
            Some(at) => moment(&at).map(LifetimeArguments::Until),
        }
    }

    /// The expiry of an entry that `database` writes now.
    ///
    /// # Errors
    /// Invalid if the expiry is too far in the future.
    pub(crate) fn end(self, database: &siltstone::Database) -> Result<Option<UnixMillis>> {
        self.end_by(|life| database.expiry(Some(life)))
    }

    /// The expiry of an entry that `transaction` writes now.
    ///
    /// # Errors
    /// As [`LifetimeArguments::end`].
    pub(crate) fn end_in(self, transaction: &siltstone::Transaction) -> Result<Option<UnixMillis>> {
        self.end_by(|life| transaction.expiry(Some(life)))
    }

    fn end_by(
        self,
        expiry: impl FnOnce(Duration) -> Result<Option<UnixMillis>>,
    ) -> Result<Option<UnixMillis>> {
        match self {
            LifetimeArguments::Endless => Ok(None),
            LifetimeArguments::For(life) => expiry(life),
            LifetimeArguments::Until(at) => Ok(Some(at)),
        }
    }
}

/// The expiry of an entry that is written now, outside of any database.
///
/// # Errors
/// As [`LifetimeArguments::of`]; Invalid if the expiry is too far in the future.
pub(crate) fn expires_at(
    py: Python<'_>,
    ttl: Option<Bound<'_, PyAny>>,
    expire_at: Option<Bound<'_, PyAny>>,
) -> PyResult<Option<UnixMillis>> {
    match LifetimeArguments::of(ttl, expire_at)? {
        LifetimeArguments::Endless => Ok(None),
        LifetimeArguments::For(life) => ending(life).map(Some).raise(py),
        LifetimeArguments::Until(at) => Ok(Some(at)),
    }
}

/// The Unix epoch in UTC, and one millisecond, as Python objects.
fn scale(py: Python<'_>) -> PyResult<&(Py<PyAny>, Py<PyAny>)> {
    static SCALE: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();
    SCALE.get_or_try_init(py, || {
        let module = py.import("datetime")?;
        let utc = module.getattr("timezone")?.getattr("utc")?;
        let epoch = module.getattr("datetime")?.call_method1("fromtimestamp", (0, utc))?;
        let milli = module.getattr("timedelta")?.call1((0, 0, 0, 1))?;
        Ok((epoch.unbind(), milli.unbind()))
    })
}

/// An aware datetime as Unix time, rounded up to milliseconds: an entry must not expire early.
fn moment(at: &Bound<'_, PyAny>) -> PyResult<UnixMillis> {
    let py = at.py();
    if at.cast::<PyDateTime>().is_err() {
        let given = at.get_type().name()?;
        let text = format!("expire_at is an aware datetime, not {given}; a duration is a ttl");
        return Err(PyTypeError::new_err(text));
    }
    if at.call_method0("utcoffset")?.is_none() {
        return Err(PyTypeError::new_err(
            "expire_at has no time zone, so its moment is unknown: give it a time zone, as in \
             datetime.now(timezone.utc) + timedelta(hours=1); .astimezone() takes it as local time",
        ));
    }
    let (epoch, milli) = scale(py)?;
    // Python floors the quotient, so negating the difference rounds up. The arithmetic uses
    // integers, because a float would be imprecise.
    let before = epoch.bind(py).sub(at)?.floor_div(milli.bind(py))?.extract::<i64>()?;
    // A datetime before 1970 has passed.
    Ok(UnixMillis(u64::try_from(-before).unwrap_or_default().max(1)))
}
