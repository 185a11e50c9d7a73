//! Stores in memory, each with one fault, and the property that the probe must find failed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that panics has failed, as it should"
)]

use super::{ProbeOptions, PropertyFinding, PropertyResult, StoreProperty, StoreReport, probe};
use crate::memory::MemoryStore;
use crate::progress::Progress;
use crate::task::tokio_env;
use crate::{CopyAnswer, Listed, Neighbours, Observed, Place, PutAnswer, Store, Upload};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use siltstone_base::name::prefix;
use siltstone_base::{Error, ErrorKind, ObjectName, Result};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A defect of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Overwrites objects that exist, and says so.
    IgnoresCondition,
    /// Overwrites objects that exist, and answers that they exist.
    OverwritesSilently,
    /// Answers that a second create succeeded, and stores nothing.
    LiesAboutCreate,
    /// Checks the name, waits, and then stores.
    ChecksThenActs,
    /// Both of two racing creates are refused, in every other round.
    RefusesSomeRaces,
    /// Remembers that a name was absent.
    CachesAbsence,
    /// Returns other bytes.
    Garbles,
    /// Lists the objects of the listing before.
    ListsLate,
    /// Lists a wrong length.
    ListsLengths,
    /// Lists backwards.
    ListsBackwards,
    /// Lists from the beginning, also if a name is given.
    IgnoresAfter,
    /// Sorted by the seam, in another order before.
    SortedHere,
    /// Returns the whole object for a range.
    IgnoresRange,
    /// Returns what there is for a range that ends beyond the object.
    ClampsRange,
    /// Deletes nothing, and answers that it did.
    KeepsDeleted,
    /// Goes on to return a deleted object to readers.
    ReadsDeleted,
    /// Refuses deletes.
    DeniesDeletes,
    /// Copies nothing, and answers that it did.
    CopiesNothing,
    /// Copies other bytes.
    CopiesWrong,
    /// Copies.
    Copies,
    /// An hour ahead.
    WrongClock,
    /// Objects have no date.
    NoDates,
    /// Refuses large objects.
    RefusesLarge,
    /// Cuts large uploads.
    CutsLarge,
    /// Does not answer to gets of ranges.
    RangesUnavailable,
    /// The answer to every other create is lost after the object was stored.
    LosesAnswers,
    /// Refuses every request.
    Denied,
    /// Refuses creates.
    ReadOnly,
    /// Refuses every request after the first create.
    LosesRights,
    /// Does not answer after the first create.
    StopsAnswering,
}

/// Bytes from which an object is a large one.
const LARGE: usize = 1 << 20;

#[derive(Debug)]
struct FaultyStore {
    fault: Fault,
    store: Arc<MemoryStore>,
    requests: AtomicU64,
    absent: Mutex<HashSet<ObjectName>>,
    listing: Mutex<Vec<Listed>>,
    deleted: Mutex<HashMap<ObjectName, Bytes>>,
}

impl FaultyStore {
    fn new(fault: Fault) -> Arc<FaultyStore> {
        Arc::new(FaultyStore {
            fault,
            store: MemoryStore::unnamed(),
            requests: AtomicU64::new(0),
            absent: Mutex::default(),
            listing: Mutex::default(),
            deleted: Mutex::default(),
        })
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    async fn overwrite(&self, name: ObjectName, bytes: Bytes) {
        let mut upload = self.store.upload(name).await.unwrap();
        upload.write(bytes).await.unwrap();
        upload.finish().await.unwrap();
    }

    /// The error of a store that has stopped serving.
    fn stopped(&self) -> Option<Error> {
        if self.requests.load(Ordering::Relaxed) == 0 {
            return None;
        }
        match self.fault {
            Fault::LosesRights => Some(denied()),
            Fault::StopsAnswering => Some(Error::new(ErrorKind::Timeout, "no answer")),
            _ => None,
        }
    }

    async fn is_there(&self, name: ObjectName) -> bool {
        self.store.get(name, None).await.unwrap().is_some()
    }

    async fn create(&self, name: ObjectName, bytes: Bytes) -> PutAnswer {
        if let Some(error) = self.stopped() {
            return PutAnswer::Refused(error);
        }
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::IgnoresCondition => {
                self.overwrite(name, bytes).await;
                PutAnswer::Created
            }
            Fault::OverwritesSilently => {
                let there = self.is_there(name).await;
                self.overwrite(name, bytes).await;
                if there { PutAnswer::Exists } else { PutAnswer::Created }
            }
            Fault::LiesAboutCreate => {
                self.store.put_if_absent(name, bytes).await;
                PutAnswer::Created
            }
            Fault::ChecksThenActs => {
                if self.is_there(name).await {
                    return PutAnswer::Exists;
                }
                tokio::task::yield_now().await;
                self.overwrite(name, bytes).await;
                PutAnswer::Created
            }
            Fault::RefusesSomeRaces if bytes.len() == 48 << 10 => PutAnswer::Exists,
            Fault::RefusesLarge if bytes.len() >= LARGE => {
                PutAnswer::Refused(Error::invalid("413 Payload Too Large"))
            }
            Fault::LosesAnswers if request.is_multiple_of(2) => {
                self.store.put_if_absent(name, bytes).await;
                PutAnswer::Ambiguous(Error::unavailable("connection reset"))
            }
            Fault::Denied | Fault::ReadOnly => PutAnswer::Refused(denied()),
            _ => self.store.put_if_absent(name, bytes).await,
        }
    }

