//! A checkpoint becomes the current state again (RFC 0030, rule S1; C5): every interleaving of two
//! restorers, an opener that writes, a reader that follows, and a collector that revokes, with
//! manifests that land late.

use crate::chain::{self, Chain};
use crate::ingesting;
use crate::search::Model;
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Epoch, JobId, ManifestId, PutOutcome, Seq, SstDescriptor,
    SstId, TimelineId, UnixMillis, WalId,
};
use siltstone_manifest::protocol::{
    Commit, CommitAction, Follow, FollowAction, FollowEvent, ManifestAnswer, ManifestRequest,
    OpenAction, OpenWriter, Recovered, WalListing, WalSeen, WriterOptions,
};
use siltstone_manifest::{
    Edit, FinishCompaction, FlushL0, KeptFence, LogTables, Manifest, NewCheckpoint, Restore, Rule,
    Rules, Settings,
};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

const KEPT: CheckpointId = CheckpointId(7);
/// The table in the checkpoint, and the table that replaced it.
const FIRST: SstId = SstId(14);
const SECOND: SstId = SstId(15);

/// The rules that this model tests.
pub(crate) const DROPPED: [Rule; 5] = [
    Rule::RestoreByEpoch,
    Rule::RestoreFromPresent,
    Rule::RestoreGoesOn,
    Rule::RestoreCutsLog,
    Rule::LookUpNewerEpochs,
];

/// The explored model.
pub(crate) struct Restoring {
    rules: Rules,
    restorers: usize,
    opener: bool,
    reader: bool,
    collector: bool,
    late: u8,
    /// Whether a number that is used twice counts.
    numbers: bool,
}

