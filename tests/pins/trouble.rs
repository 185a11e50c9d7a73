//! A reader's lease on a store that refuses, does not answer, and recovers.

use crate::{POLL, ROWS, World, expected, load, options, some, tell, work};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use parking_lot::Mutex;
use siltstone::store::passed_on;
use siltstone::store::{Listed, PutAnswer, Store};
use siltstone::{
    Env, Error, ErrorKind, Options, Reader, ReaderOptions, Readers, Result, ScanRange,
};
use siltstone_base::ObjectName;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// Creates are refused.
    ReadOnly,
    /// The next create lands; its answer is lost, and the store is down from then on.
    LastWords,
    /// Requests of the log never get an answer.
    SilentLog,
    Down,
}

/// A connection to a store that can be cut.
#[derive(Debug)]
pub(crate) struct Door {
    store: Arc<dyn Store>,
    way: Mutex<Way>,
}

impl Door {
    fn check(&self) -> Result<()> {
        match *self.way.lock() {
            Way::Down => Err(Error::unavailable("the store is down")),
            Way::Open | Way::ReadOnly | Way::LastWords | Way::SilentLog => Ok(()),
        }
    }

    fn is_silent(&self, is_of_the_log: bool) -> bool {
        is_of_the_log && *self.way.lock() == Way::SilentLog
    }

    pub(crate) fn set(&self, way: Way) {
        *self.way.lock() = way;
    }
}

impl Store for Door {
    passed_on!(store: upload, delete);

    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        match self.check() {
            Ok(()) if self.is_silent(matches!(name, ObjectName::Wal(_))) => pending().boxed(),
            Ok(()) => self.store.get(name, range),
            Err(down) => async { Err(down) }.boxed(),
        }
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        async move {
            if let Err(down) = self.check() {
                return PutAnswer::Ambiguous(down);
            }
            let way = *self.way.lock();
            match way {
                Way::ReadOnly => PutAnswer::Refused(Error::new(ErrorKind::Denied, "read only")),
                Way::LastWords => {
                    let _ = self.store.put_if_absent(name, bytes).await;
                    self.set(Way::Down);
                    PutAnswer::Ambiguous(Error::unavailable("the answer is lost"))
                }
                Way::Open | Way::SilentLog | Way::Down => {
                    self.store.put_if_absent(name, bytes).await
                }
            }
        }
        .boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        match self.check() {
            Ok(()) if self.is_silent(prefix.starts_with("wal")) => pending().boxed(),
            Ok(()) => self.store.list(prefix, after),
            Err(down) => async { Err(down) }.boxed(),
        }
    }
}

/// A reader's process with such a connection.
pub(crate) fn behind_a_door(world: &World) -> (Env, Arc<Door>) {
    let store = Arc::clone(&world.reader_env.store);
    let door = Arc::new(Door { store, way: Mutex::new(Way::Open) });
    let env = Env { store: Arc::<Door>::clone(&door), ..world.reader_env.clone() };
    (env, door)
}

async fn open(env: &Env, options: Options) -> Result<Reader> {
    Reader::open(env.clone(), ReaderOptions { options, ..ReaderOptions::default() }).await
}

async fn leased(world: &World) -> usize {
    let state = world.manifest().await;
    state.leased_versions() + state.since_leases.len()
}

#[test]
fn a_reader_that_may_not_write_reads_without_a_lease() {
    tell(async |world| {
        load(&world.open().await, 0).await;
        let (env, door) = behind_a_door(&world);
        door.set(Way::ReadOnly);
        for options in [options(), Options { reader_lease: false, ..options() }] {
            let reader = open(&env, options).await.unwrap();
            let rows = some(&mut reader.scan(ScanRange::all()).unwrap(), usize::MAX).await.unwrap();
            assert_eq!(rows.len() as u64, ROWS);
            reader.refresh().await.unwrap();
        }
        assert_eq!(leased(&world).await, 0);
    });
}

/// Looks that end at the deadline, one after the other, leave time to renew the lease.
#[test]
fn a_lease_is_renewed_while_requests_hang() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let (env, door) = behind_a_door(&world);
        let reader = open(&env, Options { deadline: Duration::from_secs(16), ..options() }).await;
        let reader = reader.unwrap();
        let mut scan = reader.scan(ScanRange::all()).unwrap();
        door.set(Way::SilentLog);
        for round in 1..6 {
            load(&db, round).await;
            world.rewrite().await;
            world.pause(Duration::from_secs(15)).await;
        }
        let error = reader.refresh().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(leased(&world).await > 0);
        assert_eq!(some(&mut scan, usize::MAX).await.unwrap(), expected(0));
        door.set(Way::Open);
        reader.refresh().await.unwrap();
        let mut now = reader.scan(ScanRange::prefix(b"key")).unwrap();
        assert_eq!(some(&mut now, usize::MAX).await.unwrap(), expected(5));
        reader.close().await.unwrap();
    });
}

/// If any answer of a commit is lost, and the store is down for any time within the lifetime, the
/// tables of scans stay, and no lease is left over.
#[test]
fn a_lease_whose_answer_is_lost_is_settled_when_the_store_is_back() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let (env, door) = behind_a_door(&world);
        let lifetime = Duration::from_secs(300);
        let brief = Options {
            readers: Readers { checkpoint_lifetime: lifetime, ..Readers::default() },
            deadline: Duration::from_secs(2),
            ..options()
        };
        let reader = open(&env, brief).await.unwrap();
        let mut scan = reader.scan(ScanRange::all()).unwrap();
        for round in 1..4 {
            load(&db, round).await;
            door.set(Way::LastWords);
            // By then it has renewed its since-lease, of 20 s, and the answer is lost.
            world.pause(Duration::from_secs(12)).await;
            let error = reader.refresh().await.unwrap_err();
            assert!(error.kind().is_transient() || error.kind() == ErrorKind::Timeout, "{error}");
            // Down for a long time, while everything is rewritten and collected.
            world.rewrite().await;
            work(&world, &db).await;
            world.rewrite().await;
            world.pause(Duration::from_secs(3)).await;
            door.set(Way::Open);
            reader.refresh().await.unwrap();
            let mut now = reader.scan(ScanRange::prefix(b"key")).unwrap();
            assert_eq!(some(&mut now, usize::MAX).await.unwrap(), expected(round));
        }
        assert_eq!(some(&mut scan, usize::MAX).await.unwrap(), expected(0));
        drop(scan);
        world.pause(lifetime * 2).await;
        world.rewrite().await;
        world.pause(POLL * 5).await;
        world.pause(lifetime * 2).await;
        world.rewrite().await;
        assert!(leased(&world).await <= 2);

        // A close while the store is down ends; the lease expires by itself.
        door.set(Way::Down);
        reader.close().await.unwrap();
        assert!(leased(&world).await > 0);
        world.pause(lifetime * 2).await;
        world.rewrite().await;
        assert_eq!(leased(&world).await, 0);
    });
}
