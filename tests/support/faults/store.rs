//! The path of each request from a process to the bucket and back.
//!
//! ```text
//! process:  begin ──── there ────┐                     ┌──── back ──── end
//! network:                       └─ applied, or later ─┘
//! ```
//! If the client has a limit, it may give up at any point of this path.

use super::bucket::{Bucket, CrashPoint, Passage};
use super::places::Place;
use super::plan::Fault;
use super::refusal::Verb;
use super::upload::FaultUpload;
use crate::sim::ProcessId;
use bytes::Bytes;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use siltstone::store::profile::Profile;
use siltstone::store::{self, Listed, Neighbours, PutAnswer, Store, TaggedBytes, Upload};
use siltstone_base::{Error, ObjectName, Result};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The effect of the network on a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Fine,
    LostOnTheWay,
    AnswerLost,
    Late,
}

/// One process's view of a [`Bucket`].
#[derive(Clone)]
pub struct FaultStore {
    pub(super) bucket: Arc<Bucket>,
    process: ProcessId,
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match store::Place::location(self) {
            Some(location) => write!(f, "{location} of {:?}", self.process),
            None => write!(f, "sim://{:?}", self.process),
        }
    }
}

pub(super) fn lost(what: &str) -> Error {
    Error::unavailable(format!("the connection was lost ({what})"))
}

impl FaultStore {
    pub(super) fn new(bucket: Arc<Bucket>, process: ProcessId) -> Self {
        FaultStore { bucket, process }
    }

    /// A request with this many bytes is sent, unless the process dies first, or its task panics.
    pub(super) async fn begin(&self, what: &'static str, verb: Verb, bytes: u64) -> Passage {
        if !self.bucket.sim().is_alive(self.process) {
            // The rest of the poll in which the process was killed.
            futures::future::pending::<()>().await;
        }
        if self.bucket.sim().is_in_background() && self.bucket.strikes_at_the_edge(Fault::TaskPanic)
        {
            self.bucket.sim().panic_as_planned();
        }
        let passage = self.bucket.begin(self.process, verb, bytes);
        self.bucket.sim().note(self.process, what, self.bucket.operations(self.process));
        if passage.crash == Some(CrashPoint::Before) {
            self.die().await;
        }
        passage
    }

    /// The answer arrives, unless the process dies first.
    pub(super) async fn end(&self, passage: &Passage) {
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

    /// Applies `change` in the network, independent of its sender; `None` if no answer arrives.
    pub(super) async fn apply<T: Send + 'static>(
        &self,
        passage: &mut Passage,
        fate: Fate,
        change: impl FnOnce(&Bucket) -> T + Send + 'static,
    ) -> Option<T> {
        let sim = self.bucket.sim();
        if let Some(limit) = passage.cut {
            // A proxy may still pass on a request that has not arrived completely.
            if passage.there <= limit || self.bucket.coin() {
                self.bucket.sets_out();
                let (network, bucket, there) =
                    (sim.clone(), Arc::clone(&self.bucket), passage.there);
                sim.spawn(ProcessId::NETWORK, "request", async move {
                    network.sleep(there).await;
                    bucket.landed();
                    change(&bucket);
                });
            }
            self.gives_up(passage, Duration::ZERO).await;
            return None;
        }
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

    /// The client waits until its limit, of which `so_far` is over, and no longer.
    async fn gives_up(&self, passage: &mut Passage, so_far: Duration) -> Error {
        let limit = passage.cut.unwrap_or_default();
        passage.back = Duration::ZERO;
        self.bucket.sim().sleep(limit.saturating_sub(so_far)).await;
        lost("the request took longer than its limit")
    }

    pub(super) fn fate(&self, lost: Fault, answer_lost: Fault, late: Fault) -> Fate {
        match self.bucket.first_to_strike(&[lost, answer_lost, late]) {
            None => Fate::Fine,
            Some(fault) if fault == lost => Fate::LostOnTheWay,
            Some(fault) if fault == answer_lost => Fate::AnswerLost,
            Some(_) => Fate::Late,
        }
    }

    /// A request that changes nothing: it travels, and may fail on the way.
    pub(super) async fn ask(&self, passage: &mut Passage, fault: Fault) -> Result<()> {
        if passage.cut.is_some() {
            return Err(self.gives_up(passage, Duration::ZERO).await);
        }
        self.bucket.sim().sleep(passage.there).await;
        match &passage.error {
            Some(error) => Err(error.clone()),
            None if self.bucket.strikes(fault) => Err(lost("no answer")),
            None => Ok(()),
        }
    }

    /// The bucket of an ancestor, for a clone in this one.
    fn followed(&self, location: &str) -> Result<Arc<Bucket>> {
        let found = self.bucket.place().and_then(|place| place.neighbour(location));
        let lost = || Error::unsupported("not followed: no such bucket").with("ancestor", location);
        found.ok_or_else(lost)
    }

    async fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        Ok(self.read_tagged(name, range).await?.map(|(bytes, _)| bytes))
    }

