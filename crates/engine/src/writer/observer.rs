//! Passes every newer manifest of a writer to the parts that depend on it.

use super::durability::Durability;
use super::stalls::pressure::Pressure;
use crate::gc::Garbage;
use crate::manifests::client::Observer;
use siltstone_base::Error;
use siltstone_manifest::Manifest;
use siltstone_store::env::Env;
use std::sync::Arc;
use tokio::sync::Notify;

/// Passes every newer manifest to back-pressure, the collector and the checkpoints, and the end of
/// the handle to the manifest client.
pub(crate) struct WriterObserver {
    pub(crate) env: Env,
    pub(crate) durability: Arc<Durability>,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) garbage: Arc<Garbage>,
    /// Wakes the task that maintains the writer's checkpoints.
    pub(crate) checkpoints: Arc<Notify>,
    /// Wakes the task that ingests submitted jobs.
    pub(crate) ingests: Arc<Notify>,
    /// Whether the writer has a log. Otherwise callers that wait for durability wait for commits.
    pub(crate) has_log: bool,
}

impl WriterObserver {
    /// Records the manifest with which the handle begins, without notifications.
    pub(crate) fn begins(self, newest: &Arc<Manifest>) -> Arc<WriterObserver> {
        self.tells(newest);
        Arc::new(self)
    }

    fn tells(&self, newest: &Arc<Manifest>) {
        self.pressure.observe(newest, self.env.clock.now());
        self.garbage.observe(newest);
    }
}

impl Observer for WriterObserver {
    fn learns(&self, newest: &Arc<Manifest>) {
        self.tells(newest);
        self.checkpoints.notify_one();
        self.ingests.notify_one();
    }

    fn meets(&self, trouble: &Error) {
        self.pressure.tell(trouble);
        if !self.has_log && !trouble.kind().is_transient() {
            self.durability.trouble(trouble.clone());
        }
    }

    fn ended(&self) -> Option<Error> {
        self.durability.failure()
    }
}
