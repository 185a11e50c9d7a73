//! A process that stops at any request, before or after it takes effect, over all of its stores,
//! including those of other places.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use siltstone::store::{Listed, Neighbours, Place, PutAnswer, Store, Upload};
use siltstone::{Env, Error, ErrorKind};
use siltstone_base::{ObjectName, Result};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of remaining requests of a process, over all its stores.
pub struct Life {
    left: AtomicU64,
    /// Whether the last one takes effect without an answer.
    lands: bool,
}

enum Turn {
    Answered,
    Lands,
    Over,
}

impl Life {
    /// A life of this many requests. `lands`: whether the last one takes effect without an answer.
    #[must_use]
    pub fn new(requests: u64, lands: bool) -> Arc<Life> {
        Arc::new(Life { left: AtomicU64::new(requests), lands })
    }

    /// The environment of this process, over `env`.
    #[must_use]
    pub fn env(self: &Arc<Life>, env: &Env) -> Env {
        let store = Arc::new(Mortal { store: Arc::clone(&env.store), life: Arc::clone(self) });
        Env { store, ..env.clone() }
    }

    fn turn(&self) -> Turn {
        let before = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(1)));
        match before {
            Ok(1) if self.lands => Turn::Lands,
            Ok(0 | 1) | Err(_) => Turn::Over,
            Ok(_) => Turn::Answered,
        }
    }
}

fn over() -> Error {
    Error::new(ErrorKind::Denied, "the process is gone")
}

/// A store of a process that stops.
struct Mortal {
    store: Arc<dyn Store>,
    life: Arc<Life>,
}

impl fmt::Debug for Mortal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Mortal {
    fn answer<'a, T: Send + 'a>(
        &self,
        request: BoxFuture<'a, Result<T>>,
    ) -> BoxFuture<'a, Result<T>> {
        match self.life.turn() {
            Turn::Answered => request,
            Turn::Lands => async move { request.await.and(Err(over())) }.boxed(),
            Turn::Over => ready(Err(over())).boxed(),
        }
    }
}

impl Store for Mortal {
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.answer(self.store.get(name, range))
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        match self.life.turn() {
            Turn::Answered => self.store.put_if_absent(name, bytes),
            Turn::Lands => {
                let put = self.store.put_if_absent(name, bytes);
                async move {
                    drop(put.await);
                    PutAnswer::Ambiguous(over())
                }
                .boxed()
            }
            Turn::Over => ready(PutAnswer::Refused(over())).boxed(),
        }
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let upload = self.answer(self.store.upload(name));
        let life = Arc::clone(&self.life);
        async move {
            let mortal: Box<dyn Upload> = Box::new(MortalUpload { upload: upload.await?, life });
            Ok(mortal)
        }
        .boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.answer(self.store.list(prefix, after))
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.answer(self.store.delete(name))
    }

    fn place(&self) -> &dyn Place {
        self
    }

    fn neighbours(&self) -> &dyn Neighbours {
        self
    }
}

impl Place for Mortal {
    fn location(&self) -> Option<String> {
        self.store.place().location()
    }
}

impl Neighbours for Mortal {
    fn follows(&self, location: &str) -> Result<()> {
        self.store.neighbours().follows(location)
    }

    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        let store = self.store.neighbours().neighbour(location)?;
        Ok(Arc::new(Mortal { store, life: Arc::clone(&self.life) }))
    }
}

/// An upload of such a process.
struct MortalUpload {
    upload: Box<dyn Upload>,
    life: Arc<Life>,
}

impl Upload for MortalUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        self.upload.write(chunk)
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        match self.life.turn() {
            Turn::Answered => self.upload.finish(),
            Turn::Lands => async move { self.upload.finish().await.and(Err(over())) }.boxed(),
            Turn::Over => ready(Err(over())).boxed(),
        }
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.upload.abort()
    }
}
