//! Rounds over a destroyed database that waits for the end of its grace period and of its remaining
//! readers (RFC 0030, rule D2).

use super::due::LastRound;
use super::erase::{both_clocks, erase, list_all, may_go, release_last_pins};
use super::report::{GcObject, GcReport};
use super::round::Collector;
use crate::manifests::client::commit_alone;
use siltstone_base::{CheckpointId, ObjectName, Result, UnixMillis};
use siltstone_manifest::{Edit, Manifest};
use std::sync::Arc;
use std::time::Duration;

/// The reason that a dry run reports for every object.
const GOES: &str = "the database was destroyed";

impl Collector {
    /// Returns whether a round over the destroyed database has work to do.
    pub(super) fn is_end_due(&self, newest: &Manifest) -> bool {
        let now = self.objects.env.clock.now();
        may_go(newest, self.db_delete_grace, now) || !expired(newest, now).is_empty()
    }

    /// Revokes expired checkpoints, and removes the database once no reader is left to wait for.
    ///
    /// # Errors
    /// As [`super::once`].
    pub(super) async fn end_round(&mut self, newest: Arc<Manifest>) -> Result<GcReport> {
        let began = self.objects.env.clock.monotonic();
        self.objects.give_up_lost_log().await?;
        let clocks = both_clocks(&self.objects, &newest).await?;
        let ids = expired(&newest, clocks.0);
        let mut state = newest;
        if !ids.is_empty() {
            let edit = Edit::RevokeExpired { ids: ids.clone(), now: clocks.0 };
            state = commit_alone(&self.objects, edit, state).await?;
        }
        let (database, manifest_id) = (state.database, state.id);
        let mut report = GcReport { database, manifest_id, ..GcReport::default() };
        if may_go(&state, self.db_delete_grace, clocks.0) {
            state = release_last_pins(&self.objects, state, clocks).await?;
            report = erase(&self.objects, Arc::clone(&state), Some(&self.progress)).await?.1;
        }
        report.revoked = ids.len() as u64;
        self.seen = LastRound::after(&report, state, began, Duration::ZERO);
        Ok(report)
    }

    /// Previews [`Collector::end_round`] without changes.
    ///
    /// # Errors
    /// As [`super::once`].
    pub(super) async fn dry_end(&self, newest: &Manifest) -> Result<GcReport> {
        let now = self.objects.env.clock.now();
        let (database, manifest_id) = (newest.database, newest.id);
        let mut report = GcReport { database, manifest_id, dry_run: true, ..GcReport::default() };
        report.revoked = expired(newest, now).len() as u64;
        let goes = may_go(newest, self.db_delete_grace, now);
        self.objects.give_up_lost_log().await?;
        for object in list_all(&self.objects).await? {
            let stays = !goes || is_left(newest, object.name);
            let class = report.class(object.name);
            if stays {
                class.alive += 1;
                continue;
            }
            class.deleted += 1;
            class.bytes += object.bytes;
            let age = Duration::from_millis(now.0.saturating_sub(object.modified.0));
            let (name, bytes) = (object.name, object.bytes);
            report.objects.push(GcObject { name, bytes, age, why: GOES });
        }
        Ok(report)
    }
}

/// Returns whether the object remains after the removal: kept fences do.
fn is_left(newest: &Manifest, name: ObjectName) -> bool {
    matches!(name, ObjectName::Wal(id) if newest.kept_fences.iter().any(|fence| fence.id == id))
}

fn expired(newest: &Manifest, now: UnixMillis) -> Vec<CheckpointId> {
    let expired = newest.checkpoints.iter().filter(|one| one.expired_at(now));
    expired.map(|one| one.id).collect()
}