    async fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        self.stopped().map_or(Ok(()), Err)?;
        match self.fault {
            Fault::Denied => return Err(denied()),
            Fault::RangesUnavailable if range.is_some() => {
                return Err(Error::new(ErrorKind::Timeout, "no answer"));
            }
            Fault::CachesAbsence if self.absent.lock().contains(&name) => return Ok(None),
            Fault::ReadsDeleted => {
                if let Some(bytes) = self.deleted.lock().get(&name) {
                    return Ok(Some(bytes.clone()));
                }
            }
            _ => {}
        }
        let Some(whole) = self.store.get(name, None).await? else {
            self.absent.lock().insert(name);
            return Ok(None);
        };
        let end = whole.len() as u64;
        match (self.fault, range) {
            (Fault::Garbles, None) => Ok(Some(Bytes::from(vec![0; whole.len()]))),
            (Fault::IgnoresRange, Some(_)) => Ok(Some(whole)),
            (Fault::ClampsRange, Some(range)) if range.end > end => {
                Ok(Some(whole.slice(range.start.min(end) as usize..)))
            }
            (_, range) => self.store.get(name, range).await,
        }
    }

    async fn listing(&self, after: Option<ObjectName>) -> Result<Vec<Listed>> {
        self.stopped().map_or(Ok(()), Err)?;
        if self.is(Fault::Denied) {
            return Err(denied());
        }
        let after = after.filter(|_| !self.is(Fault::IgnoresAfter));
        let mut listed = self.store.list(prefix::PROBE, after).await?;
        match self.fault {
            Fault::ListsBackwards => listed.reverse(),
            Fault::ListsLate => std::mem::swap(&mut listed, &mut *self.listing.lock()),
            Fault::ListsLengths => listed.iter_mut().for_each(|one| one.bytes += 1),
            Fault::WrongClock => listed.iter_mut().for_each(|one| one.modified.0 += 3_600_000),
            Fault::NoDates => listed.iter_mut().for_each(|one| one.modified.0 = 0),
            _ => {}
        }
        Ok(listed)
    }

    async fn remove(&self, name: ObjectName) -> Result<()> {
        self.stopped().map_or(Ok(()), Err)?;
        match self.fault {
            Fault::KeepsDeleted => return Ok(()),
            Fault::DeniesDeletes => return Err(denied()),
            Fault::ReadsDeleted => {
                if let Some(bytes) = self.store.get(name, None).await? {
                    self.deleted.lock().insert(name, bytes);
                }
            }
            _ => {}
        }
        self.store.delete(name).await
    }
}

fn denied() -> Error {
    Error::new(ErrorKind::Denied, "403 Forbidden")
}

impl Store for FaultyStore {
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.read(name, range).boxed()
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        self.create(name, bytes).boxed()
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        if self.is(Fault::CutsLarge) {
            let store = Arc::clone(&self.store);
            let upload: Box<dyn Upload> = Box::new(CutUpload { store, name, bytes: Vec::new() });
            return ready(Ok(upload)).boxed();
        }
        self.store.upload(name)
    }

    fn list(
        &self,
        _prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.listing(after).boxed()
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.remove(name).boxed()
    }

    fn observed(&self) -> Observed {
        let lists_in_order = Some(!self.is(Fault::SortedHere));
        Observed { lists_in_order, ..Observed::default() }
    }

    fn place(&self) -> &dyn Place {
        self
    }

    fn neighbours(&self) -> &dyn Neighbours {
        self
    }
}

impl Place for FaultyStore {
    fn location(&self) -> Option<String> {
        Some("memory://faulty".to_owned())
    }
}

impl Neighbours for FaultyStore {
    fn copy_from(&self, _location: &str, from: ObjectName, to: ObjectName) -> CopyAnswer<'_> {
        async move {
            match self.fault {
                Fault::CopiesNothing => Ok(true),
                Fault::CopiesWrong => {
                    self.overwrite(to, Bytes::from_static(b"other")).await;
                    Ok(true)
                }
                Fault::Copies => {
                    let bytes = self.store.get(from, None).await?.unwrap();
                    self.overwrite(to, bytes).await;
                    Ok(true)
                }
                _ => Ok(false),
            }
        }
        .boxed()
    }
}

