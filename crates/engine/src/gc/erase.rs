//! Removal of a destroyed database (RFC 0030). The process that destroyed the database, or a
//! collector after the grace period, removes the objects that are no longer pinned. The state
//! machine `Erase` chooses the objects and their order.

use super::boundary::BoundaryMaker;
use super::deletes::delete_batch;
use super::detach::release;
use super::report::GcReport;
use crate::manifests::client::{ManifestRequests, commit_alone};
use crate::manifests::objects::Objects;
use crate::manifests::rules;
use crate::manifests::store_time::store_time;
use futures::future::try_join_all;
use siltstone_base::name::prefix;
use siltstone_base::{ObjectName, PutOutcome, Result, UnixMillis};
use siltstone_manifest::protocol::{Erase, EraseAction, EraseReport};
use siltstone_manifest::{Destroy, Edit, Manifest, codec, is_let_go};
use siltstone_store::Listed;
use siltstone_store::progress::Progress;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// All folders of a database.
const FOLDERS: [&str; 7] = [
    prefix::MANIFEST,
    prefix::WAL,
    prefix::COMPACTED,
    prefix::COMPACTIONS,
    prefix::INGEST,
    prefix::PROBE,
    prefix::DAMAGED,
];

/// Lists every object of the database.
pub(super) async fn list_all(objects: &Objects) -> Result<Vec<Listed>> {
    let found = try_join_all(FOLDERS.map(|folder| objects.list(folder))).await?;
    Ok(found.into_iter().flatten().collect())
}

/// Reads the store's clock and this process's clock, and returns the earlier and the later time.
/// Expiry is measured by the earlier time, so a wrong clock only delays a removal.
pub(crate) async fn both_clocks(
    objects: &Objects,
    state: &Manifest,
) -> Result<(UnixMillis, UnixMillis)> {
    let own = objects.env.clock.now();
    let stored = store_time(objects, state.database).await?;
    Ok((own.min(stored), own.max(stored)))
}

/// Returns whether a destroyed database may be removed now: its grace period is over, and its pins
/// have expired or are gone (rule D2). An earlier commit revokes the expired pins.
pub(super) fn may_go(state: &Manifest, grace: Duration, now: UnixMillis) -> bool {
    let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    let over = state.destroyed_at.is_some_and(|at| at.0.saturating_add(grace) <= now.0);
    let held = state.holds.iter().any(|one| one.expires_at.is_none_or(|at| at > now));
    let read = state.leases.iter().any(|one| !one.expired_at(now))
        || state.since_leases.iter().any(|one| !one.expired_at(now));
    over && state.checkpoints.iter().all(|one| one.expired_at(now)) && !held && !read
}

/// Removes the last pins if no reader needs them any more. The resulting state admits no edit.
///
/// # Errors
/// Conflict if a pin is still needed; errors of a commit.
pub(crate) async fn release_last_pins(
    objects: &Objects,
    state: Arc<Manifest>,
    (now, at): (UnixMillis, UnixMillis),
) -> Result<Arc<Manifest>> {
    if is_let_go(&state) {
        return Ok(state);
    }
    let destroy = Destroy { epoch: None, at, now, soft: false, fences: Vec::new() };
    commit_alone(objects, Edit::Destroy(destroy), state).await
}

/// Removes the destroyed database whose last manifest is `last`. The report counts the deletes.
///
/// # Errors
/// Errors of the store; Unsupported for a clone of a database whose location cannot be opened from
/// this store. Objects deleted before an error stay deleted, and the next removal continues.
pub(crate) async fn erase(
    objects: &Objects,
    last: Arc<Manifest>,
    progress: Option<&Progress>,
) -> Result<(EraseReport, GcReport)> {
    free_pins(objects, &last).await?;
    let (database, manifest_id) = (last.database, last.id);
    let report = GcReport { database, manifest_id, ..GcReport::default() };
    let mut removal = Removal {
        objects,
        requests: ManifestRequests::new(objects),
        last: Arc::clone(&last),
        machine: Erase::new(last, rules::in_force()),
        bytes: HashMap::new(),
        boundaries: BoundaryMaker::default(),
        report,
        progress,
    };
    let ended = removal.drive().await?;
    Ok((ended, removal.report))
}

/// Releases the pins of a clone in the databases whose tables it uses, before any other step: after
/// the removal no manifest leads to these pins. Releasing an absent pin succeeds, so a resumed
/// removal repeats this step.
async fn free_pins(objects: &Objects, last: &Manifest) -> Result<()> {
    for entry in &last.ancestors {
        let released = release(objects, last.database, entry).await;
        released.map_err(|error| error.with("ancestor", &entry.location))?;
    }
    Ok(())
}

/// A removal in progress.
struct Removal<'a> {
    objects: &'a Objects,
    requests: ManifestRequests,
    last: Arc<Manifest>,
    machine: Erase,
    bytes: HashMap<ObjectName, u64>,
    boundaries: BoundaryMaker,
    report: GcReport,
    progress: Option<&'a Progress>,
}

impl Removal<'_> {
    async fn drive(&mut self) -> Result<EraseReport> {
        loop {
            match self.machine.action() {
                EraseAction::ListObjects => {
                    let listed = list_all(self.objects).await?;
                    self.bytes = listed.iter().map(|one| (one.name, one.bytes)).collect();
                    if let Some(progress) = self.progress {
                        progress.expect(listed.len() as u64);
                    }
                    self.machine.on_objects(listed.iter().map(|one| one.name).collect());
                }
                EraseAction::Request(request) => {
                    let answer = self.requests.perform(request).await?;
                    self.machine.on_answer(answer);
                }
                EraseAction::CreateBoundary { name, last } => {
                    let outcome = self.create_boundary(name, last).await?;
                    self.machine.on_boundary(outcome);
                }
                EraseAction::Delete(names) => self.delete(names).await,
                EraseAction::Done(report) => return Ok(report),
            }
        }
    }

    async fn create_boundary(&mut self, name: ObjectName, last: bool) -> Result<PutOutcome<()>> {
        let encode = if last { codec::encode_last_boundary } else { codec::encode_boundary };
        let database = self.last.database;
        let creating = self.boundaries.creating(self.objects, name, database, encode)?;
        creating.once(self.objects, name).await
    }

    async fn delete(&mut self, names: Vec<ObjectName>) {
        let (report, progress) = (&mut self.report, self.progress);
        let gone = delete_batch(self.objects, names, &self.bytes, report, progress).await;
        self.machine.on_deleted(&gone);
    }
}
