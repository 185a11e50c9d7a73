//! What a round did, by kinds of objects.

use crate::io::store::{Listed, SweepReport};
use siltstone_base::{DatabaseId, Error, ErrorKind, ManifestId, ObjectName, Result, UnixMillis};
use siltstone_manifest::gc::CollectDecision;
use siltstone_manifest::gc::fate::Alive;
use std::collections::BTreeMap;
use std::time::Duration;

/// Kinds of objects, as a report counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GcClass {
    /// Manifests.
    Manifests,
    /// WAL objects, fences among them.
    Wal,
    /// Tables, of L0 and of sorted runs.
    Tables,
    /// Records of compaction jobs.
    Records,
    /// Boundary objects of all three.
    Boundaries,
    /// Scratch that told the store's time, or what it can do; and what ingest jobs staged.
    Others,
}

impl GcClass {
    /// Every class, in the order of a report.
    pub const ALL: [GcClass; 6] = [
        GcClass::Manifests,
        GcClass::Wal,
        GcClass::Tables,
        GcClass::Records,
        GcClass::Boundaries,
        GcClass::Others,
    ];

    /// In a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            GcClass::Manifests => "manifests",
            GcClass::Wal => "wal",
            GcClass::Tables => "tables",
            GcClass::Records => "records",
            GcClass::Boundaries => "boundaries",
            GcClass::Others => "others",
        }
    }

    /// The class of an object.
    #[must_use]
    pub fn of(name: ObjectName) -> GcClass {
        match name {
            ObjectName::Manifest(_) => GcClass::Manifests,
            ObjectName::Wal(_) => GcClass::Wal,
            ObjectName::Compacted(_) | ObjectName::IngestSst(..) => GcClass::Tables,
            ObjectName::Compactions(_) => GcClass::Records,
            ObjectName::ManifestBoundary(_)
            | ObjectName::WalBoundary(_)
            | ObjectName::CompactionsBoundary(_) => GcClass::Boundaries,
            ObjectName::IngestManifest(_)
            | ObjectName::ProbeRecord
            | ObjectName::ProbeScratch(_)
            | ObjectName::DamagedManifest(..)
            | ObjectName::DamagedWal(..)
            | ObjectName::DamagedTable(..) => GcClass::Others,
        }
    }
}

/// What became of the objects of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects deleted; in a dry run, those that would be.
    pub deleted: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Deletes that failed; the next round meets them again.
    pub failed: u64,
    /// Deletes that the store refused.
    pub denied: u64,
    /// Objects that will go once the grace period is over.
    pub young: u64,
    /// Objects that somebody needs.
    pub alive: u64,
}

/// Objects of one class that stay for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetainedObjects {
    /// What they are.
    pub class: GcClass,
    /// Why they stay.
    pub why: &'static str,
    /// How many.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// An object that a dry run would delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcObject {
    /// Its name.
    pub name: ObjectName,
    /// Its length.
    pub bytes: u64,
    /// Time since it was stored.
    pub age: Duration,
    /// Why it is dead.
    pub why: &'static str,
}

/// What one round did, or would do.
#[derive(Clone, Debug, Default)]
pub struct GcReport {
    /// Identity of the database.
    pub database: DatabaseId,
    /// The newest manifest, which the round went by.
    pub manifest_id: ManifestId,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Expired checkpoints that were revoked.
    pub revoked: u64,
    /// Versions that readers had leased, and whose leases had run out and were dropped.
    pub unleased: u64,
    /// Whether the round ended early, since another collector was ahead of it.
    pub overtaken: bool,
    /// What was done to each class; those of which there is nothing are missing.
    pub classes: BTreeMap<GcClass, Collected>,
    /// What stays, and why.
    pub stays: Vec<RetainedObjects>,
    /// Bytes that stay because consumers of the change feed have yet to read them.
    pub held_by_feed: u64,
    /// What would go, of a dry run; oldest names first.
    pub objects: Vec<GcObject>,
    /// Uploads that were never finished and whose processes died (local folders).
    pub swept: SweepReport,
    /// The first delete that did not succeed.
    pub trouble: Option<Error>,
}

impl GcReport {
    /// Sums over all classes.
    #[must_use]
    pub fn total(&self) -> Collected {
        self.classes.values().fold(Collected::default(), |sum, one| Collected {
            deleted: sum.deleted + one.deleted,
            bytes: sum.bytes + one.bytes,
            failed: sum.failed + one.failed,
            denied: sum.denied + one.denied,
            young: sum.young + one.young,
            alive: sum.alive + one.alive,
        })
    }

    /// Takes up what was deleted before, in the same round.
    pub(super) fn add(&mut self, before: &GcReport) {
        for (class, gone) in &before.classes {
            let sum = self.classes.entry(*class).or_default();
            sum.deleted += gone.deleted;
            sum.bytes += gone.bytes;
        }
    }

    pub(super) fn class(&mut self, name: ObjectName) -> &mut Collected {
        self.classes.entry(GcClass::of(name)).or_default()
    }

    /// Takes note of what stays. `fates` are those of `listed`, in its order.
    pub(super) fn note_stays(&mut self, listed: &[Listed], fates: &[CollectDecision]) {
        let mut stays: BTreeMap<(GcClass, &'static str), (u64, u64)> = BTreeMap::new();
        for (object, fate) in listed.iter().zip(fates) {
            match fate {
                CollectDecision::Alive(_) => self.class(object.name).alive += 1,
                CollectDecision::Young => self.class(object.name).young += 1,
                CollectDecision::Dead(_) => continue,
            }
            let sum = stays.entry((GcClass::of(object.name), fate.as_str())).or_default();
            *sum = (sum.0 + 1, sum.1 + object.bytes);
        }
        let line =
            |((class, why), (objects, bytes))| RetainedObjects { class, why, objects, bytes };
        self.stays = stays.into_iter().map(line).collect();
        let held = listed
            .iter()
            .zip(fates)
            .filter(|(_, fate)| **fate == CollectDecision::Alive(Alive::Held));
        self.held_by_feed = held.map(|(object, _)| object.bytes).sum();
    }

    /// Takes note of what would go.
    pub(super) fn note_dead(
        &mut self,
        listed: &[Listed],
        fates: &[CollectDecision],
        now: UnixMillis,
    ) {
        for (object, fate) in listed.iter().zip(fates) {
            if !matches!(fate, CollectDecision::Dead(_)) {
                continue;
            }
            let age = Duration::from_millis(now.0.saturating_sub(object.modified.0));
            let Listed { name, bytes, .. } = *object;
            self.objects.push(GcObject { name, bytes, age, why: fate.as_str() });
            let class = self.class(name);
            class.deleted += 1;
            class.bytes += bytes;
        }
    }

    /// Takes note of one delete.
    pub(super) fn note_delete(&mut self, name: ObjectName, bytes: u64, answer: Result<()>) {
        let class = self.class(name);
        match answer {
            Ok(()) => {
                class.deleted += 1;
                class.bytes += bytes;
            }
            Err(error) => {
                match error.kind() {
                    ErrorKind::Denied => class.denied += 1,
                    _ => class.failed += 1,
                }
                self.trouble.get_or_insert_with(|| error.with("object", name));
            }
        }
    }
}
