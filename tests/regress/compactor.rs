//! Jobs, claims, workers, takeovers.

use crate::place::{Place, open, options, put};
use parking_lot::Mutex;
use siltstone::{
    Accept, Batch, Codec, CompactionOptions, CompactorEvent, CompactorOptions, CompactorProcess,
    Compactors, Database, Env, Error, ErrorKind, FillOutcome, OpenOptions, Options, Result, Rows,
    ScanRange,
};
use siltstone_base::{AttemptId, JobId};
use siltstone_manifest::Edit;
use siltstone_tests::faults::CrashPoint;
use siltstone_tests::gc;
use siltstone_tests::sim::ProcessId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

type Found = Vec<(Vec<u8>, Vec<u8>)>;
pub(crate) type Ended = Arc<Mutex<Option<Result<bool>>>>;
type Heard = Arc<Mutex<Vec<CompactorEvent>>>;

const TIMEOUT: Duration = Duration::from_secs(2);

/// Options of compactors that merge small tables and plan nothing by themselves.
pub(crate) fn small() -> Options {
    Options {
        block_bytes: 256,
        embedded_compactor: false,
        embedded_gc: false,
        compactors: Compactors {
            poll_interval: Duration::from_millis(20),
            worker_timeout: TIMEOUT,
        },
        compaction: CompactionOptions {
            l0_compaction_threshold_ssts: 1000,
            l0_max_ssts: 2000,
            target_sst_bytes: 300,
            min_move_bytes: 0,
            compaction_ranges: Some(1),
            ..CompactionOptions::default()
        },
        ..options()
    }
}

/// Compactors that plan all possible work.
pub(crate) fn eager() -> Options {
    let mut options = small();
    options.compaction.l0_compaction_threshold_ssts = 2;
    options
}

pub(crate) fn how(options: Options, workers: usize) -> CompactorOptions {
    CompactorOptions { options, workers, merge_operator: None }
}

/// A database of six layers that share keys, and its rows.
pub(crate) fn filled(place: &Place) -> Found {
    let (process, env) = place.process();
    let filled = place.run(process, async move {
        let how = OpenOptions { options: small(), ..OpenOptions::default() };
        let db = Database::open(env, how).await?;
        for round in 0..6u8 {
            let mut batch = Batch::new();
            for key in 0..12u8 {
                let key = format!("key{:02}", (round * 7 + key * 5) % 60);
                batch.put(key.as_bytes(), &[round; 40], None)?;
            }
            let Accept::Accepted(_) = db.write(&batch)? else {
                return Err(Error::internal("pressure in a small test"));
            };
            db.flush_memtable().await?;
        }
        let rows = rows_of(&db).await?;
        db.close().await?;
        Ok(rows)
    });
    filled.expect("a healthy store")
}

/// The rows that a new writer finds.
pub(crate) fn rows(place: &Place) -> Found {
    let (process, env) = place.process();
    let found = place.run(process, async move {
        let db = open(env).await?;
        let rows = rows_of(&db).await?;
        db.close().await?;
        Ok(rows)
    });
    found.expect("a healthy store")
}

async fn rows_of(db: &Database) -> Result<Found> {
    let mut scan = db.scan(ScanRange::all())?;
    let mut rows = Rows::new();
    while scan.fill(&mut rows, 1000, 1 << 20)? == FillOutcome::NeedsBlocks {
        scan.fetch().await?;
    }
    let row = |at| rows.row(at).map(|(key, value)| (key.to_vec(), value.to_vec()));
    Ok((0..rows.len()).filter_map(row).collect())
}

/// Merges everything, in a process without a writer.
pub(crate) async fn compacting(env: Env) -> Result<bool> {
    CompactorProcess::open(env, how(small(), 0), |_| {}).await?.compact().await
}

/// A compaction of everything that sleeps before its operation `step`.
pub(crate) fn sleeper(place: &Place, step: u64) -> (ProcessId, Ended) {
    let (process, env) = place.process();
    let ended = Ended::default();
    let slot = Arc::clone(&ended);
    place.sim.spawn(process, "sleeper", async move {
        let compacted = compacting(env).await;
        *slot.lock() = Some(compacted);
    });
    place.pause_at(process, step, || ended.lock().is_some());
    (process, ended)
}

/// A compactor or, without `workers`, a worker, until it is stopped.
pub(crate) struct Runner {
    pub(crate) process: ProcessId,
    pub(crate) ended: Ended,
    heard: Heard,
}