/// A row of the log, and whether it was written on a restored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Row {
    seq: Seq,
    new: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Actor {
    Restorer(Going),
    Opener(Opening),
    Reader { follow: Follow, rows: Vec<Row>, polls: u8 },
    Collector(Collecting),
    Gone,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Going {
    Open(Box<OpenWriter>, Arc<Manifest>),
    Commit(Commit, Epoch),
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Opening {
    Open(Box<OpenWriter>),
    Put(WalId, Epoch, Row),
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Collecting {
    Revoke(Commit),
    Judge,
    Delete,
}

/// One state.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Room {
    manifests: Chain,
    wal: BTreeMap<WalId, (WalSeen, Option<Row>)>,
    tables: BTreeSet<SstId>,
    actors: Vec<Arc<Actor>>,
    network: Vec<Arc<Manifest>>,
    late: u8,
    broken: Option<&'static str>,
}

impl Room {
    fn newest(&self) -> Arc<Manifest> {
        chain::newest(&self.manifests)
    }

    fn serve(&mut self, request: ManifestRequest) -> ManifestAnswer {
        chain::serve(&mut self.manifests, ManifestId::NONE, request)
    }

    fn seen(&self, id: WalId) -> WalSeen {
        self.wal.get(&id).map_or(WalSeen::Absent, |(seen, _)| *seen)
    }

    fn create(&mut self, id: WalId, seen: WalSeen, row: Option<Row>) -> PutOutcome<WalSeen> {
        match self.wal.get(&id) {
            Some(there) if *there == (seen, row) => PutOutcome::Committed,
            Some((there, _)) => PutOutcome::Lost(*there),
            None => {
                self.wal.insert(id, (seen, row));
                PutOutcome::Committed
            }
        }
    }

    fn list_wal(&self, after: WalId) -> WalListing {
        let later = self.wal.keys().copied().filter(|id| *id > after).collect();
        WalListing { boundary: WalId::NONE, later }
    }

    fn commit(&mut self, edit: Edit) -> Arc<Manifest> {
        let mut commit = Commit::new(edit, self.newest(), Rules::ALL);
        loop {
            match commit.action() {
                CommitAction::Request(request) => commit.on_answer(self.serve(request)),
                CommitAction::Done(state) => return state,
                CommitAction::Failed(refusal) => panic!("the beginning is refused: {refusal:?}"),
            }
        }
    }

    fn step_open(&mut self, open: &mut OpenWriter) -> bool {
        match open.action() {
            OpenAction::Request(request) => open.on_answer(self.serve(request)),
            OpenAction::ReadWal(id) | OpenAction::ReadCutOff(id) => open.on_wal(self.seen(id)),
            OpenAction::ListWal(id) => open.on_wal_listing(&self.list_wal(id)),
            OpenAction::CreateFence(fence) => {
                let outcome = self.create(fence.id, fence_object(fence), None);
                open.on_fence(outcome);
            }
            OpenAction::Done(_) | OpenAction::Failed(_) => {}
        }
        matches!(open.action(), OpenAction::Done(_) | OpenAction::Failed(_))
    }

    /// Rows that the opener replays.
    fn replayed(&self, recovered: &Recovered) -> Vec<Row> {
        let flushed = recovered.manifest.flushed_seq;
        let rows = recovered.replay.iter().filter_map(|(id, _)| self.wal.get(id)?.1);
        rows.filter(|row| row.seq > flushed).collect()
    }

    fn breaks(&mut self, what: &'static str) {
        self.broken.get_or_insert(what);
    }
}

fn fence_object(fence: KeptFence) -> WalSeen {
    WalSeen::Fence { epoch: fence.epoch, next_id: fence.next_id }
}

fn table(id: SstId) -> SstDescriptor {
    SstDescriptor { min_seq: Seq(1), max_seq: Seq(1), ..ingesting::table(id, None) }
}

fn options(claim: u128, reserve: Vec<SstId>) -> WriterOptions {
    WriterOptions {
        claim: AttemptId(claim),
        max_parallel_writes: 1,
        take_over: true,
        reserve,
        ..WriterOptions::default()
    }
}

impl Restoring {
    /// A writer has flushed a row, and a checkpoint pins it; then everything was compacted, another
    /// row was written, and the writer died.
    fn lived(&self) -> Room {
        let first = Arc::new(Manifest::new_database(DatabaseId(1), Settings::default()));
        let mut room = Room {
            manifests: BTreeMap::from([(first.id, Arc::clone(&first))]),
            wal: BTreeMap::new(),
            tables: BTreeSet::from([FIRST, SECOND]),
            actors: Vec::new(),
            network: Vec::new(),
            late: self.late,
            broken: None,
        };
        let mut open = OpenWriter::new(options(100, vec![FIRST]), first, Rules::ALL);
        while !room.step_open(&mut open) {}
        let OpenAction::Done(recovered) = open.action() else { panic!("the writer opens") };
        let from = recovered.fence.next_id;
        room.commit(Edit::FlushL0(FlushL0 {
            layers: vec![vec![table(FIRST)]],
            flushed_seq: Seq(1),
            replay_from: from,
            fences: recovered.fences(),
            ..FlushL0::nothing(recovered.epoch, &recovered.manifest)
        }));
        room.commit(Edit::AddCheckpoint(NewCheckpoint {
            id: KEPT,
            expires_at: Some(UnixMillis(1)),
            wal_id_last_seen: Some(WalId::NONE),
            ..NewCheckpoint::default()
        }));
        let claim = AttemptId(70);
        room.commit(Edit::ClaimCompactor { writer: None, expected: Epoch::NONE, claim });
        let planned_on = room.newest().id;
        room.commit(Edit::FinishCompaction(FinishCompaction {
            epoch: Epoch(1),
            job: JobId(1),
            planned_on,
            remove: vec![FIRST.into()],
            add: vec![table(SECOND)],
            destination: 0,
            retire: Vec::new(),
        }));
        let data = WalSeen::Data { epoch: recovered.epoch, durable: from.minus(1) };
        room.create(from, data, Some(Row { seq: Seq(2), new: false }));
        room
    }

    fn go_back(&self, room: &mut Room, me: usize, going: Going) -> Actor {
        match going {
            Going::Open(mut open, version) => match room.step_open(&mut open) {
                false => Actor::Restorer(Going::Open(open, version)),
                true => match open.action() {
                    OpenAction::Done(recovered) => {
                        let met = room.replayed(&recovered).into_iter().map(|row| row.seq).max();
                        let edit = Edit::Restore(Restore {
                            epoch: recovered.epoch,
                            checkpoint: KEPT,
                            cut: version.flushed_seq,
                            version,
                            log: LogTables::default(),
                            reached: met.unwrap_or_default(),
                            commit_time: UnixMillis(0),
                            fences: recovered.fences(),
                            timeline: TimelineId(500 + me as u128),
                            began_at: UnixMillis(0),
                        });
                        let epoch = recovered.epoch;
                        let commit = Commit::new(edit, recovered.manifest, self.rules);
                        Actor::Restorer(Going::Commit(commit, epoch))
                    }
                    _ => Actor::Gone,
                },
            },
            Going::Commit(mut commit, epoch) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    if let CommitAction::Done(state) = commit.action()
                        && state.restored_at() == state.id
                        && state.writer_epoch != epoch
                    {
                        room.breaks("S1: a restore was committed under another's epoch");
                    }
                    Actor::Restorer(Going::Commit(commit, epoch))
                }
                CommitAction::Done(_) | CommitAction::Failed(_) => Actor::Gone,
            },
        }
    }

    fn open(&self, room: &mut Room, opening: Opening) -> Actor {
        match opening {
            Opening::Open(mut open) => match room.step_open(&mut open) {
                false => Actor::Opener(Opening::Open(open)),
                true => match open.action() {
                    OpenAction::Done(recovered) => {
                        let new = !recovered.manifest.restored_at().is_none();
                        let rows = room.replayed(&recovered);
                        if new && rows.iter().any(|row| !row.new) {
                            room.breaks("S1: undone rows return");
                        }
                        let last = rows.iter().map(|row| row.seq).max().unwrap_or_default();
                        let seq = last.max(recovered.manifest.flushed_seq).next();
                        let row = Row { seq, new };
                        let put = Opening::Put(recovered.fence.next_id, recovered.epoch, row);
                        Actor::Opener(put)
                    }
                    _ => Actor::Gone,
                },
            },
            Opening::Put(id, epoch, row) => {
                let taken = room.wal.values().any(|(_, there)| {
                    there.is_some_and(|there| there.seq == row.seq && there != row)
                });
                let data = WalSeen::Data { epoch, durable: id.minus(1) };
                let committed = room.create(id, data, Some(row)) == PutOutcome::Committed;
                if committed && taken && self.numbers {
                    room.breaks("S1: a number is given twice");
                }
                Actor::Gone
            }
        }
    }

    fn read(room: &mut Room, mut follow: Follow, mut rows: Vec<Row>, mut polls: u8) -> Actor {
        let events = match follow.action() {
            FollowAction::Idle if polls == 0 => return Actor::Gone,
            FollowAction::Idle => {
                polls -= 1;
                follow.poll_log();
                Vec::new()
            }
            FollowAction::Failed(_) => return Actor::Gone,
            FollowAction::Request(request) => follow.on_answer(room.serve(request)),
            FollowAction::ReadWal(id) => follow.on_wal(room.seen(id)),
            FollowAction::ListWal(after) => follow.on_wal_listing(room.list_wal(after)),
            FollowAction::ReadWalBoundary => {
                follow.on_wal_boundary(room.list_wal(WalId::NONE).boundary)
            }
        };
        for event in events {
            match event {
                // It ends there (rule S3).
                FollowEvent::Newer(state) if !state.restored_at().is_none() => return Actor::Gone,
                FollowEvent::StartAgain(state) if !state.restored_at().is_none() => {
                    return Actor::Gone;
                }
                FollowEvent::StartAgain(_) => rows.clear(),
                FollowEvent::Newer(_) => {}
                FollowEvent::Apply(ids) => {
                    let met = ids.iter().filter_map(|id| room.wal.get(id)?.1);
                    rows.extend(met);
                }
            }
        }
        if rows.iter().any(|row| row.new) && rows.iter().any(|row| !row.new) {
            room.breaks("C5: a row of the new history lands on undone ones");
        }
        Actor::Reader { follow, rows, polls }
    }

    fn collect(room: &mut Room, collecting: Collecting) -> Actor {
        let dead = |room: &Room| {
            let newest = room.newest();
            let named = newest.tables().any(|table| table.id == FIRST);
            !named && newest.checkpoint(KEPT).is_none()
        };
        match collecting {
            Collecting::Revoke(mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    Actor::Collector(Collecting::Revoke(commit))
                }
                _ => Actor::Collector(Collecting::Judge),
            },
            Collecting::Judge if dead(room) => Actor::Collector(Collecting::Delete),
            Collecting::Judge => Actor::Gone,
            Collecting::Delete => {
                room.tables.remove(&FIRST);
                Actor::Gone
            }
        }
    }

    fn step(&self, room: &mut Room, me: usize, actor: Actor) -> Actor {
        match actor {
            Actor::Restorer(going) => self.go_back(room, me, going),
            Actor::Opener(opening) => self.open(room, opening),
            Actor::Reader { follow, rows, polls } => Restoring::read(room, follow, rows, polls),
            Actor::Collector(collecting) => Restoring::collect(room, collecting),
            Actor::Gone => Actor::Gone,
        }
    }
}

