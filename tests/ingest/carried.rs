//! An ingest that is only in a log, taken over with that log (rule N14): restored, cloned,
//! exported, kept before a cut; with a crash at every request of it.

use super::large::{batch_of, write};
use super::*;
use siltstone::admin::{self, CloneParent, ExportPlaces};
use siltstone::ingest::status;
use siltstone::repair::{RepairOptions, repair};
use siltstone::tables::ReplacedRange;
use siltstone::verify::verify;
use siltstone::{CheckpointName, CheckpointOptions, ErrorKind, JobStatus, Progress};
use siltstone_base::ObjectName;
use siltstone_sst::wal;
use siltstone_tests::faults::{CrashPoint, Places};
use siltstone_tests::gc;
use siltstone_tests::sim::{Limits, Stopped};

/// The time for which the job may be requested.
const LIFETIME: Duration = Duration::from_secs(600);
const POINTS: [CrashPoint; 3] = [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After];

/// A database, and a second place.
struct World {
    place: Place,
    places: Arc<Places>,
    /// The job of the log.
    request: IngestRequest,
    /// The rows of the checkpoint.
    kept: Pairs,
    /// The rows of the database.
    now: Pairs,
}

fn kept() -> CheckpointName {
    "kept".parse().expect("a name")
}

/// The history in the log of a checkpoint, after the first rows: puts, a job in two layers that
/// replaces a range, puts, a large batch, puts.
async fn live(env: &Env, request: &IngestRequest) -> Result<Database> {
    let db = open(env, slow()).await?;
    for n in 0..6 {
        put(&db, n, b"first").await?;
    }
    db.flush_memtable().await?;
    for n in 2..10 {
        put(&db, n, b"before").await?;
    }
    db.ingest(request).await?;
    for n in 8..14 {
        put(&db, n, b"between").await?;
    }
    assert!(write(&db, &batch_of(&rows(12..40, b"large"))?).await?, "it is large");
    put(&db, 39, b"last").await?;
    db.flush().await?;
    Ok(db)
}

/// The result of [`live`].
fn model() -> BTreeMap<u32, Vec<u8>> {
    let mut model = BTreeMap::new();
    let mut put = |range: std::ops::Range<u32>, value: &[u8]| {
        model.extend(range.map(|n| (n, value.to_vec())));
    };
    put(0..6, b"first");
    put(2..10, b"before");
    put(4..12, b"bulk");
    put(6..8, b"over");
    put(8..14, b"between");
    put(12..40, b"large");
    put(39..40, b"last");
    // The job replaces the range from 3 on, and has no row for 3.
    model.remove(&3);
    model
}

async fn keep(env: &Env, name: &str) -> Result<()> {
    let how = CheckpointOptions { name: Some(name.to_owned()), ..CheckpointOptions::default() };
    admin::create_checkpoint(env, &how, LIMIT).await.map(drop)
}

async fn request(env: &Env, app: Option<(String, u64)>) -> Result<IngestRequest> {
    let job = IngestJob::begin(env, LIFETIME, app, LIMIT).await?;
    let job = job.replacing(ReplacedRange::new(Some(&key(3)), Some(&key(12)))?);
    let parts = [
        stage(env, &job, rows(4..12, b"bulk")).await?,
        stage(env, &job, rows(6..8, b"over")).await?,
    ];
    job.commit(env, &parts, LIMIT).await
}

/// The state of the database since its checkpoint was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// Its writer was killed immediately.
    Killed,
    /// Everything was installed, changed, merged and collected.
    WentOn,
}

impl World {
    fn new(seed: u64, since: Since) -> World {
        World::of_app(seed, since, None)
    }

    fn of_app(seed: u64, since: Since, app: Option<(String, u64)>) -> World {
        let sim = Sim::new(seed);
        sim.set_limits(Limits { steps: 5_000_000, time: 10 * LIFETIME });
        let places = Arc::<Places>::default();
        let bucket = places.bucket(&sim, "first", FaultPlan::none());
        let place = Place { sim, bucket };
        let request = place.run("driver", |env| async move {
            open(&env, options()).await?.close().await?;
            request(&env, app).await
        });
        let (writer, env) = place.process("writer");
        let asked = request.clone();
        let lived = place.sim.block_on(writer, async move {
            keep(&env, "before").await?;
            std::mem::forget(live(&env, &asked).await?);
            keep(&env, "kept").await
        });
        lived.expect("it ends").expect("a healthy store");
        let pending = place.run("looker", |env| async move {
            Ok(gc::newest(&env).await?.expect("it stands").pending_ingests.len())
        });
        assert_eq!(pending, 1, "it is in the log alone");
        place.sim.kill(writer);
        let (mut now, kept) = (model(), pairs(&model()));
        if since == Since::WentOn {
            place.run("later", |env| async move {
                let db = open(&env, options()).await?;
                for n in 0..40 {
                    put(&db, n, b"undone").await?;
                }
                db.flush_memtable().await?;
                db.compact().await?;
                db.close().await?;
                // The job is forgotten, and only the checkpoint refers to it.
                env.clock.sleep(2 * LIFETIME).await;
                gc::round(&env).await?;
                gc::round(&env).await.map(drop)
            });
            now = (0..40).map(|n| (n, b"undone".to_vec())).collect();
        }
        World { place, places, request, kept, now: pairs(&now) }
    }

