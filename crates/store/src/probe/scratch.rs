//! The scratch objects of a probe: each request with its deadline, its latency, and a record of the
//! names that exist. Every name is a fresh ULID below `probe/`, so a probe never touches an object
//! of a database or of another probe. Dropping the record deletes the objects in the background.

use super::race::RaceSlot;
use crate::env::Env;
use crate::retry::{limit_of, with_retries};
use crate::{Listed, PutAnswer};
use bytes::{BufMut, Bytes, BytesMut};
use siltstone_base::name::prefix;
use siltstone_base::{
    AttemptId, DatabaseId, Envelope, Error, ErrorKind, JobId, ObjectId, ObjectKind, ObjectName,
    Result,
};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Tries of a create whose outcome stays open.
const CREATE_TRIES: u32 = 7;
/// First pause between two tries. Pauses double, to three seconds in all: some stores accept one
/// request a second for one name.
const CREATE_PAUSE: Duration = Duration::from_millis(50);
/// Bytes that an upload hands over at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The objects of one probe, and the requests so far.
pub(super) struct ScratchObjects {
    env: Env,
    limit: Duration,
    /// Names that may exist.
    names: BTreeSet<ObjectName>,
    samples: BTreeMap<&'static str, Vec<Duration>>,
    requests: u64,
}

impl ScratchObjects {
    /// `limit` bounds each request.
    pub(super) fn new(env: &Env, limit: Duration) -> ScratchObjects {
        ScratchObjects {
            env: env.clone(),
            limit,
            names: BTreeSet::new(),
            samples: BTreeMap::new(),
            requests: 0,
        }
    }

    /// A name that no object has. The probe deletes it at its end.
    pub(super) fn fresh_name(&mut self) -> ObjectName {
        let name = ObjectName::ProbeScratch(JobId(self.env.new_ulid()));
        self.names.insert(name);
        name
    }

    /// Bytes for an object, at least an envelope of them, which differ from those of every other.
    pub(super) fn body(&self, bytes: usize) -> Bytes {
        let attempt = self.env.random_u128();
        let object = ObjectId(self.env.random_u128());
        let (database, attempt_id) = (DatabaseId(0), AttemptId(attempt));
        let envelope = Envelope::new(ObjectKind::Probe, database, object, attempt_id);
        let mut body = BytesMut::with_capacity(bytes);
        body.put_slice(&envelope.encode());
        // Every eight bytes differ from their neighbours, so a shifted range is found.
        let mut word = attempt as u64;
        while body.len() < bytes {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let left = bytes - body.len();
            body.put_slice(word.to_le_bytes().get(..left.min(8)).unwrap_or_default());
        }
        body.freeze()
    }

    /// A conditional create of a name that exists. Repeated while the answer leaves the outcome
    /// open.
    pub(super) async fn create_again(&mut self, name: ObjectName, body: &Bytes) -> PutAnswer {
        let mut pause = CREATE_PAUSE;
        for _ in 1..CREATE_TRIES {
            let answer = self.create_once(name, body).await;
            if !matches!(answer, PutAnswer::Ambiguous(_)) {
                return answer;
            }
            self.env.clock.sleep(pause).await;
            pause *= 2;
        }
        self.create_once(name, body).await
    }

    async fn create_once(&mut self, name: ObjectName, body: &Bytes) -> PutAnswer {
        self.requests += 1;
        once(&self.env, self.limit, name, body.clone()).await
    }

    /// Two conditional creates of one name at the same time.
    pub(super) async fn race(&mut self, name: ObjectName, bodies: [Bytes; 2]) -> [PutAnswer; 2] {
        self.requests += 2;
        let [first, second] = bodies.map(|body| once(&self.env, self.limit, name, body));
        let (first, second) = futures::join!(first, second);
        [first, second]
    }

    /// Creates an object under a fresh name. An answer that leaves the outcome open is settled by a
    /// read, and the create is tried again.
    ///
    /// # Errors
    /// Those of the store; Unavailable if the store goes on to refuse the fresh name.
    pub(super) async fn create(&mut self, name: ObjectName, body: &Bytes) -> Result<()> {
        let mut trouble = Error::unavailable("the store refuses to create a fresh name");
        let mut pause = CREATE_PAUSE;
        for _ in 0..CREATE_TRIES {
            let started = self.env.clock.monotonic();
            match self.create_once(name, body).await {
                PutAnswer::Created => {
                    self.sample("create", started);
                    return Ok(());
                }
                PutAnswer::Refused(error) => return Err(error.with("object", name)),
                PutAnswer::Exists => {}
                PutAnswer::Ambiguous(error) => trouble = error,
            }
            if self.slot(name, std::slice::from_ref(body)).await? == RaceSlot::Of(0) {
                return Ok(());
            }
            self.env.clock.sleep(pause).await;
            pause *= 2;
        }
        Err(trouble.with("object", name))
    }

    /// A new object of `bytes` bytes.
    ///
    /// # Errors
    /// As [`ScratchObjects::create`].
    pub(super) async fn new_object(&mut self, bytes: usize) -> Result<(ObjectName, Bytes)> {
        let (name, body) = (self.fresh_name(), self.body(bytes));
        self.create(name, &body).await?;
        Ok((name, body))
    }

