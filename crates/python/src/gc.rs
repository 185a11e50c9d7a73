//! Garbage collection without a writer.

use crate::duration::duration;
use crate::error::exception;
use crate::open::{env, text_of};
use crate::options::options;
use crate::process::Process;
use crate::wait::{SIGNAL_INTERVAL, wait_telling, wait_watched};
use futures::FutureExt;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::Progress;
use siltstone::gc::{EndReason, GcEvent, GcOptions, GcReport};
use std::sync::Arc;
use std::time::Duration;

/// Adds the functions of this module to the compiled module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(gc, module)?)?;
    module.add_function(wrap_pyfunction!(run_gc, module)?)
}

/// The default options with the given values set.
fn gc_options(
    py: Python<'_>,
    min_age: Option<&Bound<'_, PyAny>>,
    db_delete_grace: Option<&Bound<'_, PyAny>>,
    interval: Option<&Bound<'_, PyAny>>,
) -> PyResult<GcOptions> {
    let defaults = options(&PyDict::new(py))?;
    let given = |given: Option<&Bound<'_, PyAny>>, name, default: Duration| {
        given.map_or(Ok(default), |given| duration(given, name))
    };
    Ok(GcOptions {
        min_age: given(min_age, "min_age", defaults.gc.min_age)?,
        db_delete_grace: given(db_delete_grace, "db_delete_grace", defaults.gc.db_delete_grace)?,
        interval: given(interval, "interval", defaults.gc.interval)?.max(SIGNAL_INTERVAL),
        deadline: defaults.deadline,
    })
}

/// Runs one collection of the database at `url`; with `dry_run` it only reports. `progress` is
/// called a few times a second with the number of objects deleted and the number to delete.
#[pyfunction]
fn gc<'py>(
    py: Python<'py>,
    url: &str,
    store_options: &Bound<'py, PyDict>,
    dry_run: bool,
    min_age: Option<&Bound<'py, PyAny>>,
    db_delete_grace: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let process = Process::current(py)?;
    let how = gc_options(py, min_age, db_delete_grace, None)?;
    let env = env(py, process, url, &text_of(store_options)?)?;
    let done = Arc::<Progress>::default();
    let work = siltstone::gc::once_watched(&env, &how, dry_run, &done);
    report(py, &wait_watched(py, process, work, (&done, progress))?)
}

/// Runs collections of all `urls` until each database is destroyed. `tell` is called with a URL and
/// the event there: a report as a dict, an exception, or the reason why collecting this database
/// ended.
#[pyfunction]
fn run_gc<'py>(
    py: Python<'py>,
    urls: Vec<String>,
    store_options: &Bound<'py, PyDict>,
    min_age: Option<&Bound<'py, PyAny>>,
    db_delete_grace: Option<&Bound<'py, PyAny>>,
    interval: Option<&Bound<'py, PyAny>>,
    tell: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let process = Process::current(py)?;
    let how = gc_options(py, min_age, db_delete_grace, interval)?;
    let store_options = text_of(store_options)?;
    let envs = urls.iter().map(|url| env(py, process, url, &store_options));
    let envs = envs.collect::<PyResult<Vec<_>>>()?;
    let events: Mutex<Vec<(usize, GcEvent)>> = Mutex::default();
    let note = |place, event| events.lock().push((place, event));
    let work = siltstone::gc::run(envs, how, note).map(Ok);
    let heard = || {
        let heard = std::mem::take(&mut *events.lock());
        heard.into_iter().try_for_each(|(place, event)| {
            tell_of(py, tell, urls.get(place).map_or("", String::as_str), event)
        })
    };
    wait_telling(py, process, work, heard)?;
    heard()
}

fn tell_of(py: Python<'_>, tell: &Bound<'_, PyAny>, url: &str, event: GcEvent) -> PyResult<()> {
    match event {
        GcEvent::Round(found) => tell.call1((url, report(py, &found)?))?,
        GcEvent::Failed(error) => tell.call1((url, exception(py, &error)))?,
        GcEvent::Ended(EndReason::Gone(error) | EndReason::Absent(error)) => {
            tell.call1((url, error.to_string()))?
        }
    };
    Ok(())
}

fn report<'py>(py: Python<'py>, report: &GcReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let classes = PyDict::new(py);
    for (class, one) in &report.classes {
        let counts = (one.deleted, one.bytes, one.failed, one.denied, one.young, one.alive);
        classes.set_item(class.as_str(), counts)?;
    }
    let stays = report.stays.iter();
    let stays = stays.map(|one| (one.class.as_str(), one.why, one.objects, one.bytes));
    let objects = report.objects.iter();
    let objects =
        objects.map(|one| (one.name.to_string(), one.bytes, one.age.as_secs_f64(), one.why));
    dict.set_item("database", report.database.to_string())?;
    dict.set_item("manifest_id", report.manifest_id.get())?;
    dict.set_item("dry_run", report.dry_run)?;
    dict.set_item("overtaken", report.overtaken)?;
    dict.set_item("revoked", report.revoked)?;
    dict.set_item("unleased", report.unleased)?;
    dict.set_item("swept_uploads", report.swept.uploads)?;
    dict.set_item("swept_bytes", report.swept.bytes)?;
    dict.set_item("classes", classes)?;
    dict.set_item("stays", stays.collect::<Vec<_>>())?;
    dict.set_item("objects", objects.collect::<Vec<_>>())?;
    dict.set_item("trouble", report.trouble.as_ref().map(ToString::to_string))?;
    Ok(dict)
}
