//! A checkpoint becomes the current state again: which fields go back, and which never do.

use super::*;
use crate::state::{
    Checkpoint, FedIngest, FedSource, Hold, IngestOutcome, KeptFence, L0Entry, PendingIngest,
    RememberedIngest, Timeline,
};
use bytes::Bytes;
use siltstone_base::{JobId, ManifestId, TimelineId};
use std::sync::Arc;

/// The version that checkpoint 1 of `manifest()` pins: manifest 3, before its last flush.
fn version() -> Manifest {
    let now = manifest();
    let (l0, runs) = (now.l0[1..].to_vec(), now.runs.clone());
    Manifest { id: ManifestId(3), flushed_seq: Seq(50), l0, runs, ..empty() }
}

fn restore() -> Restore {
    Restore {
        epoch: Epoch(2),
        checkpoint: CheckpointId(1),
        version: Arc::new(version()),
        log: LogTables {
            layers: vec![vec![table(SstId(50), b"a", b"m", 51, 55)]],
            ..LogTables::default()
        },
        cut: Seq(55),
        reached: Seq(90),
        commit_time: UnixMillis(700),
        fences: vec![KeptFence { id: WalId(8), epoch: Epoch(2), next_id: WalId(10) }],
        timeline: TimelineId(5),
        began_at: UnixMillis(800),
    }
}

fn apply(edit: Restore, rules: Rules) -> Result<Manifest, Refusal> {
    Edit::Restore(edit).apply_with(&manifest(), rules)
}

#[test]
fn the_tables_go_back_and_nothing_that_counts_does() {
    let (before, next) = (manifest(), apply(restore(), Rules::ALL).unwrap());
    let names: Vec<u128> = next.tables().map(|one| one.id.get()).collect();
    assert_eq!(names, vec![50, 13, 10, 11, 9], "its rows of the log are the newest layer");
    assert_eq!((next.flushed_seq, next.floor), (Seq(90), Seq(90)));
    assert_eq!((next.replay_from, next.wal_id_last_seen), (WalId(10), WalId(9)));
    assert_eq!((next.writer_epoch, next.compactor_epoch), (Epoch(2), Epoch(1)));
    assert!(next.last_l0_order > before.last_l0_order && next.tables_since == next.id);
    assert_eq!(next.checkpoints, before.checkpoints);
    assert_eq!(next.commit_time, UnixMillis(700));
    assert!(next.closed_cleanly() && next.reserved.is_empty() && next.pending_ingests.is_empty());
    let timeline = next.timelines.last().unwrap();
    assert_eq!((timeline.cut, timeline.begins), (Seq(55), Seq(91)));
    assert_eq!(next.restored_at(), next.id);
    assert_eq!(broken(&next), None);
    assert!(Edit::Restore(restore()).in_effect(&next));
    assert!(!Edit::Restore(restore()).in_effect(&before));
}

/// S1: a restore that was overtaken since its fence commits nothing.
#[test]
fn another_epoch_is_fenced() {
    let older = Restore { epoch: Epoch(1), ..restore() };
    assert_eq!(apply(older.clone(), Rules::ALL), Err(Refusal::Fenced { by: Epoch(2) }));
    assert!(apply(older, Rules::ALL.without(Rule::RestoreByEpoch)).is_ok());
}

/// S1: a version that a collector may have deleted since is not restored.
#[test]
fn a_restored_version_is_pinned_in_the_same_state() {
    let gone = Restore { checkpoint: CheckpointId(77), ..restore() };
    let expired = Err(Refusal::Expired { checkpoint: CheckpointId(77) });
    assert_eq!(apply(gone.clone(), Rules::ALL), expired);
    assert!(apply(gone, Rules::ALL.without(Rule::RestoreFromPresent)).is_ok());
    let other = Manifest { id: ManifestId(4), ..version() };
    let other = Restore { version: Arc::new(other), ..restore() };
    assert_eq!(apply(other, Rules::ALL), Err(Refusal::Expired { checkpoint: CheckpointId(1) }));
}

/// S1: with the checkpoint's own number a reader keeps undone rows, which are above it, and the
/// next writer uses their numbers again.
#[test]
fn numbers_go_on_above_all_that_was_met() {
    let without = apply(restore(), Rules::ALL.without(Rule::RestoreGoesOn)).unwrap();
    assert_eq!(without.flushed_seq, Seq(55));
    assert_eq!(apply(restore(), Rules::ALL).unwrap().timelines[0].begins, Seq(91));
}

