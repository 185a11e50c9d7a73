//! A reader's own checkpoint (rule C2, RFC 0017): which version it reads, and the commits that keep
//! that alive.

use crate::io::env::Env;
use crate::manifests::client::commit_alone;
use crate::manifests::objects::Objects;
use crate::read::tree::Levels;
use siltstone_base::{CheckpointId, Error, ErrorKind, ManifestId, Result, UnixMillis, WalId};
use siltstone_manifest::protocol::Pins;
use siltstone_manifest::{CheckpointOwner, Edit, Manifest, NewCheckpoint, UpdateCheckpoints};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What a reader holds.
pub(crate) struct ReaderLease {
    lifetime: Duration,
    /// `None` before the first commit.
    pins: Option<Pins>,
    /// The tables of each version, as reads hold them: a version is read while one does.
    trees: BTreeMap<ManifestId, Weak<Levels>>,
    /// An edit whose outcome is not known: it is made again, the same, before any other.
    pending: Option<Planned>,
    /// When what is held was last refreshed.
    refreshed: Duration,
}

#[derive(Clone)]
struct Planned {
    update: UpdateCheckpoints,
    at: Duration,
}

impl ReaderLease {
    pub(crate) fn new(lifetime: Duration) -> ReaderLease {
        ReaderLease {
            lifetime,
            pins: None,
            trees: BTreeMap::new(),
            pending: None,
            refreshed: Duration::ZERO,
        }
    }

    /// The version that reads may use.
    pub(crate) fn version(&self) -> Option<&Arc<Manifest>> {
        self.pins.as_ref()?.newest()
    }

    /// `levels` are the tables of `version`, which new reads use from now on.
    pub(crate) fn reads(&mut self, version: ManifestId, levels: &Arc<Levels>) {
        self.trees.insert(version, Arc::downgrade(levels));
    }

    /// Whether `newest` may be read only after [`ReaderLease::keep`].
    pub(crate) fn is_behind(&self, newest: &Manifest) -> bool {
        self.pins.as_ref().is_none_or(|pins| pins.is_behind(newest))
    }

    /// Whether the checkpoint of the version that new reads use is present in `state`.
    pub(crate) fn is_held(&self, state: &Manifest) -> bool {
        let newest = self.pins.as_ref().and_then(|pins| pins.checkpoints().last());
        newest.is_some_and(|id| state.checkpoint(id).is_some())
    }

    /// Whether half of the lifetime is over, something is left to be let go, or an outcome is open.
    pub(crate) fn is_due(&mut self, now: Duration) -> bool {
        self.forget_unread();
        let unread = self.pins.as_ref().is_some_and(Pins::has_unread);
        let old = self.pins.is_some() && now.saturating_sub(self.refreshed) >= self.lifetime / 2;
        self.pending.is_some() || unread || old
    }

    /// One commit: pins `newest` if its tables are others than those held, lets go of what nobody
    /// reads, and refreshes the rest. `walked`: the last WAL id that the reader walked to. Answers
    /// the state after it. When it fails, everything that was held counts as held.
    ///
    /// # Errors
    /// Expired when what was held is gone; Denied, Timeout, Unavailable, NotFound, Corruption.
    pub(crate) async fn keep(
        &mut self,
        objects: &Objects,
        newest: &Arc<Manifest>,
        walked: WalId,
    ) -> Result<Arc<Manifest>> {
        // Of an open outcome first: another edit on top would not know what is held.
        let mut known = Arc::clone(newest);
        if let Some(planned) = self.pending.clone() {
            known = self.commit(objects, planned, &known).await?;
        }
        let now = objects.env.clock.monotonic();
        if self.is_behind(&known) || self.is_due(now) {
            let planned = self.plan(&objects.env, &known, walked);
            known = self.commit(objects, planned, &known).await?;
        }
        Ok(known)
    }

