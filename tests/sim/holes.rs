//! An outsider deletes an object of the WAL: a bad backup, a rule of the bucket. This violates the
//! contract, so other guarantees apply than with faults of a store: every process that opens or
//! verifies afterwards names the object, or has lost nothing. No process shows fewer rows without
//! an error.
//!
//! A hole at `n` is proven (rule E3) by: an object at `n + W` or later, with `W` the window of the
//! epoch that wrote *that object*, because it was sent only after everything up to `n` existed; a
//! fence anywhere behind; or a manifest that has seen a later id. An unproven hole may be taken for
//! the end of the log.

use crate::edges::verify_tells_what_objects_prove;
use crate::world::rows_of;
use siltstone::{
    Accept, Database, Env, Error, ErrorKind, OpenOptions, Options, Reader, ReaderOptions, ScanRange,
};
use siltstone_base::{ManifestId, ObjectName, WalId};
use siltstone_manifest::Manifest;
use siltstone_sst::wal::{self, WalBody, WalObject};
use siltstone_tests::faults::{Bucket, Fault, FaultPlan};
use siltstone_tests::sim::{Limits, ProcessId, Rng, Sim};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The proof of a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    None,
    Manifest,
    Object,
}

/// The result of one seed.
#[derive(Debug, Default)]
struct Outcome {
    violations: Vec<String>,
    /// Whether the hole was proven, and whether it was reported.
    proven: bool,
    told: bool,
}

/// The key of a row number: keys are written once, in order.
fn key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

fn options(rng: &mut Rng) -> Options {
    Options {
        flush_interval: Duration::from_millis(1 + rng.below(20)),
        flush_bytes: 64 + rng.below(200) as usize,
        max_parallel_writes: 1 + rng.below(4),
        manifest_poll_interval: Some(Duration::from_millis(50 + rng.below(500))),
        l0_manifest_commit_interval: Duration::ZERO,
        embedded_gc: false,
        embedded_compactor: false,
        deadline: Duration::from_secs(20),
        ..Options::default()
    }
}

fn plan(rng: &mut Rng) -> FaultPlan {
    let mut plan = FaultPlan::none();
    for fault in [Fault::PutAnswerLost, Fault::PutResent, Fault::GetError, Fault::ListError] {
        plan = plan.with(fault, rng.below(60) as u32);
    }
    plan
}

struct Place {
    sim: Sim,
    bucket: Arc<Bucket>,
    /// Number of acknowledged rows: all rows below it.
    acknowledged: u64,
    written: u64,
}

impl Place {
    fn process(&self) -> (ProcessId, Env) {
        let process = self.sim.process("process", 0);
        (process, self.sim.env(process, self.bucket.store(process)))
    }

    /// A writer that puts rows, waits for the last one and dies; some tables are flushed.
    fn write(&mut self, rng: &mut Rng) {
        let (process, env) = self.process();
        let (from, rows) = (self.written, 5 + rng.below(40));
        let (options, flush_at) = (options(rng), rng.below(2 * rows));
        let mut rng = rng.split();
        let sim = (*self.sim).clone();
        let wrote = self.sim.block_on(process, async move {
            let db = open(env, options).await?;
            for number in from..from + rows {
                let commit = match db.put(&key(number), b"row", None)? {
                    Accept::Accepted(commit) => commit,
                    Accept::Pressure(_) => return Err(Error::internal("pressure by few rows")),
                };
                match rng.below(3) {
                    0 => commit.wait(None).await?,
                    1 => sim.sleep(Duration::from_millis(rng.below(60))).await,
                    _ => {}
                }
                if number == from + flush_at {
                    db.flush_memtable().await?;
                }
            }
            db.flush().await
        });
        self.written += rows;
        if matches!(wrote, Ok(Ok(()))) {
            self.acknowledged = self.written;
        }
        self.sim.kill(process);
    }

    /// A reader comes and leaves, or stays without closing: its checkpoint records how far it has
    /// seen.
    fn read(&self) {
        let (process, env) = self.process();
        let read = self.sim.block_on(process, async move {
            Reader::open(env, ReaderOptions::default()).await.map(drop)
        });
        drop(read);
        self.sim.kill(process);
    }

    fn newest(&self) -> Option<Manifest> {
        let newest = |objects: Vec<(ObjectName, bytes::Bytes)>| {
            let manifests = objects.into_iter().filter_map(|(name, bytes)| match name {
                ObjectName::Manifest(id) => Some((id, bytes)),
                _ => None,
            });
            manifests.max_by_key(|(id, _): &(ManifestId, _)| *id)
        };
        newest(self.bucket.objects())
            .and_then(|(_, bytes)| Manifest::decode(&bytes).ok())
            .map(|m| m.1)
    }

