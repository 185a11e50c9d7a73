//! The state of a database, as held by one manifest.
//!
//! A manifest is immutable. The next manifest is made from it by an [`Edit`](crate::Edit), checked
//! by the [`invariant`](crate::invariant)s, and becomes the state of the database when it is
//! created under the next free number. Each field may be changed only by certain processes:
//!
//! - the writer: `writer_epoch`, `writers`, `widest_window`, `replay_from`, `flushed_seq`,
//!   `commit_time`, `kept_fences`, `reserved`, `left`, `floor`, `remembered_ingests`,
//!   `ingest_apps`, `behind`, and additions to `l0` and `runs`;
//! - the compactor: `compactor_epoch`, `compactor_claim`, `runs`, `l0_last_compacted`,
//!   `finished_jobs`, and removals from `l0`;
//! - the collector: `ingest_horizon`, which only grows;
//! - every process: `checkpoints`, `leases`, `since_leases`, `holds` and with them `fed`,
//!   `pending_ingests`, and `wal_id_last_seen`, which only grows; `schema`, if there is one;
//!   `tables_since`, with every change of a table;
//! - a restore: `timelines`, and the fields that it sets to the values of the checkpoint; a
//!   destroy: `destroyed_at`;
//! - the process that stages the first ingest job: `features`, which every other edit preserves;
//! - exporters of a mirror: `mirror`, and all fields that a new head replaces (RFC 0033);
//! - creation only: `database`, `settings`, `ancestors`; also `request`, which the promotion of a
//!   mirror sets too.

pub(crate) mod behind;
pub(crate) mod clone;
mod fed;
pub(crate) mod forgotten;
mod history;
mod ingest;
pub(crate) mod mirror;
mod shared;
mod since;

pub use behind::{HISTORY_BEGINS, RESERVED_RUNS};
pub use fed::{FedIngest, FedSource};
pub use forgotten::{ForgottenApps, MOST_FORGOTTEN};
pub(crate) use history::goes_on;
pub use history::{HistoryUndone, follow_each_other};
pub use ingest::{
    IngestApp, IngestOutcome, MOST_APPS, MOST_PENDING, MOST_REMEMBERED, PendingIngest,
    RememberedIngest,
};
pub use mirror::{Mirror, MirrorHead};
pub use shared::{Hold, Lease, LeasedVersion, LogPlace, MOST_LEASED, MOST_LEASES, Timeline};
pub use since::{Cover, MOST_SINCE_LEASES, SinceLease};

use crate::features::Features;
use crate::layer::Layer;
use bytes::Bytes;
use siltstone_base::id::NUMBERS_A_MILLI;
use siltstone_base::limits::MAX_PARALLEL_WRITES;
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Epoch, Error, JobId, ManifestId, RequestId, Result, Seq,
    SstDescriptor, SstId, UnixMillis, WalId, WalStore,
};

/// The claim recorded when a compactor has released its epoch. No claim has this value: 128 random
/// bits are never all ones.
pub(crate) const RELEASED: AttemptId = AttemptId(u128::MAX);

/// Number of writer records kept: enough for a claim with an unknown outcome to find its own record
/// again. A claim whose record was dropped has been overtaken that many times, and ends as fenced
/// with or without its record.
pub const WRITER_RECORDS: usize = 16;

/// Metadata key in the pin of a clone; its value is the location of the clone (rule K8, RFC 0029).
pub const CLONE_AT: &str = "clone at";

