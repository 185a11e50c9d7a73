//! The invariants of a manifest, as named predicates. They are checked before every commit (a
//! violation is a bug: Internal) and after every decoding (Corruption).

use crate::features::INGEST_BEHIND;
use crate::span::{Span, layers_descend};
use crate::state::{
    HISTORY_BEGINS, MOST_APPS, MOST_LEASES, MOST_PENDING, MOST_REMEMBERED, MOST_SINCE_LEASES,
    Manifest, WRITER_RECORDS,
};
use siltstone_base::limits::MAX_PARALLEL_WRITES;
use siltstone_base::sst::SstLocation;
use siltstone_base::{Error, JobId, ManifestId, Result, Seq, SstDescriptor, SstId};
use std::collections::{HashMap, HashSet};

/// One predicate.
#[derive(Clone, Copy)]
pub struct Invariant {
    /// Its name in errors.
    pub name: &'static str,
    /// Whether a manifest satisfies it.
    pub holds: fn(&Manifest) -> bool,
}

/// All predicates.
pub const INVARIANTS: [Invariant; 17] = [
    Invariant { name: "ids count from 1", holds: ids_count_from_one },
    Invariant { name: "writers ascend to the newest epoch", holds: writers_ascend },
    Invariant { name: "windows are within bounds", holds: windows_in_bounds },
    Invariant { name: "kept fences ascend and point forward", holds: fences_ascend },
    Invariant { name: "the replay point is outside every gap", holds: replay_point_outside_gaps },
    Invariant { name: "L0 orders descend", holds: l0_orders_descend },
    Invariant { name: "L0 sequence numbers descend", holds: l0_seqs_descend },
    Invariant { name: "run ids descend", holds: run_ids_descend },
    Invariant { name: "tables of a layer are disjoint", holds: layers_disjoint },
    Invariant { name: "tables are well formed", holds: tables_well_formed },
    Invariant { name: "no name stands twice", holds: names_unique },
    Invariant { name: "sequence numbers are within bounds", holds: seqs_in_bounds },
    Invariant { name: "checkpoints are well formed", holds: checkpoints_well_formed },
    Invariant { name: "compaction records are well formed", holds: compaction_well_formed },
    Invariant { name: "ancestors are numbered", holds: ancestors_numbered },
    Invariant { name: "what readers share is well formed", holds: shared_well_formed },
    Invariant { name: "ingest jobs are well formed", holds: ingests_well_formed },
];

/// The name of the first predicate that `manifest` breaks.
#[must_use]
pub fn broken(manifest: &Manifest) -> Option<&'static str> {
    INVARIANTS.iter().find(|one| !(one.holds)(manifest)).map(|one| one.name)
}

/// Checks a decoded manifest against all predicates.
///
/// # Errors
/// Corruption, with the name of the predicate.
pub fn check_decoded(manifest: &Manifest) -> Result<()> {
    match broken(manifest) {
        None => Ok(()),
        Some(name) => Err(Error::corruption("a manifest breaks an invariant")
            .with("invariant", name)
            .with("manifest", manifest.id)),
    }
}

/// The smallest and the largest sequence number of the entries of a table.
#[must_use]
pub fn effective_seqs(table: &SstDescriptor) -> (Seq, Seq) {
    match table.seq_override {
        Some(seq) => (seq, seq),
        None => (table.min_seq, table.max_seq),
    }
}

/// Whether every visible key of `left` sorts before every visible key of `right`.
#[must_use]
pub fn is_before(left: &SstDescriptor, right: &SstDescriptor) -> bool {
    left.ends_below(right.first_visible())
}

fn ascending<T>(items: &[T], in_order: impl Fn(&T, &T) -> bool) -> bool {
    items.iter().zip(items.iter().skip(1)).all(|(left, right)| in_order(left, right))
}

fn ids_count_from_one(m: &Manifest) -> bool {
    !m.id.is_none() && !m.database.is_none() && !m.replay_from.is_none() && m.tables_since <= m.id
}

fn writers_ascend(m: &Manifest) -> bool {
    let newest = m.writers.last().map(|writer| writer.epoch).unwrap_or_default();
    newest == m.writer_epoch
        && m.writers.len() <= WRITER_RECORDS
        && m.writers.iter().all(|writer| !writer.epoch.is_none())
        && ascending(&m.writers, |left, right| left.epoch < right.epoch)
}

