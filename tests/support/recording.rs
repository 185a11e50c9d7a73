//! A store that records its requests, in order.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone::store::{Listed, LocalReads, PutAnswer, Store, Upload};
use siltstone_base::{ObjectName, Result};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A read of the range, or of all.
    Get(ObjectName, Option<Range<u64>>),
    /// A create with this many bytes.
    Put(ObjectName, usize),
    /// An upload was begun.
    Upload(ObjectName),
    /// An upload was completed.
    Finish(ObjectName),
    /// A listing.
    List(&'static str, Option<ObjectName>),
    /// A delete.
    Delete(ObjectName),
}

/// A request, or its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// A request left.
    Asked(Request),
    /// Its answer arrived.
    Answered(Request),
}

type Log = Arc<Mutex<Vec<Recorded>>>;

/// Passes everything on and records it.
pub struct RecordingStore {
    store: Arc<dyn Store>,
    log: Log,
}

impl RecordingStore {
    /// Records the requests that reach `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Arc<RecordingStore> {
        Arc::new(RecordingStore { store, log: Log::default() })
    }

    /// Everything since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.log.lock())
    }

    /// The requests since the last call, without the answers.
    #[must_use]
    pub fn take_requests(&self) -> Vec<Request> {
        let asked = |recorded| match recorded {
            Recorded::Asked(request) => Some(request),
            Recorded::Answered(_) => None,
        };
        self.take().into_iter().filter_map(asked).collect()
    }

    fn record<'a, T: 'a>(&'a self, request: Request, work: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        recorded(Arc::clone(&self.log), request, work)
    }
}

fn recorded<'a, T: 'a>(log: Log, request: Request, work: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
    async move {
        log.lock().push(Recorded::Asked(request.clone()));
        let answer = work.await;
        log.lock().push(Recorded::Answered(request));
        answer
    }
    .boxed()
}

impl fmt::Debug for RecordingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Store for RecordingStore {
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.record(Request::Get(name, range.clone()), self.store.get(name, range))
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        let request = Request::Put(name, bytes.len());
        self.record(request, self.store.put_if_absent(name, bytes))
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let begin = self.record(Request::Upload(name), self.store.upload(name));
        async move {
            let (upload, log) = (begin.await?, Arc::clone(&self.log));
            let recording: Box<dyn Upload> = Box::new(RecordingUpload { upload, name, log });
            Ok(recording)
        }
        .boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.record(Request::List(prefix, after), self.store.list(prefix, after))
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.record(Request::Delete(name), self.store.delete(name))
    }

    fn reads(&self) -> &dyn LocalReads {
        self
    }
}

impl LocalReads for RecordingStore {
    fn get_now(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Option<Result<Option<Bytes>>> {
        let found = self.store.reads().get_now(name, range.clone())?;
        let request = Request::Get(name, range);
        let mut log = self.log.lock();
        log.push(Recorded::Asked(request.clone()));
        log.push(Recorded::Answered(request));
        Some(found)
    }
}

struct RecordingUpload {
    upload: Box<dyn Upload>,
    name: ObjectName,
    log: Log,
}

impl Upload for RecordingUpload {
    siltstone::store::passed_on!(upload: write, abort);

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        recorded(self.log, Request::Finish(self.name), self.upload.finish())
    }
}
