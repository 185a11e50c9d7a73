//! A database that cannot be opened is repaired (RFC 0034, rules Y2 and Y3): every interleaving of
//! a writer that is alive, one or two repairers and an opener. The damaged object is in the log,
//! data or the living writer's own fence; or it is the newest manifest, which is the living
//! writer's claim.

use crate::chain::{self, Chain};
use crate::search::Model;
use siltstone_base::{
    AttemptId, DatabaseId, Epoch, ManifestId, PutOutcome, Seq, TimelineId, UnixMillis, WalId,
};
use siltstone_manifest::protocol::{
    Commit, CommitAction, ManifestAnswer, ManifestRequest, OpenAction, OpenWriter, Recovered,
    WalListing, WalSeen, WriterOptions,
};
use siltstone_manifest::{
    Edit, KeepPrefix, KeptFence, LogTables, Manifest, Rule, Rules, Settings, VoidManifests,
};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The rules that this model tests.
pub(crate) const DROPPED: [Rule; 3] =
    [Rule::FencesInARow, Rule::CutPassesNumbers, Rule::VoidPassesEpochs];

/// Objects of the log that the living writer may have in flight.
const WINDOW: u64 = 2;
/// Numbers that an unreadable object may contain, in this model.
const NUMBERS: u64 = 10;
/// The living writer's claim.
const LIVING: AttemptId = AttemptId(101);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Damaged {
    Row,
    Fence,
    Manifest,
}

/// The explored model.
pub(crate) struct Repairing {
    rules: Rules,
    repairers: usize,
    damaged: Damaged,
}

#[derive(Clone, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "a process has one, and opens but once")]
enum Actor {
    Living(Living),
    Repairer(Repair),
    Opener(OpenWriter),
    /// An opener that has opened puts a row.
    Puts(WalId, Epoch, Seq),
    Gone,
}

/// A writer puts rows, one after the other, and commits once.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Living {
    epoch: Epoch,
    next: WalId,
    seq: Seq,
    puts: u8,
    commit: Option<Commit>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repair {
    /// Creates the manifest that continues, and then cuts if necessary.
    Void,
    Cut(Box<OpenWriter>),
    Commit(Commit),
}

/// One state.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Ward {
    manifests: Chain,
    unreadable: Option<ManifestId>,
    wal: BTreeMap<WalId, (WalSeen, Option<Seq>)>,
    /// The first unreadable id of the log.
    cut: Option<WalId>,
    actors: Vec<Arc<Actor>>,
    broken: Option<&'static str>,
}

impl Ward {
    fn newest(&self) -> Arc<Manifest> {
        chain::newest(&self.manifests)
    }

    /// `None` if the requested object is unreadable: the caller ends.
    fn serve(&mut self, request: ManifestRequest) -> Option<ManifestAnswer> {
        if matches!(request, ManifestRequest::Read(id) if self.unreadable == Some(id)) {
            return None;
        }
        Some(chain::serve(&mut self.manifests, ManifestId::NONE, request))
    }

    fn seen(&self, id: WalId) -> WalSeen {
        self.wal.get(&id).map_or(WalSeen::Absent, |(seen, _)| *seen)
    }

    fn create(&mut self, id: WalId, seen: WalSeen, row: Option<Seq>) -> PutOutcome<WalSeen> {
        match self.wal.get(&id) {
            Some(there) if *there == (seen, row) => PutOutcome::Committed,
            Some((there, _)) => PutOutcome::Lost(*there),
            None => {
                self.wal.insert(id, (seen, row));
                PutOutcome::Committed
            }
        }
    }