fn windows_in_bounds(m: &Manifest) -> bool {
    let allowed = 1..=m.widest_window;
    m.widest_window <= MAX_PARALLEL_WRITES
        && m.writers.iter().all(|writer| allowed.contains(&writer.max_parallel_writes))
}

fn fences_ascend(m: &Manifest) -> bool {
    let well_formed = m.kept_fences.iter().all(|fence| {
        !fence.id.is_none()
            && !fence.epoch.is_none()
            && fence.epoch <= m.writer_epoch
            && fence.id < fence.next_id
            && fence.next_id <= fence.id.plus(MAX_PARALLEL_WRITES)
    });
    well_formed && ascending(&m.kept_fences, |left, right| left.next_id <= right.id)
}

fn replay_point_outside_gaps(m: &Manifest) -> bool {
    !m.kept_fences.iter().any(|fence| fence.skips(m.replay_from))
}

fn l0_orders_descend(m: &Manifest) -> bool {
    m.l0.first().is_none_or(|newest| newest.order <= m.last_l0_order)
        && m.l0.iter().all(|entry| !entry.tables.is_empty())
        && ascending(&m.l0, |newer, older| newer.order > older.order)
}

/// Holds wherever two layers may share a key. Layers of united parents have separate histories.
fn l0_seqs_descend(m: &Manifest) -> bool {
    let all_do = ascending(&m.l0, |newer, older| {
        let oldest_of_newer = newer.tables.iter().map(|table| effective_seqs(table).0).min();
        let newest_of_older = older.tables.iter().map(|table| effective_seqs(table).1).max();
        oldest_of_newer > newest_of_older
    });
    all_do || layers_descend(m.l0.iter().rev().map(|entry| entry.tables.as_slice()), effective_seqs)
}

fn run_ids_descend(m: &Manifest) -> bool {
    m.runs.iter().all(|run| !run.tables.is_empty())
        && ascending(&m.runs, |newer, older| newer.id > older.id)
}

fn layers_disjoint(m: &Manifest) -> bool {
    m.l0.iter().all(|entry| ascending(&entry.tables, is_before))
        && m.runs.iter().all(|run| ascending(&run.tables, is_before))
}

fn tables_well_formed(m: &Manifest) -> bool {
    m.tables().all(|table| {
        let located = match table.location {
            SstLocation::Own => true,
            SstLocation::Ancestor(number) => m.ancestor(number).is_some(),
        };
        located
            && table.job.is_none_or(|job| !job.is_none())
            && table.first_key <= table.last_key
            && !Span::of(table).is_empty()
            && table.tail_offset < table.object_bytes
    })
}

/// A table may occur more than once if its visible ranges are disjoint (a clone united with another
/// clone of the same parent): then it is one object. Reserved names are in the same namespace: the
/// name of an existing table is no longer reserved.
fn names_unique(m: &Manifest) -> bool {
    let mut seen: HashMap<SstId, Vec<&SstDescriptor>> = HashMap::with_capacity(m.reserved.len());
    let mut tables_are = m.tables().all(|table| {
        let same = seen.entry(table.id).or_default();
        same.push(table);
        !table.id.is_none()
    });
    tables_are &= seen.values_mut().all(|same| same.len() == 1 || are_parts_of_one(same));
    let mut reserved = HashSet::with_capacity(m.reserved.len());
    let mut names = m.reserved.iter().chain(&m.left);
    tables_are
        && names.all(|name| !name.is_none() && !seen.contains_key(name) && reserved.insert(*name))
}

/// Whether descriptors with the same name describe the same object, show no key twice, and can be
/// distinguished.
fn are_parts_of_one(same: &mut [&SstDescriptor]) -> bool {
    same.sort_by(|left, right| left.visible_start.cmp(&right.visible_start));
    ascending(same, |left, right| {
        let object = |table: &SstDescriptor| (table.location, table.job, table.checksum);
        object(left) == object(right)
            && left.visible_start < right.visible_start
            && !Span::of(left).meets(&Span::of(right))
    })
}

