//! A fixed view of a part, with the read interface of a database.

use crate::cache::ancestors::Ancestors;
use crate::cache::blocks::BlockCache;
use crate::cache::fetch::{Needs, ReadContext, brought};
use crate::cache::handle_counters::HandleCounters;
use crate::options::Options;
use crate::read::answer::Answer;
use crate::read::tree::Tree;
use crate::read::value::Value;
use crate::read::{self, Keys, Pin, Scan, ScanRange};
use siltstone_base::{Result, Seq};
use siltstone_store::env::Env;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The content of a part at one moment. It keeps that content alive, and any thread may read it.
#[derive(Clone)]
pub struct View {
    context: ReadContext,
    pin: Pin,
}

impl View {
    pub(super) fn new(context: &ReadContext, pin: Pin) -> View {
        View { context: context.clone(), pin }
    }

    /// The last sequence number that the view sees.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.pin.seq
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Invalid for a bad key; those of the awaited part.
    pub fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
        read::get(&self.context, self.pin.clone(), key)
    }

    /// The values of `keys`, in their order.
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn get_many(&self, keys: impl Into<Keys>) -> Result<Answer<Vec<Option<Value>>>> {
        read::get_many(&self.context, self.pin.clone(), Arc::new(keys.into()))
    }

    /// Iterates over a range.
    #[must_use]
    pub fn scan(&self, range: ScanRange) -> Scan {
        Scan::new(self.context.clone(), self.pin.clone(), range, None)
    }

    pub(super) fn tree(&self) -> &Arc<Tree> {
        &self.pin.tree
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("seq", &self.seq()).finish_non_exhaustive()
    }
}

/// The context for reads of a part. The store of `env` belongs to the part.
pub(super) fn context(env: Env, options: &Options, cache_bytes: usize) -> ReadContext {
    let (env, requests) = siltstone_store::counting::count(env);
    let asked = Arc::new(HandleCounters::since(env.clock.monotonic()));
    ReadContext::from(Needs {
        env,
        requests,
        asked,
        cache: Arc::new(BlockCache::new(cache_bytes, options.block_bytes)),
        ancestors: Ancestors::default(),
        operator: brought(None),
        latest: AtomicU64::default(),
        deadline: options.deadline,
        writer: None,
    })
}
