//! The report of a repair: the damage, the losses and the remedy. It never touches the store.

use super::chain::{ManifestChain, Remedy};
use super::jobs::DamagedRecord;
use super::log::Log;
use siltstone_base::{CheckpointId, DatabaseId, ManifestId, ObjectName, Seq};
use siltstone_manifest::VoidManifests;
use std::fmt;

/// An object that prevents opening, or compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Name of the object.
    pub object: ObjectName,
    /// Description of the damage.
    pub what: String,
}

impl Damage {
    pub(super) fn new(object: ObjectName, what: impl fmt::Display) -> Damage {
        Damage { object, what: what.to_string() }
    }
}

/// The damage that prevents opening or compacting a database, and the data that a repair gives up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The database.
    pub database: DatabaseId,
    /// Whether any damage prevents opening the database or its compaction.
    pub needed: bool,
    /// Whether the repair was done. Otherwise the report is a preview.
    pub done: bool,
    /// The damaged objects.
    pub damage: Vec<Damage>,
    /// The manifest that the repair continues from. After a repair that voids manifests: the new
    /// manifest.
    pub manifest_id: ManifestId,
    /// Number of later manifests that are void. Their content is unknown.
    pub manifests_void: u64,
    /// All rows up to this sequence number are kept.
    pub seq_kept: Seq,
    /// The last sequence number that is known to be lost; none if no loss is known.
    pub seq_lost: Seq,
    /// Number of operations that are known to be lost. A lower bound unless `objects_unknown` is 0.
    pub rows_lost: u64,
    /// Number of WAL objects that are cut off.
    pub objects_cut_off: u64,
    /// Total size of the WAL objects that are cut off, in bytes.
    pub bytes_cut_off: u64,
    /// Number of WAL objects that are missing or unreadable. They may have held an unknown number
    /// of rows. At least 1 if the separate store of the log was emptied or replaced: no number of
    /// its objects is known then.
    pub objects_unknown: u64,
    /// Checkpoints that are dropped because the manifests or tables that they pin are lost. Filled
    /// only after the repair is done.
    pub checkpoints_dropped: Vec<CheckpointId>,
    /// Whether the collector retains unreferenced tables until it is told to collect them.
    pub tables_stay: bool,
    /// Number of unreferenced tables, if later manifests are void. Rows that exist only in these
    /// tables are lost, unless the WAL still has them.
    pub tables_unnamed: u64,
    /// Total size of the unreferenced tables, in bytes.
    pub bytes_unnamed: u64,
    /// Folder of the copies of the objects that the repair gives up.
    pub aside: Option<String>,
}

pub(super) fn of(chain: &ManifestChain, log: &Log, record: Option<&DamagedRecord>) -> RepairReport {
    let mut report = RepairReport {
        database: chain.base.database,
        damage: chain.damage.clone(),
        manifest_id: chain.base.id,
        manifests_void: match chain.remedy {
            Remedy::Void(last) => VoidManifests::behind(&chain.base, last),
            Remedy::None | Remedy::Boundary(_) => 0,
        },
        tables_stay: matches!(chain.remedy, Remedy::Void(_)),
        tables_unnamed: chain.unnamed.0,
        bytes_unnamed: chain.unnamed.1,
        seq_kept: log.seq,
        ..RepairReport::default()
    };
    if let Some(cut) = &log.cut {
        report.damage.extend(cut.damage.iter().cloned());
        report.objects_cut_off = cut.off.len() as u64;
        report.objects_unknown = cut.missing;
        for one in &cut.off {
            report.bytes_cut_off += one.bytes;
            match one.seqs {
                Some((first, last)) if !last.is_none() => {
                    report.rows_lost += last.get().saturating_sub(first.get()) + 1;
                    report.seq_lost = report.seq_lost.max(last);
                }
                Some(_) => {}
                None => report.objects_unknown += 1,
            }
        }
    }
    report.damage.extend(record.map(|one| one.damage.clone()));
    report.needed = !report.damage.is_empty();
    report
}
