use super::*;
use crate::invariant::broken;
use crate::state::{CheckpointOwner, RELEASED, SortedRun};
use crate::testing::{empty, manifest, table};
use proptest::prelude::*;
use siltstone_base::{JobId, Seq, SstDescriptor, WalId};

mod batch;
mod checkpoints;
mod destroy;
mod ingest;
mod restore;
mod schema;

fn claim(expected: u64, identity: u128) -> ClaimWriter {
    ClaimWriter {
        expected: Epoch(expected),
        claim: AttemptId(identity),
        max_parallel_writes: 2,
        take_over: true,
        transient: false,
        ends_transient: false,
        reserve: vec![SstId(1000 + identity), SstId(2000 + identity)],
        checkpoint: Some(NewCheckpoint { id: CheckpointId(identity), ..NewCheckpoint::default() }),
        merge_operator: None,
    }
}

/// The writer of `manifest()` flushes a table under its first reserved name.
fn flush(base: &Manifest) -> FlushL0 {
    FlushL0 {
        layers: vec![vec![table(SstId(50), b"a", b"m", 61, 70)]],
        replay_from: WalId(9),
        flushed_seq: Seq(70),
        wal_id_last_seen: WalId(8),
        reserve: vec![SstId(52)],
        floor: Seq(65),
        ..FlushL0::nothing(Epoch(2), base)
    }
}

fn finish(remove: &[u128], destination: u32) -> FinishCompaction {
    // Table 13 reaches from b to y; every other input of these tests is wider.
    let [first, last] = if remove == [13] { [b"b", b"y"] } else { [b"a", b"z"] };
    FinishCompaction {
        epoch: Epoch(1),
        job: JobId(301),
        planned_on: ManifestId::FIRST,
        remove: remove.iter().map(|id| SstId(*id).into()).collect(),
        add: vec![table(SstId(70), first, last, 1, 50)],
        destination,
        retire: vec![JobId(300)],
    }
}

#[test]
fn the_first_claim_that_brings_an_operator_records_it() {
    let bring = |expected, identity, name: Option<&str>| {
        let merge_operator = name.map(str::to_owned);
        Edit::ClaimWriter(ClaimWriter { merge_operator, ..claim(expected, identity) })
    };
    let recorded = |state: &Manifest| state.settings.merge_operator.clone();
    let first = bring(0, 1, None).apply(&empty()).unwrap();
    assert_eq!(recorded(&first), None);
    let second = bring(1, 2, Some("sum_i64")).apply(&first).unwrap();
    assert_eq!(recorded(&second).as_deref(), Some("sum_i64"));
    let third = bring(2, 3, None).apply(&second).unwrap();
    assert_eq!(recorded(&third).as_deref(), Some("sum_i64"));
    assert!(matches!(bring(3, 4, Some("max")).apply(&third), Err(Refusal::Invalid(_))));
}

#[test]
fn a_claim_takes_the_epoch_the_names_and_the_checkpoint_of_the_older_writer() {
    let first = Edit::ClaimWriter(claim(0, 1)).apply(&empty()).unwrap();
    let second = Edit::ClaimWriter(claim(1, 2)).apply(&first).unwrap();
    assert_eq!(second.writer_epoch, Epoch(2));
    assert_eq!(second.reserved, vec![SstId(1002), SstId(2002)]);
    let owners: Vec<_> = second.checkpoints.iter().map(|one| (one.id, one.owner)).collect();
    assert_eq!(owners, vec![(CheckpointId(2), CheckpointOwner::Writer(Epoch(2)))]);
    assert_eq!(second.checkpoints[0].manifest_id, second.id);
}

#[test]
fn a_writer_that_was_taken_over_claims_no_compactor() {
    let state = manifest();
    let claim = |writer| Edit::ClaimCompactor {
        writer,
        expected: state.compactor_epoch,
        claim: AttemptId(7),
    };
    for writer in [None, Some(state.writer_epoch)] {
        let claimed = claim(writer).apply(&state).unwrap();
        assert_eq!(claimed.compactor_epoch, state.compactor_epoch.next());
    }
    let older = claim(Some(Epoch(state.writer_epoch.get() - 1))).apply(&state);
    assert_eq!(older, Err(Refusal::Fenced { by: state.writer_epoch }));
}

