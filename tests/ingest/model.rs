//! Random histories compared with a map: puts, deletes, range deletes, merge operands, jobs,
//! flushes, compactions, snapshots, writers that close and writers that die; every read must equal
//! the map.

use super::*;
use siltstone::built_in_operator;
use siltstone::tables::ReplacedRange;
use siltstone::{ErrorKind, Reader, ReaderOptions, Snapshot};
use siltstone_tests::sim::Rng;

const KEYS: u64 = 40;
const STEPS: u64 = 90;

type Map = BTreeMap<u32, Vec<u8>>;

async fn check(db: &Database, model: &Map, told: &str) -> Result<()> {
    let expected = pairs(model);
    assert_eq!(all_of(db.scan(everything())?).await?, expected, "{told}");
    let found = db.get_many((0..KEYS as u32).map(key).collect::<Vec<_>>())?.wait().await?;
    for n in 0..KEYS as u32 {
        let expected = model.get(&n).map(Vec::as_slice);
        assert_eq!(db.get(&key(n))?.wait().await?.as_deref(), expected, "{told}: {n}");
        assert_eq!(found[n as usize].as_deref(), expected, "{told}: {n} of many");
    }
    Ok(())
}

/// As [`check`], of a reader in the same process, after a refresh.
async fn check_reader(reader: &Reader, model: &Map, told: &str) -> Result<()> {
    reader.refresh().await?;
    let expected = pairs(model);
    assert_eq!(all_of(reader.scan(everything())?).await?, expected, "{told}: reader");
    let found = reader.get_many((0..KEYS as u32).map(key).collect::<Vec<_>>())?.wait().await?;
    for n in 0..KEYS as u32 {
        let expected = model.get(&n).map(Vec::as_slice);
        let one = reader.get(&key(n))?.wait().await?;
        assert_eq!(one.as_deref(), expected, "{told}: reader, {n}");
        assert_eq!(found[n as usize].as_deref(), expected, "{told}: reader, {n} of many");
    }
    Ok(())
}

async fn open_reader(env: &Env) -> Result<Reader> {
    let merge_operator = built_in_operator("append");
    let how = ReaderOptions { options: options(), merge_operator, ..ReaderOptions::default() };
    Reader::open(env.clone(), how).await
}

/// Checks the reader in one of three steps; in half of these it refreshes once more, which must not
/// change what it holds.
async fn follow(
    db: &Database,
    reader: &Reader,
    rng: &mut Rng,
    model: &Map,
    told: &str,
) -> Result<()> {
    if rng.below(3) > 0 {
        return Ok(());
    }
    db.flush().await?;
    check_reader(reader, model, told).await?;
    if rng.below(2) == 0 {
        reader.refresh().await?;
    }
    Ok(())
}

/// Begins a job. Its rows may have these keys: in one of three jobs those of a range that the job
/// replaces.
async fn begin_within(
    env: &Env,
    rng: &mut Rng,
    model: &mut Map,
) -> Result<(IngestJob, std::ops::Range<u32>)> {
    let job = begin(env).await?;
    if rng.below(3) > 0 {
        return Ok((job, 0..KEYS as u32));
    }
    let (range, replaced) = replaced(rng)?;
    model.retain(|n, _| !range.contains(n));
    Ok((job.replacing(replaced), range))
}

async fn ingest(
    env: &Env,
    db: &Database,
    rng: &mut Rng,
    model: &mut Map,
    value: &[u8],
) -> Result<()> {
    let (job, within) = begin_within(env, rng, model).await?;
    let mut parts = Vec::new();
    // Without a part the job is only the delete of its range.
    let most = if job.replace.is_some() { rng.below(4) } else { 1 + rng.below(3) };
    for part in 0..most {
        let first = within.start + rng.below(u64::from(within.end - within.start)) as u32;
        let mut staged = Vec::new();
        for n in first..(first + 1 + rng.below(12) as u32).min(within.end) {
            let value = [value, &[part as u8]].concat();
            let row = (rng.below(5) > 0).then_some(value);
            match &row {
                Some(value) => drop(model.insert(n, value.clone())),
                None => drop(model.remove(&n)),
            }
            staged.push((n, row));
        }
        parts.push(stage(env, &job, staged).await?);
    }
    let request = job.commit(env, &parts, LIMIT).await?;
    db.ingest(&request).await.map(drop)
}