    /// The second place.
    fn beside(&self, env: &Env, process: ProcessId) -> Env {
        let bucket = self.places.bucket(&self.place.sim, "beside", FaultPlan::none());
        Env { store: bucket.store(process), ..env.clone() }
    }

    /// Runs `work` with the database and the second place, in a separate process.
    fn run<T, W>(&self, work: impl FnOnce(Env, Env) -> W) -> T
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let (process, env) = self.place.process("worker");
        let beside = self.beside(&env, process);
        self.place.sim.block_on(process, work(env, beside)).expect("it ends").expect("it works")
    }

    /// The rows that a writer finds; it also merges and collects everything, which must change
    /// nothing.
    fn rows(&self, at: At) -> Pairs {
        self.run(move |env, beside| async move {
            let here = if at == At::Here { env.clone() } else { beside };
            let found = read(&here).await?;
            for place in [&here, &env] {
                gc::round(place).await?;
                let report = verify(place, LIMIT, &Progress::default()).await?;
                // Damaged objects of a cut log stay (rule Y1), and the checkpoint that pins them
                // cannot be read.
                let cut_off =
                    |name| matches!(name, ObjectName::Wal(_) | ObjectName::IngestManifest(_));
                let found = report.problems.iter().find(|one| !cut_off(one.object));
                assert!(found.is_none(), "{found:?}");
            }
            assert_eq!(read(&here).await?, found);
            Ok(found)
        })
    }
}

/// The rows that a writer finds, before and after it merges everything.
async fn read(env: &Env) -> Result<Pairs> {
    let db = open(env, options()).await?;
    let found = all_of(db.scan(everything())?).await?;
    db.compact().await?;
    assert_eq!(all_of(db.scan(everything())?).await?, found);
    db.close().await?;
    Ok(found)
}

/// One of the two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Here,
    Beside,
}

async fn restored(env: Env, _: Env) -> Result<()> {
    admin::restore(&env, &kept(), &options()).await
}

async fn cloned(env: Env, beside: Env) -> Result<()> {
    let parent = CloneParent { env, checkpoint: Some(kept()), start: None, end: None };
    admin::clone(&beside, &[parent], &options()).await
}

async fn imported(env: Env, beside: Env) -> Result<()> {
    let places = ExportPlaces { source: &env, target: &beside };
    admin::import(places, Some(&kept()), &options(), &Progress::default()).await.map(drop)
}

/// A crash at each request to one of the two places: the state is then the old or the new one, and
/// a repeated call succeeds. Returns the number of requests.
fn every_crash<W: Future<Output = Result<()>> + Send + 'static>(
    since: Since,
    place: &str,
    call: fn(Env, Env) -> W,
    at: At,
) -> u64 {
    for operation in 1.. {
        for point in POINTS {
            let world = World::new(operation, since);
            let (dying, env) = world.place.process("dying");
            let beside = world.beside(&env, dying);
            let bucket = world.places.bucket(&world.place.sim, place, FaultPlan::none());
            bucket.crash_at(dying, operation, point);
            match world.place.sim.block_on(dying, call(env, beside)) {
                Ok(ended) => {
                    ended.expect("a healthy store");
                    assert_eq!(world.rows(at), world.kept);
                    if point == CrashPoint::Before {
                        return operation;
                    }
                    // A request that was abandoned, as in a read-ahead, has no end at which to die.
                    continue;
                }
                Err(Stopped::Killed) => {}
                Err(stopped) => panic!("{operation} {point:?}: {stopped:?}"),
            }
            world.place.sim.kill(dying);
            let own = world.rows(At::Here);
            let done = at == At::Here && own == world.kept;
            assert!(done || own == world.now, "{operation} {point:?}: {own:?}");
            world.run(call);
            assert_eq!(world.rows(at), world.kept, "{operation} {point:?}");
        }
    }
    0
}

