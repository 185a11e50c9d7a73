//! The interface between a compactor and its process: that of the writer, or its own.

use super::Compactor;
use super::event::CompactorEvent;
use crate::cache::fetch::ReadContext;
use crate::cache::metadata::{MetadataBudget, TableHandle};
use crate::manifests::client::ManifestClient;
use crate::options::Options;
use futures::future::BoxFuture;
use siltstone_base::{Epoch, Result, Seq, SstDescriptor, TablePart};
use siltstone_manifest::Manifest;
use siltstone_store::env::Env;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The tables whose metadata the process has in memory.
#[derive(Default)]
pub(crate) struct KnownTables(HashMap<TablePart, Arc<TableHandle>>);

impl KnownTables {
    /// Collects the given handles.
    pub(crate) fn of<'h>(handles: impl Iterator<Item = &'h Arc<TableHandle>>) -> KnownTables {
        let named = handles.map(|handle| (handle.descriptor.part(), Arc::clone(handle)));
        KnownTables(named.collect())
    }

    /// The handle that has exactly this `descriptor`. If there is none, a new one whose metadata
    /// counts for `budget`.
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

/// The parts that every host has.
pub(crate) struct HostParts<'h> {
    /// All effects.
    pub(crate) env: &'h Env,
    /// Options of compaction.
    pub(crate) options: &'h Options,
    /// The client for commits.
    pub(crate) manifests: &'h ManifestClient,
    /// The context for reads of tables.
    pub(crate) context: &'h ReadContext,
    /// The compactor.
    pub(crate) compactor: &'h Compactor,
    /// Epoch of the writer in the same process; `None` if the compactor has its own process.
    pub(crate) writer: Option<Epoch>,
    /// Number of workers that are expected in other processes.
    pub(crate) workers: usize,
}

/// The process of a compactor: its parts, and what differs between the two kinds of process.
pub(crate) trait Host: Send + Sync {
    /// Its parts.
    fn parts(&self) -> HostParts<'_>;
    /// Checks that the compactor may go on. A compaction stops between two slices if not.
    ///
    /// # Errors
    /// Closed; Fenced and other errors that ended the handle.
    fn check_open(&self) -> Result<()>;
    /// The versions that retention keeps in a job that starts now on `state`: the floor, and the
    /// sequence numbers at which readers read. `None` stands for every number from the floor on.
    fn retention(&self, state: &Manifest) -> (Seq, Option<Vec<Seq>>);
    /// Tables whose metadata needs no request.
    fn known_tables(&self) -> KnownTables;
    /// Name of the codec of new tables in the database of `state`.
    fn codec(&self, state: &Manifest) -> String;
    /// Whether missing compaction delays writes of this process, even slightly.
    fn needs_compaction(&self) -> bool;
    /// Wakes the task that decides what to compact next.
    fn nudge(&self);
    /// Waits until something may be due, at most until `until` on the monotonic clock. May end
    /// early.
    fn idle(&self, until: Option<Duration>) -> BoxFuture<'_, ()>;
    /// Called after the commit of a compaction for which a caller waits: reads of this process
    /// begin to use its tables.
    fn adopt_outputs(&self) -> BoxFuture<'_, Result<()>>;
    /// Receives an event.
    fn emit(&self, event: CompactorEvent);
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
