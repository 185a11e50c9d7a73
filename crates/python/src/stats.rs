//! Figures of a handle.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

/// The figures as a `siltstone.Stats`, whole numbers.
pub(crate) fn stats<'py>(
    py: Python<'py>,
    pairs: &[(&'static str, f64)],
) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.import(py, "siltstone.stats", "Stats")?;
    let named = PyDict::new(py);
    for (name, figure) in pairs {
        named.set_item(name, *figure as u64)?;
    }
    class.call((), Some(&named))
}

/// The figures by name, as floats.
pub(crate) fn metrics<'py>(
    py: Python<'py>,
    pairs: &[(&'static str, f64)],
) -> PyResult<Bound<'py, PyAny>> {
    let named = PyDict::new(py);
    for (name, figure) in pairs {
        named.set_item(name, figure)?;
    }
    Ok(named.into_any())
}

/// The names of all figures. Each is a field of `siltstone.Stats`.
#[pyfunction]
pub(crate) fn stat_names() -> Vec<&'static str> {
    siltstone::Stats::default().to_pairs().into_iter().map(|(name, _)| name).collect()
}
