//! Inspecting a database without opening it.

use crate::checkpoint::owner;
use crate::open::{env, text_of};
use crate::options::options;
use crate::process::Process;
use crate::wait::{wait, wait_watched};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use siltstone::admin::Manifest;
use siltstone::verify::Report;
use siltstone::{ManifestId, Progress};

/// Makes a dict of the given pairs.
macro_rules! dict {
    ($py:expr; $($name:ident: $value:expr),+ $(,)?) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($name), $value)?;)+
        dict
    }};
}

/// Describes one table. A macro, because the descriptor type is not part of the public interface of
/// the engine.
macro_rules! table {
    ($py:expr, $table:expr) => {
        dict! { $py;
            id: $table.id.to_string(),
            name: $table.name().to_string(),
            ancestor: $table.ancestor(),
            object_bytes: $table.object_bytes,
            tail_offset: $table.tail_offset,
            checksum: $table.checksum,
            first_key: PyBytes::new($py, &$table.first_key),
            last_key: PyBytes::new($py, &$table.last_key),
            entries: $table.entries,
            tombstones: $table.tombstones,
            min_seq: $table.min_seq.get(),
            max_seq: $table.max_seq.get(),
        }
    };
}

/// The manifest `id`, or the newest one, as plain dicts and lists.
#[pyfunction]
pub(crate) fn manifest<'py>(
    py: Python<'py>,
    url: &str,
    id: Option<u64>,
    store_options: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let process = Process::current(py)?;
    let env = env(py, process, url, &text_of(store_options)?)?;
    let deadline = options(&PyDict::new(py))?.deadline;
    let found = siltstone::admin::manifest(&env, id.map(ManifestId), deadline);
    describe(py, &*wait(py, process, found)?)
}

/// Reads and checks every byte. `progress` is called a few times a second with bytes read and bytes
/// to read.
#[pyfunction]
pub(crate) fn verify<'py>(
    py: Python<'py>,
    url: &str,
    store_options: &Bound<'py, PyDict>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let process = Process::current(py)?;
    let env = env(py, process, url, &text_of(store_options)?)?;
    let deadline = options(&PyDict::new(py))?.deadline;
    let done = Progress::default();
    let work = siltstone::verify::verify(&env, deadline, &done);
    report(py, &wait_watched(py, process, work, (&done, progress))?)
}

fn report<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let problems = report.problems.iter();
    let problems = problems.map(|one| (one.object.to_string(), one.offset, one.what.clone()));
    let lost = report.lost_clones.iter();
    let lost = lost.map(|one| (one.clone.to_string(), one.place.clone(), one.pin.to_string()));
    let orphans = report.orphans.iter().map(|one| (one.name.to_string(), one.bytes));
    Ok(dict! { py;
        database: report.database.to_string(),
        manifest_id: report.manifest_id.get(),
        manifests: report.manifests,
        checkpoints: report.checkpoints,
        boundaries: report.boundaries,
        tables: report.tables,
        blocks: report.blocks,
        entries: report.entries,
        tombstones: report.tombstones,
        wal_objects: report.wal_objects,
        fences: report.fences,
        batches: report.batches,
        operations: report.operations,
        bytes_read: report.bytes_read,
        sealed_objects: report.sealed_objects,
        orphans: orphans.collect::<Vec<_>>(),
        lost_clones: lost.collect::<Vec<_>>(),
        problems: problems.collect::<Vec<_>>(),
        problem_count: report.problem_count,
    })
}