fn seqs_in_bounds(m: &Manifest) -> bool {
    m.flushed_seq <= Seq::MAX
        && m.floor <= m.flushed_seq
        && m.tables().all(|table| {
            let (min, max) = effective_seqs(table);
            min <= max && max <= m.flushed_seq
        })
}

fn checkpoints_well_formed(m: &Manifest) -> bool {
    let mut ids = HashSet::new();
    let mut names = HashSet::new();
    m.checkpoints.iter().all(|checkpoint| {
        !checkpoint.id.is_none()
            && !checkpoint.manifest_id.is_none()
            && checkpoint.manifest_id <= m.id
            && !checkpoint.replay_from.is_none()
            && ids.insert(checkpoint.id)
            && checkpoint.name.as_ref().is_none_or(|name| names.insert(name))
    })
}

fn compaction_well_formed(m: &Manifest) -> bool {
    let mut jobs = HashSet::new();
    m.compactor_epoch.is_none() == m.compactor_claim.is_none()
        && m.finished_jobs
            .iter()
            .all(|done| done.epoch <= m.compactor_epoch && jobs.insert(done.job))
}

fn ancestors_numbered(m: &Manifest) -> bool {
    m.ancestors.iter().all(|one| {
        let known = !one.database.is_none() && !one.checkpoint.is_none();
        known && one.number > 0 && one.number <= m.last_ancestor
    }) && ascending(&m.ancestors, |left, right| left.number < right.number)
}

fn shared_well_formed(m: &Manifest) -> bool {
    let present = |id: ManifestId| !id.is_none() && id <= m.id;
    let leases = m.leases.iter().all(|lease| {
        !lease.versions.is_empty()
            && lease.versions.iter().all(|version| present(version.manifest_id))
            && ascending(&lease.versions, |left, right| left.manifest_id < right.manifest_id)
    });
    let since = m.since_leases.iter().all(|lease| present(lease.from))
        && ascending(&m.since_leases, |left, right| {
            left.from < right.from && left.expires_at < right.expires_at
        });
    let mut names = HashSet::new();
    let mut holds = m.holds.iter();
    let holds = holds.all(|hold| !hold.wal_from.is_none() && names.insert(&hold.name));
    let mut ids = HashSet::new();
    let timelines = m.timelines.iter().all(|timeline| {
        let known = !timeline.id.is_none() && present(timeline.manifest_id);
        known && timeline.cut < timeline.begins && ids.insert(timeline.id)
    });
    let in_order = |left: ManifestId, right: ManifestId| left < right;
    m.leases.len() <= MOST_LEASES
        && leases
        && m.since_leases.len() <= MOST_SINCE_LEASES
        && since
        && holds
        && timelines
        && ascending(&m.timelines, |left, right| in_order(left.manifest_id, right.manifest_id))
}

