use super::*;
use crate::state::SortedRun;
use crate::testing::{empty, manifest, table};
use proptest::prelude::*;
use siltstone_base::SstId;
use siltstone_base::id::ulid_bits;

const JOB: JobId = JobId(ulid_bits_of(9_000));

const fn ulid_bits_of(millis: u64) -> u128 {
    (millis as u128) << RANDOM_BITS
}

fn staged(id: u128, first: &[u8], last: &[u8]) -> SstDescriptor {
    SstDescriptor { job: Some(JOB), ..table(SstId(id), first, last, 0, 0) }
}

fn closed(layers: Vec<Vec<SstDescriptor>>) -> ClosedJob {
    let (database, attempt) = (DatabaseId(77), AttemptId(5));
    let timeline = Some(TimelineId(3));
    let (app, behind, operands) = (None, false, false);
    ClosedJob { job: JOB, database, attempt, timeline, app, layers, behind, operands }
}

#[test]
fn the_time_of_a_job_is_its_deadline() {
    assert_eq!(deadline(JobId(ulid_bits(1_234, u128::MAX))), UnixMillis(1_234));
}

#[test]
fn an_object_comes_back_whole() {
    let parts = layered([staged(1, b"a", b"c"), staged(2, b"d", b"f"), staged(3, b"b", b"e")]);
    let behind = ClosedJob { behind: true, ..closed(parts.clone()) };
    let app = JobApp { name: "täglich".to_owned(), version: u64::MAX, forgotten: 3 };
    let of_app = ClosedJob { app: Some(app), ..closed(parts.clone()) };
    let aborted = ClosedJob { layers: Vec::new(), ..of_app.clone() };
    let operands = ClosedJob { operands: true, ..closed(parts.clone()) };
    for job in [closed(parts), closed(Vec::new()), behind, of_app, aborted, operands] {
        let bytes = job.encode().unwrap();
        assert_eq!(ClosedJob::decode(&bytes).unwrap(), job);
        assert_eq!(job.digest().as_ref(), &AttemptId(5).to_bytes());
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert!(ClosedJob::decode(&damaged).is_err(), "byte {at}");
            assert!(ClosedJob::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}

#[test]
fn impossible_content_of_a_job_is_refused() {
    let whole = || staged(1, b"a", b"c");
    let wrong = [
        SstDescriptor { job: None, ..whole() },
        SstDescriptor { job: Some(JobId(9)), ..whole() },
        SstDescriptor { seq_override: Some(Seq(1)), ..whole() },
        SstDescriptor { location: SstLocation::Ancestor(1), ..whole() },
        SstDescriptor { visible_end: Some(b"b".as_slice().into()), ..whole() },
        staged(1, b"c", b"a"),
    ];
    for table in wrong {
        let bytes = closed(vec![vec![table]]).encode().unwrap();
        assert!(ClosedJob::decode(&bytes).is_err());
    }
    let crossing = vec![vec![staged(1, b"a", b"c"), staged(2, b"c", b"d")]];
    assert!(ClosedJob::decode(&closed(crossing).encode().unwrap()).is_err());
}

#[test]
fn disjoint_tables_make_one_layer_in_key_order() {
    let layers = layered([staged(2, b"d", b"f"), staged(1, b"a", b"c")]);
    let ids: Vec<Vec<u128>> =
        layers.iter().map(|layer| layer.iter().map(|one| one.id.0).collect()).collect();
    assert_eq!(ids, [[1, 2]]);
}

proptest! {
    /// P1: tables of a layer are disjoint; if two tables overlap, the later one is above.
    #[test]
    fn later_tables_lie_above_those_they_meet(
        bounds in proptest::collection::vec((0u8..20, 0u8..6), 1..12)
    ) {
        let tables = bounds.iter().enumerate().map(|(at, (first, length))| {
            staged(at as u128 + 1, &[*first], &[first + length])
        });
        let layers = layered(tables);
        let place = |id: u128| {
            layers.iter().position(|layer| layer.iter().any(|one| one.id.0 == id)).unwrap()
        };
        for layer in &layers {
            prop_assert!(layer.windows(2).all(|pair| pair[0].last_key < pair[1].first_key));
        }
        for (late, (first, length)) in bounds.iter().enumerate() {
            for (early, (other, reach)) in bounds.iter().enumerate().take(late) {
                if *first <= other + reach && *other <= first + length {
                    prop_assert!(place(late as u128 + 1) > place(early as u128 + 1));
                }
            }
        }
        let job = closed(layers);
        let numbers: Vec<_> = job.numbered(Seq(10)).iter().map(|one| one[0].seq_override).collect();
        let expected: Vec<_> = (0..job.layers.len() as u64).map(|at| Some(Seq(10 + at))).collect();
        prop_assert_eq!(numbers, expected);
    }
}

#[test]
fn a_table_goes_as_deep_as_nothing_newer_lies_over_it() {
    let run = |id, tables| SortedRun { id, tables };
    let mut state = empty();
    let goes = |state: &Manifest, first: &[u8], last: &[u8]| {
        deepest_run(state, &staged(90, first, last), Rules::ALL)
    };
    // The tree is empty: the last run is created.
    assert_eq!(goes(&state, b"a", b"b"), Some(0));
    state.runs = vec![
        run(7, vec![table(SstId(1), b"c", b"d", 3, 3)]),
        run(5, vec![table(SstId(2), b"f", b"g", 2, 2)]),
        run(2, vec![table(SstId(3), b"a", b"b", 1, 1), table(SstId(4), b"f", b"h", 1, 1)]),
    ];
    assert_eq!(goes(&state, b"x", b"z"), Some(2));
    assert_eq!(goes(&state, b"a", b"a"), Some(5));
    assert_eq!(goes(&state, b"h", b"i"), Some(5));
    assert_eq!(goes(&state, b"g", b"i"), Some(7));
    assert_eq!(goes(&state, b"d", b"e"), None);
    let l0 = crate::state::L0Entry { order: 1, tables: vec![table(SstId(5), b"y", b"y", 9, 9)] };
    state.l0 = vec![l0];
    assert_eq!(goes(&state, b"x", b"z"), None);
    // A check of its own run alone is not sufficient: newer data would hide the table.
    let without = Rules::ALL.without(Rule::PlaceBelowNothingNewer);
    assert_eq!(deepest_run(&state, &staged(90, b"x", b"z"), without), Some(2));
}

#[test]
fn a_job_stands_as_the_state_says() {
    let mut state = manifest();
    assert_eq!(standing(&state, JobId(400)), JobStatus::Pending);
    assert_eq!(standing(&state, JOB), JobStatus::Open);
    state.ingest_horizon = UnixMillis(9_000);
    assert_eq!(standing(&state, JOB), JobStatus::Open);
    state.ingest_horizon = UnixMillis(9_001);
    assert_eq!(standing(&state, JOB), JobStatus::Forgotten);
    // The job is pending at any horizon.
    assert_eq!(standing(&state, JobId(400)), JobStatus::Pending);
    assert!(has_ended(&state, JOB, None));
}
