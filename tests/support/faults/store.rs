//! The way of each request from a process to the bucket and back.
//!
//! ```text
//! process:  begin ──── there ────┐                     ┌──── back ──── end
//! network:                       └─ applied, or later ─┘
//! ```

use super::bucket::{Bucket, CrashPoint, Passage};
use super::plan::Fault;
use crate::sim::ProcessId;
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use siltstone::store::{Listed, PutAnswer, Store, Upload};
use siltstone_base::{Error, ObjectName, Result};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// What the way of a write does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    LostOnTheWay,
    AnswerLost,
    Late,
}

/// One process's view of a [`Bucket`].
#[derive(Clone)]
pub struct FaultStore {
    bucket: Arc<Bucket>,
    process: ProcessId,
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sim://{:?}", self.process)
    }
}

fn lost(what: &str) -> Error {
    Error::unavailable(format!("the connection was lost ({what})"))
}

impl FaultStore {
    pub(super) fn new(bucket: Arc<Bucket>, process: ProcessId) -> Self {
        FaultStore { bucket, process }
    }

    /// A request leaves, unless the process dies first.
    async fn begin(&self, what: &'static str) -> Passage {
        if !self.bucket.sim().is_alive(self.process) {
            // The rest of the poll in which the process was killed.
            futures::future::pending::<()>().await;
        }
        let passage = self.bucket.begin(self.process);
        self.bucket.sim().note(self.process, what, self.bucket.operations(self.process));
        if passage.crash == Some(CrashPoint::Before) {
            self.die().await;
        }
        passage
    }

    /// The answer arrives, unless the process dies first.
    async fn end(&self, passage: &Passage) {
        match passage.crash {
            Some(CrashPoint::AnswerLost) => self.die().await,
            Some(CrashPoint::After) => {
                self.bucket.sim().sleep(passage.back).await;
                self.bucket.sim().kill_after_this_step(self.process);
            }
            _ => self.bucket.sim().sleep(passage.back).await,
        }
    }

    async fn die(&self) {
        self.bucket.sim().kill(self.process);
        futures::future::pending::<()>().await;
    }

