//! Lists what ingest jobs have staged, and takes a job back by its id.

use crate::api::ingest::{IngestJob, no_such_job};
use crate::manifests::client::newest;
use crate::manifests::missing::check_lives;
use crate::manifests::objects::Objects;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use siltstone_base::name::prefix;
use siltstone_base::{JobId, ObjectName, Result, UnixMillis};
use siltstone_manifest::ingest::{JobStatus, deadline, standing};
use siltstone_store::env::Env;
use siltstone_store::retry::with_retries;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Closing objects that are read at a time.
const TOGETHER: usize = 16;

/// An ingest job that has something in its folder, or waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedJob {
    /// The job.
    pub id: JobId,
    /// The moment until which it may be asked for.
    pub deadline: UnixMillis,
    /// Objects of its folder: parts, and what closed it.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the last of them was stored, by the store's clock; `None` where there are none.
    pub last_stored: Option<UnixMillis>,
    /// The status of the job.
    pub stands: JobStatus,
}

/// Lists every job that has something in its folder, by deadline: open ones, pending ones, and
/// those that have ended and whose objects the database uses or a collector has yet to delete.
///
/// # Errors
/// NotFound without a database; those of the store.
pub fn staged_jobs(env: &Env, limit: Duration) -> BoxFuture<'_, Result<Vec<StagedJob>>> {
    async move {
        let objects = Objects { env: env.clone(), limit };
        let listed =
            with_retries(env, limit, "list", || env.store.list(prefix::INGEST, None)).await?;
        // Behind the listing: it knows every listed job that was adopted before.
        let newest = newest(&objects).await?;
        check_lives(&newest)?;
        let mut closed = BTreeSet::new();
        let mut jobs: BTreeMap<JobId, StagedJob> = BTreeMap::new();
        for object in listed {
            let (ObjectName::IngestManifest(id) | ObjectName::IngestSst(id, _)) = object.name
            else {
                continue;
            };
            // Exports and units of compaction have folders of the same kind.
            if id.is_of_an_export() || id.is_of_units() {
                continue;
            }
            let job = jobs.entry(id).or_insert_with(|| StagedJob {
                id,
                deadline: deadline(id),
                objects: 0,
                bytes: 0,
                last_stored: None,
                stands: JobStatus::Open,
            });
            if matches!(object.name, ObjectName::IngestManifest(_)) {
                closed.insert(id);
            }
            job.objects += 1;
            job.bytes += object.bytes;
            job.last_stored = job.last_stored.max(Some(object.modified));
        }
        for (id, job) in &mut jobs {
            job.stands = standing(&newest, *id);
        }
        // Whether a later version has passed an open one only its closing object tells.
        closed.retain(|id| jobs.get(id).is_some_and(|job| job.stands == JobStatus::Open));
        let mut stands = stream::iter(closed)
            .map(async |id| (id, objects.standing_of_closed(&newest, id).await))
            .buffer_unordered(TOGETHER);
        while let Some((id, stands)) = stands.next().await {
            if let Some(job) = jobs.get_mut(&id) {
                job.stands = stands?;
            }
        }
        Ok(jobs.into_values().collect())
    }
    .boxed()
}

/// Withdraws an open job, as [`IngestJob::abort`] does, and answers how it stands then. The next
/// round of a collector deletes what it staged.
///
/// # Errors
/// NotFound without a database, and of a job that has staged nothing and that the database does not
/// know; those of the store.
pub fn withdraw(env: &Env, id: JobId, limit: Duration) -> BoxFuture<'_, Result<JobStatus>> {
    async move {
        let objects = Objects { env: env.clone(), limit };
        let newest = newest(&objects).await?;
        check_lives(&newest)?;
        if standing(&newest, id) == JobStatus::Open && objects.list_job(id).await?.is_empty() {
            return Err(no_such_job(id));
        }
        let job = IngestJob {
            id,
            database: newest.database,
            timeline: newest.timelines.last().map(|one| one.id),
            app: None,
            forgotten: newest.forgotten_apps.count,
            replace: None,
            behind: false,
            operator: None,
            encrypted: env.store.profile().is_encrypted,
        };
        job.abort(env, limit).await
    }
    .boxed()
}
