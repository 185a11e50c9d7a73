//! Verifies the WAL from every state's replay point on, by the rules of a replay, including the
//! parts that checkpoints pin and consumers of the change feed hold.
//!
//! A writer may flush, and a collector may free, objects that a walk is about to read. A missing
//! object is therefore read once more. It is a problem only if the newest manifest, read after
//! that, still needs it: replay points only grow, so the object was needed when it was missed.
//! Otherwise the walk continues where the log begins now, or ends if its checkpoint is gone.

use super::ingests::Keeper;
use super::{PARALLEL_OBJECTS, Verify, is_damage};
use crate::manifests::objects::seen;
use futures::StreamExt;
use futures::stream;
use siltstone_base::{CheckpointId, Epoch, ObjectName, Result, Seq, WalId};
use siltstone_manifest::protocol::Hole;
use siltstone_manifest::{KeptFence, Manifest};
use siltstone_sst::wal::{WalBody, WalIngest, WalObject, WalRecord};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The state of an object, kept because walks from several replay points read the same objects.
#[derive(Clone, Debug)]
enum WalObjectState {
    Absent,
    /// Its damage is reported already.
    Damaged,
    Records {
        epoch: Epoch,
        first: Seq,
        last: Seq,
        /// The ingest with which the object ends, if there is one.
        ingest: Option<WalIngest>,
    },
    Fence {
        epoch: Epoch,
        next_id: WalId,
    },
}

/// The purpose of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WalkFor {
    /// The next opening.
    Opening,
    /// Readers at this checkpoint.
    Checkpoint(CheckpointId),
    /// Consumers of the change feed.
    Feed,
}

impl WalkFor {
    /// The holder that needs an ingest that the walk finds at `id`.
    fn keeper(self, id: WalId, ingest: &WalIngest) -> Keeper {
        match self {
            WalkFor::Opening => Keeper::Log(ingest.last_seq()),
            WalkFor::Checkpoint(checkpoint) => Keeper::Checkpoint(checkpoint),
            WalkFor::Feed => Keeper::Feed(id),
        }
    }
}

/// The position of a walk, and what has to follow.
struct Walk {
    /// Objects up to this id must exist.
    needed: WalId,
    /// Last id of the walk; `None` if it ends with the log.
    last: Option<WalId>,
    whom: WalkFor,
    epoch: Option<Epoch>,
    /// The last sequence number so far. The next object must begin with the following one.
    seq: Option<Seq>,
    flushed: Seq,
    /// Whether the first number must follow those in tables.
    seqs_known: bool,
    /// Whether the preceding objects are unknown, so that nothing can be compared with them.
    blind: bool,
}

impl Walk {
    fn go_blind(&mut self) {
        (self.epoch, self.seq, self.blind) = (None, None, true);
    }
}

type MetWal = BTreeMap<WalId, WalObjectState>;

