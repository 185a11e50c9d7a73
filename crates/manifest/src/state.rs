//! The state of a database, as one manifest holds it.
//!
//! A manifest is immutable. The next one is made from it by an [`Edit`](crate::Edit), checked by
//! the [`invariant`](crate::invariant)s, and becomes the state of the database when it is created
//! under the next free number. Which process may change which field is fixed:
//!
//! - the writer: `writer_epoch`, `writers`, `widest_window`, `replay_from`, `flushed_seq`,
//!   `commit_time`, `kept_fences`, `reserved`, `left`, `floor`, `remembered_ingests`,
//!   `ingest_apps`, `behind`, and what it adds to `l0` and slots into `runs`;
//! - the compactor: `compactor_epoch`, `compactor_claim`, `runs`, `l0_last_compacted`,
//!   `finished_jobs`, and what it removes from `l0`;
//! - the collector: `ingest_horizon`, which only grows;
//! - anybody: `checkpoints`, `leases`, `since_leases`, `holds` and with them `fed`,
//!   `pending_ingests`, and `wal_id_last_seen`, which only grows; `schema`, where there is one;
//!   `tables_since` goes with tables, whoever changes them;
//! - who restores: `timelines`, and what becomes the checkpoint's again; who destroys:
//!   `destroyed_at`;
//! - who stages the first ingest job: `features`, which every other edit carries on;
//! - exporters, of a mirror: `mirror`, and all that a head of theirs replaces (RFC 0033);
//! - creation alone: `database`, `settings`, `ancestors`; `request` too, but for a mirror's
//!   promotion.

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
pub use shared::{Hold, Lease, LeasedVersion, MOST_LEASED, MOST_LEASES, Timeline};
pub use since::{Cover, MOST_SINCE_LEASES, SinceLease};

use crate::features::Features;
use crate::layer::Layer;
use bytes::Bytes;
use siltstone_base::id::NUMBERS_A_MILLI;
use siltstone_base::limits::MAX_PARALLEL_WRITES;
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Epoch, Error, JobId, ManifestId, RequestId, Result, Seq,
    SstDescriptor, SstId, StoreId, UnixMillis, WalId,
};

/// What stands for the claim of a compactor that gave its epoch up. No claim draws it: 128 random
/// bits are never all ones.
pub(crate) const RELEASED: AttemptId = AttemptId(u128::MAX);

/// Writer records that are kept: enough that a claim whose outcome is not known finds itself
/// again. A claim that fell off the end has been overtaken that many times, and ends as fenced
/// with or without its record.
pub const WRITER_RECORDS: usize = 16;

/// The fact of a clone's pin that says where the clone stands (rule K8, RFC 0029).
pub const CLONE_AT: &str = "clone at";

