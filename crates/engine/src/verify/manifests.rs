//! Verifies the chain of manifests, the manifests that checkpoints pin, and the boundaries.
//!
//! A listing is not a snapshot: manifests are committed during and after it, and older ones are
//! freed behind a boundary that moves. A manifest that a listing lacks is therefore read by its
//! name, and a problem at or below the boundary, as of that moment, is ignored.

use super::{PARALLEL_OBJECTS, Verify, is_damage};
use futures::StreamExt;
use futures::stream;
use siltstone_base::name::prefix;
use siltstone_base::sst::SstLocation;
use siltstone_base::{DatabaseId, ErrorKind, ManifestId, ObjectName, Result, SstDescriptor};
use siltstone_manifest::Manifest;
use siltstone_manifest::codec::decode_boundary;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A number of a manifest, with its description.
type Number = (&'static str, fn(&Manifest) -> u64);

/// Numbers that are compared from one manifest to the next. None may decrease.
const GROWS: [Number; 6] = [
    ("the writer's epoch", |m| m.writer_epoch.get()),
    ("the compactor's epoch", |m| m.compactor_epoch.get()),
    ("the replay point", |m| m.replay_from.get()),
    ("the last WAL id seen", |m| m.wal_id_last_seen.get()),
    ("the flushed sequence number", |m| m.flushed_seq.get()),
    ("the order of L0", |m| m.last_l0_order),
];

impl Verify<'_> {
    /// Reads and decodes the newest manifest, and reports its problem. `None` if it is missing or
    /// damaged.
    ///
    /// # Errors
    /// Errors of the store; Unsupported for an undamaged manifest that this version cannot read.
    pub(super) async fn manifest(&mut self, id: ManifestId) -> Result<Option<Arc<Manifest>>> {
        let found = self.objects.manifest(id).await;
        if let Err(error) = &found
            && error.kind() == ErrorKind::Unsupported
        {
            return Err(error.clone());
        }
        self.judge(id, found)
    }

    /// Checks all manifests above the boundary in order: none is missing, each belongs to this
    /// database, and numbers that only grow do not decrease.
    pub(super) async fn chain(&mut self, newest: &Arc<Manifest>) -> Result<()> {
        // Another listing has the manifests that were committed between the listing and the newest
        // manifest.
        let (now, boundary) = self.objects.manifests_listed().await?;
        let listed = self.listed.keys().filter_map(|name| match name {
            ObjectName::Manifest(id) => Some(*id),
            _ => None,
        });
        let present: BTreeSet<ManifestId> =
            listed.chain(now).filter(|id| boundary < *id && *id < newest.id).collect();
        self.named.extend(present.iter().map(|id| ObjectName::Manifest(*id)));
        let mut expected = boundary.next();
        let mut unlisted = BTreeSet::new();
        for id in present.iter().copied().chain([newest.id]) {
            if expected < id {
                unlisted.extend(self.unlisted(expected, id).await?);
            }
            // The first manifest contains the number of the one that follows it.
            let first = if id == ManifestId::FIRST { self.state(id).await? } else { None };
            expected = first.map_or(id.next(), |first| first.next_id());
        }
        let present = present.into_iter().chain(unlisted).collect();
        let mut before: Option<Arc<Manifest>> = None;
        for ids in chunks(&present) {
            for (id, found) in self.read_ahead(ids).await {
                let damaged = found.as_ref().is_err_and(|error| is_damage(error.kind()));
                if (damaged || matches!(found, Ok(None))) && self.was_freed(id).await? {
                    before = None;
                    continue;
                }
                let Some(manifest) = self.judge(id, found)? else {
                    before = None;
                    continue;
                };
                before = self.follows_on(before.as_deref(), manifest).await?;
            }
        }
        self.follows_on(before.as_deref(), Arc::clone(newest)).await.map(drop)
    }

    /// Whether the manifest `id` is behind the boundary now. An object there, such as the late
    /// create of a suspended process, does not count.
    async fn was_freed(&self, id: ManifestId) -> Result<bool> {
        Ok(id <= self.objects.manifests_listed().await?.1)
    }

    async fn read_ahead(&self, ids: Vec<ManifestId>) -> Vec<(ManifestId, ManifestRead)> {
        let reads = ids.into_iter().map(|id| async move { (id, self.objects.manifest(id).await) });
        stream::iter(reads).buffered(PARALLEL_OBJECTS).collect().await
    }

    /// Counts a manifest that was read, or reports its problem.
    fn judge(&mut self, id: ManifestId, found: ManifestRead) -> Result<Option<Arc<Manifest>>> {
        let name = ObjectName::Manifest(id);
        match found {
            Ok(Some(manifest)) => {
                let bytes = self.listed.get(&name).copied().unwrap_or_default();
                self.report.manifests += 1;
                self.report.bytes_read += bytes;
                self.progress.add(bytes);
                Ok(Some(manifest))
            }
            Ok(None) => {
                self.report.problem(name, None, "is missing, although it was just listed");
                Ok(None)
            }
            Err(error) if is_damage(error.kind()) => {
                self.report.problem(name, None, error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Finds manifests from `from` to before `to` that the listings lacked but that exist, because
    /// a store's listing may be stale. Reports those that do not exist, unless they were freed
    /// since.
    async fn unlisted(&mut self, from: ManifestId, to: ManifestId) -> Result<BTreeSet<ManifestId>> {
        let (mut found, mut at) = (BTreeSet::new(), from);
        while at < to {
            if self.is_there(at).await? {
                found.insert(at);
                self.named.insert(ObjectName::Manifest(at));
                at = at.next();
                continue;
            }
            // Listed after the manifest was missed, so manifests that were freed in between are
            // behind this boundary.
            let (listed, boundary) = self.objects.manifests_listed().await?;
            if at <= boundary {
                at = boundary.next();
                continue;
            }
            let next = listed.into_iter().find(|id| *id > at).unwrap_or(to).min(to);
            let last = next.minus(1);
            let what = format_args!(
                "is missing, up to number {last}, and no boundary shows that it was freed"
            );
            self.report.problem(ObjectName::Manifest(at), None, what);
            at = next;
        }
        Ok(found)
    }

    /// Whether an object with this number exists.
    async fn is_there(&self, id: ManifestId) -> Result<bool> {
        Ok(self.objects.get(ObjectName::Manifest(id)).await?.is_some())
    }

    /// Compares a manifest with the one before it, and records the tables that it names. Returns
    /// the manifest if it counts.
    async fn follows_on(
        &mut self,
        before: Option<&Manifest>,
        manifest: Arc<Manifest>,
    ) -> Result<Option<Arc<Manifest>>> {
        let mut wrong = Vec::new();
        if manifest.database != self.report.database {
            wrong.push("belongs to another database".to_owned());
        }
        for (what, of) in GROWS {
            let Some(before) = before else { break };
            let (was, is) = (of(before), of(&manifest));
            if is < was {
                wrong.push(format!("{what} went back from {was} to {is}"));
            }
        }
        if !wrong.is_empty() && self.was_freed(manifest.id).await? {
            return Ok(None);
        }
        for what in wrong {
            self.report.problem(ObjectName::Manifest(manifest.id), None, what);
        }
        self.name_all(&manifest);
        Ok(Some(manifest))
    }

    /// Records what readers of this manifest need: its tables, and the content of its log.
    pub(super) fn name_all(&mut self, manifest: &Manifest) {
        let own = manifest.tables().filter(|table| table.location == SstLocation::Own);
        self.named.extend(own.map(SstDescriptor::name));
        let names = manifest.reserved.iter().chain(&manifest.left);
        self.named.extend(names.map(|id| ObjectName::Compacted(*id)));
    }

    /// Checks the manifests that present checkpoints and leases pin.
    pub(super) async fn checkpoints(&mut self, newest: &Arc<Manifest>) -> Result<()> {
        self.report.checkpoints = newest.checkpoints.len() as u64;
        for id in newest.pinned_versions().into_iter().filter(|id| *id != newest.id) {
            let name = ObjectName::Manifest(id);
            let counted = !self.named.insert(name);
            let found = self.objects.manifest(id).await;
            let wrong = match &found {
                Ok(Some(manifest)) if is_the_one(newest, manifest, self.report.database) => None,
                Ok(Some(_)) => Some("differs from the manifest that is pinned".to_owned()),
                Ok(None) => Some("a checkpoint or a lease pins it, and it is missing".to_owned()),
                Err(error) if is_damage(error.kind()) => Some(error.to_string()),
                Err(error) => return Err(error.clone()),
            };
            match (wrong, found) {
                (None, Ok(Some(manifest))) => {
                    self.report.manifests += u64::from(!counted);
                    self.name_all(&manifest);
                    self.states.push(manifest);
                }
                // The chain has reported it.
                (Some(_), Err(_)) if counted => {}
                // Otherwise it was released with its pin.
                (Some(what), _) if self.is_pinned_now(id).await? => {
                    self.report.problem(name, None, what);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a present checkpoint or lease pins the manifest `id` now.
    async fn is_pinned_now(&self, id: ManifestId) -> Result<bool> {
        let now = self.newest_now().await?;
        Ok(now.is_none_or(|now| now.pins(id)))
    }

    /// Checks that boundary objects agree with their names. Only the largest boundary of a folder
    /// counts, and none from before the database's own numbers (rule E1); others are orphans.
    pub(super) async fn boundaries(&mut self) -> Result<()> {
        let mut found: Vec<(ObjectName, u64)> = Vec::new();
        for name in self.listed.keys() {
            match name {
                ObjectName::ManifestBoundary(id) => found.push((*name, id.get())),
                ObjectName::WalBoundary(id) => found.push((*name, id.get())),
                ObjectName::CompactionsBoundary(id) => found.push((*name, *id)),
                _ => {}
            }
        }
        let first = self.report.database.counts_from();
        // The numbers of manifests continue after those of an earlier database at the same place.
        let counts = |name: &ObjectName| matches!(name, ObjectName::ManifestBoundary(_));
        found.retain(|(name, id)| counts(name) || id.saturating_add(1) >= first);
        for (name, id) in &found {
            let same =
                |other: &ObjectName| std::mem::discriminant(other) == std::mem::discriminant(name);
            if found.iter().any(|(other, larger)| same(other) && larger > id) {
                continue;
            }
            self.named.insert(*name);
            let Some(bytes) = self.read(*name).await? else {
                self.boundary_gone(*name).await?;
                continue;
            };
            self.report.boundaries += 1;
            self.boundary(*name, *id, &bytes);
        }
        Ok(())
    }

    /// Reports a missing boundary, unless there is a higher one: a boundary is deleted only then.
    async fn boundary_gone(&mut self, name: ObjectName) -> Result<()> {
        let folder = match name {
            ObjectName::ManifestBoundary(_) => prefix::MANIFEST,
            ObjectName::WalBoundary(_) => prefix::WAL,
            _ => prefix::COMPACTIONS,
        };
        let same =
            |other: &ObjectName| std::mem::discriminant(other) == std::mem::discriminant(&name);
        let passed = |other: &ObjectName| same(other) && *other > name;
        if !self.objects.names(folder).await?.iter().any(passed) {
            self.report.problem(name, None, "is missing, and there is no higher boundary");
        }
        Ok(())
    }

    fn boundary(&mut self, name: ObjectName, id: u64, bytes: &[u8]) {
        match decode_boundary(bytes) {
            Ok((envelope, says)) => {
                if says != id {
                    let text = format_args!("a boundary whose content is {says}");
                    self.report.problem(name, None, text);
                }
                let database = self.report.database;
                let other = envelope.database != database && database != DatabaseId::NONE;
                // An earlier database at this place ended there.
                let before = id.saturating_add(1) < database.counts_from();
                if other && !before {
                    self.report.problem(name, None, "belongs to another database");
                }
            }
            Err(error) => self.report.problem(name, None, error),
        }
    }
}

type ManifestRead = Result<Option<Arc<Manifest>>>;

/// Whether `found` is the manifest that checkpoints and leases of `newest` pin under its number
/// (rule L6).
fn is_the_one(newest: &Manifest, found: &Manifest, database: DatabaseId) -> bool {
    let checkpoints = newest.checkpoints.iter();
    let mut pins = checkpoints
        .filter(|one| one.manifest_id == found.id)
        .map(|one| one.manifest_attempt)
        .filter(|attempt| !attempt.is_none());
    found.database == database && pins.all(|attempt| attempt == found.attempt)
}

/// Splits the ids into groups that are read together.
fn chunks(ids: &BTreeSet<ManifestId>) -> impl Iterator<Item = Vec<ManifestId>> {
    let ids: Vec<ManifestId> = ids.iter().copied().collect();
    let portions = ids.len().div_ceil(PARALLEL_OBJECTS);
    (0..portions).map(move |portion| {
        ids.iter().skip(portion * PARALLEL_OBJECTS).take(PARALLEL_OBJECTS).copied().collect()
    })
}
