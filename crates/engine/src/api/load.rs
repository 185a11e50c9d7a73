//! Bulk load (RFC 0039): any amount of rows into this database, by one commit.

use crate::api::db::Database;
use crate::api::ingest::{IngestJob, StagedPart};
use crate::io::env::Env;
use crate::manifests::client::{commit_alone, look};
use crate::manifests::objects::Objects;
use crate::tables::{LoadOptions, LoadPhases, Loader, PartOptions};
use crate::writer::commit::Commit;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{Epoch, Error, Result, Seq};
use siltstone_manifest::state::MOST_APPS;
use siltstone_manifest::{Edit, IngestEdit, Manifest};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Loads are versions of an application of this name and the database's, one after another. Its
/// record is of the last one, and shows that all before it have ended: so a load that is settled
/// leaves no record of its own, and there may be any number of them.
const LOADS: &str = "siltstone.load";
/// A writer's first version is its epoch, moved by so many bits. No other writer of the database
/// has the same epoch, so none asks for the same version: what was overtaken is never answered with
/// a load of its successor's, nor that with it.
const EPOCH_BITS: u32 = 32;
/// For so long a load may take: what one that was killed has left is collected after it.
const LOAD_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// What a load came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// Rows that are part of the database now: those that others replaced are not counted.
    pub rows: u64,
    /// Bytes of the tables.
    pub bytes: u64,
    /// How many tables there are.
    pub tables: u64,
    /// Where the rows stand in the history; `None` without rows.
    pub seq: Option<Seq>,
    /// How long taking rows and making tables took.
    pub phases: LoadPhases,
    /// How long it took until the tables were part of the database, and durable.
    pub commit: Duration,
}

/// Rows on their way into a database.
pub struct BulkLoad {
    database: Database,
    env: Env,
    job: IngestJob,
    /// Gone once it has ended.
    loader: Option<Loader>,
    limit: Duration,
    /// Whether the rows are part of the database, or may be.
    asked: bool,
}

impl Database {
    /// Begins to load rows: they show, all together, when [`BulkLoad::finish`] has ended.
    ///
    /// # Errors
    /// Closed, Fenced; those of the store.
    pub fn begin_load(&self, load: LoadOptions) -> BoxFuture<'_, Result<BulkLoad>> {
        async move {
            let writer = self.writer()?;
            let (env, limit) = (writer.env.clone(), writer.options.deadline);
            let job = IngestJob::begin(&env, LOAD_LIFETIME, None, limit).await;
            let job = job.map_err(|error| error.during("load"))?;
            let how = PartOptions {
                options: writer.options.clone(),
                duplicates: load.duplicates,
                sort_memory_bytes: load.memory_bytes,
                scratch: load.scratch.clone(),
                table_bytes: load.table_bytes,
            };
            let (database, loader) = (self.clone(), Some(job.loader(&env, how, load)));
            Ok(BulkLoad { database, env, job, loader, limit, asked: false })
        }
        .boxed()
    }
}

impl BulkLoad {
    /// What takes rows.
    ///
    /// # Errors
    /// Closed, Fenced.
    pub fn loader(&mut self) -> Result<&mut Loader> {
        self.database.writer()?;
        self.loader.as_mut().ok_or_else(ended)
    }

    /// Makes the rows part of the database: visible, and durable, when this ends.
    ///
    /// # Errors
    /// Invalid for equal keys that are refused, naming the key and both rows; as
    /// [`Database::ingest`].
    pub fn finish(mut self) -> BoxFuture<'static, Result<LoadReport>> {
        async move { self.complete().await.map_err(|error| error.during("load")) }.boxed()
    }

    /// Has the database take the part in.
    async fn ask(&mut self, part: StagedPart) -> Result<Commit> {
        let writer = Arc::clone(self.database.writer()?);
        // One after another: versions are asked for in their order.
        let mut before = writer.loads.lock().await;
        let newest = writer.manifests.newest_known();
        self.job.app = next_version(&newest, writer.epoch, *before);
        // The version is a new one, whatever was forgotten while rows were taken.
        self.job.forgotten = newest.forgotten_apps.count;
        *before += 1;
        let request = self.job.commit(&self.env, &[part], self.limit).await?;
        self.asked = true;
        self.database.ingest(&request).await
    }

    async fn complete(&mut self) -> Result<LoadReport> {
        let loader = self.loader.take().ok_or_else(ended)?;
        let (part, phases) = IngestJob::finish_load(loader).await?;
        let (rows, bytes, tables) = (part.rows(), part.bytes(), part.tables());
        let began = self.env.clock.monotonic();
        let mut seq = None;
        // Without rows there is nothing to collect.
        self.asked = tables == 0;
        if tables > 0 {
            let commit = self.ask(part).await?;
            seq = Some(commit.seq());
            commit.wait(None).await?;
        }
        let commit = self.env.clock.monotonic().saturating_sub(began);
        Ok(LoadReport { rows, bytes, tables, seq, phases, commit })
    }
}

/// What the next load of a writer is: it has asked for `before` others. `None` where the database
/// has as many applications as may be: that load is remembered for itself.
fn next_version(newest: &Manifest, epoch: Epoch, before: u64) -> Option<(String, u64)> {
    let app = format!("{LOADS} {}", newest.database);
    let known = newest.ingest_apps.iter().any(|one| one.app == app);
    if !known && newest.ingest_apps.len() + newest.pending_ingests.len() >= MOST_APPS {
        return None;
    }
    Some((app, (epoch.0 << EPOCH_BITS) + before))
}

fn ended() -> Error {
    Error::invalid("the load has ended; begin another one")
}

impl Drop for BulkLoad {
    /// Given up: the job is remembered as ended, so that what was uploaded is collected by the next
    /// round, and not after the day that it may take.
    fn drop(&mut self) {
        let untouched = self.loader.as_ref().is_some_and(Loader::is_untouched);
        if self.asked || untouched {
            return;
        }
        self.loader = None;
        let (env, limit) = (self.env.clone(), self.limit);
        let edit = Edit::Ingest(IngestEdit::Withdraw { job: self.job.id, app: self.job.version() });
        let withdraw = async move {
            let objects = Objects { env, limit };
            // What cannot be said now is found out when the job's deadline is over.
            if let Ok(Some(newest)) = look(&objects, None).await {
                drop(commit_alone(&objects, edit, newest).await);
            }
        };
        self.env.spawn.spawn("withdraw load", Box::pin(withdraw));
    }
}

impl fmt::Debug for BulkLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkLoad").field("job", &self.job.id).finish_non_exhaustive()
    }
}
