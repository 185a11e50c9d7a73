//! Clones.

use crate::aio::pending::Pending;
use crate::argument::{optional_bytes, text};
use crate::checkpoint::name;
use crate::error::Raise;
use crate::open::{env, shown, text_of};
use crate::options::options;
use crate::process::Process;
use crate::wait::wait;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::admin::{self, CloneParent};
use siltstone::store::url;
use siltstone::{Env, Options};

/// A parent in Python's form: URL, checkpoint, and the range of keys to take over.
type Parent<'py> =
    (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, Bound<'py, PyAny>, Bound<'py, PyAny>);
/// The first key of the range, and the key before which it ends.
type Range<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// The arguments of a clone.
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
        parents: Vec<Parent<'_>>,
        (start, end): Range<'_>,
        store_options: &Bound<'_, PyDict>,
    ) -> PyResult<CloneArguments> {
        let process = Process::current(py)?;
        let place = env(py, process, url, &text_of(store_options)?)?;
        let _entered = process.handle().enter();
        let (start, end) = (optional_bytes(&start, "start")?, optional_bytes(&end, "end")?);
        let mut sources = Vec::with_capacity(parents.len());
        for (parent, checkpoint, from, to) in parents {
            let parent = text(&parent, "parent")?;
            let [from, to] = [(&from, "start"), (&to, "end")].map(|(bound, name)| {
                optional_bytes(bound, &format!("{name} of the parent {}", shown(&parent)))
            });
            let (from, to) = (from?, to?);
            // The URL and the store as the clone will resolve them later, by its own clients.
            let location = url::location(&parent).raise(py)?;
            let store = place.store.neighbours().neighbour(&location).raise(py)?;
            sources.push(CloneParent {
                env: Env { store, ..place.clone() },
                checkpoint: checkpoint.as_ref().map(name).transpose()?,
                start: from.max(start.clone()),
                end: [to, end.clone()].into_iter().flatten().min(),
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
    parents: Vec<Parent<'_>>,
    range: Range<'_>,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let asked = CloneArguments::new(py, url, parents, range, store_options)?;
    wait(py, asked.process, asked.make())
}

/// `clone` for `siltstone.aio`.
#[pyfunction]
pub(crate) fn begin_clone(
    py: Python<'_>,
    url: &str,
    parents: Vec<Parent<'_>>,
    range: Range<'_>,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<Pending> {
    let asked = CloneArguments::new(py, url, parents, range, store_options)?;
    let process = asked.process;
    Ok(Pending::going_on(process, asked.make(), |py, ()| Ok(py.None())))
}
