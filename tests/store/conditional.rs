//! The outcome of a conditional create, for every answer and every result of the read; retries.

use crate::scripted::ScriptedStore;
use bytes::Bytes;
use siltstone::store::PutAnswer;
use siltstone::store::conditional::{self, Created};
use siltstone::store::retry::with_retries;
use siltstone_base::{
    AttemptId, DatabaseId, Envelope, Error, ErrorKind, ObjectId, ObjectKind, ObjectName,
    PutOutcome, Result, WalId,
};
use siltstone_tests::sim::Sim;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const NAME: ObjectName = ObjectName::Wal(WalId(1));
const OURS: AttemptId = AttemptId(1);

fn object_of(attempt: AttemptId, body: usize) -> Bytes {
    let envelope = Envelope::new(ObjectKind::Wal, DatabaseId(1), ObjectId(1), attempt);
    [&envelope.encode()[..], &vec![7; body]].concat().into()
}

fn object(attempt: AttemptId) -> Bytes {
    object_of(attempt, 10)
}

fn damaged(attempt: AttemptId) -> Bytes {
    let mut bytes = object(attempt).to_vec();
    bytes[60] ^= 1; // within the attempt id
    bytes.into()
}

fn create(store: &Arc<ScriptedStore>, bytes: Bytes) -> Created {
    let sim = Sim::new(0);
    let process = sim.process("writer", 0);
    let env = sim.env(process, store.clone());
    let create = async move { conditional::create(&env, NAME, bytes, OURS).await };
    sim.block_on(process, create).unwrap()
}

fn outcome(put: PutAnswer, gets: Vec<Result<Option<Bytes>>>) -> Created {
    let store = ScriptedStore::new(put, gets);
    let created = create(&store, object(OURS));
    assert!(store.gets.lock().is_empty(), "not everything was read");
    created
}

fn down() -> Error {
    Error::unavailable("down")
}

fn denied() -> Error {
    Error::new(ErrorKind::Denied, "denied")
}

#[test]
fn created_is_believed_without_a_read() {
    let created = outcome(PutAnswer::Created, vec![]);
    assert_eq!(created.outcome, PutOutcome::Committed);
    assert!(created.error.is_none());
}

#[test]
fn every_other_answer_is_settled_by_the_attempt_id() {
    let theirs = object(AttemptId(2));
    let answers: [fn() -> PutAnswer; 3] =
        [|| PutAnswer::Exists, || PutAnswer::Refused(denied()), || PutAnswer::Ambiguous(down())];
    for (position, answer) in answers.into_iter().enumerate() {
        let ours = outcome(answer(), vec![Ok(Some(object(OURS)))]);
        assert_eq!(ours.outcome, PutOutcome::Committed, "{:?}", answer());
        let lost = outcome(answer(), vec![Ok(Some(theirs.clone()))]);
        assert_eq!(lost.outcome, PutOutcome::Lost(theirs.clone()), "{:?}", answer());
        let absent = outcome(answer(), vec![Ok(None)]);
        let expected = if position == 2 { PutOutcome::Unknown } else { PutOutcome::NotApplied };
        assert_eq!(absent.outcome, expected, "{:?}", answer());
        let unread = outcome(answer(), vec![Err(down())]);
        assert_eq!(unread.outcome, PutOutcome::Unknown, "{:?}", answer());
    }
}

#[test]
fn the_error_of_the_create_is_kept() {
    let kinds = |created: Created| created.error.map(|error| error.kind());
    let refused = || PutAnswer::Refused(denied());
    assert_eq!(kinds(outcome(refused(), vec![Ok(None)])), Some(ErrorKind::Denied));
    assert_eq!(kinds(outcome(refused(), vec![Err(down())])), Some(ErrorKind::Denied));
    let unread = outcome(PutAnswer::Exists, vec![Err(down())]);
    assert_eq!(kinds(unread), Some(ErrorKind::Unavailable));
    // A conflict without an object is reported, too: a caller that retries for long has a cause to
    // name.
    let nothing = outcome(PutAnswer::Exists, vec![Ok(None)]);
    assert_eq!(kinds(nothing), Some(ErrorKind::Unavailable));
}

#[test]
fn a_flipped_bit_does_not_make_a_stranger_of_our_object() {
    let created = outcome(
        PutAnswer::Ambiguous(down()),
        vec![Ok(Some(damaged(OURS))), Ok(Some(object(OURS)))],
    );
    assert_eq!(created.outcome, PutOutcome::Committed);
    // Damaged at rest: the reader of the object will report it.
    let created =
        outcome(PutAnswer::Exists, vec![Ok(Some(damaged(OURS))), Ok(Some(damaged(OURS)))]);
    assert_eq!(created.outcome, PutOutcome::Lost(damaged(OURS)));
}

