//! Writers: they write, flush, compact, read, and adopt the jobs that they receive.

use super::{Action, Loads};
use crate::world::{World, is_over, opening, rows_of};
use siltstone::{Accept, Batch, Database, Env, ErrorKind, Options, Result, ScanRange, Snapshot};
use siltstone_tests::sim::{ProcessId, Rng};
use std::sync::Arc;
use std::time::Duration;

/// The size from which on a batch skips the memtable: larger than those of others.
pub(super) const LARGE_BYTES: usize = 400;

/// Opens and works, repeatedly, until stopped or fenced.
pub(super) async fn owner(loads: Arc<Loads>, process: ProcessId, mut rng: Rng) -> Result<()> {
    let world = &loads.world;
    let env = world.sim.env(process, world.bucket.store(process));
    let options = Options { max_parallel_writes: 1 + rng.below(4), ..world.options.clone() };
    while !world.stopped() {
        let db = match Database::open(env.clone(), opening(&options)).await {
            Ok(db) => db,
            Err(error) if is_over(&error) => return Ok(()),
            Err(error) if world.excuses(process, &error) => {
                world.sim.sleep(Duration::from_millis(200)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        match work(&loads, process, &env, &db, &mut rng).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Fenced => return Ok(()),
            Err(error) if world.excuses(process, &error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Works until it is stopped, or closes by itself.
async fn work(
    loads: &Arc<Loads>,
    process: ProcessId,
    env: &Env,
    db: &Database,
    rng: &mut Rng,
) -> Result<()> {
    let (world, epoch) = (&loads.world, db.stats().epoch);
    let first = db.snapshot()?;
    loads.books.lock().opened(epoch, first.seq());
    look(loads, process, epoch, &first).await?;
    let mut held: Vec<Snapshot> = Vec::new();
    while !world.stopped() && !rng.chance(10) {
        match rng.below(100) {
            0..41 => write(loads, env, db, rng).await?,
            41..45 => write_large(loads, process, db, rng).await?,
            45..55 => flush(loads, process, db, rng.chance(500)).await?,
            55..60 => {
                // For any result: another compactor may be in charge.
                drop(db.compact().await);
            }
            60..70 => look(loads, process, epoch, &db.snapshot()?).await?,
            70..74 => held.push(db.snapshot()?),
            74..78 => {
                if let Some(snapshot) = held.pop() {
                    look(loads, process, epoch, &snapshot).await?;
                }
            }
            78..88 => take_in(loads, process, db, rng).await?,
            _ => world.sim.sleep(Duration::from_millis(rng.below(100))).await,
        }
    }
    for snapshot in held.drain(..) {
        look(loads, process, epoch, &snapshot).await?;
    }
    let last = db.snapshot()?.seq();
    db.close().await?;
    loads.books.lock().acknowledged(epoch, last);
    Ok(())
}

async fn write(loads: &Loads, env: &Env, db: &Database, rng: &mut Rng) -> Result<()> {
    let batch = loads.world.batch(db.stats().epoch, rng, env.clock.now());
    match db.write(&batch)? {
        Accept::Accepted(commit) => {
            let first = commit.seq().minus(u64::from(batch.ops()) - 1);
            loads.books.lock().accepted(db.stats().epoch, first, batch.as_bytes());
        }
        Accept::Pressure(relief) => {
            // The write is not performed then.
            drop(relief.await);
        }
    }
    Ok(())
}

/// A sufficiently large batch of rows alone.
async fn write_large(
    loads: &Loads,
    process: ProcessId,
    db: &Database,
    rng: &mut Rng,
) -> Result<()> {
    if !loads.acts(Action::Large, rng, 800) {
        return Ok(());
    }
    let (mut batch, epoch) = (Batch::new(), db.stats().epoch);
    while batch.as_bytes().len() < LARGE_BYTES {
        let key = World::key(rng.next_u64());
        match rng.chance(200) {
            true => batch.delete(&key)?,
            false => {
                batch.put(&key, format!("large/{epoch}/{}", rng.next_u64()).as_bytes(), None)?
            }
        }
    }
    let Some(large) = db.write_large(&batch)? else {
        loads.world.oracle.violation("a large batch is not taken for one".to_owned());
        return Ok(());
    };
    loads.books.lock().sends(epoch, Some(batch.as_bytes()));
    let accepted = large.await;
    let mut books = loads.books.lock();
    match &accepted {
        Ok(commit) => books.accepted_large(epoch, commit.seq()),
        Err(_) => books.sends(epoch, None),
    }
    drop(books);
    if loads.world.tolerate(process, accepted.map(drop))? {
        loads.did(Action::Large);
    }
    Ok(())
}

async fn flush(loads: &Loads, process: ProcessId, db: &Database, memtable: bool) -> Result<()> {
    let last = db.snapshot()?.seq();
    let flushed = if memtable { db.flush_memtable().await } else { db.flush().await };
    if loads.world.tolerate(process, flushed)? {
        loads.books.lock().acknowledged(db.stats().epoch, last);
    }
    Ok(())
}

/// Reads all of a snapshot, through all faults of the store.
async fn look(loads: &Loads, process: ProcessId, epoch: u64, snapshot: &Snapshot) -> Result<()> {
    for _ in 0..50 {
        match rows_of(snapshot.scan(ScanRange::all())).await {
            Ok(rows) => {
                loads.books.lock().saw(epoch, snapshot.seq(), rows);
                return Ok(());
            }
            Err(error) if is_over(&error) => return Err(error),
            Err(error) if loads.world.excuses(process, &error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Adopts a received job: it is visible at the end of the call, and durable once its commit is.
async fn take_in(loads: &Loads, process: ProcessId, db: &Database, rng: &mut Rng) -> Result<()> {
    let Some(request) = loads.handed.lock().pop() else { return Ok(()) };
    if !loads.acts(Action::HandOver, rng, 900) {
        return Ok(());
    }
    let (job, epoch) = (request.job.id, db.stats().epoch);
    let commit = match db.ingest(&request).await {
        Ok(commit) => commit,
        // Aborted, too late, or requested when the handle ended.
        Err(error) if error.kind() == ErrorKind::Expired => return Ok(()),
        Err(error) => return loads.world.tolerate(process, Err(error)).map(drop),
    };
    loads.did(Action::HandOver);
    let snapshot = db.snapshot()?;
    if snapshot.seq() < commit.seq() {
        loads.world.oracle.violation(format!("{job} is ingested, and does not show"));
    }
    if loads.world.tolerate(process, commit.wait(None).await)? {
        loads.books.lock().acknowledged(epoch, commit.seq());
        loads.books.lock().stands(job, &siltstone::JobStatus::Adopted(commit.seq()));
    }
    Ok(())
}
