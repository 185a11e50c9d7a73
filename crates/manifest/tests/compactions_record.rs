//! The record of compaction jobs: its bytes, its changes, and their combined effect.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use siltstone_base::{
    AttemptId, Envelope, Epoch, ErrorKind, JobId, ManifestId, ObjectKind, Seq, SstDescriptor,
    SstId, UnixMillis,
};
use siltstone_manifest::compaction::{
    Change, ChangeRefusal, Claim, Compactions, FinishedUnit, Job, JobParameters, JobRange,
    KeyRange, Layer, PlanReason,
};
use siltstone_manifest::{Conflict, Edit, L0Entry, Manifest, Refusal, SortedRun};
use support::{ATTEMPT, DATABASE, OBJECT, damage, empty, framed_as, golden, table};

const EPOCH: Epoch = Epoch(3);

fn keys(start: &'static [u8], end: Option<&'static [u8]>, bottom: bool) -> KeyRange {
    KeyRange { start: Bytes::from_static(start), end: end.map(Bytes::from_static), bottom }
}

/// Merges L0 layers 4 and 3 and run 6 into run 6, in ranges a to m and m to the end.
fn job(id: u128) -> Job {
    Job {
        id: JobId(id),
        reason: PlanReason::L0Count,
        planned_on: ManifestId(41),
        started_at: UnixMillis(1_700_000_000_000),
        inputs: vec![
            (Layer::L0(4), vec![SstId(14)]),
            (Layer::L0(3), vec![SstId(13)]),
            (Layer::Run(6), vec![SstId(10), SstId(11)]),
        ],
        destination: 6,
        drops: Vec::new(),
        moves: Vec::new(),
        parameters: JobParameters {
            now: UnixMillis(7),
            floor: Seq(40),
            codec: "none".to_owned(),
            filter_bits_per_key: 10,
            block_bytes: 16 << 10,
            target_sst_bytes: 256 << 20,
            ..JobParameters::default()
        },
        ranges: vec![
            JobRange::open(keys(b"a", Some(b"m"), true)),
            JobRange::open(keys(b"m", None, false)),
        ],
        cancelled: false,
    }
}

fn record(jobs: Vec<Job>) -> Compactions {
    Compactions { number: 9, epoch: EPOCH, jobs, ..Compactions::none(DATABASE) }
}

/// Every field set, and every option present in one place and absent in another.
fn full() -> Compactions {
    let mut one = job(1 << 90);
    one.drops = vec![SstId(13)];
    one.moves = vec![SstId(11)];
    one.parameters.snapshots = Some(vec![Seq(41), Seq(45)]);
    one.parameters.zero_seqs = true;
    one.parameters.cut_prefix_bytes = 4;
    one.cancelled = true;
    let finished = [table(70, [b"a", b"c"], [1, 50]), table(71, [b"d", b"f"], [1, 50])];
    one.ranges[0] = JobRange {
        outputs: finished.to_vec(),
        reserved: vec![SstId(72), SstId(73 << 64)],
        claim: Some(Claim { worker: AttemptId(5 << 70), heartbeats: 77 }),
        ..one.ranges[0].clone()
    };
    one.ranges[1].done = true;
    record(vec![one, Job { reason: PlanReason::Manual, ..job(2) }])
}

fn encode(record: &Compactions) -> Bytes {
    record.encode(OBJECT, ATTEMPT).expect("small records are not refused")
}

#[test]
fn every_field_round_trips() {
    for record in [full(), record(Vec::new())] {
        assert_eq!(record.broken(), None);
        let bytes = encode(&record);
        let (envelope, decoded) = Compactions::decode(&bytes).unwrap();
        assert_eq!(decoded, record);
        assert_eq!(envelope, Envelope::new(ObjectKind::Compactions, DATABASE, OBJECT, ATTEMPT));
        assert_eq!(encode(&decoded), bytes, "encoding is not deterministic");
    }
}

#[test]
fn bytes_are_those_of_the_golden_files() {
    golden("full.compactions", &encode(&full()));
    golden("empty.compactions", &encode(&record(Vec::new())));
}

#[test]
fn every_flip_and_cut_is_found() {
    damage(&encode(&full()), |bytes, what| {
        let error = Compactions::decode(bytes).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
    });
}

