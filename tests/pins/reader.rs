//! Leases of readers (rules L1 to L5), given checkpoints, and reads without either.

use crate::{
    POLL, ROWS, World, delete_half, expected, key, load, options, some, tell, value, work, write,
};
use siltstone::{
    Batch, CheckpointId, Database, Error, ErrorKind, Options, ReadAt, Reader, ReaderOptions,
    Readers, ScanRange,
};
use siltstone_base::{ManifestId, ObjectName, UnixMillis};
use siltstone_manifest::{CheckpointOwner, Edit, NewCheckpoint};
use siltstone_tests::{compact, gc};
use std::collections::BTreeSet;
use std::time::Duration;

const LIFETIME: Duration = Duration::from_secs(60);
/// Default lifetime of a since-lease.
const SINCE: Duration = Duration::from_secs(20);

fn lasting() -> Options {
    Options {
        readers: Readers { checkpoint_lifetime: LIFETIME, ..Readers::default() },
        ..options()
    }
}

impl World {
    async fn try_reader(
        &self,
        options: Options,
        checkpoint: Option<CheckpointId>,
    ) -> Result<Reader, Error> {
        let at = checkpoint.map(|id| ReadAt::Checkpoint(id.into()));
        let how = ReaderOptions { options, at, ..ReaderOptions::default() };
        Reader::open(self.reader_env.clone(), how).await
    }

    async fn reader(&self) -> Reader {
        self.try_reader(lasting(), None).await.unwrap()
    }

    async fn commit(&self, edit: Edit) {
        gc::commit(&self.env, edit, self.manifest().await).await.unwrap();
    }

    /// Leased versions, and the first versions of since-leases, ascending, each with the expiry of
    /// its lease.
    async fn leased(&self) -> Vec<(ManifestId, UnixMillis)> {
        let state = self.manifest().await;
        let each = state.leases.iter().flat_map(|lease| {
            lease.versions.iter().map(|version| (version.manifest_id, lease.expires_at))
        });
        let since = state.since_leases.iter().map(|lease| (lease.from, lease.expires_at));
        let mut all: Vec<_> = each.chain(since).collect();
        all.sort_unstable();
        all
    }
}

async fn all_of(reader: &Reader) -> Result<crate::Pairs, Error> {
    some(&mut reader.scan(ScanRange::prefix(b"key")).unwrap(), usize::MAX).await
}

#[test]
fn a_paused_scan_of_a_reader_gives_its_snapshot() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let reader = world.reader().await;
        let mut scan = reader.scan(ScanRange::all()).unwrap();
        let mut rows = some(&mut scan, 10).await.unwrap();

        world.rewrite().await;
        load(&db, 1).await;
        world.rewrite().await;
        work(&world, &db).await;
        delete_half(&db).await;
        world.rewrite().await;
        // Longer than the lifetime of a lease without renewal; the reader takes others meanwhile.
        for _ in 0..4 {
            work(&world, &db).await;
            world.rewrite().await;
        }
        assert!(world.leased().await.len() >= 2);

        rows.extend(some(&mut scan, usize::MAX).await.unwrap());
        assert_eq!(rows, expected(0));
        reader.refresh().await.unwrap();
        assert_eq!(all_of(&reader).await.unwrap().len() as u64, ROWS / 2);

        // Tables that only the scan kept become garbage after its end, automatically.
        drop(scan);
        work(&world, &db).await;
        world.pause(LIFETIME * 2).await;
        gc::round(&world.env).await.unwrap();
        assert_eq!(world.leased().await.len(), 1);
        assert_eq!(world.unnamed_tables().await, BTreeSet::new());
        // And the tables that it read last, some time after its close.
        reader.close().await.unwrap();
        assert_eq!(world.leased().await.len(), 1);
        world.pause(LIFETIME * 2).await;
        gc::round(&world.env).await.unwrap();
        assert_eq!(world.leased().await, vec![]);
    });
}

/// The lease covers tables, for a lifetime rounded up to an eighth of it, and nothing of the log.
#[test]
fn a_reader_leases_tables() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let mut batch = Batch::new();
        batch.put(&key(0), b"in the log", None).unwrap();
        write(&db, &batch).await;
        let now = world.env.clock.now();
        let reader = world.reader().await;
        let [(version, until)] = world.leased().await.try_into().unwrap();
        let manifest = world.manifest().await;
        assert_eq!(version, manifest.id);
        let lifetime = SINCE.as_millis() as u64;
        let left = until.0 - now.0;
        assert!((lifetime..lifetime * 9 / 8 + 1000).contains(&left), "{left}");
        assert_eq!(until.0 % (lifetime / 8), 0);
        assert!(manifest.checkpoints.iter().all(|one| one.owner != CheckpointOwner::Reader));
        assert_eq!(reader.get(&key(0)).unwrap().wait().await.unwrap().unwrap(), b"in the log"[..]);
    });
}

