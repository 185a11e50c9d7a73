//! Conversion of the arguments of a scan to a range.

use crate::bytes::BytesArg;
use crate::error;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use siltstone::ScanRange;

/// The half-open range `[start, end)`, or all keys with `prefix`.
///
/// # Errors
/// Invalid if a prefix is given together with a bound, or if a limit is not a count.
pub(crate) fn range(
    py: Python<'_>,
    start: Option<BytesArg<'_>>,
    end: Option<BytesArg<'_>>,
    prefix: Option<BytesArg<'_>>,
    reverse: bool,
    limit: Option<Bound<'_, PyAny>>,
) -> PyResult<ScanRange> {
    let range = match prefix {
        Some(_) if start.is_some() || end.is_some() => {
            return Err(error::invalid(py, "give either prefix, or start and end"));
        }
        Some(prefix) => ScanRange::prefix(prefix.as_ref()),
        None => ScanRange {
            start: start.map(|start| start.as_ref().to_vec()),
            end: end.map(|end| end.as_ref().to_vec()),
            ..ScanRange::default()
        },
    };
    let limit = limit.map(|limit| count(&limit, "limit", 0)).transpose()?;
    Ok(ScanRange { reverse, limit, ..range })
}

/// The argument `name` as a count.
///
/// # Errors
/// TypeError if it is not an integer; Invalid below `min`.
pub(crate) fn count(object: &Bound<'_, PyAny>, name: &str, min: u64) -> PyResult<u64> {
    let number = match object.cast::<PyInt>() {
        Ok(number) => number.as_any().clone(),
        Err(_) => object.call_method0(intern!(object.py(), "__index__")).map_err(|_| {
            pyo3::exceptions::PyTypeError::new_err(format!("{name} must be an integer"))
        })?,
    };
    match number.extract::<u64>() {
        Ok(number) if number >= min => Ok(number),
        _ => {
            let text = format!("{name} must be {min} or more and under 2^64, not {number}");
            Err(error::invalid(object.py(), text))
        }
    }
}