/// The whole state of a database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Manifest {
    /// Its own number; [`Manifest::next_id`] is the number of the next one.
    pub id: ManifestId,
    /// The attempt that wrote it; none while it is only planned ([`Manifest::written_as`]).
    pub attempt: AttemptId,
    /// Identity of the database, made when it was created (rule F8).
    pub database: DatabaseId,
    /// Features that a program must know, and unknown data that every commit preserves.
    pub features: Features,
    /// Whether creation has finished. A clone starts with `false`.
    pub initialized: bool,
    /// When the database was destroyed. After that only clean-up may be committed.
    pub destroyed_at: Option<UnixMillis>,
    /// Settings that every process which opens the database must agree on.
    pub settings: Settings,
    /// The serialised schema of keys and values; opaque in this crate.
    pub schema: Option<Bytes>,
    /// The store of the WAL; `None`: the store of all other objects.
    pub wal_store: Option<WalStore>,
    /// Databases that contain tables of this one, in ascending order of number
    /// ([`SstLocation`](siltstone_base::sst::SstLocation) refers to that number).
    pub ancestors: Vec<Ancestor>,
    /// The largest ancestor number ever assigned.
    pub last_ancestor: u32,
    /// The request that created a clone or promoted a mirror.
    pub request: Option<RequestId>,
    /// Set for a mirror: only exports change it, and it has no writer until it is promoted.
    pub mirror: Option<Mirror>,

    /// The epoch of the newest writer; none before the first writer.
    pub writer_epoch: Epoch,
    /// The records of the newest writers, in ascending order of epoch, at most [`WRITER_RECORDS`].
    pub writers: Vec<WriterRecord>,
    /// The largest `max_parallel_writes` of all writers so far, including writers whose records
    /// were dropped: W of rule F3. 0 before the first writer.
    pub widest_window: u64,
    /// Names that the newest writer may give to tables that it will upload (rule R1).
    pub reserved: Vec<SstId>,
    /// Names of tables of large batches that the log contains or may come to contain: of this
    /// writer, and of older writers as long as their log may be replayed (rule N15).
    pub left: Vec<SstId>,
    /// The oldest sequence number that the writer's snapshots need (rule C1); never above
    /// `flushed_seq`.
    pub floor: Seq,

    /// The next WAL id to read in a replay. Never strictly inside the gap of a kept fence.
    pub replay_from: WalId,
    /// The largest WAL id that any committing process has seen. Only grows.
    pub wal_id_last_seen: WalId,
    /// Entries up to this sequence number are in tables; a replay skips rows at or below it (rule
    /// N4).
    pub flushed_seq: Seq,
    /// The latest commit time of an entry in tables: no later commit has an earlier time (rule W2).
    pub commit_time: UnixMillis,
    /// Fences that must never be collected (rule F5), in ascending order of id.
    pub kept_fences: Vec<KeptFence>,

    /// The largest order ever assigned to an L0 entry.
    pub last_l0_order: u64,
    /// L0, newest first: orders strictly descend.
    pub l0: Vec<L0Entry>,
    /// The newest table that the last compaction of L0 removed from it.
    pub l0_last_compacted: Option<SstId>,
    /// Sorted runs, newest first: ids strictly descend; run 0 is the last one.
    pub runs: Vec<SortedRun>,
    /// Number of sequence numbers assigned to ingest jobs behind all other data (rule P6); `None`
    /// if the database does not accept such jobs. Only grows.
    pub behind: Option<u64>,
    /// The manifest that last changed a table, its layer, its visible range or its sequence number;
    /// none before the first (rule L1).
    pub tables_since: ManifestId,

    /// The epoch of the newest compactor; none before the first.
    pub compactor_epoch: Epoch,
    /// Identity of the claim of that compactor, by which it recognises its own claim; all ones once
    /// it has released the epoch.
    pub compactor_claim: AttemptId,
    /// Compaction jobs that have ended while their records may still exist (rule R2).
    pub finished_jobs: Vec<FinishedJob>,

    /// The present checkpoints. Objects that they reference are alive even if they have expired
    /// (rule C3).
    pub checkpoints: Vec<Checkpoint>,
    /// Point leases shared by readers; they keep objects alive as checkpoints do. At most
    /// [`MOST_LEASES`].
    pub leases: Vec<Lease>,
    /// Since-leases: each covers one version and all later ones. Ascending, at most
    /// [`MOST_SINCE_LEASES`].
    pub since_leases: Vec<SinceLease>,
    /// Holds of change feed consumers on the WAL.
    pub holds: Vec<Hold>,
    /// Ingests whose source tables are still read by a change feed.
    pub fed: Vec<FedIngest>,
    /// Histories that began with a restore or a clone, oldest first.
    pub timelines: Vec<Timeline>,

    /// Ingest jobs that wait to be installed by the writer, at most [`MOST_PENDING`].
    pub pending_ingests: Vec<PendingIngest>,
    /// Ingest jobs that have ended, at most [`MOST_REMEMBERED`].
    pub remembered_ingests: Vec<RememberedIngest>,
    /// The last installed version of each application, at most [`MOST_APPS`].
    pub ingest_apps: Vec<IngestApp>,
    /// Applications whose last version was forgotten.
    pub forgotten_apps: ForgottenApps,
    /// Requests of jobs with a deadline before this are refused, and such jobs are forgotten.
    pub ingest_horizon: UnixMillis,
}

