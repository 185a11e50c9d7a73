//! Checkpoints: create, refresh, delete and list them; and the fixed version of a reader.

use crate::argument::{flag, optional_text, text};
use crate::database::Database;
use crate::duration::duration;
use crate::error::Raise;
use crate::open::{env, text_of};
use crate::options::options;
use crate::process::Process;
use crate::wait::wait;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyInt, PyMapping, PyString, PyType};
use siltstone::{
    AttemptId, Checkpoint, CheckpointId, CheckpointName, CheckpointOptions, CheckpointOwner,
    CheckpointScope, Env, Error, KnownCheckpoint, ManifestId, ReadAt, UnixMillis, WalId, admin,
};
use std::time::Duration;

static CHECKPOINT: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The owner of a checkpoint, in one word.
pub(crate) fn owner(checkpoint: &Checkpoint) -> &'static str {
    match checkpoint.owner {
        CheckpointOwner::User => "user",
        CheckpointOwner::Writer(_) => "writer",
        CheckpointOwner::Reader => "reader",
        CheckpointOwner::Clone(_) => "clone",
        CheckpointOwner::Other { .. } => "of a newer version",
    }
}

/// A `siltstone.Checkpoint`.
pub(crate) fn shown<'py>(py: Python<'py>, checkpoint: &Checkpoint) -> PyResult<Bound<'py, PyAny>> {
    let class = CHECKPOINT.import(py, "siltstone._checkpoints", "Checkpoint")?;
    let metadata = PyDict::new(py);
    for (name, value) in &checkpoint.metadata {
        metadata.set_item(name, value)?;
    }
    class.call_method1(
        "_of",
        (
            checkpoint.id.to_string(),
            checkpoint.manifest_id.get(),
            checkpoint.created_at.0,
            checkpoint.expires_at.map(|at| at.0),
            checkpoint.name.as_deref(),
            metadata,
            checkpoint.source.map(|id| id.to_string()),
            owner(checkpoint),
        ),
    )
}

/// The checkpoint identified by a `Checkpoint`, a `uuid.UUID` or a string.
pub(crate) fn name(object: &Bound<'_, PyAny>) -> PyResult<CheckpointName> {
    let text =
        object.py().import("siltstone._checkpoints")?.getattr("name_of")?.call1((object,))?;
    parsed(&text.cast::<PyString>()?.to_cow()?)
}

fn parsed(text: &str) -> PyResult<CheckpointName> {
    match text.parse() {
        Ok(name) => Ok(name),
        Err(never) => match never {},
    }
}

/// Arguments of a call that creates a checkpoint.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct CheckpointArguments<'py> {
    scope: Bound<'py, PyAny>,
    force_flush: Bound<'py, PyAny>,
    lifetime: Option<Bound<'py, PyAny>>,
    source: Option<Bound<'py, PyAny>>,
    name: Bound<'py, PyAny>,
    metadata: Option<Bound<'py, PyMapping>>,
}

/// The options for creating the checkpoint that `asked` describes.
///
/// # Errors
/// TypeError; Invalid for an unknown scope.
pub(crate) fn how(asked: &Bound<'_, PyDict>) -> PyResult<CheckpointOptions> {
    let py = asked.py();
    let asked: CheckpointArguments<'_> = asked.extract()?;
    let force_flush = flag(&asked.force_flush, "force_flush")?;
    let scope = match text(&asked.scope, "scope")?.as_str() {
        "all" => CheckpointScope::All { force_flush },
        "durable" => CheckpointScope::Durable,
        other => {
            let text = format!("scope is 'all' or 'durable', not '{other}'");
            return Err(Error::invalid(text)).raise(py);
        }
    };
    let lifetime = asked.lifetime.map(|lifetime| duration(&lifetime, "lifetime")).transpose()?;
    let source = asked.source.map(|source| name(&source)).transpose()?;
    let facts = asked.metadata.map(|facts| facts.items()).transpose()?;
    let fact = |fact: Bound<'_, PyAny>| {
        let refused =
            |_| PyTypeError::new_err("metadata is a dict of str to str, or another mapping");
        fact.extract::<(String, String)>().map_err(refused)
    };
    let metadata = facts.iter().flatten().map(fact).collect::<PyResult<_>>()?;
    let name = optional_text(&asked.name, "name")?;
    Ok(CheckpointOptions { scope, lifetime, source, name, metadata })
}

