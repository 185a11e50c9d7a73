//! Durations as arguments: `timedelta`, or seconds as a number.

use crate::error;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta};
use std::time::Duration;

/// Seconds of a number or a `timedelta`; `None` for anything else.
pub(crate) fn seconds(object: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if object.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    if let Ok(delta) = object.cast::<PyDelta>() {
        return delta.call_method0("total_seconds")?.extract().map(Some);
    }
    Ok(object.extract::<f64>().ok())
}

/// The duration that the argument `name` says.
///
/// # Errors
/// TypeError for what is no duration; Invalid for a negative, endless or unordered one.
pub(crate) fn duration(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Duration> {
    let Some(seconds) = seconds(object)? else {
        let given = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "{name} is a timedelta or a number of seconds, not {given}"
        )));
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        error::invalid(object.py(), format!("{name} must be 0 seconds or more, not {seconds}"))
    })
}
