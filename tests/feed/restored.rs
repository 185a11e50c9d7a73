//! Feeds with many restores, in any order (rule W6): a consumer that continues from a token, or
//! under a name, gets to the present state, or gets an error.

use super::*;
use siltstone::admin;
use siltstone_base::CheckpointId;
use siltstone_tests::sim::Rng;

fn options_of_checkpoint() -> siltstone::CheckpointOptions {
    siltstone::CheckpointOptions::default()
}

async fn kept(env: &Env) -> Result<CheckpointId> {
    Ok(admin::create_checkpoint(env, &options_of_checkpoint(), LIMIT).await?.id)
}

async fn restored(env: &Env, to: CheckpointId) -> Result<Database> {
    admin::restore(env, &to.into(), &options()).await?;
    open(env).await
}

async fn puts(db: &Database, keys: std::ops::Range<u32>, value: &[u8]) -> Result<()> {
    for n in keys {
        put(db, n, value).await?;
    }
    db.flush_memtable().await
}

/// A history whose end was undone by a restore is restored itself: changes undone by its own
/// restore are not returned, and changes undone by the other one are returned again.
#[test]
fn a_history_comes_back() {
    Place::of(7).run("one", |env| async move {
        open(&env).await?.close().await?;
        drop(begin(&env, ChangesFrom::Newest, Some("witness")).await?);
        let db = open(&env).await?;
        puts(&db, 0..3, b"early").await?;
        let early = kept(&env).await?;
        puts(&db, 2..6, b"late").await?;
        let late = kept(&env).await?;
        puts(&db, 0..9, b"undone").await?;
        db.close().await?;
        let db = restored(&env, early).await?;
        puts(&db, 5..8, b"undone, too").await?;
        let beside = changes::newest(&env, LIMIT).await?;
        db.close().await?;
        let db = restored(&env, late).await?;
        puts(&db, 7..9, b"last").await?;
        let mut feed = begin(&env, ChangesFrom::Kept, Some("witness")).await?;
        let rows = rest(&mut feed, 4).await?;
        assert_eq!(replayed(Vec::new(), &rows), all_of(db.scan(ScanRange::all())?).await?);
        assert!(rows.iter().all(|row| !row.value.starts_with(b"undone")), "{rows:?}");
        let told = begin(&env, ChangesFrom::Token(beside), None).await.expect_err("undone");
        assert_eq!(told.kind(), ErrorKind::Expired);
        // The token contains no position at which the two diverged.
        assert!(!told.to_string().contains("last sequence number that remains"), "{told}");
        db.close().await
    });
}

/// Changes read before a restore cannot be acknowledged after it: otherwise the next consumer of
/// the name would continue as if all of them still existed.
#[test]
fn undone_changes_are_not_acknowledged() {
    Place::of(8).run("one", |env| async move {
        let db = open(&env).await?;
        puts(&db, 0..3, b"kept").await?;
        let mut feed = begin(&env, ChangesFrom::Newest, Some("one")).await?;
        let back = kept(&env).await?;
        puts(&db, 3..6, b"undone").await?;
        let rows = rest(&mut feed, 4).await?;
        assert_eq!(rows.len(), 3);
        db.close().await?;
        let db = restored(&env, back).await?;
        puts(&db, 6..7, b"new").await?;
        let told = feed.acknowledge(None).await.expect_err("undone");
        assert_eq!(told.kind(), ErrorKind::Expired);
        assert!(told.to_string().contains("restored"), "{told}");
        let mut next = begin(&env, ChangesFrom::Kept, Some("one")).await?;
        let rows = rest(&mut next, 4).await?;
        assert_eq!(rows.iter().map(|row| &row.value[..]).collect::<Vec<_>>(), [b"new"]);
        next.acknowledge(None).await?;
        db.close().await
    });
}

/// A restore ends a hold within a long log, of which the rest is then collected: its consumer
/// learns the reason.
#[test]
fn a_consumer_whose_log_is_gone_is_told_of_the_restore() {
    Place::of(12).run("one", |env| async move {
        let db = open(&env).await?;
        puts(&db, 0..1, b"kept").await?;
        let back = kept(&env).await?;
        let mut feed = begin(&env, ChangesFrom::Newest, Some("one")).await?;
        // One object each, and more of them than a feed reads ahead.
        for n in 0..400 {
            put(&db, n % 10, b"undone").await?;
            db.flush().await?;
        }
        db.flush_memtable().await?;
        let first = feed.read(1, 1 << 20).await?;
        assert_eq!(first.map(|rows| rows.len()), Some(1));
        feed.acknowledge(None).await?;
        db.close().await?;
        let db = restored(&env, back).await?;
        puts(&db, 6..7, b"new").await?;
        for _ in 0..3 {
            round(&env).await?;
        }
        let told = rest(&mut feed, 10).await.expect_err("undone").to_string();
        assert!(told.contains("restored"), "{told}");
        db.close().await
    });
}

