//! Repair of a database that cannot be opened.

use crate::checkpoint::place;
use crate::error::Raise;
use crate::options::options;
use crate::wait::wait;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use siltstone::repair::{GiveUpReport, RepairOptions, RepairReport, collect_after, table_named};

/// Reports the objects that prevent opening; repairs the database unless this is a dry run.
#[pyfunction]
pub(crate) fn repair<'py>(
    py: Python<'py>,
    url: &str,
    store_options: &Bound<'py, PyDict>,
    dry_run: bool,
    take_over: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let (process, env, _) = place(py, url, store_options)?;
    let options = options(&PyDict::new(py))?;
    let how = RepairOptions { dry_run, take_over };
    report(py, &wait(py, process, siltstone::repair::repair(&env, how, &options))?)
}

/// Reports the data that is lost with an unreadable table; gives the table up unless this is a dry
/// run.
#[pyfunction]
pub(crate) fn give_up_table<'py>(
    py: Python<'py>,
    url: &str,
    store_options: &Bound<'py, PyDict>,
    table: &str,
    dry_run: bool,
    take_over: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let (process, env, _) = place(py, url, store_options)?;
    let options = options(&PyDict::new(py))?;
    let table = table_named(table).raise(py)?;
    let how = RepairOptions { dry_run, take_over };
    given_up(py, &wait(py, process, siltstone::repair::give_up_table(&env, table, how, &options))?)
}

fn given_up<'py>(py: Python<'py>, found: &GiveUpReport) -> PyResult<Bound<'py, PyDict>> {
    let dropped = found.checkpoints_dropped.iter().map(ToString::to_string);
    let clones = found.clones.iter().map(ToString::to_string);
    let fields = PyDict::new(py);
    fields.set_item("database", found.database.to_string())?;
    fields.set_item("object", &found.object)?;
    fields.set_item("damage", &found.damage)?;
    fields.set_item("done", found.done)?;
    fields.set_item("layers", PyTuple::new(py, &found.layers)?)?;
    fields.set_item("first_key", PyBytes::new(py, &found.first_key))?;
    fields.set_item("last_key", PyBytes::new(py, &found.last_key))?;
    fields.set_item("rows_lost", found.rows_lost)?;
    fields.set_item("tombstones", found.tombstones)?;
    fields.set_item("rows_hidden", found.rows_hidden)?;
    fields.set_item("checkpoints_dropped", PyTuple::new(py, dropped.collect::<Vec<_>>())?)?;
    fields.set_item("clones", PyTuple::new(py, clones.collect::<Vec<_>>())?)?;
    fields.set_item("manifest_id", found.manifest_id.get())?;
    fields.set_item("aside", found.aside.as_deref())?;
    Ok(fields)
}

/// Allows the collector to delete the objects that a repair made it retain.
#[pyfunction]
pub(crate) fn collect_after_repair(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let (process, env, deadline) = place(py, url, store_options)?;
    wait(py, process, collect_after(&env, deadline))
}

fn report<'py>(py: Python<'py>, found: &RepairReport) -> PyResult<Bound<'py, PyDict>> {
    let damage = found.damage.iter().map(|one| (one.object.to_string(), one.what.as_str()));
    let dropped = found.checkpoints_dropped.iter().map(ToString::to_string);
    let fields = PyDict::new(py);
    fields.set_item("database", found.database.to_string())?;
    fields.set_item("needed", found.needed)?;
    fields.set_item("done", found.done)?;
    fields.set_item("damage", PyList::new(py, damage)?)?;
    fields.set_item("manifest_id", found.manifest_id.get())?;
    fields.set_item("manifests_void", found.manifests_void)?;
    fields.set_item("seq_kept", found.seq_kept.get())?;
    fields.set_item("seq_lost", (!found.seq_lost.is_none()).then(|| found.seq_lost.get()))?;
    fields.set_item("rows_lost", found.rows_lost)?;
    fields.set_item("tables_unnamed", found.tables_unnamed)?;
    fields.set_item("bytes_unnamed", found.bytes_unnamed)?;
    fields.set_item("objects_cut_off", found.objects_cut_off)?;
    fields.set_item("bytes_cut_off", found.bytes_cut_off)?;
    fields.set_item("objects_unknown", found.objects_unknown)?;
    fields.set_item("checkpoints_dropped", PyTuple::new(py, dropped.collect::<Vec<_>>())?)?;
    fields.set_item("tables_stay", found.tables_stay)?;
    fields.set_item("aside", found.aside.as_deref())?;
    Ok(fields)
}