    async fn read_tagged(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Result<Option<TaggedBytes>> {
        if let Some(range) = &range
            && range.start >= range.end
        {
            return Err(Error::invalid("an empty range was requested"));
        }
        let mut passage = self.begin("get", Verb::Get, 0).await;
        let asked = self.ask(&mut passage, Fault::GetError).await;
        let found = asked.and_then(|()| self.look(name, range));
        let tag = self.bucket.tag(name);
        let mut found = found.map(|found| found.map(|bytes| (bytes, tag)));
        if let Ok(Some((bytes, _))) = &found {
            self.bucket.answer(self.process, &mut passage, bytes.len() as u64);
            if passage.cut.is_some() {
                let there = passage.there;
                found = Err(self.gives_up(&mut passage, there).await);
            }
        }
        self.end(&passage).await;
        found
    }

    fn look(&self, name: ObjectName, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let Some(object) = self.bucket.read(name) else { return Ok(None) };
        let range = range.unwrap_or(0..object.len() as u64);
        if range.end > object.len() as u64 {
            return Err(Error::corruption("the object is shorter than the requested range")
                .with("object", name));
        }
        if self.bucket.strikes(Fault::GetShort) {
            return Err(lost("the body ended early"));
        }
        let bytes = object.slice(range.start as usize..range.end as usize);
        Ok(Some(self.bucket.perhaps_flipped(name, bytes)))
    }

    /// A listing in pages: each contains the objects at the time of its read, after the last name
    /// of the previous page.
    async fn in_pages(&self, prefix: &'static str, after: Option<ObjectName>) -> Vec<Listed> {
        let (mut all, mut after) = (Vec::new(), after);
        loop {
            let (names, pause) = self.bucket.page();
            let mut page = self.bucket.listing(prefix, after);
            let is_last = page.len() <= names;
            page.truncate(names);
            after = page.last().map(|listed| listed.name).or(after);
            all.extend(page);
            if is_last {
                return all;
            }
            self.bucket.book(Fault::ListInPages);
            self.bucket.sim().sleep(pause).await;
        }
    }

    async fn create(&self, name: ObjectName, bytes: Bytes) -> PutAnswer {
        let mut passage = self.begin("put", Verb::Put, bytes.len() as u64).await;
        let answer = self.create_on_the_way(&mut passage, name, bytes).await;
        if let (PutAnswer::Refused(error), ObjectName::Wal(_)) = (&answer, name) {
            self.bucket.refused_wal(self.process, error);
        }
        self.end(&passage).await;
        answer
    }

    async fn create_on_the_way(
        &self,
        passage: &mut Passage,
        name: ObjectName,
        bytes: Bytes,
    ) -> PutAnswer {
        let sim = self.bucket.sim();
        if let Some(error) = passage.error.clone() {
            if passage.cut.is_some() {
                return PutAnswer::Ambiguous(self.gives_up(passage, Duration::ZERO).await);
            }
            sim.sleep(passage.there).await;
            return match passage.is_certain || !error.kind().is_transient() {
                true => PutAnswer::Refused(error),
                false => PutAnswer::Ambiguous(error),
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
        let mut passage = self.begin("delete", Verb::Delete, 0).await;
        let removed = match &passage.error {
            Some(error) => {
                self.bucket.sim().sleep(passage.there).await;
                Err(error.clone())
            }
            None => {
                let fate = self.fate(Fault::DeleteLost, Fault::DeleteAnswerLost, Fault::DeleteLate);
                let answer =
                    self.apply(&mut passage, fate, move |bucket| bucket.remove(name)).await;
                answer.map(|_| ()).ok_or_else(|| lost("no answer to a delete"))
            }
        };
        self.end(&passage).await;
        removed
    }
}

impl Store for FaultStore {
    fn profile(&self) -> Profile {
        Profile { may_be_emptied: self.bucket.may_be_emptied(), ..Profile::REMOTE }
    }

    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.read(name, range).boxed()
    }

    fn get_tagged(&self, name: ObjectName) -> BoxFuture<'_, Result<Option<TaggedBytes>>> {
        self.read_tagged(name, None).boxed()
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        self.create(name, bytes).boxed()
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        async move {
            let mut passage = self.begin("upload", Verb::Put, 0).await;
            let asked = self.ask(&mut passage, Fault::UploadPartError).await;
            self.end(&passage).await;
            asked?;
            let upload: Box<dyn Upload> = Box::new(FaultUpload::new(self.clone(), name));
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
            let mut passage = self.begin("list", Verb::List, 0).await;
            let asked = self.ask(&mut passage, Fault::ListError).await;
            let listed = match asked {
                Ok(()) if self.bucket.lists_in_pages() => Ok(self.in_pages(prefix, after).await),
                Ok(()) => Ok(self.bucket.listing(prefix, after)),
                Err(error) => Err(error),
            };
            self.end(&passage).await;
            listed
        }
        .boxed()
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.remove(name).boxed()
    }

    fn place(&self) -> &dyn store::Place {
        self
    }

    fn neighbours(&self) -> &dyn Neighbours {
        self
    }
}

impl store::Place for FaultStore {
    fn location(&self) -> Option<String> {
        self.bucket.place().map(Place::location)
    }
}

impl Neighbours for FaultStore {
    fn follows(&self, location: &str) -> Result<()> {
        self.followed(location).map(drop)
    }

    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        Ok(self.followed(location)?.store(self.process))
    }
}