#[test]
fn a_compactor_gives_up_its_own_epoch_alone() {
    let state = manifest();
    let epoch = state.compactor_epoch;
    assert!(!state.compactor_is_released());
    let release = Edit::ReleaseCompactor { epoch };
    let released = release.apply(&state).unwrap();
    assert!(released.compactor_is_released() && release.in_effect(&released));
    assert_eq!(released.compactor_epoch, epoch);
    let claim = Edit::ClaimCompactor { writer: None, expected: epoch, claim: AttemptId(7) };
    let next = claim.apply(&released).unwrap();
    assert!(!next.compactor_is_released() && !release.in_effect(&next));
    assert_eq!(release.apply(&next), Err(Refusal::CompactorFenced { by: epoch.next() }));
    // The value that means "released" is not the identity of any claim.
    let claim = Edit::ClaimCompactor { writer: None, expected: epoch, claim: RELEASED };
    assert!(claim.apply(&state).is_err());
}

/// RFC 0024: a feature is recorded before the first object that needs it.
#[test]
fn units_are_named_by_the_newest_compactor() {
    let state = manifest();
    let begin = |epoch| Edit::BeginUnits { epoch };
    let epoch = state.compactor_epoch;
    let named = begin(epoch).apply(&state).unwrap();
    assert!(begin(epoch).in_effect(&named) && !begin(epoch).in_effect(&state));
    assert!(named.features.check_committable().is_ok());
    assert_eq!(begin(epoch).apply(&named).unwrap().features, named.features, "once");
    let fenced = Refusal::CompactorFenced { by: epoch };
    assert_eq!(begin(epoch.next()).apply(&state), Err(fenced));
}

/// A writer that was opened briefly is ended by the next opener, unless that opener is to wait.
#[test]
fn a_claim_for_a_moment_is_ended_without_take_over() {
    let polite = |ends_transient| {
        Edit::ClaimWriter(ClaimWriter { take_over: false, ends_transient, ..claim(1, 9) })
    };
    let first = |transient| Edit::ClaimWriter(ClaimWriter { transient, ..claim(0, 8) });
    let brief = first(true).apply(&empty()).unwrap();
    let refused = Err(Conflict::NotClosed { epoch: Epoch(1) }.into());
    assert_eq!(polite(false).apply(&brief), refused);
    let next = polite(true).apply(&brief).unwrap();
    assert_eq!((next.writer_epoch, next.writers[1].transient), (Epoch(2), false));
    let lasting = first(false).apply(&empty()).unwrap();
    assert_eq!(polite(true).apply(&lasting), refused);
}

#[test]
fn a_claim_without_take_over_names_the_epoch_that_may_be_alive() {
    let polite = Edit::ClaimWriter(ClaimWriter { take_over: false, ..claim(2, 9) });
    let refused = polite.apply(&manifest());
    assert_eq!(refused, Err(Conflict::NotClosed { epoch: Epoch(2) }.into()));
    let closed = closed(2, 0).apply(&manifest()).unwrap();
    assert!(polite.apply(&closed).is_ok());
}

fn closed(epoch: u64, last: u64) -> Edit {
    Edit::CloseClean { epoch: Epoch(epoch), wal_id_last_seen: WalId(last) }
}

/// F2: after a clean close a log that ends earlier has a hole.
#[test]
fn a_clean_close_records_the_end_of_the_log() {
    let known = manifest().wal_id_last_seen;
    let next = closed(2, known.get() + 3).apply(&manifest()).unwrap();
    assert_eq!(next.wal_id_last_seen, WalId(known.get() + 3));
    assert_eq!(closed(2, 1).apply(&manifest()).unwrap().wal_id_last_seen, known);
}

#[test]
fn the_window_recorded_is_the_widest_ever_even_when_records_go() {
    let mut state = Edit::ClaimWriter(ClaimWriter { max_parallel_writes: 7, ..claim(0, 1) })
        .apply(&empty())
        .unwrap();
    for epoch in 1..40u64 {
        state = Edit::ClaimWriter(claim(epoch, u128::from(epoch) + 1)).apply(&state).unwrap();
    }
    assert_eq!(state.writers.len(), crate::state::WRITER_RECORDS);
    assert_eq!(state.widest_window, 7);
}

