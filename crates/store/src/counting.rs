//! Counts requests and bytes for `stats()`.

use crate::env::{Clock, Env};
use crate::full::is_full;
use crate::in_use::StoreUse;
use crate::latency::Latency;
use crate::retry::limit_of;
use crate::sent::{SentKind, SentRequests, SentTotals};
use crate::troubles::{Area, Troubles, Verb, explained, log_failed_abort};
use crate::{
    CopyAnswer, Listed, LocalReads, Neighbours, PutAnswer, Store, TaggedBytes, Upload, passed_on,
};
use bytes::Bytes;
use futures::future::{BoxFuture, Either, select};
use futures::{FutureExt, TryFutureExt};
use parking_lot::Mutex;
use siltstone_base::name::prefix;
use siltstone_base::{Error, JobId, ObjectName, Result};
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;

/// Counts since the store was wrapped. For a store with clients they are the requests of the
/// clients, including retries and refused ones. For other stores they are counted at this seam: an
/// upload is its chunks and one PUT.
#[derive(Debug, Default)]
pub struct Requests {
    gets: AtomicU64,
    puts: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    upload_chunks: AtomicU64,
    failed: AtomicU64,
    transient: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    troubles: Troubles,
    /// Bytes of created WAL objects.
    wal_bytes: AtomicU64,
    /// Durations of requests, including failed ones, if there is a clock.
    pub latencies: RequestLatencies,
    clock: Option<Arc<dyn Clock>>,
    /// Notifies the collector that the store is full.
    full: Notify,
    /// The requests of each client, and their counts at the moment of wrapping.
    sent: Mutex<Vec<(Arc<SentRequests>, SentTotals)>>,
    /// The use of the store by the handle whose requests these are; `None` once the handle has
    /// ended.
    in_use: Mutex<Option<StoreUse>>,
}

/// Durations of requests, including all attempts below this seam. Requests that are answered
/// immediately, by memory or a local folder, are not included.
#[derive(Debug, Default)]
pub struct RequestLatencies {
    /// Latency of reads.
    pub get: Latency,
    /// Latency of creates.
    pub put: Latency,
    /// Latency of listings.
    pub list: Latency,
    /// Latency of deletes.
    pub delete: Latency,
}

/// [`Requests`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// Reads.
    pub gets: u64,
    /// Conditional creates, and finished uploads.
    pub puts: u64,
    /// Listings.
    pub lists: u64,
    /// Delete requests. One request may delete many names.
    pub deletes: u64,
    /// Chunks of uploads.
    pub upload_chunks: u64,
    /// Requests of all kinds that failed.
    pub failed: u64,
    /// Failed requests that a retry may cure.
    pub transient: u64,
    /// Those that were sent a second time because their answer was late. Both are counted above.
    pub hedged: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes of creates and uploads, including failed ones.
    pub bytes_written: u64,
}

impl Requests {
    /// The counts now.
    #[must_use]
    pub fn totals(&self) -> RequestTotals {
        let counted = self.counted();
        let clients = self.sent.lock();
        if clients.is_empty() {
            return counted;
        }
        let sum = |sum: SentTotals, (sent, before): &(Arc<SentRequests>, SentTotals)| {
            sum.plus_since(&sent.totals(), before)
        };
        let sent = clients.iter().fold(SentTotals::default(), sum);
        RequestTotals {
            gets: sent.of(SentKind::Get),
            puts: sent.of(SentKind::Put),
            lists: sent.of(SentKind::List),
            deletes: sent.of(SentKind::Delete),
            upload_chunks: sent.of(SentKind::Chunk),
            failed: sent.failed,
            transient: sent.transient,
            hedged: sent.hedged,
            ..counted
        }
    }

    /// Counts the requests of the clients of `store`.
    fn add(&self, store: &dyn Store) {
        let mut clients = self.sent.lock();
        for sent in store.observed().sent.into_iter().chain(store.log().sent()) {
            if !clients.iter().any(|(known, _)| Arc::ptr_eq(known, &sent)) {
                let before = sent.totals();
                clients.push((sent, before));
            }
        }
    }

