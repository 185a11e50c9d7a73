//! Units of a compaction: planned and committed here, merged in any process.

use crate::compactor::{Heard, drive, how, open};
use crate::error::Raise;
use crate::held::Held;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use siltstone::{CompactionPlan, CompactionUnit, CompactorProcess, JobId, SstId, UnitResult};
use std::sync::Arc;

/// A unit in Python's form: the job, the index of its range, the table after which it continues.
type PlainUnit = (String, usize, Option<String>);
/// A unit, the first key of its range, and the key before which the range ends.
type PlainOpenUnit<'py> = (PlainUnit, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);
/// A unit with its result, if it has one.
type PlainResult<'py> = (PlainUnit, Option<Bound<'py, PyBytes>>);
/// A finished unit: the result for the plan, and the number of tables, rows and bytes.
type PlainMade<'py> = (Option<Bound<'py, PyBytes>>, usize, u64, u64);

fn unit_of(py: Python<'_>, (job, range, after): PlainUnit) -> PyResult<CompactionUnit> {
    let after = after.map(|text| SstId::parse(&text).ok_or(text)).transpose();
    match (JobId::parse(&job), after) {
        (Some(job), Ok(after)) => {
            let (start, end) = (Bytes::new(), None);
            Ok(CompactionUnit { job, range, after, start, end })
        }
        _ => Err(crate::error::invalid(py, "no unit of a compaction reads like that")),
    }
}

/// A compaction whose units are merged by other processes.
#[pyclass(frozen, module = "siltstone")]
pub(crate) struct UnitPlan {
    held: Held<Box<(CompactorProcess, Arc<CompactionPlan>, Heard)>>,
    told: Py<PyAny>,
}

/// Plans a merge of everything into one sorted run, in units of approximately the given number of
/// bytes.
#[pyfunction]
pub(crate) fn plan_compaction<'py>(
    py: Python<'py>,
    url: &str,
    named: &Bound<'py, PyDict>,
    store_options: &Bound<'py, PyDict>,
    merge_operator: Option<&Bound<'py, PyAny>>,
    unit_bytes: u64,
    told: &Bound<'py, PyAny>,
) -> PyResult<UnitPlan> {
    let how = how(named, merge_operator, 0)?;
    let (process, compactor, heard) = open(py, url, how, store_options)?;
    let work = compactor.clone();
    let work = process.run(async move { work.plan(unit_bytes).await });
    let plan = drive(py, process, &compactor, (&heard, told, &|| Ok(())), work)?;
    let held = Held::new(process, Box::new((compactor, Arc::new(plan), heard)));
    Ok(UnitPlan { held, told: told.clone().unbind() })
}

/// Merges a unit.
#[pyfunction]
pub(crate) fn run_unit<'py>(
    py: Python<'py>,
    url: &str,
    named: &Bound<'py, PyDict>,
    store_options: &Bound<'py, PyDict>,
    merge_operator: Option<&Bound<'py, PyAny>>,
    unit: PlainUnit,
    told: &Bound<'py, PyAny>,
) -> PyResult<PlainMade<'py>> {
    let (unit, how) = (unit_of(py, unit)?, how(named, merge_operator, 0)?);
    let (process, compactor, heard) = open(py, url, how, store_options)?;
    let work = compactor.clone();
    let work = process.run(async move { work.run_unit(&unit).await });
    let made = drive(py, process, &compactor, (&heard, told, &|| Ok(())), work)?;
    let tables = made.tables().unwrap_or_default();
    let rows = tables.iter().map(|table| table.entries).sum();
    let bytes = tables.iter().map(|table| table.object_bytes).sum();
    let data = made.to_bytes().raise(py)?;
    Ok((data.map(|data| PyBytes::new(py, &data)), tables.len(), rows, bytes))
}

#[pymethods]
impl UnitPlan {
    /// The remaining units, each with the first key of its range and its exclusive end.
    fn units<'py>(&self, py: Python<'py>) -> PyResult<Vec<PlainOpenUnit<'py>>> {
        let units = self.call(py, |plan| async move { plan.units().await })?;
        let plain = |unit: CompactionUnit| {
            let after = unit.after.map(|table| table.to_string());
            let end = unit.end.map(|end| PyBytes::new(py, &end));
            let named = (unit.job.to_string(), unit.range, after);
            (named, PyBytes::new(py, &unit.start), end)
        };
        Ok(units.into_iter().map(plain).collect())
    }

    /// Whether it continues a compaction that another compactor began.
    #[getter]
    fn resumed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.held.get(py)?.1.is_resumed())
    }

    /// Records results. Returns whether all units are committed.
    fn commit(&self, py: Python<'_>, results: Vec<PlainResult<'_>>) -> PyResult<bool> {
        let read = |(unit, data): PlainResult<'_>| {
            let unit = unit_of(py, unit)?;
            let data = data.as_ref().map(|data| data.as_bytes());
            UnitResult::from_bytes(&unit, data).raise(py)
        };
        let results = results.into_iter().map(read).collect::<PyResult<Vec<_>>>()?;
        self.call(py, |plan| async move { plan.commit(&results).await })
    }

    /// Releases the epoch of the compactor.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |plan| async move {
            plan.close().await;
            Ok(())
        })
    }
}

impl UnitPlan {
    /// Waits for `work` and forwards events meanwhile. A signal stops the plan.
    fn call<T, F>(&self, py: Python<'_>, work: impl FnOnce(Arc<CompactionPlan>) -> F) -> PyResult<T>
    where
        T: Send + 'static,
        F: Future<Output = siltstone::Result<T>> + Send + 'static,
    {
        let (compactor, plan, heard) = &**self.held.get(py)?;
        let process = self.held.process();
        let work = process.run(work(Arc::clone(plan)));
        drive(py, process, compactor, (heard, self.told.bind(py), &|| Ok(())), work)
    }
}
