//! The newest readable manifest, and what has to be done to make it the current one.

use super::report::Damage;
use crate::manifests::client::{look, lost_first};
use crate::manifests::missing::no_database;
use crate::manifests::objects::Objects;
use crate::tables::listed::ListedTables;
use siltstone_base::{Error, ErrorKind, ManifestId, ObjectName, Result, SstId};
use siltstone_manifest::Manifest;
use siltstone_manifest::codec::decode_boundary;
use std::collections::HashSet;
use std::sync::Arc;

/// The change that makes `base` the current manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Nothing is needed.
    None,
    /// It is the newest one, but an older one is missing: a boundary up to this number.
    Boundary(ManifestId),
    /// Later manifests exist, the last with this number, or are missing.
    Void(ManifestId),
}

/// The manifests.
pub(super) struct ManifestChain {
    /// The newest readable manifest. If it is at or below the boundary, it also has all its tables.
    pub(super) base: Arc<Manifest>,
    pub(super) remedy: Remedy,
    pub(super) damage: Vec<Damage>,
    /// Manifests that exist and cannot be read.
    pub(super) unreadable: Vec<ManifestId>,
    /// All manifests that exist, ascending.
    pub(super) listed: Vec<ManifestId>,
    /// If later manifests are void: number of tables that no manifest names any more, and their
    /// bytes.
    pub(super) unnamed: (u64, u64),
}

impl ManifestChain {
    /// Records that the log proves a newer manifest.
    pub(super) fn lost_newest(&mut self, base: Arc<Manifest>) {
        let name = ObjectName::Manifest(base.next_id());
        let what = "is missing: the log has objects of a writer that no manifest knows";
        self.damage.push(Damage::new(name, what));
        self.remedy = Remedy::Void(base.id);
        self.base = base;
    }
}

/// # Errors
/// NotFound without a database; Corruption if no manifest is left to continue from; Unsupported for
/// a manifest of a newer version; errors of the store.
pub(super) async fn inspect(objects: &Objects) -> Result<ManifestChain> {
    let trouble = match look(objects, None).await {
        Ok(Some(base)) => {
            let (listed, _) = objects.manifests_listed().await?;
            let (damage, unreadable) = (Vec::new(), Vec::new());
            let (remedy, unnamed) = (Remedy::None, (0, 0));
            return Ok(ManifestChain { base, remedy, damage, unreadable, listed, unnamed });
        }
        Ok(None) => None,
        Err(error) if error.kind() == ErrorKind::Corruption => Some(error),
        Err(error) => return Err(error),
    };
    let (listed, boundary) = objects.manifests_listed().await?;
    let trouble = match trouble {
        None => lost_first(objects).await?,
        trouble => trouble,
    };
    let Some(trouble) = trouble else {
        return behind_the_boundary(objects, listed, boundary).await;
    };
    let (mut found, mut unreadable, mut damage) = (Vec::new(), Vec::new(), Vec::new());
    for id in listed.iter().copied().filter(|id| *id > boundary) {
        match objects.manifest(id).await {
            Ok(Some(manifest)) => found.push(manifest),
            // It was freed since it was listed.
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Corruption => {
                unreadable.push(id);
                damage.push(Damage::new(ObjectName::Manifest(id), error));
            }
            Err(error) => return Err(error),
        }
    }
    let last = listed.last().copied().unwrap_or_default();
    let Some(base) = found.last().cloned() else {
        let tables = ListedTables::list(objects).await?;
        let base = older(objects, &listed, boundary, &tables).await?;
        let base = base.ok_or_else(|| none_left(trouble))?;
        let (remedy, unnamed) = (Remedy::Void(last), unnamed(&tables, objects, &base).await?);
        return Ok(ManifestChain { base, remedy, damage, unreadable, listed, unnamed });
    };
    if found.iter().any(|one| one.database != base.database) {
        return Err(Error::corruption(
            "there are manifests of two databases, and one of them is damaged: nothing shows \
             which one is current; restore the damaged one from the store's older versions or a \
             backup",
        )
        .caused_by(trouble));
    }
    let remedy = if base.id == last {
        damage.clear();
        unreadable.clear();
        damage.push(Damage::new(ObjectName::Manifest(before_gap(&found, boundary)), trouble));
        Remedy::Boundary(last.minus(1))
    } else {
        damage.retain(|one| one.object > ObjectName::Manifest(base.id));
        unreadable.retain(|id| *id > base.id);
        Remedy::Void(last)
    };
    let unnamed = match remedy {
        Remedy::Void(_) => unnamed(&ListedTables::list(objects).await?, objects, &base).await?,
        Remedy::None | Remedy::Boundary(_) => (0, 0),
    };
    Ok(ManifestChain { base, remedy, damage, unreadable, listed, unnamed })
}