/// A range to the newest position ends there, although nothing was written since the restore.
#[test]
fn a_range_over_a_cut_has_an_end() {
    Place::of(9).run("one", |env| async move {
        let db = open(&env).await?;
        puts(&db, 0..3, b"kept").await?;
        let (back, from) = (kept(&env).await?, changes::newest(&env, LIMIT).await?);
        puts(&db, 3..6, b"undone").await?;
        db.close().await?;
        let db = restored(&env, back).await?;
        let until = Some(changes::newest(&env, LIMIT).await?);
        let how =
            ChangesOptions { since: ChangesFrom::Token(from), consumer: None, until, before: None };
        let mut feed = changes::changes(&env, how, LIMIT).await?;
        assert_eq!(rest(&mut feed, 4).await?, []);
        db.close().await
    });
}

/// A checkpoint of an undone state is not a valid start, for any last number.
#[test]
fn behind_a_checkpoint_that_is_undone_nothing_begins() {
    Place::of(10).run("one", |env| async move {
        let db = open(&env).await?;
        puts(&db, 0..3, b"kept").await?;
        let back = kept(&env).await?;
        puts(&db, 3..6, b"undone").await?;
        let beyond = kept(&env).await?;
        db.close().await?;
        let db = restored(&env, back).await?;
        puts(&db, 6..7, b"new").await?;
        let told = begin(&env, ChangesFrom::Checkpoint(beyond.into()), None).await.map(drop);
        assert_eq!(told.map_err(|error| error.kind()), Err(ErrorKind::Expired));
        drop(begin(&env, ChangesFrom::Checkpoint(back.into()), None).await?);
        db.close().await
    });
}

/// A large batch that was read, not returned, undone by a restore and collected is skipped.
#[test]
fn changes_undone_before_they_are_told_are_passed_over() {
    let place = Place::of(11);
    place.run("one", |env| async move { open(&env).await?.close().await });
    let (consumer, env) = place.process("consumer");
    let feed = place.sim.block_on(consumer, async move {
        begin(&env, ChangesFrom::Newest, Some("consumer")).await
    });
    let mut feed = feed.expect("it ends").expect("a healthy store");
    let (writer, env) = place.process("writer");
    let wrote = place.sim.block_on(writer, async move {
        let mut how =
            OpenOptions { options: options(), take_over: Some(true), ..OpenOptions::default() };
        how.options.writes.skip_memtable_bytes = Some(1000);
        let db = Database::open(env.clone(), how).await?;
        for n in 0..3 {
            put(&db, n, b"kept").await?;
        }
        db.flush().await?;
        let back = kept(&env).await?;
        let mut large = Batch::new();
        for n in 0..30 {
            large.put(&key(n), &[7; 100], None)?;
        }
        let large = db.write_large(&large)?.expect("it is large");
        large.await?.wait(None).await?;
        std::mem::forget(db);
        Ok::<_, Error>(back)
    });
    // It is in the log, and in no version yet.
    place.sim.kill(writer);
    let back = wrote.expect("it ends").expect("a healthy store");
    let read = place.sim.block_on(consumer, async move {
        let read = feed.read(3, 1 << 20).await?.map(|rows| rows.len());
        Ok::<_, Error>((read, feed))
    });
    let (read, mut feed) = read.expect("it ends").expect("a healthy store");
    assert_eq!(read, Some(3));
    place.run("restorer", move |env| async move {
        let db = restored(&env, back).await?;
        puts(&db, 6..7, b"new").await?;
        for _ in 0..3 {
            round(&env).await?;
        }
        db.close().await
    });
    let next = place.sim.block_on(consumer, async move { rest(&mut feed, 1).await });
    let next = next.expect("it ends").expect("what is undone is passed over");
    assert_eq!(next.iter().map(|row| &row.value[..]).collect::<Vec<_>>(), [b"new"]);
}

/// The state that a downstream system has built from a feed.
struct Downstream {
    token: ChangeToken,
    rows: Pairs,
}