impl Verify<'_> {
    /// Walks the WAL of the newest state to its end, and that of pinned states as far as they
    /// reach.
    pub(super) async fn wal(&mut self, newest: &Arc<Manifest>) -> Result<()> {
        let mut memory = MetWal::new();
        let mut walks = vec![(newest.replay_from, self.walk_of(newest, WalkFor::Opening, None))];
        for checkpoint in newest.checkpoints.iter().filter(|one| one.pins_any_wal()) {
            let pinned = self.states.iter().find(|state| state.id == checkpoint.manifest_id);
            let Some(pinned) = pinned.cloned() else { continue };
            let whom = WalkFor::Checkpoint(checkpoint.id);
            let walk = self.walk_of(&pinned, whom, Some(checkpoint.wal_id_last_seen));
            walks.push((checkpoint.replay_from, walk));
        }
        if let Some(from) = newest.holds.iter().map(|hold| hold.wal_from).min() {
            let last = Some(newest.replay_from.minus(1));
            let mut walk = self.walk_of(newest, WalkFor::Feed, last);
            // Consumers also read rows that are in tables.
            walk.flushed = Seq(0);
            walk.seqs_known = false;
            walks.push((from, walk));
        }
        let mut newest_epoch = Epoch::NONE;
        for (from, mut walk) in walks {
            self.walk(&mut memory, from, &mut walk).await?;
            newest_epoch = newest_epoch.max(walk.epoch.unwrap_or_default());
        }
        self.kept_fences(&mut memory, newest).await?;
        self.newer_writer(newest, newest_epoch).await
    }

    fn walk_of(&self, state: &Manifest, whom: WalkFor, last: Option<WalId>) -> Walk {
        let needed = last.unwrap_or(state.wal_id_last_seen);
        let flushed = state.flushed_seq;
        let (epoch, seq) = (None, None);
        Walk { needed, last, whom, epoch, seq, flushed, seqs_known: true, blind: false }
    }

    /// Whether an object that was listed after `id`, where none was found, proves that one existed
    /// there (rule E3).
    async fn is_proven(&self, id: WalId) -> Result<bool> {
        let behind = (Bound::Excluded(ObjectName::Wal(id)), Bound::Unbounded);
        for name in self.listed.range(behind).rev().map(|(name, _)| *name) {
            let ObjectName::Wal(later) = name else { continue };
            let object = match self.objects.wal(later).await {
                Err(error) if !is_damage(error.kind()) => return Err(error),
                found => found.ok().flatten(),
            };
            let seen = object.map(|object| seen(&object, self.report.database));
            if seen.is_some_and(|seen| Hole::before(id, (later, seen)).is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn walk(&mut self, memory: &mut MetWal, from: WalId, walk: &mut Walk) -> Result<()> {
        let mut at = from;
        let mut ahead: VecDeque<(WalId, Result<Option<WalObject>>)> = VecDeque::new();
        while walk.last.is_none_or(|last| at <= last) {
            let met = match memory.get(&at) {
                Some(met) => met.clone(),
                None => {
                    while ahead.front().is_some_and(|(id, _)| *id < at) {
                        ahead.pop_front();
                    }
                    if ahead.is_empty() {
                        ahead.extend(self.wal_ahead(at).await);
                    }
                    let found = ahead.pop_front().map_or(Ok(None), |(_, found)| found);
                    let met = self.meet(at, found)?;
                    memory.insert(at, met.clone());
                    met
                }
            };
            let absent = matches!(met, WalObjectState::Absent) && !walk.blind;
            if absent && at > walk.needed && walk.last.is_none() && self.is_proven(at).await? {
                walk.needed = at;
            }
            if let WalObjectState::Records { ingest: Some(ingest), .. } = &met
                && ingest.last_seq() > walk.flushed
            {
                self.brought(at, ingest, walk.whom.keeper(at, ingest)).await?;
            }
            let missed = absent && at <= walk.needed;
            let next = match missed {
                true => self.missed(memory, at, walk).await?,
                false => self.step(at, &met, walk),
            };
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok(())
    }

    /// Handles a missing object that the walk needs: it was stored since, is missing, or was freed
    /// meanwhile. Returns where the walk continues, or `None` if nothing needs the object any more.
    async fn missed(
        &mut self,
        memory: &mut MetWal,
        id: WalId,
        walk: &mut Walk,
    ) -> Result<Option<WalId>> {
        let found = self.objects.wal(id).await;
        let met = self.meet(id, found)?;
        memory.insert(id, met.clone());
        if !matches!(met, WalObjectState::Absent) {
            // It exists now.
            return Ok(Some(id));
        }
        let Some(now) = self.newest_now().await? else {
            return Ok(self.step(id, &WalObjectState::Absent, walk));
        };
        match walk.whom {
            WalkFor::Opening if id < now.replay_from => {
                // Listed objects that are skipped here are not orphans.
                let retired = ObjectName::Wal(id)..ObjectName::Wal(now.replay_from);
                self.named.extend(self.listed.range(retired).map(|(name, _)| *name));
                *walk = self.walk_of(&now, WalkFor::Opening, None);
                Ok(Some(now.replay_from))
            }
            WalkFor::Checkpoint(checkpoint) if now.checkpoint(checkpoint).is_none() => Ok(None),
            // The consumer that held it has read further.
            WalkFor::Feed if !Keeper::Feed(id).is_in(&now) => Ok(Some(id.next())),
            _ => Ok(self.step(id, &WalObjectState::Absent, walk)),
        }
    }

    async fn wal_ahead(&self, from: WalId) -> Vec<(WalId, Result<Option<WalObject>>)> {
        let ids = (0..PARALLEL_OBJECTS as u64).map(|n| from.plus(n));
        let reads = ids.map(|id| async move { (id, self.objects.wal(id).await) });
        stream::iter(reads).buffered(PARALLEL_OBJECTS).collect().await
    }

    /// Checks a single object.
    fn meet(&mut self, id: WalId, found: Result<Option<WalObject>>) -> Result<WalObjectState> {
        let name = ObjectName::Wal(id);
        let object = match found {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(WalObjectState::Absent),
            Err(error) if is_damage(error.kind()) => {
                self.named.insert(name);
                self.report.problem(name, None, error);
                return Ok(WalObjectState::Damaged);
            }
            Err(error) => return Err(error),
        };
        self.named.insert(name);
        let bytes = self.listed.get(&name).copied().unwrap_or_default();
        self.report.bytes_read += bytes;
        self.progress.add(bytes);
        self.report.wal_objects += 1;
        self.report.wal_last_id = self.report.wal_last_id.max(id);
        if object.envelope.database != self.report.database {
            self.report.problem(name, None, "belongs to another database");
            return Ok(WalObjectState::Damaged);
        }
        if let WalBody::Fence { next_id } = object.body {
            self.report.fences += 1;
            return Ok(WalObjectState::Fence { epoch: object.epoch, next_id });
        }
        let mut ends_with = None;
        for record in object.records() {
            match record {
                Ok(WalRecord::Batch { ops, .. }) => {
                    self.report.batches += 1;
                    self.report.operations += u64::from(ops);
                }
                Ok(WalRecord::Ingest(ingest)) => ends_with = Some(ingest),
                Err(error) => {
                    self.report.problem(name, None, error);
                    return Ok(WalObjectState::Damaged);
                }
            }
        }
        let (first, last) = (object.first_seq, object.last_seq);
        Ok(WalObjectState::Records { epoch: object.epoch, first, last, ingest: ends_with })
    }

    /// Checks an object against those before it. Returns where the walk continues, or `None` at its
    /// end.
    fn step(&mut self, id: WalId, met: &WalObjectState, walk: &mut Walk) -> Option<WalId> {
        let name = ObjectName::Wal(id);
        match *met {
            WalObjectState::Absent if id <= walk.needed => {
                // After damage this may be the gap of a fence.
                if !walk.blind {
                    self.report.problem(name, None, "is missing, and later objects are known");
                }
                walk.go_blind();
                Some(id.next())
            }
            WalObjectState::Absent => None,
            WalObjectState::Damaged => {
                walk.go_blind();
                Some(id.next())
            }
            WalObjectState::Fence { epoch, next_id } => {
                if walk.epoch.is_some_and(|before| epoch <= before) {
                    self.report.problem(name, None, "a fence of an epoch that has ended");
                }
                walk.epoch = Some(epoch);
                Some(next_id.max(id.next()))
            }
            WalObjectState::Records { epoch, first, last, .. } => {
                if walk.epoch.is_some_and(|before| epoch != before) {
                    let what = "records of an epoch that no fence before them began";
                    self.report.problem(name, None, what);
                }
                walk.epoch = Some(epoch);
                self.follows(name, (first, last), walk);
                Some(id.next())
            }
        }
    }

    /// Checks that sequence numbers continue without a gap: from one object to the next, and from
    /// the tables to the first object.
    fn follows(&mut self, name: ObjectName, (first, last): (Seq, Seq), walk: &mut Walk) {
        if first.is_none() {
            return;
        }
        let right = match walk.seq {
            Some(before) => first == before.next(),
            None => walk.blind || !walk.seqs_known || first <= walk.flushed.next(),
        };
        if !right {
            let before = walk.seq.unwrap_or(walk.flushed);
            let text = format_args!("begins with sequence number {first}, after {before}");
            self.report.problem(name, None, text);
        }
        (walk.seq, walk.blind) = (Some(last), false);
    }

    /// Checks that fences that must never be collected exist and agree with the manifest.
    async fn kept_fences(&mut self, memory: &mut MetWal, newest: &Manifest) -> Result<()> {
        for fence in &newest.kept_fences {
            let KeptFence { id, epoch, next_id } = *fence;
            let name = ObjectName::Wal(id);
            let met = match memory.get(&id) {
                Some(met) => met.clone(),
                None => {
                    let found = self.objects.wal(id).await;
                    let met = self.meet(id, found)?;
                    memory.insert(id, met.clone());
                    met
                }
            };
            let what = match met {
                WalObjectState::Absent if !self.is_kept_now(fence).await? => continue,
                WalObjectState::Absent => "is missing, and the manifest keeps it as a fence",
                WalObjectState::Fence { epoch: is, next_id: goes }
                    if (is, goes) != (epoch, next_id) =>
                {
                    "is not the fence that the manifest keeps"
                }
                WalObjectState::Records { .. } => "holds records where the manifest keeps a fence",
                WalObjectState::Damaged | WalObjectState::Fence { .. } => continue,
            };
            self.report.problem(name, None, what);
        }
        Ok(())
    }

    async fn is_kept_now(&self, fence: &KeptFence) -> Result<bool> {
        let now = self.newest_now().await?;
        Ok(now.is_none_or(|now| now.kept_fences.contains(fence)))
    }

    /// An epoch in the WAL that no manifest knows is damage, unless a writer has just claimed it.
    async fn newer_writer(&mut self, newest: &Manifest, met: Epoch) -> Result<()> {
        if met <= newest.writer_epoch {
            return Ok(());
        }
        let known = self.named_now().await?.into_iter().map(|state| state.writer_epoch).max();
        if met > known.unwrap_or_default() {
            let text = format_args!("holds epoch {met}, which no manifest knows");
            self.report.problem(ObjectName::Wal(self.report.wal_last_id), None, text);
        }
        Ok(())
    }
}
