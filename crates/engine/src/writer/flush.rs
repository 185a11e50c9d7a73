//! The flush task: writes frozen memtables as tables of L0.
//!
//! Tables may be built and uploaded before their rows are durable in the log. The manifest must
//! name a table only once all of its rows are durable, and together with the replay point that no
//! longer needs their WAL objects.

use super::life::Phase;
use super::state::Writer;
use crate::read::queue::QueuedIngest;
use crate::tables::flush::TableInProgress;
use siltstone_base::{
    AttemptId, Envelope, ObjectId, ObjectKind, ObjectName, Result, Seq, SstDescriptor, SstId,
    UnixMillis,
};
use siltstone_manifest::compaction::filter_bits_of_flush;
use siltstone_manifest::{Edit, FlushL0, InstallBatch, InstallIngest, Refusal};
use siltstone_memtable::Memtable;
use siltstone_sst::TableOptions;
use siltstone_sst::wal::WalIngestContent;
use siltstone_store::env::Env;
use std::sync::Arc;
use std::time::Duration;

/// Number of names reserved in advance, so that a flush never waits for a name.
pub(crate) const RESERVED_NAMES: usize = 4;
/// Pause after a failed flush. It doubles up to `LONGEST_PAUSE`, because a failure at the last byte
/// of a table means that the whole table is built again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Time between two checks of the memtable's age. Rows that are present at two checks are flushed,
/// so each row is in a table after at most twice this time. Recovery, and the log that consumers of
/// the feed retain, are thereby bounded in time and not only in bytes.
const AGE_LOOK_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// A frozen memtable that becomes a table of L0. The plan fixes everything that decides the bytes
/// of the table, so a repeated or late upload writes the same bytes under the name.
pub(super) struct Plan {
    pub(super) memtable: Arc<Memtable>,
    pub(super) last_seq: Seq,
    pub(super) name: SstId,
    pub(super) attempt: AttemptId,
    pub(super) now: UnixMillis,
    pub(super) filter_bits_per_key: u32,
    /// Set once the table is in the store.
    pub(super) built: Option<SstDescriptor>,
}

struct Flusher {
    writer: Arc<Writer>,
    /// Oldest first.
    plans: Vec<Plan>,
    last_commit: Option<Duration>,
    /// Time of the next check of the memtable's age, by the monotonic clock.
    next_age_look: Duration,
    /// The first row of the memtable at the last check.
    aging: Option<Seq>,
}