#[test]
fn the_cost_of_a_reader() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        world.pause(POLL * 5).await;
        let without = Options { reader_lease: false, ..lasting() };
        let opening = async { drop(world.try_reader(without, None).await.unwrap()) };
        let without = world.reader_requests_of(opening).await;
        assert_eq!(without.puts, 0);
        let mut opened = None;
        let opening = async { opened = Some(world.reader().await) };
        let with = world.reader_requests_of(opening).await;
        // One commit: a manifest, and the listing after it.
        let more = (with.puts - without.puts, with.lists - without.lists, with.gets - without.gets);
        assert_eq!(more, (1, 1, 1));
        // A later reader finds it leased.
        let joining = async { drop(world.reader().await) };
        let joins = world.reader_requests_of(joining).await;
        assert_eq!((joins.puts, joins.lists), (0, without.lists));

        // Two reads per poll and one listing in 16 polls, as before; and two commits per lifetime.
        let idle = world.reader_requests_of(world.pause(LIFETIME * 10)).await;
        assert!((15..=21).contains(&idle.puts), "{idle:?}");
        assert!(idle.lists <= idle.puts + 2 * 600 / 16 + 2, "{idle:?}");

        // The lease is not released.
        let reader = opened.unwrap();
        let closing = async { reader.close().await.unwrap() };
        let closing = world.reader_requests_of(closing).await;
        assert_eq!((closing.puts, closing.gets, closing.lists), (0, 0, 0));
        // Running requests end.
        let after = world.reader_requests_of(world.pause(LIFETIME * 2)).await;
        assert!(after.puts == 0 && after.gets + after.lists <= 2, "{after:?}");
    });
}

/// L4: a reader that leaves ends no lease.
#[test]
fn the_first_reader_to_leave_takes_no_lease_along() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let (first, second) = (world.reader().await, world.reader().await);
        assert_eq!(world.leased().await.len(), 1);
        let mut scan = second.scan(ScanRange::all()).unwrap();
        let mut rows = some(&mut scan, 10).await.unwrap();
        first.close().await.unwrap();
        drop(first);
        for round in 1..4 {
            load(&db, round).await;
            world.pause(LIFETIME).await;
            world.rewrite().await;
        }
        rows.extend(some(&mut scan, usize::MAX).await.unwrap());
        assert_eq!(rows, expected(0));
    });
}

/// L5: a missing table under a lease is not the reader's fault.
#[test]
fn a_missing_table_under_a_lease_is_a_corruption() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let reader = world.reader().await;
        let mut scan = reader.scan(ScanRange::all()).unwrap();
        for table in world.manifest().await.tables() {
            world.env.store.delete(ObjectName::Compacted(table.id)).await.unwrap();
        }
        let error = some(&mut scan, usize::MAX).await.map(|rows| rows.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        let error = reader.get(&key(3)).unwrap().wait().await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    });
}

/// Neither WAL nor tables that change under a since-lease need a commit.
#[test]
fn a_reader_moves_on_under_its_lease_when_tables_change() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let reader = world.reader().await;
        let [(first, _)] = world.leased().await.try_into().unwrap();
        for n in 0..5 {
            let mut batch = Batch::new();
            batch.put(&key(n), &value(n, 9), None).unwrap();
            write(&db, &batch).await;
            let refreshing = async { reader.refresh().await.unwrap() };
            assert_eq!(world.reader_requests_of(refreshing).await.puts, 0);
            let read = reader.get(&key(n)).unwrap().wait().await.unwrap().unwrap();
            assert_eq!(read[..], value(n, 9)[..]);
        }
        load(&db, 1).await;
        let refreshing = async { reader.refresh().await.unwrap() };
        assert_eq!(world.reader_requests_of(refreshing).await.puts, 0);
        let leased: Vec<_> = world.leased().await.iter().map(|(version, _)| *version).collect();
        assert_eq!(leased, [first]);
        assert_eq!(all_of(&reader).await.unwrap(), expected(1));
    });
}