    /// The counts of this seam.
    fn counted(&self) -> RequestTotals {
        RequestTotals {
            gets: self.gets.load(Relaxed),
            puts: self.puts.load(Relaxed),
            lists: self.lists.load(Relaxed),
            deletes: self.deletes.load(Relaxed),
            upload_chunks: self.upload_chunks.load(Relaxed),
            failed: self.failed.load(Relaxed),
            transient: self.transient.load(Relaxed),
            hedged: 0,
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
        }
    }

    /// Ends the use of the store by the handle whose requests these are.
    pub fn end_use(&self) {
        let ends = self.in_use.lock().take();
        // This closes files, so it is done outside of the lock.
        drop(ends);
    }

    /// The last refusals of the store that no success has followed.
    pub fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    /// Bytes of created WAL objects.
    pub fn wal_bytes(&self) -> u64 {
        self.wal_bytes.load(Relaxed)
    }

    /// The output of `work`, or Timeout after `limit` plus the time for the bytes that it moves
    /// ([`limit_of`]). A store that does not answer thus ends a call by its deadline, while a long
    /// log still arrives over a slow link. The cause is the store's last refusal meanwhile.
    ///
    /// # Errors
    /// Errors of `work`; Timeout.
    pub async fn within<T>(
        &self,
        env: &Env,
        limit: Duration,
        operation: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let read = || self.bytes_read.load(Relaxed).max(env.store.observed().moved);
        let moved = || read() + self.bytes_written.load(Relaxed);
        let (began, before) = (env.clock.monotonic(), moved());
        let refused = self.troubles.moment();
        let mut work = pin!(work);
        let mut left = limit;
        let done = loop {
            match select(work.as_mut(), env.clock.sleep(left)).await {
                Either::Left((done, _)) => break done,
                Either::Right(_) => {
                    let ends = began + limit_of(limit, moved().saturating_sub(before));
                    left = ends.saturating_sub(env.clock.monotonic());
                    if left.is_zero() {
                        break Err(env.timed_out(limit, operation));
                    }
                }
            }
        };
        done.map_err(|error| explained(error, self.troubles.since(refused)))
    }

    /// Completes when the store has had no room for an object.
    pub async fn full(&self) {
        self.full.notified().await;
    }

    fn read(&self, name: ObjectName, found: &Result<Option<Bytes>>) {
        self.gets.fetch_add(1, Relaxed);
        if let Ok(Some(bytes)) = found {
            self.bytes_read.fetch_add(bytes.len() as u64, Relaxed);
        }
        self.note((Verb::Read, Area::of(name)), found);
    }

    fn read_into(&self, name: ObjectName, found: &Result<bool>, bytes: usize) {
        self.gets.fetch_add(1, Relaxed);
        if let Ok(true) = found {
            self.bytes_read.fetch_add(bytes as u64, Relaxed);
        }
        self.note((Verb::Read, Area::of(name)), found);
    }

    fn note<T>(&self, (verb, area): RequestKind, answer: &Result<T>) {
        match answer {
            Ok(_) => self.troubles.clear(verb, area),
            Err(error) => self.failed((verb, area), error),
        }
    }

    fn failed(&self, (verb, area): RequestKind, error: &Error) {
        self.failed.fetch_add(1, Relaxed);
        if error.kind().is_transient() {
            self.transient.fetch_add(1, Relaxed);
        }
        if is_full(error) {
            self.full.notify_one();
        }
        self.troubles.note(verb, area, error);
    }

    /// Runs `request` and adds its duration to `of`.
    async fn timed<T>(&self, of: &Latency, request: impl Future<Output = T>) -> T {
        let Some(clock) = &self.clock else { return request.await };
        let began = clock.monotonic();
        let answer = request.await;
        of.note(clock.monotonic().saturating_sub(began));
        answer
    }

    /// Runs `request` and notes its result.
    fn noting<'a, T: Send + 'a>(
        self: &Arc<Self>,
        asked: RequestKind,
        request: BoxFuture<'a, Result<T>>,
    ) -> BoxFuture<'a, Result<T>> {
        let requests = Arc::clone(self);
        request.inspect(move |answer| requests.note(asked, answer)).boxed()
    }

    /// As [`Requests::noting`], for one step of a request. Its success proves nothing about the
    /// request.
    fn noting_step<'a, T: Send + 'a>(
        self: &Arc<Self>,
        asked: RequestKind,
        request: BoxFuture<'a, Result<T>>,
    ) -> BoxFuture<'a, Result<T>> {
        let requests = Arc::clone(self);
        let note = move |answer: &Result<T>| {
            if let Err(error) = answer {
                requests.failed(asked, error);
            }
        };
        request.inspect(note).boxed()
    }
}

