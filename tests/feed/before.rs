//! Before-images (RFC 0041): every change has the value that its key had right before it, however
//! the feed is read and wherever it begins.

use super::*;
use siltstone::changes::ImageBase;
use siltstone::{CheckpointName, MergeOperator, UnixMillis, admin, built_in_operator};
use siltstone_tests::sim::Rng;

/// Keys that a history changes.
const KEYS: u64 = 14;

/// A change with its expiry, and the image that the feed has of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Imaged {
    row: Row,
    expires_at: Option<u64>,
    before: Option<Vec<u8>>,
}

fn operator() -> Arc<dyn MergeOperator> {
    built_in_operator("append").expect("it is built in")
}

async fn open_appending(env: &Env) -> Result<Database> {
    let how = OpenOptions {
        options: options(),
        take_over: Some(true),
        merge_operator: Some(operator()),
        ..OpenOptions::default()
    };
    Database::open(env.clone(), how).await
}

async fn checkpoint(env: &Env) -> Result<CheckpointName> {
    let how = siltstone::CheckpointOptions::default();
    Ok(admin::create_checkpoint(env, &how, LIMIT).await?.id.into())
}

async fn with_images(
    env: &Env,
    since: ChangesFrom,
    before: Option<ImageBase>,
    consumer: Option<&str>,
) -> Result<Changes> {
    let consumer = consumer.map(Consumer::new);
    changes::changes(env, ChangesOptions { since, consumer, until: None, before }, LIMIT).await
}

fn imaged(changed: &ChangeRows) -> Vec<Imaged> {
    let images = changed.before.as_ref();
    let expires = |at: usize| changed.expiries[at].map(|time| time.0);
    let rows = rows_of(changed).into_iter().enumerate();
    let rows = rows.map(|(at, row)| Imaged {
        row,
        expires_at: expires(at),
        before: images.and_then(|images| images.get(at)).map(<[u8]>::to_vec),
    });
    rows.collect()
}

/// The value of a key right before change number `at`, from all changes before it.
fn modelled(all: &[Imaged], at: usize) -> Option<Vec<u8>> {
    let change = &all[at].row;
    if change.kind == Kind::RangeDelete {
        return None;
    }
    let (mut operands, mut base) = (Vec::new(), None);
    for older in all[..at].iter().rev() {
        let row = &older.row;
        let covers = row.kind == Kind::RangeDelete && row.key <= change.key;
        if covers && change.key < row.value {
            break;
        }
        if row.kind == Kind::RangeDelete || row.key != change.key {
            continue;
        }
        if row.kind == Kind::Delete || older.expires_at.is_some_and(|end| end <= change.at) {
            break;
        }
        if row.kind == Kind::Put {
            base = Some(&row.value[..]);
            break;
        }
        operands.push(&row.value[..]);
    }
    if operands.is_empty() {
        return base.map(<[u8]>::to_vec);
    }
    operands.reverse();
    Some(operator().fold(&change.key, base, &operands).expect("it appends"))
}

fn some_batch(rng: &mut Rng, now: UnixMillis) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..=rng.below(4) {
        let n = rng.below(KEYS) as u32;
        let most = 2 << rng.below(12);
        let life = UnixMillis(now.0 + rng.below(most));
        let expires_at = (rng.below(3) == 0).then_some(life);
        let value = [b'a' + rng.below(26) as u8; 2];
        match rng.below(9) {
            0 | 1 => batch.delete(&key(n)).unwrap(),
            2 => batch.delete_range(&key(n), &key(n + 1 + rng.below(6) as u32)).unwrap(),
            3..6 => batch.merge(&key(n), &value[..1], expires_at).unwrap(),
            _ => batch.put(&key(n), &value, expires_at).unwrap(),
        }
    }
    batch
}

/// One of the things that a writer does.
async fn some_work(env: &Env, db: &Database, rng: &mut Rng) -> Result<()> {
    match rng.below(14) {
        0 => db.flush_memtable().await,
        1 => db.compact().await.map(drop),
        2 => {
            let from = rng.below(KEYS) as u32;
            let over = match rng.below(4) {
                0 | 1 => Some(range(from.saturating_sub(3), Some(from + 8))),
                2 => Some(range(from, None)),
                _ => None,
            };
            let value = [b'A' + rng.below(26) as u8; 2];
            let request = job_with(env, from..from + 6, &value, over).await?;
            db.ingest(&request).await?.wait(None).await
        }
        3 | 4 => {
            env.clock.sleep(Duration::from_millis(rng.below(300))).await;
            Ok(())
        }
        _ => write(db, &some_batch(rng, env.clock.now())).await.map(drop),
    }
}

