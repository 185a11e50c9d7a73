//! The contract of a store, as checks that any store must pass.

use bytes::Bytes;
use futures::future::BoxFuture;
use siltstone::store::{PutAnswer, Store};
use siltstone_base::id::{JobId, ManifestId, SstId, WalId};
use siltstone_base::name::prefix;
use siltstone_base::{ErrorKind, ObjectName};
use std::ops::Range;
use std::sync::Arc;

/// Runs every check. The store must be empty.
pub(crate) fn check(store: Arc<dyn Store>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        nothing_there(&*store).await;
        creates(&*store).await;
        ranges(&*store).await;
        uploads(&*store).await;
        listings(&*store).await;
        deletes(&*store).await;
    })
}

fn wal(id: u64) -> ObjectName {
    ObjectName::Wal(WalId(id))
}

fn table(id: u128) -> ObjectName {
    ObjectName::Compacted(SstId(id))
}

/// Reads both ways, if a store has both, and compares.
pub(crate) async fn read(
    store: &dyn Store,
    name: ObjectName,
    range: Option<Range<u64>>,
) -> Result<Option<Bytes>, ErrorKind> {
    let found = store.get(name, range.clone()).await.map_err(|error| error.kind());
    if let Some(now) = store.reads().get_now(name, range) {
        assert_eq!(now.map_err(|error| error.kind()), found, "{store:?}: get_now differs");
    }
    found
}

async fn nothing_there(store: &dyn Store) {
    assert_eq!(read(store, wal(1), None).await, Ok(None));
    assert_eq!(read(store, table(1), Some(0..10)).await, Ok(None));
    for folder in [prefix::MANIFEST, prefix::WAL, prefix::COMPACTED, prefix::INGEST] {
        assert!(store.list(folder, None).await.unwrap().is_empty());
    }
    store.delete(wal(1)).await.unwrap();
    store.delete(ObjectName::IngestSst(JobId(1), SstId(1))).await.unwrap();
}

async fn creates(store: &dyn Store) {
    let first = Bytes::from_static(b"first");
    let answer = store.put_if_absent(wal(1), first.clone()).await;
    assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
    assert_eq!(read(store, wal(1), None).await, Ok(Some(first.clone())));
    for bytes in ["second", "first"] {
        let answer = store.put_if_absent(wal(1), Bytes::from_static(bytes.as_bytes())).await;
        assert!(matches!(answer, PutAnswer::Exists), "{answer:?}");
    }
    assert_eq!(read(store, wal(1), None).await, Ok(Some(first)));
    let answer = store.put_if_absent(wal(2), Bytes::new()).await;
    assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
    assert_eq!(read(store, wal(2), None).await, Ok(Some(Bytes::new())));
}

async fn ranges(store: &dyn Store) {
    let object: Vec<u8> = (0..200u8).collect();
    let answer = store.put_if_absent(wal(3), Bytes::from(object.clone())).await;
    assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
    for range in [0..1, 0..200, 17..18, 100..200, 199..200] {
        let expected = Bytes::copy_from_slice(&object[range.start as usize..range.end as usize]);
        assert_eq!(read(store, wal(3), Some(range)).await, Ok(Some(expected)));
    }
    // Partly past the end, wholly past it, far past it.
    for range in [0..201, 199..201, 200..201, 300..400, 0..1 << 40] {
        let answer = read(store, wal(3), Some(range.clone())).await;
        assert_eq!(answer, Err(ErrorKind::Corruption), "{range:?}");
    }
    // Reads that end with the object, of stores that other stores are built over.
    for range in [199..400, 200..201, 300..400] {
        let read = store.get_clamped(wal(3), range.clone()).await.map_err(|error| error.kind());
        let last = || Ok(Some(Bytes::from_static(&[199])));
        let expected = if range.start == 199 { last() } else { Err(ErrorKind::Corruption) };
        assert!(read == Err(ErrorKind::Unsupported) || read == expected, "{range:?}: {read:?}");
    }
    for range in [5..5, 0..0, Range { start: 7, end: 3 }] {
        let answer = read(store, wal(3), Some(range.clone())).await;
        assert_eq!(answer, Err(ErrorKind::Invalid), "{range:?}");
    }
}