    fn plan(&mut self, env: &Env, newest: &Manifest, walked: WalId) -> Planned {
        self.forget_unread();
        let created_at = env.clock.now();
        let lifetime = u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX);
        let expires_at = Some(UnixMillis(created_at.0.saturating_add(lifetime)));
        let add = self.is_behind(newest).then(|| NewCheckpoint {
            id: CheckpointId(env.random_u128()),
            created_at,
            expires_at,
            wal_id_last_seen: Some(walked),
            owner: CheckpointOwner::Reader,
            ..NewCheckpoint::default()
        });
        let pins = self.pins.as_ref();
        let update = UpdateCheckpoints {
            release: pins.map(|pins| pins.releases(add.is_some())).unwrap_or_default(),
            refresh: pins.map(|pins| pins.checkpoints().collect()).unwrap_or_default(),
            expires_at,
            add,
        };
        Planned { update, at: env.clock.monotonic() }
    }

    async fn commit(
        &mut self,
        objects: &Objects,
        planned: Planned,
        newest: &Arc<Manifest>,
    ) -> Result<Arc<Manifest>> {
        let Planned { update, at } = self.pending.insert(planned).clone();
        let added = update.add.as_ref().map(|new| new.id);
        let edit = Edit::UpdateCheckpoints(update);
        let committed = commit_alone(objects, edit, Arc::clone(newest)).await;
        let state = match committed {
            Err(error) if error.kind() == ErrorKind::Denied && self.pins.is_none() => {
                return Err(may_not_write(error));
            }
            committed => committed?,
        };
        let version = match added {
            None => None,
            Some(id) => Some((id, version_of(objects, &state, id).await?)),
        };
        self.pending = None;
        if !cfg!(mutation = "refresh_forgotten") {
            self.refreshed = at;
        }
        match (&mut self.pins, version) {
            (Some(pins), version) => pins.committed(&state, version),
            (none, Some((id, version))) => *none = Some(Pins::new(id, version)),
            (None, None) => {}
        }
        Ok(state)
    }

    /// Gives back what is held, whoever still reads through it: the reader is being closed.
    ///
    /// # Errors
    /// Denied, Timeout, Unavailable; it expires by itself then.
    pub(crate) async fn give_back(
        &mut self,
        objects: &Objects,
        newest: &Arc<Manifest>,
    ) -> Result<()> {
        // What an open outcome may have added goes as well: it is there by now, or its number is
        // taken by this commit, and then it never comes.
        let perhaps = self.pending.take().and_then(|planned| planned.update.add);
        let held = self.pins.take();
        let held = held.iter().flat_map(Pins::checkpoints).chain(perhaps.map(|new| new.id));
        let release: Vec<_> = held
            .map(|checkpoint| siltstone_manifest::Release { checkpoint, needed: Vec::new() })
            .collect();
        if release.is_empty() {
            return Ok(());
        }
        let update = UpdateCheckpoints { release, ..UpdateCheckpoints::default() };
        let edit = Edit::UpdateCheckpoints(update);
        commit_alone(objects, edit, Arc::clone(newest)).await.map(|_| ())
    }

    fn forget_unread(&mut self) {
        self.trees.retain(|_, levels| levels.strong_count() > 0);
        if let Some(pins) = &mut self.pins {
            pins.forget_unread(|version| self.trees.contains_key(&version));
        }
    }
}

/// The version that `checkpoint`, present in `state`, names.
async fn version_of(
    objects: &Objects,
    state: &Arc<Manifest>,
    checkpoint: CheckpointId,
) -> Result<Arc<Manifest>> {
    // Absent only where a test has dropped the rule that adds it.
    let id = state.checkpoint(checkpoint).map_or(state.id, |one| one.manifest_id);
    if id == state.id {
        return Ok(Arc::clone(state));
    }
    objects.manifest(id).await?.ok_or_else(|| expired(checkpoint))
}

/// A checkpoint that was there is gone.
pub(crate) fn expired(checkpoint: CheckpointId) -> Error {
    siltstone_manifest::Refusal::Expired { checkpoint }.into()
}

fn may_not_write(error: Error) -> Error {
    Error::new(
        ErrorKind::Denied,
        "a reader writes its checkpoint to the manifest, and may not; allow it to create objects \
         under manifest/, or open it with reader_checkpoint=False",
    )
    .caused_by(error)
}
