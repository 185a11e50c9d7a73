//! Deleting a database.

use crate::aio::pending::Pending;
use crate::checkpoint::place;
use crate::wait::wait;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// `siltstone.destroy`.
#[pyfunction]
pub(crate) fn destroy(
    py: Python<'_>,
    url: &str,
    soft: bool,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let (process, env, deadline) = place(py, url, store_options)?;
    wait(py, process, siltstone::destroy(&env, soft, deadline))
}

/// Begins `destroy`. It continues if the caller stops waiting.
#[pyfunction]
pub(crate) fn begin_destroy(
    py: Python<'_>,
    url: &str,
    soft: bool,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<Pending> {
    let (process, env, deadline) = place(py, url, store_options)?;
    let destroy = async move { siltstone::destroy(&env, soft, deadline).await };
    Ok(Pending::going_on(process, destroy, |py, ()| Ok(py.None())))
}
