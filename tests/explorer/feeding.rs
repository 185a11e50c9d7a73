//! Consumers of a change feed (RFC 0041, rules W3 to W5): every interleaving of two of them, with
//! two names or one, that look, hold the log, read on and report their progress, of a writer that
//! flushes and installs an ingest, a compactor, and a collector.

use crate::chain::{self, Chain};
use crate::ingesting::table;
use crate::search::Model;
use bytes::Bytes;
use siltstone_base::{
    AttemptId, DatabaseId, Epoch, JobId, ManifestId, ObjectName, Seq, SstDescriptor, SstId,
    UnixMillis, WalId,
};
use siltstone_manifest::gc::{Evidence, ListedObject, dead};
use siltstone_manifest::protocol::{Commit, CommitAction, ManifestAnswer, ManifestRequest};
use siltstone_manifest::{
    AdvanceHold, Edit, FinishCompaction, FlushL0, HoldEdit, HoldFrom, InstallIngest, LogPlace,
    Manifest, PendingIngest, Rule, Rules, Settings, TakeHold, WriterRecord,
};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

const EPOCH: Epoch = Epoch(1);
const JOB: JobId = JobId(1 << 80);
const STAGED: SstId = SstId(14);
const MERGED: SstId = SstId(15);
/// The log: a row, an INGEST, a row, each an object, and each with the number of its object.
const LAST: u64 = 3;
const INGEST: u64 = 2;
const DIGEST: &[u8] = b"parts";

/// The rules that this model tests.
pub(crate) const DROPPED: [Rule; 5] = [
    Rule::HoldWhatIsThere,
    Rule::HonourHolds,
    Rule::FeedKeepsIngests,
    Rule::FedUntilAllPassed,
    Rule::HoldByGeneration,
];