/// The claim of one writer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WriterRecord {
    /// The epoch of the writer.
    pub epoch: Epoch,
    /// Identity of the claim, random: distinguishes it from a rival claim of the same epoch number.
    pub claim: AttemptId,
    /// Maximum number of WAL objects in flight, 1 to [`MAX_PARALLEL_WRITES`].
    pub max_parallel_writes: u64,
    /// Whether the writer closed with every outcome known. Then no object of its epoch can still
    /// arrive.
    pub clean_close: bool,
    /// Whether it was opened briefly to install ingest jobs. Another opener may fence such a writer
    /// that did not close, and repeats its requests.
    pub transient: bool,
}

/// A fence that is kept for ever (rule F5): the object `id` of `epoch`; the WAL continues at
/// `next_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeptFence {
    /// The WAL id of the fence.
    pub id: WalId,
    /// The epoch that created it.
    pub epoch: Epoch,
    /// The WAL id at which the log continues; objects in between are ignored by every process.
    pub next_id: WalId,
}

impl KeptFence {
    /// Whether `id` lies strictly between the fence and the id at which the WAL continues.
    #[must_use]
    pub fn skips(&self, id: WalId) -> bool {
        self.id < id && id < self.next_id
    }
}

/// One layer of L0: a flush adds one table, an ingest one or more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct L0Entry {
    /// Age: larger is newer. Never reused.
    pub order: u64,
    /// Disjoint tables in ascending key order; at least one.
    pub tables: Vec<SstDescriptor>,
}

/// A sorted run: disjoint tables over the whole key space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SortedRun {
    /// Age: larger is newer; 0 is the last run.
    pub id: u32,
    /// Disjoint tables in ascending key order; at least one.
    pub tables: Vec<SstDescriptor>,
}

/// A job that was ended by a manifest commit. It is never resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FinishedJob {
    /// The job.
    pub job: JobId,
    /// The compactor epoch that ended it.
    pub epoch: Epoch,
}

/// The owner of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CheckpointOwner {
    /// A person or a program, by name or id.
    #[default]
    User,
    /// The writer of this epoch, for its own reads (rule C1). The next writer removes it.
    Writer(Epoch),
    /// A reader, as long as it refreshes the checkpoint (rule C2).
    Reader,
    /// A clone that reads this database's tables.
    Clone(DatabaseId),
    /// An owner of a kind that this version does not know. The checkpoint is preserved, and ends
    /// only by its expiry.
    Other {
        /// The number of the kind.
        kind: u8,
        /// The epoch stored with it.
        epoch: Option<Epoch>,
        /// The database stored with it.
        database: Option<DatabaseId>,
    },
}

/// A pinned version of the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// Its identity.
    pub id: CheckpointId,
    /// The manifest it pins.
    pub manifest_id: ManifestId,
    /// The attempt that wrote that manifest, so that no other object can be taken for it (rule L6);
    /// none while the manifest is only planned.
    pub manifest_attempt: AttemptId,
    /// First WAL id that it pins: the `replay_from` of that manifest.
    pub replay_from: WalId,
    /// Last WAL id that it pins; below `replay_from` if it pins none.
    pub wal_id_last_seen: WalId,
    /// When it was created.
    pub created_at: UnixMillis,
    /// When it expires and may be revoked; `None`: never.
    pub expires_at: Option<UnixMillis>,
    /// The checkpoint that it was created from.
    pub source: Option<CheckpointId>,
    /// The owner of the checkpoint.
    pub owner: CheckpointOwner,
    /// A name, unique among the checkpoints.
    pub name: Option<String>,
    /// Metadata attached by its creator.
    pub metadata: Vec<(String, String)>,
}