/// A job of puts, deletes and merge operands. Its parts are ranges of keys, in any order.
async fn ingest_operands(
    env: &Env,
    db: &Database,
    rng: &mut Rng,
    model: &mut Map,
    value: &[u8],
) -> Result<()> {
    let (job, within) = begin_within(env, rng, model).await?;
    let mut parts = Vec::new();
    let mut first = within.start;
    while first < within.end && (parts.is_empty() || rng.below(3) > 0) {
        let end = (first + 1 + rng.below(12) as u32).min(within.end);
        let how = PartOptions { duplicates: Duplicates::Refuse, ..part_options() };
        let mut writer = job.writer(env, how).unwrap();
        for n in first..end {
            let pushed = match rng.below(5) {
                0 => {
                    model.remove(&n);
                    writer.push(Kind::Delete, &key(n), &[], None)?
                }
                1 => {
                    model.insert(n, value.to_vec());
                    writer.push(Kind::Put, &key(n), value, None)?
                }
                _ => {
                    model.entry(n).or_default().extend_from_slice(value);
                    writer.push(Kind::Merge, &key(n), value, None)?
                }
            };
            assert_eq!(pushed, PushResult::Room);
        }
        let part = writer.finish().await?;
        let at = rng.below(parts.len() as u64 + 1) as usize;
        parts.insert(at, StagedPart::from_bytes(&part.to_bytes()?)?);
        first = end + rng.below(3) as u32;
    }
    let request = job.commit(env, &parts, LIMIT).await?;
    db.ingest(&request).await.map(drop)
}

/// The writer has a merge operator, so jobs may bring operands.
async fn open(env: &Env, options: Options) -> Result<Database> {
    let merge_operator = built_in_operator("append");
    let how =
        OpenOptions { options, take_over: Some(true), merge_operator, ..OpenOptions::default() };
    Database::open(env.clone(), how).await
}

/// A batch of about the size from which on it skips the memtable.
async fn batch(db: &Database, rng: &mut Rng, model: &mut Map, value: &[u8]) -> Result<()> {
    let mut rows = Vec::new();
    for _ in 0..1 + rng.below(30) {
        let n = rng.below(KEYS) as u32;
        let row = (rng.below(4) > 0).then(|| value.to_vec());
        match &row {
            Some(value) => drop(model.insert(n, value.clone())),
            None => drop(model.remove(&n)),
        }
        rows.push((n, row));
    }
    large::write(db, &large::batch_of(&rows)?).await.map(drop)
}

/// A range to replace, and the keys of the model in it: bounded, or with open ends.
fn replaced(rng: &mut Rng) -> Result<(std::ops::Range<u32>, ReplacedRange)> {
    let (first, end) = (rng.below(KEYS) as u32, KEYS as u32);
    let last = (first + 1 + rng.below(15) as u32).min(end);
    let (range, start, stop) = match rng.below(5) {
        0 => (0..end, None, None),
        1 => (first..end, Some(key(first)), None),
        2 => (0..last, None, Some(key(last))),
        _ => (first..last, Some(key(first)), Some(key(last))),
    };
    Ok((range, ReplacedRange::new(start.as_deref(), stop.as_deref())?))
}