fn options(rounds: u32) -> ProbeOptions {
    ProbeOptions { rounds, largest_object: 2 << 20, deadline: Duration::from_millis(200) }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

fn examine(store: Arc<dyn Store>, rounds: u32) -> Result<StoreReport> {
    run(async {
        let env = tokio_env(tokio::runtime::Handle::current(), store);
        probe(&env, &options(rounds), &Progress::default()).await
    })
}

fn finding(report: &StoreReport, property: StoreProperty) -> &PropertyFinding {
    report.properties.iter().find(|one| one.property == property).unwrap()
}

fn failed(report: &StoreReport) -> Vec<StoreProperty> {
    let failed = report.properties.iter().filter(|one| one.result == PropertyResult::Failed);
    failed.map(|one| one.property).collect()
}

/// The report of a store with this fault, and whether the store is empty afterwards.
fn faulty(fault: Fault) -> StoreReport {
    let store = FaultyStore::new(fault);
    let report = examine(Arc::clone(&store) as Arc<dyn Store>, 6).unwrap();
    let left = store.store.list(prefix::PROBE, None).now_or_never().unwrap().unwrap();
    let keeps =
        [Fault::KeepsDeleted, Fault::DeniesDeletes, Fault::LosesRights, Fault::StopsAnswering];
    assert_eq!(left.is_empty(), !keeps.contains(&fault), "{fault:?}: {left:?}");
    let all: Vec<_> = report.properties.iter().map(|one| one.property).collect();
    assert_eq!(all, StoreProperty::ALL, "{fault:?}");
    assert!(report.properties.iter().all(|one| !one.reason.is_empty()), "{report:?}");
    report
}

#[test]
fn a_store_in_memory_passes() {
    let report = faulty(Fault::None);
    assert_eq!(failed(&report), []);
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(finding(&report, StoreProperty::Copy).result, PropertyResult::Skipped);
    assert_eq!(report.largest_object, 2 << 20);
    assert!(report.clock.unwrap().seconds.abs() < 2.0, "{report:?}");
    assert_eq!(
        report.latency.keys().copied().collect::<Vec<_>>(),
        ["create", "delete", "get", "list"]
    );
    assert_eq!(report.left, [""; 0]);
    let report = examine(MemoryStore::unnamed(), 1).unwrap();
    assert_eq!((failed(&report), report.is_ok()), (Vec::new(), true));
}

#[test]
fn every_fault_is_found_and_no_other() {
    let faults = [
        (Fault::CachesAbsence, StoreProperty::ReadAfterWrite),
        (Fault::Garbles, StoreProperty::ReadAfterWrite),
        (Fault::ListsLate, StoreProperty::ListAfterWrite),
        (Fault::ListsLengths, StoreProperty::ListAfterWrite),
        (Fault::ListsBackwards, StoreProperty::ListOrder),
        (Fault::IgnoresAfter, StoreProperty::ListOrder),
        (Fault::SortedHere, StoreProperty::ListOrder),
        (Fault::IgnoresCondition, StoreProperty::CreateTwice),
        (Fault::OverwritesSilently, StoreProperty::CreateTwice),
        (Fault::LiesAboutCreate, StoreProperty::CreateTwice),
        (Fault::ChecksThenActs, StoreProperty::RacingCreates),
        (Fault::IgnoresRange, StoreProperty::RangeRead),
        (Fault::ClampsRange, StoreProperty::RangePastEnd),
        (Fault::KeepsDeleted, StoreProperty::DeleteThenCreate),
        (Fault::ReadsDeleted, StoreProperty::DeleteThenCreate),
        (Fault::CopiesNothing, StoreProperty::Copy),
        (Fault::CopiesWrong, StoreProperty::Copy),
        (Fault::WrongClock, StoreProperty::Clock),
        (Fault::NoDates, StoreProperty::Clock),
        (Fault::RefusesLarge, StoreProperty::LargeObjects),
        (Fault::CutsLarge, StoreProperty::LargeObjects),
    ];
    for property in StoreProperty::ALL {
        assert!(faults.iter().any(|(_, of)| *of == property), "{property:?} has no fault");
    }
    for (fault, property) in faults {
        let report = faulty(fault);
        assert!(failed(&report).contains(&property), "{fault:?}: {report:?}");
        assert_eq!(report.is_ok(), !property.is_needed(), "{fault:?}: {report:?}");
        // Faults of one property that others need show there too.
        let spread = [
            Fault::CachesAbsence,
            Fault::Garbles,
            Fault::ListsLate,
            Fault::ListsLengths,
            Fault::IgnoresCondition,
            Fault::OverwritesSilently,
            Fault::LiesAboutCreate,
            Fault::IgnoresRange,
            Fault::KeepsDeleted,
        ];
        assert!(spread.contains(&fault) || failed(&report) == [property], "{fault:?}: {report:?}");
    }
}

#[test]
fn a_store_without_conditions_fails_both_examinations_of_them() {
    for fault in [Fault::IgnoresCondition, Fault::OverwritesSilently, Fault::LiesAboutCreate] {
        let report = faulty(fault);
        let found = failed(&report);
        assert!(found.contains(&StoreProperty::CreateTwice), "{fault:?}: {report:?}");
        assert!(found.contains(&StoreProperty::RacingCreates), "{fault:?}: {report:?}");
    }
}

#[test]
fn harmless_answers_are_no_failure() {
    let report = faulty(Fault::RefusesSomeRaces);
    let races = finding(&report, StoreProperty::RacingCreates);
    assert_eq!(races.result, PropertyResult::Passed, "{report:?}");
    assert!(races.reason.contains("none in 3 rounds"), "{races:?}");
    let report = faulty(Fault::LosesAnswers);
    assert!(report.is_ok(), "{report:?}");
    let report = faulty(Fault::Copies);
    assert!(report.latency.contains_key("copy"), "{report:?}");
    assert_eq!(finding(&report, StoreProperty::Copy).result, PropertyResult::Passed, "{report:?}");
}

#[test]
fn a_request_without_an_answer_skips_its_property() {
    let report = faulty(Fault::RangesUnavailable);
    assert_eq!(failed(&report), [], "{report:?}");
    let ranges = finding(&report, StoreProperty::RangeRead);
    assert_eq!(ranges.result, PropertyResult::Skipped);
    assert!(!report.is_ok(), "a needed property was not examined");
}

#[test]
fn a_store_that_stops_serving_has_failed_nothing() {
    for (fault, reason) in [
        (Fault::LosesRights, "403 Forbidden"),
        (Fault::StopsAnswering, "the store has stopped answering"),
    ] {
        let report = faulty(fault);
        assert_eq!(failed(&report), [], "{fault:?}: {report:?}");
        assert!(!report.is_ok(), "{fault:?}: {report:?}");
        let last = report.properties.last().unwrap();
        assert!(last.reason.contains(reason), "{last:?}");
    }
}

#[test]
fn denied_deletes_leave_objects_and_the_report_names_them() {
    let report = faulty(Fault::DeniesDeletes);
    assert_eq!(finding(&report, StoreProperty::DeleteThenCreate).result, PropertyResult::Skipped);
    assert!(report.is_ok(), "{report:?}");
    assert!(report.left.len() > 10, "{report:?}");
    assert!(report.left.iter().all(|name| name.starts_with("probe/")), "{report:?}");
}

#[test]
fn a_store_that_cannot_be_reached_is_an_error() {
    for fault in [Fault::Denied, Fault::ReadOnly] {
        let error = examine(FaultyStore::new(fault), 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
}

#[test]
fn options_have_bounds() {
    let env = || tokio_env(tokio::runtime::Handle::current(), MemoryStore::unnamed());
    let wrong = [
        options(0),
        ProbeOptions { largest_object: 1, ..options(1) },
        ProbeOptions { largest_object: 2 << 30, ..options(1) },
    ];
    for options in wrong {
        let error = run(async { probe(&env(), &options, &Progress::default()).await });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_probe_that_is_given_up_deletes_its_objects() {
    run(async {
        let store = FaultyStore::new(Fault::RangesUnavailable);
        let env = tokio_env(tokio::runtime::Handle::current(), Arc::clone(&store) as _);
        let (options, progress) = (options(1000), Progress::default());
        let work = probe(&env, &options, &progress);
        // Dropped while a request of a range waits for its next try.
        assert!(tokio::time::timeout(Duration::from_millis(100), work).await.is_err());
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(store.store.list(prefix::PROBE, None).await.unwrap(), []);
    });
}

#[test]
fn progress_reaches_its_end() {
    run(async {
        let env = tokio_env(tokio::runtime::Handle::current(), MemoryStore::unnamed());
        let progress = Progress::default();
        probe(&env, &options(3), &progress).await.unwrap();
        let (done, total) = progress.so_far();
        assert_eq!((done, total), (13, 13));
    });
}

/// An upload that loses its last byte.
struct CutUpload {
    store: Arc<MemoryStore>,
    name: ObjectName,
    bytes: Vec<u8>,
}

impl Upload for CutUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        self.bytes.extend_from_slice(&chunk);
        ready(Ok(())).boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            self.bytes.pop();
            let mut upload = self.store.upload(self.name).await?;
            upload.write(self.bytes.into()).await?;
            upload.finish().await
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        ready(Ok(())).boxed()
    }
}
