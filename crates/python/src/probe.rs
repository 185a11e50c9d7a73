//! Examining a store.

use crate::open::{env, text_of};
use crate::options::options;
use crate::process::Process;
use crate::wait::wait_watched;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::Progress;
use siltstone::probe::{ProbeOptions, StoreReport};

/// Examines the store at `url`. `progress` is called a few times a second with the number of steps
/// done and the number of all steps.
#[pyfunction]
pub(crate) fn probe<'py>(
    py: Python<'py>,
    url: &str,
    store_options: &Bound<'py, PyDict>,
    rounds: i64,
    largest_object: i64,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let process = Process::current(py)?;
    let env = env(py, process, url, &text_of(store_options)?)?;
    // The engine refuses 0, which stands for all numbers below the range.
    let how = ProbeOptions {
        rounds: u32::try_from(rounds.min(u32::MAX.into())).unwrap_or(0),
        largest_object: u64::try_from(largest_object).unwrap_or(0),
        deadline: options(&PyDict::new(py))?.deadline,
    };
    let done = Progress::default();
    let work = siltstone::probe::probe(&env, &how, &done);
    report(py, &wait_watched(py, process, work, (&done, progress))?)
}

fn report<'py>(py: Python<'py>, report: &StoreReport) -> PyResult<Bound<'py, PyDict>> {
    let properties = report.properties.iter().map(|one| {
        let property = one.property;
        let remedy = property.remedy();
        (property.name(), one.result.name(), property.is_needed(), one.reason.as_str(), remedy)
    });
    let latency = PyDict::new(py);
    for (operation, median) in &report.latency {
        latency.set_item(operation, median.as_secs_f64())?;
    }
    let dict = PyDict::new(py);
    dict.set_item("store", &report.store)?;
    dict.set_item("properties", properties.collect::<Vec<_>>())?;
    dict.set_item("clock_offset", report.clock.map(|clock| clock.seconds))?;
    dict.set_item("clock_precision", report.clock.map(|clock| clock.precision))?;
    dict.set_item("largest_object", report.largest_object)?;
    dict.set_item("latency", latency)?;
    dict.set_item("requests", report.requests)?;
    dict.set_item("left", &report.left)?;
    Ok(dict)
}