/// L1: this number shows up to which version leases on older versions still cover the tables.
#[test]
fn the_commit_that_changes_tables_is_recorded() {
    let base = manifest();
    let nothing = Edit::FlushL0(FlushL0::nothing(Epoch(2), &base)).apply(&base).unwrap();
    assert_eq!(nothing.tables_since, base.tables_since);
    let flushed = Edit::FlushL0(flush(&base)).apply(&base).unwrap();
    assert_eq!(flushed.tables_since, flushed.id);
    let compacted = Edit::FinishCompaction(finish(&[13], 7)).apply(&flushed).unwrap();
    assert_eq!(compacted.tables_since, compacted.id);
    let given_up = FinishCompaction { add: vec![], ..finish(&[], 6) };
    let given_up = Edit::FinishCompaction(given_up).apply(&base).unwrap();
    assert_eq!(given_up.tables_since, base.tables_since);
}

/// W2: independent of a writer's clock.
#[test]
fn the_commit_time_never_falls() {
    let base = Manifest { commit_time: UnixMillis(50), ..manifest() };
    for (said, then) in [(40, 50), (60, 60)] {
        let said = FlushL0 { commit_time: UnixMillis(said), ..flush(&base) };
        assert_eq!(Edit::FlushL0(said).apply(&base).unwrap().commit_time, UnixMillis(then));
    }
}

/// A pin names the attempt that wrote its manifest; for a planned manifest the attempt is not known
/// yet.
#[test]
fn a_checkpoint_says_which_attempt_wrote_what_it_pins() {
    let new = |id, source| {
        let id = CheckpointId(id);
        Edit::AddCheckpoint(NewCheckpoint { id, source, ..NewCheckpoint::default() })
    };
    let planned = new(8, None).apply(&manifest()).unwrap();
    let attempt =
        |state: &Manifest, id| state.checkpoint(CheckpointId(id)).unwrap().manifest_attempt;
    assert!(planned.attempt.is_none() && attempt(&planned, 8).is_none());
    let written = planned.written_as(AttemptId(77));
    assert_eq!((written.attempt, attempt(&written, 8)), (AttemptId(77), AttemptId(77)));
    assert_eq!(attempt(&written, 1), AttemptId(30), "another manifest's");
    let copied = new(9, Some(CheckpointId(8))).apply(&written).unwrap();
    let copied = copied.written_as(AttemptId(78));
    assert_eq!((attempt(&copied, 8), attempt(&copied, 9)), (AttemptId(77), AttemptId(77)));
}

/// Checkpoints of a newer version are preserved, except for their expiry.
#[test]
fn a_checkpoint_of_an_unknown_kind_is_kept() {
    let mut base = manifest();
    let owner = CheckpointOwner::Other { kind: 99, epoch: None, database: None };
    base.checkpoints[0].owner = owner;
    let id = base.checkpoints[0].id;
    let removed = Edit::RemoveCheckpoint { id }.apply(&base);
    let refreshed = Edit::RefreshCheckpoint { id, expires_at: None }.apply(&base);
    let release = vec![Release { checkpoint: id, needed: vec![] }];
    let update = UpdateCheckpoints { release, ..UpdateCheckpoints::default() };
    let released = Edit::UpdateCheckpoints(update).apply(&base);
    for refused in [removed, refreshed, released] {
        assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
    }
    let claimed = Edit::ClaimWriter(claim(2, 9)).apply(&base).unwrap();
    assert_eq!(claimed.checkpoint(id).unwrap().owner, owner);
    let expired = Edit::RevokeExpired { ids: vec![id], now: UnixMillis(900) };
    assert!(expired.apply(&base).unwrap().checkpoint(id).is_none());
}

#[test]
fn a_flush_of_a_superseded_writer_is_fenced() {
    let taken = Edit::ClaimWriter(claim(2, 9)).apply(&manifest()).unwrap();
    let late = Edit::FlushL0(flush(&manifest()));
    assert_eq!(late.apply(&taken), Err(Refusal::Fenced { by: Epoch(3) }));
    assert!(!late.in_effect(&taken));
}

#[test]
fn a_table_whose_name_is_not_reserved_is_refused() {
    let base = manifest();
    let mut unreserved = flush(&base);
    unreserved.layers[0][0].id = SstId(99);
    let refused = Edit::FlushL0(unreserved.clone()).apply(&base);
    assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
    assert!(!Edit::FlushL0(unreserved).in_effect(&base));
}

