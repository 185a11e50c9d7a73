//! Uploads: one PUT for small objects, parts in parallel for large ones.
//!
//! The end of an upload is ambiguous like every other request: if its answer is lost, a client that
//! repeats it learns that the completed upload does not exist. The stored object decides. Its name
//! is unique, so an object of this length that begins with these bytes (an envelope with its own
//! identity and attempt) is the uploaded one.
//!
//! The caller cannot repeat an upload, because its rows come from a stream that has passed. So each
//! request is repeated here while it fails in passing, for [`REPEATED_FOR`], and each time by the
//! client of the current credentials.

use super::RemoteShared;
use crate::Upload;
use crate::troubles::log_failed_abort;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, MultipartId, ObjectStore, ObjectStoreExt, PutPayload};
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{Error, ObjectName, Result};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Size of all parts but the last. Stores require at least 5 MiB, and some require equal parts. 8
/// MiB take about 160 ms of one 50 MiB/s stream, many times a request's first byte, and the 10,000
/// parts that S3 allows amount to 78 GiB.
const PART_BYTES: usize = 8 << 20;
/// An object up to this size is one PUT: beginning and completing parts costs two more requests.
const SINGLE_PUT_BYTES: usize = 2 * PART_BYTES;
/// Number of parts in flight. It bounds memory: five parts, including the one that is collected.
const PARTS_IN_FLIGHT: usize = 4;
/// No request of an upload is begun again so long after its first failure. A store that fails for
/// longer fails the upload, whose caller knows how long it may take.
const REPEATED_FOR: Duration = Duration::from_secs(15);
/// Pauses double from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct RemoteUpload {
    shared: Arc<RemoteShared>,
    path: Path,
    /// Bytes that are written and not sent.
    pending: VecDeque<Bytes>,
    pending_bytes: usize,
    /// The beginning of the object, up to the length of its envelope.
    head: Vec<u8>,
    /// Bytes handed over so far.
    bytes: u64,
    /// Set once there are too many bytes for one PUT.
    parts: Option<MultipartId>,
    /// Parts that were cut off. Those that failed are in neither of the next two.
    begun: usize,
    in_flight: FuturesUnordered<BoxFuture<'static, Result<(usize, PartId)>>>,
    /// The parts that the store has.
    sent: BTreeMap<usize, PartId>,
}

impl RemoteUpload {
    pub(super) fn new(shared: Arc<RemoteShared>, name: ObjectName) -> Result<RemoteUpload> {
        Ok(RemoteUpload {
            path: shared.path(name)?,
            shared,
            pending: VecDeque::new(),
            pending_bytes: 0,
            head: Vec::with_capacity(ENVELOPE_BYTES),
            bytes: 0,
            parts: None,
            begun: 0,
            in_flight: FuturesUnordered::new(),
            sent: BTreeMap::new(),
        })
    }

    /// Takes up to `bytes` pending bytes off the front, without copying.
    fn cut(&mut self, bytes: usize) -> PutPayload {
        let mut chunks = Vec::new();
        let mut wanted = bytes;
        while wanted > 0
            && let Some(mut chunk) = self.pending.pop_front()
        {
            if chunk.len() > wanted {
                self.pending.push_front(chunk.split_off(wanted));
            }
            wanted -= chunk.len();
            self.pending_bytes -= chunk.len();
            chunks.push(chunk);
        }
        chunks.into_iter().collect()
    }

    /// Sends one part, once fewer than [`PARTS_IN_FLIGHT`] are in flight.
    async fn send_part(&mut self) -> Result<()> {
        while self.in_flight.len() >= PARTS_IN_FLIGHT {
            self.wait_for_part().await?;
        }
        let id = match &self.parts {
            Some(id) => id.clone(),
            None => {
                let begin = |shared: Arc<RemoteShared>, path: Path| async move {
                    let begun = shared.clients.parts().create_multipart(&path).await;
                    begun.map_err(|error| shared.explainer.explain(&error))
                };
                let begun = repeated(&self.shared, &self.path, "begin upload", begin).await?;
                self.parts.insert(begun).clone()
            }
        };
        let (at, payload) = (self.begun, self.cut(PART_BYTES));
        self.begun += 1;
        let (shared, path) = (Arc::clone(&self.shared), self.path.clone());
        let sent = async move {
            let send = |shared: Arc<RemoteShared>, path: Path| {
                let (id, payload) = (id.clone(), payload.clone());
                async move {
                    let sent = shared.clients.parts().put_part(&path, &id, at, payload).await;
                    sent.map_err(|error| shared.explainer.explain(&error))
                }
            };
            Ok((at, repeated(&shared, &path, "upload part", send).await?))
        };
        self.in_flight.push(sent.boxed());
        Ok(())
    }

    async fn wait_for_part(&mut self) -> Result<()> {
        if let Some(sent) = self.in_flight.next().await {
            let (at, part) = sent?;
            self.sent.insert(at, part);
        }
        Ok(())
    }

    async fn take(&mut self, chunk: Bytes) -> Result<()> {
        let missing = ENVELOPE_BYTES - self.head.len();
        self.head.extend_from_slice(chunk.get(..missing).unwrap_or(&chunk));
        self.bytes += chunk.len() as u64;
        self.pending_bytes += chunk.len();
        self.pending.push_back(chunk);
        loop {
            let enough = if self.parts.is_some() { PART_BYTES } else { SINGLE_PUT_BYTES + 1 };
            if self.pending_bytes < enough {
                return Ok(());
            }
            self.send_part().await?;
        }
    }