/// A history with checkpoints, and its changes as a feed without before-images returns them.
async fn some_history(
    env: &Env,
    rng: &mut Rng,
    with_restores: bool,
) -> Result<(Vec<Imaged>, Vec<CheckpointName>)> {
    let mut db = open_appending(env).await?;
    drop(begin(env, ChangesFrom::Newest, Some("witness")).await?);
    let mut checkpoints = vec![checkpoint(env).await?];
    for _ in 0..12 + rng.below(30) {
        some_work(env, &db, rng).await?;
        if rng.below(8) == 0 {
            if rng.below(2) == 0 {
                db.flush().await?;
            }
            checkpoints.push(checkpoint(env).await?);
        }
        if with_restores && rng.below(12) == 0 {
            db.close().await?;
            let at = rng.below(checkpoints.len() as u64) as usize;
            checkpoints.truncate(at + 1);
            admin::restore(env, &checkpoints[at], &options()).await?;
            db = open_appending(env).await?;
        }
    }
    db.close().await?;
    let mut witness = begin(env, ChangesFrom::Kept, Some("witness")).await?;
    let mut all = Vec::new();
    while let Some(changed) = witness.read(50, 1 << 20).await? {
        all.extend(imaged(&changed));
    }
    for at in 0..all.len() {
        all[at].before = modelled(&all, at);
    }
    Ok((all, checkpoints))
}

/// The next changes, after reads that are dropped at some moment.
async fn some_read(env: &Env, feed: &mut Changes, rng: &mut Rng) -> Result<Option<ChangeRows>> {
    let most = if rng.below(3) == 0 { 100 } else { 1 + rng.below(9) as usize };
    let began = feed.token();
    for _ in 0..rng.below(3) {
        let patience = env.clock.sleep(Duration::from_millis(rng.below(90)));
        let ended = futures::future::select(feed.read(most, 1 << 20), patience).await;
        if let futures::future::Either::Left((read, _)) = ended {
            return read;
        }
        drop(ended);
        assert_eq!(feed.token(), began);
    }
    feed.read(most, 1 << 20).await
}

/// The changes of a feed, read in batches of random sizes, with reads that are repeated. Returns
/// the token after each batch beside the number of changes up to it.
async fn some_reads(
    env: &Env,
    feed: &mut Changes,
    rng: &mut Rng,
) -> Result<(Vec<Imaged>, Vec<(usize, ChangeToken)>)> {
    let (mut all, mut tokens) = (Vec::new(), vec![(0, feed.token())]);
    while let Some(changed) = some_read(env, feed, rng).await? {
        let back = match rng.below(12) {
            // The last batch again, and all of them again.
            0 => tokens.len().checked_sub(1),
            1 => Some(rng.below(tokens.len() as u64) as usize),
            _ => None,
        };
        if let Some(back) = back {
            tokens.truncate(back + 1);
            let (read, token) = tokens[back];
            all.truncate(read);
            feed.rewind(token);
            continue;
        }
        all.extend(imaged(&changed));
        tokens.push((all.len(), feed.token()));
    }
    Ok((all, tokens))
}

async fn check_images(env: &Env, seed: u64, with_restores: bool) -> Result<()> {
    let mut rng = Rng::new(seed);
    let (all, checkpoints) = some_history(env, &mut rng, with_restores).await?;
    for name in checkpoints {
        let since = ChangesFrom::Checkpoint(name.clone());
        let mut feed = with_images(env, since, Some(ImageBase::Start), None).await?;
        let (rows, tokens) = some_reads(env, &mut feed, &mut rng).await?;
        let from = all.len() - rows.len();
        for (at, row) in rows.iter().enumerate() {
            assert_eq!(*row, all[from + at], "seed {seed}, from {name}, change {at}");
        }
        // From a token the images are the same, on top of the same checkpoint.
        for _ in 0..3 {
            let (read, token) = tokens[rng.below(tokens.len() as u64) as usize];
            let base = Some(ImageBase::Checkpoint(name.clone()));
            let mut feed = with_images(env, ChangesFrom::Token(token), base, None).await?;
            assert_eq!(feed.token(), token);
            let (later, _) = some_reads(env, &mut feed, &mut rng).await?;
            assert!(later == rows[read..], "seed {seed}, from {name} at {read}");
        }
    }
    Ok(())
}