impl Checkpoint {
    /// Whether it pins the WAL object `id`.
    #[must_use]
    pub fn pins_wal(&self, id: WalId) -> bool {
        self.replay_from <= id && id <= self.wal_id_last_seen
    }

    /// Whether it pins any WAL.
    #[must_use]
    pub fn pins_any_wal(&self) -> bool {
        self.replay_from <= self.wal_id_last_seen
    }

    /// The URL of the clone whose pin this is; `None` for other checkpoints, for pins of version
    /// 0.1, and if the store of the clone has no URL.
    #[must_use]
    pub fn clone_place(&self) -> Option<&str> {
        let CheckpointOwner::Clone(_) = self.owner else { return None };
        let mut facts = self.metadata.iter();
        facts.find(|(name, _)| name == CLONE_AT).map(|(_, place)| place.as_str())
    }

    /// Whether it has expired at `now` and may be revoked.
    #[must_use]
    pub fn expired_at(&self, now: UnixMillis) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// A database whose tables a clone uses, under one pin in that database (rule K3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ancestor {
    /// The number by which table descriptors refer to it. Never reused.
    pub number: u32,
    /// Its identity.
    pub database: DatabaseId,
    /// Its location as a URL.
    pub location: String,
    /// The checkpoint in it that keeps the tables alive.
    pub checkpoint: CheckpointId,
}

/// Settings in the manifest, on which every process must agree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Name of the block codec for new tables.
    pub codec: String,
    /// Name of the filter kind of the tables.
    pub filter: String,
    /// Name of the merge operator; `None` until a writer opens with one: no operand was written.
    pub merge_operator: Option<String>,
    /// Name of the key schema; `None` for plain bytes.
    pub key_schema: Option<String>,
}

impl Settings {
    /// Whether a process with the settings `opener` may open a database with these settings. The
    /// codec is not compared, because every block records its own codec. A process without a merge
    /// operator may do everything else; the operator of the first writer that has one is recorded.
    /// A process without a key schema handles keys as bytes: the command line, collectors,
    /// compactors.
    ///
    /// # Errors
    /// Invalid, with the name of the setting and both values.
    pub fn check(&self, opener: &Settings) -> Result<()> {
        let none = || "none".to_owned();
        let operators = self.merge_operator.as_ref().zip(opener.merge_operator.as_ref());
        let schema = self.key_schema.as_ref().filter(|_| opener.key_schema.is_some());
        let pairs = [
            ("filter", Some(&self.filter), Some(&opener.filter)),
            ("merge_operator", operators.map(|pair| pair.0), operators.map(|pair| pair.1)),
            ("key_schema", schema, opener.key_schema.as_ref()),
        ];
        for (name, recorded, brought) in pairs {
            if recorded != brought {
                return Err(Error::invalid("the database was made with another setting")
                    .with("setting", name)
                    .with("recorded", recorded.cloned().unwrap_or_else(none))
                    .with("brought", brought.cloned().unwrap_or_else(none)));
            }
        }
        Ok(())
    }
}

