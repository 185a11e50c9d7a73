//! The state of a database, as one manifest holds it.
//!
//! A manifest is immutable. The next one is made from it by an [`Edit`](crate::Edit), checked by
//! the [`invariant`](crate::invariant)s, and becomes the state of the database when it is created
//! under the next free number. Which process may change which field is fixed:
//!
//! - the writer: `writer_epoch`, `writers`, `widest_window`, `replay_from`, `flushed_seq`,
//!   `kept_fences`, `reserved`, `floor`, `adopted_ingests`, and what it adds to `l0`;
//! - the compactor: `compactor_epoch`, `compactor_claim`, `runs`, `l0_last_compacted`,
//!   `finished_jobs`, and what it removes from `l0`;
//! - anybody: `checkpoints`, `pending_ingests`, and `wal_id_last_seen`, which only grows;
//! - creation alone: `database`, `settings`, `schema`, `ancestors`.

use crate::layer::Layer;
use bytes::Bytes;
use siltstone_base::id::NUMBERS_A_MILLI;
use siltstone_base::limits::MAX_PARALLEL_WRITES;
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Epoch, Error, JobId, ManifestId, Result, Seq,
    SstDescriptor, SstId, UnixMillis, WalId,
};

/// What stands for the claim of a compactor that gave its epoch up. No claim draws it: 128 random
/// bits are never all ones.
pub(crate) const RELEASED: AttemptId = AttemptId(u128::MAX);

/// Writer records that are kept: enough that a claim whose outcome is not known finds itself
/// again. A claim that fell off the end has been overtaken that many times, and ends as fenced
/// with or without its record.
pub const WRITER_RECORDS: usize = 16;

/// The whole state of a database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Manifest {
    /// Its own number; [`Manifest::next_id`] is that of the one after.
    pub id: ManifestId,
    /// Identity of the database, made when it was created (rule F8).
    pub database: DatabaseId,
    /// Whether creation has finished. A clone starts with `false`.
    pub initialized: bool,
    /// When the database was destroyed: nothing may be committed after, except clean-up.
    pub destroyed_at: Option<UnixMillis>,
    /// What every process that opens the database must agree on.
    pub settings: Settings,
    /// Typed keys and values, serialised; opaque here.
    pub schema: Option<Bytes>,
    /// Databases that tables may live under ([`SstLocation`](siltstone_base::sst::SstLocation)
    /// holds an index into this list). Entries are never removed, so that indices stay right.
    pub ancestors: Vec<Ancestor>,

    /// The newest writer's epoch; none before the first writer.
    pub writer_epoch: Epoch,
    /// The newest writers, epoch ascending, at most [`WRITER_RECORDS`].
    pub writers: Vec<WriterRecord>,
    /// The largest `max_parallel_writes` of any writer there ever was, those included whose
    /// records are gone: W of rule F3. 0 before the first writer.
    pub widest_window: u64,
    /// Names that the newest writer may give to tables it will upload (rule R1).
    pub reserved: Vec<SstId>,
    /// The oldest sequence number that the writer's snapshots need (rule C1); never above
    /// `flushed_seq`.
    pub floor: Seq,

    /// The next WAL id to read in a replay. Never strictly inside a kept fence's gap.
    pub replay_from: WalId,
    /// The largest WAL id that anybody who committed had seen. Only grows.
    pub wal_id_last_seen: WalId,
    /// Every entry up to here is in tables; replay drops rows at or below (rule N4).
    pub flushed_seq: Seq,
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

    /// The newest compactor's epoch; none before the first.
    pub compactor_epoch: Epoch,
    /// Identity of that compactor's claim, so that it finds itself again; all ones once it gave the
    /// epoch up.
    pub compactor_claim: AttemptId,
    /// Compaction jobs that ended and whose records may still be about (rule R2).
    pub finished_jobs: Vec<FinishedJob>,

    /// Checkpoints that are present; expired or not, what they name is alive (rule C3).
    pub checkpoints: Vec<Checkpoint>,

    /// Ingest jobs left for the writer to adopt.
    pub pending_ingests: Vec<PendingIngest>,
    /// Ingest jobs that were adopted, kept as long as a commit of theirs could arrive (rule N5).
    pub adopted_ingests: Vec<AdoptedIngest>,
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
}

/// A pinned version of the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// Its identity.
    pub id: CheckpointId,
    /// The manifest it pins.
    pub manifest_id: ManifestId,
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

    /// Whether it may be revoked at `now`.
    #[must_use]
    pub fn expired_at(&self, now: UnixMillis) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// A database whose tables this one uses (clones).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ancestor {
    /// Its identity.
    pub database: DatabaseId,
    /// Where it lives, as a URL.
    pub location: String,
    /// The checkpoint in it that keeps the tables alive.
    pub checkpoint: CheckpointId,
}

/// An ingest job that waits for the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PendingIngest {
    /// The job, staged under `ingest/<job>/`.
    pub job: JobId,
    /// When it was left here.
    pub requested_at: UnixMillis,
}

/// An ingest job that became part of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdoptedIngest {
    /// The job.
    pub job: JobId,
    /// The one sequence number of all its entries.
    pub seq: Seq,
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
    ///
    /// # Errors
    /// Invalid, naming the setting and both values.
    pub fn check(&self, opener: &Settings) -> Result<()> {
        let none = || "none".to_owned();
        let operators = self.merge_operator.as_ref().zip(opener.merge_operator.as_ref());
        let pairs = [
            ("filter", Some(&self.filter), Some(&opener.filter)),
            ("merge_operator", operators.map(|pair| pair.0), operators.map(|pair| pair.1)),
            ("key_schema", self.key_schema.as_ref(), opener.key_schema.as_ref()),
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
            database,
            initialized: true,
            destroyed_at: None,
            settings,
            schema: None,
            ancestors: Vec::new(),
            writer_epoch: Epoch::NONE,
            writers: Vec::new(),
            widest_window: 0,
            reserved: Vec::new(),
            floor: Seq::NONE,
            replay_from,
            wal_id_last_seen: replay_from.minus(1),
            flushed_seq: Seq::NONE,
            kept_fences: Vec::new(),
            last_l0_order: 0,
            l0: Vec::new(),
            l0_last_compacted: None,
            runs: Vec::new(),
            compactor_epoch: Epoch::NONE,
            compactor_claim: AttemptId::NONE,
            finished_jobs: Vec::new(),
            checkpoints: Vec::new(),
            pending_ingests: Vec::new(),
            adopted_ingests: Vec::new(),
        }
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

    /// Whether nobody holds the compactor's epoch: its holder ended well, or there never was one.
    #[must_use]
    pub fn compactor_is_released(&self) -> bool {
        self.compactor_claim.is_none() || self.compactor_claim == RELEASED
    }

    /// How many WAL objects a writer of `epoch` had under way at most: what its record says, and
    /// where there is none any more, or not yet, the most that any writer may have.
    #[must_use]
    pub fn window_of(&self, epoch: Epoch) -> u64 {
        let record = self.writers.iter().find(|writer| writer.epoch == epoch);
        record.map_or(MAX_PARALLEL_WRITES, |record| record.max_parallel_writes)
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
    fn another_codec_is_no_reason_to_refuse() {
        let lz4 = Settings { codec: "lz4".to_owned(), ..Settings::default() };
        assert!(lz4.check(&Settings::default()).is_ok());
    }
}
