//! Clones.

use crate::checkpoint::name;
use crate::open::{env, text_of};
use crate::options::options;
use crate::process::Process;
use crate::wait::wait;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::admin::{self, CloneParent};

/// Makes the database at `url` a clone of each of `parents`: pairs of a URL and a checkpoint.
#[pyfunction]
pub(crate) fn clone(
    py: Python<'_>,
    url: &str,
    parents: Vec<(String, Option<Bound<'_, PyAny>>)>,
    range: (Option<Vec<u8>>, Option<Vec<u8>>),
    store_options: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let process = Process::current(py)?;
    let store_options = text_of(store_options)?;
    let place = env(py, process, url, &store_options)?;
    let (start, end) = range;
    let mut sources = Vec::with_capacity(parents.len());
    for (parent, checkpoint) in parents {
        sources.push(CloneParent {
            env: env(py, process, &parent, &store_options)?,
            checkpoint: checkpoint.as_ref().map(name).transpose()?,
            start: start.clone(),
            end: end.clone(),
        });
    }
    let options = options(&PyDict::new(py))?;
    wait(py, process, async move { admin::clone(&place, &sources, &options).await })
}
