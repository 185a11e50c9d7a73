//! Figures of a handle.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use siltstone::Stats;

/// The figures as a `siltstone.Stats`: whole numbers, but for seconds.
pub(crate) fn stats<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.import(py, "siltstone.stats", "Stats")?;
    let named = PyDict::new(py);
    for ((name, figure), info) in stats.to_pairs().into_iter().zip(Stats::TABLE) {
        if info.unit == "seconds" {
            named.set_item(name, figure)?;
        } else {
            named.set_item(name, figure as u64)?;
        }
    }
    class.call((), Some(&named))
}

/// The figures by name, as floats.
pub(crate) fn metrics<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyAny>> {
    let named = PyDict::new(py);
    for (name, figure) in stats.to_pairs() {
        named.set_item(name, figure)?;
    }
    Ok(named.into_any())
}

/// One tuple a figure: name, group, unit, meaning. Each is a field of `siltstone.Stats`.
#[pyfunction]
pub(crate) fn stat_table() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    Stats::TABLE.iter().map(|info| (info.name, info.group, info.unit, info.doc)).collect()
}
