//! The store's clock: what an object stored this moment is dated.
//!
//! ```text
//! create probe/<ULID> ─► list probe/ ─► delete it
//! ```
//! Ages compare dates of the store with dates of the store, so no clock of a process can make an
//! object look old (planted bug 8: a cut-off by the local clock). No store tells its time by
//! another way that all of them have.

use super::conditional_create::Creating;
use super::objects::Objects;
use bytes::Bytes;
use siltstone_base::name::prefix;
use siltstone_base::{
    AttemptId, DatabaseId, Envelope, Error, JobId, ObjectId, ObjectKind, ObjectName, PutOutcome,
    Result, UnixMillis,
};
use siltstone_store::full::is_full;
use siltstone_store::retry::with_retries;
use std::time::Duration;

/// Listings that lack what was stored before the store is given up.
const LISTINGS: u32 = 8;
/// The time for which a failed delete of the scratch object is repeated.
const DELETES_FOR: Duration = Duration::from_secs(5);

/// The store's time, at some moment after the call and before its end.
///
/// # Errors
/// Denied where nothing may be written; Unavailable; Timeout after the limit of a request. At once
/// where there is no room.
pub(crate) async fn store_time(objects: &Objects, database: DatabaseId) -> Result<UnixMillis> {
    let (time, scratch) = dated(objects, database).await?;
    delete_scratch(objects, Some(scratch)).await;
    Ok(time)
}

/// As [`store_time`], but leaves the object whose date it is, for the caller to delete beside its
/// next request.
pub(crate) async fn dated(
    objects: &Objects,
    database: DatabaseId,
) -> Result<(UnixMillis, ObjectName)> {
    let env = &objects.env;
    let name = ObjectName::ProbeScratch(JobId(env.new_ulid()));
    let attempt = AttemptId(env.random_u128());
    let envelope = Envelope::new(ObjectKind::Probe, database, ObjectId(env.random_u128()), attempt);
    let bytes = Bytes::copy_from_slice(&envelope.encode());
    let mut creating = Creating::of_fresh_name(objects, bytes, attempt);
    let mut lacking = 0;
    while lacking < LISTINGS {
        // The outcome does not matter: a listing that shows the object gives the time.
        let created = creating.once(objects, name).await?;
        if let Some(full) = creating.trouble().filter(|trouble| is_full(trouble)) {
            return Err(full.clone().with("object", name));
        }
        let listed = objects.list(prefix::PROBE).await?;
        if let Some(object) = listed.iter().find(|object| object.name == name) {
            return Ok((object.modified, name));
        }
        match created {
            PutOutcome::Committed => lacking += 1,
            PutOutcome::Lost(()) => {
                return Err(Error::internal("a fresh name is taken").with("object", name));
            }
            // The create is repeated for the limit of a request.
            PutOutcome::NotApplied | PutOutcome::Unknown => {}
        }
    }
    let text = "the time of the store is unknown: a listing lacks an object that was just created";
    Err(Error::unavailable(text).with("object", name))
}

/// When the record of the store's proof was stored, if a listing shows it.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn date_of_proof(objects: &Objects) -> Result<Option<UnixMillis>> {
    let listed = objects.list(prefix::PROBE).await?;
    let record = listed.iter().find(|object| object.name == ObjectName::ProbeRecord);
    Ok(record.map(|object| object.modified))
}

/// Deletes what [`dated`] has left, if anything. If the store does not do it for some seconds, a
/// later round of the collector deletes it.
pub(crate) async fn delete_scratch(objects: &Objects, scratch: Option<ObjectName>) {
    if let Some(scratch) = scratch {
        let (env, limit) = (&objects.env, objects.limit.min(DELETES_FOR));
        drop(with_retries(env, limit, "delete", || env.store.delete(scratch)).await);
    }
}