/// The explored model.
pub(crate) struct Feeding {
    rules: Rules,
    /// Whether both consumers have one name.
    one_name: bool,
    rounds: u8,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Actor {
    Consumer(u64, Consuming),
    /// The next object to flush, and its commit.
    Writer(u64, Option<Commit>),
    Compactor,
    Collector(u8, Collecting),
    Gone,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Consuming {
    Look,
    Take(Commit),
    Read(LogPlace),
    Say(LogPlace, Commit),
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Collecting {
    Nothing,
    Listed(Vec<ListedObject>),
    Delete(Vec<ObjectName>),
}

/// One state.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    manifests: Chain,
    objects: BTreeSet<ObjectName>,
    actors: Vec<Arc<Actor>>,
    broken: Option<&'static str>,
}

impl Place {
    fn newest(&self) -> Arc<Manifest> {
        chain::newest(&self.manifests)
    }

    fn serve(&mut self, request: ManifestRequest) -> ManifestAnswer {
        chain::serve(&mut self.manifests, ManifestId::NONE, request)
    }

    /// Performs the commit's next step; returns its result once it has ended.
    fn advance(&mut self, commit: &mut Commit) -> Option<Option<Arc<Manifest>>> {
        if let CommitAction::Request(request) = commit.action() {
            let answer = self.serve(request);
            commit.on_answer(answer);
        }
        match commit.action() {
            CommitAction::Request(_) => None,
            CommitAction::Done(state) => Some(Some(state)),
            CommitAction::Failed(_) => Some(None),
        }
    }
}

impl Feeding {
    fn name(&self, me: u64) -> String {
        if self.one_name { "one".to_owned() } else { me.to_string() }
    }

    /// The position of this consumer's hold, if it is the newest with its name.
    fn place(&self, me: u64, state: &Manifest) -> Option<LogPlace> {
        let hold = state.hold(&self.name(me)).filter(|hold| hold.generation == me);
        hold.map(|hold| hold.place())
    }

    fn consume(&self, room: &mut Place, me: u64, consuming: Consuming) -> Actor {
        let on = |consuming| Actor::Consumer(me, consuming);
        match consuming {
            Consuming::Look => {
                let newest = room.newest();
                let at = LogPlace { seq: newest.flushed_seq, wal: newest.replay_from };
                let kept = newest.hold(&self.name(me)).is_some();
                let take = TakeHold {
                    name: self.name(me),
                    generation: me,
                    from: if kept { HoldFrom::Kept } else { HoldFrom::Walked(at) },
                    timeline: None,
                    expires_at: None,
                    most_bytes: None,
                    checkpoint: None,
                    unretained: None,
                };
                let edit = Edit::Hold(HoldEdit::Take(Box::new(take)));
                on(Consuming::Take(Commit::new(edit, newest, self.rules)))
            }
            Consuming::Take(mut commit) => match room.advance(&mut commit) {
                None => on(Consuming::Take(commit)),
                Some(state) => {
                    let place = state.and_then(|state| self.place(me, &state));
                    place.map_or(Actor::Gone, |place| on(Consuming::Read(place)))
                }
            },
            Consuming::Read(place) if place.wal.get() > LAST => {
                let (name, generation) = (self.name(me), me);
                let (timeline, expires_at) = (None, None);
                let advance = AdvanceHold { name, generation, to: place, timeline, expires_at };
                let edit = Edit::Hold(HoldEdit::Advance(advance));
                on(Consuming::Say(place, Commit::new(edit, room.newest(), self.rules)))
            }
            Consuming::Read(place) => {
                self.read(room, me, place);
                let wal = place.wal.next();
                on(Consuming::Read(LogPlace { seq: Seq(place.wal.get()).max(place.seq), wal }))
            }
            Consuming::Say(place, mut commit) => match room.advance(&mut commit) {
                None => on(Consuming::Say(place, commit)),
                Some(_) => Actor::Gone,
            },
        }
    }

    /// Everything that is read must exist as long as the consumer is the newest with its name.
    fn read(&self, room: &mut Place, me: u64, place: LogPlace) {
        let newest = room.newest();
        if self.place(me, &newest).is_none() || place.seq.get() >= place.wal.get() {
            return;
        }
        if !room.objects.contains(&ObjectName::Wal(place.wal)) {
            room.broken.get_or_insert("W3, W5: a held object of the log was collected");
        }
        let originals = [ObjectName::IngestManifest(JOB), ObjectName::IngestSst(JOB, STAGED)];
        let all = originals.iter().all(|name| room.objects.contains(name));
        if place.wal.get() == INGEST && !all {
            room.broken.get_or_insert("W4: originals of an ingest that is held were collected");
        }
    }

    /// Flushes a row, or installs the ingest: one object at a time.
    fn write(&self, room: &mut Place, next: u64, commit: Option<Commit>) -> Actor {
        let Some(mut commit) = commit else {
            if next > LAST {
                return Actor::Gone;
            }
            let base = room.newest();
            let staged =
                SstDescriptor { seq_override: Some(Seq(INGEST)), ..table(STAGED, Some(JOB)) };
            let digest = Bytes::from_static(DIGEST);
            let ingest = InstallIngest { after: 0, job: JOB, digest, layers: vec![vec![staged]] };
            let flush = FlushL0 {
                ingests: if next == INGEST { vec![ingest] } else { Vec::new() },
                flushed_seq: Seq(next),
                replay_from: WalId(next + 1),
                ..FlushL0::nothing(EPOCH, &base)
            };
            let commit = Commit::new(Edit::FlushL0(flush), base, self.rules);
            return Actor::Writer(next, Some(commit));
        };
        match room.advance(&mut commit) {
            None => Actor::Writer(next, Some(commit)),
            Some(_) => Actor::Writer(next + 1, None),
        }
    }

    fn compact(&self, room: &mut Place) -> Actor {
        let newest = room.newest();
        if newest.tables().all(|table| table.id != STAGED) {
            return Actor::Compactor;
        }
        let edit = Edit::FinishCompaction(FinishCompaction {
            epoch: Epoch(1),
            job: JobId(9),
            planned_on: newest.id,
            remove: vec![STAGED.into()],
            add: vec![table(MERGED, None)],
            destination: 0,
            retire: Vec::new(),
        });
        let mut commit = Commit::new(edit, newest, self.rules);
        while room.advance(&mut commit).is_none() {}
        Actor::Gone
    }

    fn collect(&self, room: &mut Place, rounds: u8, doing: Collecting) -> Actor {
        let doing = match doing {
            Collecting::Nothing if rounds == 0 => return Actor::Gone,
            Collecting::Nothing => {
                let listed = room.objects.iter();
                let listed = listed.map(|name| ListedObject {
                    name: *name,
                    modified: UnixMillis(0),
                    bytes: 1,
                });
                return Actor::Collector(rounds - 1, Collecting::Listed(listed.collect()));
            }
            Collecting::Listed(listed) => {
                let (newest, cutoff) = (Some(room.newest()), UnixMillis(9));
                let found = Evidence { listed, newest, cutoff, ..Evidence::default() };
                Collecting::Delete(dead(&found, self.rules).deletes)
            }
            Collecting::Delete(names) if names.is_empty() => Collecting::Nothing,
            Collecting::Delete(mut names) => {
                room.objects.remove(&names.remove(0));
                Collecting::Delete(names)
            }
        };
        Actor::Collector(rounds, doing)
    }

    fn step(&self, room: &mut Place, actor: Actor) -> Actor {
        match actor {
            Actor::Consumer(me, consuming) => self.consume(room, me, consuming),
            Actor::Writer(next, commit) => self.write(room, next, commit),
            Actor::Compactor => self.compact(room),
            Actor::Collector(rounds, doing) => self.collect(room, rounds, doing),
            Actor::Gone => Actor::Gone,
        }
    }
}

fn told(actor: &Actor) -> String {
    match actor {
        Actor::Consumer(me, Consuming::Look) => format!("consumer {me} looks"),
        Actor::Consumer(me, Consuming::Take(_)) => format!("consumer {me} takes a hold"),
        Actor::Consumer(me, Consuming::Read(at)) => format!("consumer {me} reads at {}", at.wal),
        Actor::Consumer(me, Consuming::Say(..)) => format!("consumer {me} says how far it is"),
        Actor::Writer(next, _) => format!("writer flushes {next}"),
        Actor::Compactor => "compactor".to_owned(),
        Actor::Collector(_, Collecting::Nothing) => "collector lists".to_owned(),
        Actor::Collector(_, Collecting::Listed(_)) => "collector judges".to_owned(),
        Actor::Collector(_, Collecting::Delete(_)) => "collector deletes".to_owned(),
        Actor::Gone => "an ended process".to_owned(),
    }
}

impl Model for Feeding {
    type State = Place;
    type Step = String;

    fn initial(&self) -> Place {
        let mut first = Manifest::new_database(DatabaseId(1), Settings::default());
        (first.compactor_epoch, first.compactor_claim) = (Epoch(1), AttemptId(70));
        first.writer_epoch = EPOCH;
        first.writers = vec![WriterRecord {
            epoch: EPOCH,
            claim: AttemptId(71),
            max_parallel_writes: 1,
            clean_close: false,
            transient: false,
        }];
        first.widest_window = 1;
        first.pending_ingests = vec![PendingIngest {
            job: JOB,
            requested_at: UnixMillis(0),
            digest: Bytes::from_static(DIGEST),
            app: None,
            timeline: None,
        }];
        let mut objects: BTreeSet<_> = (1..=LAST).map(|id| ObjectName::Wal(WalId(id))).collect();
        objects.extend([ObjectName::IngestManifest(JOB), ObjectName::IngestSst(JOB, STAGED)]);
        let actors = [
            Actor::Consumer(1, Consuming::Look),
            Actor::Consumer(2, Consuming::Look),
            Actor::Writer(1, None),
            Actor::Compactor,
            Actor::Collector(self.rounds, Collecting::Nothing),
        ];
        Place {
            manifests: BTreeMap::from([(first.id, Arc::new(first))]),
            objects,
            actors: actors.into_iter().map(Arc::new).collect(),
            broken: None,
        }
    }

    fn fingerprint(&self, state: &Place) -> u64 {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    }

    fn steps(&self, state: &Place, out: &mut Vec<(String, Place)>) {
        for (me, actor) in state.actors.iter().enumerate() {
            if matches!(&**actor, Actor::Gone) {
                continue;
            }
            let mut next = state.clone();
            let stepped = self.step(&mut next, Actor::clone(actor));
            if let Some(slot) = next.actors.get_mut(me) {
                *slot = Arc::new(stepped);
            }
            out.push((told(actor), next));
        }
    }

    fn violation(&self, state: &Place) -> Option<String> {
        state.broken.map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::search;

    #[test]
    fn the_log_that_a_consumer_holds_is_present() {
        for one_name in [false, true] {
            let model = Feeding { rules: Rules::ALL, one_name, rounds: 2 };
            let report = search(&model, 300_000);
            let stopped = if report.complete { "" } else { " (stopped)" };
            println!("feed: {} states, depth {}{stopped}", report.states, report.depth);
            if let Some(violation) = report.violation {
                panic!("{}\n{}", violation.what, violation.trace.join("\n"));
            }
        }
    }

    #[test]
    fn each_rule_of_the_feed_dropped_is_found_out() {
        for rule in DROPPED {
            let one_name = rule == Rule::HoldByGeneration;
            let model = Feeding { rules: Rules::ALL.without(rule), one_name, rounds: 1 };
            let found = search(&model, 2_000_000).violation;
            let found = found.unwrap_or_else(|| panic!("{rule:?} dropped and not found out"));
            println!("{rule:?}: trace of {}: {}", found.trace.len(), found.what);
        }
    }
}
