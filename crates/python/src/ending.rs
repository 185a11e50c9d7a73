//! The end of a database.

use crate::aio::pending::Pending;
use crate::open::{env, text_of};
use crate::options::options;
use crate::process::Process;
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
    let process = Process::current(py)?;
    let env = env(py, process, url, &text_of(store_options)?)?;
    let deadline = options(&PyDict::new(py))?.deadline;
    wait(py, process, siltstone::destroy(&env, soft, deadline))
}

/// The same, begun. It goes on where nobody waits for it any more.
#[pyfunction]
pub(crate) fn begin_destroy(
    py: Python<'_>,
    url: &str,
    soft: bool,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<Pending> {
    let process = Process::current(py)?;
    let env = env(py, process, url, &text_of(store_options)?)?;
    let deadline = options(&PyDict::new(py))?.deadline;
    let destroy = async move { siltstone::destroy(&env, soft, deadline).await };
    Ok(Pending::running(process, destroy, |py, ()| Ok(py.None())))
}
