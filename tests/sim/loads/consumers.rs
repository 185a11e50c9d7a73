//! Consumers of the change feed (RFC 0041): they hold the log, continue from their acknowledged
//! position, are killed, and are removed. The changes that they received are checked at the end
//! against the final history.

use super::history::{History, What};
use super::{Action, LIMIT, Loads};
use crate::world::World;
use siltstone::changes::{self, Changes, ChangesFrom, ChangesOptions, Consumer};
use siltstone::{ChangeRows, Env, Error, ErrorKind, JobId, Kind, Result, Seq};
use siltstone_base::BatchOps;
use siltstone_tests::sim::{ProcessId, Rng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Never removed: it receives every change from its first row on.
pub(super) const WITNESS: &str = "witness";
/// Removed now and then, and begins again.
pub(super) const WORKER: &str = "worker";

/// A row of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    seq: Seq,
    kind: Kind,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The changes that a consumer received over its lives without a gap.
#[derive(Default)]
pub(crate) struct Told {
    /// The changes up to this number came before.
    from: Seq,
    rows: Vec<Row>,
    /// All changes up to this number were received.
    upto: Seq,
    /// Number of rows before the next one that this life reads.
    at: usize,
}

/// The changes that one name received.
#[derive(Default)]
pub(crate) struct Feed {
    told: Vec<Told>,
    /// A command tried to remove it, or a restore may have ended its hold: it may begin after a
    /// gap.
    forgotten: bool,
    /// The begin of a life had an unknown outcome: its hold may be another one.
    unheard: bool,
}

/// The begin of a life.
struct Begun {
    /// It begins after this number.
    seq: Seq,
    /// With the hold of an earlier life of its name; `None`: it may have ended meanwhile.
    kept: Option<bool>,
    /// A restore may have undone changes that it received.
    undone: bool,
}

impl Feed {
    /// A life begins after `seq`. Returns whether it receives earlier changes again; an error if
    /// there is a gap.
    fn begins(&mut self, begun: &Begun) -> std::result::Result<bool, String> {
        let seq = begun.seq;
        self.unheard = false;
        self.forgotten |= begun.undone;
        match self.told.last_mut() {
            // It continues from there with the changes received before, and drops the rest.
            Some(told)
                if begun.undone
                    && begun.kept == Some(true)
                    && (told.from..=told.upto).contains(&seq) =>
            {
                let rows: Vec<Row> =
                    told.rows.iter().filter(|row| row.seq <= seq).cloned().collect();
                let again = rows.len() < told.rows.len();
                let (from, at) = (told.from, rows.len());
                self.told.push(Told { from, rows, upto: seq, at });
                return Ok(again);
            }
            Some(_) if begun.undone => {}
            Some(told) if (told.from..=told.upto).contains(&seq) => {
                told.at = told.rows.iter().filter(|row| row.seq <= seq).count();
                return Ok(told.at < told.rows.len());
            }
            Some(told) if !self.forgotten => {
                return Err(format!(
                    "it was told {} to {}, and begins at {seq}",
                    told.from, told.upto
                ));
            }
            _ => {}
        }
        self.told.push(Told { from: seq, upto: seq, ..Told::default() });
        Ok(false)
    }

    /// The last life receives `rows`, and is then at `upto`. With `restoring` a restore may have
    /// undone changes that it was to receive again: it continues with the changes received before
    /// that, and all of them must fit one line.
    fn hears(
        &mut self,
        rows: Vec<Row>,
        upto: Seq,
        restoring: bool,
    ) -> std::result::Result<(), String> {
        for row in rows {
            let Some(told) = self.told.last_mut() else { return Ok(()) };
            match told.rows.get(told.at) {
                Some(known) if *known != row && restoring => {
                    let (from, at) = (told.from, told.at + 1);
                    let mut rows = told.rows.get(..told.at).unwrap_or_default().to_vec();
                    rows.push(row);
                    self.told.push(Told { from, rows, upto, at });
                    continue;
                }
                Some(known) if *known != row => {
                    return Err(format!("it was told {known:?}, and then {row:?}"));
                }
                Some(_) => {}
                None => told.rows.push(row),
            }
            told.at += 1;
        }
        if let Some(told) = self.told.last_mut() {
            told.upto = told.upto.max(upto);
        }
        Ok(())
    }
}

/// One life after another.
pub(super) async fn consumer(
    loads: Arc<Loads>,
    process: ProcessId,
    name: &'static str,
    mut rng: Rng,
) -> Result<()> {
    let world = &loads.world;
    let env = world.sim.env(process, world.bucket.store(process));
    while !world.stopped() {
        world.sim.sleep(Duration::from_millis(rng.below(600))).await;
        match live(&loads, &env, name, &mut rng).await {
            Ok(()) => {}
            // There is no database yet; a hold was removed; the commit of a killed life landed
            // late.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if is_told(&loads, &env, name, &error).await => {}
            Err(error) if world.excuses(process, &error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a consumer may receive the error that it cannot continue: because it was removed;
/// because of a restore, which the error names; or because of a restore that ended its hold and was
/// itself undone before the consumer looked.
async fn is_told(loads: &Loads, env: &Env, name: &str, error: &Error) -> bool {
    if error.kind() != ErrorKind::Expired || name == WORKER {
        return error.kind() == ErrorKind::Expired;
    }
    if !loads.books.lock().restoring || error.to_string().contains("restore") {
        return loads.books.lock().restoring;
    }
    let holds = changes::consumers(env, LIMIT).await;
    holds.is_ok_and(|holds| holds.iter().all(|hold| hold.name != name))
}

async fn begin(loads: &Loads, env: &Env, name: &'static str) -> Result<Changes> {
    // Hours: no consumer is silent for that long.
    let lifetime = Some(Duration::from_secs(24 * 3600));
    let consumer = Consumer { lifetime, most_bytes: None, ..Consumer::new(name) };
    let how = |since| ChangesOptions {
        since,
        consumer: Some(consumer.clone()),
        until: None,
        before: None,
    };
    let unheard = {
        let mut books = loads.books.lock();
        let feed = books.feeds.entry(name).or_default();
        std::mem::replace(&mut feed.unheard, true)
    };
    let feed = match changes::changes(env, how(ChangesFrom::Kept), LIMIT).await {
        Err(error) if error.to_string().contains("no consumer of this name") => {
            changes::changes(env, how(ChangesFrom::Newest), LIMIT).await?
        }
        begun => begun?,
    };
    let undone = loads.books.lock().restoring;
    let kept = match undone {
        true => {
            let holds = changes::consumers(env, LIMIT).await?;
            let own = holds.iter().find(|hold| hold.name == name);
            // The first life of a name counts from one.
            own.filter(|_| !unheard).map(|hold| hold.generation >> 32 > 1)
        }
        false => None,
    };
    let begun = Begun { seq: feed.token().seq, kept, undone };
    let begun = loads.books.lock().feeds.entry(name).or_default().begins(&begun);
    match begun {
        Ok(true) => loads.did(Action::KillConsumer),
        Ok(false) => {}
        Err(wrong) => loads.world.oracle.violation(format!("{name}: {wrong}")),
    }
    Ok(feed)
}

/// Reads, and acknowledges a part of it.
async fn live(loads: &Loads, env: &Env, name: &'static str, rng: &mut Rng) -> Result<()> {
    let mut feed = begin(loads, env, name).await?;
    for _ in 0..4 + rng.below(40) {
        if loads.world.stopped() {
            return Ok(());
        }
        let most = 1 + rng.below(8) as usize;
        if !read(loads, &mut feed, name, most).await? {
            loads.world.sim.sleep(Duration::from_millis(rng.below(400))).await;
        }
        if rng.chance(200) {
            feed.acknowledge(None).await?;
        }
    }
    Ok(())
}

/// Returns whether there were changes.
async fn read(loads: &Loads, feed: &mut Changes, name: &'static str, most: usize) -> Result<bool> {
    let changed = feed.read(most, 1 << 16).await?;
    // It may have moved on over objects without rows.
    let (rows, upto) = (changed.as_ref().map(rows_of).unwrap_or_default(), feed.token().seq);
    let mut books = loads.books.lock();
    let restoring = books.restoring;
    let heard = books.feeds.entry(name).or_default().hears(rows, upto, restoring);
    if let Err(wrong) = heard {
        loads.world.oracle.violation(format!("{name}: {wrong}"));
    }
    Ok(changed.is_some())
}

fn rows_of(changed: &ChangeRows) -> Vec<Row> {
    let row = |at: usize| Row {
        seq: changed.seqs[at],
        kind: changed.kinds[at],
        key: changed.keys.get(at).expect("a key").to_vec(),
        value: changed.values.get(at).expect("a value").to_vec(),
    };
    (0..changed.len()).map(row).collect()
}

/// Ends the worker's hold now and then.
pub(super) async fn forgetter(loads: Arc<Loads>, process: ProcessId, mut rng: Rng) -> Result<()> {
    let world = &loads.world;
    let env = world.sim.env(process, world.bucket.store(process));
    while !world.stopped() {
        world.sim.sleep(Duration::from_millis(1000 + rng.below(8000))).await;
        if !loads.acts(Action::Forget, &mut rng, 700) {
            continue;
        }
        // For any result, it may be done later.
        loads.books.lock().feeds.entry(WORKER).or_default().forgotten = true;
        match changes::forget_consumer(&env, WORKER, LIMIT).await {
            Ok(()) => loads.did(Action::Forget),
            Err(error) if matches!(error.kind(), ErrorKind::Expired | ErrorKind::NotFound) => {}
            Err(error) if world.excuses(process, &error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// With a healthy store: each consumer receives the rest, and is then removed.
pub(super) async fn in_the_end(loads: &Loads, env: &Env) -> std::result::Result<(), Error> {
    for name in [WITNESS, WORKER] {
        let mut tries = 0;
        loop {
            tries += 1;
            match to_the_end(loads, env, name).await {
                // It had not learned of a restore yet, and begins again.
                Err(error) if tries < 3 && is_told(loads, env, name, &error).await => {}
                ended => break ended?,
            }
        }
        changes::forget_consumer(env, name, LIMIT).await?;
    }
    Ok(())
}

async fn to_the_end(loads: &Loads, env: &Env, name: &'static str) -> Result<()> {
    let mut feed = begin(loads, env, name).await?;
    while read(loads, &mut feed, name, 5).await? {}
    feed.acknowledge(None).await
}

/// Compares the received changes with the histories, one of which must fit all of them; returns the
/// violations, and the number of received rows.
pub(super) fn judge(
    feeds: &BTreeMap<&'static str, Feed>,
    lines: &[&History],
    content: impl Fn(JobId) -> Vec<u8>,
) -> (Vec<String>, u64) {
    let (mut wrong, mut rows) = (Vec::new(), 0);
    for (name, feed) in feeds {
        for told in &feed.told {
            rows += told.rows.len() as u64;
            let unfit = lines.iter().filter_map(|line| {
                let why = told.fits(line, &content).err()?;
                Some(format!("of the line {line}: {why}"))
            });
            let unfit: Vec<String> = unfit.collect();
            if unfit.len() == lines.len() {
                let why = unfit.join("; ");
                let rows: Vec<u64> = told.rows.iter().map(|row| row.seq.get()).collect();
                let (from, upto) = (told.from, told.upto);
                wrong.push(format!("{name}, told {from} to {upto}, {rows:?}: {why}"));
            }
        }
    }
    (wrong, rows)
}

impl Told {
    fn fits(
        &self,
        history: &History,
        content: &impl Fn(JobId) -> Vec<u8>,
    ) -> std::result::Result<(), String> {
        let mut rest = self.rows.as_slice();
        for step in history.steps.iter().filter(|step| step.landed && step.last > self.from) {
            let (first, last) = (step.first, step.last);
            if first <= self.from {
                return Err(format!("it begins inside of {first} to {last}"));
            }
            let of_step = rest.iter().take_while(|row| (first..=last).contains(&row.seq)).count();
            let (rows, behind) = rest.split_at(of_step);
            let whole = last <= self.upto;
            match &step.what {
                What::Batch(_) if !whole && rows.is_empty() => {}
                What::Batch(bytes) => check_batch(first, bytes, rows)?,
                // Within an ingest the received changes may end.
                What::Job(_) | What::Large(_) if !whole => {}
                What::Job(job) => check_job(&job.to_string(), &content(*job), rows)?,
                What::Large(bytes) => check_job(&format!("the batch at {first}"), bytes, rows)?,
            }
            rest = behind;
        }
        match rest.first() {
            None => Ok(()),
            Some(row) => Err(format!("it was told what is no part of the history: {row:?}")),
        }
    }
}

fn check_batch(first: Seq, bytes: &[u8], rows: &[Row]) -> std::result::Result<(), String> {
    let ops = BatchOps::new(bytes).map(|op| op.expect("a sound batch"));
    let expected: Vec<Row> = ops
        .enumerate()
        .map(|(at, op)| Row {
            seq: first.plus(at as u64),
            kind: op.kind,
            key: op.key.to_vec(),
            value: op.value.to_vec(),
        })
        .collect();
    if expected == rows {
        return Ok(());
    }
    Err(format!("of the batch at {first} it was told {rows:?} in place of {expected:?}"))
}

/// Tables contain a job's rows in key order, and its layers their order: only the result counts.
fn check_job(job: &str, content: &[u8], rows: &[Row]) -> std::result::Result<(), String> {
    let ops = BatchOps::new(content).map(|op| op.expect("a sound batch"));
    let expected = outcomes(ops.map(|op| (op.kind, op.key.to_vec(), op.value.to_vec())));
    let told = outcomes(rows.iter().map(|row| (row.kind, row.key.clone(), row.value.clone())));
    if told == expected {
        return Ok(());
    }
    Err(format!("of {job} it was told what comes to {told:?} in place of {expected:?}"))
}

/// The result of operations, by key, for the existing keys.
fn outcomes(
    ops: impl Iterator<Item = (Kind, Vec<u8>, Vec<u8>)>,
) -> BTreeMap<Vec<u8>, (Kind, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let keys: Vec<Vec<u8>> = (0..World::KEYS).map(World::key).collect();
    for (kind, key, value) in ops {
        match kind {
            Kind::RangeDelete => {
                for gone in keys.iter().filter(|one| **one >= key && **one < value) {
                    all.insert(gone.clone(), (Kind::Delete, Vec::new()));
                }
            }
            // Bounds of a range that do not exist as keys are never written by others.
            _ if keys.contains(&key) => drop(all.insert(key, (kind, value))),
            _ => {}
        }
    }
    all
}