fn framed(body: &[u8]) -> Vec<u8> {
    framed_as(&Envelope::new(ObjectKind::Compactions, DATABASE, OBJECT, ATTEMPT), body)
}

/// Damage under a correct checksum: only the verifier and the invariants protect.
#[test]
fn a_damaged_body_under_a_right_checksum_never_panics() {
    let bytes = encode(&full());
    damage(&bytes[80..bytes.len() - 4], |body, what| {
        if let Err(error) = Compactions::decode(&framed(body)) {
            let allowed = [ErrorKind::Corruption, ErrorKind::Unsupported];
            assert!(allowed.contains(&error.kind()), "{what}: {error}");
        }
    });
}

/// Head data of a newer version survives a change by this version.
#[test]
fn unknown_compatible_bits_are_written_again() {
    let bytes = encode(&full());
    let plain = Envelope::new(ObjectKind::Compactions, DATABASE, OBJECT, ATTEMPT);
    let hinted = framed_as(&Envelope { compatible: 1 << 12, ..plain }, &bytes[80..bytes.len() - 4]);
    let (_, read) = Compactions::decode(&hinted).unwrap();
    assert_eq!(encode(&Compactions { number: 10, ..read.clone() })[12..16], [0, 16, 0, 0]);
    assert_eq!(encode(&read), hinted);
}

/// A program that would lose an unknown field does not write.
#[test]
fn an_unknown_field_of_a_record_is_not_lost() {
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let root = builder.start_table();
    builder.push_slot_always(flatbuffers::field_index_to_field_offset(0), 9u64);
    builder.push_slot_always(flatbuffers::field_index_to_field_offset(1), 2u64);
    builder.push_slot_always(flatbuffers::field_index_to_field_offset(3), 5u64);
    let root = builder.end_table(root);
    builder.finish(flatbuffers::WIPOffset::<()>::new(root.value()), None);
    let (_, read) = Compactions::decode(&framed(builder.finished_data())).unwrap();
    let error = read.encode(OBJECT, ATTEMPT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("table of the schema: Compactions"), "{error}");
}

#[test]
fn a_record_is_no_manifest() {
    assert!(Manifest::decode(&encode(&full())).is_err());
    let manifest = empty().encode(OBJECT, ATTEMPT).unwrap();
    assert_eq!(Compactions::decode(&manifest).unwrap_err().kind(), ErrorKind::Corruption);
}

