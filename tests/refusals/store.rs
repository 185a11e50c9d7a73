//! A store that refuses as a test says, over a link with a given bandwidth; and counts its
//! requests.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone::Result;
use siltstone::store::memory::MemoryStore;
use siltstone::store::{Listed, Observed, PutAnswer, Store, Upload};
use siltstone_base::{Error, ObjectName};
use siltstone_tests::sim::SimHandle;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The time of a request without its bytes.
const WAY: Duration = Duration::from_millis(5);

/// An operation of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ask {
    Get,
    Put,
    Begin,
    Part,
    Finish,
    Abort,
    List,
}

/// The kind of refusal.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// Nothing was done.
    Plain(Error),
    /// Applied, and the answer lost.
    AnswerLost(Error),
    /// No answer comes.
    Silence,
    /// The request is applied, and its condition is ignored: a create replaces an existing object.
    ConditionIgnored,
}

/// The refusal for an operation and a name or prefix.
type Rule = Box<dyn Fn(Ask, &str) -> Option<Refusal> + Send>;

/// The settings of one store, and its counters.
#[derive(Default)]
struct Shape {
    rule: Option<Rule>,
    bytes_per_second: Option<u64>,
    asked: BTreeMap<Ask, u64>,
    /// Bytes of received answers.
    moved: u64,
}

pub(crate) struct Shaped {
    store: Arc<MemoryStore>,
    sim: SimHandle,
    shape: Mutex<Shape>,
}

impl fmt::Debug for Shaped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shaped://")
    }
}

impl Shaped {
    pub(crate) fn new(sim: &SimHandle) -> Arc<Shaped> {
        let (store, sim) = (MemoryStore::unnamed(), sim.clone());
        Arc::new(Shaped { store, sim, shape: Mutex::default() })
    }

    /// From now on refuses according to `rule`.
    pub(crate) fn refuse(&self, rule: impl Fn(Ask, &str) -> Option<Refusal> + Send + 'static) {
        self.shape.lock().rule = Some(Box::new(rule));
    }

    /// Refuses nothing any more.
    pub(crate) fn heal(&self) {
        self.shape.lock().rule = None;
    }

    pub(crate) fn set_bandwidth(&self, bytes_per_second: u64) {
        self.shape.lock().bytes_per_second = Some(bytes_per_second);
    }

    /// Bytes of received answers, over a link with a given bandwidth.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.shape.lock().moved
    }

    /// Number of these operations.
    pub(crate) fn asked(&self, ask: Ask) -> u64 {
        self.shape.lock().asked.get(&ask).copied().unwrap_or_default()
    }

    /// The objects under `prefix`, with their lengths.
    pub(crate) async fn lengths(&self, prefix: &'static str) -> Vec<(ObjectName, u64)> {
        let listed = self.store.list(prefix, None).await.expect("memory lists");
        listed.into_iter().map(|object| (object.name, object.bytes)).collect()
    }

    async fn ask(&self, ask: Ask, name: String) -> Option<Refusal> {
        let refusal = {
            let mut shape = self.shape.lock();
            *shape.asked.entry(ask).or_default() += 1;
            shape.rule.as_ref().and_then(|rule| rule(ask, &name))
        };
        self.sim.sleep(WAY).await;
        if let Some(Refusal::Silence) = refusal {
            std::future::pending::<()>().await;
        }
        refusal
    }

    /// Completes when this many bytes have passed the link, piece by piece.
    async fn travel(&self, bytes: usize) {
        const PIECE: usize = 64 << 10;
        let per_second = self.shape.lock().bytes_per_second;
        let Some(per_second) = per_second else { return };
        for begin in (0..bytes).step_by(PIECE) {
            let piece = PIECE.min(bytes - begin);
            self.sim.sleep(Duration::from_secs_f64(piece as f64 / per_second as f64)).await;
            self.shape.lock().moved += piece as u64;
        }
    }

    /// Ends with the refusal of a request that changes nothing.
    async fn may(&self, ask: Ask, name: String) -> Result<()> {
        match self.ask(ask, name).await {
            Some(Refusal::Plain(error) | Refusal::AnswerLost(error)) => Err(error),
            Some(Refusal::Silence | Refusal::ConditionIgnored) | None => Ok(()),
        }
    }
}

/// The store shared by a test's processes.
pub(crate) struct Client(pub(crate) Arc<Shaped>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Store for Client {
    fn observed(&self) -> Observed {
        Observed { moved: self.0.shape.lock().moved, ..Observed::default() }
    }

    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        async move {
            self.0.may(Ask::Get, name.to_string()).await?;
            let found = self.0.store.get(name, range).await?;
            self.0.travel(found.as_ref().map_or(0, Bytes::len)).await;
            Ok(found)
        }
        .boxed()
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        async move {
            let refusal = self.0.ask(Ask::Put, name.to_string()).await;
            self.0.travel(bytes.len()).await;
            match refusal {
                Some(Refusal::Plain(error)) => PutAnswer::Refused(error),
                Some(Refusal::AnswerLost(error)) => {
                    self.0.store.put_if_absent(name, bytes).await;
                    PutAnswer::Ambiguous(error)
                }
                Some(Refusal::ConditionIgnored) => {
                    self.0.store.delete(name).await.expect("memory deletes");
                    self.0.store.put_if_absent(name, bytes).await
                }
                Some(Refusal::Silence) | None => self.0.store.put_if_absent(name, bytes).await,
            }
        }
        .boxed()
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        async move {
            self.0.may(Ask::Begin, name.to_string()).await?;
            let (shaped, upload) = (Arc::clone(&self.0), self.0.store.upload(name).await?);
            let shaped: Box<dyn Upload> = Box::new(ShapedUpload { shaped, upload, name });
            Ok(shaped)
        }
        .boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        async move {
            self.0.may(Ask::List, prefix.to_owned()).await?;
            self.0.store.list(prefix, after).await
        }
        .boxed()
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.0.store.delete(name)
    }
}

struct ShapedUpload {
    shaped: Arc<Shaped>,
    upload: Box<dyn Upload>,
    name: ObjectName,
}

impl Upload for ShapedUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            self.shaped.may(Ask::Part, self.name.to_string()).await?;
            self.shaped.travel(chunk.len()).await;
            self.upload.write(chunk).await
        }
        .boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            self.shaped.may(Ask::Finish, self.name.to_string()).await?;
            self.upload.finish().await
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            self.shaped.may(Ask::Abort, self.name.to_string()).await?;
            self.upload.abort().await
        }
        .boxed()
    }
}