fn set(room: &mut Room, me: usize, actor: Actor) {
    if let Some(slot) = room.actors.get_mut(me) {
        *slot = Arc::new(actor);
    }
}

/// A manifest that may land after its sender died.
fn under_way(actor: &Actor) -> Option<Arc<Manifest>> {
    let request = match actor {
        Actor::Restorer(Going::Open(open, _)) | Actor::Opener(Opening::Open(open)) => {
            match open.action() {
                OpenAction::Request(request) => request,
                _ => return None,
            }
        }
        Actor::Restorer(Going::Commit(commit, _)) => match commit.action() {
            CommitAction::Request(request) => request,
            _ => return None,
        },
        _ => return None,
    };
    match request {
        ManifestRequest::Create(manifest) => Some(manifest),
        _ => None,
    }
}

impl Model for Restoring {
    type State = Room;
    type Step = String;

    fn initial(&self) -> Room {
        let mut room = self.lived();
        let newest = room.newest();
        let version = newest.checkpoint(KEPT).and_then(|one| room.manifests.get(&one.manifest_id));
        let version = version.expect("it is there").clone();
        let open = |claim| OpenWriter::new(options(claim, Vec::new()), newest.clone(), self.rules);
        let mut actors = Vec::new();
        for turn in 0..self.restorers {
            let going = Going::Open(Box::new(open(200 + turn as u128)), Arc::clone(&version));
            actors.push(Actor::Restorer(going));
        }
        if self.opener {
            actors.push(Actor::Opener(Opening::Open(Box::new(open(300)))));
        }
        if self.reader {
            let follow = Follow::new(100, self.rules);
            actors.push(Actor::Reader { follow, rows: Vec::new(), polls: 2 });
        }
        if self.collector {
            let revoke = Edit::RevokeExpired { ids: vec![KEPT], now: UnixMillis(9) };
            let commit = Commit::new(revoke, newest.clone(), self.rules);
            actors.push(Actor::Collector(Collecting::Revoke(commit)));
        }
        room.actors = actors.into_iter().map(Arc::new).collect();
        room
    }