impl Runner {
    pub(crate) fn start(place: &Place, options: Options, workers: Option<usize>) -> Runner {
        let (process, env) = place.process();
        let (ended, heard) = (Ended::default(), Heard::default());
        let (ends, hears) = (Arc::clone(&ended), Arc::clone(&heard));
        place.sim.spawn(process, "runner", async move {
            let listener = move |event| hears.lock().push(event);
            let opened =
                CompactorProcess::open(env, how(options, workers.unwrap_or(0)), listener).await;
            let ran = match opened {
                Ok(one) if workers.is_some() => one.run().await,
                Ok(one) => one.work().await,
                Err(error) => Err(error),
            };
            *ends.lock() = Some(ran.map(|()| true));
        });
        Runner { process, ended, heard }
    }

    fn merged(&self) -> usize {
        let heard = self.heard.lock();
        heard.iter().filter(|event| matches!(event, CompactorEvent::Merged(_))).count()
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        let heard = self.heard.lock();
        heard.iter().find_map(|event| match event {
            CompactorEvent::Trouble(error) => Some(error.to_string()),
            _ => None,
        })
    }
}

/// Runs `work` in a separate process until its store operation `step`, and kills it there. Returns
/// whether it got that far.
pub(crate) fn killed_at<F: Future<Output = Result<bool>> + Send + 'static>(
    place: &Place,
    step: u64,
    work: impl FnOnce(Env) -> F,
) -> bool {
    let (process, env) = place.process();
    place.bucket.crash_at(process, step, CrashPoint::After);
    let ended = place.sim.block_on(process, work(env));
    place.sim.kill(process);
    ended.is_err()
}

/// A peer's 16: two compactors claim at once. Each ends with its own epoch or is fenced by the
/// other; a claim that met another commit is repeated.
#[test]
fn peer_16_a_claim_that_meets_another_is_made_again() {
    for after in 0..20 {
        let place = Place::new(|plan| plan);
        let rows = filled(&place);
        let compactors = [(); 2].map(|()| {
            let (process, env) = place.process();
            let ended = Ended::default();
            let slot = Arc::clone(&ended);
            place.sim.spawn(process, "compactor", async move {
                let compacted = compacting(env).await;
                *slot.lock() = Some(compacted);
            });
            place.sim.run_for(Duration::from_millis(after)).expect("time goes on");
            ended
        });
        place.pass(60);
        let ended = compactors.map(|ended| ended.lock().take().expect("it ends"));
        let kinds = ended.map(|ended| ended.map_err(|error| error.kind()));
        let fenced = |one: &&Result<bool, ErrorKind>| one.is_err();
        let errors: Vec<_> = kinds.iter().filter(fenced).collect();
        assert!(errors.len() < 2, "{after}: {kinds:?}");
        assert!(errors.iter().all(|one| **one == Err(ErrorKind::Fenced)), "{after}: {kinds:?}");
        assert_eq!(self::rows(&place), rows, "{after}");
    }
}

/// A compactor that was overtaken commits nothing more, even if no table must be written.
#[test]
fn bug_04_a_fenced_compactor_commits_nothing() {
    let mut overtaken = 0;
    for step in 1..20 {
        let place = Place::new(|plan| plan);
        // No overlaps: all tables are moved unchanged, by a commit alone.
        place.flushes(&["a", "b", "c"]);
        let (process, ended) = sleeper(&place, step);
        // Its sent requests land.
        place.pass(1);
        // Between its claim and its commit.
        let begun = place.newest();
        let amid = !begun.compactor_epoch.is_none() && begun.runs.is_empty();
        let (other, env) = place.process();
        // It only claims.
        let claim = Edit::ClaimCompactor {
            writer: None,
            expected: begun.compactor_epoch,
            claim: AttemptId(7),
        };
        let known = Arc::clone(&begun);
        let claimed = place.run(other, async move { gc::commit(&env, claim, known).await });
        claimed.expect("a healthy store");
        let after = place.newest();
        place.sim.resume(process);
        place.pass(30);
        let ended = ended.lock().take().expect("it ends");
        if amid {
            overtaken += 1;
            let kind = ended.map_err(|error| error.kind());
            assert_eq!(kind, Err(ErrorKind::Fenced), "step {step}");
            assert_eq!(place.newest().finished_jobs, after.finished_jobs, "step {step}");
        }
        assert_eq!(place.recovered(), ["a", "b", "c"], "step {step}");
    }
    assert!(overtaken > 0, "no compactor was overtaken between its claim and its commit");
}

