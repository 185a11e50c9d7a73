//! Figures of a handle.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use siltstone::{CompactionEntry, Stats};

/// What stands beside the figures: the last compactions of a writer, and errors. Of a writer: why
/// it does not compact, why not collect. Of a reader: what its last look failed with. Of both: why
/// the handle has ended by itself.
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

/// Has the classes at hand from here on: late in an interpreter's end nothing can be imported.
pub(crate) fn import_classes(py: Python<'_>) -> PyResult<()> {
    STATS.import(py, "siltstone.stats", "Stats")?;
    COMPACTION.import(py, "siltstone.stats", "Compaction").map(drop)
}

/// The figures as a `siltstone.Stats`.
pub(crate) fn stats<'py>(
    py: Python<'py>,
    stats: &Stats,
    beside: &StatsExtras,
) -> PyResult<Bound<'py, PyAny>> {
    let class = STATS.import(py, "siltstone.stats", "Stats")?;
    let named = PyDict::new(py);
    let entries = beside.entries.iter().map(|entry| compaction(py, entry));
    named.set_item("compaction_log", PyTuple::new(py, entries.collect::<PyResult<Vec<_>>>()?)?)?;
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

/// One entry of the log as a `siltstone.stats.Compaction`.
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

/// What is known of a figure: name, group, unit, meaning, whether it only grows.
type FigureInfo = (&'static str, &'static str, &'static str, &'static str, bool);

/// One tuple a figure, each a field of `siltstone.Stats`.
#[pyfunction]
pub(crate) fn stat_table() -> Vec<FigureInfo> {
    let line =
        |info: &siltstone::StatInfo| (info.name, info.group, info.unit, info.doc, info.grows);
    Stats::TABLE.iter().map(line).collect()
}