/// R1, R2: the effect of each rule, shown by dropping it.
#[test]
fn reservations_are_checked_and_end_by_takeover() {
    let base = manifest();
    let mut unreserved = flush(&base);
    unreserved.layers[0][0].id = SstId(99);
    let unchecked = Rules::ALL.without(Rule::CheckReservation);
    assert!(Edit::FlushL0(unreserved).apply_with(&base, unchecked).is_ok());

    let next = Edit::ClaimWriter(claim(2, 9));
    assert!(!next.apply(&base).unwrap().reserved.contains(&SstId(50)));
    let piling = Rules::ALL.without(Rule::TakeoverVoidsNames);
    assert!(next.apply_with(&base, piling).unwrap().reserved.contains(&SstId(50)));
}

/// M2 (model): compaction removed the table; a check for its presence would add it again.
#[test]
fn a_flush_is_recognised_after_compaction_took_its_table() {
    let base = manifest();
    let edit = Edit::FlushL0(flush(&base));
    let flushed = edit.apply(&base).unwrap();
    let mut whole = finish(&[50, 14, 13, 10, 11], 6);
    whole.add[0].max_seq = Seq(70);
    let compacted = Edit::FinishCompaction(whole).apply(&flushed).unwrap();
    assert!(edit.in_effect(&compacted));
    let rules = Rules::ALL.without(Rule::SettleByReservation);
    assert!(!edit.in_effect_with(&compacted, rules));
}

#[test]
fn a_flush_past_a_fence_must_not_rest_inside_its_gap() {
    let base = manifest();
    let fence = KeptFence { id: WalId(8), epoch: Epoch(2), next_id: WalId(10) };
    let inside = FlushL0 { fences: vec![fence], ..flush(&base) };
    let refused = Edit::FlushL0(inside.clone()).apply(&base);
    assert_eq!(refused, Err(Refusal::Broken("the replay point is outside every gap")));
    let point = replay_point(WalId(8), &[fence], Rules::ALL);
    let outside = FlushL0 { replay_from: point, ..inside };
    assert!(Edit::FlushL0(outside).apply(&base).is_ok());
}

#[test]
fn layers_come_in_above_all_others() {
    let base = manifest();
    let two = FlushL0 {
        layers: vec![
            vec![table(SstId(50), b"a", b"m", 61, 65)],
            vec![table(SstId(51), b"a", b"m", 66, 70)],
        ],
        ..flush(&base)
    };
    let next = Edit::FlushL0(two).apply(&base).unwrap();
    let l0: Vec<_> = next.l0.iter().map(|entry| (entry.order, entry.tables[0].id.0)).collect();
    assert_eq!(l0, vec![(6, 51), (5, 50), (4, 14), (3, 13)]);
    assert_eq!(next.reserved, vec![SstId(52)]);
}

#[test]
fn compaction_takes_the_oldest_of_l0_and_no_newer_alone() {
    let base = manifest();
    let oldest = Edit::FinishCompaction(finish(&[13], 7)).apply(&base).unwrap();
    assert_eq!(oldest.l0_last_compacted, Some(SstId(13)));
    assert_eq!(oldest.runs.iter().map(|run| run.id).collect::<Vec<_>>(), vec![7, 6, 0]);
    assert_eq!(oldest.finished_jobs.len(), 1);
    let newest = Edit::FinishCompaction(finish(&[14], 7)).apply(&base);
    assert_eq!(newest, Err(Conflict::Overlap { table: SstId(13) }.into()));
    let below = Edit::FinishCompaction(finish(&[14, 13], 3)).apply(&base);
    assert_eq!(below, Err(Conflict::Overlap { table: SstId(10) }.into()));
}

/// N3: a table that was placed into the destination meanwhile survives, in key order.
#[test]
fn compaction_leaves_a_table_that_came_meanwhile() {
    let mut base = manifest();
    base.runs[0].tables = vec![table(SstId(10), b"a", b"f", 21, 30)];
    base.l0 = vec![];
    base.runs[0].tables.push(table(SstId(80), b"x", b"z", 31, 31));
    let mut job = finish(&[10], 6);
    job.add = vec![table(SstId(70), b"a", b"f", 21, 30)];
    let next = Edit::FinishCompaction(job).apply(&base).unwrap();
    let names: Vec<_> = next.runs[0].tables.iter().map(|table| table.id.0).collect();
    assert_eq!(names, vec![70, 80]);
}