#[test]
fn every_crash_of_a_restore_of_it() {
    for since in [Since::Killed, Since::WentOn] {
        assert!(every_crash(since, "first", restored, At::Here) > 10);
    }
}

#[test]
fn every_crash_of_a_clone_of_it() {
    for since in [Since::Killed, Since::WentOn] {
        for place in ["first", "beside"] {
            assert!(every_crash(since, place, cloned, At::Beside) > 5);
        }
    }
}

#[test]
fn every_crash_of_an_import_of_it() {
    for place in ["first", "beside"] {
        assert!(every_crash(Since::WentOn, place, imported, At::Beside) > 5);
    }
}

/// Any process that requests the job, or the version that it contains, gets the same answer.
#[test]
fn a_restored_ingest_counts_as_taken_in() {
    let world = World::new(3, Since::Killed);
    world.run(restored);
    let job = world.request.job.id;
    world.run(move |env, _| async move {
        assert!(matches!(status(&env, job, LIMIT).await?, JobStatus::Adopted(_)));
        Ok(())
    });
    for since in [Since::Killed, Since::WentOn] {
        let app = Some(("stream".to_owned(), 7));
        let world = World::of_app(4, since, app.clone());
        let before = world.request.job.id;
        world.run(restored);
        world.run(move |env, _| async move {
            // Its place in the history began again, so this is a job of the new timeline.
            let again = request(&env, app).await?;
            let answered = again.submit(&env, false, LIMIT).await?;
            assert!(matches!(answered, JobStatus::Adopted(_)), "{answered:?}");
            let newest = gc::newest(&env).await?.expect("it stands");
            assert_eq!(newest.ingest_apps.iter().map(|one| one.job).collect::<Vec<_>>(), [before]);
            Ok(())
        });
        assert_eq!(world.rows(At::Here), world.kept);
    }
}

/// Withdrawn after a restore to an earlier state, and restored: tables of the state are adopted,
/// independent of earlier reports.
#[test]
fn a_job_taken_back_comes_back() {
    let world = World::new(5, Since::Killed);
    let job = world.request.job.clone();
    world.run(move |env, _| async move {
        let before = "before".parse().expect("a name");
        admin::restore(&env, &before, &options()).await?;
        assert_eq!(status(&env, job.id, LIMIT).await?, JobStatus::Open);
        assert_eq!(job.abort(&env, LIMIT).await?, JobStatus::Withdrawn);
        gc::round(&env).await?;
        restored(env.clone(), env.clone()).await?;
        assert!(matches!(status(&env, job.id, LIMIT).await?, JobStatus::Adopted(_)));
        Ok(())
    });
    assert_eq!(world.rows(At::Here), world.kept);
}

/// A part of the keys alone, combined with another database.
#[test]
fn a_union_takes_its_share_of_an_ingest() {
    let world = World::new(6, Since::WentOn);
    world.run(|env, beside| async move {
        let part = |env: &Env, checkpoint, start: Option<u32>, end: Option<u32>| CloneParent {
            env: env.clone(),
            checkpoint,
            start: start.map(key),
            end: end.map(key),
        };
        let parents = [part(&env, Some(kept()), None, Some(9)), part(&env, None, Some(9), None)];
        admin::clone(&beside, &parents, &options()).await
    });
    let mut expected: BTreeMap<_, _> = model();
    (9..40).for_each(|n| drop(expected.insert(n, b"undone".to_vec())));
    assert_eq!(world.rows(At::Beside), pairs(&expected));
}

/// Its tables are copied once: a later export finds them.
#[test]
fn a_mirror_of_a_log_with_an_ingest_goes_on() {
    let world = World::new(7, Since::Killed);
    let export = || {
        world.run(|env, beside| async move {
            let places = ExportPlaces { source: &env, target: &beside };
            admin::export(places, None, &options(), &Progress::default()).await
        })
    };
    let first = export();
    assert!(first.tables_moved > 3, "{first:?}");
    let again = export();
    assert!(again.tables_moved < first.tables_moved && again.tables_shared > 2, "{again:?}");
    world.run(|env, _| async move {
        let db = open(&env, options()).await?;
        put(&db, 50, b"more").await?;
        db.flush_memtable().await?;
        db.close().await
    });
    export();
    world.run(|_, beside| async move { admin::promote(&beside, LIMIT).await });
    let mut expected = model();
    expected.insert(50, b"more".to_vec());
    assert_eq!(world.rows(At::Beside), pairs(&expected));
}

