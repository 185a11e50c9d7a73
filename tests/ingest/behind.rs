//! Jobs that are installed behind all other data (RFC 0043): random histories compared with a map
//! in which such a job fills keys that were never written, transactions that read before such a
//! job, and refusals.

use super::*;
use siltstone::admin;
use siltstone::tables::ReplacedRange;
use siltstone::verify::verify;
use siltstone::{ErrorKind, Isolation, Progress, Snapshot};
use siltstone_tests::sim::Rng;

const KEYS: u64 = 40;
const STEPS: u64 = 90;

/// The value of every key that was written, deleted or covered by a range delete.
type Map = BTreeMap<u32, Option<Vec<u8>>>;

pub(crate) async fn open_behind(env: &Env, options: Options) -> Result<Database> {
    let how = OpenOptions {
        options,
        take_over: Some(true),
        allow_ingest_behind: true,
        ..OpenOptions::default()
    };
    Database::open(env.clone(), how).await
}

pub(crate) async fn begin_behind(env: &Env) -> Result<IngestJob> {
    IngestJob::begin_behind(env, JOB_LIFETIME, None, LIMIT).await
}

fn shown(model: &Map) -> Pairs {
    let there = |(n, value): (&u32, &Option<Vec<u8>>)| Some((key(*n), value.clone()?));
    model.iter().filter_map(there).collect()
}

async fn check(db: &Database, model: &Map, told: &str) -> Result<()> {
    assert_eq!(all_of(db.scan(everything())?).await?, shown(model), "{told}");
    for n in 0..KEYS as u32 {
        let expected = model.get(&n).and_then(Option::as_deref);
        assert_eq!(db.get(&key(n))?.wait().await?.as_deref(), expected, "{told}: {n}");
    }
    Ok(())
}

/// Parts of random rows, some of which delete, and the resulting values of the job's keys.
async fn staged(
    env: &Env,
    job: &IngestJob,
    rng: &mut Rng,
    value: &[u8],
) -> Result<(Vec<StagedPart>, Map)> {
    let (mut parts, mut says) = (Vec::new(), Map::new());
    for part in 0..1 + rng.below(3) {
        let first = rng.below(KEYS) as u32;
        let mut rows = Vec::new();
        for n in first..(first + 1 + rng.below(12) as u32).min(KEYS as u32) {
            let row = (rng.below(6) > 0).then_some([value, &[part as u8]].concat());
            says.insert(n, row.clone());
            rows.push((n, row));
        }
        parts.push(stage(env, job, rows).await?);
    }
    Ok((parts, says))
}

async fn ingest(
    (env, db): (&Env, &Database),
    rng: &mut Rng,
    model: &mut Map,
    (value, behind): (&[u8], bool),
) -> Result<()> {
    let job = if behind { begin_behind(env).await? } else { begin(env).await? };
    let (parts, says) = staged(env, &job, rng, value).await?;
    let request = job.commit(env, &parts, LIMIT).await?;
    let commit = db.ingest(&request).await?;
    assert!(!behind || commit.is_durable());
    for (n, row) in says {
        match behind {
            true => drop(model.entry(n).or_insert(row)),
            false => drop(model.insert(n, row)),
        }
    }
    Ok(())
}

async fn history(env: Env, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed);
    let mut db = open_behind(&env, options()).await?;
    let mut model = Map::new();
    let mut held: Vec<(Snapshot, Map)> = Vec::new();
    for step in 0..STEPS {
        let told = format!("seed {seed}, step {step}");
        let value = format!("{step}").into_bytes();
        let n = rng.below(KEYS) as u32;
        match rng.below(17) {
            0..=2 => {
                put(&db, n, &value).await?;
                model.insert(n, Some(value));
            }
            3 | 4 => {
                accepted(|| db.delete(&key(n))).await?;
                model.insert(n, None);
            }
            5 => {
                let end = (n + 1 + rng.below(8) as u32).min(KEYS as u32);
                if rng.below(3) == 0 {
                    accepted(|| db.delete_from(&key(n))).await?;
                    model.extend((n..KEYS as u32).map(|n| (n, None)));
                } else {
                    accepted(|| db.delete_range(&key(n), &key(end))).await?;
                    model.extend((n..end).map(|n| (n, None)));
                }
            }
            6 => ingest((&env, &db), &mut rng, &mut model, (&value, false)).await?,
            7..=9 => ingest((&env, &db), &mut rng, &mut model, (&value, true)).await?,
            10 => db.flush_memtable().await?,
            11 | 12 => drop(db.compact().await?),
            13 => held.push((db.snapshot()?, model.clone())),
            14 => {
                siltstone_tests::gc::round(&env).await?;
            }
            15 => {
                held.clear();
                db.close().await?;
                db = open(&env, options()).await?;
            }
            _ => {
                // It dies with everything durable.
                db.flush().await?;
                held.clear();
                std::mem::forget(std::mem::replace(&mut db, open_behind(&env, options()).await?));
            }
        }
        if rng.below(3) == 0 {
            check(&db, &model, &told).await?;
        }
        if let Some((snapshot, model)) = held.last().filter(|_| rng.below(4) == 0) {
            assert_eq!(all_of(snapshot.scan(everything())).await?, shown(model), "{told}: held");
        }
        if held.len() > 3 {
            held.remove(0);
        }
    }
    check(&db, &model, &format!("seed {seed}, at the end")).await?;
    held.clear();
    db.flush_memtable().await?;
    let reader = siltstone::Reader::open(env.clone(), siltstone::ReaderOptions::default()).await?;
    assert_eq!(all_of(reader.scan(everything())?).await?, shown(&model), "seed {seed}: a reader");
    reader.close().await?;
    db.close().await?;
    let report = verify(&env, LIMIT, &Progress::default()).await?;
    assert!(report.is_ok(), "seed {seed}: {report:?}");
    Ok(())
}