/// P3: an output that spans a table which was added meanwhile is visible on both sides of it.
#[test]
fn outputs_are_cut_around_a_table_that_came_meanwhile() {
    let mut base = manifest();
    base.l0 = vec![];
    let (left, right) =
        (table(SstId(10), b"a", b"f", 21, 30), table(SstId(12), b"p", b"z", 21, 30));
    base.runs[0].tables = vec![left, table(SstId(80), b"h", b"k", 31, 31), right];
    let mut job = finish(&[10, 12], 6);
    job.add = vec![table(SstId(70), b"a", b"z", 21, 30)];
    let edit = Edit::FinishCompaction(job);
    let next = edit.apply(&base).unwrap();
    let seen: Vec<_> = next.runs[0]
        .tables
        .iter()
        .map(|table| (table.id.0, table.visible_start.as_deref(), table.visible_end.as_deref()))
        .collect();
    let behind = b"k\0".as_slice();
    assert_eq!(
        seen,
        [(70, None, Some(b"h".as_slice())), (80, None, None), (70, Some(behind), None)]
    );
    let refused = edit.apply_with(&base, Rules::ALL.without(Rule::CutAroundSlotted));
    assert_eq!(refused, Err(Conflict::Overlap { table: SstId(80) }.into()));
}

/// A row must not rise above one that stays, and must come from an input.
#[test]
fn compaction_lets_rows_sink_and_adds_none() {
    let rises = Edit::FinishCompaction(finish(&[9], 3)).apply(&manifest());
    assert!(matches!(rises, Err(Refusal::Invalid(_))), "{rises:?}");
    let mut wider = finish(&[13], 7);
    wider.add[0].last_key = b"z".as_slice().into();
    let wider = Edit::FinishCompaction(wider).apply(&manifest());
    assert!(matches!(wider, Err(Refusal::Invalid(_))), "{wider:?}");
}

/// Sources that are not neighbours: the layers in between share no keys with them.
#[test]
fn compaction_passes_what_it_shares_no_keys_with() {
    let mut base = manifest();
    base.l0 = vec![];
    base.runs[0].tables = vec![table(SstId(10), b"m", b"p", 21, 40)];
    base.runs.insert(0, SortedRun { id: 8, tables: vec![table(SstId(12), b"a", b"c", 41, 50)] });
    let mut job = finish(&[12, 9], 0);
    job.add = vec![table(SstId(70), b"a", b"z", 1, 50)];
    let next = Edit::FinishCompaction(job.clone()).apply(&base).unwrap();
    assert_eq!(next.runs.iter().map(|run| run.id).collect::<Vec<_>>(), vec![6, 0]);
    base.runs[1].tables[0].first_key = b"c".as_slice().into();
    let refused = Edit::FinishCompaction(job).apply(&base);
    assert_eq!(refused, Err(Conflict::Overlap { table: SstId(10) }.into()));
}

/// A job that is aborted changes nothing, but is recorded as finished.
#[test]
fn a_job_can_be_given_up() {
    let base = manifest();
    let given_up = FinishCompaction { add: vec![], retire: vec![], ..finish(&[], 3) };
    let edit = Edit::FinishCompaction(given_up);
    let next = edit.apply(&base).unwrap();
    assert!(edit.in_effect(&next));
    assert_eq!((next.l0, next.runs), (base.l0, base.runs));
}

#[test]
fn a_table_that_is_gone_ends_the_job() {
    let gone = Edit::FinishCompaction(finish(&[13, 99], 7)).apply(&manifest());
    assert_eq!(gone, Err(Conflict::TableGone { table: SstId(99) }.into()));
}

/// G3: the refresh was committed first.
#[test]
fn revoking_spares_what_was_refreshed() {
    let base = Manifest { leases: vec![], ..manifest() };
    let refresh =
        Edit::RefreshCheckpoint { id: CheckpointId(1), expires_at: Some(UnixMillis(5000)) };
    let refreshed = refresh.apply(&base).unwrap();
    let revoke = Edit::RevokeExpired { ids: vec![CheckpointId(1)], now: UnixMillis(1000) };
    assert!(revoke.apply(&base).unwrap().checkpoint(CheckpointId(1)).is_none());
    assert!(revoke.in_effect(&refreshed));
    assert!(revoke.apply(&refreshed).unwrap().checkpoint(CheckpointId(1)).is_some());
}