impl Manifest {
    /// The first manifest of a new database: no writer, no tables. All later numbers of manifests
    /// and of the WAL count from the number given by `database`. So no late write or delete of an
    /// earlier database at the same location can hit a number of this one (rule E1).
    #[must_use]
    pub fn new_database(database: DatabaseId, settings: Settings) -> Manifest {
        let replay_from = WalId(database.counts_from());
        Manifest {
            id: ManifestId::FIRST,
            attempt: AttemptId::NONE,
            database,
            features: Features::default(),
            initialized: true,
            destroyed_at: None,
            settings,
            schema: None,
            wal_store: None,
            ancestors: Vec::new(),
            last_ancestor: 0,
            request: None,
            mirror: None,
            writer_epoch: Epoch::NONE,
            writers: Vec::new(),
            widest_window: 0,
            reserved: Vec::new(),
            left: Vec::new(),
            floor: Seq::NONE,
            replay_from,
            wal_id_last_seen: replay_from.minus(1),
            flushed_seq: Seq::NONE,
            commit_time: UnixMillis(0),
            kept_fences: Vec::new(),
            last_l0_order: 0,
            l0: Vec::new(),
            l0_last_compacted: None,
            runs: Vec::new(),
            behind: None,
            tables_since: ManifestId::NONE,
            compactor_epoch: Epoch::NONE,
            compactor_claim: AttemptId::NONE,
            finished_jobs: Vec::new(),
            checkpoints: Vec::new(),
            leases: Vec::new(),
            since_leases: Vec::new(),
            holds: Vec::new(),
            fed: Vec::new(),
            timelines: Vec::new(),
            pending_ingests: Vec::new(),
            remembered_ingests: Vec::new(),
            ingest_apps: Vec::new(),
            forgotten_apps: ForgottenApps::default(),
            ingest_horizon: UnixMillis(0),
        }
    }

    /// The first manifest of a new database where another one was destroyed, whose manifests end
    /// at `boundary`. Creating the next number decides which process creates it (rule D4).
    #[must_use]
    pub fn new_database_behind(
        boundary: ManifestId,
        database: DatabaseId,
        settings: Settings,
    ) -> Manifest {
        Manifest { id: boundary.next(), ..Manifest::new_database(database, settings) }
    }

    /// This manifest with the attempt that writes it, also in the pins on this manifest.
    #[must_use]
    pub fn written_as(mut self, attempt: AttemptId) -> Manifest {
        self.attempt = attempt;
        for checkpoint in &mut self.checkpoints {
            if checkpoint.manifest_id == self.id {
                checkpoint.manifest_attempt = attempt;
            }
        }
        for version in self.leases.iter_mut().flat_map(|lease| &mut lease.versions) {
            if version.manifest_id == self.id {
                version.manifest_attempt = attempt;
            }
        }
        self
    }

    /// The number of the next manifest: plus one, except after the first manifest of a database
    /// that counts from another number. The replay point gives that number; no later manifest has
    /// it.
    #[must_use]
    pub fn next_id(&self) -> ManifestId {
        let counts_from = ManifestId(self.replay_from.get());
        if self.id == ManifestId::FIRST && counts_from > self.id {
            return counts_from;
        }
        self.id.next()
    }

    /// Whether this number is the one that the database counts from, and not its first manifest.
    /// The replay point does not move before this manifest, and the first number of a millisecond
    /// is recognised by its low bits.
    #[must_use]
    pub fn begins_the_count(&self) -> bool {
        let first_of_a_milli = self.id.get().is_multiple_of(NUMBERS_A_MILLI);
        first_of_a_milli && self.replay_from.get() == self.id.get()
    }

    /// Whether this manifest was made from the manifest `before`.
    #[must_use]
    pub fn follows(&self, before: ManifestId) -> bool {
        before.next() == self.id || (before == ManifestId::FIRST && self.begins_the_count())
    }

    /// All layers with their tables, newest to oldest: L0 by order, then the runs.
    pub fn layers(&self) -> impl Iterator<Item = (Layer, &[SstDescriptor])> {
        let l0 = self.l0.iter().map(|entry| (Layer::L0(entry.order), entry.tables.as_slice()));
        l0.chain(self.runs.iter().map(|run| (Layer::Run(run.id), run.tables.as_slice())))
    }

    /// The tables of a layer; `None` if it does not exist.
    #[must_use]
    pub fn layer(&self, layer: Layer) -> Option<&[SstDescriptor]> {
        self.layers().find(|(each, _)| *each == layer).map(|(_, tables)| tables)
    }

