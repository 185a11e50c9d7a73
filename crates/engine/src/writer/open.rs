//! Opens a writer: finds or creates the database, claims and fences it with the state machine of
//! the manifest crate, replays the log, and starts the background tasks.

use super::behind::not_made_for_it;
use super::checkpoint::TreePins;
use super::durability::Durability;
use super::durable_log::UnflushedWal;
use super::flush::{self, RESERVED_NAMES, new_names};
use super::large::LargeBatches;
use super::observer::WriterObserver;
use super::opening::Opening;
use super::stalls;
use super::stalls::pressure::Pressure;
use super::state::{OpenedState, Writer};
use super::wal_task::WalTask;
use super::{checkpoint, collector, compactor, ingest, unlogged};
use crate::cache::fetch::{ReadContext, brought};
use crate::cache::metadata::MetadataBudget;
use crate::gc::Garbage;
use crate::manifests::ahead::CommitAfter;
use crate::manifests::client::{ManifestClient, ManifestRequests, look, look_or_left, lost_first};
use crate::manifests::gate::{self, FILTER};
use crate::manifests::lost_clones::LostClone;
use crate::manifests::missing::{check_writable, no_database_to_write};
use crate::manifests::new_database;
use crate::manifests::objects::Objects;
use crate::manifests::rules;
use crate::options::Options;
use crate::read::mirror;
use crate::read::queue::QueuedIngest;
use crate::read::settings::take_up;
use crate::read::tree::Levels;
use crate::wal::replay::{ingest_of, insert_rows};
use crate::writer::close;
use bytes::Bytes;
use siltstone_base::{
    AttemptId, CheckpointId, Epoch, Error, ErrorKind, MergeOperator, Result, Seq, UnixMillis, WalId,
};
use siltstone_manifest::protocol::{Failure, Recovered, WalWindow, WriterOptions};
use siltstone_manifest::{Manifest, NewCheckpoint, Settings};
use siltstone_memtable::Memtable;
use siltstone_sst::wal::WalObject;
use siltstone_store::counting::{Requests, count};
use siltstone_store::env::Env;
use siltstone_store::presence::Occupancy;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Log target of lines about writers.
const TARGET: &str = "siltstone.writer";

/// Clones that a writer looks for after it was opened. Each costs one or two requests.
const CLONES_TO_FIND: usize = 64;

/// How to open a database for writing.
#[derive(Clone)]
pub struct OpenOptions {
    /// Create the database if there is none. Otherwise a missing database is NotFound.
    pub create: bool,
    /// How to treat the writer before this one.
    ///
    /// - `None`: Conflict, with its identity, while it is known to be alive: a handle of this
    ///   process or, in a local folder, a process of any machine that sees its lock. Otherwise
    ///   fence it, because it may be dead.
    /// - `Some(true)`: fence it in any case.
    /// - `Some(false)`: as `None`, and also Conflict, with its epoch, if it did not close cleanly.
    pub take_over: Option<bool>,
    /// Set if the database is opened only for a moment, to adopt ingest jobs.
    pub transient: Option<TransientOpen>,
    /// All other options.
    pub options: Options,
    /// The merge operator. The first writer that passes one records its name. A recorded built-in
    /// operator need not be passed.
    pub merge_operator: Option<Arc<dyn MergeOperator>>,
    /// The columns of a table. A new database gets this schema; an existing one must have it.
    /// `None` opens any database, as bytes.
    pub schema: Option<OpenSchema>,
    /// Create the database such that ingest jobs may come behind existing rows (RFC 0043). An
    /// existing database must have been created so.
    pub allow_ingest_behind: bool,
}

/// Opens the database for a moment, to adopt ingest jobs. If the process dies, the next opener may
/// end this writer, even in a store that does not show which writers are alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransientOpen {
    /// Whether this opener ends another transient writer that did not close. That writer may still
    /// be at work and is fenced then, so a caller that has time waits for its turn first.
    pub ends_others: bool,
}