/// Kind of a request and of its objects.
type RequestKind = (Verb, Area);

/// Puts a counter between an environment and its store.
#[must_use]
pub fn count(env: Env) -> (Env, Arc<Requests>) {
    let clock = Some(Arc::clone(&env.clock));
    let requests = Requests { clock, ..Requests::default() };
    let (store, requests) = CountingStore::wrap_into(Arc::clone(&env.store), requests);
    (Env { store, ..env }, requests)
}

/// Runs one call on the store of `env`, with the time limit of [`Requests::within`].
///
/// # Errors
/// Errors of `work`; Timeout.
pub async fn within<T, W: Future<Output = Result<T>>>(
    env: &Env,
    limit: Duration,
    operation: &'static str,
    work: impl FnOnce(Env) -> W,
) -> Result<T> {
    let (counted, requests) = count(env.clone());
    requests.within(env, limit, operation, work(counted)).await
}

/// A store that counts requests.
pub struct CountingStore {
    store: Arc<dyn Store>,
    requests: Arc<Requests>,
}

impl CountingStore {
    /// Wraps `store`. The second result has the counts.
    #[must_use]
    pub fn wrap(store: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<Requests>) {
        CountingStore::wrap_into(store, Requests::default())
    }

    fn wrap_into(store: Arc<dyn Store>, requests: Requests) -> (Arc<dyn Store>, Arc<Requests>) {
        let requests = Arc::new(requests);
        requests.add(&*store);
        *requests.in_use.lock() = Some(store.place().begin_use());
        let counting = CountingStore { store, requests: Arc::clone(&requests) };
        (Arc::new(counting), requests)
    }
}

impl fmt::Debug for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Store for CountingStore {
    passed_on!(store: names_a_delete, sweep, ensure_conditions, at_rest, facts);

    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let get = self.store.get(name, range);
        async move {
            let found = self.requests.timed(&self.requests.latencies.get, get).await;
            self.requests.read(name, &found);
            found
        }
        .boxed()
    }

    fn get_tagged(&self, name: ObjectName) -> BoxFuture<'_, Result<Option<TaggedBytes>>> {
        let get = self.store.get_tagged(name);
        async move {
            let found = self.requests.timed(&self.requests.latencies.get, get).await;
            let bytes = |found: &Option<(Bytes, _)>| found.as_ref().map(|(bytes, _)| bytes.clone());
            self.requests.read(name, &found.as_ref().map(bytes).map_err(Error::clone));
            found
        }
        .boxed()
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        self.requests.puts.fetch_add(1, Relaxed);
        self.requests.bytes_written.fetch_add(bytes.len() as u64, Relaxed);
        let wal_bytes = if matches!(name, ObjectName::Wal(_)) { bytes.len() as u64 } else { 0 };
        let put = self.store.put_if_absent(name, bytes);
        let put = self.requests.timed(&self.requests.latencies.put, put);
        let area = Area::of(name);
        put.inspect(move |answer| match answer {
            PutAnswer::Refused(error) | PutAnswer::Ambiguous(error) => {
                self.requests.failed((Verb::Create, area), error);
            }
            PutAnswer::Created => {
                self.requests.wal_bytes.fetch_add(wal_bytes, Relaxed);
                self.requests.troubles.clear(Verb::Create, area);
            }
            PutAnswer::Exists => {}
        })
        .boxed()
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let asked = (Verb::Upload, Area::of(name));
        let begin = self.requests.noting_step(asked, self.store.upload(name));
        async move {
            let upload = begin.await?;
            let requests = Arc::clone(&self.requests);
            let counting: Box<dyn Upload> = Box::new(CountingUpload { upload, requests, asked });
            Ok(counting)
        }
        .boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.requests.lists.fetch_add(1, Relaxed);
        let list = self.store.list(prefix, after);
        let list = self.requests.timed(&self.requests.latencies.list, list).boxed();
        self.requests.noting((Verb::List, Area::under(prefix)), list)
    }

    fn list_job(&self, job: JobId) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.requests.lists.fetch_add(1, Relaxed);
        let asked = (Verb::List, Area::under(prefix::INGEST));
        let list = self.store.list_job(job);
        let list = self.requests.timed(&self.requests.latencies.list, list).boxed();
        self.requests.noting(asked, list)
    }

    fn names(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<ObjectName>>> {
        self.requests.lists.fetch_add(1, Relaxed);
        let list = self.store.names(prefix, after);
        let list = self.requests.timed(&self.requests.latencies.list, list).boxed();
        self.requests.noting((Verb::List, Area::under(prefix)), list)
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.requests.deletes.fetch_add(1, Relaxed);
        let delete = self.store.delete(name);
        let delete = self.requests.timed(&self.requests.latencies.delete, delete).boxed();
        self.requests.noting((Verb::Delete, Area::of(name)), delete)
    }

    fn delete_many(&self, names: Vec<ObjectName>) -> BoxFuture<'_, Vec<Result<()>>> {
        let areas: Vec<Area> = names.iter().map(|name| Area::of(*name)).collect();
        let deletes = self.store.delete_many(names);
        let deletes = self.requests.timed(&self.requests.latencies.delete, deletes);
        let note = move |answers: &Vec<Result<()>>| {
            // Only now is it known whether the store deletes many names per request.
            let requests = answers.len().div_ceil(self.store.names_a_delete().max(1));
            self.requests.deletes.fetch_add(requests as u64, Relaxed);
            let all = areas.iter().zip(answers);
            all.for_each(|(area, one)| self.requests.note((Verb::Delete, *area), one));
        };
        deletes.inspect(note).boxed()
    }

    fn reads(&self) -> &dyn LocalReads {
        self
    }

    fn neighbours(&self) -> &dyn Neighbours {
        self
    }
}