/// A pause longer than the lifetime: lost tables are reported, and the reader continues.
#[test]
fn a_reader_whose_lease_was_revoked_goes_on() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let reader = world.reader().await;
        let mut scan = reader.scan(ScanRange::all()).unwrap();
        world.sim.pause(world.reading);
        load(&db, 1).await;
        work(&world, &db).await;
        world.pause(LIFETIME * 2).await;
        // The first round only revokes: a present lease is alive, even long after its expiry.
        world.rewrite().await;
        work(&world, &db).await;
        world.rewrite().await;
        assert_eq!(world.leased().await, vec![]);
        let error = some(&mut scan, usize::MAX).await.map(|rows| rows.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
        assert!(error.to_string().contains("scan again"), "{error}");

        world.sim.resume(world.reading);
        reader.refresh().await.unwrap();
        assert_eq!(all_of(&reader).await.unwrap(), expected(1));
        assert_eq!(world.leased().await.len(), 1);
    });
}

/// A get that misses a table before the reader has noticed.
#[test]
fn a_get_after_a_revocation_starts_anew() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let reader = world.reader().await;
        world.sim.pause(world.reading);
        load(&db, 1).await;
        world.pause(LIFETIME * 2).await;
        work(&world, &db).await;
        world.rewrite().await;
        work(&world, &db).await;
        world.rewrite().await;
        let read = reader.get(&key(7)).unwrap().wait().await.unwrap().unwrap();
        assert_eq!(read[..], value(7, 1)[..]);
        assert_eq!(world.leased().await.len(), 1);
    });
}

/// Nothing is written or followed; once the tables are gone, an error is raised.
#[test]
fn a_given_checkpoint_is_used_as_it_is() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let mut batch = Batch::new();
        batch.put(&key(0), b"in the log", None).unwrap();
        write(&db, &batch).await;
        let id = CheckpointId(77);
        let wal_id_last_seen = world.last_of_the_log().await;
        let kept = NewCheckpoint { id, wal_id_last_seen, ..NewCheckpoint::default() };
        world.commit(Edit::AddCheckpoint(kept)).await;
        let mut seen = expected(0);
        seen[0].1 = b"in the log".to_vec();
        load(&db, 1).await;
        work(&world, &db).await;
        world.rewrite().await;
        work(&world, &db).await;
        world.rewrite().await;

        let reading = async {
            // Any poll interval is valid for a reader that does not poll.
            let slow = Options { manifest_poll_interval: Some(LIFETIME), ..lasting() };
            let given = world.try_reader(slow, Some(id)).await.unwrap();
            assert_eq!(all_of(&given).await.unwrap(), seen);
            given.refresh().await.unwrap();
            assert_eq!(all_of(&given).await.unwrap(), seen);
            given
        };
        let mut given = None;
        let requests = world.reader_requests_of(async { given = Some(reading.await) }).await;
        let given = given.unwrap();
        assert_eq!(requests.puts, 0, "{requests:?}");
        let idle = world.reader_requests_of(world.pause(LIFETIME * 2)).await;
        assert_eq!((idle.puts, idle.gets, idle.lists), (0, 0, 0));

        world.commit(Edit::RemoveCheckpoint { id }).await;
        world.rewrite().await;
        let error = all_of(&given).await.map(|rows| rows.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
        let error = given.get(&key(3)).unwrap().wait().await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
        let error = world.try_reader(lasting(), Some(id)).await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
        given.close().await.unwrap();
    });
}

#[test]
fn a_reader_without_a_checkpoint_writes_nothing_and_starts_anew() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let options = Options { reader_lease: false, ..lasting() };
        let reader = world.try_reader(options, None).await.unwrap();
        let mut scan = reader.scan(ScanRange::all()).unwrap();
        let snapshot = world.manifest().await.id;
        world.sim.pause(world.reading);
        compact::everything(&world.env).await.unwrap();
        work(&world, &db).await;
        gc::round(&world.env).await.unwrap();
        let read = reader.get(&key(7)).unwrap().wait().await.unwrap().unwrap();
        assert_eq!(read[..], value(7, 0)[..]);
        let error = some(&mut scan, usize::MAX).await.map(|rows| rows.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
        assert!(world.manifest().await.id > snapshot);
        assert_eq!(world.leased().await, vec![]);
        reader.close().await.unwrap();
    });
}

