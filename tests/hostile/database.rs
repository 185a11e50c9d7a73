//! A small database with one of everything, and a read of all of it: reader, writer, verification.

use bytes::Bytes;
use siltstone::verify::{Report, verify};
use siltstone::{
    Batch, Database, Env, Error, ErrorKind, FillOutcome, OpenOptions, Options, Progress, Reader,
    ReaderOptions, Result, Rows, Scan, ScanRange,
};
use siltstone_base::{AttemptId, ManifestId, ObjectId, ObjectName, WalId};
use siltstone_fuzz::is_refusal;
use siltstone_manifest::Manifest;
use siltstone_manifest::codec::encode_boundary;
use siltstone_tests::faults::{Bucket, FaultPlan};
use siltstone_tests::sim::Sim;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) type Objects = BTreeMap<ObjectName, Bytes>;
pub(crate) type Row = (Vec<u8>, Vec<u8>);

/// The content of a database after each of its writes; the last one is the present content.
pub(crate) struct Made {
    pub(crate) objects: Objects,
    pub(crate) states: Vec<Vec<Row>>,
}

fn options() -> Options {
    Options {
        flush_interval: Duration::from_millis(5),
        block_bytes: 64,
        l0_manifest_commit_interval: Duration::ZERO,
        deadline: Duration::from_secs(5),
        ..Options::default()
    }
}

async fn open(env: &Env) -> Result<Database> {
    Database::open(env.clone(), OpenOptions { options: options(), ..OpenOptions::default() }).await
}

/// Puts, a delete and entries with an expiry (long ago, and not in this century).
fn batch(round: u8, salt: u8) -> Result<Batch> {
    let mut batch = Batch::new();
    let later = siltstone::UnixMillis(4_000_000_000_000);
    batch.put(&[b'a', round % 3], &[round + salt; 5], None)?;
    batch.put(&[b'b', round], b"kept", Some(later))?;
    batch.put(&[b'c', round], b"gone", Some(siltstone::UnixMillis(1_000)))?;
    batch.put(&[b'd', round], &[b'x'; 60], None)?;
    batch.delete(&[b'b', round.wrapping_sub(2)])?;
    Ok(batch)
}

async fn write(db: &Database, round: u8, salt: u8, states: &mut Vec<Vec<Row>>) -> Result<()> {
    if let siltstone::Accept::Accepted(commit) = db.write(&batch(round, salt)?)? {
        commit.wait(None).await?;
    }
    states.push(rows(db.scan(ScanRange::all())?).await?);
    Ok(())
}

/// Two tables in L0, a fence in the WAL with objects before and behind it, several manifests, both
/// boundaries. `salt` makes another database of the same shape.
pub(crate) fn made(salt: u8) -> Made {
    let sim = Sim::new(u64::from(salt) + 3);
    let bucket = Bucket::new(&sim, FaultPlan::none());
    bucket.stays();
    let mut states = vec![Vec::new()];
    for rounds in [0..4u8, 4..6] {
        let process = sim.process("maker", 0);
        let env = sim.env(process, bucket.store(process));
        let work = async move {
            let db = open(&env).await?;
            let mut states = Vec::new();
            for round in rounds {
                write(&db, round, salt, &mut states).await?;
                if round < 2 {
                    db.flush_memtable().await?;
                }
            }
            Ok::<_, Error>((db, states))
        };
        let (db, wrote) = sim.block_on(process, work).unwrap().unwrap();
        states.extend(wrote);
        // The first one ends without a close, and is fenced by the second.
        sim.kill(process);
        drop(db);
    }
    let mut objects: Objects = bucket.objects().into_iter().collect();
    collect_some(&mut objects);
    Made { objects, states }
}

/// The effect of a collector: the first manifest and the first WAL object are freed.
fn collect_some(objects: &mut Objects) {
    let newest = newest(objects);
    let (object, attempt) = (ObjectId(77), AttemptId(78));
    let wal = objects.keys().find_map(|name| match name {
        ObjectName::Wal(id) if *id < newest.replay_from => Some(*id),
        _ => None,
    });
    let wal: WalId = wal.expect("an object below the replay point");
    let database = newest.database;
    let manifest = ManifestId(1);
    objects.remove(&ObjectName::Manifest(manifest)).expect("the first manifest");
    objects.remove(&ObjectName::Wal(wal));
    objects.retain(|name, _| !matches!(name, ObjectName::Wal(id) if *id < newest.replay_from));
    let name = ObjectName::ManifestBoundary(manifest);
    objects.insert(name, encode_boundary(manifest.get(), database, object, attempt));
    let freed = newest.replay_from.minus(1);
    let name = ObjectName::WalBoundary(freed);
    objects.insert(name, encode_boundary(freed.get(), database, object, attempt));
}

/// The newest manifest.
pub(crate) fn newest(objects: &Objects) -> Manifest {
    let newest = objects.iter().rev().find(|(name, _)| matches!(name, ObjectName::Manifest(_)));
    let (_, bytes) = newest.expect("a manifest");
    Manifest::decode(bytes).expect("sound bytes").1
}

