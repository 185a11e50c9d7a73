//! Export, import and promotion.

use crate::aio::pending::Pending;
use crate::checkpoint::{name, place};
use crate::options::options;
use crate::process::Process;
use crate::wait::{wait, wait_watched};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::admin::{self, ExportPlaces, ExportReport};
use siltstone::{CheckpointName, Env, Options, Progress};

/// A URL with the options of its store.
type StoreAt<'py> = (String, Bound<'py, PyDict>);
/// Tables copied, tables that were already present, bytes copied.
type Moved = (u64, u64, u64);

/// Source and target of an export.
struct ExportArguments {
    process: &'static Process,
    source: Env,
    target: Env,
    checkpoint: Option<CheckpointName>,
    is_import: bool,
    options: Options,
}

impl ExportArguments {
    fn new(
        py: Python<'_>,
        source: StoreAt<'_>,
        target: StoreAt<'_>,
        checkpoint: Option<&Bound<'_, PyAny>>,
        is_import: bool,
    ) -> PyResult<ExportArguments> {
        let checkpoint = checkpoint.map(name).transpose()?;
        let (process, source, _) = place(py, &source.0, &source.1)?;
        let (_, target, _) = place(py, &target.0, &target.1)?;
        let options = options(&PyDict::new(py))?;
        Ok(ExportArguments { process, source, target, checkpoint, is_import, options })
    }

    async fn run(&self, progress: &Progress) -> siltstone::Result<ExportReport> {
        let places = ExportPlaces { source: &self.source, target: &self.target };
        let which = self.checkpoint.as_ref();
        match self.is_import {
            true => admin::import(places, which, &self.options, progress).await,
            false => admin::export(places, which, &self.options, progress).await,
        }
    }
}

fn moved(report: &ExportReport) -> Moved {
    (report.tables_moved, report.tables_shared, report.bytes)
}

/// Copies a state of `source` to `target`; an import also promotes it. `progress` is called a few
/// times a second with bytes copied and bytes to copy.
#[pyfunction]
pub(crate) fn export(
    py: Python<'_>,
    source: StoreAt<'_>,
    target: StoreAt<'_>,
    checkpoint: Option<&Bound<'_, PyAny>>,
    is_import: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Moved> {
    let asked = ExportArguments::new(py, source, target, checkpoint, is_import)?;
    let done = Progress::default();
    let report = wait_watched(py, asked.process, asked.run(&done), (&done, progress))?;
    Ok(moved(&report))
}

/// Begins an export. It continues if the caller stops waiting.
#[pyfunction]
pub(crate) fn begin_export(
    py: Python<'_>,
    source: StoreAt<'_>,
    target: StoreAt<'_>,
    checkpoint: Option<&Bound<'_, PyAny>>,
    is_import: bool,
) -> PyResult<Pending> {
    let asked = ExportArguments::new(py, source, target, checkpoint, is_import)?;
    let process = asked.process;
    let export = async move { asked.run(&Progress::default()).await };
    Ok(Pending::going_on(process, export, |py, report| moved(&report).into_py_any(py)))
}

/// Promotes a mirror to a normal database.
#[pyfunction]
pub(crate) fn promote(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let (process, env, deadline) = place(py, url, store_options)?;
    wait(py, process, admin::promote(&env, deadline))
}
