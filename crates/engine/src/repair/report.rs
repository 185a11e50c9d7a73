//! What a repair tells.

use super::chain::{ManifestChain, Remedy};
use super::log::Log;
use siltstone_base::{CheckpointId, DatabaseId, ManifestId, ObjectName, Seq};
use siltstone_manifest::VoidManifests;
use std::fmt;

/// An object that bars opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its name.
    pub object: ObjectName,
    /// What is wrong with it.
    pub what: String,
}

impl Damage {
    pub(super) fn new(object: ObjectName, what: impl fmt::Display) -> Damage {
        Damage { object, what: what.to_string() }
    }
}

/// What bars opening a database, and what a repair gives up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The database.
    pub database: DatabaseId,
    /// Whether anything bars opening it.
    pub needed: bool,
    /// Whether that was mended; otherwise this is what would be done.
    pub done: bool,
    /// What bars it.
    pub damage: Vec<Damage>,
    /// The manifest that is gone on from; once it was done, the one that goes on.
    pub manifest_id: ManifestId,
    /// Later manifests that are void: what they said is not known.
    pub manifests_void: u64,
    /// Every row up to this sequence number is kept.
    pub seq_kept: Seq,
    /// The last sequence number that is known to be lost; none where none is.
    pub seq_lost: Seq,
    /// Operations that are known to be lost.
    pub rows_lost: u64,
    /// Objects of the log that are cut off, and their bytes.
    pub objects_cut_off: u64,
    /// Their bytes.
    pub bytes_cut_off: u64,
    /// How many of the log's objects may have held rows that nobody can count: they are missing, or
    /// cannot be read.
    pub objects_unknown: u64,
    /// Checkpoints that go, since what they pin is gone: known once it was done.
    pub checkpoints_dropped: Vec<CheckpointId>,
    /// Whether tables that nobody names stay, until the collector is told otherwise.
    pub tables_stay: bool,
    /// Tables that no manifest names, where later manifests are void: rows that only they hold are
    /// lost, unless the log has them still.
    pub tables_unnamed: u64,
    /// Their bytes.
    pub bytes_unnamed: u64,
    /// Copies of what is passed over: their folder.
    pub aside: Option<String>,
}

pub(super) fn of(chain: &ManifestChain, log: &Log) -> RepairReport {
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
    report.needed = !report.damage.is_empty();
    report
}