    /// Applies `change` in the network, where it does not depend on who sent it; `None` when no
    /// answer comes.
    async fn apply<T: Send + 'static>(
        &self,
        passage: &Passage,
        fate: Fate,
        change: impl FnOnce(&Bucket) -> T + Send + 'static,
    ) -> Option<T> {
        let sim = self.bucket.sim();
        if fate == Fate::LostOnTheWay {
            sim.sleep(passage.there).await;
            return None;
        }
        let late = (fate == Fate::Late).then(|| self.bucket.sends_late());
        let (answer, answered) = oneshot::channel();
        let (network, bucket, there) = (sim.clone(), Arc::clone(&self.bucket), passage.there);
        sim.spawn(ProcessId::NETWORK, "request", async move {
            network.sleep(there + late.unwrap_or_default()).await;
            if late.is_some() {
                bucket.landed();
            }
            drop(answer.send(change(&bucket)));
        });
        if fate == Fate::Late {
            sim.sleep(passage.there).await;
            return None;
        }
        let answer = answered.await.ok();
        if fate == Fate::AnswerLost { None } else { answer }
    }

    fn fate(&self, lost: Fault, answer_lost: Fault, late: Fault) -> Fate {
        match self.bucket.first_to_strike(&[lost, answer_lost, late]) {
            None => Fate::Fine,
            Some(fault) if fault == lost => Fate::LostOnTheWay,
            Some(fault) if fault == answer_lost => Fate::AnswerLost,
            Some(_) => Fate::Late,
        }
    }

    /// A request that changes nothing: it travels, and may fail on the way.
    async fn ask(&self, passage: &Passage, fault: Fault) -> Result<()> {
        self.bucket.sim().sleep(passage.there).await;
        match &passage.error {
            Some(error) => Err(error.clone()),
            None if self.bucket.strikes(fault) => Err(lost("no answer")),
            None => Ok(()),
        }
    }

    async fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        if let Some(range) = &range
            && range.start >= range.end
        {
            return Err(Error::invalid("an empty range was asked for"));
        }
        let passage = self.begin("get").await;
        let asked = self.ask(&passage, Fault::GetError).await;
        let found = asked.and_then(|()| self.look(name, range));
        self.end(&passage).await;
        found
    }

    fn look(&self, name: ObjectName, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let Some(object) = self.bucket.read(name) else { return Ok(None) };
        let range = range.unwrap_or(0..object.len() as u64);
        if range.end > object.len() as u64 {
            return Err(Error::corruption("the object is shorter than what is asked of it")
                .with("object", name));
        }
        if self.bucket.strikes(Fault::GetShort) {
            return Err(lost("the body ended early"));
        }
        let bytes = object.slice(range.start as usize..range.end as usize);
        Ok(Some(self.bucket.perhaps_flipped(name, bytes)))
    }

    async fn create(&self, name: ObjectName, bytes: Bytes) -> PutAnswer {
        let passage = self.begin("put").await;
        let answer = self.create_on_the_way(&passage, name, bytes).await;
        self.end(&passage).await;
        answer
    }

    async fn create_on_the_way(
        &self,
        passage: &Passage,
        name: ObjectName,
        bytes: Bytes,
    ) -> PutAnswer {
        let sim = self.bucket.sim();
        if let Some(error) = &passage.error {
            sim.sleep(passage.there).await;
            let refused = !error.kind().is_transient();
            return match refused {
                true => PutAnswer::Refused(error.clone()),
                false => PutAnswer::Ambiguous(error.clone()),
            };
        }
        if self.bucket.strikes(Fault::PutFalseExists) {
            sim.sleep(passage.there).await;
            return PutAnswer::Exists;
        }
        let resent = self.bucket.strikes(Fault::PutResent);
        let fate = self.fate(Fault::PutLostOnTheWay, Fault::PutAnswerLost, Fault::PutLandsLate);
        let answer = self.apply(passage, fate, move |bucket| bucket.create(name, bytes)).await;
        match answer {
            None => PutAnswer::Ambiguous(lost("no answer to a create")),
            Some(PutAnswer::Created) if resent => PutAnswer::Exists,
            Some(answer) => answer,
        }
    }

    async fn remove(&self, name: ObjectName) -> Result<()> {
        let passage = self.begin("delete").await;
        let removed = match &passage.error {
            Some(error) => {
                self.bucket.sim().sleep(passage.there).await;
                Err(error.clone())
            }
            None => {
                let fate = self.fate(Fault::DeleteLost, Fault::DeleteAnswerLost, Fault::DeleteLate);
                let answer = self.apply(&passage, fate, move |bucket| bucket.remove(name)).await;
                answer.map(|_| ()).ok_or_else(|| lost("no answer to a delete"))
            }
        };
        self.end(&passage).await;
        removed
    }
}

impl Store for FaultStore {
    fn may_be_emptied(&self) -> bool {
        true
    }

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
        async move {
            let passage = self.begin("upload").await;
            let asked = self.ask(&passage, Fault::UploadPartError).await;
            self.end(&passage).await;
            asked?;
            let upload: Box<dyn Upload> =
                Box::new(FaultUpload { store: self.clone(), name, bytes: BytesMut::new() });
            Ok(upload)
        }
        .boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        async move {
            let passage = self.begin("list").await;
            let asked = self.ask(&passage, Fault::ListError).await;
            let listed = asked.map(|()| self.bucket.listing(prefix, after));
            self.end(&passage).await;
            listed
        }
        .boxed()
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.remove(name).boxed()
    }
}

struct FaultUpload {
    store: FaultStore,
    name: ObjectName,
    bytes: BytesMut,
}

impl FaultUpload {
    async fn complete(self: Box<Self>) -> Result<()> {
        let (store, name, bytes) = (self.store.clone(), self.name, self.bytes.freeze());
        let passage = store.begin("finish").await;
        let finished = match &passage.error {
            Some(error) => {
                store.bucket.sim().sleep(passage.there).await;
                Err(error.clone())
            }
            None => {
                let fate =
                    store.fate(Fault::UploadLost, Fault::UploadAnswerLost, Fault::UploadLate);
                let answer =
                    store.apply(&passage, fate, move |bucket| bucket.insert(name, bytes)).await;
                answer.ok_or_else(|| lost("no answer to the end of an upload"))
            }
        };
        store.end(&passage).await;
        finished
    }
}

impl Upload for FaultUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let passage = self.store.begin("part").await;
            let asked = self.store.ask(&passage, Fault::UploadPartError).await;
            self.store.end(&passage).await;
            asked?;
            self.bytes.extend_from_slice(&chunk);
            Ok(())
        }
        .boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.complete().boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        futures::future::ready(Ok(())).boxed()
    }
}