/// S1: with the old replay point the next opener replays undone rows.
#[test]
fn the_log_before_the_fence_is_cut_off() {
    let without = apply(restore(), Rules::ALL.without(Rule::RestoreCutsLog)).unwrap();
    assert_eq!(without.replay_from, manifest().replay_from);
    assert!(apply(restore(), Rules::ALL).unwrap().replay_from > WalId(8));
}

fn timeline(id: u128, cut: u64, begins: u64, manifest: u64) -> Timeline {
    let (cut, begins, manifest_id) = (Seq(cut), Seq(begins), ManifestId(manifest));
    Timeline { id: TimelineId(id), cut, begins, manifest_id, began_at: UnixMillis(1) }
}

/// S1: the restored state continues the histories of the checkpoint. With the previous histories,
/// restored rows would count as undone.
#[test]
fn a_restored_state_has_the_checkpoints_histories() {
    let (before, beside) = (timeline(3, 20, 31, 2), timeline(4, 10, 71, 4));
    let version = Arc::new(Manifest { timelines: vec![before], ..version() });
    let base = Manifest { timelines: vec![beside], ..manifest() };
    let edit = Edit::Restore(Restore { version, ..restore() });
    let ids = |state: &Manifest| -> Vec<u128> {
        state.timelines.iter().map(|one| one.id.get()).collect()
    };
    let next = edit.apply(&base).unwrap();
    assert_eq!((ids(&next), broken(&next)), (vec![3, 5], None));
    assert_eq!(next.undone(None, Seq(20)), None);
    assert!(
        next.undone(None, Seq(21)).is_some() && next.undone(Some(TimelineId(4)), Seq(75)).is_some()
    );
    let without = Rules::ALL.without(Rule::RestoreTakesHistory);
    assert_eq!(ids(&edit.apply_with(&base, without).unwrap()), [4, 5]);
}

