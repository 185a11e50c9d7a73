//! The source of an export. A checkpoint pins it and is renewed as long as the export reads it
//! (rule X1).

use crate::follower::at_checkpoint::{pinned_manifest, pinned_to_take};
use crate::manifests::client::{commit_alone, look, newest};
use crate::manifests::objects::Objects;
use crate::tables::log_to_tables::TakenLog;
use crate::wal::walk::walk;
use siltstone_base::{CheckpointId, Error, ErrorKind, Result, Seq, UnixMillis};
use siltstone_manifest::naming::gone;
use siltstone_manifest::{CheckpointName, CheckpointOwner, Edit, Manifest, NewCheckpoint};
use std::sync::Arc;
use std::time::Duration;

/// The life of a pin without renewal, for which a dead exporter still retains data of the source. A
/// process that was stopped for this long finds its pin gone, and ends.
const PIN_LIFE: Duration = Duration::from_secs(10 * 60);
/// Pause before a failed renewal is repeated.
const AGAIN: Duration = Duration::from_secs(10);

/// A state of the source, which is kept as long as this pin is renewed.
pub(super) struct PinnedSource {
    objects: Objects,
    id: CheckpointId,
    /// Whether this process created the pin. It then renews the pin, and removes it at the end.
    is_own: bool,
    /// The pinned state. Its log is `log`.
    pub(super) state: Arc<Manifest>,
    pub(super) log: TakenLog,
    /// The last sequence number of state and log.
    pub(super) last_seq: Seq,
}

impl PinnedSource {
    /// Pins the checkpoint that `which` names, or everything that is durable now. If the process
    /// may not write to the source, it reads the named checkpoint without a pin, as long as that
    /// checkpoint exists.
    pub(super) async fn pin(
        objects: &Objects,
        target: &Objects,
        which: Option<&CheckpointName>,
    ) -> Result<PinnedSource> {
        let env = &objects.env;
        let id = CheckpointId::random(env.random_u128());
        let created_at = env.clock.now();
        let place = target.env.store.place().location().unwrap_or_default();
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
            false => pinned_manifest(objects, checkpoint).await?,
        };
        let log = pinned_to_take(objects, checkpoint, &state).await?;
        let last_seq = log.last_seq(state.flushed_seq);
        Ok(PinnedSource { objects: objects.clone(), id, is_own, state, log, last_seq })
    }

    /// The location of the source, for messages.
    pub(super) fn location(&self) -> String {
        let store = &self.objects.env.store;
        store.place().location().unwrap_or_else(|| format!("{store:?}"))
    }

    /// Renews the pin repeatedly, at half of its life. Returns the error that makes renewal
    /// impossible.
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
                // A checkpoint that is present is alive. It is gone only when a renewal reports so.
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

    /// The error for a missing table: the pin is gone, or the table is damage.
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
