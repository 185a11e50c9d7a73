//! A crash at every request of a writer that adopts jobs, and of the driver that requests them: the
//! next process finds a prefix of the history, each job completely or not at all, and the same
//! request repeated installs it once.

use super::*;
use siltstone::tables::ReplacedRange;
use siltstone_tests::faults::CrashPoint;
use siltstone_tests::sim::Stopped;

/// The part known to the dying process: the request comes from another one.
async fn dying(env: Env, request: IngestRequest) -> Result<()> {
    let db = open(&env, options()).await?;
    for n in 0..4 {
        put(&db, n, b"before").await?;
    }
    db.ingest(&request).await?;
    for n in 2..6 {
        put(&db, n, b"after").await?;
    }
    db.flush().await?;
    db.flush_memtable().await?;
    db.compact().await?;
    db.close().await
}

/// The content of the database.
type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// The kind of job: its rows are added to the existing data, replace all data in a range, or are
/// behind all data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bulk {
    Adds,
    Replaces,
    Behind,
}

impl Bulk {
    async fn request(self, env: &Env) -> Result<IngestRequest> {
        let job = match self {
            Bulk::Behind => behind::begin_behind(env).await?,
            _ => begin(env).await?,
        };
        let job = match self {
            Bulk::Adds | Bulk::Behind => job,
            Bulk::Replaces => job.replacing(ReplacedRange::new(Some(&key(1)), Some(&key(12)))?),
        };
        let part = stage(env, &job, rows(3..12, b"bulk")).await?;
        job.commit(env, &[part], LIMIT).await
    }

    /// The effect on a state.
    fn on(self, state: &mut State) {
        if self == Bulk::Replaces {
            (1..12).for_each(|n| drop(state.remove(&key(n))));
        }
        for n in 3..12 {
            let there = state.entry(key(n)).or_default();
            if there.is_empty() || self != Bulk::Behind {
                *there = b"bulk".to_vec();
            }
        }
    }
}

/// The possible states for a prefix of the history.
fn prefixes(bulk: Bulk) -> Vec<Pairs> {
    let mut model = State::new();
    let mut all = vec![Pairs::new()];
    let mut then = |change: &dyn Fn(&mut State)| {
        change(&mut model);
        all.push(model.clone().into_iter().collect());
    };
    (0..4).for_each(|n| then(&|all| drop(all.insert(key(n), b"before".to_vec()))));
    then(&|all| bulk.on(all));
    (2..6).for_each(|n| then(&|all| drop(all.insert(key(n), b"after".to_vec()))));
    all
}

/// Returns the number of operations of the dying process. It may also meet faults of the store, and
/// give up; later processes meet none.
fn run(
    place: &Place,
    bulk: Bulk,
    crash: Option<(u64, CrashPoint)>,
    faults: Option<FaultPlan>,
) -> u64 {
    let request = place.run("driver", |env| async move {
        match bulk {
            Bulk::Behind => behind::open_behind(&env, options()).await?.close().await?,
            _ => open(&env, options()).await?.close().await?,
        }
        bulk.request(&env).await
    });
    let (process, env) = place.process("dying");
    if let Some((operation, point)) = crash {
        place.bucket.crash_at(process, operation, point);
    }
    let (mut finished, healthy) = (true, faults.is_none());
    faults.into_iter().for_each(|plan| place.bucket.set_plan(plan));
    match place.sim.block_on(process, dying(env, request.clone())) {
        Ok(Ok(())) => {}
        Ok(Err(error)) if healthy => panic!("crash {crash:?}: {error}"),
        Ok(Err(_)) | Err(Stopped::Killed) => finished = false,
        Err(stopped) => panic!("crash {crash:?}: it hangs: {stopped:?}"),
    }
    let operations = place.bucket.operations(process);
    place.sim.kill(process);
    place.bucket.heal();
    place.run("collector", |env| async move { siltstone_tests::gc::round(&env).await });
    let states = prefixes(bulk);
    let told = format!("seed {}, {bulk:?}, crash {crash:?}", place.sim.seed());
    place.run("next", |env| async move {
        let db = open(&env, options()).await?;
        let found = all_of(db.scan(everything())?).await?;
        // A successor may have adopted the requested job, on top of any prefix.
        let on_top = |state: &Pairs| {
            let mut state: State = state.iter().cloned().collect();
            bulk.on(&mut state);
            state.into_iter().collect::<Pairs>() == found
        };
        assert!(states.contains(&found) || states.iter().any(on_top), "{told}: {found:?}");
        assert!(!finished || states.last() == Some(&found), "{told}");
        db.ingest(&request).await?.wait(None).await?;
        let found = all_of(db.scan(everything())?).await?;
        let brought = (6..12).all(|n| found.contains(&(key(n), b"bulk".to_vec())));
        assert!(brought, "{told}: {found:?}");
        db.compact().await?;
        siltstone_tests::gc::round(&env).await?;
        assert_eq!(all_of(db.scan(everything())?).await?, found, "{told}");
        // Once: later writes over it stay.
        for n in 3..12 {
            put(&db, n, b"over").await?;
        }
        db.ingest(&request).await?;
        db.close().await?;
        let db = open(&env, options()).await?;
        let found = all_of(db.scan(everything())?).await?;
        assert!((3..12).all(|n| found.contains(&(key(n), b"over".to_vec()))), "{told}");
        db.close().await
    });
    operations
}