/// Handles the case that no manifest is above the boundary: there never was a database, it was
/// destroyed, or its newest manifest is missing.
async fn behind_the_boundary(
    objects: &Objects,
    listed: Vec<ManifestId>,
    boundary: ManifestId,
) -> Result<ManifestChain> {
    if boundary.is_none() || objects.is_emptied(boundary).await? {
        return Err(no_database(&objects.env));
    }
    let name = ObjectName::Manifest(boundary.next());
    let what = "is missing, and so are all later ones: the boundary before it exists";
    let tables = ListedTables::list(objects).await?;
    let base = older(objects, &listed, boundary, &tables).await?;
    let base = base.ok_or_else(|| none_left(Error::corruption(what).with("object", name)))?;
    let (damage, unreadable) = (vec![Damage::new(name, what)], Vec::new());
    let (remedy, unnamed) = (Remedy::Void(boundary), unnamed(&tables, objects, &base).await?);
    Ok(ManifestChain { base, remedy, damage, unreadable, listed, unnamed })
}

/// The newest manifest at or below the boundary that was never freed and has all its tables. It is
/// the one directly below the boundary, whose object collectors retain, or one that a checkpoint or
/// a lease pins. Any other object there may be the late create of a suspended process.
async fn older(
    objects: &Objects,
    listed: &[ManifestId],
    boundary: ManifestId,
    tables: &ListedTables,
) -> Result<Option<Arc<Manifest>>> {
    let database = match objects.get(ObjectName::ManifestBoundary(boundary)).await? {
        Some(bytes) => decode_boundary(&bytes).ok().map(|(envelope, _)| envelope.database),
        None => None,
    };
    let mut pinned = HashSet::new();
    for id in listed.iter().copied().rev().filter(|id| *id <= boundary) {
        let manifest = match objects.manifest(id).await {
            Ok(Some(manifest)) => manifest,
            Ok(None) => continue,
            Err(error) if error.kind() == ErrorKind::Corruption => continue,
            Err(error) => return Err(error),
        };
        let is_of_this = database.is_none_or(|database| manifest.database == database);
        if !is_of_this || !manifest.initialized || manifest.destroyed_at.is_some() {
            continue;
        }
        let is_kept = manifest.next_id() == boundary.next();
        pinned.extend(manifest.pinned_versions());
        if (is_kept || pinned.contains(&id)) && tables.has_all_of(&manifest) {
            return Ok(Some(manifest));
        }
    }
    Ok(None)
}

/// Number and bytes of tables that neither `base` nor the manifests that it pins name.
async fn unnamed(tables: &ListedTables, objects: &Objects, base: &Manifest) -> Result<(u64, u64)> {
    let mut named: HashSet<SstId> = base.tables().map(|table| table.id).collect();
    named.extend(&base.left);
    for id in base.pinned_versions() {
        match objects.manifest(id).await {
            Ok(found) => named.extend(found.iter().flat_map(|one| one.tables()).map(|t| t.id)),
            Err(error) if error.kind() == ErrorKind::Corruption => {}
            Err(error) => return Err(error),
        }
    }
    let own = tables.iter().filter(|(name, _)| match name {
        ObjectName::Compacted(id) => !named.contains(id),
        _ => false,
    });
    Ok(own.fold((0, 0), |(count, sum), (_, bytes)| (count + 1, sum + bytes)))
}

/// The first missing number above the boundary.
fn before_gap(found: &[Arc<Manifest>], boundary: ManifestId) -> ManifestId {
    let mut expected = boundary.next();
    for one in found {
        if one.id != expected {
            return expected;
        }
        expected = one.next_id();
    }
    expected
}

fn none_left(trouble: Error) -> Error {
    Error::corruption(
        "no manifest is left to continue from: no older one, and none that a checkpoint pins, can \
         be read and has all its tables; restore the newest one from the store's older versions or \
         a backup",
    )
    .caused_by(trouble)
}
