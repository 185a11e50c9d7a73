//! Separate stores of logs for the simulation: one bucket for each database, as each log has a
//! folder of its own.

use crate::faults::{Bucket, CrashPoint, FaultPlan};
use crate::sim::{ProcessId, SimHandle};
use parking_lot::Mutex;
use siltstone::Env;
use siltstone::store::Store;
use siltstone::store::separate_log::{LogStores, SeparateLogStore};
use siltstone_base::{DatabaseId, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A place for the logs of many databases.
pub struct LogBuckets {
    sim: SimHandle,
    base: Arc<Bucket>,
    logs: Mutex<BTreeMap<DatabaseId, Arc<Bucket>>>,
    crash: Mutex<Option<(ProcessId, u64, CrashPoint)>>,
}

impl LogBuckets {
    /// A place without logs.
    #[must_use]
    pub fn new(sim: &SimHandle) -> Arc<LogBuckets> {
        let (base, logs) = (Bucket::new(sim, FaultPlan::none()), Mutex::default());
        Arc::new(LogBuckets { sim: sim.clone(), base, logs, crash: Mutex::default() })
    }

    /// Kills `process` in its `operation`-th request to the log of any database.
    pub fn crash_at(&self, process: ProcessId, operation: u64, point: CrashPoint) {
        *self.crash.lock() = Some((process, operation, point));
    }

    /// The most requests that `process` has sent to one log.
    #[must_use]
    pub fn operations(&self, process: ProcessId) -> u64 {
        let logs = self.logs.lock();
        logs.values().map(|log| log.operations(process)).max().unwrap_or_default()
    }

    /// The logs that exist.
    #[must_use]
    pub fn logs(&self) -> BTreeMap<DatabaseId, Arc<Bucket>> {
        self.logs.lock().clone()
    }

    /// `env` of `process`, whose databases have their logs here.
    #[must_use]
    pub fn under(self: &Arc<Self>, env: Env, process: ProcessId) -> Env {
        let base = self.base.store(process);
        let logs = Arc::new(LogsOf { buckets: Arc::clone(self), base, process });
        let store = SeparateLogStore::new(env.store, logs, Arc::clone(&env.random));
        Env { store, ..env }
    }
}

/// The logs, as one process sees them.
struct LogsOf {
    buckets: Arc<LogBuckets>,
    base: Arc<dyn Store>,
    process: ProcessId,
}

impl LogStores for LogsOf {
    fn base(&self) -> &dyn Store {
        &*self.base
    }

    fn of(&self, database: DatabaseId) -> Result<Arc<dyn Store>> {
        let LogBuckets { sim, logs, crash, .. } = &*self.buckets;
        let new = || {
            let bucket = Bucket::new(sim, FaultPlan::none());
            if let Some((process, operation, point)) = *crash.lock() {
                bucket.crash_at(process, operation, point);
            }
            bucket
        };
        let bucket = Arc::clone(logs.lock().entry(database).or_insert_with(new));
        Ok(bucket.store(self.process))
    }
}
