//! The embedded compactor: the state that it uses in the writer's process, and its task.

use super::state::Writer;
use crate::compact::event::CompactorEvent;
use crate::compact::host::{Host, HostParts, KnownTables};
use crate::compact::job::either;
use crate::compact::schedule;
use futures::future::BoxFuture;
use siltstone_base::{Result, Seq};
use siltstone_manifest::Manifest;
use siltstone_store::supervise::{caught, closed};
use std::sync::Arc;
use std::time::Duration;

impl Host for Writer {
    fn parts(&self) -> HostParts<'_> {
        HostParts {
            env: &self.env,
            options: &self.options,
            manifests: &self.manifests,
            context: &self.context,
            compactor: &self.compactor,
            writer: Some(self.epoch),
            workers: 0,
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.is_open() {
            return Ok(());
        }
        Err(self.dead().unwrap_or_else(closed))
    }

    /// Only snapshots of this process can read the new tables below their newest entry. The entries
    /// of these tables are flushed, so a reader that begins later, here or in another process,
    /// reads at or above all of them. A reader elsewhere that began earlier reads the old tables.
    fn retention(&self, _: &Manifest) -> (Seq, Option<Vec<Seq>>) {
        (self.floor(), Some(self.held.seqs()))
    }

    fn known_tables(&self) -> KnownTables {
        let tree = self.tree();
        KnownTables::of(tree.levels.handles())
    }

    fn codec(&self, _: &Manifest) -> String {
        self.options.codec().as_str().to_owned()
    }

    fn needs_compaction(&self) -> bool {
        let unflushed = self.tail.lock().unflushed_bytes();
        self.pressure.needs_compaction(unflushed)
    }

    fn nudge(&self) {
        self.nudges.compact.notify_one();
    }

    /// Woken by a flush, by the end of a job, and by the end of the handle.
    fn idle(&self, until: Option<Duration>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let nudged = self.nudges.compact.notified();
            let Some(until) = until else { return nudged.await };
            let left = until.saturating_sub(self.env.clock.monotonic());
            either(nudged, self.env.clock.sleep(left)).await;
        })
    }

    /// Commits the new pins immediately, instead of with the next flush.
    fn adopt_outputs(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.commit_pins())
    }

    fn emit(&self, _: CompactorEvent) {}
}

/// The compactor task of the writer's process.
pub(crate) async fn run(writer: Arc<Writer>) {
    let host: Arc<dyn Host> = writer;
    // If it was fenced, the compactor keeps the reason, and a manual compaction reports it.
    while let Err(panicked) = caught("compactor", schedule::run(&host)).await {
        host.compactor().died(&panicked);
        schedule::rest(&host, schedule::LONGEST_PAUSE).await;
    }
}