async fn rows(mut scan: Scan) -> Result<Vec<Row>> {
    let (mut page, mut all) = (Rows::new(), Vec::new());
    loop {
        let filled = scan.fill(&mut page, 100, 1 << 20)?;
        let found = (0..page.len()).filter_map(|row| page.row(row));
        all.extend(found.map(|(key, value)| (key.to_vec(), value.to_vec())));
        page.clear();
        match filled {
            FillOutcome::End => return Ok(all),
            FillOutcome::Full => {}
            FillOutcome::NeedsBlocks => scan.fetch().await?,
        }
    }
}

/// Every key that the database ever had, and one that it never had.
fn keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = vec![b"absent".to_vec()];
    for first in *b"abcd" {
        keys.extend((0..6).map(|second| vec![first, second]));
    }
    keys
}

/// A key, and the result of its look-up.
type Got = (Vec<u8>, Result<Option<Vec<u8>>>);

/// The results of a read of a database: values by key and both scans, each of which may be refused.
#[derive(Debug)]
pub(crate) struct Seen {
    gets: Vec<Got>,
    scans: [Result<Vec<Row>>; 2],
}

/// Opens, reads everything, and returns the results; an error if it does not open.
macro_rules! look {
    ($handle:expr) => {{
        let handle = $handle;
        let mut gets = Vec::new();
        for key in keys() {
            let got = match handle.get(&key) {
                Ok(answer) => answer.wait().await,
                Err(error) => Err(error),
            };
            gets.push((key, got.map(|value| value.map(|value| value.to_vec()))));
        }
        let mut scans = [Ok(vec![]), Ok(vec![])];
        for (reverse, scanned) in [false, true].into_iter().zip(&mut scans) {
            *scanned = rows(handle.scan(ScanRange { reverse, ..ScanRange::all() })?).await;
        }
        Seen { gets, scans }
    }};
}

async fn read(env: Env) -> Result<Seen> {
    let how = ReaderOptions { options: options(), ..ReaderOptions::default() };
    Ok(look!(Reader::open(env, how).await?))
}

async fn take_over(env: Env) -> Result<Seen> {
    Ok(look!(open(&env).await?))
}

/// Reads the objects as a reader, as a writer, and by verification. Panics on a hang, and on an
/// error that is not a refusal.
pub(crate) fn examine(objects: &Objects, what: &str) -> ([Result<Seen>; 2], Result<Report>) {
    let sim = Sim::new(9);
    let bucket = Bucket::new(&sim, FaultPlan::none());
    for (name, bytes) in objects {
        bucket.insert(*name, bytes.clone());
    }
    let process = || {
        let process = sim.process("looker", 0);
        (process, sim.env(process, bucket.store(process)))
    };
    let (id, env) = process();
    let checked = sim.block_on(id, async move {
        verify(&env, Duration::from_secs(5), &Progress::default()).await
    });
    let checked = checked.unwrap_or_else(|stopped| panic!("{what}: verify hangs: {stopped:?}"));
    // The reader first: it writes nothing.
    let (id, env) = process();
    let reader = sim.block_on(id, read(env));
    let reader = reader.unwrap_or_else(|stopped| panic!("{what}: a reader hangs: {stopped:?}"));
    let (id, env) = process();
    let writer = sim.block_on(id, take_over(env));
    let writer = writer.unwrap_or_else(|stopped| panic!("{what}: a writer hangs: {stopped:?}"));
    ([reader, writer], checked)
}

impl Seen {
    /// Every read equals `state`, or is refused. Returns the number of refusals.
    pub(crate) fn compare(&self, state: &[Row], what: &str) -> usize {
        let mut refused = 0;
        let mut refusal = |error: &Error| {
            assert!(is_allowed(error, what), "{what}: {error:?}");
            refused += 1;
        };
        for (key, got) in &self.gets {
            let right = state.iter().find(|(one, _)| one == key).map(|(_, value)| value);
            match got {
                Ok(value) => assert_eq!(value.as_ref(), right, "{what}: key {key:?}"),
                Err(error) => refusal(error),
            }
        }
        for (reverse, scanned) in [false, true].into_iter().zip(&self.scans) {
            match scanned {
                Ok(rows) => {
                    let mut right = state.to_vec();
                    if reverse {
                        right.reverse();
                    }
                    assert_eq!(*rows, right, "{what}: a scan, reverse {reverse}");
                }
                Err(error) => refusal(error),
            }
        }
        refused
    }

    /// The rows of the forward scan, if it was not refused.
    pub(crate) fn rows(&self) -> Option<&Vec<Row>> {
        self.scans[0].as_ref().ok()
    }
}

/// Both reads are correct or refused; returns the number of refused reads, with a refused open
/// counting as one.
pub(crate) fn compare(looks: &[Result<Seen>; 2], state: &[Row], what: &str) -> usize {
    let mut refused = 0;
    for look in looks {
        refused += match look {
            Ok(seen) => seen.compare(state, what),
            Err(error) => {
                assert!(is_allowed(error, what), "{what}: {error:?}");
                1
            }
        };
    }
    refused
}

/// A refusal; and for a missing object, the error for a collected one: a reader cannot distinguish
/// the two.
fn is_allowed(error: &Error, what: &str) -> bool {
    let gone = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Expired);
    is_refusal(error.kind()) || (gone && what.starts_with("missing"))
}