/// The whole state of a database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Manifest {
    /// Its own number; [`Manifest::next_id`] is that of the one after.
    pub id: ManifestId,
    /// The attempt that wrote it; none while it is planned ([`Manifest::written_as`]).
    pub attempt: AttemptId,
    /// Identity of the database, made when it was created (rule F8).
    pub database: DatabaseId,
    /// What it asks of whoever meets it, and what every commit carries on.
    pub features: Features,
    /// Whether creation has finished. A clone starts with `false`.
    pub initialized: bool,
    /// When the database was destroyed: nothing may be committed after, except clean-up.
    pub destroyed_at: Option<UnixMillis>,
    /// What every process that opens the database must agree on.
    pub settings: Settings,
    /// Typed keys and values, serialised; opaque here.
    pub schema: Option<Bytes>,
    /// Where the WAL lies; `None`: with all the rest.
    pub wal_store: Option<WalStore>,
    /// Databases that tables may live under, number ascending
    /// ([`SstLocation`](siltstone_base::sst::SstLocation) holds such a number).
    pub ancestors: Vec<Ancestor>,
    /// The largest number ever given to an ancestor.
    pub last_ancestor: u32,
    /// What a clone was begun with, or a mirror promoted by.
    pub request: Option<RequestId>,
    /// Whose mirror it is: exports fill it, and nobody writes to it until it is promoted.
    pub mirror: Option<Mirror>,

    /// The newest writer's epoch; none before the first writer.
    pub writer_epoch: Epoch,
    /// The newest writers, epoch ascending, at most [`WRITER_RECORDS`].
    pub writers: Vec<WriterRecord>,
    /// The largest `max_parallel_writes` of any writer there ever was, those included whose
    /// records are gone: W of rule F3. 0 before the first writer.
    pub widest_window: u64,
    /// Names that the newest writer may give to tables it will upload (rule R1).
    pub reserved: Vec<SstId>,
    /// Names that the log holds, or may come to hold, as the tables of large batches: this
    /// writer's, and older ones' until nothing of theirs is replayed any more (rule N15).
    pub left: Vec<SstId>,
    /// The oldest sequence number that the writer's snapshots need (rule C1); never above
    /// `flushed_seq`.
    pub floor: Seq,

    /// The next WAL id to read in a replay. Never strictly inside a kept fence's gap.
    pub replay_from: WalId,
    /// The largest WAL id that anybody who committed had seen. Only grows.
    pub wal_id_last_seen: WalId,
    /// Every entry up to here is in tables; replay drops rows at or below (rule N4).
    pub flushed_seq: Seq,
    /// The latest commit time of what is in tables: no later commit has an earlier one (rule W2).
    pub commit_time: UnixMillis,
    /// Fences that must never be collected (rule F5), id ascending.
    pub kept_fences: Vec<KeptFence>,

    /// The largest order ever given to an L0 entry.
    pub last_l0_order: u64,
    /// L0, newest first: orders strictly descending.
    pub l0: Vec<L0Entry>,
    /// The newest table that the last compaction of L0 took from there.
    pub l0_last_compacted: Option<SstId>,
    /// Sorted runs, newest first: ids strictly descending; 0 is the last one.
    pub runs: Vec<SortedRun>,
    /// How many numbers were given to ingest jobs that came behind all that was there (rule P6);
    /// `None` where the database was not made for such. Only grows.
    pub behind: Option<u64>,
    /// The manifest that last changed a table, its place, its visible range or its number; none
    /// before the first (rule L1).
    pub tables_since: ManifestId,

    /// The newest compactor's epoch; none before the first.
    pub compactor_epoch: Epoch,
    /// Identity of that compactor's claim, so that it finds itself again; all ones once it gave the
    /// epoch up.
    pub compactor_claim: AttemptId,
    /// Compaction jobs that ended and whose records may still be about (rule R2).
    pub finished_jobs: Vec<FinishedJob>,

    /// Checkpoints that are present; expired or not, what they name is alive (rule C3).
    pub checkpoints: Vec<Checkpoint>,
    /// What readers share; alive like checkpoints, at most [`MOST_LEASES`].
    pub leases: Vec<Lease>,
    /// What readers share of this version and later ones; both ends ascend, at most
    /// [`MOST_SINCE_LEASES`].
    pub since_leases: Vec<SinceLease>,
    /// Consumers' holds on the WAL.
    pub holds: Vec<Hold>,
    /// Ingests whose originals they still read.
    pub fed: Vec<FedIngest>,
    /// Histories that began with a restore, or with a clone, the oldest first.
    pub timelines: Vec<Timeline>,

    /// Ingest jobs left for the writer to adopt, at most [`MOST_PENDING`].
    pub pending_ingests: Vec<PendingIngest>,
    /// Ingest jobs that ended, at most [`MOST_REMEMBERED`].
    pub remembered_ingests: Vec<RememberedIngest>,
    /// What applications brought last, at most [`MOST_APPS`].
    pub ingest_apps: Vec<IngestApp>,
    /// Applications that were forgotten.
    pub forgotten_apps: ForgottenApps,
    /// Requests of jobs whose deadline is before this are refused, and such jobs forgotten.
    pub ingest_horizon: UnixMillis,
}

/// One writer's claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WriterRecord {
    /// Its epoch.
    pub epoch: Epoch,
    /// Identity of the claim, random: tells one's own epoch from a rival's of the same number.
    pub claim: AttemptId,
    /// WAL objects it may have under way at once, 1 to [`MAX_PARALLEL_WRITES`].
    pub max_parallel_writes: u64,
    /// Whether it ended with every outcome settled. Then nothing of its epoch can still arrive.
    pub clean_close: bool,
    /// Whether it was opened for a moment, to take ingest jobs in: whoever finds that it did not
    /// close may end it, and asks for what it had asked for again.
    pub transient: bool,
}

/// A fence that stays for ever (rule F5): the object `id` of `epoch`, beyond which the WAL goes
/// on at `next_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeptFence {
    /// The fence's WAL id.
    pub id: WalId,
    /// Who made it.
    pub epoch: Epoch,
    /// Where the WAL goes on; what lies between is ignored by all.
    pub next_id: WalId,
}