/// A peer's 17 and 48: another compactor adopts a job whose compactor died, and its output gets to
/// the very run for which it was planned.
#[test]
fn peer_17_and_48_a_leftover_job_is_finished_where_it_was_meant() {
    let mut left = 0;
    for step in (1..60).step_by(2) {
        let place = Place::new(|plan| plan);
        let rows = filled(&place);
        let newest = place.newest();
        let sources: Vec<String> =
            newest.l0.iter().map(|entry| format!("L0:{}", entry.order)).collect();
        let plan = format!("{} -> 7", sources.join(", "));
        let died = killed_at(&place, step, |env| async move {
            let one = CompactorProcess::open(env, how(small(), 0), |_| {}).await?;
            one.submit(&plan).await
        });
        let (process, env) = place.process();
        let database = newest.database;
        let record = place.run(process, async move { gc::newest_record(&env, database).await });
        let state = place.newest();
        let jobs = record.expect("a healthy store").running(&state).len();
        let next = Runner::start(&place, small(), Some(0));
        place.pass(30);
        let runs: Vec<u32> = place.newest().runs.iter().map(|run| run.id).collect();
        if died && jobs > 0 {
            left += 1;
            assert_eq!(runs, [7], "step {step}: {:?}", next.trouble());
            assert_eq!(place.newest().l0, vec![], "step {step}");
        }
        assert!(runs.is_empty() || runs == [7], "step {step}: {runs:?}");
        assert_eq!(self::rows(&place), rows, "step {step}");
    }
    assert!(left > 5, "{left} jobs were left");
}

/// A peer's 19: a committed job that is still in the record does not count as work.
#[test]
fn peer_19_a_finished_job_is_not_taken_up_again() {
    let place = Place::new(|plan| plan);
    let rows = filled(&place);
    let compacts = || {
        let (process, env) = place.process();
        place.run(process, compacting(env))
    };
    assert!(compacts().expect("a healthy store"));
    let state = place.newest();
    let (process, env) = place.process();
    let database = state.database;
    let record = place.run(process, async move { gc::newest_record(&env, database).await });
    let record = record.expect("a healthy store");
    assert_eq!(record.finished(&state).len(), 1, "the next job forgets it");
    assert!(!compacts().expect("nothing is left to do"));
    assert_eq!(self::rows(&place), rows);
}

/// A peer's 19: a worker sleeps within its range, is judged dead, and wakes when others are done.
/// Its record is refused, and it looks for other work.
#[test]
fn peer_19_tables_of_a_stalled_worker_are_not_recorded() {
    let mut taken = 0;
    for step in (6..60).step_by(2) {
        let place = Place::new(|plan| plan);
        let rows = filled(&place);
        let _coordinator = Runner::start(&place, eager(), Some(2));
        let worker = Runner::start(&place, eager(), None);
        place.pause_at(worker.process, step, || false);
        let other = Runner::start(&place, eager(), None);
        place.pass(10);
        let (runs, merged) = (place.newest().runs.clone(), worker.merged());
        assert_eq!(place.newest().l0, vec![], "step {step}");
        place.sim.resume(worker.process);
        place.pass(30);
        for one in [&worker, &other] {
            assert!(one.ended.lock().is_none(), "step {step}: {:?}", one.ended.lock());
            assert_eq!(one.trouble(), None, "step {step}");
        }
        assert_eq!(worker.merged(), merged, "step {step}: a lost range counts as merged");
        assert_eq!(place.newest().runs, runs, "step {step}");
        taken += usize::from(other.merged() > 0);
        place.collect();
        assert_eq!(self::rows(&place), rows, "step {step}");
    }
    assert!(taken > 0, "no claim had to be taken");
}

/// A peer's 32: a resumed job uses the floor of its beginning. Its second half keeps the same
/// versions for a snapshot as its first half.
#[test]
fn peer_32_a_resumed_job_keeps_its_floor() {
    let versions = |step: Option<u64>| {
        let place = Place::new(|plan| plan);
        let (process, env) = place.process();
        let (db, snapshot) = place
            .run(process, async move {
                let how = OpenOptions { options: small(), ..OpenOptions::default() };
                let db = Database::open(env, how).await?;
                for key in 0..40 {
                    put(&db, &format!("key{key:02}"))?;
                }
                let snapshot = db.snapshot()?;
                for _ in 0..2 {
                    for key in 0..40 {
                        put(&db, &format!("key{key:02}"))?;
                    }
                    db.flush_memtable().await?;
                }
                Ok((db, snapshot))
            })
            .expect("a healthy store");
        let died = step.is_none_or(|step| killed_at(&place, step, compacting));
        // The snapshot is dropped, and the manifest records a newer floor.
        drop(snapshot);
        if step.is_some() {
            let flushing = db.clone();
            let flushed = place.run(process, async move {
                put(&flushing, "zz")?;
                flushing.flush_memtable().await
            });
            flushed.expect("a healthy store");
            let _next = Runner::start(&place, small(), Some(0));
            place.pass(30);
        } else {
            let (other, env) = place.process();
            assert!(place.run(other, compacting(env)).expect("a healthy store"));
        }
        let state = place.newest();
        let entries = |run: &siltstone_manifest::SortedRun| {
            run.tables.iter().map(|table| table.entries).sum::<u64>()
        };
        let entries: u64 = state.runs.iter().map(entries).sum();
        (died, entries)
    };
    let (_, whole) = versions(None);
    assert!(whole > 60, "{whole} entries: the snapshot keeps versions");
    let mut resumed = 0;
    for step in (10..40).step_by(3) {
        let (died, entries) = versions(Some(step));
        if died && entries > 0 {
            resumed += 1;
            assert_eq!(entries, whole, "killed at {step}");
        }
    }
    assert!(resumed > 3, "{resumed} jobs were resumed");
}

