//! The report of a collection: counts and bytes by class of object. It never touches the store.

use siltstone_base::{DatabaseId, Error, ErrorKind, ManifestId, ObjectName, Result, UnixMillis};
use siltstone_manifest::gc::CollectDecision;
use siltstone_manifest::gc::fate::Alive;
use siltstone_store::{Listed, SweepReport};
use std::collections::BTreeMap;
use std::time::Duration;

/// Classes of objects that a report counts separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GcClass {
    /// Manifests.
    Manifests,
    /// WAL objects, including fences.
    Wal,
    /// Tables of L0 and of sorted runs, and tables that ingest jobs wrote.
    Tables,
    /// Records of compaction jobs.
    Records,
    /// Boundary objects of manifests, of the WAL and of compaction records.
    Boundaries,
    /// Probe objects (store time and capabilities), manifests of ingest jobs, and damaged objects
    /// that a repair copied.
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

    /// The name of the class, as reports print it.
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
            | ObjectName::DamagedTable(..)
            | ObjectName::DamagedCompactions(..)
            | ObjectName::EncryptionKey(_)
            | ObjectName::LogIdentity
            | ObjectName::TwoPhaseNamespace
            | ObjectName::TwoPhaseSource(..) => GcClass::Others,
        }
    }
}

/// Result of a collection for the objects of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects deleted. In a dry run: objects that a round would delete.
    pub deleted: u64,
    /// Total size of the deleted objects, in bytes.
    pub bytes: u64,
    /// Deletes that failed. The next round retries them.
    pub failed: u64,
    /// Deletes that the store refused.
    pub denied: u64,
    /// Objects that a round deletes once the grace period is over.
    pub young: u64,
    /// Objects that are still needed.
    pub alive: u64,
}

/// Objects of one class that are retained for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetainedObjects {
    /// Their class.
    pub class: GcClass,
    /// The reason why they are retained.
    pub why: &'static str,
    /// Number of objects.
    pub objects: u64,
    /// Their total size in bytes.
    pub bytes: u64,
}

/// An object that a dry run would delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcObject {
    /// Name of the object.
    pub name: ObjectName,
    /// Length in bytes.
    pub bytes: u64,
    /// Time since it was stored.
    pub age: Duration,
    /// The reason why the object can be deleted.
    pub why: &'static str,
}

/// Result of one round, or the preview of a dry run.
#[derive(Clone, Debug, Default)]
pub struct GcReport {
    /// Identity of the database.
    pub database: DatabaseId,
    /// The newest manifest, on which the round was based.
    pub manifest_id: ManifestId,
    /// Whether this was a dry run, which changes nothing.
    pub dry_run: bool,
    /// Number of expired checkpoints that were revoked.
    pub revoked: u64,
    /// Number of versions whose reader leases had expired and were dropped.
    pub unleased: u64,
    /// Whether the round ended early because another collector was ahead of it.
    pub overtaken: bool,
    /// Results by class. Classes without objects are absent.
    pub classes: BTreeMap<GcClass, Collected>,
    /// Retained objects, by class and reason.
    pub stays: Vec<RetainedObjects>,
    /// Bytes retained because consumers of the change feed have not read them yet.
    pub held_by_feed: u64,
    /// Objects that a dry run would delete, oldest names first.
    pub objects: Vec<GcObject>,
    /// Unfinished uploads of dead processes that were removed (local folders only).
    pub swept: SweepReport,
    /// Error of the first delete that did not succeed.
    pub trouble: Option<Error>,
}

impl GcReport {
    /// Returns the sums over all classes.
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

    /// Adds the deletes of an earlier part of the same round.
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

    /// Records the retained objects. `fates[i]` is the decision for `listed[i]`.
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

    /// Records the objects that a dry run would delete.
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

    /// Records the result of one delete.
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
