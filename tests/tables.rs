//! The schema of a table (RFC 0040) in the engine: it exists from the first manifest on, evolves by
//! one commit of any process, and is preserved by clones, exports and restores.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect"
)]

use bytes::Bytes;
use siltstone::admin::{self, CloneParent, ExportPlaces};
use siltstone::store::memory::MemoryStore;
use siltstone::task::tokio_env;
use siltstone::{
    Accept, CheckpointOptions, Database, Env, Error, ErrorKind, OpenOptions, OpenSchema, Options,
    Progress, Reader, ReaderOptions, Result,
};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// The same columns, with anything after a point.
fn agrees(recorded: &[u8], brought: &[u8]) -> Result<()> {
    let columns = |text: &[u8]| text.split(|byte| *byte == b'.').next().map(<[u8]>::to_vec);
    if columns(recorded) == columns(brought) {
        Ok(())
    } else {
        Err(Error::invalid("other columns"))
    }
}

fn schema(text: &'static str) -> OpenSchema {
    let keys = text.lines().next().unwrap().to_owned();
    OpenSchema { keys, text: Bytes::from_static(text.as_bytes()), agrees }
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

async fn open(env: &Env, brought: Option<OpenSchema>) -> Result<Database> {
    let options = Options { flush_interval: Duration::from_millis(1), ..Options::default() };
    let how = OpenOptions { options, schema: brought, ..OpenOptions::default() };
    Database::open(env.clone(), how).await
}

async fn put(db: &Database, key: &[u8]) {
    let Accept::Accepted(commit) = db.put(key, b"value", None).unwrap() else {
        panic!("pressure in a small test")
    };
    commit.wait(None).await.unwrap();
}

async fn schema_at(env: &Env) -> Option<Bytes> {
    admin::manifest(env, None, LIMIT).await.unwrap().schema.clone()
}

fn run<F: Future<Output = ()>>(story: impl FnOnce(fn(&str) -> Env) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(story(|name| {
        tokio_env(tokio::runtime::Handle::current(), MemoryStore::named(name))
    }));
}

#[test]
fn the_first_manifest_has_it_and_other_columns_are_refused() {
    run(|place| async move {
        let env = place("tables/made");
        let db = open(&env, Some(schema("k\nv.1"))).await.unwrap();
        assert_eq!(db.schema().unwrap().unwrap(), "k\nv.1");
        assert_eq!(db.snapshot().unwrap().schema().unwrap(), "k\nv.1");
        put(&db, b"a").await;
        db.close().await.unwrap();
        // As bytes, with the same columns, with others: in values, and in keys.
        open(&env, None).await.unwrap().close().await.unwrap();
        open(&env, Some(schema("k\nv.7"))).await.unwrap().close().await.unwrap();
        let before = admin::manifest(&env, None, LIMIT).await.unwrap().id;
        for other in ["k\nw.1", "j\nv.1"] {
            let refused = open(&env, Some(schema(other))).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{other}");
        }
        // Nothing was claimed.
        assert_eq!(admin::manifest(&env, None, LIMIT).await.unwrap().id, before);
        // A database of bytes stays one.
        let bytes = place("tables/bytes");
        open(&bytes, None).await.unwrap().close().await.unwrap();
        let refused = open(&bytes, Some(schema("k\nv.1"))).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        let evolved = admin::evolve_schema(&bytes, text(""), text("k\nv.1"), LIMIT).await;
        assert_eq!(evolved.unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[test]
fn it_evolves_by_anybodys_commit_and_readers_find_it() {
    run(|place| async move {
        let env = place("tables/evolves");
        let db = open(&env, Some(schema("k\nv.1"))).await.unwrap();
        put(&db, b"a").await;
        let how = ReaderOptions::default();
        let reader = Reader::open(env.clone(), how).await.unwrap();
        db.evolve(text("k\nv.1"), text("k\nv.2")).await.unwrap();
        assert_eq!(db.schema().unwrap().unwrap(), "k\nv.2");
        assert_eq!(reader.newest_schema().await.unwrap().unwrap(), "k\nv.2");
        // The same evolution again succeeds; one planned on the first schema does not.
        admin::evolve_schema(&env, text("k\nv.1"), text("k\nv.2"), LIMIT).await.unwrap();
        let late = admin::evolve_schema(&env, text("k\nv.1"), text("k\nv.2b"), LIMIT).await;
        assert_eq!(late.unwrap_err().kind(), ErrorKind::Conflict);
        // A look finds another process's schema, and the writer continues.
        admin::evolve_schema(&env, text("k\nv.2"), text("k\nv.3"), LIMIT).await.unwrap();
        assert_eq!(db.schema().unwrap().unwrap(), "k\nv.2");
        assert_eq!(db.newest_schema().await.unwrap().unwrap(), "k\nv.3");
        assert_eq!(db.schema().unwrap().unwrap(), "k\nv.3");
        put(&db, b"b").await;
        db.flush_memtable().await.unwrap();
        assert_eq!(schema_at(&env).await.unwrap(), "k\nv.3");
        reader.refresh().await.unwrap();
        assert_eq!(reader.schema().unwrap(), "k\nv.3");
        db.close().await.unwrap();
    });
}

#[test]
fn clones_and_exports_have_it_and_a_restore_keeps_the_newest() {
    run(|place| async move {
        let env = place("tables/carried");
        let db = open(&env, Some(schema("k\nv.1"))).await.unwrap();
        put(&db, b"a").await;
        let named = CheckpointOptions { name: Some("first".to_owned()), ..Default::default() };
        db.checkpoint(&named).await.unwrap();
        db.evolve(text("k\nv.1"), text("k\nv.2")).await.unwrap();
        put(&db, b"b").await;
        db.close().await.unwrap();
        let options = Options::default();
        let clone = place("tables/clone");
        let parent = CloneParent { env: env.clone(), checkpoint: None, start: None, end: None };
        admin::clone(&clone, &[parent], &options).await.unwrap();
        assert_eq!(schema_at(&clone).await.unwrap(), "k\nv.2");
        open(&clone, Some(schema("k\nv.1"))).await.unwrap().close().await.unwrap();
        let copy = place("tables/copy");
        let places = ExportPlaces { source: &env, target: &copy };
        admin::export(places, None, &options, &Progress::default()).await.unwrap();
        assert_eq!(schema_at(&copy).await.unwrap(), "k\nv.2");
        // A number has one permanent meaning: a restore undoes rows, not the names of columns.
        let first = "first".parse().unwrap();
        admin::restore(&env, &first, &options).await.unwrap();
        assert_eq!(schema_at(&env).await.unwrap(), "k\nv.2");
    });
}
