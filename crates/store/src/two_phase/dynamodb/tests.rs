//! Answers that an emulator does not give: conflicts, lost answers, halves of a transaction.

use super::*;
use crate::task::tokio_effects;
use parking_lot::Mutex;
use siltstone_base::{AttemptId, ErrorKind, WalId};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

const NAMESPACE: u128 = 7;
const DESTINATION: ObjectName = ObjectName::Wal(WalId(3));
const SOURCE: ObjectName = ObjectName::TwoPhaseSource(AttemptId(5), 9);

/// Status and body of an answer; status 0 closes the connection in its place.
type Scripted = (u16, Value);

/// A server that gives the answers of a script, and the requests that it got.
struct Server {
    records: DynamoRecords,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    left: Arc<Mutex<VecDeque<Scripted>>>,
    runtime: Runtime,
}

impl Server {
    fn new(script: impl IntoIterator<Item = Scripted>) -> Server {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let effects = tokio_effects(runtime.handle().clone());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = format!("records?endpoint=http://{}", listener.local_addr().unwrap());
        let keys = [("access_key_id", "key-id"), ("secret_access_key", "canary-secret")];
        let text = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let options = keys.map(text).into_iter().collect();
        let records = DynamoRecords::new(&place, &options, &[], effects).unwrap();
        let (asked, left) = (Arc::default(), Arc::new(Mutex::new(script.into_iter().collect())));
        let (all, script) = (Arc::clone(&asked), Arc::clone(&left));
        // The server of a test: the code under test has the effects.
        #[allow(clippy::disallowed_methods)]
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let _ = serve(stream, &all, &script);
            }
        });
        Server { records, asked, left, runtime }
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let done = self.runtime.block_on(work);
        assert_eq!(self.left.lock().len(), 0, "{:?}", self.asked.lock());
        done
    }

    fn insert(&self) -> Result<InsertOutcome> {
        self.run(self.records.insert(NAMESPACE, DESTINATION, SOURCE))
    }
}

/// Serves the requests of one connection.
fn serve(
    stream: TcpStream,
    asked: &Mutex<Vec<(String, Value)>>,
    script: &Mutex<VecDeque<Scripted>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut operation, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            } else if let Some((_, name)) = line.split_once("x-amz-target: dynamodb_20120810.") {
                operation = name.to_owned();
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        asked.lock().push((operation, serde_json::from_slice(&body)?));
        let (status, answer) = script.lock().pop_front().unwrap_or((500, json!({})));
        if status == 0 {
            return Ok(());
        }
        let answer = answer.to_string();
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n", answer.len());
        reader.get_mut().write_all((head + &answer).as_bytes())?;
    }
}

fn found(item: Value) -> Scripted {
    (200, json!({"Item": item}))
}

fn absent() -> Scripted {
    (200, json!({}))
}

fn record(source: ObjectName, state: &str) -> Value {
    let attributes = [("source", string(source)), ("state", number(state))];
    item(key_of_record(NAMESPACE, DESTINATION), &attributes)
}

fn claim() -> Value {
    item(key_of_source(NAMESPACE, SOURCE), &[("destination", string(DESTINATION))])
}

fn cancelled(reasons: [&str; 2]) -> Scripted {
    let reasons = reasons.map(|code| json!({"Code": code}));
    let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    (400, json!({"__type": kind, "CancellationReasons": reasons}))
}

fn refused(code: &str) -> Scripted {
    (400, json!({"__type": format!("com.amazon.coral.service#{code}"), "message": "told"}))
}

#[test]
fn conflicts_and_throttled_requests_are_repeated() {
    let server = Server::new([
        cancelled(["TransactionConflict", "None"]),
        refused("ProvisionedThroughputExceededException"),
        cancelled(["None", "ThrottlingError"]),
        (200, json!({})),
    ]);
    assert_eq!(server.insert().unwrap(), InsertOutcome::Inserted);
    assert!(server.asked.lock().iter().all(|(operation, _)| operation == "transactwriteitems"));
}