/// Number of seeds, set by the environment for long runs.
fn seeds() -> u64 {
    let given = std::env::var("SILTSTONE_FEED_SEEDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(60)
}

#[test]
fn before_images_are_those_of_a_model() {
    for seed in 0..seeds() {
        let place = Place::of(seed);
        place.run("one", move |env| async move { check_images(&env, seed, seed % 3 == 2).await });
    }
}

/// A consumer that acknowledges everything continues on top of a newer checkpoint, and the log
/// before its position is collected.
#[test]
fn a_consumer_moves_from_checkpoint_to_checkpoint() {
    Place::of(1).run("one", |env| async move {
        let db = open_appending(&env).await?;
        put(&db, 1, b"one").await?;
        db.flush().await?;
        let start = Some(ImageBase::Start);
        let mut feed = with_images(&env, ChangesFrom::Snapshot, start, Some("audit")).await?;
        let first: CheckpointName = feed.checkpoint().expect("it made one").id.into();
        put(&db, 1, b"two").await?;
        db.flush_memtable().await?;
        let changed = feed.read(10, 1 << 20).await?.expect("a change");
        assert_eq!(imaged(&changed)[0].before.as_deref(), Some(&b"one"[..]));
        let second = checkpoint(&env).await?;
        feed.acknowledge(None).await?;
        drop(feed);
        put(&db, 1, b"three").await?;
        db.flush_memtable().await?;
        for _ in 0..3 {
            round(&env).await?;
        }
        let base = Some(ImageBase::Checkpoint(second));
        let mut feed = with_images(&env, ChangesFrom::Kept, base, Some("audit")).await?;
        let changed = feed.read(10, 1 << 20).await?.expect("a change");
        assert_eq!(imaged(&changed)[0].before.as_deref(), Some(&b"two"[..]));
        // The changes after the first checkpoint are gone.
        let base = Some(ImageBase::Checkpoint(first));
        let mut feed = with_images(&env, ChangesFrom::Kept, base, Some("audit")).await?;
        let told = feed.read(10, 1 << 20).await.expect_err("they were collected");
        assert_eq!(told.kind(), ErrorKind::Expired);
        assert!(told.to_string().contains("newer checkpoint"), "{told}");
        db.close().await
    });
}

#[test]
fn a_start_without_a_checkpoint_is_refused() {
    Place::of(2).run("one", |env| async move {
        let db = open_appending(&env).await?;
        put(&db, 1, b"one").await?;
        db.flush().await?;
        let early = ChangesFrom::Token(changes::newest(&env, LIMIT).await?);
        put(&db, 1, b"two").await?;
        db.flush().await?;
        let late = checkpoint(&env).await?;
        let start = Some(ImageBase::Start);
        for since in [ChangesFrom::Oldest, ChangesFrom::Newest, ChangesFrom::Kept, early.clone()] {
            let told = with_images(&env, since, start.clone(), None).await.expect_err("no state");
            assert_eq!(told.kind(), ErrorKind::Invalid);
            assert!(told.to_string().contains("create a checkpoint"), "{told}");
        }
        let base = Some(ImageBase::Checkpoint(late.clone()));
        let told = with_images(&env, early, base, None).await.expect_err("it is newer");
        assert_eq!(told.kind(), ErrorKind::Invalid);
        assert!(told.to_string().contains("newer than the start"), "{told}");
        admin::delete_checkpoint(&env, &late, LIMIT).await?;
        let since = ChangesFrom::Checkpoint(late);
        let told = with_images(&env, since, start, None).await.expect_err("it was deleted");
        assert_eq!(told.kind(), ErrorKind::Expired);
        db.close().await
    });
}

/// A checkpoint of an empty database has no last change. Changes after it that were collected must
/// not pass as keys without a value.
#[test]
fn a_checkpoint_of_nothing_is_a_start() {
    Place::of(3).run("one", |env| async move {
        let db = open_appending(&env).await?;
        let empty = checkpoint(&env).await?;
        let start = Some(ImageBase::Start);
        let since = ChangesFrom::Checkpoint(empty);
        let mut early = with_images(&env, since.clone(), start.clone(), None).await?;
        for value in [b"one", b"two"] {
            put(&db, 1, value).await?;
            db.flush().await?;
        }
        let changed = early.read(10, 1 << 20).await?.expect("two changes");
        let found: Vec<_> = imaged(&changed).into_iter().map(|row| row.before).collect();
        assert_eq!(found, [None, Some(b"one".to_vec())]);
        db.flush_memtable().await?;
        put(&db, 1, b"three").await?;
        db.flush_memtable().await?;
        for _ in 0..3 {
            round(&env).await?;
        }
        put(&db, 1, b"four").await?;
        db.flush().await?;
        let mut late = with_images(&env, since, start, None).await?;
        let told = late.read(10, 1 << 20).await.expect_err("they were collected");
        assert_eq!(told.kind(), ErrorKind::Expired);
        db.close().await
    });
}

/// A value at the checkpoint that expires between two changes: an operand above it stays, so the
/// checkpoint is read again as of the second one.
#[test]
fn the_value_at_the_checkpoint_is_that_of_the_time() {
    Place::of(4).run("one", |env| async move {
        let db = open_appending(&env).await?;
        let soon = UnixMillis(env.clock.now().0 + 60_000);
        let mut batch = Batch::new();
        batch.put(&key(1), b"a", Some(soon))?;
        write(&db, &batch).await?;
        let appended = async |operand: &[u8]| {
            let mut batch = Batch::new();
            batch.merge(&key(1), operand, None)?;
            write(&db, &batch).await?;
            db.flush().await
        };
        appended(b"+").await?;
        db.flush_memtable().await?;
        let since = ChangesFrom::Checkpoint(checkpoint(&env).await?);
        appended(b"x").await?;
        env.clock.sleep(Duration::from_secs(61)).await;
        appended(b"y").await?;
        appended(b"z").await?;
        let mut feed = with_images(&env, since, Some(ImageBase::Start), None).await?;
        let changed = feed.read(10, 1 << 20).await?.expect("changes");
        let found: Vec<_> = imaged(&changed).into_iter().filter_map(|row| row.before).collect();
        assert_eq!(found, [&b"a+"[..], b"+x", b"+xy"]);
        db.close().await
    });
}