/// Every predicate is broken by some change, and reported by its name.
#[test]
fn each_invariant_catches_its_breach() {
    type Breach = (&'static str, fn(&mut Compactions));
    let breaches: [Breach; 17] = [
        ("records count from 1", |r| r.number = 0),
        ("records count from 1", |r| r.epoch = Epoch::NONE),
        ("jobs have identities", |r| r.jobs[1].id = r.jobs[0].id),
        ("inputs are named", |r| r.jobs[1].inputs.swap(0, 1)),
        ("inputs are named", |r| r.jobs[1].inputs[0].1.clear()),
        ("inputs are named", |r| r.jobs[1].inputs[0].1 = vec![SstId(14); 2]),
        // A drop is recorded without its layer.
        ("inputs are named", |r| r.jobs[0].inputs[0].1 = vec![SstId(13)]),
        ("inputs are named", |r| r.jobs[1].destination = 7),
        ("inputs are named", |r| r.jobs[0].drops = vec![SstId(99)]),
        ("inputs are named", |r| r.jobs[0].drops = vec![SstId(11)]),
        ("ranges ascend", |r| r.jobs[1].ranges.swap(0, 1)),
        ("ranges ascend", |r| r.jobs[0].ranges[0].done = true),
        ("ranges ascend", |r| r.jobs[1].ranges[0].keys.end = Some(Bytes::from_static(b"a"))),
        ("outputs ascend", |r| r.jobs[0].ranges[0].outputs.swap(0, 1)),
        ("outputs ascend", |r| {
            r.jobs[0].ranges[0].outputs[1].last_key = Bytes::from_static(b"m");
        }),
        ("no name stands twice", |r| r.jobs[0].ranges[0].reserved[0] = SstId(70)),
        ("no name stands twice", |r| r.jobs[1].ranges[0].reserved = vec![SstId(72)]),
    ];
    assert_eq!(full().broken(), None);
    for (name, breach) in breaches {
        let mut record = full();
        breach(&mut record);
        let found = record.broken().unwrap_or_else(|| panic!("not found: {name}"));
        assert!(found.starts_with(name), "{found} for {name}");
        let error = Compactions::decode(&encode(&record)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
}

fn claim(range: usize, worker: u128, instead_of: Option<Claim>, name: u128) -> Change {
    let (job, worker) = (JobId(1), AttemptId(worker));
    Change::Claim { job, range, worker, instead_of, names: vec![SstId(name), SstId(name + 1)] }
}

fn progress(range: usize, worker: u128, outputs: Vec<SstDescriptor>, done: bool) -> Change {
    let (job, worker) = (JobId(1), AttemptId(worker));
    Change::Progress { job, range, worker, outputs, names: Vec::new(), done }
}

fn apply(record: &mut Compactions, change: &Change) {
    *record = change.apply(record).unwrap_or_else(|why| panic!("{change:?}: {why:?}"));
}

fn low(id: u128) -> SstDescriptor {
    table(id, [b"a", b"f"], [1, 60])
}

fn high(id: u128) -> SstDescriptor {
    table(id, [b"n", b"z"], [1, 60])
}

/// A job from its start to its end, with two workers.
#[test]
fn two_workers_share_a_job() {
    let mut chain = Compactions::none(DATABASE);
    apply(&mut chain, &Change::TakeOver { epoch: EPOCH });
    let start = Change::Start { epoch: EPOCH, job: Box::new(job(1)), forget: vec![] };
    apply(&mut chain, &start);
    assert_eq!(chain.open_ranges(), vec![(JobId(1), 0), (JobId(1), 1)]);
    // Both want range 0: one creates the next record, the other applies its change to that record.
    apply(&mut chain, &claim(0, 100, None, 1000));
    let taken = ChangeRefusal::Taken { job: JobId(1), range: 0 };
    assert_eq!(claim(0, 200, None, 2000).apply(&chain), Err(taken));
    apply(&mut chain, &claim(1, 200, None, 2000));
    assert_eq!(chain.reservations()[0].outputs, [1000, 1001, 2000, 2001].map(SstId));
    apply(&mut chain, &progress(0, 100, vec![low(1000)], true));
    apply(&mut chain, &progress(1, 200, vec![high(2000)], true));
    let job = chain.job(JobId(1)).unwrap();
    assert!(job.is_done());
    assert_eq!(chain.number, 6);

    let mut state = support::full();
    state.destroyed_at = None;
    state.l0 = vec![];
    let l0 = |order: u64| L0Entry {
        order,
        tables: vec![table(10 + u128::from(order), [b"a", b"z"], [order * 10, order * 10 + 5])],
    };
    state.l0 = vec![l0(4), l0(3)];
    state.last_l0_order = 5;
    state.compactor_epoch = EPOCH;
    let finish = job.finish(&state, EPOCH, vec![]).unwrap();
    let done = Edit::FinishCompaction(finish).apply(&state).unwrap();
    let names: Vec<u128> = done.runs[0].tables.iter().map(|table| table.id.get()).collect();
    assert_eq!((done.l0.len(), names), (0, vec![1000, 2000]));
    assert_eq!(chain.finished(&done), vec![JobId(1)]);
    assert_eq!(chain.running(&done), vec![]);
    let jobs = chain.finished(&done);
    apply(&mut chain, &Change::Forget { epoch: EPOCH, jobs });
    assert!(chain.jobs.is_empty());
}

/// At most the unrecorded table is merged again, and the worker that slept is told.
#[test]
fn a_range_goes_to_another_worker_with_what_is_finished() {
    let mut chain = record(vec![job(1)]);
    apply(&mut chain, &claim(0, 100, None, 1000));
    apply(&mut chain, &progress(0, 100, vec![table(1000, [b"a", b"c"], [1, 9])], false));
    let seen = chain.jobs[0].ranges[0].claim.unwrap();
    assert_eq!(seen.heartbeats, 1);
    // A heartbeat between the look and the claim.
    let mut alive = chain.clone();
    apply(&mut alive, &progress(0, 100, vec![], false));
    let steal = claim(0, 200, Some(seen), 2000);
    let taken = ChangeRefusal::Taken { job: JobId(1), range: 0 };
    assert_eq!(steal.apply(&alive), Err(taken));
    apply(&mut chain, &steal);
    let range = &chain.jobs[0].ranges[0];
    assert_eq!(range.resume_after(), Some(&Bytes::from_static(b"c")));
    assert_eq!(range.reserved, [2000, 2001].map(SstId));
    let late = progress(0, 100, vec![table(1001, [b"d", b"f"], [1, 9])], true);
    assert_eq!(late.apply(&chain), Err(taken));
}

#[test]
fn only_reserved_names_are_taken_as_outputs() {
    let mut chain = record(vec![job(1)]);
    apply(&mut chain, &claim(0, 100, None, 1000));
    let stranger = progress(0, 100, vec![low(7)], false).apply(&chain);
    assert!(matches!(stranger, Err(ChangeRefusal::Invalid(_))), "{stranger:?}");
    let outside = progress(0, 100, vec![high(1000)], false).apply(&chain);
    assert_eq!(outside, Err(ChangeRefusal::Broken("outputs ascend within their range")));
}

/// R2: claims and names end with the epoch, finished tables do not.
#[test]
fn a_take_over_keeps_what_is_finished() {
    let mut chain = record(vec![job(1)]);
    apply(&mut chain, &claim(0, 100, None, 1000));
    apply(&mut chain, &progress(0, 100, vec![low(1000)], false));
    let mut taken = chain.clone();
    apply(&mut taken, &Change::TakeOver { epoch: Epoch(4) });
    assert_eq!(taken.reservations()[0].outputs, vec![SstId(1000)]);
    let range = ChangeRefusal::Taken { job: JobId(1), range: 0 };
    assert_eq!(progress(0, 100, vec![], true).apply(&taken), Err(range));
    let fenced = Err(ChangeRefusal::Fenced { by: Epoch(4) });
    let old = [
        Change::TakeOver { epoch: Epoch(4) },
        Change::TakeOver { epoch: EPOCH },
        Change::Start { epoch: EPOCH, job: Box::new(job(2)), forget: vec![] },
        Change::Cancel { epoch: EPOCH, job: JobId(1) },
        Change::Forget { epoch: EPOCH, jobs: vec![JobId(1)] },
    ];
    assert!(old.iter().all(|change| change.apply(&taken) == fenced));
    let early = Change::Cancel { epoch: Epoch(5), job: JobId(1) }.apply(&taken);
    assert!(matches!(early, Err(ChangeRefusal::Invalid(_))), "{early:?}");
}

/// A table in the folder of the units of job 1.
fn of_units(table: SstDescriptor) -> SstDescriptor {
    SstDescriptor { job: Some(JobId::of_units(JobId(1))), ..table }
}

/// Units of job 1 under `epoch`, by driver 700.
fn units(epoch: Epoch, finished: Vec<FinishedUnit>) -> Change {
    Change::Units { epoch, job: JobId(1), worker: AttemptId(700), finished }
}

fn unit(range: usize, after: Option<u128>, tables: Vec<SstDescriptor>) -> FinishedUnit {
    FinishedUnit { range, after: after.map(SstId), tables }
}

/// U1: the driver claims all ranges, and replaces workers; its records need no reserved names
/// besides the folder.
#[test]
fn the_driver_records_what_units_made() {
    let mut chain = record(vec![job(1)]);
    apply(&mut chain, &claim(0, 100, None, 1000));
    apply(&mut chain, &units(EPOCH, vec![]));
    let of_driver = |heartbeats| Some(Claim { worker: AttemptId(700), heartbeats });
    let claims = |chain: &Compactions| -> Vec<Option<Claim>> {
        chain.jobs[0].ranges.iter().map(|range| range.claim).collect()
    };
    assert_eq!(claims(&chain), [of_driver(0), of_driver(0)]);
    assert!(chain.reservations()[0].outputs.is_empty(), "names of the worker are void");
    let taken = |range| Err(ChangeRefusal::Taken { job: JobId(1), range });
    assert_eq!(progress(0, 100, vec![low(1000)], true).apply(&chain), taken(0));
    // A heartbeat.
    apply(&mut chain, &units(EPOCH, vec![]));
    assert_eq!(claims(&chain), [of_driver(1), of_driver(1)]);
    let done = units(EPOCH, vec![unit(1, None, vec![of_units(high(2000))])]);
    assert!(!done.in_effect(&chain));
    apply(&mut chain, &done);
    assert!(done.in_effect(&chain));
    assert_eq!(claims(&chain), [of_driver(2), None]);
    // U2: a second attempt, and one that comes late.
    let twice = units(EPOCH, vec![unit(1, None, vec![of_units(high(2001))])]);
    assert_eq!(twice.apply(&chain), taken(1));
    let stranger = units(EPOCH, vec![unit(0, None, vec![low(7)])]).apply(&chain);
    assert!(matches!(stranger, Err(ChangeRefusal::Invalid(_))), "{stranger:?}");
    // The range had no rows left.
    apply(&mut chain, &units(EPOCH, vec![unit(0, None, vec![])]));
    assert!(chain.jobs[0].is_done());
    let fenced = Err(ChangeRefusal::Fenced { by: EPOCH });
    assert_eq!(units(Epoch(2), vec![]).apply(&chain), fenced);
}

/// U2: a unit continues after the tables recorded when it was created, and its output fits only
/// there.
#[test]
fn a_unit_is_recorded_only_where_its_range_stands() {
    let mut chain = record(vec![job(1)]);
    apply(&mut chain, &claim(0, 100, None, 1000));
    let (first, second) = (table(1000, [b"a", b"c"], [1, 9]), table(1001, [b"d", b"f"], [1, 9]));
    apply(&mut chain, &progress(0, 100, vec![first], false));
    let taken = Err(ChangeRefusal::Taken { job: JobId(1), range: 0 });
    let whole = units(EPOCH, vec![unit(0, None, vec![of_units(low(3000))])]);
    assert_eq!(whole.apply(&chain), taken);
    let mut taken_over = chain.clone();
    apply(&mut taken_over, &Change::TakeOver { epoch: Epoch(4) });
    let rest = |epoch| units(epoch, vec![unit(0, Some(1000), vec![of_units(second.clone())])]);
    assert_eq!(rest(EPOCH).apply(&taken_over), Err(ChangeRefusal::Fenced { by: Epoch(4) }));
    // The output of one driver's unit equals that of the next driver's.
    apply(&mut taken_over, &rest(Epoch(4)));
    assert_eq!(taken_over.jobs[0].ranges[0].outputs.len(), 2);
    apply(&mut chain, &Change::Cancel { epoch: EPOCH, job: JobId(1) });
    assert_eq!(rest(EPOCH).apply(&chain), Err(ChangeRefusal::NoSuchJob { job: JobId(1) }));
    assert_eq!(units(EPOCH, vec![]).apply(&chain), Err(ChangeRefusal::NoSuchJob { job: JobId(1) }));
}

#[test]
fn a_cancelled_job_ends_without_effect() {
    let mut chain = record(vec![job(1)]);
    apply(&mut chain, &claim(0, 100, None, 1000));
    apply(&mut chain, &Change::Cancel { epoch: EPOCH, job: JobId(1) });
    let ended = Err(ChangeRefusal::NoSuchJob { job: JobId(1) });
    assert_eq!(progress(0, 100, vec![low(1000)], false).apply(&chain), ended);
    assert_eq!(claim(1, 100, None, 3000).apply(&chain), ended);
    assert!(chain.open_ranges().is_empty());
    let finish = chain.jobs[0].finish(&empty(), EPOCH, vec![]).unwrap();
    assert!(finish.remove.is_empty() && finish.add.is_empty());
}

#[test]
fn a_table_that_is_gone_is_told() {
    let moved = Job { moves: vec![SstId(11)], ..job(1) };
    let gone = Err(Refusal::Conflict(Conflict::TableGone { table: SstId(14) }));
    assert_eq!(moved.merged(&empty()), gone);
    let mut state = empty();
    let [ten, eleven, thirteen, fourteen] = [10, 11, 13, 14].map(|id| {
        let key = [id as u8];
        table(id, [&key, &key], [1, 1])
    });
    // Each in the layer from which the job takes it: elsewhere it would be another part of it.
    let layer = |order, table| L0Entry { order, tables: vec![table] };
    state.l0 = vec![layer(4, fourteen), layer(3, thirteen)];
    state.runs = vec![SortedRun { id: 6, tables: vec![ten, eleven] }];
    let layers: Vec<Vec<u128>> = moved
        .merged(&state)
        .unwrap()
        .iter()
        .map(|layer| layer.iter().map(|table| table.id.get()).collect())
        .collect();
    assert_eq!(layers, vec![vec![14], vec![13], vec![10]]);
}

/// Changes over few jobs, workers and names, so that their effects overlap.
fn any_change() -> impl Strategy<Value = Change> {
    let (epoch, job_id, worker) = (3..5u64, 1..3u128, 1..4u128);
    let at = (job_id.clone(), 0..2usize, worker);
    prop_oneof![
        1 => epoch.clone().prop_map(|epoch| Change::TakeOver { epoch: Epoch(epoch) }),
        2 => (epoch.clone(), job_id.clone()).prop_map(|(epoch, id)| Change::Start {
            epoch: Epoch(epoch),
            job: Box::new(job(id)),
            forget: vec![JobId(3 - id)],
        }),
        4 => (at.clone(), prop::option::of((1..4u128, 0..3u64)), 500..520u128).prop_map(
            |((id, range, worker), seen, name)| Change::Claim {
                job: JobId(id),
                range,
                worker: AttemptId(worker),
                instead_of: seen
                    .map(|(worker, heartbeats)| Claim { worker: AttemptId(worker), heartbeats }),
                names: vec![SstId(name), SstId(name + 1)],
            }
        ),
        6 => (at, prop::option::of(500..520u128), any::<bool>(), 520..540u128).prop_map(
            |((id, range, worker), output, done, name)| Change::Progress {
                job: JobId(id),
                range,
                worker: AttemptId(worker),
                outputs: output.map(|id| if range == 0 { low(id) } else { high(id) })
                    .into_iter().collect(),
                names: if done { vec![] } else { vec![SstId(name)] },
                done,
            }
        ),
        3 => (epoch.clone(), job_id.clone(), 0..2usize, prop::option::of(540..550u128)).prop_map(
            |(epoch, id, range, output)| Change::Units {
                epoch: Epoch(epoch),
                job: JobId(id),
                worker: AttemptId(9),
                finished: output.map(|name| FinishedUnit {
                    range,
                    after: None,
                    tables: vec![SstDescriptor {
                        job: Some(JobId::of_units(JobId(id))),
                        ..if range == 0 { low(name) } else { high(name) }
                    }],
                }).into_iter().collect(),
            }
        ),
        1 => (epoch.clone(), job_id.clone()).prop_map(|(epoch, id)| Change::Cancel {
            epoch: Epoch(epoch),
            job: JobId(id),
        }),
        1 => (epoch, job_id).prop_map(|(epoch, id)| Change::Forget {
            epoch: Epoch(epoch),
            jobs: vec![JobId(id)],
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// For every history: a change that applied is in effect and keeps every invariant, the result
    /// round-trips, and a finished table stays in every later record until its job is forgotten (so
    /// that the collector always finds it).
    #[test]
    fn histories_keep_what_is_finished(changes in prop::collection::vec(any_change(), 1..25)) {
        let mut chain = record(vec![job(1), job(2)]);
        for change in changes {
            let Ok(next) = change.apply(&chain) else { continue };
            prop_assert_eq!(next.number, chain.number + 1);
            prop_assert_eq!(next.broken(), None);
            let heartbeat = matches!(&change, Change::Progress { outputs, names, done, .. }
                if outputs.is_empty() && names.is_empty() && !done)
                || matches!(&change, Change::Units { finished, .. } if finished.is_empty());
            prop_assert!(heartbeat || change.in_effect(&next), "{:?}", change);
            for old in &chain.jobs {
                let Some(new) = next.job(old.id) else { continue };
                let tables = |job: &Job| -> Vec<SstId> {
                    job.ranges.iter().flat_map(|range| &range.outputs).map(|one| one.id).collect()
                };
                let kept = tables(new);
                let restarted = matches!(&change, Change::Start { job, .. } if job.id == old.id);
                prop_assert!(restarted || tables(old).iter().all(|id| kept.contains(id)));
            }
            prop_assert_eq!(&Compactions::decode(&encode(&next)).unwrap().1, &next);
            chain = next;
        }
    }

    /// Any bytes in a valid frame give a result or an error.
    #[test]
    fn any_body_gives_an_answer(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let kind = Compactions::decode(&framed(&body)).err().map(|error| error.kind());
        prop_assert!(matches!(kind, None | Some(ErrorKind::Corruption | ErrorKind::Unsupported)));
    }
}