    /// `None` once it has ended.
    fn step_open(&mut self, mut open: OpenWriter) -> Option<OpenWriter> {
        match open.action() {
            OpenAction::Request(request) => open.on_answer(self.serve(request)?),
            OpenAction::ReadWal(id) if self.cut == Some(id) => return None,
            OpenAction::ReadCutOff(id) if self.cut == Some(id) => open.on_wal(WalSeen::Foreign),
            OpenAction::ReadWal(id) | OpenAction::ReadCutOff(id) => open.on_wal(self.seen(id)),
            OpenAction::ListWal(after) => {
                let later = self.wal.keys().copied().filter(|id| *id > after).collect();
                open.on_wal_listing(&WalListing { boundary: WalId::NONE, later });
            }
            OpenAction::CreateFence(fence) => {
                let outcome = self.create(fence.id, fence_object(fence), None);
                open.on_fence(outcome);
            }
            OpenAction::Failed(_) => return None,
            OpenAction::Done(_) => {}
        }
        Some(open)
    }

    /// The last sequence number that an opening replays.
    fn replayed(&self, recovered: &Recovered) -> Seq {
        let rows = recovered.replay.iter().filter_map(|(id, _)| self.wal.get(id)?.1);
        rows.fold(recovered.manifest.flushed_seq, Seq::max)
    }

    fn breaks(&mut self, what: &'static str) {
        self.broken.get_or_insert(what);
    }
}

fn fence_object(fence: KeptFence) -> WalSeen {
    WalSeen::Fence { epoch: fence.epoch, next_id: fence.next_id }
}

fn options(claim: AttemptId, cut: Option<WalId>) -> WriterOptions {
    WriterOptions {
        claim,
        max_parallel_writes: WINDOW,
        take_over: true,
        cut,
        ..WriterOptions::default()
    }
}

impl Repairing {
    /// A writer has put two rows and died; another one has opened, and is alive.
    fn lived(&self) -> Ward {
        let first = Arc::new(Manifest::new_database(DatabaseId(1), Settings::default()));
        let mut ward = Ward {
            manifests: BTreeMap::from([(first.id, Arc::clone(&first))]),
            unreadable: None,
            wal: BTreeMap::new(),
            cut: None,
            actors: Vec::new(),
            broken: None,
        };
        let old = opened(&mut ward, AttemptId(100));
        for row in 0..2 {
            let id = old.fence.next_id.plus(row);
            let data = WalSeen::Data { epoch: old.epoch, durable: id.minus(1) };
            ward.create(id, data, Some(Seq(row + 1)));
        }
        let living = opened(&mut ward, LIVING);
        match self.damaged {
            Damaged::Row => ward.cut = Some(old.fence.next_id.next()),
            Damaged::Fence => ward.cut = Some(living.fence.id),
            Damaged::Manifest => ward.unreadable = Some(living.manifest.id),
        }
        let keep = Edit::KeepFences { epoch: living.epoch, fences: living.fences() };
        let commits = self.damaged == Damaged::Manifest;
        let commit = commits.then(|| Commit::new(keep, living.manifest.clone(), Rules::ALL));
        let (epoch, next) = (living.epoch, living.fence.next_id);
        let living = Living { epoch, next, seq: Seq(3), puts: 2, commit };
        ward.actors = vec![Arc::new(Actor::Living(living))];
        ward
    }

    fn live(ward: &mut Ward, mut living: Living) -> Actor {
        if let Some(mut commit) = living.commit.take() {
            return match commit.action() {
                CommitAction::Request(request) => {
                    let Some(answer) = ward.serve(request) else { return Actor::Gone };
                    commit.on_answer(answer);
                    living.commit = Some(commit);
                    Actor::Living(living)
                }
                CommitAction::Done(state) => {
                    if state.writers.last().is_none_or(|writer| writer.claim != LIVING) {
                        ward.breaks("Y3: a writer commits under another's claim");
                    }
                    Actor::Living(living)
                }
                CommitAction::Failed(_) => Actor::Gone,
            };
        }
        if living.puts == 0 {
            return Actor::Gone;
        }
        let data = WalSeen::Data { epoch: living.epoch, durable: living.next.minus(1) };
        if ward.create(living.next, data, Some(living.seq)) != PutOutcome::Committed {
            return Actor::Gone;
        }
        if ward.newest().replay_from > living.next {
            ward.breaks("Y2: a row is acknowledged behind the cut, after it was made");
        }
        living.puts -= 1;
        (living.next, living.seq) = (living.next.next(), living.seq.next());
        Actor::Living(living)
    }