/// Each of them began again, one after another, with a listing and the whole log.
#[test]
fn gets_that_miss_a_table_at_once_begin_again_once() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let options = Options { reader_lease: false, ..lasting() };
        let reader = world.try_reader(options, None).await.unwrap();
        world.sim.pause(world.reading);
        compact::everything(&world.env).await.unwrap();
        work(&world, &db).await;
        gc::round(&world.env).await.unwrap();
        let gets: Vec<_> = (0..20).map(|n| reader.get(&key(n)).unwrap().wait()).collect();
        let mut found = Vec::new();
        let gets = async { found = futures::future::join_all(gets).await };
        let asked = world.reader_requests_of(gets).await;
        for (n, read) in (0..).zip(found) {
            assert_eq!(read.unwrap().unwrap()[..], value(n, 0)[..]);
        }
        assert!(asked.lists < 10, "{asked:?}");
        reader.close().await.unwrap();
    });
}

#[test]
fn a_lifetime_that_a_poll_could_miss_is_refused() {
    tell(async |world| {
        world.open().await.close().await.unwrap();
        let short = Options {
            readers: Readers { checkpoint_lifetime: POLL * 2, ..Readers::default() },
            ..options()
        };
        let error = world.try_reader(short.clone(), None).await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let text = error.to_string();
        assert!(text.contains("checkpoint_lifetime") && text.contains("manifest_poll_interval"));
        assert!(text.contains("longer"), "{text}");
        let without = Options { reader_lease: false, ..short };
        world.try_reader(without, None).await.unwrap();
    });
}

async fn put(db: &Database, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(key, value, None).unwrap();
    write(db, &batch).await;
}

/// A minute, and a little for running requests.
const QUIET: Duration = Duration::from_secs(70);

#[test]
fn an_idle_reader_polls_less_often_and_sees_changes_in_time() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let options = Options { manifest_poll_interval: None, ..options() };
        let reader = world.try_reader(options, None).await.unwrap();
        let busy = world.reader_requests_of(world.pause(Duration::from_secs(20))).await;
        assert!(busy.gets > 20, "a look a second: {busy:?}");

        world.pause(QUIET).await;
        let long = Duration::from_secs(900);
        let idle = world.reader_requests_of(world.pause(long)).await;
        let requests = idle.gets + idle.lists + idle.puts + idle.deletes;
        let a_second = requests as f64 / long.as_secs_f64();
        assert!(a_second <= 0.4, "{a_second}: {idle:?}");
        assert!(idle.lists > 0, "reads alone prove nothing: {idle:?}");
        let idle = world.reader_requests_of(world.pause(long)).await;
        let requests = idle.gets + idle.lists + idle.puts + idle.deletes;
        // Four requests for a poll every 45 seconds, three for a renewal every 300: less than 0.1 a
        // second. A window has one more of each if one is at either end.
        let (polls, renewals) = (long.as_secs() / 45 + 1, long.as_secs() / 300 + 1);
        assert!(requests <= 4 * polls + 3 * renewals, "{idle:?}");

        put(&db, b"news", b"after half an hour").await;
        world.pause(Duration::from_secs(46)).await;
        let read = reader.get(b"news").unwrap().wait().await.unwrap().unwrap();
        assert_eq!(read[..], *b"after half an hour");
        world.pause(QUIET).await;
        for turn in 0..4 {
            let value = format!("turn {turn}");
            put(&db, b"news", value.as_bytes()).await;
            world.pause(Duration::from_secs(5)).await;
            let read = reader.get(b"news").unwrap().wait().await.unwrap().unwrap();
            assert_eq!(read[..], *value.as_bytes(), "seen within five seconds");
            // Once there are changes, every second.
            put(&db, b"more", value.as_bytes()).await;
            world.pause(Duration::from_millis(1500)).await;
            let read = reader.get(b"more").unwrap().wait().await.unwrap().unwrap();
            assert_eq!(read[..], *value.as_bytes(), "seen within the interval");
            world.pause(QUIET + Duration::from_secs(turn)).await;
        }
        // A version that was collected immediately is found by the next listing.
        put(&db, b"news", b"gone").await;
        work(&world, &db).await;
        world.rewrite().await;
        world.pause(Duration::from_secs(20)).await;
        let read = reader.get(b"news").unwrap().wait().await.unwrap().unwrap();
        assert_eq!(read[..], *b"gone");
        reader.close().await.unwrap();
    });
}

#[test]
fn an_interval_that_was_set_is_kept() {
    tell(async |world| {
        let db = world.open().await;
        load(&db, 0).await;
        let reader = world.try_reader(options(), None).await.unwrap();
        world.pause(QUIET).await;
        let minute = Duration::from_secs(60);
        let requests = world.reader_requests_of(world.pause(minute)).await;
        assert!(requests.gets >= 100, "{requests:?}");
        reader.close().await.unwrap();
    });
}