#[test]
fn a_checkpoint_that_is_gone_cannot_be_refreshed_or_copied() {
    let gone = Refusal::Expired { checkpoint: CheckpointId(8) };
    let refresh = Edit::RefreshCheckpoint { id: CheckpointId(8), expires_at: None };
    assert_eq!(refresh.apply(&manifest()), Err(gone));
    let copy = NewCheckpoint {
        id: CheckpointId(9),
        source: Some(CheckpointId(8)),
        ..NewCheckpoint::default()
    };
    assert_eq!(Edit::AddCheckpoint(copy).apply(&manifest()), Err(gone));
}

#[test]
fn a_copied_checkpoint_pins_what_its_source_pins() {
    let copy = NewCheckpoint {
        id: CheckpointId(9),
        source: Some(CheckpointId(1)),
        ..NewCheckpoint::default()
    };
    let next = Edit::AddCheckpoint(copy).apply(&manifest()).unwrap();
    let pins = |id| {
        let one = next.checkpoint(CheckpointId(id)).unwrap();
        (one.manifest_id, one.replay_from, one.wal_id_last_seen)
    };
    assert_eq!(pins(9), pins(1));
}

#[test]
fn a_destroyed_database_takes_only_clean_up() {
    let mut base = manifest();
    base.destroyed_at = Some(UnixMillis(1));
    let refused = Edit::FlushL0(flush(&base)).apply(&base);
    assert_eq!(refused, Err(Conflict::Destroyed.into()));
    assert!(Edit::RemoveCheckpoint { id: CheckpointId(1) }.apply(&base).is_ok());
}

/// One edit of every kind, over small ids so that their effects overlap.
fn any_edit() -> impl Strategy<Value = Edit> {
    let small = 0..4u64;
    prop_oneof![
        (small.clone(), 1..9u128).prop_map(|(epoch, id)| Edit::ClaimWriter(claim(epoch, id))),
        (small.clone(), 60..64u64, 0..3u128).prop_map(|(epoch, seq, name)| {
            let base = manifest();
            let layers = vec![vec![table(SstId(50 + name), b"a", b"m", seq, seq)]];
            Edit::FlushL0(FlushL0 {
                layers,
                flushed_seq: Seq(seq),
                reserve: vec![SstId(u128::from(seq))],
                ..FlushL0::nothing(Epoch(epoch), &base)
            })
        }),
        (small.clone(), 80..84u128).prop_map(|(epoch, name)| Edit::ReserveNames {
            epoch: Epoch(epoch),
            names: vec![SstId(name)]
        }),
        any_of_batches(),
        (small.clone(), 8..12u64).prop_map(|(epoch, id)| Edit::KeepFences {
            epoch: Epoch(epoch),
            fences: vec![KeptFence { id: WalId(id), epoch: Epoch(1), next_id: WalId(id + 1) }],
        }),
        (1..5u128, prop::option::of(1..5u128)).prop_map(|(id, source)| {
            Edit::AddCheckpoint(NewCheckpoint {
                id: CheckpointId(id),
                source: source.map(CheckpointId),
                ..NewCheckpoint::default()
            })
        }),
        (1..5u128, prop::option::of(1..2000u64)).prop_map(|(id, at)| Edit::RefreshCheckpoint {
            id: CheckpointId(id),
            expires_at: at.map(UnixMillis)
        }),
        (1..5u128).prop_map(|id| Edit::RemoveCheckpoint { id: CheckpointId(id) }),
        any_update(),
        any_covering(),
        (small.clone(), 5..9u128, 1..9u128, prop::option::of(13..15u128)).prop_map(
            |(epoch, add, checkpoint, needed)| {
                Edit::FlushL0(FlushL0 {
                    checkpoint: (add > checkpoint).then(|| NewCheckpoint {
                        id: CheckpointId(add),
                        ..NewCheckpoint::default()
                    }),
                    release: vec![Release {
                        checkpoint: CheckpointId(checkpoint),
                        needed: needed.into_iter().map(SstId).collect(),
                    }],
                    ..FlushL0::nothing(Epoch(epoch), &manifest())
                })
            }
        ),
        (1..5u128, 1..2000u64).prop_map(|(id, now)| Edit::RevokeExpired {
            ids: vec![CheckpointId(id)],
            now: UnixMillis(now)
        }),
        (small, 1..9u128).prop_map(|(epoch, id)| Edit::ClaimCompactor {
            writer: None,
            expected: Epoch(epoch),
            claim: AttemptId(id)
        }),
        (300..304u128, prop::sample::select(vec![vec![13], vec![14, 13], vec![9]]), 0..9u32)
            .prop_map(|(job, remove, destination)| {
                Edit::FinishCompaction(FinishCompaction {
                    job: JobId(job),
                    ..finish(&remove, destination)
                })
            }),
    ]
}