#[test]
fn a_writer_may_die_at_any_request() {
    for bulk in [Bulk::Adds, Bulk::Replaces, Bulk::Behind] {
        let operations = run(&Place::new(), bulk, None, None);
        assert!(operations > 20, "{operations}");
        for operation in 1..=operations {
            for point in [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After] {
                run(&Place::new(), bulk, Some((operation, point)), None);
            }
        }
        println!("{bulk:?}: {operations} operations");
    }
}

/// The same with every fault that a store within its contract may have: lost answers, refusals,
/// requests that land late, slow pages.
#[test]
fn a_writer_may_die_beside_a_store_that_fails() {
    let seeds = std::env::var("INGEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 1..=seeds.unwrap_or(60u64) {
        let place = Place::of(seed);
        let mut rng = place.sim.split_rng();
        let plan = FaultPlan::random(&mut rng);
        let point = match rng.below(3) {
            0 => CrashPoint::Before,
            1 => CrashPoint::AnswerLost,
            _ => CrashPoint::After,
        };
        let bulk = [Bulk::Replaces, Bulk::Adds, Bulk::Behind][seed as usize % 3];
        run(&place, bulk, Some((1 + rng.below(120), point)), Some(plan));
    }
}

async fn driving(env: Env) -> Result<()> {
    let job = begin(&env).await?.replacing(ReplacedRange::new(None, None)?);
    let part = stage(&env, &job, rows(0..9, b"bulk")).await?;
    let request = job.commit(&env, &[part], LIMIT).await?;
    request.submit(&env, false, LIMIT).await.map(drop)
}

/// Before the request exists nothing of the job is visible; objects that a driver left behind are
/// collected after its deadline.
#[test]
fn a_driver_may_die_at_any_request() {
    let run = |crash: Option<(u64, CrashPoint)>| {
        let place = Place::new();
        place.run("maker", |env| async move { open(&env, options()).await?.close().await });
        let (process, env) = place.process("driver");
        if let Some((operation, point)) = crash {
            place.bucket.crash_at(process, operation, point);
        }
        match place.sim.block_on(process, driving(env)) {
            Ok(ended) => ended.expect("a healthy store"),
            Err(Stopped::Killed) => {}
            Err(stopped) => panic!("crash {crash:?}: it hangs: {stopped:?}"),
        }
        let operations = place.bucket.operations(process);
        place.sim.kill(process);
        place.sim.run_for(JOB_LIFETIME + Duration::from_secs(60)).expect("nothing happens");
        place.run("collector", |env| async move { siltstone_tests::gc::round(&env).await });
        let rows = place.run("next", |env| async move {
            let db = open(&env, options()).await?;
            db.flush_memtable().await?;
            // A pending job is adopted before long.
            env.clock.sleep(Duration::from_secs(5)).await;
            let rows = all_of(db.scan(everything())?).await?;
            db.close().await?;
            siltstone_tests::gc::round(&env).await?;
            Ok(rows)
        });
        assert!(rows.is_empty() || rows.len() == 9, "crash {crash:?}: {rows:?}");
        if rows.is_empty() {
            assert_eq!(place.staged(), 0, "crash {crash:?}");
        }
        operations
    };
    let operations = run(None);
    for operation in 1..=operations {
        for point in [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After] {
            run(Some((operation, point)));
        }
    }
    println!("{operations} operations");
}