    /// All tables: L0 newest first, then the runs.
    pub fn tables(&self) -> impl Iterator<Item = &SstDescriptor> {
        let l0 = self.l0.iter().flat_map(|entry| &entry.tables);
        l0.chain(self.runs.iter().flat_map(|run| &run.tables))
    }

    /// The ancestor with this number, if it exists.
    #[must_use]
    pub fn ancestor(&self, number: u32) -> Option<&Ancestor> {
        self.ancestors.iter().find(|ancestor| ancestor.number == number)
    }

    /// The manifest created by the last restore; none without a restore.
    #[must_use]
    pub fn restored_at(&self) -> ManifestId {
        self.timelines.last().map_or(ManifestId::NONE, |timeline| timeline.manifest_id)
    }

    /// The checkpoint `id`, if it is present.
    #[must_use]
    pub fn checkpoint(&self, id: CheckpointId) -> Option<&Checkpoint> {
        self.checkpoints.iter().find(|checkpoint| checkpoint.id == id)
    }

    /// The record of the newest writer; `None` before the first writer.
    #[must_use]
    pub fn last_writer(&self) -> Option<&WriterRecord> {
        self.writers.last()
    }

    /// Whether no object of the newest writer can still arrive: it closed cleanly, or there was no
    /// writer.
    #[must_use]
    pub fn closed_cleanly(&self) -> bool {
        self.last_writer().is_none_or(|writer| writer.clean_close)
    }

    /// Whether the writer before `epoch` had closed cleanly when `epoch` was claimed. The claim
    /// made sure that its record has not changed since. False if the record was dropped.
    pub(crate) fn follows_clean_close(&self, epoch: Epoch) -> bool {
        self.writers.iter().any(|record| record.epoch.next() == epoch && record.clean_close)
    }

    /// Whether the compactor epoch is free: its holder released it, or there was no compactor.
    #[must_use]
    pub fn compactor_is_released(&self) -> bool {
        self.compactor_claim.is_none() || self.compactor_claim == RELEASED
    }

    /// W of rule F3 for the next writer with `max_parallel_writes`: the distance that a fence
    /// skips. Never 0, because a fence would then point at itself.
    #[must_use]
    pub fn window_with(&self, max_parallel_writes: u64) -> u64 {
        self.widest_window.max(max_parallel_writes).clamp(1, MAX_PARALLEL_WRITES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_skips_what_lies_strictly_inside() {
        let fence = KeptFence { id: WalId(5), epoch: Epoch(2), next_id: WalId(8) };
        let skipped: Vec<u64> = (4..10).filter(|id| fence.skips(WalId(*id))).collect();
        assert_eq!(skipped, vec![6, 7]);
    }

    #[test]
    fn another_merge_operator_is_refused_by_name() {
        let settings = Settings { merge_operator: Some("sum".to_owned()), ..Settings::default() };
        assert!(settings.check(&settings).is_ok());
        assert!(settings.check(&Settings::default()).is_ok());
        assert!(Settings::default().check(&settings).is_ok());
        let other = Settings { merge_operator: Some("max".to_owned()), ..Settings::default() };
        let refused = settings.check(&other).unwrap_err().to_string();
        assert!(refused.contains("merge_operator") && refused.contains("sum"), "{refused}");
    }

    #[test]
    fn an_opener_without_a_key_schema_is_let_in() {
        let typed = Settings { key_schema: Some("(str)".to_owned()), ..Settings::default() };
        assert!(typed.check(&Settings::default()).is_ok());
        assert!(typed.check(&typed).is_ok());
        let other = Settings { key_schema: Some("(int)".to_owned()), ..Settings::default() };
        for (recorded, brought) in [(&typed, &other), (&Settings::default(), &typed)] {
            let refused = recorded.check(brought).unwrap_err().to_string();
            assert!(refused.contains("key_schema"), "{refused}");
        }
    }

    #[test]
    fn another_codec_is_no_reason_to_refuse() {
        let lz4 = Settings { codec: "lz4".to_owned(), ..Settings::default() };
        assert!(lz4.check(&Settings::default()).is_ok());
    }
}