/// Bytes that differ everywhere from their neighbours, `len` of them.
fn pattern(len: usize, salt: u8) -> Bytes {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ salt).collect()
}

async fn upload(store: &dyn Store, name: ObjectName, chunks: &[Bytes]) {
    let mut upload = store.upload(name).await.unwrap();
    for (at, chunk) in chunks.iter().enumerate() {
        // Alternates between both ways, if a store has both.
        match if at % 2 == 1 { upload.write_now(chunk) } else { None } {
            Some(written) => written.unwrap(),
            None => upload.write(chunk.clone()).await.unwrap(),
        }
        assert_eq!(read(store, name, None).await, Ok(None), "visible before it is finished");
    }
    upload.finish().await.unwrap();
    let whole: Bytes = chunks.concat().into();
    assert!(read(store, name, None).await == Ok(Some(whole.clone())), "{name} differs");
    if whole.len() > 10 {
        let end = whole.len() as u64;
        let tail = read(store, name, Some(end - 10..end)).await;
        assert_eq!(tail, Ok(Some(whole.slice(whole.len() - 10..))));
    }
}

async fn uploads(store: &dyn Store) {
    upload(store, table(1), &[]).await;
    upload(store, table(2), &[pattern(10, 1), Bytes::new(), pattern(100_000, 2)]).await;
    // More than one request takes: chunks that do and do not fit the size of a part.
    let chunks: Vec<Bytes> = (0..7).map(|salt| pattern((3 << 20) + 1, salt)).collect();
    upload(store, table(3), &chunks).await;
    let mut given_up = store.upload(table(4)).await.unwrap();
    for chunk in &chunks {
        given_up.write(chunk.clone()).await.unwrap();
    }
    given_up.abort().await.unwrap();
    assert_eq!(read(store, table(4), None).await, Ok(None));
    // A repetition with the same bytes has the same name.
    let mut again = store.upload(table(2)).await.unwrap();
    again.write([pattern(10, 1), pattern(100_000, 2)].concat().into()).await.unwrap();
    again.finish().await.unwrap();
    assert_eq!(read(store, table(2), Some(0..10)).await, Ok(Some(pattern(10, 1))));
}

async fn names(
    store: &dyn Store,
    folder: &'static str,
    after: Option<ObjectName>,
) -> Vec<ObjectName> {
    store.list(folder, after).await.unwrap().into_iter().map(|object| object.name).collect()
}

