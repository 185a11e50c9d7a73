//! The chain of manifests, what checkpoints pin, and the boundaries.

use super::{PARALLEL_OBJECTS, Verify, is_damage};
use futures::StreamExt;
use futures::stream;
use siltstone_base::{DatabaseId, ErrorKind, ManifestId, ObjectName, Result};
use siltstone_manifest::Manifest;
use siltstone_manifest::codec::decode_boundary;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A number of a manifest, and what it is called.
type Number = (&'static str, fn(&Manifest) -> u64);

/// What a chain compares from one manifest to the next. Each only grows.
const GROWS: [Number; 6] = [
    ("the writer's epoch", |m| m.writer_epoch.get()),
    ("the compactor's epoch", |m| m.compactor_epoch.get()),
    ("the replay point", |m| m.replay_from.get()),
    ("the last WAL id seen", |m| m.wal_id_last_seen.get()),
    ("the flushed sequence number", |m| m.flushed_seq.get()),
    ("the order of L0", |m| m.last_l0_order),
];

impl Verify<'_> {
    /// Reads and decodes the newest manifest; what is wrong with it goes into the report. `None`
    /// when it is gone or damaged.
    ///
    /// # Errors
    /// The store's; Unsupported for one that is not damaged, and that this build cannot read.
    pub(super) async fn manifest(&mut self, id: ManifestId) -> Result<Option<Arc<Manifest>>> {
        let found = self.objects.manifest(id).await;
        if let Err(error) = &found
            && error.kind() == ErrorKind::Unsupported
        {
            return Err(error.clone());
        }
        self.judge(id, found)
    }

    /// Every manifest above the boundary, in order: none is missing, each is of this database, and
    /// what only grows does.
    pub(super) async fn chain(&mut self, newest: &Arc<Manifest>) -> Result<()> {
        let boundary = self.manifest_boundary();
        let present: BTreeSet<ManifestId> = self
            .listed
            .keys()
            .filter_map(|name| match name {
                ObjectName::Manifest(id) if boundary < *id && *id < newest.id => Some(*id),
                _ => None,
            })
            .collect();
        self.named.extend(present.iter().map(|id| ObjectName::Manifest(*id)));
        let mut expected = boundary.next();
        for id in &present {
            self.holes(expected, *id).await?;
            // What follows the first one stands in it.
            let first = if *id == ManifestId::FIRST { self.state(*id).await? } else { None };
            expected = first.map_or(id.next(), |first| first.next_id());
        }
        self.holes(expected, newest.id).await?;
        let mut before: Option<Arc<Manifest>> = None;
        for ids in chunks(&present) {
            for (id, found) in self.read_ahead(ids).await {
                let Some(manifest) = self.judge(id, found)? else {
                    before = None;
                    continue;
                };
                if manifest.database != self.report.database
                    && id <= self.manifests().await?.boundary
                {
                    // Freed since it was listed, and a sleeper's landed there.
                    before = None;
                    continue;
                }
                self.compare(before.as_deref(), &manifest);
                before = Some(manifest);
            }
        }
        self.compare(before.as_deref(), newest);
        Ok(())
    }

    async fn read_ahead(&self, ids: Vec<ManifestId>) -> Vec<(ManifestId, ManifestRead)> {
        let reads = ids.into_iter().map(|id| async move { (id, self.objects.manifest(id).await) });
        stream::iter(reads).buffered(PARALLEL_OBJECTS).collect().await
    }

    /// Counts what was read, or says what is wrong with it. One that was listed and is gone by now
    /// was freed meanwhile.
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
            Ok(None) => Ok(None),
            Err(error) if is_damage(error.kind()) => {
                self.report.problem(name, None, error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Manifests from `from` to before `to` are not there: a problem, unless they were freed since.
    async fn holes(&mut self, from: ManifestId, to: ManifestId) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let boundary = self.manifests().await?.boundary;
        if to.minus(1) > boundary {
            let first = ObjectName::Manifest(from.max(boundary.next()));
            let last = to.minus(1);
            self.report.problem(first, None, format_args!("is missing, up to number {last}"));
        }
        Ok(())
    }

    fn compare(&mut self, before: Option<&Manifest>, manifest: &Manifest) {
        let name = ObjectName::Manifest(manifest.id);
        if manifest.database != self.report.database {
            self.report.problem(name, None, "belongs to another database");
        }
        let Some(before) = before else { return };
        for (what, of) in GROWS {
            let (was, is) = (of(before), of(manifest));
            if is < was {
                let text = format_args!("{what} went back from {was} to {is}");
                self.report.problem(name, None, text);
            }
        }
    }

    /// The manifests that present checkpoints and leases pin.
    pub(super) async fn checkpoints(&mut self, newest: &Arc<Manifest>) -> Result<()> {
        self.report.checkpoints = newest.checkpoints.len() as u64;
        for id in newest.pinned_versions().into_iter().filter(|id| *id != newest.id) {
            let name = ObjectName::Manifest(id);
            let counted = !self.named.insert(name);
            match self.objects.manifest(id).await {
                Ok(Some(manifest)) => {
                    self.report.manifests += u64::from(!counted);
                    self.states.push(manifest);
                }
                Ok(None) if self.is_pinned_now(id).await? => {
                    self.report.problem(
                        name,
                        None,
                        "a checkpoint or a lease pins it, and it is missing",
                    );
                }
                // It went with what pinned it.
                Ok(None) => {}
                Err(error) if is_damage(error.kind()) && counted => {}
                Err(error) if is_damage(error.kind()) => self.report.problem(name, None, error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether a checkpoint or a lease that is present as of now pins the manifest `id`.
    async fn is_pinned_now(&self, id: ManifestId) -> Result<bool> {
        let now = self.newest_now().await?;
        Ok(now.is_none_or(|now| now.pinned_versions().contains(&id)))
    }

    fn manifest_boundary(&self) -> ManifestId {
        let ids = self.listed.keys().filter_map(|name| match name {
            ObjectName::ManifestBoundary(id) => Some(*id),
            _ => None,
        });
        ids.max().unwrap_or_default()
    }

    /// Boundary objects say what their names say. Only the largest of a folder counts, and none
    /// from before the database's own numbers (rule E1); others are orphans.
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
        // The manifests of a place go on where those of a database before this one ended.
        let counts = |name: &ObjectName| matches!(name, ObjectName::ManifestBoundary(_));
        found.retain(|(name, id)| counts(name) || id.saturating_add(1) >= first);
        for (name, id) in &found {
            let same =
                |other: &ObjectName| std::mem::discriminant(other) == std::mem::discriminant(name);
            if found.iter().any(|(other, larger)| same(other) && larger > id) {
                continue;
            }
            self.named.insert(*name);
            let Some(bytes) = self.read(*name).await? else { continue };
            self.report.boundaries += 1;
            self.boundary(*name, *id, &bytes);
        }
        Ok(())
    }

    fn boundary(&mut self, name: ObjectName, id: u64, bytes: &[u8]) {
        match decode_boundary(bytes) {
            Ok((envelope, says)) => {
                if says != id {
                    let text = format_args!("a boundary under another name says {says}");
                    self.report.problem(name, None, text);
                }
                let database = self.report.database;
                let other = envelope.database != database && database != DatabaseId::NONE;
                // A database that was here before this one ended there.
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

/// The ids in portions that are read together.
fn chunks(ids: &BTreeSet<ManifestId>) -> impl Iterator<Item = Vec<ManifestId>> {
    let ids: Vec<ManifestId> = ids.iter().copied().collect();
    let portions = ids.len().div_ceil(PARALLEL_OBJECTS);
    (0..portions).map(move |portion| {
        ids.iter().skip(portion * PARALLEL_OBJECTS).take(PARALLEL_OBJECTS).copied().collect()
    })
}
