//! Writer processes: they open, work, are fenced, close or continue until stopped.

use crate::edges::{close_may_be_dropped, refusals_end_handles, tasks_are_supervised};
use crate::oracle::{Moment, Rows, view_at};
use crate::world::{Now, World, excusable, is_over, opening, rows_of, start};
use siltstone::{Accept, Commit, Database, Env, Error, Options, ScanRange, Seq, Snapshot};
use siltstone_tests::faults::Fault;
use siltstone_tests::model::Model;
use siltstone_tests::sim::{PlannedPanic, ProcessId, Rng};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The time within which a permanently refused create of the WAL ends the handle, after the answer:
/// its outcome is read back before, through stalls and brown-outs.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// Tasks that a handle cannot do without.
const VITAL: [&str; 4] = ["wal", "flush", "pins", "pressure"];

/// One writer process.
pub(crate) struct Writer {
    pub(crate) world: Arc<World>,
    pub(crate) process: ProcessId,
    pub(crate) env: Env,
    pub(crate) rng: Rng,
}

/// A snapshot that is kept, and its expected rows.
struct Held {
    snapshot: Snapshot,
    expected: Model,
    moment: Moment,
    rows: Option<Rows>,
}

/// The work of a writer with one handle.
struct Work<'a> {
    writer: &'a mut Writer,
    db: &'a Database,
    epoch: u64,
    now: Now,
    opened: Duration,
}

