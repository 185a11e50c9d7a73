//! Bulk load (RFC 0039): adds any number of rows to this database in one commit. Rows must never be
//! visible before the load is finished.

use crate::api::db::Database;
use crate::api::ingest::IngestJob;
use crate::manifests::client::{commit_alone, look};
use crate::manifests::objects::Objects;
use crate::tables::{LoadOptions, LoadPhases, Loader, PartOptions, StagedPart};
use crate::writer::commit::Commit;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{Epoch, Error, Result, Seq};
use siltstone_manifest::state::MOST_APPS;
use siltstone_manifest::{Edit, IngestEdit, Manifest};
use siltstone_store::env::Env;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Prefix of the application name of bulk loads. The loads of a database are consecutive versions
/// of one application. The manifest records only the last version, which shows that all earlier
/// ones have ended, so the number of loads is not limited.
const LOADS: &str = "siltstone.load";
/// A writer's first version is its epoch, shifted left by this number of bits. No other writer of
/// the database has the same epoch, so two writers never submit the same version: neither a fenced
/// writer nor its successor can receive the result of the other's load.
const EPOCH_BITS: u32 = 32;
/// Maximum duration of a load. After it the collector deletes the tables of a load whose process
/// was killed.
const LOAD_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The result of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// Number of loaded rows, without rows that another row of the load replaced.
    pub rows: u64,
    /// Size of the tables in bytes.
    pub bytes: u64,
    /// Number of tables.
    pub tables: u64,
    /// The sequence number of the rows; `None` without rows.
    pub seq: Option<Seq>,
    /// Durations of receiving rows and building tables.
    pub phases: LoadPhases,
    /// Duration of the commit, until the rows were visible and durable.
    pub commit: Duration,
}

/// A bulk load that is in progress.
pub struct BulkLoad {
    database: Database,
    env: Env,
    job: IngestJob,
    /// `None` once the load has ended.
    loader: Option<Loader>,
    limit: Duration,
    /// Whether the job was submitted, so that the rows are in the database or may be.
    asked: bool,
}

impl Database {
    /// Begins a bulk load. Its rows become visible together, in [`BulkLoad::finish`].
    ///
    /// # Errors
    /// Closed, Fenced; errors of the store.
    pub fn begin_load(&self, load: LoadOptions) -> BoxFuture<'_, Result<BulkLoad>> {
        async move {
            let writer = self.writer()?;
            writer.check_logs()?;
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
            let (database, loader) = (self.clone(), Some(job.loader(&env, how, load)?));
            Ok(BulkLoad { database, env, job, loader, limit, asked: false })
        }
        .boxed()
    }
}

impl BulkLoad {
    /// The loader that receives the rows.
    ///
    /// # Errors
    /// Closed, Fenced.
    pub fn loader(&mut self) -> Result<&mut Loader> {
        self.database.writer()?;
        self.loader.as_mut().ok_or_else(ended)
    }

    /// Commits the load. When the future ends, all rows are visible and durable.
    ///
    /// # Errors
    /// Invalid for equal keys if the load refuses them, with the key and both rows; as
    /// [`Database::ingest`].
    pub fn finish(mut self) -> BoxFuture<'static, Result<LoadReport>> {
        async move { self.complete().await.map_err(|error| error.during("load")) }.boxed()
    }

    /// Ingests the staged part.
    async fn ask(&mut self, part: StagedPart) -> Result<Commit> {
        let writer = Arc::clone(self.database.writer()?);
        // One load at a time, so that versions are submitted in order.
        let mut before = writer.loads.lock().await;
        let newest = writer.manifests.newest_known();
        self.job.app = next_version(&newest, writer.epoch, *before);
        // The version is new, even if the application was forgotten while rows were received.
        self.job.forgotten = newest.forgotten_apps.count;
        *before += 1;
        let request = self.job.commit(&self.env, &[part], self.limit).await?;
        self.asked = true;
        self.database.ingest(&request).await
    }

    async fn complete(&mut self) -> Result<LoadReport> {
        let loader = self.loader.take().ok_or_else(ended)?;
        let (part, phases) = loader.finish().await?;
        let (rows, bytes, tables) = (part.rows(), part.bytes(), part.tables());
        let began = self.env.clock.monotonic();
        let mut seq = None;
        // Without rows no object was uploaded, so the collector has nothing to delete.
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

/// The application and version of a writer's next load, after `before` earlier loads. `None` if the
/// database has the maximum number of applications; the manifest then records the load by its job.
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
    /// Aborts an unfinished load. A commit records the job as ended, so that the next collection
    /// deletes the uploaded tables, not one after the maximum duration of a load.
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
            // If the commit fails, the collector deletes the tables after the job's deadline.
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