/// W6: a hold of another history ends, though its number is below the cut.
#[test]
fn a_hold_beside_the_cut_ends() {
    let hold = |name: &str, seq| Hold {
        name: name.to_owned(),
        generation: 1,
        wal_from: WalId(5),
        seq: Seq(seq),
        expires_at: None,
        most_bytes: None,
        unretained: None,
    };
    let beside = timeline(4, 10, 41, 4);
    let holds = vec![hold("shared", 9), hold("beside", 44), hold("beyond", 60)];
    let base = Manifest { timelines: vec![beside], holds, ..manifest() };
    let names = |rules| {
        let next = Edit::Restore(restore()).apply_with(&base, rules).unwrap();
        next.holds.iter().map(|one| one.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(Rules::ALL), ["shared"]);
    assert_eq!(names(Rules::ALL.without(Rule::HoldInHistory)), ["shared", "beside"]);
}

/// S2: the plan assumed a last run that the restore filled again.
#[test]
fn a_job_that_was_planned_before_is_void() {
    let next = apply(restore(), Rules::ALL).unwrap();
    let planned = |on: ManifestId| {
        Edit::FinishCompaction(FinishCompaction { planned_on: on, ..finish(&[13, 10, 11], 6) })
    };
    let at = next.id;
    assert_eq!(planned(ManifestId(5)).apply(&next), Err(Conflict::RestoredSince { at }.into()));
    assert!(planned(at).apply(&next).is_ok());
    let without = Rules::ALL.without(Rule::RestoreVoidsPlans);
    assert!(planned(ManifestId(5)).apply_with(&next, without).is_ok());
    let given_up = FinishCompaction { planned_on: ManifestId(5), add: vec![], ..finish(&[], 6) };
    assert!(Edit::FinishCompaction(given_up).apply(&next).is_ok());
}

#[test]
fn the_owners_checkpoints_stay_but_for_a_writers() {
    let mut base = manifest();
    let writers = Checkpoint {
        owner: CheckpointOwner::Writer(Epoch(2)),
        ..crate::testing::checkpoint(9, None)
    };
    base.checkpoints.push(writers);
    let next = Edit::Restore(restore()).apply(&base).unwrap();
    assert_eq!(next.checkpoints, manifest().checkpoints);
    let named: Vec<L0Entry> = next.l0;
    assert_eq!(named.len(), 2);
}

const JOB: JobId = JobId(9);
const DIGEST: Bytes = Bytes::from_static(b"parts");

/// [`version`], whose log continues with a row, the job, a row and a large batch: 51 to 54.
fn with_ingests(app: Option<(String, u64)>) -> Restore {
    let asked = PendingIngest {
        job: JOB,
        requested_at: UnixMillis(1),
        digest: DIGEST,
        app,
        timeline: None,
    };
    let version = Manifest { pending_ingests: vec![asked], left: vec![SstId(90)], ..version() };
    let at = |id, seq, job| SstDescriptor {
        job,
        seq_override: Some(Seq(seq)),
        ..table(SstId(id), b"a", b"z", 0, 0)
    };
    let row = |id, seq| vec![table(SstId(id), b"a", b"m", seq, seq)];
    let log = LogTables {
        layers: vec![row(50, 51), row(51, 53)],
        ingests: vec![InstallIngest {
            after: 1,
            job: JOB,
            digest: DIGEST,
            layers: vec![vec![at(20, 52, Some(JOB))]],
        }],
        batches: vec![InstallBatch { after: 2, tables: vec![at(90, 54, None)] }],
    };
    Restore { version: Arc::new(version), log, cut: Seq(54), ..restore() }
}

fn ended(state: &Manifest) -> Vec<(JobId, IngestOutcome)> {
    state.remembered_ingests.iter().map(|one| (one.job, one.outcome)).collect()
}

/// N14: data that was only in the log becomes part of the state, once, and at its position.
#[test]
fn ingests_of_the_log_come_back_at_their_numbers() {
    let next = apply(with_ingests(None), Rules::ALL).unwrap();
    let names: Vec<u128> = next.l0.iter().map(|entry| entry.tables[0].id.get()).collect();
    assert_eq!(names, vec![90, 51, 20, 50, 13]);
    assert!(next.pending_ingests.is_empty() && next.left.is_empty());
    assert_eq!(ended(&next), [(JOB, IngestOutcome::Adopted(Seq(52)))]);
    assert_eq!(broken(&next), None);
    // Installed meanwhile, or withdrawn after a restore to an earlier state.
    for outcome in [IngestOutcome::Adopted(Seq(52)), IngestOutcome::Withdrawn] {
        let known = RememberedIngest { job: JOB, outcome, reason: None };
        let base = Manifest { remembered_ingests: vec![known], ..manifest() };
        let next = Edit::Restore(with_ingests(None)).apply(&base).unwrap();
        assert_eq!(ended(&next), [(JOB, IngestOutcome::Adopted(Seq(52)))]);
    }
}

/// N11, N14: a new job of the same version would add the rows a second time.
#[test]
fn an_ingest_that_comes_back_brings_its_application() {
    let next = apply(with_ingests(Some(("stream".to_owned(), 8))), Rules::ALL).unwrap();
    let apps: Vec<_> = next.ingest_apps.iter().map(|one| (one.version, one.job)).collect();
    assert_eq!((apps, ended(&next)), (vec![(8, JOB)], vec![]));
}

/// N9: an unrequested job is not kept.
#[test]
fn only_kept_ingests_come_back_with_a_checkpoint() {
    let of = |change: fn(&mut Manifest)| {
        let mut edit = with_ingests(None);
        change(Arc::make_mut(&mut edit.version));
        apply(edit, Rules::ALL)
    };
    for refused in
        [of(|version| version.pending_ingests.clear()), of(|version| version.left.clear())]
    {
        assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
    }
    let beyond = Restore { cut: Seq(53), ..with_ingests(None) };
    assert!(matches!(apply(beyond, Rules::ALL), Err(Refusal::Invalid(_))));
}

/// W4: a consumer that has not seen the ingest reads it from the original tables, kept once.
#[test]
fn the_unseen_part_of_an_ingest_stays() {
    let hold = Hold {
        name: "behind".to_owned(),
        generation: 1,
        wal_from: WalId(5),
        seq: Seq(45),
        expires_at: None,
        most_bytes: None,
        unretained: None,
    };
    let fed = FedIngest { seq: Seq(52), source: FedSource::Job(JOB) };
    for known in [vec![], vec![fed]] {
        let base = Manifest { holds: vec![hold.clone()], fed: known, ..manifest() };
        let next = Edit::Restore(with_ingests(None)).apply(&base).unwrap();
        let batch = FedIngest { seq: Seq(54), source: FedSource::Table(SstId(90)) };
        assert_eq!(next.fed, [fed, batch]);
    }
}

/// N10: at most the maximum number is remembered, including jobs that a restore adds.
#[test]
fn where_many_are_remembered_the_earliest_goes() {
    let known = |job: u128| RememberedIngest {
        job: JobId(job << 80),
        outcome: IngestOutcome::Withdrawn,
        reason: None,
    };
    let base = Manifest { remembered_ingests: (1000..5096).map(known).collect(), ..manifest() };
    let next = Edit::Restore(with_ingests(None)).apply(&base).unwrap();
    assert_eq!((next.remembered_ingests.len(), broken(&next)), (4096, None));
}
