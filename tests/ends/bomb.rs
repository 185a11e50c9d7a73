//! A store that panics on command, and tasks that die of it alone, as in tokio.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone::Env;
use siltstone::env::Spawn;
use siltstone::store::passed_on;
use siltstone::store::{Listed, PutAnswer, Store, Upload};
use siltstone_base::{ObjectName, Result};
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A request, before it is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Get(ObjectName),
    Put(ObjectName),
    Upload(ObjectName),
    /// The upload of a table is completed.
    Finish,
    List,
    Delete,
}

/// Whether a request panics.
type Fuse = Box<dyn FnMut(Asked) -> bool + Send>;

/// The store's behaviour for a request.
pub(crate) struct Bomb {
    store: Arc<dyn Store>,
    fuse: Arc<Mutex<Option<Fuse>>>,
}

impl Bomb {
    pub(crate) fn over(store: Arc<dyn Store>) -> Arc<Bomb> {
        Arc::new(Bomb { store, fuse: Arc::default() })
    }

    /// From now on every request panics for which `fuse` returns true.
    pub(crate) fn arm(&self, fuse: impl FnMut(Asked) -> bool + Send + 'static) {
        *self.fuse.lock() = Some(Box::new(fuse));
    }

    /// Requests no longer panic.
    pub(crate) fn disarm(&self) {
        *self.fuse.lock() = None;
    }

    fn ask<'a, T: 'a>(&self, asked: Asked, work: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        let fuse = Arc::clone(&self.fuse);
        async move {
            // As in a request that takes time: the task was suspended before it dies.
            futures::pending!();
            light(&fuse, asked);
            work.await
        }
        .boxed_waking()
    }
}

fn light(fuse: &Mutex<Option<Fuse>>, asked: Asked) {
    let burns = fuse.lock().as_mut().is_some_and(|fuse| fuse(asked));
    assert!(!burns, "planted: {asked:?}");
}

/// A future that is polled again after each step.
trait Waking<'a, T>: Future<Output = T> + Send + Sized + 'a {
    fn boxed_waking(self) -> BoxFuture<'a, T> {
        let mut work = Box::pin(self);
        let mut first = true;
        Box::pin(std::future::poll_fn(move |context| {
            if std::mem::take(&mut first) {
                context.waker().wake_by_ref();
            }
            work.as_mut().poll(context)
        }))
    }
}

impl<'a, T, F: Future<Output = T> + Send + 'a> Waking<'a, T> for F {}

impl fmt::Debug for Bomb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Store for Bomb {
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.ask(Asked::Get(name), self.store.get(name, range))
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        self.ask(Asked::Put(name), self.store.put_if_absent(name, bytes))
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let begin = self.ask(Asked::Upload(name), self.store.upload(name));
        let fuse = Arc::clone(&self.fuse);
        async move {
            let upload: Box<dyn Upload> = Box::new(BombUpload { upload: begin.await?, fuse });
            Ok(upload)
        }
        .boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.ask(Asked::List, self.store.list(prefix, after))
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.ask(Asked::Delete, self.store.delete(name))
    }
}

struct BombUpload {
    upload: Box<dyn Upload>,
    fuse: Arc<Mutex<Option<Fuse>>>,
}

impl Upload for BombUpload {
    passed_on!(upload: write, abort);

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let BombUpload { upload, fuse } = *self;
        let finish = upload.finish();
        async move {
            light(&fuse, Asked::Finish);
            finish.await
        }
        .boxed()
    }
}

/// `env`, in which a task that panics ends alone and silently, as in a tokio runtime.
pub(crate) fn as_tokio(env: Env) -> Env {
    Env { spawn: Arc::new(AsTokio(env.spawn)), ..env }
}

struct AsTokio(Arc<dyn Spawn>);

impl Spawn for AsTokio {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.0.spawn(name, AssertUnwindSafe(task).catch_unwind().map(drop).boxed());
    }

    fn spawn_blocking(&self, name: &'static str, work: Box<dyn FnOnce() + Send>) {
        let work = move || drop(catch_unwind(AssertUnwindSafe(work)));
        self.0.spawn_blocking(name, Box::new(work));
    }
}