    /// The create whose bytes the object has.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn slot(&mut self, name: ObjectName, bodies: &[Bytes]) -> Result<RaceSlot> {
        let Some(found) = self.get(name, None).await? else { return Ok(RaceSlot::Empty) };
        let owner = bodies.iter().position(|body| *body == found);
        Ok(owner.map_or(RaceSlot::Foreign, RaceSlot::Of))
    }

    /// An object or a range of it, or None.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn get(
        &mut self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>> {
        let store = Arc::clone(&self.env.store);
        self.timed("get", || store.get(name, range.clone())).await
    }

    /// The objects of this probe in a listing, as the listing has them, behind `after`.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn list(&mut self, after: Option<ObjectName>) -> Result<Vec<Listed>> {
        let store = Arc::clone(&self.env.store);
        let mut listed = self.timed("list", || store.list(prefix::PROBE, after)).await?;
        listed.retain(|object| self.names.contains(&object.name));
        Ok(listed)
    }

    /// The line of one object in a listing.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn listed(&mut self, name: ObjectName) -> Result<Option<Listed>> {
        let listed = self.list(None).await?;
        Ok(listed.into_iter().find(|object| object.name == name))
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// Those of the store. The clean-up tries again.
    pub(super) async fn delete(&mut self, name: ObjectName) -> Result<()> {
        let store = Arc::clone(&self.env.store);
        self.timed("delete", || store.delete(name)).await
    }

    /// Uploads an object under a fresh name, as tables are.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn upload(&mut self, name: ObjectName, body: &Bytes) -> Result<()> {
        self.requests += 1;
        let limit = limit_of(self.limit, body.len() as u64);
        let store = Arc::clone(&self.env.store);
        let work = async {
            let mut upload = store.upload(name).await?;
            let mut rest = body.clone();
            while !rest.is_empty() {
                let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
                if let Err(error) = upload.write(chunk).await {
                    // The error of the write says more than that of the abort.
                    drop(upload.abort().await);
                    return Err(error);
                }
            }
            upload.finish().await
        };
        self.env.deadline(limit, "probe", work).await
    }

    /// Copies an object within the store; false if the store does not copy.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn copy(&mut self, from: ObjectName, to: ObjectName) -> Result<bool> {
        let store = Arc::clone(&self.env.store);
        let Some(location) = store.place().location() else { return Ok(false) };
        let started = self.env.clock.monotonic();
        let copied = self.env.deadline(
            self.limit,
            "probe",
            store.neighbours().copy_from(&location, from, to),
        );
        let copied = copied.await?;
        if copied {
            self.requests += 1;
            self.sample("copy", started);
        }
        Ok(copied)
    }

    /// Deletes every object that may exist. Returns the names of those that the store kept, the
    /// samples of latencies, and the number of requests.
    pub(super) async fn clean_up(
        mut self,
    ) -> (Vec<String>, BTreeMap<&'static str, Vec<Duration>>, u64) {
        let names: Vec<ObjectName> = self.names.iter().copied().collect();
        let store = Arc::clone(&self.env.store);
        if names.is_empty() {
            return (Vec::new(), std::mem::take(&mut self.samples), self.requests);
        }
        self.requests += names.len().div_ceil(store.names_a_delete().max(1)) as u64;
        let work = async { Ok(store.delete_many(names.clone()).await) };
        let answers = self.env.deadline(self.limit, "probe", work).await.unwrap_or_default();
        let mut answers = answers.into_iter();
        // A delete without an answer counts as failed.
        let kept = names.into_iter().filter(|_| !matches!(answers.next(), Some(Ok(()))));
        let kept = kept.map(|name| name.to_string()).collect();
        self.names.clear();
        (kept, std::mem::take(&mut self.samples), self.requests)
    }

    async fn timed<T, F: Future<Output = Result<T>>>(
        &mut self,
        operation: &'static str,
        request: impl FnMut() -> F,
    ) -> Result<T> {
        self.requests += 1;
        let started = self.env.clock.monotonic();
        let done = with_retries(&self.env, self.limit, "probe", request).await;
        if done.is_ok() {
            self.sample(operation, started);
        }
        done
    }

    fn sample(&mut self, operation: &'static str, started: Duration) {
        let took = self.env.clock.monotonic().saturating_sub(started);
        self.samples.entry(operation).or_default().push(took);
    }
}

/// A create without a repetition. A deadline that passes leaves its outcome open.
async fn once(env: &Env, limit: Duration, name: ObjectName, bytes: Bytes) -> PutAnswer {
    let limit = limit_of(limit, bytes.len() as u64);
    let create = async { Ok(env.store.put_if_absent(name, bytes).await) };
    env.deadline(limit, "probe", create).await.unwrap_or_else(PutAnswer::Ambiguous)
}

impl Drop for ScratchObjects {
    /// The caller gave up (Ctrl-C): the objects are deleted in the background.
    fn drop(&mut self) {
        if self.names.is_empty() {
            return;
        }
        let (store, names) =
            (Arc::clone(&self.env.store), std::mem::take(&mut self.names).into_iter().collect());
        let delete = async move { drop(store.delete_many(names).await) };
        self.env.spawn.spawn("probe clean-up", Box::pin(delete));
    }
}

/// Whether the error says that the object ends before the range does.
pub(super) fn is_short(error: &Error) -> bool {
    error.kind() == ErrorKind::Corruption
}
