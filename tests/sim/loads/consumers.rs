//! Consumers of the change feed (RFC 0041): they hold the log, read on from where they had
//! acknowledged, are killed, and are forgotten. What they were told is judged in the end, by the
//! history that won.

use super::history::{History, What};
use super::{Action, LIMIT, Loads};
use crate::world::World;
use siltstone::changes::{self, Changes, ChangesOptions, Consumer, Since};
use siltstone::{ChangeRows, Env, Error, ErrorKind, JobId, Kind, Result, Seq};
use siltstone_base::BatchOps;
use siltstone_tests::sim::{ProcessId, Rng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Nobody forgets it: it is told everything from its first row on.
pub(super) const WITNESS: &str = "witness";
/// It is forgotten now and then, and begins anew.
pub(super) const WORKER: &str = "worker";

/// A row of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    seq: Seq,
    kind: Kind,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// What a consumer was told over its lives without a gap.
#[derive(Default)]
pub(crate) struct Told {
    /// All up to here came before.
    from: Seq,
    rows: Vec<Row>,
    /// All up to here was told.
    upto: Seq,
    /// How many of the rows came before what this life reads next.
    at: usize,
}

/// What one name was told.
#[derive(Default)]
pub(crate) struct Feed {
    told: Vec<Told>,
    /// Somebody has tried to forget it, or a restore may have ended its hold: it may begin behind a
    /// gap.
    forgotten: bool,
    /// A life has begun, or not, of which nothing more was heard: its hold is another one, perhaps.
    unheard: bool,
}

/// How a life begins.
struct Begun {
    /// Behind this.
    seq: Seq,
    /// By a hold that somebody of its name had before; `None`: it has ended meanwhile, perhaps.
    kept: Option<bool>,
    /// A restore may have undone what it was told.
    undone: bool,
}

impl Feed {
    /// A life begins behind `seq`. Whether it is told again what an earlier one was; an error where
    /// something lies between.
    fn begins(&mut self, begun: &Begun) -> std::result::Result<bool, String> {
        let seq = begun.seq;
        self.unheard = false;
        self.forgotten |= begun.undone;
        match self.told.last_mut() {
            // It goes on from there with what it was told before, and takes back the rest.
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

    /// The life that began last is told `rows`, and stands behind `upto` then. With `restoring` a
    /// restore may have undone what it was to be told again: it goes on with what it had been told
    /// before that, and all of it must fit one line.
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
            // There is no database yet; a hold was forgotten; a killed one's commit landed late.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if is_told(&loads, &env, name, &error).await => {}
            Err(error) if world.excuses(process, &error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a consumer may be told that it can not go on: forgotten; by a restore, which is said; or
/// by one that has ended its hold, and was undone itself before it looked.
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
    // Hours: nobody is silent for so long.
    let lifetime = Some(Duration::from_secs(24 * 3600));
    let consumer = Consumer { lifetime, most_bytes: None, ..Consumer::new(name) };
    let how = |since| ChangesOptions { since, consumer: Some(consumer.clone()), until: None };
    let unheard = {
        let mut books = loads.books.lock();
        let feed = books.feeds.entry(name).or_default();
        std::mem::replace(&mut feed.unheard, true)
    };
    let feed = match changes::changes(env, how(Since::Kept), LIMIT).await {
        Err(error) if error.to_string().contains("no consumer of this name") => {
            changes::changes(env, how(Since::Newest), LIMIT).await?
        }
        begun => begun?,
    };
    let undone = loads.books.lock().restoring;
    let kept = match undone {
        true => {
            let holds = changes::consumers(env, LIMIT).await?;
            let own = holds.iter().find(|hold| hold.name == name);
            // The first of a name counts from one.
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

/// Reads, and acknowledges some of what it has read.
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

/// Whether there was something.
async fn read(loads: &Loads, feed: &mut Changes, name: &'static str, most: usize) -> Result<bool> {
    let changed = feed.read(most, 1 << 16).await?;
    // It may have gone on over what has no rows.
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
        // Whatever it ends with, it may be done later.
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

/// With a healthy store: each is told the rest, and then let go.
pub(super) async fn in_the_end(loads: &Loads, env: &Env) -> std::result::Result<(), Error> {
    for name in [WITNESS, WORKER] {
        let mut tries = 0;
        loop {
            tries += 1;
            match to_the_end(loads, env, name).await {
                // It had not heard yet of a restore, and begins anew.
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

/// Holds what was told against the histories that were, of which one must fit all of it; what is
/// wrong, and how many rows were told.
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
                // Inside of an ingest a telling may end.
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

/// Tables hold a job's rows by key, and its layers their order: what counts is what it comes to.
fn check_job(job: &str, content: &[u8], rows: &[Row]) -> std::result::Result<(), String> {
    let ops = BatchOps::new(content).map(|op| op.expect("a sound batch"));
    let expected = outcomes(ops.map(|op| (op.kind, op.key.to_vec(), op.value.to_vec())));
    let told = outcomes(rows.iter().map(|row| (row.kind, row.key.clone(), row.value.clone())));
    if told == expected {
        return Ok(());
    }
    Err(format!("of {job} it was told what comes to {told:?} in place of {expected:?}"))
}

/// What operations come to, by key: those of the keys that there are.
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
            // Bounds of a range that has none are keys that nobody else writes.
            _ if keys.contains(&key) => drop(all.insert(key, (kind, value))),
            _ => {}
        }
    }
    all
}