impl LocalReads for CountingStore {
    fn get_now(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Option<Result<Option<Bytes>>> {
        let found = self.store.reads().get_now(name, range)?;
        self.requests.read(name, &found);
        Some(found)
    }

    fn get_now_into(
        &self,
        name: ObjectName,
        range: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Option<Result<bool>> {
        let found = self.store.reads().get_now_into(name, range, buffer)?;
        self.requests.read_into(name, &found, buffer.len());
        Some(found)
    }

    fn lend(&self, name: ObjectName, bytes: u64) -> Option<Bytes> {
        // This is not a request: the system decides whether and when it reads.
        self.store.reads().lend(name, bytes)
    }
}

impl Neighbours for CountingStore {
    fn follows(&self, location: &str) -> Result<()> {
        self.store.neighbours().follows(location)
    }

    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        let (store, requests) =
            (self.store.neighbours().neighbour(location)?, Arc::clone(&self.requests));
        requests.add(&*store);
        // The caller decides how long the neighbour is in use.
        Ok(Arc::new(CountingStore { store, requests }))
    }

    fn copy_from(&self, location: &str, from: ObjectName, to: ObjectName) -> CopyAnswer<'_> {
        let asked = (Verb::Upload, Area::of(to));
        let copy =
            self.requests.noting(asked, self.store.neighbours().copy_from(location, from, to));
        let count = |answer: &Result<bool>| {
            let was_asked = u64::from(!matches!(answer, Ok(false)));
            self.requests.puts.fetch_add(was_asked, Relaxed);
        };
        copy.inspect(count).boxed()
    }
}

struct CountingUpload {
    upload: Box<dyn Upload>,
    requests: Arc<Requests>,
    asked: RequestKind,
}

impl Upload for CountingUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        self.requests.upload_chunks.fetch_add(1, Relaxed);
        self.requests.bytes_written.fetch_add(chunk.len() as u64, Relaxed);
        self.requests.noting_step(self.asked, self.upload.write(chunk))
    }

    fn write_now(&mut self, chunk: &[u8]) -> Option<Result<()>> {
        let written = self.upload.write_now(chunk)?;
        self.requests.upload_chunks.fetch_add(1, Relaxed);
        self.requests.bytes_written.fetch_add(chunk.len() as u64, Relaxed);
        if let Err(error) = &written {
            self.requests.failed(self.asked, error);
        }
        Some(written)
    }

    fn hint_no_cache(&mut self) {
        self.upload.hint_no_cache();
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.requests.puts.fetch_add(1, Relaxed);
        self.requests.noting(self.asked, self.upload.finish())
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.upload.abort().inspect_err(log_failed_abort).boxed()
    }
}