async fn listings(store: &dyn Store) {
    let manifest = |id| ObjectName::Manifest(ManifestId(id));
    let boundary = |id| ObjectName::ManifestBoundary(ManifestId(id));
    let job = |job, sst| ObjectName::IngestSst(JobId(job), SstId(sst));
    let made = [
        manifest(10),
        manifest(2),
        boundary(1),
        manifest(1),
        job(7, 2),
        ObjectName::IngestManifest(JobId(7)),
        job(3, 9),
        ObjectName::ProbeRecord,
        ObjectName::ProbeScratch(JobId(5)),
        ObjectName::Compactions(1),
        ObjectName::CompactionsBoundary(1),
        ObjectName::WalBoundary(WalId(1)),
    ];
    for (length, name) in made.into_iter().enumerate() {
        let answer = store.put_if_absent(name, pattern(length, 0)).await;
        assert!(matches!(answer, PutAnswer::Created), "{name}: {answer:?}");
    }
    let expected = vec![manifest(1), manifest(2), manifest(10), boundary(1)];
    assert_eq!(names(store, prefix::MANIFEST, None).await, expected);
    assert_eq!(names(store, prefix::MANIFEST, Some(manifest(2))).await, expected[2..]);
    assert_eq!(names(store, prefix::MANIFEST, Some(manifest(5))).await, expected[2..]);
    assert_eq!(names(store, prefix::MANIFEST, Some(boundary(1))).await, []);
    assert_eq!(names(store, prefix::MANIFEST_BOUNDARY, None).await, [boundary(1)]);
    let wal_boundary = ObjectName::WalBoundary(WalId(1));
    assert_eq!(names(store, prefix::WAL, None).await, [wal(1), wal(2), wal(3), wal_boundary]);
    assert_eq!(names(store, prefix::WAL_BOUNDARY, None).await, [wal_boundary]);
    assert_eq!(names(store, prefix::COMPACTED, None).await, [table(1), table(2), table(3)]);
    assert_eq!(names(store, prefix::COMPACTED, Some(table(1))).await, [table(2), table(3)]);
    let ingest = vec![ObjectName::IngestManifest(JobId(7)), job(3, 9), job(7, 2)];
    assert_eq!(names(store, prefix::INGEST, None).await, ingest);
    assert_eq!(names(store, prefix::INGEST, Some(ingest[0])).await, ingest[1..]);
    for (of, names) in [(JobId(7), vec![ingest[0], ingest[2]]), (JobId(3), vec![ingest[1]])] {
        let listed = store.list_job(of).await.unwrap();
        assert_eq!(listed.iter().map(|object| object.name).collect::<Vec<_>>(), names);
        let length = |name| made.iter().position(|one| *one == name).unwrap() as u64;
        assert!(listed.iter().all(|object| object.bytes == length(object.name)));
    }
    assert!(store.list_job(JobId(1)).await.unwrap().is_empty());
    let probe = vec![ObjectName::ProbeRecord, ObjectName::ProbeScratch(JobId(5))];
    assert_eq!(names(store, prefix::PROBE, None).await, probe);
    assert_eq!(names(store, prefix::PROBE, Some(probe[0])).await, probe[1..]);
    let compactions = [ObjectName::Compactions(1), ObjectName::CompactionsBoundary(1)];
    assert_eq!(names(store, prefix::COMPACTIONS, None).await, compactions);
    // Lengths are exact, and every object is from this century.
    for object in store.list(prefix::MANIFEST, None).await.unwrap() {
        let position = made.iter().position(|name| *name == object.name).unwrap();
        assert_eq!(object.bytes, position as u64, "{}", object.name);
        assert!(object.modified.0 > 946_684_800_000, "{:?}", object.modified);
    }
    many(store).await;
}

/// More than one page of a remote store's listing.
async fn many(store: &dyn Store) {
    let boundary = |id| ObjectName::CompactionsBoundary(id);
    let ids: Vec<u64> = (2..=1205).collect();
    for some in ids.chunks(16) {
        let creates = some.iter().map(|id| store.put_if_absent(boundary(*id), Bytes::new()));
        for answer in futures::future::join_all(creates).await {
            assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
        }
    }
    let after = Some(ObjectName::Compactions(1));
    let listed = names(store, prefix::COMPACTIONS, after).await;
    assert_eq!(listed, (1..=1205).map(boundary).collect::<Vec<_>>());
    let last = names(store, prefix::COMPACTIONS, Some(boundary(1203))).await;
    assert_eq!(last, [boundary(1204), boundary(1205)]);
}

async fn deletes(store: &dyn Store) {
    for name in [wal(1), table(2), ObjectName::IngestSst(JobId(7), SstId(2))] {
        assert!(read(store, name, None).await.unwrap().is_some(), "{name}");
        for _ in 0..2 {
            store.delete(name).await.unwrap();
            assert_eq!(read(store, name, None).await, Ok(None), "{name}");
        }
    }
    assert!(!names(store, prefix::WAL, None).await.contains(&wal(1)));
    let answer = store.put_if_absent(wal(1), Bytes::from_static(b"anew")).await;
    assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
    assert_eq!(read(store, wal(1), None).await, Ok(Some(Bytes::from_static(b"anew"))));
}
