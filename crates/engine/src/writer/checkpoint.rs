//! The writer's checkpoints, which keep the versions that it reads (rule C1; RFC 0017).
//!
//! The writer's tree is the version that its newest checkpoint names. A flush replaces the
//! checkpoint in its own commit. Without a flush two steps take a commit of their own: moving to
//! the tables of a compaction, and dropping a version whose last scan has ended.

use super::life::Phase;
use super::state::Writer;
use crate::read::tree::Levels;
use futures::future::{Either, select};
use siltstone_base::{CheckpointId, ManifestId, Result};
use siltstone_manifest::protocol::Pins;
use siltstone_manifest::{Edit, FlushL0, Manifest, NewCheckpoint};
use siltstone_store::env::Env;
use siltstone_store::supervise::{caught, ends_the_handle};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The versions that the writer's process reads. Locked for the length of a commit that changes
/// them, so that the plan is still valid when the commit is settled.
pub(crate) struct TreePins {
    pins: Pins,
    /// The tables of each version. A version is read while a reader holds its tables.
    trees: BTreeMap<ManifestId, Weak<Levels>>,
    /// The id of the next checkpoint. It stays the same until the commit that adds it is settled.
    next: CheckpointId,
}

impl TreePins {
    /// Begins with the checkpoint `checkpoint` of `version`, whose tables are `levels`.
    pub(crate) fn new(
        (checkpoint, next): (CheckpointId, CheckpointId),
        version: Arc<Manifest>,
        levels: &Arc<Levels>,
    ) -> TreePins {
        let trees = BTreeMap::from([(version.id, Arc::downgrade(levels))]);
        TreePins { pins: Pins::new(checkpoint, version), trees, next }
    }

    /// Draws another id for the next checkpoint.
    pub(super) fn draw_anew(&mut self, env: &Env) {
        self.next = CheckpointId(env.random_u128());
    }

    /// Forgets versions that no reader holds any more.
    fn forget_unread(&mut self) {
        self.trees.retain(|_, levels| levels.strong_count() > 0);
        self.pins.forget_unread(|version| self.trees.contains_key(&version));
    }

    /// Whether there is something to commit that no flush has committed.
    fn is_due(&mut self, newest: &Manifest) -> bool {
        self.forget_unread();
        self.pins.has_unread() || self.pins.is_behind(newest)
    }
}

impl Writer {
    /// Commits `edit` together with a new checkpoint for its result, which replaces older
    /// checkpoints. Returns the tables of the version that the new checkpoint names; the caller
    /// installs them.
    ///
    /// # Errors
    /// As [`crate::manifests::client::ManifestClient::commit`]; Unsupported for tables that this
    /// version cannot read.
    pub(crate) async fn commit_pinned(
        &self,
        held: &mut TreePins,
        edit: FlushL0,
    ) -> Result<Arc<Levels>> {
        self.whole(self.swap_pin(held, edit)).await
    }

    /// Runs `work` on the checkpoints. If it panics, the handle ends while they are still locked,
    /// so that no other task continues from a half-made change.
    async fn whole<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let worked = caught("pins", work).await.inspect_err(|died| self.die(died));
        worked.map_err(|died| ends_the_handle(&died)).flatten()
    }

    async fn swap_pin(&self, held: &mut TreePins, edit: FlushL0) -> Result<Arc<Levels>> {
        held.forget_unread();
        let id = held.next;
        let created_at = self.env.clock.now();
        let edit = Edit::FlushL0(FlushL0 {
            checkpoint: Some(NewCheckpoint { id, created_at, ..NewCheckpoint::default() }),
            release: held.pins.releases(true),
            ..edit
        });
        let state = self.manifests.commit(edit).await?;
        let version = self.manifests.version_of(&state, id).await?;
        let levels = self.levels_of(&version)?;
        held.trees.insert(version.id, Arc::downgrade(&levels));
        held.pins.committed(&state, Some((id, version)));
        held.draw_anew(&self.env);
        Ok(levels)
    }

    /// Commits what no flush has committed. Runs in a task. A commit with an unknown outcome leaves
    /// the id of its checkpoint to the next one.
    pub(crate) async fn commit_pins(&self) -> Result<()> {
        let mut held = self.pins.lock().await;
        // A close is recorded under this lock, and a version that is pinned after it would stay
        // pinned.
        if !self.is_open() {
            return self.dead().map_or(Ok(()), Err);
        }
        self.whole(self.commit_due_pins(&mut held)).await
    }

    async fn commit_due_pins(&self, held: &mut TreePins) -> Result<()> {
        let newest = self.manifests.newest_known();
        if !held.is_due(&newest) {
            return Ok(());
        }
        let edit = FlushL0 { floor: self.floor(), ..FlushL0::nothing(self.epoch, &newest) };
        if held.pins.is_behind(&newest) {
            let levels = self.swap_pin(held, edit).await?;
            self.install_levels(&levels);
            return Ok(());
        }
        let edit = FlushL0 { release: held.pins.releases(false), ..edit };
        let state = self.manifests.commit(Edit::FlushL0(edit)).await?;
        held.pins.committed(&state, None);
        Ok(())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.dead().is_none() && self.life.phase() == Phase::Open
    }

    /// Waits for at most `pause`. Returns `false` once the handle begins to close or has ended.
    async fn stays_open(&self, pause: Duration) -> bool {
        let until = self.env.clock.monotonic() + pause;
        while self.is_open() {
            let left = until.saturating_sub(self.env.clock.monotonic());
            if left.is_zero() {
                return true;
            }
            let nudged = pin!(self.nudges.pins.notified());
            if let Either::Right(_) = select(nudged, self.env.clock.sleep(left)).await {
                return self.is_open();
            }
        }
        false
    }
}

/// Runs until the handle begins to close, which removes the remaining checkpoints, or has ended.
pub(crate) async fn run(writer: Arc<Writer>) {
    while writer.is_open() {
        let due = {
            let mut held = writer.pins.lock().await;
            held.is_due(&writer.manifests.newest_known())
        };
        if !due {
            writer.nudges.pins.notified().await;
            continue;
        }
        // A flush in the meantime does it in its own commit.
        if !writer.stays_open(writer.options.poll_interval()).await {
            return;
        }
        if let Err(error) = writer.commit_pins().await {
            if !error.kind().may_pass() {
                writer.end(&error);
                return;
            }
            let pause = writer.env.jittered(writer.options.poll_interval());
            writer.stays_open(pause).await;
        }
    }
}