    async fn complete(mut self: Box<Self>) -> Result<()> {
        let completed = self.send_all().await;
        if completed.is_ok() {
            self.parts = None;
        } else if let Err(error) = self.give_up().await {
            log_failed_abort(&error);
        }
        completed
    }

    async fn send_all(&mut self) -> Result<()> {
        let (head, bytes) = (std::mem::take(&mut self.head), self.bytes);
        if self.parts.is_none() {
            let payload = self.cut(usize::MAX);
            let put = |shared: Arc<RemoteShared>, path: Path| {
                let (payload, head) = (payload.clone(), head.clone());
                async move {
                    match shared.clients.repeating().put(&path, payload).await {
                        Ok(_) => Ok(()),
                        Err(error) => shared.settle(&path, &head, bytes, &error).await,
                    }
                }
            };
            return repeated(&self.shared, &self.path, "put", put).await;
        }
        while self.pending_bytes > 0 {
            self.send_part().await?;
        }
        while !self.in_flight.is_empty() {
            self.wait_for_part().await?;
        }
        let lost = || Error::internal("an upload lost its parts");
        // The store numbers the parts of the list anew, and would complete an object with a gap.
        let id = self.parts.as_ref().filter(|_| self.sent.len() == self.begun).ok_or_else(lost)?;
        let parts: Vec<PartId> = self.sent.values().cloned().collect();
        let complete = |shared: Arc<RemoteShared>, path: Path| {
            let (id, parts, head) = (id.clone(), parts.clone(), head.clone());
            async move {
                let completed = shared.clients.parts().complete_multipart(&path, &id, parts).await;
                let Err(error) = completed else { return Ok(Ok(())) };
                let settled = shared.settle(&path, &head, bytes, &error).await;
                // An upload that the store does not know will not come back.
                let is_final = matches!(error, object_store::Error::NotFound { .. });
                if is_final { Ok(settled) } else { settled.map(Ok) }
            }
        };
        repeated(&self.shared, &self.path, "complete upload", complete).await.flatten()
    }

    /// Aborts the upload. Otherwise the sent parts would remain, unreferenced, until a lifecycle
    /// rule aborts it.
    fn give_up(&mut self) -> impl Future<Output = Result<()>> + Send + 'static {
        let (shared, path) = (Arc::clone(&self.shared), self.path.clone());
        let (id, mut in_flight) = (self.parts.take(), std::mem::take(&mut self.in_flight));
        async move {
            let Some(id) = id else { return Ok(()) };
            // Parts in flight would arrive after the abort, and stay.
            while let Some(sent) = in_flight.next().await {
                drop(sent);
            }
            let client = Arc::clone(&shared);
            let abort = async move {
                let aborted = client.clients.parts().abort_multipart(&path, &id).await;
                aborted.map_err(|error| client.explainer.explain(&error))
            };
            shared.start("abort upload", abort).await?
        }
    }
}

impl Drop for RemoteUpload {
    /// An upload whose caller met an error, or was dropped, is aborted in the background.
    fn drop(&mut self) {
        if self.parts.is_none() {
            return;
        }
        let give_up = self.give_up();
        let abort = async move {
            if let Err(error) = give_up.await {
                log_failed_abort(&error);
            }
        };
        self.shared.effects.spawn.spawn("abort upload", abort.boxed());
    }
}

/// Repeats a request of an upload to `path`, see the module.
async fn repeated<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
    shared: &Arc<RemoteShared>,
    path: &Path,
    name: &'static str,
    request: impl Fn(Arc<RemoteShared>, Path) -> F,
) -> Result<T> {
    let clock = &shared.effects.clock;
    let (mut failed, mut pause) = (None, FIRST_PAUSE);
    loop {
        let answer = shared.start(name, request(Arc::clone(shared), path.clone())).await?;
        match answer {
            Err(error) if error.may_be_repeated() => {
                let first = *failed.get_or_insert_with(|| clock.monotonic());
                if clock.monotonic().saturating_sub(first) >= REPEATED_FOR {
                    return Err(error);
                }
            }
            answer => return answer,
        }
        clock.sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl RemoteShared {
    /// Determines the outcome of an upload whose end failed with `error`, by one read of the object
    /// under its name.
    ///
    /// # Errors
    /// `error`, if the object does not exist or cannot be read.
    async fn settle(
        &self,
        path: &Path,
        head: &[u8],
        bytes: u64,
        error: &object_store::Error,
    ) -> Result<()> {
        let explained = self.explainer.explain(error);
        if head.is_empty() {
            return Err(explained);
        }
        let range = Some(GetRange::Bounded(0..head.len() as u64));
        let options = GetOptions { range, ..GetOptions::default() };
        let Ok(found) = self.clients.repeating().get_opts(path, options).await else {
            return Err(explained);
        };
        if found.meta.size != bytes {
            return Err(explained);
        }
        match found.bytes().await {
            Ok(found) if found == head => Ok(()),
            _ => Err(explained),
        }
    }
}

impl Upload for RemoteUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        self.take(chunk).boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.complete().boxed()
    }

    fn abort(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.give_up().boxed()
    }
}