    /// Every object of the WAL that contains rows, and whether later objects prove that it existed.
    fn records(&self, state: &Manifest) -> Vec<(WalId, Proof)> {
        let mut all = BTreeMap::new();
        for (name, bytes) in self.bucket.objects() {
            if let ObjectName::Wal(id) = name {
                all.insert(id, wal::decode(bytes, id).expect("a sound object"));
            }
        }
        let is_fence = |one: &WalObject| matches!(one.body, WalBody::Fence { .. });
        let told = |id: WalId| all.values().any(|other| id <= other.sent.durable);
        let proven = |id: WalId| match id <= state.wal_id_last_seen {
            true => Proof::Manifest,
            false if told(id) => Proof::Object,
            false => Proof::None,
        };
        let needed = all.values().filter(|one| one.id >= state.replay_from && !is_fence(one));
        needed.map(|one| (one.id, proven(one.id))).collect()
    }

    /// Reads everything, by a writer or a reader that opens now.
    fn open(&self, writes: bool, rng: &mut Rng) -> Result<u64, Error> {
        let (process, env) = self.process();
        let options = options(rng);
        let read = self.sim.block_on(process, async move {
            if writes {
                let db = open(env, options).await?;
                return rows_of(db.scan(ScanRange::all())?).await;
            }
            let reader = Reader::open(env, ReaderOptions { options, ..Default::default() }).await?;
            rows_of(reader.scan(ScanRange::all())?).await
        });
        self.sim.kill(process);
        let rows = read.map_err(|stopped| Error::internal(format!("{stopped:?}")))??;
        let in_order = rows.iter().zip(0..).all(|((found, _), number)| *found == key(number));
        if !in_order {
            return Err(Error::internal("what is there is no prefix of what was written"));
        }
        Ok(rows.len() as u64)
    }

    /// The objects that verify reports.
    fn verify(&self) -> Result<Vec<ObjectName>, Error> {
        let (process, env) = self.process();
        let report = self.sim.block_on(process, async move {
            let progress = siltstone::Progress::default();
            siltstone::verify::verify(&env, Duration::from_secs(60), &progress).await
        });
        let report = report.map_err(|stopped| Error::internal(format!("{stopped:?}")))??;
        Ok(report.problems.into_iter().map(|problem| problem.object).collect())
    }
}

async fn open(env: Env, options: Options) -> Result<Database, Error> {
    Database::open(env, OpenOptions { options, ..OpenOptions::default() }).await
}

fn run(seed: u64) -> Option<Outcome> {
    let sim = Sim::new(seed);
    sim.set_limits(Limits { steps: 5_000_000, time: Duration::from_secs(3600) });
    let mut rng = sim.split_rng();
    let bucket = Bucket::new(&sim, plan(&mut rng));
    let mut place = Place { sim, bucket, acknowledged: 0, written: 0 };
    for _ in 0..1 + rng.below(3) {
        place.write(&mut rng);
        if rng.chance(400) {
            place.read();
        }
    }
    place.bucket.heal();
    let state = place.newest()?;
    let candidates = place.records(&state);
    let (hole, proof) = *candidates.get(rng.below(candidates.len() as u64) as usize)?;
    place.bucket.remove(ObjectName::Wal(hole));
    place.bucket.book(Fault::Hole);
    Some(judge(&place, (hole, proof), &mut rng))
}

/// Every later process reports the hole, or has everything.
fn judge(place: &Place, (hole, proof): (WalId, Proof), rng: &mut Rng) -> Outcome {
    let proven = proof != Proof::None;
    let told = proof == Proof::Manifest || proven && verify_tells_what_objects_prove();
    let mut outcome = Outcome { proven, ..Outcome::default() };
    let name = ObjectName::Wal(hole);
    match place.verify() {
        Ok(found) if told && !found.contains(&name) => {
            outcome.violations.push(format!("verify finds {found:?}, not the hole at {name}"));
        }
        Ok(_) => {}
        Err(error) => outcome.violations.push(format!("verify: {error:?}")),
    }
    // A writer leaves a fence, so it is last.
    for (who, writes) in [("reader", false), ("writer", true)] {
        match place.open(writes, rng) {
            Ok(rows) if rows < place.acknowledged && proven => {
                let text = format!("{rows} of {} rows, past {name}", place.acknowledged);
                outcome.violations.push(format!("a {who} shows {text}"));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Corruption => {
                outcome.told = true;
                if !error.to_string().contains(&name.to_string()) {
                    outcome.violations.push(format!("a {who} does not name {name}: {error}"));
                }
            }
            Err(error) => outcome.violations.push(format!("a {who}: {error:?}")),
        }
    }
    outcome
}

#[test]
fn a_hole_in_the_wal_is_told_or_nothing_is_lost() {
    let (first, seeds) = (crate::number("FIRST_SEED", 1), crate::number("HOLES", 60));
    let (mut made, mut proven, mut told, mut failed) = (0, 0, 0, Vec::new());
    for seed in first..first + seeds {
        let Some(outcome) = run(seed) else { continue };
        made += 1;
        proven += u64::from(outcome.proven);
        told += u64::from(outcome.told);
        if !outcome.violations.is_empty() {
            println!("seed {seed}:\n  {}", outcome.violations.join("\n  "));
            failed.push(seed);
        }
    }
    println!("{seeds} seeds: {made} holes, {proven} of them proven, {told} told");
    assert!(seeds < 50 || told * 5 >= made, "{told} of {made} holes are told");
    assert!(failed.is_empty(), "seeds {failed:?} failed; run one with FIRST_SEED=… HOLES=1");
}