/// A consumer with a name.
struct Named {
    name: &'static str,
    feed: Option<Changes>,
    rows: Pairs,
    acknowledged: Pairs,
}

struct History {
    env: Env,
    rng: Rng,
    db: Option<Database>,
    places: Vec<Downstream>,
    named: Vec<Named>,
    kept: Vec<CheckpointId>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    restores: u64,
    expired: u64,
    inside: u64,
    went_on: u64,
    acknowledged: u64,
}

/// `None`: Expired.
fn honest<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::Expired => Ok(None),
        other => other.map(Some),
    }
}

impl History {
    fn db(&self) -> &Database {
        self.db.as_ref().expect("it is open")
    }

    async fn write(&mut self, step: u32) -> Result<()> {
        let mut batch = Batch::new();
        for _ in 0..1 + self.rng.below(3) {
            let n = self.rng.below(12) as u32;
            if self.rng.chance(200) {
                batch.delete(&key(n))?;
            } else {
                batch.put(&key(n), format!("{step}").as_bytes(), None)?;
            }
        }
        write(self.db(), &batch).await?.wait(None).await
    }

    async fn ingest(&mut self, step: u32) -> Result<()> {
        let first = self.rng.below(6) as u32;
        let keys = first..first + 1 + self.rng.below(20) as u32;
        let value = format!("{step} in bulk, at some length, so that tables are small");
        let job = job_with(&self.env, keys, value.as_bytes(), None).await?;
        let commit = self.db().ingest(&job).await?;
        commit.wait(None).await?;
        if self.rng.chance(500) {
            self.db().flush_memtable().await?;
        }
        Ok(())
    }

    /// Continues from a position, for a while.
    async fn follow(&mut self) -> Result<()> {
        let at = self.rng.below(self.places.len() as u64 + 1) as usize;
        let (since, mut rows) = match self.places.get(at) {
            Some(place) => (ChangesFrom::Token(place.token), place.rows.clone()),
            None => (ChangesFrom::Oldest, Vec::new()),
        };
        let Some(mut feed) = honest(begin(&self.env, since, None).await)? else { return Ok(()) };
        for _ in 0..1 + self.rng.below(4) {
            let most = 1 + self.rng.below(6) as usize;
            let Some(Some(changed)) = honest(feed.read(most, 1 << 20).await)? else { break };
            rows = replayed(rows, &rows_of(&changed));
        }
        self.counts.inside += u64::from(feed.token().table + feed.token().row > 0);
        self.places.push(Downstream { token: feed.token(), rows });
        Ok(())
    }

    /// A consumer reads, acknowledges, and begins again.
    async fn consume(&mut self) -> Result<()> {
        let at = self.rng.below(self.named.len() as u64) as usize;
        let (env, rng, counts) = (&self.env, &mut self.rng, &mut self.counts);
        let one = &mut self.named[at];
        if one.feed.is_none() || rng.chance(200) {
            let holds = changes::consumers(env, LIMIT).await?;
            let known = holds.iter().any(|hold| hold.name == one.name);
            let since = if known { ChangesFrom::Kept } else { ChangesFrom::Oldest };
            one.rows = if known { one.acknowledged.clone() } else { Vec::new() };
            one.acknowledged = one.rows.clone();
            one.feed = Some(begin(env, since, Some(one.name)).await?);
        }
        let Some(feed) = &mut one.feed else { return Ok(()) };
        for _ in 0..rng.below(3) {
            match honest(feed.read(1 + rng.below(5) as usize, 1 << 20).await)? {
                Some(Some(changed)) => {
                    one.rows = replayed(std::mem::take(&mut one.rows), &rows_of(&changed));
                }
                Some(None) => {}
                None => return one.ends(env).await,
            }
        }
        // Within an ingest only the token contains the position.
        let whole = feed.token().table + feed.token().row == 0;
        if whole && rng.chance(400) {
            match honest(feed.acknowledge(None).await)? {
                Some(()) => {
                    one.acknowledged = one.rows.clone();
                    counts.acknowledged += 1;
                }
                None => return one.ends(env).await,
            }
        }
        Ok(())
    }

    async fn go_back(&mut self) -> Result<()> {
        let at = self.rng.below(self.kept.len() as u64) as usize;
        let Some(to) = self.kept.get(at).copied() else { return Ok(()) };
        if let Some(db) = self.db.take() {
            db.close().await?;
        }
        match admin::restore(&self.env, &to.into(), &options()).await {
            // Only the log references its job.
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            went => {
                went?;
                self.counts.restores += 1;
            }
        }
        self.db = Some(open(&self.env).await?);
        Ok(())
    }

