//! What a compactor needs of the process that it lives in: the writer's, or one of its own.

use super::Compactor;
use super::event::CompactorEvent;
use crate::cache::fetch::ReadContext;
use crate::cache::metadata::TableHandle;
use crate::io::env::Env;
use crate::manifests::client::ManifestClient;
use crate::options::Options;
use futures::future::BoxFuture;
use siltstone_base::{Epoch, Result, Seq, SstId};
use siltstone_manifest::Manifest;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The tables of which a process has metadata in memory, by name.
pub(crate) type KnownTables = HashMap<SstId, Arc<TableHandle>>;

/// What every host has.
pub(crate) struct HostParts<'h> {
    pub(crate) env: &'h Env,
    pub(crate) options: &'h Options,
    pub(crate) manifests: &'h ManifestClient,
    pub(crate) context: &'h ReadContext,
    pub(crate) compactor: &'h Compactor,
}

/// The process of a compactor.
pub(crate) trait Host: Send + Sync {
    /// What it has.
    fn parts(&self) -> HostParts<'_>;
    /// Every effect.
    fn env(&self) -> &Env {
        self.parts().env
    }
    /// How to compact.
    fn options(&self) -> &Options {
        self.parts().options
    }
    /// Commits.
    fn manifests(&self) -> &ManifestClient {
        self.parts().manifests
    }
    /// Reads of tables.
    fn context(&self) -> &ReadContext {
        self.parts().context
    }
    /// The compactor itself.
    fn compactor(&self) -> &Compactor {
        self.parts().compactor
    }
    /// The epoch of the writer in whose process it lives; `None` for a process of its own.
    fn writer(&self) -> Option<Epoch>;
    /// Whether it may go on: between two slices a compaction stops where it is.
    ///
    /// # Errors
    /// Closed; Fenced and others that ended the handle.
    fn check_open(&self) -> Result<()>;
    /// What retention keeps in a job that starts now on `state`: the floor, and the sequence
    /// numbers that somebody reads at, or `None` for every one from the floor on.
    fn retention(&self, state: &Manifest) -> (Seq, Option<Vec<Seq>>);
    /// Tables whose metadata needs no request.
    fn known_tables(&self) -> KnownTables;
    /// Name of the codec of new tables, in the database that `state` describes.
    fn codec(&self, state: &Manifest) -> String;
    /// How many workers are expected in other processes.
    fn workers(&self) -> usize;
    /// Whether writes of this process are held up, if only a little, for want of compaction.
    fn needs_compaction(&self) -> bool;
    /// Wakes whoever decides what is compacted next.
    fn nudge(&self);
    /// Waits until something may be due, for no longer than to `until` by the clock that never goes
    /// back. May end early.
    fn idle(&self, until: Option<Duration>) -> BoxFuture<'_, ()>;
    /// A compaction that somebody waits for has been committed: reads here take its tables up.
    fn take_up(&self) -> BoxFuture<'_, Result<()>>;
    /// Hears what there is to tell.
    fn tell(&self, event: CompactorEvent);
}