    fn repair(&self, ward: &mut Ward, me: usize, repair: Repair) -> Actor {
        match repair {
            Repair::Void => {
                let (base, last) = (before(ward), ward.newest().id);
                if Some(last) != ward.unreadable {
                    return Actor::Gone;
                }
                let void = VoidManifests {
                    jobs: Vec::new(),
                    last,
                    // The living writer's fence is in its place, and is not read here: voiding must
                    // work whether or not the fence shows.
                    epoch: Epoch::NONE,
                    claim: AttemptId(300 + me as u128),
                    fences: Vec::new(),
                    wal_boundary: WalId::NONE,
                    gone: Vec::new(),
                    readable: BTreeSet::new(),
                    timeline: TimelineId(500 + me as u128),
                    began_at: UnixMillis(0),
                };
                let next = void.apply(&base, self.rules).expect("it fits");
                drop(ward.serve(ManifestRequest::Create(Arc::new(next))));
                Actor::Gone
            }
            Repair::Cut(open) => match ward.step_open(*open) {
                None => Actor::Gone,
                Some(open) => match open.action() {
                    OpenAction::Done(recovered) => {
                        // Another process has cut it off.
                        let Some(edit) = Repairing::prefix(ward, me, &recovered) else {
                            return Actor::Gone;
                        };
                        let commit = Commit::new(edit, recovered.manifest, self.rules);
                        Actor::Repairer(Repair::Commit(commit))
                    }
                    _ => Actor::Repairer(Repair::Cut(Box::new(open))),
                },
            },
            Repair::Commit(mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    let Some(answer) = ward.serve(request) else { return Actor::Gone };
                    commit.on_answer(answer);
                    Actor::Repairer(Repair::Commit(commit))
                }
                CommitAction::Done(_) | CommitAction::Failed(_) => Actor::Gone,
            },
        }
    }

    fn prefix(ward: &Ward, me: usize, recovered: &Recovered) -> Option<Edit> {
        let cut = ward.replayed(recovered);
        let off = recovered.cut_off.as_ref()?;
        let read = off.readable.iter().filter_map(|id| ward.wal.get(id)?.1);
        let reached = read.fold(cut, Seq::max).plus(NUMBERS * off.unreadable.len() as u64);
        Some(Edit::KeepPrefix(KeepPrefix {
            epoch: recovered.epoch,
            log: LogTables::default(),
            cut,
            reached,
            commit_time: UnixMillis(0),
            fences: recovered.keep.clone(),
            timeline: TimelineId(500 + me as u128),
            began_at: UnixMillis(0),
        }))
    }

    fn step(&self, ward: &mut Ward, me: usize, actor: Actor) -> Actor {
        match actor {
            Actor::Living(living) => Repairing::live(ward, living),
            Actor::Repairer(repair) => self.repair(ward, me, repair),
            Actor::Opener(open) => match ward.step_open(open) {
                None => Actor::Gone,
                Some(open) => match open.action() {
                    OpenAction::Done(recovered) => {
                        let seq = ward.replayed(&recovered).next();
                        Actor::Puts(recovered.fence.next_id, recovered.epoch, seq)
                    }
                    _ => Actor::Opener(open),
                },
            },
            Actor::Puts(id, epoch, seq) => {
                let taken = ward.wal.values().any(|(_, row)| *row == Some(seq));
                let data = WalSeen::Data { epoch, durable: id.minus(1) };
                let committed = ward.create(id, data, Some(seq)) == PutOutcome::Committed;
                if committed && taken {
                    ward.breaks("Y2: a number is given twice");
                }
                Actor::Gone
            }
            Actor::Gone => Actor::Gone,
        }
    }
}

