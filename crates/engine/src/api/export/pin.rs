//! The source of an export: pinned by a checkpoint that is renewed for as long as it is read (rule
//! X1).

use crate::follower::at_checkpoint::pinned_to_take;
use crate::manifests::client::{commit_alone, look, newest};
use crate::manifests::objects::Objects;
use crate::tables::of_log::TakenLog;
use crate::wal::walk::walk;
use siltstone_base::{CheckpointId, Error, ErrorKind, Result, Seq, UnixMillis};
use siltstone_manifest::naming::gone;
use siltstone_manifest::{CheckpointName, CheckpointOwner, Edit, Manifest, NewCheckpoint};
use std::sync::Arc;
use std::time::Duration;

/// How long a pin lives that is not renewed: what an exporter that died holds up. A process that
/// was stopped for so long finds its pin gone, and ends.
const PIN_LIFE: Duration = Duration::from_secs(10 * 60);
/// Pause before a renewal that met a trouble of the store is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// A state of the source that stays as long as this is renewed.
pub(super) struct PinnedSource {
    objects: Objects,
    id: CheckpointId,
    /// Whether the pin was made here: it is renewed, and removed at the end.
    is_own: bool,
    /// The state that is pinned, whose log is `log`.
    pub(super) state: Arc<Manifest>,
    pub(super) log: TakenLog,
    /// The last number of both.
    pub(super) last_seq: Seq,
}

impl PinnedSource {
    /// Pins what `which` names, or all that is durable now. Without the right to write at the
    /// source the checkpoint that `which` names is read as it is, for as long as it is there.
    pub(super) async fn pin(
        objects: &Objects,
        target: &Objects,
        which: Option<&CheckpointName>,
    ) -> Result<PinnedSource> {
        let env = &objects.env;
        let id = CheckpointId::random(env.random_u128());
        let created_at = env.clock.now();
        let place = target.env.store.location().unwrap_or_default();
        let new = NewCheckpoint {
            id,
            created_at,
            expires_at: Some(ends(created_at)),
            owner: CheckpointOwner::Reader,
            metadata: vec![("export to".to_owned(), place)],
            ..NewCheckpoint::default()
        };
        let (newest, new) = match which {
            Some(name) => {
                let newest = newest(objects).await?;
                let source = Some(name.find(&newest)?.id);
                (newest, NewCheckpoint { source, ..new })
            }
            None => {
                let (newest, walked) = walk(objects).await?;
                (newest, NewCheckpoint { wal_id_last_seen: Some(walked), ..new })
            }
        };
        let source = new.source;
        let added = commit_alone(objects, Edit::AddCheckpoint(new), Arc::clone(&newest)).await;
        let (committed, id, is_own) = match (added, source) {
            (Err(error), Some(source)) if error.kind() == ErrorKind::Denied => {
                log::warn!(
                    target: "siltstone.export",
                    "event=export_without_pin: the source takes no checkpoint of this process; it \
                     is read at the one that was named, which must outlast the export: {error}"
                );
                (newest, source, false)
            }
            (Err(error), None) if error.kind() == ErrorKind::Denied => {
                return Err(error.with("with the right to read alone", "name a checkpoint"));
            }
            (added, _) => (added?, id, true),
        };
        let checkpoint = committed.checkpoint(id).ok_or_else(|| gone(id))?;
        let state = match checkpoint.manifest_id == committed.id {
            true => Arc::clone(&committed),
            false => {
                let pinned = objects.manifest(checkpoint.manifest_id).await?;
                pinned.ok_or_else(|| gone(id))?
            }
        };
        let log = pinned_to_take(objects, checkpoint, &state).await?;
        let last_seq = log.last_seq(state.flushed_seq);
        Ok(PinnedSource { objects: objects.clone(), id, is_own, state, log, last_seq })
    }

    /// Where it is, for people.
    pub(super) fn location(&self) -> String {
        let store = &self.objects.env.store;
        store.location().unwrap_or_else(|| format!("{store:?}"))
    }

    /// Renews the pin at half its life, again and again; ends with why that cannot go on.
    pub(super) async fn renew(&self) -> Error {
        if !self.is_own {
            return std::future::pending().await;
        }
        let clock = &self.objects.env.clock;
        let mut pause = PIN_LIFE / 2;
        loop {
            clock.sleep(pause).await;
            pause = match self.renew_once().await {
                Ok(()) => PIN_LIFE / 2,
                // Present is alive: it is gone only once a renewal says so.
                Err(error) if error.kind().may_pass() => AGAIN,
                Err(error) => return error,
            };
        }
    }

    async fn renew_once(&self) -> Result<()> {
        let expires_at = Some(ends(self.objects.env.clock.now()));
        let edit = Edit::RefreshCheckpoint { id: self.id, expires_at };
        commit_alone(&self.objects, edit, Arc::clone(&self.state)).await.map(drop)
    }

    /// Why a table is missing: its pin is gone, or it is damage.
    pub(super) async fn judge(&self, error: Error) -> Error {
        match look(&self.objects, None).await {
            Ok(Some(newest)) if newest.checkpoint(self.id).is_some() => {
                Error::new(ErrorKind::Corruption, "a table that the manifest names is gone")
                    .caused_by(error)
            }
            Ok(Some(newest)) if newest.database == self.state.database => {
                gone(self.id).caused_by(error)
            }
            _ => error,
        }
    }

    /// Removes the pin. If that fails, the pin expires.
    pub(super) async fn release(&self) {
        if !self.is_own {
            return;
        }
        let edit = Edit::RemoveCheckpoint { id: self.id };
        drop(commit_alone(&self.objects, edit, Arc::clone(&self.state)).await);
    }
}

fn ends(now: UnixMillis) -> UnixMillis {
    UnixMillis(now.0.saturating_add(PIN_LIFE.as_millis() as u64))
}
