//! When what is written ends: after a time to live, or at a moment.

use crate::batch::{ending, time_to_live};
use crate::error::{self, Raise};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDateTime;
use siltstone::{Result, UnixMillis};
use std::time::Duration;

/// How long something is to live, by the arguments `ttl` and `expire_at`.
#[derive(Clone, Copy)]
pub(crate) enum LifetimeArguments {
    Endless,
    For(Duration),
    Until(UnixMillis),
}

impl LifetimeArguments {
    /// What the two arguments say.
    ///
    /// # Errors
    /// Invalid for both, and for a time to live that is not above zero; TypeError for what is no
    /// duration, and for what is no moment, as a datetime without a time zone.
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

    /// The end of what `database` is given now.
    ///
    /// # Errors
    /// Invalid for an end that is too far.
    pub(crate) fn end(self, database: &siltstone::Database) -> Result<Option<UnixMillis>> {
        self.end_by(|life| database.expiry(Some(life)))
    }

    /// The end of what `transaction` is given now.
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

/// When something expires that is written now, outside of any database.
///
/// # Errors
/// As [`LifetimeArguments::of`]; Invalid for an end that is too far.
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

/// 1970 in UTC, and a millisecond, as Python has them.
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

/// The moment that an aware datetime is, rounded up to milliseconds: nothing ends before its time.
fn moment(at: &Bound<'_, PyAny>) -> PyResult<UnixMillis> {
    let py = at.py();
    if at.cast::<PyDateTime>().is_err() {
        let given = at.get_type().name()?;
        let text = format!("expire_at is an aware datetime, not {given}; a duration is a ttl");
        return Err(PyTypeError::new_err(text));
    }
    if at.call_method0("utcoffset")?.is_none() {
        return Err(PyTypeError::new_err(
            "expire_at has no time zone, so nobody knows which moment it is: give it one, as in \
             datetime.now(timezone.utc) + timedelta(hours=1); .astimezone() takes it as local time",
        ));
    }
    let (epoch, milli) = scale(py)?;
    // Floors, so the negated difference is rounded up: in integers, a float would be off by some.
    let before = epoch.bind(py).sub(at)?.floor_div(milli.bind(py))?.extract::<i64>()?;
    // What ended before 1970 has ended.
    Ok(UnixMillis(u64::try_from(-before).unwrap_or_default().max(1)))
}
