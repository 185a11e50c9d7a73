//! The gate (RFC 0024): every process detects a manifest that requires a missing feature, and
//! refuses it before it claims, fences, collects or writes anything.

#![allow(clippy::expect_used, clippy::panic, reason = "a test stops at what it did not expect")]

use bytes::Bytes;
use siltstone::gc::GcOptions;
use siltstone::{
    Accept, CompactorOptions, CompactorProcess, Database, Env, Error, ErrorKind, OpenOptions,
    Options, Progress, Reader, ReaderOptions, Result,
};
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Envelope, ManifestId, ObjectId, ObjectKind, ObjectName,
    StoreId, UnixMillis, WalStore,
};
use siltstone_manifest::features::{Audience, Extension, Feature};
use siltstone_manifest::{Ancestor, Checkpoint, CheckpointOwner, Manifest};
use siltstone_tests::faults::{Bucket, FaultPlan};
use siltstone_tests::sim::{ProcessId, Sim};
use std::sync::Arc;
use std::time::Duration;

struct Place {
    sim: Sim,
    bucket: Arc<Bucket>,
    process: ProcessId,
}

impl Place {
    /// A database with a table and a log, whose writer did not close.
    fn filled() -> Place {
        let sim = Sim::new(7);
        let bucket = Bucket::new(&sim, FaultPlan::none());
        let process = sim.process("process", 0);
        let place = Place { sim, bucket, process };
        place
            .run(|env| async move {
                let db = open(env).await?;
                put(&db, "table").await?;
                db.flush_memtable().await?;
                put(&db, "log").await
            })
            .expect("a healthy store");
        place
    }

    fn run<T, W>(&self, work: impl FnOnce(Env) -> W) -> Result<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let env = self.sim.env(self.process, self.bucket.store(self.process));
        self.sim.block_on(self.process, work(env)).expect("it ends")
    }

    fn newest(&self) -> Manifest {
        let all = self.bucket.objects();
        let manifests = all.iter().filter(|(name, _)| matches!(name, ObjectName::Manifest(_)));
        let (_, bytes) = manifests.max_by_key(|(name, _)| *name).expect("there is one");
        Manifest::decode(bytes).expect("it is sound").1
    }

    /// The next manifest, as a newer version would have written it: the newest one after `change`,
    /// with these incompatible bits.
    fn upgraded(&self, bits: u32, change: impl FnOnce(&mut Manifest)) -> ManifestId {
        let mut next = self.newest();
        next.id = next.next_id();
        change(&mut next);
        next.features.carried.incompatible = bits;
        let attempt = AttemptId(0xa7);
        let (kind, object) = (ObjectKind::Manifest, ObjectId(0x0b));
        let plain = Envelope::new(kind, next.database, object, attempt);
        let carried = &next.features.carried;
        let (compatible, incompatible) = (carried.compatible, carried.incompatible);
        let envelope = Envelope { compatible, incompatible, ..plain };
        let bytes = next.encode_with(&envelope).expect("a small manifest");
        self.bucket.insert(ObjectName::Manifest(next.id), bytes);
        next.id
    }
}

fn options() -> Options {
    Options { deadline: Duration::from_secs(5), ..Options::default() }
}

async fn open(env: Env) -> Result<Database> {
    Database::open(env, OpenOptions { options: options(), ..OpenOptions::default() }).await
}

async fn put(db: &Database, key: &str) -> Result<()> {
    match db.put(key.as_bytes(), b"value", None)? {
        Accept::Accepted(commit) => commit.wait(None).await,
        Accept::Pressure(_) => Err(Error::internal("pressure in a small test")),
    }
}

async fn read(env: Env, checkpoint: bool) -> Result<()> {
    let options = Options { reader_lease: checkpoint, ..options() };
    Reader::open(env, ReaderOptions { options, ..ReaderOptions::default() }).await.map(drop)
}

async fn compact(env: Env, workers: usize) -> Result<()> {
    let how = CompactorOptions { options: options(), workers, merge_operator: None };
    CompactorProcess::open(env, how, |_| {}).await?.compact().await.map(drop)
}

async fn collect(env: Env) -> Result<()> {
    let second = Duration::from_secs(1);
    let options = GcOptions {
        min_age: Duration::ZERO,
        db_delete_grace: second,
        interval: second,
        deadline: second,
    };
    siltstone::gc::once(&env, &options, false).await.map(drop)
}

async fn verify(env: Env) -> Result<()> {
    siltstone::verify::verify(&env, Duration::from_secs(5), &Progress::default()).await.map(drop)
}

/// The processes that may be refused, and whether they change the database.
const PROCESSES: [(&str, bool); 7] = [
    ("writer", true),
    ("reader with a checkpoint", true),
    ("reader without", false),
    ("compactor", true),
    ("worker's coordinator", true),
    ("collector", true),
    ("verify", false),
];

fn process(place: &Place, name: &str) -> Result<()> {
    match name {
        "writer" => place.run(|env| async move { open(env).await.map(drop) }),
        "reader with a checkpoint" => place.run(|env| read(env, true)),
        "reader without" => place.run(|env| read(env, false)),
        "compactor" => place.run(|env| compact(env, 0)),
        "worker's coordinator" => place.run(|env| compact(env, 2)),
        "collector" => place.run(collect),
        _ => place.run(verify),
    }
}