    fn fingerprint(&self, state: &Room) -> u64 {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    }

    fn steps(&self, state: &Room, out: &mut Vec<(String, Room)>) {
        for (me, actor) in state.actors.iter().enumerate() {
            if matches!(&**actor, Actor::Gone) {
                continue;
            }
            let mut next = state.clone();
            let stepped = self.step(&mut next, me, Actor::clone(actor));
            set(&mut next, me, stepped);
            out.push((format!("{me}: {}", told(actor)), next));
            if let Some(late) = under_way(actor).filter(|_| state.late > 0) {
                let mut next = state.clone();
                next.late -= 1;
                next.network.push(late);
                set(&mut next, me, Actor::Gone);
                out.push((format!("{me}: dies, {} still under way", told(actor)), next));
            }
        }
        for at in 0..state.network.len() {
            let mut next = state.clone();
            let late = next.network.remove(at);
            let told = format!("late: manifest {}", late.id);
            drop(next.serve(ManifestRequest::Create(late)));
            out.push((told, next));
        }
    }

    fn violation(&self, state: &Room) -> Option<String> {
        let newest = state.newest();
        if newest.tables().any(|table| !state.tables.contains(&table.id)) {
            return Some("S1: a table that was collected comes back".to_owned());
        }
        state.broken.map(str::to_owned)
    }
}