/// An object behind the ingest is damaged: the log is cut there, and the ingest stays.
#[test]
fn a_log_is_cut_behind_an_ingest() {
    let world = World::new(8, Since::Killed);
    let last = damage(&world, |object| object.last_seq);
    world.run(move |env, _| async move {
        let refused = open(&env, options()).await.expect_err("damaged");
        assert_eq!(refused.kind(), ErrorKind::Corruption);
        let done = repair(&env, RepairOptions::default(), &options()).await?;
        assert!(done.done && done.seq_kept.get() + 1 == last, "{done:?}");
        Ok(())
    });
    let mut expected = model();
    expected.insert(39, b"large".to_vec());
    assert_eq!(world.rows(At::Here), pairs(&expected));
}

/// The newest manifest is damaged as well, so the request of the job is gone.
#[test]
fn a_log_is_cut_behind_an_ingest_whose_request_is_lost() {
    let world = World::new(10, Since::Killed);
    damage(&world, |object| object.last_seq);
    damage_newest_manifest(&world);
    world.run(move |env, _| async move {
        assert!(repair(&env, RepairOptions::default(), &options()).await?.done);
        Ok(())
    });
    let mut expected = model();
    expected.insert(39, b"large".to_vec());
    assert_eq!(world.rows(At::Here), pairs(&expected));
}

/// After a repair the job of the log is still submitted, and cannot be withdrawn before a writer
/// opens.
#[test]
fn a_job_of_the_log_cannot_be_withdrawn_after_a_repair() {
    let world = World::of_app(11, Since::Killed, Some(("nightly".to_owned(), 7)));
    damage_newest_manifest(&world);
    let job = world.request.job.id;
    world.run(move |env, _| async move {
        assert!(repair(&env, RepairOptions::default(), &options()).await?.done);
        assert_eq!(siltstone::withdraw(&env, job, LIMIT).await?, JobStatus::Pending);
        open(&env, options()).await?.close().await
    });
    assert_eq!(world.rows(At::Here), pairs(&model()));
}

/// Flips a bit of the newest manifest.
fn damage_newest_manifest(world: &World) {
    let is_manifest = |name: &ObjectName| matches!(name, ObjectName::Manifest(_));
    let all = world.place.bucket.objects().into_iter();
    let newest = all.filter(|(name, _)| is_manifest(name)).max_by_key(|(name, _)| *name);
    let (name, bytes) = newest.expect("a manifest");
    flip_a_bit(world, name, &bytes);
}

fn flip_a_bit(world: &World, name: ObjectName, bytes: &[u8]) {
    let mut harmed = bytes.to_vec();
    let middle = harmed.len() / 2;
    harmed[middle] ^= 4;
    world.place.bucket.insert(name, harmed.into());
}

/// Damages the object of the log with the largest `of`, and returns that.
fn damage(world: &World, of: fn(&wal::WalObject) -> siltstone::Seq) -> u64 {
    let objects = world.place.bucket.objects().into_iter().filter_map(|(name, bytes)| match name {
        ObjectName::Wal(id) => Some((of(&wal::decode(bytes.clone(), id).ok()?), name, bytes)),
        _ => None,
    });
    let (seq, name, bytes) = objects.max_by_key(|(seq, _, _)| *seq).expect("a log");
    flip_a_bit(world, name, &bytes);
    seq.get()
}

/// The closing object of the job is damaged: the log is cut before the ingest.
#[test]
fn a_log_is_cut_before_an_ingest_whose_object_is_damaged() {
    let world = World::new(9, Since::Killed);
    let name = ObjectName::IngestManifest(world.request.job.id);
    world.place.bucket.remove(name);
    world.run(move |env, _| async move {
        let refused = open(&env, options()).await.expect_err("damaged");
        assert_eq!(refused.kind(), ErrorKind::Corruption);
        let told =
            repair(&env, RepairOptions { dry_run: true, take_over: false }, &options()).await?;
        assert!(told.needed && told.damage.iter().any(|one| one.object == name), "{told:?}");
        assert!(repair(&env, RepairOptions::default(), &options()).await?.done);
        Ok(())
    });
    let mut expected: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    expected.extend((0..6).map(|n| (n, b"first".to_vec())));
    expected.extend((2..10).map(|n| (n, b"before".to_vec())));
    assert_eq!(world.rows(At::Here), pairs(&expected));
}