#[pymethods]
impl Database {
    /// Creates a checkpoint: a state of the database that any process can read with
    /// `open_reader(url, checkpoint=…)`, until the checkpoint is deleted or expires. The writer
    /// continues to write. No table is copied.
    ///
    /// :param scope: "all": include every write that was accepted before the call. "durable":
    ///     include only writes that are already durable, which is faster.
    /// :param force_flush: with scope "all", whether to make pending writes durable at once, or to
    ///     wait for the next `flush_interval`.
    /// :param lifetime: time after which the checkpoint may be collected (a timedelta, seconds, or
    ///     text such as "2h"). None: it lives until it is deleted.
    /// :param source: another checkpoint. The new one keeps the state of that checkpoint instead of
    ///     the current state.
    /// :param name: name of the checkpoint, unique in the database.
    /// :param metadata: text values to attach, by name.
    /// :raises Expired: if the source has expired or does not exist.
    /// :raises Conflict: if another checkpoint has the name.
    /// :raises Invalid, Closed, Fenced, Unavailable, Timeout: see `siltstone.exceptions`. If the
    ///     outcome is unknown, the error names the id of the checkpoint.
    #[pyo3(signature = (*, scope = "all", force_flush = true, lifetime = None, source = None,
        name = None, metadata = None))]
    #[expect(clippy::too_many_arguments, reason = "the surface's names")]
    fn checkpoint<'py>(
        &self,
        py: Python<'py>,
        scope: &str,
        force_flush: bool,
        lifetime: Option<Bound<'py, PyAny>>,
        source: Option<Bound<'py, PyAny>>,
        name: Option<&str>,
        metadata: Option<Bound<'py, PyMapping>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = PyDict::new(py);
        asked.set_item("scope", scope)?;
        asked.set_item("force_flush", force_flush)?;
        asked.set_item("lifetime", lifetime)?;
        asked.set_item("source", source)?;
        asked.set_item("name", name)?;
        asked.set_item("metadata", metadata)?;
        let how = how(&asked)?;
        let held = self.held();
        let engine = held.get(py)?.clone();
        let made = wait(py, held.process(), async move { engine.checkpoint(&how).await })?;
        shown(py, &made)
    }
}

/// The environment for functions that work on a database without an open handle.
pub(crate) fn place(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<(&'static Process, Env, Duration)> {
    let process = Process::current(py)?;
    let env = env(py, process, url, &text_of(store_options)?)?;
    Ok((process, env, options(&PyDict::new(py))?.deadline))
}

/// Makes a checkpoint without a writer.
#[pyfunction]
pub(crate) fn create_checkpoint<'py>(
    py: Python<'py>,
    url: &str,
    store_options: &Bound<'py, PyDict>,
    asked: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let how = how(asked)?;
    let (process, env, deadline) = place(py, url, store_options)?;
    shown(py, &wait(py, process, admin::create_checkpoint(&env, &how, deadline))?)
}

/// Pins the durable state by a checkpoint that all jobs of one holder share.
#[pyfunction]
pub(crate) fn pin_shared<'py>(
    py: Python<'py>,
    url: &str,
    store_options: &Bound<'py, PyDict>,
    holder: Vec<(String, String)>,
    lifetime: &Bound<'py, PyAny>,
    source: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let lifetime = duration(lifetime, "lifetime")?;
    let source = source.map(name).transpose()?;
    let (process, env, deadline) = place(py, url, store_options)?;
    let work = admin::pin_shared(&env, &holder, source.as_ref(), lifetime, deadline);
    shown(py, &wait(py, process, work)?)
}

/// Changes the expiry of a checkpoint.
#[pyfunction]
pub(crate) fn refresh_checkpoint<'py>(
    py: Python<'py>,
    url: &str,
    store_options: &Bound<'py, PyDict>,
    which: &Bound<'py, PyAny>,
    lifetime: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let which = name(which)?;
    let lifetime = lifetime.map(|lifetime| duration(lifetime, "lifetime")).transpose()?;
    let (process, env, deadline) = place(py, url, store_options)?;
    let work = admin::refresh_checkpoint(&env, &which, lifetime, deadline);
    shown(py, &wait(py, process, work)?)
}

/// Deletes a checkpoint.
#[pyfunction]
pub(crate) fn delete_checkpoint(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    which: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let which = name(which)?;
    let (process, env, deadline) = place(py, url, store_options)?;
    wait(py, process, admin::delete_checkpoint(&env, &which, deadline))
}

/// Releases the pins of a clone that no longer exists.
#[pyfunction]
pub(crate) fn release_clone<'py>(
    py: Python<'py>,
    url: &str,
    store_options: &Bound<'py, PyDict>,
    which: &Bound<'py, PyAny>,
    force: bool,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let which = name(which)?;
    let (process, env, deadline) = place(py, url, store_options)?;
    let released = wait(py, process, admin::release_clone(&env, &which, force, deadline))?;
    released.iter().map(|checkpoint| shown(py, checkpoint)).collect()
}

