use super::*;
use crate::edit::Edit;
use crate::testing::{checkpoint, empty, manifest, table};
use siltstone_base::{DatabaseId, SstId, WalId};

fn prefix() -> KeepPrefix {
    KeepPrefix {
        epoch: Epoch(2),
        log: LogTables {
            layers: vec![vec![table(SstId(50), b"a", b"m", 61, 65)]],
            ..LogTables::default()
        },
        cut: Seq(65),
        reached: Seq(90),
        commit_time: UnixMillis(700),
        fences: vec![
            KeptFence { id: WalId(8), epoch: Epoch(2), next_id: WalId(9) },
            KeptFence { id: WalId(9), epoch: Epoch(2), next_id: WalId(11) },
        ],
        timeline: TimelineId(5),
        began_at: UnixMillis(800),
    }
}

fn void() -> VoidManifests {
    VoidManifests {
        jobs: Vec::new(),
        last: ManifestId(7),
        epoch: Epoch(3),
        claim: AttemptId(103),
        fences: vec![KeptFence { id: WalId(4), epoch: Epoch(1), next_id: WalId(6) }],
        wal_boundary: WalId(9),
        gone: vec![CheckpointId(1)],
        readable: BTreeSet::new(),
        timeline: TimelineId(5),
        began_at: UnixMillis(800),
    }
}

/// Y2: rows before the cut are in tables, the rest of the log is behind the replay point, and its
/// numbers are not used again.
#[test]
fn the_cut_part_of_the_log_is_passed() {
    let edit = Edit::KeepPrefix(prefix());
    let next = edit.apply(&manifest()).unwrap();
    assert!(edit.in_effect(&next) && !edit.in_effect(&manifest()));
    assert_eq!((next.flushed_seq, next.replay_from), (Seq(90), WalId(11)));
    assert_eq!(next.l0[0].tables[0].id, SstId(50));
    assert_eq!(next.l0.len(), 3);
    let began = next.timelines.last().unwrap();
    assert_eq!((began.cut, began.begins, began.manifest_id), (Seq(65), Seq(91), next.id));
    assert!(next.closed_cleanly() && next.reserved.is_empty());
    assert_eq!(next.kept_fences.len(), 3);
    let rules = Rules::ALL.without(Rule::CutPassesNumbers);
    assert_eq!(edit.apply_with(&manifest(), rules).unwrap().flushed_seq, Seq(65));
}

#[test]
fn a_log_is_cut_off_under_the_own_epoch_alone() {
    let edit = Edit::KeepPrefix(KeepPrefix { epoch: Epoch(1), ..prefix() });
    assert_eq!(edit.apply(&manifest()), Err(Refusal::Fenced { by: Epoch(2) }));
}

/// Y3: after all used numbers, under an epoch that no void manifest can have claimed.
#[test]
fn void_manifests_are_passed() {
    let mut base = manifest();
    let clone = CheckpointOwner::Clone(DatabaseId(9));
    base.checkpoints.push(crate::state::Checkpoint { owner: clone, ..checkpoint(3, Some(900)) });
    let next = void().apply(&base, Rules::ALL).unwrap();
    assert_eq!(next.id, ManifestId(8));
    assert_eq!(next.writer_epoch, Epoch(5), "manifests 6 and 7 may have claimed 3 and 4");
    assert!(next.compactor_epoch > Epoch(3) && next.compactor_is_released());
    assert_eq!(next.widest_window, MAX_PARALLEL_WRITES);
    assert!(!next.closed_cleanly(), "no writer was fenced");
    assert_eq!((next.l0.clone(), next.replay_from), (base.l0.clone(), base.replay_from));
    assert_eq!(next.wal_id_last_seen, WalId(9), "freed up to there");
    assert_eq!(next.checkpoint(CheckpointId(1)), None);
    assert_eq!(next.checkpoint(CheckpointId(3)).unwrap().expires_at, None);
    assert!(next.leases.is_empty() && next.features.keeps_tables());
    assert_eq!(next.kept_fences.len(), 2);
    assert_eq!(next.restored_at(), next.id, "plans made on void ones are void");
    let collected = Edit::CollectTables.apply(&next).unwrap();
    assert!(!collected.features.keeps_tables() && Edit::CollectTables.in_effect(&collected));
    let rules = Rules::ALL.without(Rule::VoidPassesEpochs);
    assert_eq!(void().apply(&base, rules).unwrap().writer_epoch, Epoch(4));
}

/// The epochs in the log count as well: a manifest may be missing without a trace.
#[test]
fn an_epoch_of_the_log_is_passed() {
    let lost = VoidManifests { last: ManifestId(5), epoch: Epoch(9), ..void() };
    let next = lost.apply(&manifest(), Rules::ALL).unwrap();
    assert_eq!((next.id, next.writer_epoch), (ManifestId(6), Epoch(10)));
}

/// If the repair continues from the first manifest, the next number is the one that it names.
#[test]
fn numbers_of_a_database_that_counts_from_later_go_on() {
    let database = DatabaseId::counting_from(7 * siltstone_base::id::NUMBERS_A_MILLI, 1);
    let first = Manifest::new_database(database, empty().settings);
    let lost = VoidManifests { last: first.id, gone: Vec::new(), fences: Vec::new(), ..void() };
    let next = lost.apply(&first, Rules::ALL).unwrap();
    assert_eq!((next.id, next.writer_epoch), (first.next_id(), Epoch(4)));
    let second = VoidManifests { last: first.next_id(), epoch: Epoch::NONE, ..lost };
    let next = second.apply(&first, Rules::ALL).unwrap();
    assert_eq!((next.id, next.writer_epoch), (first.next_id().next(), Epoch(2)));
}

/// A listed fence that reaches into another one is left over from a gap.
#[test]
fn a_fence_in_a_gap_is_not_kept() {
    let left = KeptFence { id: WalId(3), epoch: Epoch(1), next_id: WalId(5) };
    let next = VoidManifests { fences: vec![left], ..void() }.apply(&manifest(), Rules::ALL);
    assert_eq!(next.unwrap().kept_fences, manifest().kept_fences);
}