/// The workers that claimed each range of each job, until nothing is left in L0.
fn claims(place: &Place) -> BTreeMap<(JobId, usize), BTreeSet<AttemptId>> {
    let mut seen: BTreeMap<(JobId, usize), BTreeSet<AttemptId>> = BTreeMap::new();
    for _ in 0..300 {
        if place.newest().l0.is_empty() {
            return seen;
        }
        place.sim.run_for(Duration::from_millis(300)).expect("time goes on");
        let (process, env) = place.process();
        let database = place.newest().database;
        let record = place.run(process, async move { gc::newest_record(&env, database).await });
        for job in &record.expect("a healthy store").jobs {
            for (at, range) in job.ranges.iter().enumerate() {
                if let Some(claim) = range.claim {
                    seen.entry((job.id, at)).or_default().insert(claim.worker);
                }
            }
        }
    }
    panic!("no worker finishes: {seen:?}")
}

/// A peer's 48 too: a timer sends heartbeats. A worker does not count as stalled while a table
/// takes longer than its timeout.
#[test]
fn peer_48_a_slow_table_is_no_stall() {
    let place = Place::new(|plan| plan);
    let rows = filled(&place);
    let mut slow = eager();
    slow.compaction.compaction_bytes_per_second = Some(300);
    slow.compaction.target_sst_bytes = 4096;
    let _coordinator = Runner::start(&place, slow.clone(), Some(1));
    let _workers = [(); 2].map(|()| Runner::start(&place, slow.clone(), None));
    let began = place.sim.elapsed();
    let claims = claims(&place);
    assert!(place.sim.elapsed() > began + 2 * TIMEOUT, "it was not slow");
    assert!(!claims.is_empty());
    assert!(claims.values().all(|workers| workers.len() == 1), "{claims:?}");
    assert_eq!(self::rows(&place), rows);
}

/// A peer's 49: the parameters that determine the bytes of tables are in the job, not in a worker's
/// options.
#[test]
fn peer_49_a_worker_writes_as_the_job_says() {
    let bytes = |workers: Options| {
        let place = Place::new(|plan| plan);
        filled(&place);
        let _coordinator = Runner::start(&place, eager(), Some(2));
        let _workers = [(); 2].map(|()| Runner::start(&place, workers.clone(), None));
        claims(&place);
        let state = place.newest();
        state.tables().map(|table| table.object_bytes).sum::<u64>()
    };
    let mut other = eager();
    other.block_bytes = 64 << 10;
    other.filter_bits_per_key = 0;
    other.compression = Some(Codec::Zstd);
    assert_eq!(bytes(eager()), bytes(other));
}

/// A peer's 50: when a handle is closed none of its work continues.
#[test]
fn peer_50_close_leaves_nothing_at_work() {
    let place = Place::new(|plan| plan);
    filled(&place);
    let (process, env) = place.process();
    let mut slow = eager();
    slow.embedded_compactor = true;
    slow.compaction.compaction_bytes_per_second = Some(300);
    let closed = place.run(process, async move {
        let clock = Arc::clone(&env.clock);
        let db =
            Database::open(env, OpenOptions { options: slow, ..OpenOptions::default() }).await?;
        put(&db, "zz")?;
        db.flush_memtable().await?;
        clock.sleep(Duration::from_millis(1500)).await;
        db.close().await
    });
    closed.expect("it is closed");
    let operations = place.bucket.operations(process);
    place.pass(60);
    assert_eq!(place.bucket.operations(process), operations, "something went on after the close");
}