impl Writer {
    /// Opens and works, repeatedly, until stopped or fenced.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        let world = Arc::clone(&self.world);
        let max_parallel_writes = 1 + self.rng.below(4);
        let options = Options { max_parallel_writes, ..world.options.clone() };
        while !world.stopped() {
            let open = Database::open(self.env.clone(), opening(&options));
            let Some(opened) = world.patiently(&mut self.rng, open).await else { continue };
            let db = match opened {
                Ok(db) => db,
                Err(error) if self.passes(&error) => {
                    world.sim.sleep(Duration::from_millis(200)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let goes_on = self.work(&db).await;
            world.taken_back.fetch_add(db.stats().compactor_takeovers, Ordering::Relaxed);
            match goes_on {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if world.may_open_anew(self.process, &error) => {
                    world.sim.sleep(Duration::from_millis(200)).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether opening may be tried again.
    fn passes(&self, error: &Error) -> bool {
        self.world.excuses(self.process, error) && !is_over(error)
    }

    async fn work(&mut self, db: &Database) -> Result<bool, Error> {
        let (epoch, opened) = (db.stats().epoch, self.world.sim.elapsed());
        let work = Work { writer: self, db, epoch, now: Now::default(), opened };
        work.run().await
    }
}

impl Work<'_> {
    /// Works on the handle; `true` after a clean close, `false` when stopped.
    async fn run(mut self) -> Result<bool, Error> {
        let world = Arc::clone(&self.writer.world);
        let (snapshot, moment) = self.snapshot()?;
        let expected = world.oracle.opened(self.epoch, snapshot.seq());
        self.check("recovered state", &snapshot, (&expected, moment)).await?;
        let mut held: Vec<Held> = Vec::new();
        while !world.stopped() {
            self.check_that_it_ended();
            match self.writer.rng.below(100) {
                0..50 => self.write().await?,
                50..58 => self.flush(false).await?,
                58..63 => self.flush(true).await?,
                63..75 => self.get().await?,
                75..80 => {
                    let (snapshot, moment) = self.snapshot()?;
                    let expected = world.oracle.expected(self.epoch);
                    let rows = self.check("scan", &snapshot, (&expected, moment)).await?;
                    held.push(Held { snapshot, expected, moment, rows });
                }
                80..83 => {
                    if let Some(held) = held.pop() {
                        self.check_again(&held).await?;
                    }
                }
                83..84 => {
                    let last = self.snapshot()?.0.seq();
                    match self.close().await {
                        Ok(()) => {
                            world.oracle.acknowledged(self.epoch, last);
                            return Ok(true);
                        }
                        Err(error) if excusable(&error) => return Ok(!is_over(&error)),
                        Err(error) => return Err(error),
                    }
                }
                _ => self.idle().await,
            }
        }
        for held in &held {
            self.check_again(held).await?;
        }
        match self.close().await {
            Ok(()) => Ok(false),
            Err(error) if self.writer.world.excuses(self.writer.process, &error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn snapshot(&mut self) -> Result<(Snapshot, Moment), Error> {
        let snapshot = self.db.snapshot()?;
        Ok((snapshot, self.now.look(&self.writer.world.sim, &self.writer.env)))
    }

    fn tolerate(&self, result: Result<(), Error>) -> Result<bool, Error> {
        self.writer.world.tolerate(self.writer.process, result)
    }

    async fn patiently<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let writer = &mut *self.writer;
        writer.world.patiently(&mut writer.rng, work).await
    }

    /// Waits a little, or drops a compaction if futures are dropped.
    async fn idle(&mut self) {
        let world = Arc::clone(&self.writer.world);
        world.sim.sleep(Duration::from_millis(self.writer.rng.below(60))).await;
        if world.edges.have(Fault::DroppedFuture) && self.writer.rng.chance(100) {
            // For any result: another compactor may be in charge.
            drop(self.patiently(self.db.compact()).await);
        }
    }

    async fn flush(&mut self, memtable: bool) -> Result<(), Error> {
        let last = self.snapshot()?.0.seq();
        let flushed = match memtable {
            true => self.patiently(self.db.flush_memtable()).await,
            false => self.patiently(self.db.flush()).await,
        };
        if let Some(flushed) = flushed
            && self.tolerate(flushed)?
        {
            self.writer.world.oracle.acknowledged(self.epoch, last);
        }
        Ok(())
    }

    async fn write(&mut self) -> Result<(), Error> {
        let writer = &mut *self.writer;
        let batch = writer.world.batch(self.epoch, &mut writer.rng, writer.env.clock.now());
        match self.db.write(&batch)? {
            Accept::Accepted(commit) => {
                writer.world.oracle.accepted(self.epoch, &batch, commit.seq());
                if writer.rng.chance(400) {
                    self.wait_in_background(commit);
                }
            }
            Accept::Pressure(relief) => {
                if let Some(relieved) = self.patiently(relief).await {
                    self.tolerate(relieved)?;
                }
            }
        }
        Ok(())
    }

    /// Waits for a commit in a separate task; after a dropped wait it waits again.
    fn wait_in_background(&mut self, commit: Commit) {
        let (world, process, epoch) = (&self.writer.world, self.writer.process, self.epoch);
        let (seq, shared) = (commit.seq(), Arc::clone(world));
        let mut rng = Rng::new(seq.0);
        start(world, process, "waiter", async move {
            loop {
                if let Some(waited) = shared.patiently(&mut rng, commit.wait(None)).await {
                    waited?;
                    shared.oracle.acknowledged(epoch, seq);
                    return Ok(());
                }
            }
        });
    }

    async fn get(&mut self) -> Result<(), Error> {
        let writer = &mut *self.writer;
        let count = 1 + writer.rng.below(4);
        let keys: Vec<_> = (0..count).map(|_| World::key(writer.rng.next_u64())).collect();
        let expected = writer.world.oracle.expected(self.epoch);
        let answer = self.db.get_many(keys.clone())?;
        let moment = self.now.look(&writer.world.sim, &writer.env);
        let got = match self.patiently(answer.wait()).await {
            None => return Ok(()),
            Some(Ok(got)) => got,
            Some(Err(error)) => return self.tolerate(Err(error)).map(drop),
        };
        for (key, got) in keys.iter().zip(got) {
            let at =
                |now| expected.get(key, view_at(Seq::MAX, now)).expect("appending is no error");
            if got.as_deref() != at(moment.low).as_deref()
                && got.as_deref() != at(moment.high).as_deref()
            {
                let text = format!("epoch {}: get of {key:?} is wrong", self.epoch);
                self.writer.world.oracle.violation(text);
            }
        }
        Ok(())
    }

    /// Reads all of a snapshot and compares. Faults may interrupt reads; their results must be
    /// correct.
    async fn check(
        &mut self,
        what: &str,
        snapshot: &Snapshot,
        (expected, moment): (&Model, Moment),
    ) -> Result<Option<Rows>, Error> {
        for _ in 0..50 {
            match self.patiently(rows_of(snapshot.scan(ScanRange::all()))).await {
                None => {}
                Some(Ok(rows)) => {
                    if !moment.fits(expected, snapshot.seq(), &rows) {
                        let text = format!("epoch {}: {what} is wrong", self.epoch);
                        self.writer.world.oracle.violation(text);
                    }
                    if moment.hides_something(expected, snapshot.seq()) {
                        self.writer.world.bucket.book(Fault::ExpiryDue);
                    }
                    return Ok(Some(rows));
                }
                Some(Err(error)) if self.writer.world.excuses(self.writer.process, &error) => {}
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// A snapshot shows the same rows again, even if some have expired since.
    async fn check_again(&mut self, held: &Held) -> Result<(), Error> {
        let what = "old snapshot";
        let rows = self.check(what, &held.snapshot, (&held.expected, held.moment)).await?;
        if let (Some(before), Some(rows)) = (&held.rows, rows)
            && *before != rows
        {
            let text = format!("epoch {}: a snapshot has changed", self.epoch);
            self.writer.world.oracle.violation(text);
        }
        Ok(())
    }

    /// Closes; a dropped close is followed by another, which ends.
    async fn close(&mut self) -> Result<(), Error> {
        if !close_may_be_dropped() {
            return self.db.close().await;
        }
        match self.patiently(self.db.close()).await {
            Some(closed) => closed,
            None => self.db.close().await,
        }
    }

    /// A handle whose WAL is permanently refused, or that has lost a vital task, is no longer
    /// alive.
    fn check_that_it_ended(&self) {
        let (world, process) = (&self.writer.world, self.writer.process);
        let refused = world.bucket.wal_refused_at(process).filter(|_| refusals_end_handles());
        let refused =
            refused.is_some_and(|at| at > self.opened && world.sim.elapsed() > at + ENDS_WITHIN);
        // The tasks of this handle were spawned when it was opened.
        let is_ours =
            |panic: &PlannedPanic| panic.spawned == self.opened && panic.at < world.sim.elapsed();
        let panics = world.sim.panics(process);
        let lost = tasks_are_supervised()
            && panics.iter().any(|panic| is_ours(panic) && VITAL.contains(&panic.task));
        if (refused || lost) && self.db.snapshot().is_ok() {
            let text = format!("epoch {}: it lost its log or a task, and is alive", self.epoch);
            world.oracle.violation(text);
        }
    }
}