/// Lists all checkpoints.
#[pyfunction]
pub(crate) fn list_checkpoints<'py>(
    py: Python<'py>,
    url: &str,
    store_options: &Bound<'py, PyDict>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let (process, env, deadline) = place(py, url, store_options)?;
    let found = wait(py, process, admin::list_checkpoints(&env, deadline))?;
    found.iter().map(|checkpoint| shown(py, checkpoint)).collect()
}

/// The checkpoint in a pickled reader, as plain values.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PortableCheckpoint {
    id: String,
    manifest_id: u64,
    attempt: String,
    replay_from: u64,
    wal_id_last_seen: u64,
    created_at_ms: u64,
    expires_at_ms: Option<u64>,
    source: Option<String>,
    name: Option<String>,
    metadata: Vec<(String, String)>,
}

impl PortableCheckpoint {
    /// `None` if the values were not written by a reader.
    fn known(self) -> Option<KnownCheckpoint> {
        let source = self.source.map(|id| CheckpointId::parse(&id).ok_or(())).transpose();
        let attempt = AttemptId::parse(&self.attempt)?;
        let checkpoint = Checkpoint {
            id: CheckpointId::parse(&self.id)?,
            manifest_id: ManifestId(self.manifest_id),
            manifest_attempt: attempt,
            replay_from: WalId(self.replay_from),
            wal_id_last_seen: WalId(self.wal_id_last_seen),
            created_at: UnixMillis(self.created_at_ms),
            expires_at: self.expires_at_ms.map(UnixMillis),
            source: source.ok()?,
            owner: CheckpointOwner::User,
            name: self.name,
            metadata: self.metadata,
        };
        Some(KnownCheckpoint { checkpoint, attempt })
    }
}

/// The fixed version of a reader: a string is a checkpoint, a number a version, a dict the result
/// of [`travelling`].
///
/// # Errors
/// TypeError for other types; Invalid for a dict that [`travelling`] did not make.
pub(crate) fn read_at(at: Option<&Bound<'_, PyAny>>) -> PyResult<Option<ReadAt>> {
    let Some(at) = at.filter(|at| !at.is_none()) else { return Ok(None) };
    if let Ok(text) = at.cast::<PyString>() {
        return Ok(Some(ReadAt::Checkpoint(parsed(&text.to_cow()?)?)));
    }
    if at.is_instance_of::<PyInt>() {
        return Ok(Some(ReadAt::Version(ManifestId(at.extract()?))));
    }
    let known = at.extract::<PortableCheckpoint>()?.known();
    let known = known.ok_or_else(|| Error::invalid("a reader's checkpoint cannot be read"));
    Ok(Some(ReadAt::Known(Box::new(known.raise(at.py())?))))
}

/// The plain values that a reader at `at` is pickled with.
pub(crate) fn travelling<'py>(
    py: Python<'py>,
    at: Option<&ReadAt>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(Some(match at {
        None => return Ok(None),
        Some(ReadAt::Checkpoint(name)) => name.to_string().into_pyobject(py)?.into_any(),
        Some(ReadAt::Version(id)) => id.get().into_pyobject(py)?.into_any(),
        Some(ReadAt::Known(known)) => {
            let (dict, checkpoint) = (PyDict::new(py), &known.checkpoint);
            dict.set_item("id", checkpoint.id.to_string())?;
            dict.set_item("manifest_id", checkpoint.manifest_id.get())?;
            dict.set_item("attempt", known.attempt.to_string())?;
            dict.set_item("replay_from", checkpoint.replay_from.get())?;
            dict.set_item("wal_id_last_seen", checkpoint.wal_id_last_seen.get())?;
            dict.set_item("created_at_ms", checkpoint.created_at.0)?;
            dict.set_item("expires_at_ms", checkpoint.expires_at.map(|at| at.0))?;
            dict.set_item("source", checkpoint.source.map(|id| id.to_string()))?;
            dict.set_item("name", checkpoint.name.as_deref())?;
            dict.set_item("metadata", checkpoint.metadata.clone())?;
            dict.into_any()
        }
    }))
}

/// The position of a reader in words, for `repr`.
pub(crate) fn words(at: Option<&ReadAt>) -> String {
    match at {
        None => "following".to_owned(),
        Some(ReadAt::Checkpoint(name)) => format!("at checkpoint {name}"),
        Some(ReadAt::Known(known)) => format!("at checkpoint {}", known.checkpoint.id),
        Some(ReadAt::Version(id)) => format!("at version {id}"),
    }
}

/// The fixed version of an open reader, by id: the name of a checkpoint may later refer to another
/// checkpoint.
pub(crate) fn settled(at: Option<ReadAt>, engine: &siltstone::Reader) -> Option<ReadAt> {
    let known = engine.checkpoint().map(|known| ReadAt::Known(Box::new(known.clone())));
    known.or(at)
}