/// The newest readable manifest.
fn before(ward: &Ward) -> Arc<Manifest> {
    let mut latest_first = ward.manifests.values().rev();
    latest_first.find(|one| Some(one.id) != ward.unreadable).expect("a database").clone()
}

fn opened(ward: &mut Ward, claim: AttemptId) -> Recovered {
    let mut open = OpenWriter::new(options(claim, None), ward.newest(), Rules::ALL);
    loop {
        if let OpenAction::Done(recovered) = open.action() {
            return recovered;
        }
        open = ward.step_open(open).expect("nothing is damaged yet");
    }
}

impl Model for Repairing {
    type State = Ward;
    type Step = String;

    fn initial(&self) -> Ward {
        let mut ward = self.lived();
        let newest = ward.newest();
        for turn in 0..self.repairers {
            let repair = match ward.cut {
                None => Repair::Void,
                Some(cut) => {
                    let how = options(AttemptId(200 + turn as u128), Some(cut));
                    Repair::Cut(Box::new(OpenWriter::new(how, newest.clone(), self.rules)))
                }
            };
            ward.actors.push(Arc::new(Actor::Repairer(repair)));
        }
        if self.damaged != Damaged::Manifest {
            let open = OpenWriter::new(options(AttemptId(400), None), newest, self.rules);
            ward.actors.push(Arc::new(Actor::Opener(open)));
        }
        ward
    }

    fn fingerprint(&self, state: &Ward) -> u64 {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    }

    fn steps(&self, state: &Ward, out: &mut Vec<(String, Ward)>) {
        for (me, actor) in state.actors.iter().enumerate() {
            if matches!(&**actor, Actor::Gone) {
                continue;
            }
            let mut next = state.clone();
            let stepped = self.step(&mut next, me, Actor::clone(actor));
            if let Some(slot) = next.actors.get_mut(me) {
                *slot = Arc::new(stepped);
            }
            out.push((format!("{me}: {}", told(actor)), next));
        }
    }

    fn violation(&self, state: &Ward) -> Option<String> {
        state.broken.map(str::to_owned)
    }
}

fn told(actor: &Actor) -> &'static str {
    match actor {
        Actor::Living(_) => "the living writer",
        Actor::Repairer(Repair::Void) => "repairer goes on",
        Actor::Repairer(Repair::Cut(_)) => "repairer cuts",
        Actor::Repairer(Repair::Commit(_)) => "repairer commits",
        Actor::Opener(_) => "opener",
        Actor::Puts(..) => "opener puts",
        Actor::Gone => "an ended process",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::search;

    #[test]
    fn passed_log_objects_harm_no_process() {
        for damaged in [Damaged::Row, Damaged::Fence, Damaged::Manifest] {
            for repairers in 1..=2 {
                let model = Repairing { rules: Rules::ALL, repairers, damaged };
                let report = search(&model, 500_000);
                let stopped = if report.complete { "" } else { " (stopped)" };
                println!("repairs: {repairers}, {} states{stopped}", report.states);
                if let Some(violation) = report.violation {
                    panic!("{}\n{}", violation.what, violation.trace.join("\n"));
                }
            }
        }
    }

    #[test]
    fn each_rule_of_a_repair_dropped_is_found_out() {
        for (rule, damaged) in [
            (Rule::FencesInARow, Damaged::Fence),
            (Rule::CutPassesNumbers, Damaged::Row),
            (Rule::VoidPassesEpochs, Damaged::Manifest),
        ] {
            let model = Repairing { rules: Rules::ALL.without(rule), repairers: 1, damaged };
            let found = search(&model, 2_000_000).violation;
            let found = found.unwrap_or_else(|| panic!("{rule:?} dropped and not found out"));
            println!("{rule:?}: trace of {}: {}", found.trace.len(), found.what);
        }
    }
}