#[test]
fn a_condition_that_does_not_hold_is_an_outcome() {
    // The other part may be in conflict: its condition decides nothing any more.
    let other = ObjectName::TwoPhaseSource(AttemptId(6), 9);
    let taken = cancelled(["ConditionalCheckFailed", "TransactionConflict"]);
    let server = Server::new([taken, found(record(other, COMPLETE))]);
    assert_eq!(server.insert().unwrap(), InsertOutcome::Taken);
    let revoked = item(key_of_source(NAMESPACE, SOURCE), &[("state", number(REVOKED))]);
    let server =
        Server::new([cancelled(["None", "ConditionalCheckFailed"]), absent(), found(revoked)]);
    assert_eq!(server.insert().unwrap(), InsertOutcome::Revoked);
}

#[test]
fn an_insert_without_an_answer_is_read_back() {
    let lost = (0, json!({}));
    let applied = [lost.clone(), found(record(SOURCE, INCOMPLETE)), found(claim())];
    assert_eq!(Server::new(applied).insert().unwrap(), InsertOutcome::Inserted);
    // It may still arrive.
    let error = Server::new([lost, absent()]).insert().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // A proxy has sent it twice, and another process has completed it.
    let twice = [cancelled(["ConditionalCheckFailed", "None"]), found(record(SOURCE, COMPLETE))];
    assert_eq!(Server::new(twice).insert().unwrap(), InsertOutcome::Inserted);
}

#[test]
fn half_a_transaction_is_not_reported() {
    // An insert of which the item of the record is seen first.
    let server = Server::new([
        found(record(SOURCE, INCOMPLETE)),
        absent(),
        found(record(SOURCE, INCOMPLETE)),
        found(claim()),
    ]);
    let seen = server.run(server.records.get(NAMESPACE, DESTINATION)).unwrap().unwrap();
    assert!(!seen.complete);
    // A completion of which the item of the source is gone first.
    let server =
        Server::new([found(record(SOURCE, INCOMPLETE)), absent(), found(record(SOURCE, COMPLETE))]);
    let seen = server.run(server.records.get(NAMESPACE, DESTINATION)).unwrap().unwrap();
    assert!(seen.complete);
    // An insert of which the item of the source is seen first, in a listing.
    let server = Server::new([
        (200, json!({"Items": [claim()]})),
        absent(),
        found(claim()),
        found(record(SOURCE, INCOMPLETE)),
        found(claim()),
    ]);
    let seen = server.run(server.records.list(NAMESPACE, false)).unwrap();
    assert_eq!(seen.len(), 1);
}

#[test]
fn a_listing_has_pages() {
    let last = key_of_source(NAMESPACE, SOURCE);
    let revoked = item(last.clone(), &[("state", number(REVOKED))]);
    let server = Server::new([
        (200, json!({"Items": [revoked], "LastEvaluatedKey": last})),
        (200, json!({"Items": []})),
    ]);
    assert_eq!(server.run(server.records.list(NAMESPACE, false)).unwrap(), []);
    let asked = server.asked.lock();
    assert_eq!(asked[1].1["ExclusiveStartKey"], last);
    assert!(asked.iter().all(|(_, body)| body["ConsistentRead"] == true), "{asked:?}");
}

#[test]
fn refusals_have_their_kinds() {
    let kinds = [
        ("AccessDeniedException", ErrorKind::Denied),
        ("UnrecognizedClientException", ErrorKind::Denied),
        ("ResourceNotFoundException", ErrorKind::Invalid),
        ("ValidationException", ErrorKind::Invalid),
        ("InternalServerError", ErrorKind::Unavailable),
    ];
    for (code, kind) in kinds {
        let server = Server::new([refused(code)]);
        let error = server.run(server.records.get(NAMESPACE, DESTINATION)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!error.to_string().contains("canary-secret"), "{error}");
    }
}
