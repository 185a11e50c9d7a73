//! The figures of a handle.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use siltstone::{CompactionEntry, LatencyHistogram, Stats};

/// The fields of `Stats` that are not figures. A writer has its last compactions, the error that
/// stops its compactor and the error that stops its collector. A reader has the error of its last
/// refresh. Both have the error that ended the handle.
#[derive(Default)]
pub(crate) struct StatsExtras {
    pub(crate) entries: Vec<CompactionEntry>,
    pub(crate) error: Option<siltstone::Error>,
    pub(crate) gc_error: Option<siltstone::Error>,
    pub(crate) refresh_error: Option<siltstone::Error>,
    pub(crate) ended: Option<siltstone::Error>,
}

static STATS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static COMPACTION: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static HISTOGRAM: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Imports the classes in advance: late in the exit of the interpreter nothing can be imported.
pub(crate) fn import_classes(py: Python<'_>) -> PyResult<()> {
    STATS.import(py, "siltstone.stats", "Stats")?;
    HISTOGRAM.import(py, "siltstone.stats", "Histogram")?;
    COMPACTION.import(py, "siltstone.stats", "Compaction").map(drop)
}

/// Makes a `siltstone.Stats`.
pub(crate) fn stats<'py>(
    py: Python<'py>,
    stats: &Stats,
    latencies: &[LatencyHistogram],
    beside: &StatsExtras,
) -> PyResult<Bound<'py, PyAny>> {
    let class = STATS.import(py, "siltstone.stats", "Stats")?;
    let named = PyDict::new(py);
    let entries = beside.entries.iter().map(|entry| compaction(py, entry));
    named.set_item("compaction_log", PyTuple::new(py, entries.collect::<PyResult<Vec<_>>>()?)?)?;
    let latencies = latencies.iter().map(|one| histogram(py, one));
    named.set_item("latencies", PyTuple::new(py, latencies.collect::<PyResult<Vec<_>>>()?)?)?;
    for (name, error) in [
        ("compaction_error", &beside.error),
        ("gc_error", &beside.gc_error),
        ("refresh_error", &beside.refresh_error),
        ("ended", &beside.ended),
    ] {
        named.set_item(name, error.as_ref().map(ToString::to_string))?;
    }
    for ((name, figure), info) in stats.to_pairs().into_iter().zip(Stats::TABLE) {
        if info.whole {
            named.set_item(name, figure as u64)?;
        } else {
            named.set_item(name, figure)?;
        }
    }
    class.call((), Some(&named))
}

/// Makes a `siltstone.stats.Histogram`.
fn histogram<'py>(py: Python<'py>, one: &LatencyHistogram) -> PyResult<Bound<'py, PyAny>> {
    let class = HISTOGRAM.import(py, "siltstone.stats", "Histogram")?;
    let below = PyTuple::new(py, &one.durations.below)?;
    class.call1((one.name, one.doc, below, one.durations.count, one.durations.seconds))
}

/// Makes a `siltstone.stats.Compaction` from an entry of the compaction log.
pub(crate) fn compaction<'py>(
    py: Python<'py>,
    entry: &CompactionEntry,
) -> PyResult<Bound<'py, PyAny>> {
    let class = COMPACTION.import(py, "siltstone.stats", "Compaction")?;
    let named = PyDict::new(py);
    named.set_item("ended_at_ms", entry.ended_at.0)?;
    named.set_item("plan", &entry.plan)?;
    named.set_item("why", entry.why)?;
    named.set_item("tables_in", entry.tables_in)?;
    named.set_item("rows_in", entry.rows_in)?;
    named.set_item("bytes_in", entry.bytes_in)?;
    named.set_item("tables_out", entry.tables_out)?;
    named.set_item("rows_out", entry.rows_out)?;
    named.set_item("bytes_out", entry.bytes_out)?;
    named.set_item("moved", entry.moved)?;
    named.set_item("dropped", entry.dropped)?;
    named.set_item("seconds", entry.took.as_secs_f64())?;
    named.set_item("error", entry.error.as_deref())?;
    named.set_item("line", entry.to_string())?;
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

/// The description of a figure: name, group, unit, meaning, whether it is a counter.
type FigureInfo = (&'static str, &'static str, &'static str, &'static str, bool);

/// One tuple for each figure, which is a field of `siltstone.Stats`.
#[pyfunction]
pub(crate) fn stat_table() -> Vec<FigureInfo> {
    let line =
        |info: &siltstone::StatInfo| (info.name, info.group, info.unit, info.doc, info.grows);
    Stats::TABLE.iter().map(line).collect()
}
