//! The newest manifest that can be read, and what has to be done so that it counts.

use super::report::Damage;
use crate::manifests::client::look;
use crate::manifests::missing::no_database;
use crate::manifests::objects::Objects;
use siltstone_base::{Error, ErrorKind, ManifestId, ObjectName, Result};
use siltstone_manifest::Manifest;
use std::sync::Arc;

/// What makes `base` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// It does.
    None,
    /// It is the newest, and an older one is missing: a boundary up to here.
    Boundary(ManifestId),
    /// Others stand behind it, the last under this number, or are gone.
    Void(ManifestId),
}

/// The manifests.
pub(super) struct ManifestChain {
    /// The newest that can be read.
    pub(super) base: Arc<Manifest>,
    pub(super) remedy: Remedy,
    pub(super) damage: Vec<Damage>,
    /// Those that are there and cannot be read.
    pub(super) unreadable: Vec<ManifestId>,
    /// All that are there, ascending.
    pub(super) listed: Vec<ManifestId>,
}

impl ManifestChain {
    /// The log says that a newer manifest was there.
    pub(super) fn lost_newest(&mut self, base: Arc<Manifest>) {
        let name = ObjectName::Manifest(base.next_id());
        let what = "is missing: the log holds objects of a writer that no manifest knows";
        self.damage.push(Damage::new(name, what));
        self.remedy = Remedy::Void(base.id);
        self.base = base;
    }
}

/// # Errors
/// NotFound without a database; Corruption where no manifest is left to go on from; Unsupported for
/// one of a newer version; those of the store.
pub(super) async fn inspect(objects: &Objects) -> Result<ManifestChain> {
    let trouble = match look(objects, None).await {
        Ok(Some(base)) => {
            let (listed, _) = objects.manifests_listed().await?;
            let (damage, unreadable) = (Vec::new(), Vec::new());
            return Ok(ManifestChain { base, remedy: Remedy::None, damage, unreadable, listed });
        }
        Ok(None) => return Err(no_database(&objects.env)),
        Err(error) if error.kind() == ErrorKind::Corruption => error,
        Err(error) => return Err(error),
    };
    let (listed, boundary) = objects.manifests_listed().await?;
    let (mut found, mut unreadable, mut damage) = (Vec::new(), Vec::new(), Vec::new());
    for id in listed.iter().copied().filter(|id| *id > boundary) {
        match objects.manifest(id).await {
            Ok(Some(manifest)) => found.push(manifest),
            // Freed since it was listed.
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Corruption => {
                unreadable.push(id);
                damage.push(Damage::new(ObjectName::Manifest(id), error));
            }
            Err(error) => return Err(error),
        }
    }
    let last = listed.last().copied().unwrap_or_default();
    let Some(base) = found.last().cloned() else { return Err(none_left(trouble)) };
    if found.iter().any(|one| one.database != base.database) {
        return Err(Error::corruption(
            "manifests of two databases stand here, and one of them is damaged: nothing says \
             which is to go on; put the damaged one back, from the store's older versions or a \
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
    Ok(ManifestChain { base, remedy, damage, unreadable, listed })
}

/// The first number above the boundary that is not there.
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
        "no manifest is left to go on from: those that can be read, if any, may have been freed; \
         put the newest one back, from the store's older versions or a backup",
    )
    .caused_by(trouble)
}