#[test]
fn rows_behind_fill_unwritten_keys() {
    let seeds = std::env::var("INGEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 1..=seeds.unwrap_or(25u64) {
        Place::new().run("writer", move |env| history(env, seed));
    }
}

async fn behind_of(env: &Env, rows: Vec<(u32, Option<Vec<u8>>)>) -> Result<IngestRequest> {
    let job = begin_behind(env).await?;
    let part = stage(env, &job, rows).await?;
    job.commit(env, &[part], LIMIT).await
}

/// O4: a key that a transaction has read as absent exists now, and another process may have seen
/// it.
#[test]
fn a_transaction_that_read_before_one_came_conflicts() {
    Place::new().run("writer", |env| async move {
        let db = open_behind(&env, options()).await?;
        put(&db, 1, b"one").await?;
        let read = |n: u32| {
            let db = db.clone();
            async move {
                let transaction = db.transaction(Isolation::Serializable)?;
                let found = transaction.get(&key(n))?.wait().await?.map(|value| value.to_vec());
                transaction.put(&key(90), b"seen", None)?;
                Ok::<_, siltstone::Error>((transaction, found))
            }
        };
        let (touched, absent) = read(5).await?;
        let (untouched, _) = read(30).await?;
        assert_eq!(absent, None);
        let request = behind_of(&env, rows(0..9, b"old")).await?;
        db.ingest(&request).await?;
        // Its read stays the same.
        assert_eq!(touched.get(&key(6))?.wait().await?.as_deref(), None);
        let refused = touched.commit().expect_err("it depends on key 5");
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert!(untouched.commit()?.is_some());
        let (again, found) = read(5).await?;
        assert_eq!(found.as_deref(), Some(&b"old"[..]));
        assert!(again.commit()?.is_some());
        assert_eq!(db.get(&key(1))?.wait().await?.as_deref(), Some(&b"one"[..]));
        db.close().await
    });
}

#[test]
fn a_database_is_made_for_it_or_refuses() {
    Place::new().run("writer", |env| async move {
        open(&env, options()).await?.close().await?;
        let refused = begin_behind(&env).await.expect_err("it was not made for it");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        let refused = open_behind(&env, options()).await.expect_err("nor becomes so");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("allow_ingest_behind"), "{refused}");
        Ok(())
    });
    Place::new().run("writer", |env| async move {
        let db = open_behind(&env, options()).await?;
        let job = begin_behind(&env).await?.replacing(ReplacedRange::new(None, None)?);
        let part = stage(&env, &job, rows(0..3, b"x")).await?;
        let refused = job.commit(&env, &[part], LIMIT).await.expect_err("one or the other");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        db.close().await
    });
}

/// A checkpoint does not see a later job, and a restore undoes it; its numbers are not used again.
#[test]
fn a_restore_takes_back_what_came_behind() {
    Place::new().run("writer", |env| async move {
        let db = open_behind(&env, options()).await?;
        put(&db, 1, b"one").await?;
        db.ingest(&behind_of(&env, rows(0..3, b"first")).await?).await?;
        let made = db.checkpoint(&siltstone::CheckpointOptions::default()).await?;
        let then = all_of(db.scan(everything())?).await?;
        let second = behind_of(&env, rows(0..9, b"second")).await?;
        db.ingest(&second).await?;
        assert_eq!(all_of(db.scan(everything())?).await?.len(), 9);
        db.close().await?;
        admin::restore(&env, &made.id.into(), &options()).await?;
        let db = open(&env, options()).await?;
        assert_eq!(all_of(db.scan(everything())?).await?, then);
        // Its rows are gone, so a repetition is not answered as if they were there.
        assert_eq!(db.ingest(&second).await.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(all_of(db.scan(everything())?).await?, then);
        db.ingest(&behind_of(&env, rows(2..5, b"third")).await?).await?;
        let found = all_of(db.scan(everything())?).await?;
        assert_eq!(found.len(), 5);
        assert_eq!(found[2], (key(2), b"first".to_vec()));
        assert_eq!(found[4], (key(4), b"third".to_vec()));
        db.close().await
    });
}
