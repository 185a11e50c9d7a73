//! `put` and `delete` with a condition, and `pop`: one key, read and written atomically.

use crate::bytes::{BytesArg, reserve, to_python};
use crate::commit::Commit;
use crate::database::Database;
use crate::error::{self, Raise};
use crate::get::absent;
use crate::wait::wait;
use pyo3::prelude::*;
use siltstone::{Answer, Condition};

/// The result of `pop` for an absent key.
pub(crate) enum PopDefault<'py> {
    /// Raise KeyError.
    Raises,
    Gives(Bound<'py, PyAny>),
}

impl<'py> FromPyObject<'_, 'py> for PopDefault<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(PopDefault::Gives(object.to_owned()))
    }
}

/// The argument `if_value`: what a key must have. `None` of Python, which `get` returns for an
/// absent key, means that it must be absent; without the argument there is no condition.
pub(crate) enum IfValue<'a> {
    Anything,
    Absent,
    Is(BytesArg<'a>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for IfValue<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(IfValue::Absent);
        }
        // The default, as Python code passes it on.
        if object.is(object.py().Ellipsis()) {
            return Ok(IfValue::Anything);
        }
        object.extract().map(IfValue::Is)
    }
}

/// The condition given by the arguments; `None` if there is none.
///
/// # Errors
/// Invalid if two conditions are given.
pub(crate) fn condition(
    py: Python<'_>,
    if_absent: bool,
    if_value: IfValue<'_>,
) -> PyResult<Option<Condition>> {
    match (if_absent, if_value) {
        (true, IfValue::Is(_)) => {
            Err(error::invalid(py, "a key is absent or has a value: if_absent or if_value"))
        }
        (true, _) | (false, IfValue::Absent) => Ok(Some(Condition::Absent)),
        (false, IfValue::Is(value)) => Ok(Some(Condition::Value(value.as_ref().to_vec()))),
        (false, IfValue::Anything) => Ok(None),
    }
}

impl Database {
    /// Makes a conditional write; waits if the engine has to read the key from the store.
    pub(crate) fn on_condition(
        &self,
        py: Python<'_>,
        write: impl FnOnce(&siltstone::Database) -> siltstone::Result<Answer<siltstone::Commit>>,
    ) -> PyResult<Commit> {
        let held = self.held();
        let commit = match write(held.get(py)?).raise(py)? {
            Answer::Ready(commit) => commit,
            Answer::Pending(commit) => wait(py, held.process(), commit)?,
        };
        Ok(Commit::new(held.process(), commit))
    }
}

#[pymethods]
impl Database {
    /// Deletes `key` and returns its value. If several callers pop the key concurrently, one of
    /// them gets the value.
    ///
    /// :param default: result for an absent key; without it an absent key raises KeyError.
    /// :raises Closed, Fenced, Timeout, Unavailable: see `siltstone.exceptions`.
    #[pyo3(
        signature = (key, default=PopDefault::Raises),
        text_signature = "($self, key, default=...)"
    )]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: BytesArg<'_>,
        default: PopDefault<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let held = self.held();
        let popped = match held.get(py)?.pop(key.as_ref(), reserve).raise(py)? {
            Answer::Ready(popped) => popped,
            Answer::Pending(popped) => wait(py, held.process(), popped)?,
        };
        match (popped, default) {
            (Some((value, _)), _) => Ok(to_python(py, &value)?.into_any()),
            (None, PopDefault::Gives(default)) => Ok(default),
            (None, PopDefault::Raises) => Err(absent(py, key.as_ref())),
        }
    }
}
