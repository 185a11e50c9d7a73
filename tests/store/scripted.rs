//! A store with scripted answers.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use siltstone::store::{Listed, PutAnswer, Store, Upload};
use siltstone_base::{Error, ObjectName, Result};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Answers to creates and reads, in order; a missing answer fails the test.
#[derive(Debug, Default)]
pub(crate) struct ScriptedStore {
    pub(crate) puts: Mutex<VecDeque<PutAnswer>>,
    pub(crate) gets: Mutex<VecDeque<Result<Option<Bytes>>>>,
    pub(crate) asked: Mutex<Vec<Option<Range<u64>>>>,
}

impl ScriptedStore {
    pub(crate) fn new(put: PutAnswer, gets: Vec<Result<Option<Bytes>>>) -> Arc<ScriptedStore> {
        let store = ScriptedStore::default();
        store.puts.lock().push_back(put);
        store.gets.lock().extend(gets);
        Arc::new(store)
    }
}

fn unscripted<T: Send + 'static>() -> BoxFuture<'static, Result<T>> {
    ready(Err(Error::internal("not in the script"))).boxed()
}

impl Store for ScriptedStore {
    fn get(
        &self,
        _: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.asked.lock().push(range);
        ready(self.gets.lock().pop_front().unwrap()).boxed()
    }

    fn put_if_absent(&self, _: ObjectName, _: Bytes) -> BoxFuture<'_, PutAnswer> {
        ready(self.puts.lock().pop_front().unwrap()).boxed()
    }

    fn upload(&self, _: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        unscripted()
    }

    fn list(&self, _: &'static str, _: Option<ObjectName>) -> BoxFuture<'_, Result<Vec<Listed>>> {
        unscripted()
    }

    fn delete(&self, _: ObjectName) -> BoxFuture<'_, Result<()>> {
        unscripted()
    }
}