fn describe<'py>(py: Python<'py>, manifest: &Manifest) -> PyResult<Bound<'py, PyDict>> {
    let settings = &manifest.settings;
    Ok(dict! { py;
        id: manifest.id.get(),
        database: manifest.database.to_string(),
        initialized: manifest.initialized,
        destroyed_at_ms: manifest.destroyed_at.map(|at| at.0),
        mirror_of: manifest.mirror.as_ref().map(|mirror| &mirror.location),
        settings: dict! { py;
            codec: &settings.codec,
            filter: &settings.filter,
            merge_operator: settings.merge_operator.as_deref(),
            key_schema: settings.key_schema.as_deref(),
        },
        schema: manifest.schema.as_ref().map(|text| String::from_utf8_lossy(text).into_owned()),
        writer_epoch: manifest.writer_epoch.get(),
        closed_cleanly: manifest.closed_cleanly(),
        widest_window: manifest.widest_window,
        replay_from: manifest.replay_from.get(),
        wal_id_last_seen: manifest.wal_id_last_seen.get(),
        flushed_seq: manifest.flushed_seq.get(),
        floor: manifest.floor.get(),
        compactor_epoch: manifest.compactor_epoch.get(),
        reserved: manifest.reserved.iter().map(ToString::to_string).collect::<Vec<_>>(),
        l0: layers(py, manifest)?,
        runs: runs(py, manifest)?,
        checkpoints: checkpoints(py, manifest)?,
        leases: leases(py, manifest)?,
        since_leases: since_leases(py, manifest)?,
        ancestors: ancestors(py, manifest)?,
        pending_ingests: manifest.pending_ingests.len(),
        remembered_ingests: manifest.remembered_ingests.len(),
        ingest_apps: apps(py, manifest)?,
    })
}

pub(crate) fn apps<'py>(py: Python<'py>, manifest: &Manifest) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let apps = manifest.ingest_apps.iter().map(|one| {
        Ok(dict! { py;
            app: &one.app,
            version: one.version,
            job: one.job.to_string(),
            seq: one.seq.get(),
        })
    });
    apps.collect()
}

fn ancestors<'py>(py: Python<'py>, manifest: &Manifest) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let ancestors = manifest.ancestors.iter().map(|one| {
        Ok(dict! { py;
            number: one.number,
            database: one.database.to_string(),
            location: &one.location,
            checkpoint: one.checkpoint.to_string(),
        })
    });
    ancestors.collect()
}

fn layers<'py>(py: Python<'py>, manifest: &Manifest) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let layers = manifest.l0.iter().map(|layer| {
        let tables = PyList::empty(py);
        for table in &layer.tables {
            tables.append(table!(py, table))?;
        }
        Ok(dict! { py; order: layer.order, tables: tables })
    });
    layers.collect()
}

fn runs<'py>(py: Python<'py>, manifest: &Manifest) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let runs = manifest.runs.iter().map(|run| {
        let tables = PyList::empty(py);
        for table in &run.tables {
            tables.append(table!(py, table))?;
        }
        Ok(dict! { py; id: run.id, tables: tables })
    });
    runs.collect()
}

fn checkpoints<'py>(py: Python<'py>, manifest: &Manifest) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let checkpoints = manifest.checkpoints.iter().map(|checkpoint| {
        Ok(dict! { py;
            id: checkpoint.id.to_string(),
            manifest_id: checkpoint.manifest_id.get(),
            created_at_ms: checkpoint.created_at.0,
            expires_at_ms: checkpoint.expires_at.map(|at| at.0),
            owner: owner(checkpoint),
            name: checkpoint.name.as_deref(),
        })
    });
    checkpoints.collect()
}

fn since_leases<'py>(py: Python<'py>, manifest: &Manifest) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let leases = manifest.since_leases.iter();
    leases
        .map(|one| Ok(dict! { py; expires_at_ms: one.expires_at.0, from_version: one.from.get() }))
        .collect()
}

fn leases<'py>(py: Python<'py>, manifest: &Manifest) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let leases = manifest.leases.iter().map(|lease| {
        let versions = lease.versions.iter().map(|version| version.manifest_id.get());
        let versions: Vec<u64> = versions.collect();
        Ok(dict! { py; expires_at_ms: lease.expires_at.0, versions: versions })
    });
    leases.collect()
}