    async fn again(&mut self) -> Result<()> {
        if let Some(db) = self.db.take() {
            db.close().await?;
        }
        self.db = Some(open(&self.env).await?);
        round(&self.env).await.map(drop)
    }

    async fn step(&mut self, step: u32) -> Result<()> {
        match self.rng.below(100) {
            0..30 => self.write(step).await,
            30..40 => self.ingest(step).await,
            40..46 => self.db().flush_memtable().await,
            46..50 => self.db().compact().await.map(drop),
            50..60 => {
                if self.rng.chance(800) {
                    self.db().flush_memtable().await?;
                }
                self.kept.push(kept(&self.env).await?);
                Ok(())
            }
            60..68 => self.go_back().await,
            68..70 => self.again().await,
            70..85 => self.follow().await,
            _ => self.consume().await,
        }
    }

    /// Each consumer gets to the present state, or gets an error.
    async fn check(&mut self, case: &str) -> Result<()> {
        let there = all_of(self.db().scan(ScanRange::all())?).await?;
        for Downstream { token, rows } in &self.places {
            let since = ChangesFrom::Token(*token);
            let Some(mut feed) = honest(begin(&self.env, since, None).await)? else {
                self.counts.expired += 1;
                continue;
            };
            let read = rest(&mut feed, 3).await?;
            assert_eq!(replayed(rows.clone(), &read), there, "{case}: from {token:?}: {read:?}");
            self.counts.went_on += 1;
        }
        let holds = changes::consumers(&self.env, LIMIT).await?;
        for one in &mut self.named {
            one.feed = None;
            if holds.iter().any(|hold| hold.name == one.name) {
                let mut feed = begin(&self.env, ChangesFrom::Kept, Some(one.name)).await?;
                let read = rest(&mut feed, 3).await?;
                let rows = replayed(one.acknowledged.clone(), &read);
                assert_eq!(rows, there, "{case}: {} of {holds:?}: {read:?}", one.name);
            }
        }
        Ok(())
    }
}

impl Named {
    /// It got the error that it cannot continue, and begins again.
    async fn ends(&mut self, env: &Env) -> Result<()> {
        self.feed = None;
        self.acknowledged = Vec::new();
        honest(changes::forget_consumer(env, self.name, LIMIT).await).map(drop)
    }
}

async fn lives(env: Env, rng: Rng, case: String) -> Result<Counts> {
    open(&env).await?.close().await?;
    // It retains all of the log, and the tables of ingests.
    drop(begin(&env, ChangesFrom::Newest, Some("keeper")).await?);
    let db = Some(open(&env).await?);
    let named = ["first", "second", "third"].map(|name| Named {
        name,
        feed: None,
        rows: Vec::new(),
        acknowledged: Vec::new(),
    });
    let (places, kept, counts) = (Vec::new(), Vec::new(), Counts::default());
    let named = named.into_iter().collect();
    let mut history = History { env, rng, db, places, named, kept, counts };
    for step in 0..80 {
        history.step(step).await?;
        if step % 20 == 19 {
            history.check(&format!("{case}, step {step}")).await?;
        }
    }
    let counts = history.counts;
    history.db.take().expect("it is open").close().await?;
    Ok(counts)
}

#[test]
fn after_any_restore_a_feed_is_true_or_says_so() {
    let seeds = std::env::var("HISTORIES").map_or(60, |text| text.parse().expect("a number"));
    let first = std::env::var("FIRST_SEED").map_or(1, |text| text.parse().expect("a number"));
    let mut all = Counts::default();
    for seed in first..first + seeds {
        let place = Place::of(seed);
        let rng = place.sim.split_rng();
        let case = format!("seed {seed}");
        let counts = place.run("one", move |env| lives(env, rng, case));
        all.restores += counts.restores;
        all.expired += counts.expired;
        all.inside += counts.inside;
        all.went_on += counts.went_on;
        all.acknowledged += counts.acknowledged;
    }
    println!("{seeds} histories: {all:?}");
    assert!(seeds < 60 || (all.restores > 100 && all.expired > 100 && all.went_on > 300));
    assert!(seeds < 60 || (all.inside > 30 && all.acknowledged > 100));
}