fn told(actor: &Actor) -> &'static str {
    match actor {
        Actor::Restorer(Going::Open(..)) => "restorer opens",
        Actor::Restorer(Going::Commit(..)) => "restorer commits",
        Actor::Opener(Opening::Open(_)) => "opener",
        Actor::Opener(Opening::Put(..)) => "writer puts",
        Actor::Reader { .. } => "reader",
        Actor::Collector(_) => "collector",
        Actor::Gone => "an ended process",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::search;

    fn model(rules: Rules, restorers: usize) -> Restoring {
        let (opener, reader, collector) = (true, false, false);
        Restoring { rules, restorers, opener, reader, collector, late: 0, numbers: true }
    }

    #[test]
    fn a_checkpoint_comes_back_whole_and_alone() {
        let two = model(Rules::ALL, 2);
        let late = Restoring { late: 1, ..model(Rules::ALL, 1) };
        let read = Restoring { reader: true, ..model(Rules::ALL, 1) };
        let collected = Restoring { collector: true, ..model(Rules::ALL, 1) };
        for (name, model) in
            [("two", two), ("late", late), ("reader", read), ("collector", collected)]
        {
            let report = search(&model, 500_000);
            let stopped = if report.complete { "" } else { " (stopped)" };
            println!("restore, {name}: {} states, depth {}{stopped}", report.states, report.depth);
            if let Some(violation) = report.violation {
                panic!("{name}: {}\n{}", violation.what, violation.trace.join("\n"));
            }
        }
    }

    #[test]
    fn each_rule_of_a_restore_dropped_is_found_out() {
        for rule in DROPPED {
            let rules = Rules::ALL.without(rule);
            let base = model(rules, 1);
            let model = match rule {
                Rule::RestoreFromPresent => Restoring { collector: true, ..base },
                Rule::LookUpNewerEpochs => Restoring { reader: true, ..base },
                // A second line, behind the sequence numbers by which a replay drops rows.
                Rule::RestoreCutsLog => {
                    let behind = Rules::ALL.without(Rule::RestoreGoesOn);
                    let control = Restoring { rules: behind, numbers: false, ..model(rules, 1) };
                    assert!(search(&control, 500_000).violation.is_none(), "it holds alone");
                    Restoring { rules: behind.without(rule), numbers: false, ..base }
                }
                _ => base,
            };
            let found = search(&model, 2_000_000).violation;
            let found = found.unwrap_or_else(|| panic!("{rule:?} dropped and not found out"));
            println!("{rule:?}: trace of {}: {}", found.trace.len(), found.what);
        }
    }
}
