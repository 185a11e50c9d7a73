//! The flush task: frozen memtables become tables of L0, straight from memory.
//!
//! Build and upload may run ahead of durability; the manifest names a table only once everything
//! in it is durable, and only together with the replay point that no longer needs its WAL objects.

use super::life::Phase;
use super::state::Writer;
use crate::io::env::Env;
use crate::read::queue::QueuedIngest;
use crate::tables::of_memtable::TableInProgress;
use siltstone_base::{
    AttemptId, Envelope, ObjectId, ObjectKind, ObjectName, Result, Seq, SstDescriptor, SstId,
    UnixMillis,
};
use siltstone_manifest::compaction::filter_bits_of_flush;
use siltstone_manifest::{Edit, FlushL0, InstallBatch, InstallIngest, Refusal};
use siltstone_memtable::Memtable;
use siltstone_sst::TableOptions;
use siltstone_sst::wal::WalBrings;
use std::sync::Arc;
use std::time::Duration;

/// Table names that stay reserved ahead: a flush never waits for a name.
pub(crate) const RESERVED_NAMES: usize = 4;
/// Pause after a failed flush; it doubles up to the second: what fails may be a table's last byte,
/// and all of it is built again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Time between two looks at the age of the memtable. Rows that are present at two looks are
/// flushed, so no row waits for a table longer than twice this: recovery, and consumers of the feed
/// that hold the log, have a bound in time and not only in bytes.
const AGE_LOOK_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// A frozen memtable on its way into L0. Everything that decides the table's bytes is fixed here:
/// an upload that is repeated, or that lands late, writes the very same bytes under the name.
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
    /// When the age of the memtable is looked at next, by the monotonic clock.
    next_age_look: Duration,
    /// The first row of the memtable at the last look.
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
                flusher.let_go_of_names().await;
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
            // The memtables stay; whoever writes meets pressure, whoever waits meets its deadline,
            // or hears at once of a permission that is lacking.
            Err(error) => {
                writer.pressure.tell(&error);
                writer.env.clock.sleep(writer.env.jittered(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    writer.set_phase(Phase::Done);
}

/// Whether neither a memtable nor an ingest waits. A tree that is held over a wait keeps all that
/// it reads.
fn has_nothing_to_flush(writer: &Writer) -> bool {
    let tree = writer.tree();
    tree.frozen.is_empty() && tree.queued().is_empty()
}

/// Whether something up to `last` waits to be flushed.
fn waits(writer: &Writer, last: Seq) -> bool {
    let tree = writer.tree();
    let pending = |m: &Arc<Memtable>| m.first_seq().is_some_and(|first| first <= last);
    tree.frozen.iter().any(pending) || tree.queued().iter().any(|ingest| ingest.first <= last)
}

impl Flusher {
    /// Freezes the memtable if its first row was there at the last look already. Returns the time
    /// until the next look.
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

    /// Keeps `l0_manifest_commit_interval` between manifests, unless closing, memory is short, an
    /// ingest waits for room, or somebody asked for the flush.
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

    /// Waits while L0 is full, unless closing or somebody asked for the flush (RFC 0022): the
    /// memtables stay, and the WAL has their rows.
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

    /// Whether the oldest element is flushed at once, however full L0 is.
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

    /// Builds a table of every frozen memtable, oldest first, and commits them together, with the
    /// ingests that are queued among them.
    async fn flush_frozen(&mut self) -> Result<()> {
        self.plan()?;
        let ingests = self.ready_ingests();
        let none = self.plans.is_empty() && ingests.is_empty();
        if none && self.writer.pressure.l0_layers_left() == 0 && !self.passes() {
            return Ok(());
        }
        if none {
            // Names ran out: many flushes came at once.
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
        // A row in the tree that the log lacks would survive a crash that a row before it does
        // not.
        self.writer.commit_at(flushed_seq).wait(None).await?;
        let mut pins = self.writer.pins.lock().await;
        let edit = self.edit(flushed_seq, &ingests);
        let gone = edit.let_go.clone();
        let levels = self.writer.commit_pinned(&mut pins, edit).await?;
        self.writer.large.are_gone(&gone);
        for built in self.plans.iter().filter_map(|plan| plan.built.as_ref()) {
            self.writer.flushes.add(built.object_bytes);
        }
        let memtables: Vec<_> = self.plans.drain(..).map(|plan| plan.memtable).collect();
        self.writer.install_flush(&memtables, &ingests, &levels);
        drop(pins);
        self.writer.log.forget(flushed_seq);
        Ok(())
    }

    /// As the handle closes: names of large batches that came to nothing, this writer's and older
    /// ones', go where no flush came by to let them go. All that was recovered is in tables, so
    /// nobody replays anything below the own fence. What fails is the next writer's.
    async fn let_go_of_names(&self) {
        let writer = &self.writer;
        let newest = writer.manifests.newest_known();
        let flushed = newest.flushed_seq;
        if !writer.large.has_left() || writer.dead().is_some() || !writer.log.is_flushed(flushed) {
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

    /// Gives every frozen memtable without a plan one, as far as reserved names go.
    ///
    /// # Errors
    /// Fenced when the newest state that is known is a newer writer's: what it reserves is that
    /// one's. *The run that breaks without it:* a look learns of the successor's claim, and before
    /// the handle ends the next flush uploads under a name that the successor uploads under too.
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

    /// Ingests, the oldest first, below which every memtable has a plan (rule Q2).
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
        FlushL0 {
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

    /// A job at its place among the plans.
    fn job(&self, ingest: &QueuedIngest) -> Option<InstallIngest> {
        let WalBrings::Job { job, digest } = &ingest.brings else { return None };
        let (job, digest, layers) = (*job, digest.clone(), ingest.layers.clone());
        Some(InstallIngest { after: self.older_than(ingest), job, digest, layers })
    }

    /// A large batch, likewise.
    fn batch(&self, ingest: &QueuedIngest) -> Option<InstallBatch> {
        let WalBrings::Tables(_) = &ingest.brings else { return None };
        let tables = ingest.layers.concat();
        Some(InstallBatch { after: self.older_than(ingest), tables })
    }

    fn older_than(&self, ingest: &QueuedIngest) -> usize {
        self.plans.iter().filter(|plan| plan.last_seq < ingest.first).count()
    }
}

/// Fresh names to reserve (protocol rule R1).
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
    // An upload that is repeated must be the same bytes.
    let operator = writer.context.operator().filter(|operator| operator.is_repeatable());
    let options = TableOptions {
        filter_bits_per_key: plan.filter_bits_per_key,
        ..writer.options.table_options()
    };
    let table = TableInProgress::new(&plan.memtable, envelope, options, plan.now, operator)?;
    table.stream(env, upload).await
}

/// Freezes the memtable and waits until everything up to now is in tables.
pub(crate) async fn everything(writer: &Arc<Writer>) -> Result<()> {
    let last = {
        let mut tail = writer.tail.lock();
        writer.freeze(&mut tail);
        tail.next_seq.minus(1)
    };
    flushed(writer, last).await
}

/// Has everything up to `last`, which no memtable spans, flushed, and waits for that.
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
