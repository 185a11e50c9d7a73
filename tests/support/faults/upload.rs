//! Uploads in parts, by the path of all requests.

use super::plan::Fault;
use super::refusal::Verb;
use super::store::{FaultStore, lost};
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone::store::Upload;
use siltstone_base::{ObjectName, Result};

/// An upload of one process. Its sent parts take space until it is finished or dropped.
pub(super) struct FaultUpload {
    store: FaultStore,
    name: ObjectName,
    bytes: BytesMut,
}

impl Drop for FaultUpload {
    fn drop(&mut self) {
        self.store.bucket.unstage(self.bytes.len() as u64);
    }
}

impl FaultUpload {
    pub(super) fn new(store: FaultStore, name: ObjectName) -> FaultUpload {
        FaultUpload { store, name, bytes: BytesMut::new() }
    }

    async fn send(&mut self, chunk: Bytes) -> Result<()> {
        let bytes = chunk.len() as u64;
        let mut passage = self.store.begin("part", Verb::Put, bytes).await;
        let asked = self.store.ask(&mut passage, Fault::UploadPartError).await;
        self.store.end(&passage).await;
        asked?;
        self.bytes.extend_from_slice(&chunk);
        self.store.bucket.stage(bytes);
        Ok(())
    }

    async fn complete(self: Box<Self>) -> Result<()> {
        let (store, name, bytes) = (&self.store, self.name, self.bytes.clone().freeze());
        let mut passage = store.begin("finish", Verb::Put, 0).await;
        let finished = match passage.error.clone() {
            Some(error) => {
                store.bucket.sim().sleep(passage.there).await;
                Err(error)
            }
            None => {
                let fate =
                    store.fate(Fault::UploadLost, Fault::UploadAnswerLost, Fault::UploadLate);
                let insert = move |bucket: &super::Bucket| bucket.insert(name, bytes);
                let answer = store.apply(&mut passage, fate, insert).await;
                answer.ok_or_else(|| lost("no answer to the end of an upload"))
            }
        };
        store.end(&passage).await;
        finished
    }
}

impl Upload for FaultUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        self.send(chunk).boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.complete().boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        futures::future::ready(Ok(())).boxed()
    }
}