impl KeptFence {
    /// Whether `id` lies strictly between the fence and where the WAL goes on.
    #[must_use]
    pub fn skips(&self, id: WalId) -> bool {
        self.id < id && id < self.next_id
    }
}

/// One layer of L0: a flush adds one table, an ingest one or more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct L0Entry {
    /// Place among its peers: larger is newer. Unique for ever.
    pub order: u64,
    /// Disjoint tables, key ascending; at least one.
    pub tables: Vec<SstDescriptor>,
}

/// A sorted run: disjoint tables over the whole key space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SortedRun {
    /// Place among the runs: larger is newer; 0 is the last one.
    pub id: u32,
    /// Disjoint tables, key ascending; at least one.
    pub tables: Vec<SstDescriptor>,
}

/// A job that ended by a manifest commit. It is never resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FinishedJob {
    /// The job.
    pub job: JobId,
    /// The compactor epoch that ended it.
    pub epoch: Epoch,
}

/// Who keeps a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CheckpointOwner {
    /// A person or a program, by name or id.
    #[default]
    User,
    /// The writer of this epoch, for its own reads (rule C1). The next writer removes it.
    Writer(Epoch),
    /// A reader, for as long as it refreshes it (rule C2).
    Reader,
    /// A clone that reads this database's tables.
    Clone(DatabaseId),
    /// Somebody that this version has no word for. It is kept as it is, and only its expiry ends
    /// it.
    Other {
        /// Its number.
        kind: u8,
        /// An epoch that came with it.
        epoch: Option<Epoch>,
        /// A database that came with it.
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
    /// The attempt that wrote that manifest, so that no other object passes for it (rule L6); none
    /// while it is planned.
    pub manifest_attempt: AttemptId,
    /// First WAL id it pins; that manifest's `replay_from`.
    pub replay_from: WalId,
    /// Last WAL id it pins; below `replay_from` when it pins none.
    pub wal_id_last_seen: WalId,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it may be revoked; `None`: never.
    pub expires_at: Option<UnixMillis>,
    /// The checkpoint it was made from.
    pub source: Option<CheckpointId>,
    /// Who keeps it.
    pub owner: CheckpointOwner,
    /// A name to find it by.
    pub name: Option<String>,
    /// Facts its maker attached.
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

    /// Where the clone stands that this is the pin of, as a URL; `None` for other checkpoints, for
    /// pins of version 0.1, and where the clone's store has no URL.
    #[must_use]
    pub fn clone_place(&self) -> Option<&str> {
        let CheckpointOwner::Clone(_) = self.owner else { return None };
        let mut facts = self.metadata.iter();
        facts.find(|(name, _)| name == CLONE_AT).map(|(_, place)| place.as_str())
    }

    /// Whether it may be revoked at `now`.
    #[must_use]
    pub fn expired_at(&self, now: UnixMillis) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// Where a WAL lies that is not with all the rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WalStore {
    /// Identity of the store.
    pub id: StoreId,
    /// Where it is, as a URL; `None` where whoever opens must say so.
    pub location: Option<String>,
}

/// A database whose tables this one uses (clones), by one pin in it (rule K3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ancestor {
    /// What descriptors name it by: given once, and never again.
    pub number: u32,
    /// Its identity.
    pub database: DatabaseId,
    /// Where it lives, as a URL.
    pub location: String,
    /// The checkpoint in it that keeps the tables alive.
    pub checkpoint: CheckpointId,
}

/// What stands in the manifest because every process must agree on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Name of the block codec that new tables are written with.
    pub codec: String,
    /// Name of the filter that tables carry.
    pub filter: String,
    /// Name of the merge operator; `None` until a writer brings one: no operand was written.
    pub merge_operator: Option<String>,
    /// Name of the key schema; `None` for plain bytes.
    pub key_schema: Option<String>,
}

impl Settings {
    /// Whether a process that brings `opener` may open a database with these settings. The codec
    /// is no part of it: every block says its own, so openers may write with different ones. Who
    /// brings no merge operator may do all else; the first one that a writer brings is recorded.
    /// Who brings no key schema works on keys as bytes: the command line, collectors, compactors.
    ///
    /// # Errors
    /// Invalid, naming the setting and both values.
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
    /// The first manifest of a new database: no writer, no tables. All later numbers, the next
    /// manifest's and the WAL's, count from where `database` says, so that nothing of a database
    /// that stood at the same place before, no late object and no late delete, meets a number of
    /// this one (rule E1).
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