/// Runs until the handle has ended.
pub(crate) async fn run(writer: Arc<Writer>) {
    let mut flusher = Flusher {
        writer: Arc::clone(&writer),
        plans: vec![],
        last_commit: None,
        next_age_look: writer.env.clock.monotonic() + AGE_LOOK_INTERVAL,
        aging: None,
    };
    let mut pause = RETRY_PAUSE;
    loop {
        let nudged = writer.nudges.flush.notified();
        if writer.dead().is_some() {
            break;
        }
        if has_nothing_to_flush(&writer) {
            if writer.life.phase() >= Phase::DrainFlush {
                flusher.release_names().await;
                break;
            }
            let until_look = flusher.freeze_aged();
            let look = writer.env.clock.sleep(until_look);
            futures::future::select(std::pin::pin!(nudged), look).await;
            continue;
        }
        flusher.pause_between_commits().await;
        flusher.wait_for_l0().await;
        match flusher.flush_frozen().await {
            Ok(()) => {
                flusher.last_commit = Some(writer.env.clock.monotonic());
                pause = RETRY_PAUSE;
            }
            Err(error) if !error.kind().may_pass() => writer.end(&error),
            // Keep the memtables. Writes meet back-pressure, and waiting callers meet their
            // deadline or, if a permission is missing, an immediate error.
            Err(error) => {
                writer.pressure.tell(&error);
                if !writer.options.writes.wal_enabled && !error.kind().is_transient() {
                    writer.durability.trouble(error.clone());
                }
                writer.env.clock.sleep(writer.env.jittered(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    writer.set_phase(Phase::Done);
}

/// Whether there is neither a memtable nor an ingest to flush. The tree is not held across a wait,
/// because it would keep everything that it reads.
fn has_nothing_to_flush(writer: &Writer) -> bool {
    let tree = writer.tree();
    tree.frozen.is_empty() && tree.queued().is_empty()
}

/// Whether anything up to `last` is not flushed yet.
fn waits(writer: &Writer, last: Seq) -> bool {
    let tree = writer.tree();
    let pending = |m: &Arc<Memtable>| m.first_seq().is_some_and(|first| first <= last);
    tree.frozen.iter().any(pending) || tree.queued().iter().any(|ingest| ingest.first <= last)
}

impl Flusher {
    /// Freezes the memtable if its first row was present at the last check. Returns the time until
    /// the next check.
    fn freeze_aged(&mut self) -> Duration {
        let writer = &self.writer;
        let now = writer.env.clock.monotonic();
        if now >= self.next_age_look {
            self.next_age_look = now + AGE_LOOK_INTERVAL;
            let mut tail = writer.tail.lock();
            let first = tail.active.first_seq();
            if first.is_some() && first == self.aging {
                writer.freeze(&mut tail);
            }
            self.aging = tail.active.first_seq();
        }
        self.next_age_look - now
    }

    /// Waits for `l0_manifest_commit_interval` between manifests. The wait ends early if the writer
    /// closes, if memory is short, if an ingest waits for room, or if a caller requested the flush.
    async fn pause_between_commits(&self) {
        let writer = &self.writer;
        let Some(last) = self.last_commit else { return };
        let due = last + writer.options.l0_manifest_commit_interval;
        loop {
            let nudged = std::pin::pin!(writer.nudges.flush.notified());
            let now = writer.env.clock.monotonic();
            let unflushed = writer.tail.lock().unflushed_bytes();
            let short = unflushed >= writer.options.max_memtable_bytes / 2;
            let short = short || writer.flushes.is_awaited();
            if now >= due || short || self.passes() || writer.dead().is_some() {
                return;
            }
            futures::future::select(nudged, writer.env.clock.sleep(due - now)).await;
        }
    }

    /// Waits while L0 is full, unless the writer closes or a caller requested the flush (RFC 0022).
    /// The memtables stay in memory, and the WAL has their rows.
    async fn wait_for_l0(&self) {
        let writer = &self.writer;
        loop {
            let mut relief = std::pin::pin!(writer.pressure.relief.notified());
            relief.as_mut().enable();
            let nudged = std::pin::pin!(writer.nudges.flush.notified());
            let full = writer.pressure.l0_layers_left() == 0 && !self.passes();
            if !full || writer.dead().is_some() {
                return;
            }
            futures::future::select(nudged, relief).await;
        }
    }

    /// Whether the oldest memtable or ingest is flushed now, even if L0 is full.
    fn passes(&self) -> bool {
        let writer = &self.writer;
        let tree = writer.tree();
        let oldest = tree.frozen.last().and_then(|memtable| memtable.first_seq());
        let queued = tree.queued().last().map(|ingest| ingest.first);
        let asked = writer.flushes.asked();
        writer.life.phase() != Phase::Open
            || oldest.is_some_and(|first| first <= asked)
            || queued.is_some_and(|first| first <= asked)
    }

    /// Builds a table of each frozen memtable, oldest first, and commits the tables together with
    /// the ingests that are queued between them.
    async fn flush_frozen(&mut self) -> Result<()> {
        self.plan()?;
        let ingests = self.ready_ingests();
        let none = self.plans.is_empty() && ingests.is_empty();
        if none && self.writer.pressure.l0_layers_left() == 0 && !self.passes() {
            return Ok(());
        }
        if none {
            // The reserved names are used up by many flushes at once.
            let names = new_names(&self.writer.env, RESERVED_NAMES);
            let edit = Edit::ReserveNames { epoch: self.writer.epoch, names };
            return self.writer.manifests.commit(edit).await.map(|_| ());
        }
        for plan in &mut self.plans {
            if plan.built.is_none() {
                plan.built = Some(build(&self.writer, plan).await?);
            }
        }
        let ingested = ingests.last().map(|newest| newest.last).unwrap_or_default();
        let flushed_seq = self.plans.last().map_or(ingested, |last| last.last_seq.max(ingested));
        let logs = self.writer.options.writes.wal_enabled;
        if logs {
            // Wait until the log is durable. Otherwise a crash could keep a row in a table and lose
            // an earlier row of the log (rule N1). Without a WAL, tables come in the order of their
            // rows, so a crash loses no earlier row.
            self.writer.commit_at(flushed_seq).wait(None).await?;
        }
        let mut pins = self.writer.pins.lock().await;
        let edit = self.edit(flushed_seq, &ingests);
        let gone = edit.let_go.clone();
        let levels = self.writer.commit_pinned(&mut pins, edit).await?;
        self.writer.large.mark_released(&gone);
        for built in self.plans.iter().filter_map(|plan| plan.built.as_ref()) {
            self.writer.flushes.add(built.object_bytes);
        }
        let memtables: Vec<_> = self.plans.drain(..).map(|plan| plan.memtable).collect();
        if !logs {
            // Before the tables replace the memtables: they have the newest version of a key alone,
            // so a read at the durable state before them would miss older ones.
            self.writer.durability.advance(flushed_seq);
        }
        self.writer.install_flush(&memtables, &ingests, &levels);
        drop(pins);
        self.writer.log.forget(flushed_seq);
        Ok(())
    }

    /// On close: releases the names of failed large batches, of this writer and of older ones, if
    /// no flush has released them. All recovered rows are in tables, so no writer replays the log
    /// below this writer's fence. After a failure the next writer releases the names.
    async fn release_names(&self) {
        let writer = &self.writer;
        let newest = writer.manifests.newest_known();
        let flushed = newest.flushed_seq;
        if !writer.large.has_unreleased()
            || writer.dead().is_some()
            || !writer.log.is_flushed(flushed)
        {
            return;
        }
        let point = writer.log.replay_point(flushed).unwrap_or_default();
        let replay_from = newest.replay_from.max(writer.large.begins()).max(point);
        let edit = FlushL0 {
            let_go: writer.large.to_let_go(replay_from),
            replay_from,
            commit_time: writer.log.commit_time(),
            wal_id_last_seen: newest.wal_id_last_seen.max(writer.log.last_committed()),
            fences: writer.fences.clone(),
            floor: writer.floor(),
            ..FlushL0::nothing(writer.epoch, &newest)
        };
        let _ = writer.manifests.commit(Edit::FlushL0(edit)).await;
    }

    /// Plans a table for each frozen memtable without a plan, as far as reserved names suffice.
    ///
    /// # Errors
    /// Fenced if the newest known manifest belongs to a newer writer, because its reserved names
    /// are that writer's. *The run that breaks without it:* this writer learns of its successor's
    /// claim. Before the handle ends, the next flush uploads under a name that the successor
    /// uploads under too.
    fn plan(&mut self) -> Result<()> {
        let writer = &self.writer;
        let newest = writer.manifests.newest_known();
        if newest.writer_epoch != writer.epoch {
            return Err(Refusal::Fenced { by: newest.writer_epoch }.into());
        }
        let mut free =
            newest.reserved.iter().copied().filter(|n| self.plans.iter().all(|p| p.name != *n));
        let mut added = Vec::new();
        let left = writer.pressure.l0_layers_left();
        let asked = writer.flushes.asked();
        for memtable in writer.tree().frozen.iter().rev() {
            if self.plans.iter().any(|plan| Arc::ptr_eq(&plan.memtable, memtable)) {
                continue;
            }
            let passes = writer.life.phase() != Phase::Open
                || memtable.first_seq().is_some_and(|first| first <= asked);
            if !passes && self.plans.len() + added.len() >= left {
                break;
            }
            let (Some(name), Some(last_seq)) = (free.next(), memtable.last_seq()) else { break };
            let (bytes, bits) = (memtable.bytes() as u64, writer.options.filter_bits_per_key);
            added.push(Plan {
                memtable: Arc::clone(memtable),
                last_seq,
                name,
                attempt: AttemptId(writer.env.random_u128()),
                now: writer.env.clock.now(),
                filter_bits_per_key: filter_bits_of_flush(&newest, bytes, bits),
                built: None,
            });
        }
        drop(free);
        self.plans.extend(added);
        Ok(())
    }

    /// Queued ingests, oldest first, for which every older memtable has a plan (rule Q2).
    fn ready_ingests(&self) -> Vec<Arc<QueuedIngest>> {
        let tree = self.writer.tree();
        let planned = |memtable: &&Arc<Memtable>| {
            self.plans.iter().any(|plan| Arc::ptr_eq(&plan.memtable, memtable))
        };
        let waits = tree.frozen.iter().rev().find(|memtable| !planned(memtable));
        let waits = waits.and_then(|memtable| memtable.first_seq()).unwrap_or(Seq::MAX);
        let queued = tree.queued().iter().rev();
        queued.take_while(|ingest| ingest.last < waits).cloned().collect()
    }

    fn edit(&self, flushed_seq: Seq, ingests: &[Arc<QueuedIngest>]) -> FlushL0 {
        let writer = &self.writer;
        let built = self.plans.iter().filter_map(|plan| plan.built.clone());
        let newest = writer.manifests.newest_known();
        let replay_from = writer.log.replay_point(flushed_seq).unwrap_or(newest.replay_from);
        let logs = writer.options.writes.wal_enabled;
        if !logs {
            // No object of the log gives these rows a commit time.
            writer.log.next_commit_time(writer.env.clock.now());
        }
        FlushL0 {
            unlogged: !logs && flushed_seq > writer.opened_at,
            layers: built.map(|table| vec![table]).collect(),
            ingests: ingests.iter().filter_map(|ingest| self.job(ingest)).collect(),
            batches: ingests.iter().filter_map(|ingest| self.batch(ingest)).collect(),
            let_go: writer.large.to_let_go(replay_from),
            replay_from,
            flushed_seq,
            commit_time: writer.log.commit_time(),
            wal_id_last_seen: newest.wal_id_last_seen.max(writer.log.last_committed()),
            fences: writer.fences.clone(),
            reserve: new_names(&writer.env, self.plans.len()),
            floor: writer.floor(),
            ..FlushL0::nothing(writer.epoch, &newest)
        }
    }

    /// The install of a job, at its position among the plans.
    fn job(&self, ingest: &QueuedIngest) -> Option<InstallIngest> {
        let WalIngestContent::Job { job, digest } = &ingest.content else { return None };
        let (job, digest, layers) = (*job, digest.clone(), ingest.layers.clone());
        Some(InstallIngest { after: self.older_than(ingest), job, digest, layers })
    }

    /// The install of a large batch, at its position among the plans.
    fn batch(&self, ingest: &QueuedIngest) -> Option<InstallBatch> {
        let WalIngestContent::Tables(_) = &ingest.content else { return None };
        let tables = ingest.layers.concat();
        Some(InstallBatch { after: self.older_than(ingest), tables })
    }

    fn older_than(&self, ingest: &QueuedIngest) -> usize {
        self.plans.iter().filter(|plan| plan.last_seq < ingest.first).count()
    }
}

/// Creates names to reserve (protocol rule R1).
pub(crate) fn new_names(env: &Env, count: usize) -> Vec<SstId> {
    (0..count).map(|_| SstId(env.new_ulid())).collect()
}

/// Builds and uploads a table.
pub(super) async fn build(writer: &Writer, plan: &Plan) -> Result<SstDescriptor> {
    let env = &writer.env;
    let open = env.store.upload(ObjectName::Compacted(plan.name));
    let upload = env.deadline(writer.options.deadline, "begin upload", open).await?;
    let object = ObjectId(plan.name.get());
    let database = writer.manifests.database();
    let envelope = Envelope::new(ObjectKind::Table, database, object, plan.attempt);
    // Each upload of a name must have the same bytes, so only a repeatable operator may fold here.
    let operator = writer.context.operator().filter(|operator| operator.is_repeatable());
    let options = TableOptions {
        filter_bits_per_key: plan.filter_bits_per_key,
        ..writer.options.table_options()
    };
    let table = TableInProgress::new(&plan.memtable, envelope, options, plan.now, operator)?;
    table.stream(env, upload).await
}

/// Freezes the memtable and waits until all rows accepted so far are in tables.
pub(crate) async fn everything(writer: &Arc<Writer>) -> Result<()> {
    let last = {
        let mut tail = writer.tail.lock();
        writer.freeze(&mut tail);
        tail.next_seq.minus(1)
    };
    flushed(writer, last).await
}

/// Requests the flush of everything up to `last` and waits for it. No memtable spans `last`.
async fn flushed(writer: &Arc<Writer>, last: Seq) -> Result<()> {
    writer.ask_flush(last);
    let began = writer.context.requests.troubles().moment();
    let commit = writer.commit_at(last);
    commit.wait(None).await?;
    loop {
        let mut relief = std::pin::pin!(writer.pressure.relief.notified());
        relief.as_mut().enable();
        if let Some(dead) = writer.dead() {
            return Err(dead);
        }
        if let Some(denied) = writer.context.requests.troubles().denied_since(began) {
            return Err(denied);
        }
        if !waits(writer, last) {
            return Ok(());
        }
        relief.await;
    }
}
