//! What a compactor needs of the process that it lives in: the writer's, or one of its own.

use super::Compactor;
use super::event::CompactorEvent;
use super::job::either;
use crate::cache::TableHandle;
use crate::env::Env;
use crate::fetch::ReadContext;
use crate::manifest_client::ManifestClient;
use crate::options::Options;
use crate::write::commit::closed;
use crate::writer::Writer;
use futures::future::BoxFuture;
use siltstone_base::{Epoch, Result, Seq, SstId};
use siltstone_manifest::Manifest;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The tables of which a process has metadata in memory, by name.
pub(crate) type KnownTables = HashMap<SstId, Arc<TableHandle>>;

/// What every host has.
pub(crate) struct Parts<'h> {
    pub(super) env: &'h Env,
    pub(super) options: &'h Options,
    pub(super) manifests: &'h ManifestClient,
    pub(super) context: &'h ReadContext,
    pub(super) compactor: &'h Compactor,
}

/// The process of a compactor.
pub(crate) trait Host: Send + Sync {
    /// What it has.
    fn parts(&self) -> Parts<'_>;
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

impl Host for Writer {
    fn parts(&self) -> Parts<'_> {
        Parts {
            env: &self.env,
            options: &self.options,
            manifests: &self.manifests,
            context: &self.context,
            compactor: &self.compactor,
        }
    }

    fn writer(&self) -> Option<Epoch> {
        Some(self.epoch)
    }

    fn check_open(&self) -> Result<()> {
        if self.is_open() {
            return Ok(());
        }
        Err(self.dead().unwrap_or_else(closed))
    }

    /// The snapshots of this process are all that may read the new tables below their newest entry:
    /// they were flushed, so whoever begins to read later, here or in another process, reads at or
    /// above everything in them; and whoever began earlier elsewhere reads the old tables.
    fn retention(&self, _: &Manifest) -> (Seq, Option<Vec<Seq>>) {
        let held = match cfg!(mutation = "snapshots_ignored") {
            true => Vec::new(),
            false => self.held_seqs(),
        };
        (self.floor(), Some(held))
    }

    fn known_tables(&self) -> KnownTables {
        let tree = self.tree();
        let handles = tree.levels.handles();
        handles.map(|handle| (handle.descriptor.id, Arc::clone(handle))).collect()
    }

    fn codec(&self, _: &Manifest) -> String {
        self.options.compression.as_str().to_owned()
    }

    fn workers(&self) -> usize {
        0
    }

    fn needs_compaction(&self) -> bool {
        let unflushed = self.tail.lock().unflushed_bytes();
        self.pressure.needs_compaction(unflushed)
    }

    fn nudge(&self) {
        self.compact_nudge.notify_one();
    }

    /// A flush, the end of a job, and the end of the handle wake it.
    fn idle(&self, until: Option<Duration>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let nudged = self.compact_nudge.notified();
            let Some(until) = until else { return nudged.await };
            let left = until.saturating_sub(self.env.clock.monotonic());
            either(nudged, self.env.clock.sleep(left)).await;
        })
    }

    /// At once, rather than with the next flush.
    fn take_up(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.commit_pins())
    }

    fn tell(&self, _: CompactorEvent) {}
}