    /// The first manifest of a new database where one was destroyed whose manifests lie at and
    /// below `boundary`: the number after that decides who makes it, as the first number does
    /// elsewhere, and all others follow it (rule D4).
    #[must_use]
    pub fn new_database_behind(
        boundary: ManifestId,
        database: DatabaseId,
        settings: Settings,
    ) -> Manifest {
        Manifest { id: boundary.next(), ..Manifest::new_database(database, settings) }
    }

    /// The same, once it is known which attempt writes it: what pins it says so.
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

    /// The number of the manifest after this one: one more, but for the first manifest of a
    /// database that counts from elsewhere. Its replay point says from where; no later manifest has
    /// its number.
    #[must_use]
    pub fn next_id(&self) -> ManifestId {
        let counts_from = ManifestId(self.replay_from.get());
        if self.id == ManifestId::FIRST && counts_from > self.id {
            return counts_from;
        }
        self.id.next()
    }

    /// Whether its number is the one that its database counts from, other than its first: the
    /// replay point does not move before, and a moment's first number is told by its last bits.
    #[must_use]
    pub fn begins_the_count(&self) -> bool {
        let first_of_a_milli = self.id.get().is_multiple_of(NUMBERS_A_MILLI);
        first_of_a_milli && self.replay_from.get() == self.id.get()
    }

    /// Whether it was made of the manifest `before`.
    #[must_use]
    pub fn follows(&self, before: ManifestId) -> bool {
        before.next() == self.id || (before == ManifestId::FIRST && self.begins_the_count())
    }

    /// Every layer with its tables, from the newest to the oldest: L0 by order, then the runs.
    pub fn layers(&self) -> impl Iterator<Item = (Layer, &[SstDescriptor])> {
        let l0 = self.l0.iter().map(|entry| (Layer::L0(entry.order), entry.tables.as_slice()));
        l0.chain(self.runs.iter().map(|run| (Layer::Run(run.id), run.tables.as_slice())))
    }

    /// The tables of a layer; `None` when it is not there.
    #[must_use]
    pub fn layer(&self, layer: Layer) -> Option<&[SstDescriptor]> {
        self.layers().find(|(each, _)| *each == layer).map(|(_, tables)| tables)
    }

    /// Every table, L0 newest first, then the runs.
    pub fn tables(&self) -> impl Iterator<Item = &SstDescriptor> {
        let l0 = self.l0.iter().flat_map(|entry| &entry.tables);
        l0.chain(self.runs.iter().flat_map(|run| &run.tables))
    }

    /// The ancestor of that number, when it is there.
    #[must_use]
    pub fn ancestor(&self, number: u32) -> Option<&Ancestor> {
        self.ancestors.iter().find(|ancestor| ancestor.number == number)
    }

    /// The manifest that the last restore created; none when there was none.
    #[must_use]
    pub fn restored_at(&self) -> ManifestId {
        self.timelines.last().map_or(ManifestId::NONE, |timeline| timeline.manifest_id)
    }

    /// The checkpoint `id`, when present.
    #[must_use]
    pub fn checkpoint(&self, id: CheckpointId) -> Option<&Checkpoint> {
        self.checkpoints.iter().find(|checkpoint| checkpoint.id == id)
    }

    /// The record of the newest writer; `None` before the first.
    #[must_use]
    pub fn last_writer(&self) -> Option<&WriterRecord> {
        self.writers.last()
    }

    /// Whether nothing of the newest writer can still arrive: it closed cleanly, or there never
    /// was one.
    #[must_use]
    pub fn closed_cleanly(&self) -> bool {
        self.last_writer().is_none_or(|writer| writer.clean_close)
    }

    /// Whether the writer before `epoch` had closed cleanly when `epoch` was claimed: the claim
    /// made sure that its record has not changed since. No, where the record is gone.
    pub(crate) fn follows_clean_close(&self, epoch: Epoch) -> bool {
        self.writers.iter().any(|record| record.epoch.next() == epoch && record.clean_close)
    }

    /// Whether nobody holds the compactor's epoch: its holder ended well, or there never was one.
    #[must_use]
    pub fn compactor_is_released(&self) -> bool {
        self.compactor_claim.is_none() || self.compactor_claim == RELEASED
    }

    /// W of rule F3 for a writer that opens next with `max_parallel_writes`: how far a fence
    /// jumps. Never 0, or a fence would point at itself.
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
    fn who_brings_no_key_schema_is_let_in() {
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
