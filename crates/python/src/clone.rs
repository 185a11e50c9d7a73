//! Clones.

use crate::aio::pending::Pending;
use crate::checkpoint::name;
use crate::open::{env, text_of};
use crate::options::options;
use crate::process::Process;
use crate::wait::wait;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::admin::{self, CloneParent};
use siltstone::{Env, Options};

/// Parents as Python gives them: pairs of a URL and a checkpoint.
type Parents<'py> = Vec<(String, Option<Bound<'py, PyAny>>)>;
/// The first key, and the one before which to stop.
type Range = (Option<Vec<u8>>, Option<Vec<u8>>);

/// What a clone is made with.
struct CloneArguments {
    process: &'static Process,
    place: Env,
    parents: Vec<CloneParent>,
    options: Options,
}

impl CloneArguments {
    fn new(
        py: Python<'_>,
        url: &str,
        parents: Parents<'_>,
        (start, end): Range,
        store_options: &Bound<'_, PyDict>,
    ) -> PyResult<CloneArguments> {
        let process = Process::current(py)?;
        let store_options = text_of(store_options)?;
        let place = env(py, process, url, &store_options)?;
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
        Ok(CloneArguments { process, place, parents: sources, options })
    }

    async fn make(self) -> siltstone::Result<()> {
        admin::clone(&self.place, &self.parents, &self.options).await
    }
}

/// Makes the database at `url` a clone of `parents`.
#[pyfunction]
pub(crate) fn clone(
    py: Python<'_>,
    url: &str,
    parents: Parents<'_>,
    range: Range,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let asked = CloneArguments::new(py, url, parents, range, store_options)?;
    wait(py, asked.process, asked.make())
}

/// `clone`, awaited.
#[pyfunction]
pub(crate) fn begin_clone(
    py: Python<'_>,
    url: &str,
    parents: Parents<'_>,
    range: Range,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<Pending> {
    let asked = CloneArguments::new(py, url, parents, range, store_options)?;
    let process = asked.process;
    Ok(Pending::running(process, asked.make(), |py, ()| Ok(py.None())))
}