/// Every object except the scratch of probes.
fn objects(place: &Place) -> Vec<(ObjectName, Bytes)> {
    place.bucket.objects()
}

fn refused_by_all(told: &str, bits: u32, change: impl Fn(&mut Manifest)) {
    refused_with([told, "upgrade"], bits, change);
}

fn refused_with(told: [&str; 2], bits: u32, change: impl Fn(&mut Manifest)) {
    for (name, _) in PROCESSES {
        let place = Place::filled();
        place.upgraded(bits, &change);
        let before = objects(&place);
        let error = process(&place, name).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
        let text = error.to_string();
        assert!(told.iter().all(|told| text.contains(told)), "{name}: {text}");
        assert!(objects(&place) == before, "{name} wrote something");
    }
}

fn feature(audience: Audience) -> Feature {
    Feature { name: "tides".to_owned(), audience, since: "9.1".to_owned() }
}

#[test]
fn an_unknown_feature_bit_is_refused_by_number() {
    refused_by_all("feature bit: 3", 1 << 3, |_| {});
}

#[test]
fn a_feature_that_readers_must_know_is_refused_by_name() {
    refused_by_all("tides", 0, |next| next.features.named.push(feature(Audience::Readers)));
}

#[test]
fn an_unknown_codec_is_refused_by_name() {
    refused_by_all("zstd-ng", 0, |next| next.settings.codec = "zstd-ng".to_owned());
}

/// These fenced the live writer first, and failed then.
#[test]
fn tables_that_cannot_be_read_are_refused_before_anything_is_claimed() {
    // A manifest may come from anywhere, and does not decide where a process reads.
    refused_with(["ancestor: file:///parent", "not followed"], 0, |next| {
        next.last_ancestor = 1;
        next.ancestors = vec![Ancestor {
            number: 1,
            database: DatabaseId(3),
            location: "file:///parent".to_owned(),
            checkpoint: CheckpointId(4),
        }];
        next.l0[0].tables[0].location = SstLocation::Ancestor(1);
    });
}

#[test]
fn a_log_in_another_store_is_refused_with_its_place() {
    let location = Some("memory:///log".to_owned());
    refused_with(["memory:///log", "`wal_url`"], 0, |next| {
        next.wal_store = Some(WalStore { id: StoreId(5), location: location.clone() });
    });
}

#[test]
fn readers_go_on_beside_a_feature_of_committers() {
    for (name, changes) in PROCESSES {
        let place = Place::filled();
        place.upgraded(0, |next| next.features.named.push(feature(Audience::Committers)));
        let before = objects(&place);
        let ended = process(&place, name);
        assert_eq!(ended.is_err(), changes, "{name}: {ended:?}");
        if let Err(error) = ended {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
            assert!(error.to_string().contains("tides"), "{name}: {error}");
        }
        assert!(objects(&place) == before, "{name} wrote something");
    }
}

/// A newer version appears under a live writer: it ends at its next commit, and reports the reason.
#[test]
fn a_live_writer_ends_when_it_may_not_go_on() {
    let place = Place::filled();
    let bucket = Arc::clone(&place.bucket);
    let db = place.run(open).expect("opens");
    let named = feature(Audience::Committers);
    let upgraded = place.upgraded(0, |next| next.features.named.push(named));
    let before = bucket.objects().len();
    let error = place
        .run(|_| async move {
            put(&db, "more").await?;
            db.flush_memtable().await
        })
        .expect_err("it may not commit");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("tides"), "{error}");
    // Its log grew, and there may be an unreferenced table.
    assert!(bucket.objects().len() > before);
    assert_eq!(place.newest().id, upgraded, "no manifest came after");
}

/// Data that an older program does not know, and need not know, exists after it has written.
#[test]
fn hints_of_a_newer_version_outlive_an_older_program() {
    let place = Place::filled();
    let hint = Extension { name: "hint".to_owned(), value: Some(Bytes::from_static(b"kept")) };
    let added = hint.clone();
    let kept = place.upgraded(0, |next| {
        next.features.carried.compatible = 1 << 17;
        next.features.extensions.push(added);
        next.checkpoints.push(Checkpoint {
            id: CheckpointId(77),
            manifest_id: next.id,
            manifest_attempt: AttemptId::NONE,
            replay_from: next.replay_from,
            wal_id_last_seen: next.wal_id_last_seen,
            created_at: UnixMillis(1),
            expires_at: None,
            source: None,
            owner: CheckpointOwner::Other { kind: 200, epoch: None, database: Some(DatabaseId(8)) },
            name: None,
            metadata: Vec::new(),
        });
    });
    place
        .run(|env| async move {
            let db = open(env).await?;
            put(&db, "more").await?;
            db.flush_memtable().await?;
            db.close().await
        })
        .expect("nothing forbids it");
    let newest = place.newest();
    assert!(newest.id > kept);
    assert_eq!(newest.features.carried.compatible, 1 << 17);
    assert_eq!(newest.features.extensions, vec![hint]);
    let pinned = newest.checkpoint(CheckpointId(77)).expect("kept");
    assert!(matches!(pinned.owner, CheckpointOwner::Other { kind: 200, .. }));
    assert_eq!((pinned.manifest_id, pinned.manifest_attempt), (kept, AttemptId(0xa7)));
    place.run(collect).expect("collects");
    let there = place.bucket.objects().iter().any(|(name, _)| *name == ObjectName::Manifest(kept));
    assert!(there, "what it pins is alive");
}