fn ingests_well_formed(m: &Manifest) -> bool {
    let pending = m.pending_ingests.iter().map(|one| one.job);
    let ended = m.remembered_ingests.iter().map(|one| one.job);
    let mut jobs: HashSet<JobId> = HashSet::new();
    let mut each_once = pending.chain(ended);
    let mut apps = HashSet::new();
    let behind = m
        .behind
        .is_none_or(|taken| taken < HISTORY_BEGINS.get() && m.features.names(INGEST_BEHIND));
    behind
        && m.pending_ingests.len() <= MOST_PENDING
        && m.remembered_ingests.len() <= MOST_REMEMBERED
        && m.ingest_apps.len() <= MOST_APPS
        && each_once.all(|job| !job.is_none() && jobs.insert(job))
        && m.ingest_apps.iter().all(|one| !one.job.is_none() && apps.insert(&one.app))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::SinceLease;
    use crate::testing::{manifest, table};
    use siltstone_base::{CheckpointId, Epoch, SstId, UnixMillis, WalId};

    /// Every predicate is broken by some change, and reported by its name.
    #[test]
    fn each_invariant_catches_its_breach() {
        type Breach = (&'static str, fn(&mut Manifest));
        let breaches: [Breach; 18] = [
            ("ids count from 1", |m| m.replay_from = WalId::NONE),
            ("writers ascend to the newest epoch", |m| m.writer_epoch = Epoch(9)),
            ("windows are within bounds", |m| m.widest_window = 1),
            ("kept fences ascend and point forward", |m| m.kept_fences[0].next_id = WalId(2)),
            ("the replay point is outside every gap", |m| m.replay_from = WalId(3)),
            ("L0 orders descend", |m| m.l0[1].order = m.l0[0].order),
            ("L0 sequence numbers descend", |m| m.l0[1].tables[0].max_seq = Seq(60)),
            ("run ids descend", |m| m.runs[1].id = m.runs[0].id),
            ("tables of a layer are disjoint", |m| {
                m.runs[0].tables[0].last_key = m.runs[0].tables[1].last_key.clone();
            }),
            ("tables are well formed", |m| m.l0[0].tables[0].tail_offset = u64::MAX),
            ("no name stands twice", |m| m.reserved = vec![m.l0[0].tables[0].id]),
            ("sequence numbers are within bounds", |m| m.flushed_seq = Seq(1)),
            ("checkpoints are well formed", |m| m.checkpoints[0].id = CheckpointId::NONE),
            ("compaction records are well formed", |m| m.finished_jobs[0].epoch = Epoch(7)),
            ("ancestors are numbered", |m| m.ancestors[0].number = 9),
            ("what readers share is well formed", |m| {
                m.leases = vec![m.leases[0].clone(); MOST_LEASES + 1];
            }),
            ("what readers share is well formed", |m| {
                m.since_leases.push(SinceLease { from: m.id.next(), expires_at: UnixMillis(9) });
            }),
            ("ingest jobs are well formed", |m| {
                m.pending_ingests.push(m.pending_ingests[0].clone());
            }),
        ];
        assert_eq!(broken(&manifest()), None);
        for (name, breach) in breaches {
            let mut m = manifest();
            breach(&mut m);
            assert_eq!(broken(&m), Some(name));
        }
    }

    fn part(start: Option<&'static [u8]>, end: Option<&'static [u8]>) -> SstDescriptor {
        SstDescriptor {
            visible_start: start.map(Into::into),
            visible_end: end.map(Into::into),
            ..table(SstId(14), b"a", b"z", 51, 60)
        }
    }

    /// K6: a clone united with its cousin shows two parts of one table.
    #[test]
    fn a_table_stands_twice_where_no_key_is_seen_twice() {
        let mut m = manifest();
        m.l0[0].tables = vec![part(None, Some(b"h")), part(Some(b"h"), None)];
        assert_eq!(broken(&m), None);
        m.l0[0].tables[1].checksum ^= 1;
        assert_eq!(broken(&m), Some("no name stands twice"));
        m.l0[0].tables = vec![part(None, Some(b"h"))];
        m.l0[1].tables = vec![part(Some(b"c"), None)];
        m.l0[1].tables[0].seq_override = Some(Seq(41));
        assert_eq!(broken(&m), Some("no name stands twice"));
    }

    /// K6: layers of two parents, each with its own sequence numbers.
    #[test]
    fn numbers_descend_where_visible_keys_overlap() {
        let mut m = manifest();
        let low = |id, max| SstDescriptor {
            visible_end: Some(b"h".as_slice().into()),
            ..table(SstId(id), b"a", b"z", max, max)
        };
        let high = |id, max| table(SstId(id), b"h", b"z", max, max);
        m.l0[0].tables = vec![low(60, 20), high(61, 60)];
        m.l0[1].tables = vec![low(62, 10), high(63, 50)];
        assert_eq!(broken(&m), None);
        m.l0[1].tables[0].max_seq = Seq(20);
        assert_eq!(broken(&m), Some("L0 sequence numbers descend"));
    }

    #[test]
    fn visible_ranges_make_overlapping_tables_disjoint() {
        let mut left = table(SstId(1), b"a", b"p", 1, 1);
        let mut right = table(SstId(2), b"c", b"z", 1, 1);
        assert!(!is_before(&left, &right));
        left.visible_end = Some(b"h".as_slice().into());
        assert!(!is_before(&left, &right));
        right.visible_start = Some(b"h".as_slice().into());
        assert!(is_before(&left, &right));
    }
}
