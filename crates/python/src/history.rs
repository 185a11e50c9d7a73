//! The versions of a database, and restoring an earlier one.

use crate::checkpoint::{name, place};
use crate::options::options;
use crate::wait::wait;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::{UnixMillis, admin};

/// Lists all retained versions: number, Unix time in milliseconds, last sequence number.
#[pyfunction]
pub(crate) fn versions(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<Vec<(u64, u64, u64)>> {
    let (process, env, deadline) = place(py, url, store_options)?;
    let found = wait(py, process, admin::versions(&env, deadline))?;
    Ok(found.iter().map(|one| (one.id.get(), one.at.0, one.seq.get())).collect())
}

/// The last sequence number at a Unix time in milliseconds.
#[pyfunction]
pub(crate) fn seq_at(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    millis: u64,
) -> PyResult<u64> {
    let (process, env, deadline) = place(py, url, store_options)?;
    Ok(wait(py, process, admin::seq_at(&env, UnixMillis(millis), deadline))?.get())
}

/// Makes the state of a checkpoint the current state.
#[pyfunction]
pub(crate) fn restore(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    which: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let which = name(which)?;
    let (process, env, _) = place(py, url, store_options)?;
    let options = options(&PyDict::new(py))?;
    wait(py, process, admin::restore(&env, &which, &options))
}
