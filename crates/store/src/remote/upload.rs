//! Uploads: one PUT for small objects, parts in parallel for large ones.
//!
//! The end of an upload is ambiguous like every other request: if its answer is lost, a client that
//! repeats it learns that the completed upload does not exist. The stored object decides. Its name
//! is unique, so an object of this length that begins with these bytes (an envelope with its own
//! identity and attempt) is the uploaded one.

use super::RemoteShared;
use crate::Upload;
use crate::troubles::log_failed_abort;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload,
};
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{Error, ObjectName, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// Size of all parts but the last. Stores require at least 5 MiB, and some require equal parts. 8
/// MiB take about 160 ms of one 50 MiB/s stream, many times a request's first byte, and the 10,000
/// parts that S3 allows amount to 78 GiB.
const PART_BYTES: usize = 8 << 20;
/// An object up to this size is one PUT: beginning and completing parts costs two more requests.
const SINGLE_PUT_BYTES: usize = 2 * PART_BYTES;
/// Number of parts in flight. It bounds memory: five parts, including the one that is collected.
const PARTS_IN_FLIGHT: usize = 4;

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
    parts: Option<Box<dyn MultipartUpload>>,
    in_flight: FuturesUnordered<BoxFuture<'static, Result<()>>>,
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
            in_flight: FuturesUnordered::new(),
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
            if let Some(sent) = self.in_flight.next().await {
                sent?;
            }
        }
        let payload = self.cut(PART_BYTES);
        let parts = match &mut self.parts {
            Some(parts) => parts,
            none => {
                let (shared, path) = (Arc::clone(&self.shared), self.path.clone());
                let begin = async move {
                    let begun = shared.clients.repeating().put_multipart(&path).await;
                    begun.map_err(|error| shared.explainer.explain(&error))
                };
                none.insert(self.shared.start("begin upload", begin).await??)
            }
        };
        let (part, shared) = (parts.put_part(payload), Arc::clone(&self.shared));
        let part = async move { part.await.map_err(|error| shared.explainer.explain(&error)) };
        let sent = self.shared.start("upload part", part);
        self.in_flight.push(async move { sent.await? }.boxed());
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
        let shared = Arc::clone(&self.shared);
        if self.parts.is_none() {
            let (payload, path) = (self.cut(usize::MAX), self.path.clone());
            let (head, bytes) = (std::mem::take(&mut self.head), self.bytes);
            let put = async move {
                let Err(error) = shared.clients.repeating().put(&path, payload).await else {
                    return Ok(());
                };
                shared.settle(&path, &head, bytes, &error).await
            };
            return self.shared.start("put", put).await?;
        }
        while self.pending_bytes > 0 {
            self.send_part().await?;
        }
        while let Some(sent) = self.in_flight.next().await {
            sent?;
        }
        let lost = || Error::internal("an upload lost its parts");
        let mut parts = self.parts.take().ok_or_else(lost)?;
        let path = self.path.clone();
        let (head, bytes) = (std::mem::take(&mut self.head), self.bytes);
        let complete = async move {
            let Err(error) = parts.complete().await else { return Ok(()) };
            let settled = shared.settle(&path, &head, bytes, &error).await;
            if settled.is_err() {
                // Otherwise the sent parts would remain, unreferenced, until a lifecycle rule
                // aborts the upload.
                if let Err(error) = parts.abort().await {
                    log_failed_abort(&shared.explainer.explain(&error));
                }
            }
            settled
        };
        self.shared.start("complete upload", complete).await?
    }

    async fn give_up(mut self: Box<Self>) -> Result<()> {
        let Some(mut parts) = self.parts.take() else { return Ok(()) };
        // Parts in flight would arrive after the abort, and stay.
        while let Some(sent) = self.in_flight.next().await {
            drop(sent);
        }
        let shared = Arc::clone(&self.shared);
        let abort =
            async move { parts.abort().await.map_err(|error| shared.explainer.explain(&error)) };
        self.shared.start("abort upload", abort).await?
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

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.give_up().boxed()
    }
}
