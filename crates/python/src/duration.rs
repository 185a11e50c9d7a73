//! Durations and sizes as arguments: a `timedelta`, a number of seconds or of bytes, or text with a
//! unit, in the syntax of the options.

use crate::error;
use crate::range::count;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyString};
use std::time::Duration;

/// The seconds of a number or a `timedelta`; `None` for other types.
pub(crate) fn seconds(object: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if object.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    if let Ok(delta) = object.cast::<PyDelta>() {
        return delta.call_method0("total_seconds")?.extract().map(Some);
    }
    Ok(object.extract::<f64>().ok())
}

/// The argument `name` as seconds.
///
/// # Errors
/// TypeError if the object is not a duration; Invalid if text is not a duration.
pub(crate) fn seconds_of(object: &Bound<'_, PyAny>, name: &str) -> PyResult<f64> {
    if let Ok(text) = object.cast::<PyString>() {
        let text = text.to_cow()?;
        return siltstone::seconds_of_text(&text).ok_or_else(|| {
            let text = format!(
                "{name} is not a duration: '{text}'; give seconds, or text such as '2h', '20ms' or \
                 '7days 30min'"
            );
            error::invalid(object.py(), text)
        });
    }
    match seconds(object)? {
        Some(seconds) => Ok(seconds),
        None => {
            let given = object.get_type().name()?;
            Err(PyTypeError::new_err(format!(
                "{name} is a timedelta, a number of seconds, or text such as '2h', not {given}"
            )))
        }
    }
}

/// The argument `name` as a duration.
///
/// # Errors
/// TypeError if the object is not a duration; Invalid if it is negative, infinite or NaN, and if
/// text is not a duration.
pub(crate) fn duration(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Duration> {
    let seconds = seconds_of(object, name)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        let bounds =
            if seconds < 0.0 { "0 seconds or more" } else { "a number of seconds below 2^64" };
        error::invalid(object.py(), format!("{name} must be {bounds}, not {seconds}"))
    })
}

/// Converts a duration in any accepted form to seconds, for the Python modules.
#[pyfunction]
fn seconds_of_duration(object: &Bound<'_, PyAny>, name: &str) -> PyResult<f64> {
    duration(object, name).map(|duration| duration.as_secs_f64())
}

/// The argument `name` as a size: a number of bytes, or text with a unit.
///
/// # Errors
/// TypeError if the object is neither an integer nor text; Invalid below `min`, and if text is not
/// a size.
pub(crate) fn size(object: &Bound<'_, PyAny>, name: &str, min: u64) -> PyResult<u64> {
    let Ok(text) = object.cast::<PyString>() else {
        return count(object, name, min).map_err(|error| {
            let py = object.py();
            match (error.is_instance_of::<PyTypeError>(py), object.get_type().name()) {
                (true, Ok(given)) => PyTypeError::new_err(format!(
                    "{name} must be a number of bytes, or text such as '1GiB', not {given}"
                )),
                _ => error,
            }
        });
    };
    let bytes = bytes_of_text(object.py(), &text.to_cow()?, name)?;
    if bytes >= min {
        return Ok(bytes);
    }
    let text = format!("{name} must be {min} or more and under 2^64, not {bytes}");
    Err(error::invalid(object.py(), text))
}

/// Converts a size as text (`512MiB`, `4096`) to bytes, for the Python modules.
#[pyfunction]
fn bytes_of_text(py: Python<'_>, text: &str, name: &str) -> PyResult<u64> {
    siltstone::bytes_of_text(text).ok_or_else(|| {
        let text = format!("{name} is not a size: '{text}'; give bytes, or text such as '512MiB'");
        error::invalid(py, text)
    })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(bytes_of_text, module)?)?;
    module.add_function(wrap_pyfunction!(seconds_of_duration, module)?)
}