/// Names of large batches are reserved, one batch is installed, or the writer ends.
fn any_of_batches() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (0..4u64, 0..12u64).prop_map(|(epoch, last)| closed(epoch, last)),
        (0..4u64, 90..93u128, 90..93u128).prop_map(|(epoch, name, gone)| {
            let let_go = (name != gone).then_some(SstId(gone)).into_iter().collect();
            let (epoch, names) = (Epoch(epoch), vec![SstId(name)]);
            Edit::ReserveBatch(ReserveBatch { epoch, names, let_go })
        }),
        (0..4u64, 60..64u64, 90..93u128).prop_map(|(epoch, seq, name)| {
            let made = table(SstId(name), b"a", b"m", 1, 2);
            let tables = vec![SstDescriptor { seq_override: Some(Seq(seq)), ..made }];
            Edit::FlushL0(FlushL0 {
                batches: vec![InstallBatch { after: 0, tables }],
                flushed_seq: Seq(seq),
                ..FlushL0::nothing(Epoch(epoch), &manifest())
            })
        }),
    ]
}

/// A reader covers the versions that it reads.
fn any_covering() -> impl Strategy<Value = Edit> {
    let versions = prop::collection::vec(1..=5u64, 0..3);
    let kinds = (any::<bool>(), prop::option::of(1..2000u64));
    (kinds, versions, 1..2000u64, 0..400u64).prop_map(|((newest, since), versions, until, less)| {
        let leased = |id| crate::LeasedVersion {
            manifest_id: ManifestId(id),
            manifest_attempt: AttemptId(7),
        };
        let versions = versions.into_iter().map(leased).collect();
        let since = since.map(|more| UnixMillis(until + more));
        let (enough, until) = (UnixMillis(until.saturating_sub(less)), UnixMillis(until));
        Edit::CoverVersions(CoverVersions { since, newest, versions, enough, until })
    })
}

/// A reader swaps, refreshes, or releases checkpoints.
fn any_update() -> impl Strategy<Value = Edit> {
    let ids = || prop::collection::vec(1..5u128, 0..3);
    let add = prop::option::of(5..9u128);
    (add, ids(), ids(), prop::option::of(13..15u128), 1..2000u64).prop_map(
        |(add, release, refresh, needed, at)| {
            let expires_at = Some(UnixMillis(at));
            let needed: Vec<SstId> = needed.into_iter().map(SstId).collect();
            Edit::UpdateCheckpoints(UpdateCheckpoints {
                add: add.map(|id| NewCheckpoint {
                    id: CheckpointId(id),
                    owner: CheckpointOwner::Reader,
                    expires_at,
                    ..NewCheckpoint::default()
                }),
                release: release
                    .into_iter()
                    .map(|id| Release { checkpoint: CheckpointId(id), needed: needed.clone() })
                    .collect(),
                refresh: refresh.into_iter().map(CheckpointId).collect(),
                expires_at,
            })
        },
    )
}

proptest! {
    /// For every history: an edit that applied is in effect, its result keeps every invariant, its
    /// id is the next one, and the same edit applied again is refused or changes nothing more.
    #[test]
    fn edits_are_recognisable_and_idempotent(edits in prop::collection::vec(any_edit(), 1..12)) {
        let mut state = manifest();
        for edit in edits {
            let Ok(next) = edit.apply(&state) else { continue };
            prop_assert_eq!(next.id, state.id.next());
            prop_assert_eq!(broken(&next), None);
            prop_assert!(edit.in_effect(&next), "{:?}", edit);
            if let Ok(again) = edit.apply(&next) {
                prop_assert_eq!(Manifest { id: next.id, ..again }, next.clone());
            }
            state = next;
        }
    }
}