/// The schema that an opener passes (RFC 0040). The database stores its text; the opener decides
/// whether two texts agree.
#[derive(Clone, Debug)]
pub struct OpenSchema {
    /// First line of the text: the columns of the key.
    pub keys: String,
    /// The whole text.
    pub text: Bytes,
    /// Returns `Ok` if the first schema, that of a database, is the one that the second describes;
    /// otherwise Invalid.
    pub agrees: fn(&[u8], &[u8]) -> Result<()>,
}

impl OpenSchema {
    /// # Errors
    /// Invalid if `newest` has other columns, or none.
    fn check(&self, newest: &Manifest) -> Result<()> {
        match &newest.schema {
            Some(recorded) => (self.agrees)(recorded, &self.text),
            None => Err(Error::invalid(
                "the database was created without columns; create the table at another URL",
            )),
        }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            create: true,
            take_over: None,
            transient: None,
            options: Options::default(),
            merge_operator: None,
            schema: None,
            allow_ingest_behind: false,
        }
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("create", &self.create)
            .field("take_over", &self.take_over)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// See [`crate::Database::open`].
pub(crate) async fn writer(
    env: Env,
    mut how: OpenOptions,
    occupancy: Occupancy,
) -> Result<Arc<Writer>> {
    how.options = how.options.on(&*env.store);
    how.options.validate()?;
    let (env, requests) = count(env);
    let env = how.options.caching(env)?;
    let (clock, counted, limit) = (env.clone(), Arc::clone(&requests), how.options.deadline);
    counted.within(&clock, limit, "open", opened(env, requests, how, occupancy)).await
}

async fn opened(
    env: Env,
    requests: Arc<Requests>,
    how: OpenOptions,
    occupancy: Occupancy,
) -> Result<Arc<Writer>> {
    let began = env.clock.monotonic();
    let objects = Objects { env: env.clone(), limit: how.options.deadline };
    let settings = settings(&how);
    let then = if how.create { CommitAfter::EditOrCreate } else { CommitAfter::Edit };
    let mut look = ManifestRequests::before(&objects, then);
    let newest = match look_or_left(&objects, &mut look).await? {
        Ok(newest) => newest,
        Err(left) if how.create => {
            let schema = how.schema.as_ref().map(|schema| schema.text.clone());
            let made = (schema, how.allow_ingest_behind);
            new_database::create(&objects, &mut look, settings.clone(), made, left).await?
        }
        Err(_) => {
            let lost = lost_first(&objects).await?;
            return Err(lost.unwrap_or_else(|| no_database_to_write(&env)));
        }
    };
    check_writable(&newest)?;
    how.schema.as_ref().map_or(Ok(()), |schema| schema.check(&newest))?;
    newest.settings.check(&settings)?;
    check_behind(&newest, how.allow_ingest_behind)?;
    gate::check_changes(&newest)?;
    unlogged::check_consumers(&newest, &how.options)?;
    // Before the claim, which ends the writer that is there.
    objects.check_log().await?;
    let presence = env.store.place().occupy(newest.database, how.take_over == Some(true)).await?;
    occupancy.begin(presence)?;
    let (pin, next_pin) = (CheckpointId(env.random_u128()), CheckpointId(env.random_u128()));
    let created_at = env.clock.now();
    let options = WriterOptions {
        claim: AttemptId(env.random_u128()),
        max_parallel_writes: how.options.max_parallel_writes,
        take_over: how.take_over.unwrap_or(true),
        transient: how.transient.is_some(),
        ends_transient: how.transient.is_none_or(|how| how.ends_others),
        reserve: new_names(&env, RESERVED_NAMES),
        checkpoint: Some(NewCheckpoint { id: pin, created_at, ..NewCheckpoint::default() }),
        merge_operator: settings.merge_operator.clone(),
        cut: None,
    };
    let before = (newest.writer_epoch, newest.closed_cleanly());
    let (recovered, bodies) = Opening::new(&objects, newest, options).after(look).drive().await?;
    tell_take_over(&recovered, before);
    let version = claimed_version(&objects, &recovered, pin).await?;
    let version = Version { version, pin, next_pin };
    let found = OpenFindings { recovered, version, occupancy, began };
    start(env, requests, how, objects, found, &bodies).await
}

/// Logs that this writer has ended a writer that did not close cleanly; `before` is its epoch.
fn tell_take_over(recovered: &Recovered, (before, clean): (Epoch, bool)) {
    if !clean {
        let epoch = recovered.epoch;
        log::info!(target: TARGET, "event=writer_takes_over epoch={epoch} before={before}");
    }
}

/// Logs how much of the log was replayed.
fn tell_replay(
    objects: usize,
    bodies: &BTreeMap<WalId, WalObject>,
    replayed: &ReplayResult,
    took: Duration,
) {
    let bytes: usize = bodies.values().map(WalObject::record_bytes).sum();
    let (seq, seconds) = (replayed.last_seq, took.as_secs_f64());
    log::info!(
        target: TARGET,
        "event=log_replayed objects={objects} bytes={bytes} seq={seq} seconds={seconds:.3}"
    );
}

/// Checks that the database was created for ingest jobs that come behind, if `asked`.
fn check_behind(newest: &Manifest, asked: bool) -> Result<()> {
    if !asked || newest.behind.is_some() {
        return Ok(());
    }
    Err(not_made_for_it())
}

/// The findings of an opening.
struct OpenFindings {
    recovered: Recovered,
    version: Version,
    occupancy: Occupancy,
    /// Time at which the opening began.
    began: Duration,
}

/// The version with which the writer's tree begins, and its checkpoint.
struct Version {
    version: Arc<Manifest>,
    pin: CheckpointId,
    next_pin: CheckpointId,
}

/// The version that the checkpoint of the claim names. This is the claim itself, even if a
/// compactor has committed since.
async fn claimed_version(
    objects: &Objects,
    recovered: &Recovered,
    pin: CheckpointId,
) -> Result<Arc<Manifest>> {
    let state = &recovered.manifest;
    let claimed = state.checkpoint(pin).map_or(state.id, |one| one.manifest_id);
    if claimed == state.id {
        return Ok(Arc::clone(state));
    }
    let version = objects.manifest(claimed).await?;
    // The version is pinned, so only a writer that took over can have removed it.
    version.ok_or_else(|| Failure::Fenced { by: None }.into())
}

/// The settings of this opener, to be recorded or checked.
fn settings(how: &OpenOptions) -> Settings {
    Settings {
        codec: how.options.codec().as_str().to_owned(),
        filter: FILTER.to_owned(),
        merge_operator: how.merge_operator.as_ref().map(|operator| operator.name().to_owned()),
        key_schema: how.schema.as_ref().map(|schema| schema.keys.clone()),
    }
}

/// The result of a replay.
struct ReplayResult {
    active: Arc<Memtable>,
    frozen: Vec<Arc<Memtable>>,
    queued: Vec<Arc<QueuedIngest>>,
    last_seq: Seq,
    /// The latest commit time of the replayed objects and of the tables.
    commit_time: UnixMillis,
    unflushed: VecDeque<UnflushedWal>,
}

/// As [`put_back`], but reports Fenced instead of Corruption if another writer has taken over: that
/// writer may have flushed the log, and a collector may have deleted it.
async fn replay(
    objects: &Objects,
    recovered: &Recovered,
    bodies: &BTreeMap<WalId, WalObject>,
    (options, began): (&Options, Duration),
    budget: &Arc<MetadataBudget>,
) -> Result<ReplayResult> {
    let most = options.l0_sst_size_bytes;
    let met = match put_back(objects, recovered, bodies, most, budget).await {
        Ok(replayed) => {
            if !recovered.replay.is_empty() {
                let took = objects.env.clock.monotonic().saturating_sub(began);
                tell_replay(recovered.replay.len(), bodies, &replayed, took);
            }
            return Ok(replayed);
        }
        Err(error) if error.kind() == ErrorKind::Corruption => error,
        Err(error) => return Err(error),
    };
    match look(objects, Some(Arc::clone(&recovered.manifest))).await {
        Ok(Some(newest)) if newest.writer_epoch > recovered.epoch => {
            Err(Failure::Fenced { by: Some(newest.writer_epoch) }.into())
        }
        Ok(_) => Err(met),
        // Without the manifest it is unknown whether this is damage. A later attempt may tell.
        Err(error) => Err(error.caused_by(met)),
    }
}

/// Puts the recovered batches into memtables and queues the ingests between them. Skips rows that
/// are in tables already (rule N4).
async fn put_back(
    objects: &Objects,
    recovered: &Recovered,
    bodies: &BTreeMap<WalId, WalObject>,
    memtable_bytes: usize,
    budget: &Arc<MetadataBudget>,
) -> Result<ReplayResult> {
    let flushed = recovered.manifest.flushed_seq;
    let mut replayed = ReplayResult {
        active: Arc::new(Memtable::new()),
        frozen: Vec::new(),
        queued: Vec::new(),
        last_seq: flushed,
        commit_time: recovered.manifest.commit_time,
        unflushed: VecDeque::new(),
    };
    for (id, _) in &recovered.replay {
        let body =
            bodies.get(id).ok_or_else(|| Error::internal("a replayed WAL object was not kept"))?;
        if let Some(last) = insert_rows(&replayed.active, body, flushed, replayed.last_seq)? {
            replayed.last_seq = last;
        }
        replayed.commit_time = replayed.commit_time.max(body.sent.at);
        replayed.unflushed.push_back(UnflushedWal { last_seq: body.last_seq, next: id.next() });
        let ingest = ingest_of(body, flushed, replayed.last_seq)?;
        // No memtable spans an ingest (rule Q1).
        let full = replayed.active.bytes() >= memtable_bytes || ingest.is_some();
        if full && !replayed.active.is_empty() {
            let full = std::mem::replace(&mut replayed.active, Arc::new(Memtable::new()));
            replayed.frozen.insert(0, full);
        }
        if let Some(ingest) = ingest {
            replayed.last_seq = ingest.last_seq();
            replayed.queued.insert(0, QueuedIngest::of_log(objects, ingest, budget).await?);
        }
    }
    // The last position is past all objects and past the gap of this writer's fence.
    let next = recovered.fence.next_id;
    replayed.unflushed.push_back(UnflushedWal { last_seq: Seq::NONE, next });
    Ok(replayed)
}

async fn start(
    env: Env,
    requests: Arc<Requests>,
    how: OpenOptions,
    objects: Objects,
    found: OpenFindings,
    bodies: &BTreeMap<WalId, WalObject>,
) -> Result<Arc<Writer>> {
    let OpenFindings { recovered, version, occupancy, began } = found;
    let Version { version, pin, next_pin } = version;
    let options = how.options;
    let budget = MetadataBudget::new(options.metadata_cache_bytes);
    let replayed = replay(&objects, &recovered, bodies, (&options, began), &budget).await?;
    let operator = brought(how.merge_operator);
    let context = ReadContext::of_writer(&env, &requests, &options, operator, recovered.epoch);
    take_up(&recovered.manifest, &context);
    let (pins_nudge, ingest_nudge) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let levels = Levels::of_manifest(&version, &Levels::default(), &budget)?;
    let levels = Arc::new(levels.noticed_by(&pins_nudge));
    let first = recovered.fence.next_id;
    let window =
        WalWindow::new(recovered.epoch, first, options.max_parallel_writes, rules::in_force());
    let durability = Arc::new(Durability::new(replayed.last_seq));
    let pressure = Pressure::new(&options);
    let garbage = Garbage::new(requests, Arc::clone(&env.clock), &options);
    let observer = WriterObserver {
        env: env.clone(),
        durability: Arc::clone(&durability),
        pressure: Arc::clone(&pressure),
        garbage: Arc::clone(&garbage),
        checkpoints: Arc::clone(&pins_nudge),
        ingests: Arc::clone(&ingest_nudge),
        has_log: options.writes.wal_enabled,
    };
    let observer = observer.begins(&recovered.manifest);
    let writer = Writer::new(OpenedState {
        env,
        occupancy,
        epoch: recovered.epoch,
        database: recovered.manifest.database,
        timeline: recovered.manifest.timelines.last().map(|one| one.id),
        fences: recovered.keep.clone(),
        fences_met: recovered.keep.len() + recovered.waived.len(),
        large: LargeBatches::new(recovered.manifest.left.clone(), recovered.fence),
        first_wal: first,
        manifests: ManifestClient::new(objects, Arc::clone(&recovered.manifest), observer),
        pressure,
        garbage,
        durability,
        context,
        budget,
        pins: TreePins::new((pin, next_pin), version, &levels),
        levels,
        pins_nudge,
        ingest_nudge,
        active: replayed.active,
        frozen: replayed.frozen,
        queued: replayed.queued,
        last_seq: replayed.last_seq,
        commit_time: replayed.commit_time,
        unflushed_wal: replayed.unflushed,
        options,
    });
    writer.request_lost().await?;
    run_tasks(&writer, window);
    Ok(writer)
}

/// The tables of the tree; `None` once the writer has ended or is closed.
fn open_levels(writer: &Writer) -> Option<Arc<Levels>> {
    let has_ended = writer.dead().is_some() || close::ended(writer).is_some();
    (!has_ended).then(|| Arc::clone(&writer.tree().levels))
}

/// Logs each clone that is not at its place, until the writer ends: its pin retains tables until it
/// is released.
async fn tell_of_lost_clones(writer: Weak<Writer>, objects: Objects, state: Arc<Manifest>) {
    for clone in LostClone::candidates(&state).take(CLONES_TO_FIND) {
        let is_lost = clone.is_lost(&objects).await;
        let Some(writer) = writer.upgrade().filter(|writer| close::ended(writer).is_none()) else {
            return;
        };
        if is_lost && writer.manifests.newest_known().checkpoint(clone.pin).is_some() {
            log::warn!(
                target: TARGET,
                "event=clone_lost clone={} place={:?} pin={}; its pin retains tables: if the clone \
                 was removed, release the pin (release_clone); if it was moved, move it back",
                clone.clone,
                clone.place,
                clone.pin,
            );
        }
    }
}

/// Starts the background tasks. The death of a supervised task ends the writer; the deaths of the
/// compactor and the collector do not.
fn run_tasks(writer: &Arc<Writer>, window: WalWindow) {
    let wal = WalTask::new(writer, window);
    writer.supervise("wal", wal.run());
    writer.supervise("flush", flush::run(Arc::clone(writer)));
    writer.supervise("pins", checkpoint::run(Arc::clone(writer)));
    writer.supervise("pressure", stalls::watch(Arc::clone(writer)));
    writer.supervise("ingest", ingest::run(Arc::clone(writer)));
    if writer.options.embedded_compactor {
        let (scheduler, owned) = (compactor::run(Arc::clone(writer)), Arc::clone(writer));
        writer.spawn_watched("compactor", scheduler, move |died| owned.compactor.died(died));
    }
    if writer.options.embedded_gc {
        let (collector, owned) = (collector::run(Arc::clone(writer)), Arc::clone(writer));
        writer.spawn_watched("collector", collector, move |died| owned.collector.fails(died));
    }
    let objects = Objects { env: writer.env.clone(), limit: writer.options.deadline };
    let clones =
        tell_of_lost_clones(Arc::downgrade(writer), objects, writer.manifests.newest_known());
    writer.spawn_watched("clones", clones, |_| ());
    if let Some(span) = writer.options.mirrored(&writer.env) {
        let asked = Arc::clone(&writer.context.asked);
        let mirrors =
            mirror::run(Arc::downgrade(writer), writer.context.clone(), span, open_levels);
        writer.spawn_watched("mirror", mirrors, move |died| asked.mirror.dies(died));
    }
}
