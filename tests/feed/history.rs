//! Random histories by seed: writers that take over and are killed, flushes, compactions,
//! collections without a grace period, ingests; beside them a consumer that holds the log from the
//! first row, one that acknowledges and dies, and readers that begin again from every token.

use super::*;

/// Number of seeds, set by the environment for long runs.
fn seeds() -> u64 {
    let given = std::env::var("SILTSTONE_FEED_SEEDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(100)
}

/// Random draws determined by the seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

fn drawn_batch(draw: &mut Draw) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..=draw.below(4) {
        let n = draw.below(40) as u32;
        match draw.below(8) {
            0 => batch.delete(&key(n)).unwrap(),
            1 => batch.delete_range(&key(n), &key(n + 5)).unwrap(),
            _ => batch.put(&key(n), &draw.below(1000).to_be_bytes(), None).unwrap(),
        }
    }
    batch
}

/// A writer's life: its durable writes, in order.
async fn live(env: Env, seed: u64, ends_well: bool) -> Result<Vec<u64>> {
    let mut draw = Draw(seed);
    let db = open(&env).await?;
    let mut durable = Vec::new();
    for _ in 0..10 + draw.below(20) {
        match draw.below(12) {
            0 => db.flush_memtable().await?,
            1 => drop(db.compact().await?),
            2 => {
                let from = draw.below(30) as u32;
                let over = match draw.below(4) {
                    0 => Some(range(from.saturating_sub(3), Some(from + 14))),
                    1 => Some(range(from, None)),
                    _ => None,
                };
                let request = job_over(&env, from..from + 12, over).await?;
                db.ingest(&request).await?.wait(None).await?;
            }
            3 => drop(round(&env).await?),
            4 => env.clock.sleep(Duration::from_millis(draw.below(40))).await,
            5 => {
                let commit = write(&db, &drawn_batch(&mut draw)).await?;
                commit.wait(None).await?;
                durable.push(commit.seq().get());
            }
            _ => drop(write(&db, &drawn_batch(&mut draw)).await?),
        }
    }
    if ends_well {
        db.close().await?;
    } else {
        // The last accepted write may be in flight when the process is killed.
        drop(write(&db, &drawn_batch(&mut draw)).await?);
        std::mem::forget(db);
    }
    Ok(durable)
}

/// The changes that a consumer received over all its lives.
#[derive(Default)]
struct Seen {
    rows: Vec<Row>,
    tokens: Vec<(usize, ChangeToken)>,
}

/// Reads a few batches, acknowledges some, and ends.
async fn consume(env: Env, seed: u64) -> Result<(Vec<Row>, Vec<(usize, ChangeToken)>)> {
    let mut draw = Draw(seed);
    let mut feed = begin(&env, ChangesFrom::Kept, Some("worker")).await?;
    let (mut rows, mut tokens) = (Vec::new(), vec![(0, feed.token())]);
    for _ in 0..draw.below(12) {
        let most = 1 + draw.below(7) as usize;
        let Some(changed) = feed.read(most, 1 << 20).await? else { break };
        rows.extend(rows_of(&changed));
        tokens.push((rows.len(), feed.token()));
        if draw.below(3) == 0 {
            feed.acknowledge(None).await?;
        }
    }
    Ok((rows, tokens))
}

impl Seen {
    /// Another life: it begins at its acknowledged position, so rows may be repeated, unchanged.
    fn then(&mut self, seed: u64, (rows, tokens): (Vec<Row>, Vec<(usize, ChangeToken)>)) {
        // A hold is between commits.
        let from = tokens.first().map_or(0, |(_, token)| token.seq.get());
        let begins = self.rows.iter().filter(|row| row.seq <= from).count();
        for (row, at) in rows.iter().zip(begins..) {
            match self.rows.get(at) {
                Some(known) => assert_eq!(known, row, "seed {seed}: a replay differs"),
                None => self.rows.push(row.clone()),
            }
        }
        self.tokens.extend(tokens.into_iter().map(|(at, token)| (at + begins, token)));
    }
}

fn history(seed: u64) {
    let place = Place::of(seed);
    let mut draw = Draw(seed);
    place.run("first", |env| async move {
        open(&env).await?.close().await?;
        drop(begin(&env, ChangesFrom::Newest, Some("witness")).await?);
        drop(begin(&env, ChangesFrom::Newest, Some("worker")).await?);
        Ok(())
    });
    let (mut durable, mut seen) = (Vec::new(), Seen::default());
    for _ in 0..2 + draw.below(3) {
        let (writer, env) = place.process("writer");
        let ends_well = draw.below(2) == 0;
        let lived = place.sim.block_on(writer, live(env, draw.below(1 << 30), ends_well));
        durable.extend(lived.expect("it ends").unwrap_or_else(|e| panic!("seed {seed}: {e}")));
        place.sim.kill(writer);
        let life = draw.below(1 << 30);
        seen.then(seed, place.run("worker", |env| consume(env, life)));
        place.run("collector", |env| async move { round(&env).await });
    }
    place.run("check", |env| async move { check(&env, seed, &durable, &seen).await });
}

/// The witness has held the log from its first row on: its changes are the history.
async fn check(env: &Env, seed: u64, durable: &[u64], seen: &Seen) -> Result<()> {
    // The successor of a killed writer settles its unfinished writes.
    let db = open(env).await?;
    let mut witness = begin(env, ChangesFrom::Kept, Some("witness")).await?;
    let all = rest(&mut witness, 5).await?;
    let state = all_of(db.scan(ScanRange::all())?).await?;
    assert_eq!(replayed(Vec::new(), &all), state, "seed {seed}");
    let ordered = all.windows(2).all(|pair| pair[0].seq <= pair[1].seq && pair[0].at <= pair[1].at);
    assert!(ordered, "seed {seed}: out of order");
    let told = |seq: &u64| all.iter().any(|row| row.seq == *seq);
    assert!(durable.iter().all(told), "seed {seed}: an acknowledged commit is missing");
    // The worker saw a beginning of it, each row at least once, and unchanged (rule W2).
    let before = &all[..seen.rows.len().min(all.len())];
    assert!(before == seen.rows, "seed {seed}: the worker was told something else");
    for (at, token) in &seen.tokens {
        let token: ChangeToken = token.to_string().parse()?;
        match begin(env, ChangesFrom::Token(token), None).await {
            Ok(mut feed) => match rest(&mut feed, 3).await {
                Ok(rows) => assert!(rows == all[*at..], "seed {seed}: from {token:?}"),
                Err(error) => panic!("seed {seed}: the witness holds it: {error}"),
            },
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    let oldest = begin(env, ChangesFrom::Oldest, Some("another")).await?;
    assert!(oldest.token().seq.get() < all.first().map_or(1, |row| row.seq), "seed {seed}");
    db.close().await
}

/// W1 to W4, in all kinds of histories.
#[test]
fn a_consumer_is_told_the_history_and_from_each_token_alike() {
    (0..seeds()).for_each(history);
}