#[test]
fn a_foreign_object_is_lost_to_not_an_error() {
    let foreign = Bytes::from_static(b"hello");
    let gets = vec![Ok(Some(foreign.clone())), Ok(Some(foreign.clone()))];
    let created = outcome(PutAnswer::Exists, gets);
    assert_eq!(created.outcome, PutOutcome::Lost(foreign));
}

#[test]
fn a_large_object_of_ours_is_not_read_back_whole() {
    let large = object_of(OURS, 1 << 20);
    let head = large.slice(..72);
    let store = ScriptedStore::new(PutAnswer::Ambiguous(down()), vec![Ok(Some(head))]);
    assert_eq!(create(&store, large.clone()).outcome, PutOutcome::Committed);
    assert_eq!(*store.asked.lock(), [Some(0..72)]);
    // Another's object is read completely, because the loser needs its content.
    let theirs = object_of(AttemptId(2), 1 << 20);
    let gets = vec![Ok(Some(theirs.slice(..72))), Ok(Some(theirs.clone()))];
    let store = ScriptedStore::new(PutAnswer::Exists, gets);
    assert_eq!(create(&store, large.clone()).outcome, PutOutcome::Lost(theirs));
    // A foreign object that is shorter than a head.
    let short = Bytes::from_static(b"x");
    let gets =
        vec![Err(Error::corruption("short")), Ok(Some(short.clone())), Ok(Some(short.clone()))];
    let store = ScriptedStore::new(PutAnswer::Exists, gets);
    assert_eq!(create(&store, large).outcome, PutOutcome::Lost(short));
}

#[test]
fn bytes_without_the_attempt_id_are_not_sent() {
    let store = Arc::new(ScriptedStore::default());
    for bytes in [object(AttemptId(9)), Bytes::from_static(b"no head"), damaged(OURS)] {
        let created = create(&store, bytes);
        assert_eq!(created.outcome, PutOutcome::NotApplied);
        assert_eq!(created.error.map(|error| error.kind()), Some(ErrorKind::Internal));
    }
}

/// Runs an operation that fails `failures` times; returns its result, the number of attempts, and
/// the time.
fn retried(failures: u32, limit: Duration, error: fn() -> Error) -> (Result<u32>, u32, Duration) {
    let sim = Sim::new(5);
    let process = sim.process("reader", 0);
    let env = sim.env(process, Arc::new(ScriptedStore::default()));
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let work = async move {
        with_retries(&env, limit, "read", || async {
            let attempt = counted.fetch_add(1, Ordering::Relaxed) + 1;
            if attempt > failures { Ok(attempt) } else { Err(error()) }
        })
        .await
    };
    let result = sim.block_on(process, work).unwrap();
    (result, attempts.load(Ordering::Relaxed), sim.elapsed())
}

#[test]
fn transient_failures_are_retried_with_growing_pauses() {
    let (result, attempts, elapsed) = retried(5, Duration::from_secs(30), down);
    assert_eq!((result.unwrap(), attempts), (6, 6));
    // Bases 10, 20, 40, 80, 160 ms, each drawn from once to twice itself.
    assert!((310..=620).contains(&(elapsed.as_millis() as u64)), "{elapsed:?}");
}

#[test]
fn retries_end_with_the_limit_and_name_the_cause() {
    let limit = Duration::from_secs(30);
    let (result, attempts, elapsed) = retried(u32::MAX, limit, down);
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("down"), "{error}");
    assert_eq!(elapsed, limit);
    // Half a second to a second between attempts, once the pauses have grown.
    assert!((30..75).contains(&attempts), "{attempts}");
}

#[test]
fn a_permanent_error_ends_at_once() {
    for error in [denied as fn() -> Error, || Error::invalid("x"), || Error::corruption("x")] {
        let (result, attempts, elapsed) = retried(u32::MAX, Duration::from_secs(30), error);
        assert_eq!(result.unwrap_err().kind(), error().kind());
        assert_eq!((attempts, elapsed), (1, Duration::ZERO));
    }
}

#[test]
fn an_attempt_that_hangs_is_ended_by_the_limit() {
    let sim = Sim::new(5);
    let process = sim.process("reader", 0);
    let env = sim.env(process, Arc::new(ScriptedStore::default()));
    let limit = Duration::from_secs(3);
    let work = async move {
        let hang = || futures::future::pending::<Result<()>>();
        with_retries(&env, limit, "read", hang).await
    };
    let error = sim.block_on(process, work).unwrap().unwrap_err();
    assert_eq!((error.kind(), sim.elapsed()), (ErrorKind::Timeout, limit));
}
