//! The versions of a database, and restoring an earlier one.

use crate::admin::apps;
use crate::checkpoint::{name, place};
use crate::options::options;
use crate::wait::wait;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::{UnixMillis, admin};

/// Lists all retained versions: number, Unix time in milliseconds, last sequence number.
#[pyfunction]
fn versions(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<Vec<(u64, u64, u64)>> {
    let (process, env, deadline) = place(py, url, store_options)?;
    let found = wait(py, process, admin::versions(&env, deadline))?;
    Ok(found.iter().map(|one| (one.id.get(), one.at.0, one.seq.get())).collect())
}

/// Calls `told` with each retained version, oldest first: number, Unix time in milliseconds, tables
/// (entries and bytes by name), ingested applications, first id of the log. With `since`, a Unix
/// time in milliseconds, begins at the last version before that time.
#[pyfunction]
fn version_states(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    since: Option<u64>,
    told: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (process, env, deadline) = place(py, url, store_options)?;
    let found = admin::version_manifests(&env, since.map(UnixMillis), deadline);
    // One by one: the dicts of all versions would take much more memory than their manifests.
    for (version, manifest) in wait(py, process, found)? {
        let tables = PyDict::new(py);
        for table in manifest.tables() {
            tables.set_item(table.name().to_string(), (table.entries, table.object_bytes))?;
        }
        let (apps, begin) = (apps(py, &manifest)?, manifest.replay_from.get());
        told.call1((version.id.get(), version.at.0, tables, apps, begin))?;
    }
    Ok(())
}

/// The last sequence number at a Unix time in milliseconds.
#[pyfunction]
fn seq_at(
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
fn restore(
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

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(restore, module)?)?;
    module.add_function(wrap_pyfunction!(seq_at, module)?)?;
    module.add_function(wrap_pyfunction!(version_states, module)?)?;
    module.add_function(wrap_pyfunction!(versions, module)?)
}