async fn history(env: Env, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed);
    // In every other history flushes are rare, so that jobs stay in the queue.
    let of_writer = || if seed.is_multiple_of(2) { slow() } else { options() };
    let mut db = open(&env, of_writer()).await?;
    let mut model = Map::new();
    let mut held: Vec<(Snapshot, Map)> = Vec::new();
    let reader = open_reader(&env).await?;
    for step in 0..STEPS {
        let told = format!("seed {seed}, step {step}");
        let value = format!("{step}").into_bytes();
        let n = rng.below(KEYS) as u32;
        match rng.below(22) {
            0..=4 => {
                put(&db, n, &value).await?;
                model.insert(n, value);
            }
            5 => {
                accepted(|| db.delete(&key(n))).await?;
                model.remove(&n);
            }
            6 => {
                let end = n + 1 + rng.below(8) as u32;
                accepted(|| db.delete_range(&key(n), &key(end))).await?;
                model.retain(|one, _| !(n..end).contains(one));
            }
            7..=9 => ingest(&env, &db, &mut rng, &mut model, &value).await?,
            16 | 17 => batch(&db, &mut rng, &mut model, &value).await?,
            18 | 19 => ingest_operands(&env, &db, &mut rng, &mut model, &value).await?,
            20 | 21 => {
                accepted(|| db.merge(&key(n), &value, None)).await?;
                model.entry(n).or_default().extend_from_slice(&value);
            }
            10 => db.flush_memtable().await?,
            11 => drop(db.compact().await?),
            12 => held.push((db.snapshot()?, model.clone())),
            13 => {
                siltstone_tests::gc::round(&env).await?;
            }
            14 => {
                held.clear();
                db.close().await?;
                db = open(&env, of_writer()).await?;
            }
            _ => {
                // It dies with everything durable.
                db.flush().await?;
                held.clear();
                std::mem::forget(std::mem::replace(&mut db, open(&env, of_writer()).await?));
            }
        }
        if rng.below(3) == 0 {
            check(&db, &model, &told).await?;
        }
        follow(&db, &reader, &mut rng, &model, &told).await?;
        if let Some((snapshot, model)) = held.last().filter(|_| rng.below(4) == 0) {
            assert_eq!(all_of(snapshot.scan(everything())).await?, pairs(model), "{told}: held");
        }
        if held.len() > 3 {
            held.remove(0);
        }
    }
    check(&db, &model, &format!("seed {seed}, at the end")).await?;
    held.clear();
    db.close().await?;
    check_reader(&reader, &model, &format!("seed {seed}, closed")).await?;
    reader.close().await
}

#[test]
fn operands_that_cannot_be_merged_are_refused() {
    let place = Place::new();
    place.run("writer", |env| async move {
        let refused = |pushed: Result<PushResult>, text: &str| {
            let error = pushed.expect_err(text);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(text), "{error}");
        };
        let single = || PartOptions { duplicates: Duplicates::Refuse, ..part_options() };
        let number = 1i64.to_le_bytes();
        let plain = super::open(&env, options()).await?;
        let before = begin(&env).await?;
        plain.close().await?;
        let merge_operator = built_in_operator("sum_i64");
        let how = OpenOptions { options: options(), merge_operator, ..OpenOptions::default() };
        let db = Database::open(env.clone(), how).await?;

        let mut writer = before.writer(&env, single()).unwrap();
        refused(writer.push(Kind::Merge, b"a", &number, None), "had no merge operator");
        // The writer goes on without that row.
        assert_eq!(writer.push(Kind::Put, b"a", &number, None)?, PushResult::Room);
        let part = writer.finish().await?;
        db.ingest(&before.commit(&env, &[part], LIMIT).await?).await?;

        let job = begin(&env).await?;
        let mut keeps_last = job.writer(&env, part_options()).unwrap();
        refused(keeps_last.push(Kind::Merge, b"a", &number, None), "duplicates=\"error\"");
        let mut writer = job.writer(&env, single()).unwrap();
        refused(writer.push(Kind::Merge, b"a", b"one", None), "8 bytes");
        let behind = IngestJob { behind: true, ..job.clone() };
        let mut of_behind = behind.writer(&env, single()).unwrap();
        refused(of_behind.push(Kind::Merge, b"a", &number, None), "older than the database");

        // Two parts with a key in common.
        let mut parts = Vec::new();
        for keys in [[b"a", b"c"], [b"b", b"d"]] {
            let mut writer = job.writer(&env, single()).unwrap();
            for key in keys {
                assert_eq!(writer.push(Kind::Merge, key, &number, None)?, PushResult::Room);
            }
            parts.push(writer.finish().await?);
        }
        let error = job.commit(&env, &parts, LIMIT).await.expect_err("they overlap");
        assert!(error.to_string().contains("ranges of keys"), "{error}");
        db.ingest(&job.commit(&env, &parts[..1], LIMIT).await?).await?;
        assert_eq!(db.get(b"a")?.wait().await?.as_deref(), Some(&2i64.to_le_bytes()[..]));
        assert_eq!(db.get(b"c")?.wait().await?.as_deref(), Some(&number[..]));
        db.close().await
    });
}

#[test]
fn every_read_is_the_maps() {
    let seeds = std::env::var("INGEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 1..=seeds.unwrap_or(25u64) {
        let place = Place::new();
        place.run("writer", move |env| history(env, seed));
    }
}
