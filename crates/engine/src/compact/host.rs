//! What a compactor needs of the process that it lives in: the writer's, or one of its own.

use super::Compactor;
use super::event::CompactorEvent;
use crate::cache::fetch::ReadContext;
use crate::cache::metadata::{MetadataBudget, TableHandle};
use crate::io::env::Env;
use crate::manifests::client::ManifestClient;
use crate::options::Options;
use futures::future::BoxFuture;
use siltstone_base::{Epoch, Result, Seq, SstDescriptor, TablePart};
use siltstone_manifest::Manifest;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The tables of which a process has metadata in memory.
#[derive(Default)]
pub(crate) struct KnownTables(HashMap<TablePart, Arc<TableHandle>>);

impl KnownTables {
    /// These.
    pub(crate) fn of<'h>(handles: impl Iterator<Item = &'h Arc<TableHandle>>) -> KnownTables {
        let named = handles.map(|handle| (handle.descriptor.part(), Arc::clone(handle)));
        KnownTables(named.collect())
    }

    /// The handle of what `descriptor` names, all that it says included; a new one, whose metadata
    /// counts for `budget`, where there is none.
    pub(crate) fn handle(
        &self,
        descriptor: &SstDescriptor,
        budget: &Arc<MetadataBudget>,
    ) -> Arc<TableHandle> {
        let same = self.0.get(&descriptor.part());
        match same.filter(|handle| handle.descriptor == *descriptor) {
            Some(handle) => Arc::clone(handle),
            None => TableHandle::new(descriptor.clone(), budget),
        }
    }
}

/// What every host has.
pub(crate) struct HostParts<'h> {
    /// Every effect.
    pub(crate) env: &'h Env,
    /// How to compact.
    pub(crate) options: &'h Options,
    /// Commits.
    pub(crate) manifests: &'h ManifestClient,
    /// Reads of tables.
    pub(crate) context: &'h ReadContext,
    /// The compactor itself.
    pub(crate) compactor: &'h Compactor,
    /// The epoch of the writer in whose process it lives; `None` for a process of its own.
    pub(crate) writer: Option<Epoch>,
    /// How many workers are expected in other processes.
    pub(crate) workers: usize,
}

/// The process of a compactor: what it has, and what differs from one to the other.
pub(crate) trait Host: Send + Sync {
    /// What it has.
    fn parts(&self) -> HostParts<'_>;
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

impl<'h> dyn Host + 'h {
    pub(crate) fn env(&self) -> &Env {
        self.parts().env
    }

    pub(crate) fn options(&self) -> &Options {
        self.parts().options
    }

    pub(crate) fn manifests(&self) -> &ManifestClient {
        self.parts().manifests
    }

    pub(crate) fn context(&self) -> &ReadContext {
        self.parts().context
    }

    pub(crate) fn compactor(&self) -> &Compactor {
        self.parts().compactor
    }

    pub(crate) fn writer(&self) -> Option<Epoch> {
        self.parts().writer
    }
}
