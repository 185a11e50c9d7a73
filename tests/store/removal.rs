//! Deletes of many names: as few requests as the service permits, and one result per name.

use crate::server::{Reply, Server, serve_by, status};
use siltstone::store::counting::CountingStore;
use siltstone_base::{ErrorKind, ObjectName, WalId};
use std::sync::Arc;

const MANY: u64 = 2500;

fn names(count: u64) -> Vec<ObjectName> {
    (1..=count).map(|id| ObjectName::Wal(WalId(id))).collect()
}

fn answered(failures: &str) -> Reply {
    let deleted = "<Deleted><Key>k</Key></Deleted>";
    status("200 OK", &format!("<DeleteResult>{deleted}{failures}</DeleteResult>"))
}

fn failure(name: ObjectName, code: &str) -> String {
    format!("<Error><Key>db/{name}</Key><Code>{code}</Code><Message>m</Message></Error>")
}

fn methods(server: &Server, method: &str) -> usize {
    server.requests.lock().iter().filter(|head| head.starts_with(method)).count()
}

#[test]
fn a_thousand_names_are_one_request() {
    let server = serve_by(&[], |_, _, _| answered(""));
    let (store, counts) = CountingStore::wrap(Arc::clone(&server.store));
    let answers = server.runtime.block_on(store.delete_many(names(MANY)));
    assert_eq!(answers.len() as u64, MANY);
    assert!(answers.iter().all(Result::is_ok), "{:?}", answers[0]);
    assert_eq!((server.requests(), counts.totals().deletes), (3, 3));
    assert!(server.requests.lock().iter().all(|head| head.starts_with("POST /quarry?delete")));
    let objects = |body: &[u8]| String::from_utf8_lossy(body).matches("<Object>").count();
    let sent: Vec<usize> = server.bodies.lock().iter().map(|body| objects(body)).collect();
    assert_eq!(sent, [1000, 1000, 500]);
}

#[test]
fn every_name_has_an_answer_of_its_own() {
    let all = names(5);
    let told = [
        failure(all[1], "AccessDenied"),
        failure(all[2], "NoSuchKey"),
        failure(all[3], "OperationAborted"),
    ];
    let server = serve_by(&[], move |_, _, _| answered(&told.concat()));
    let answers = server.runtime.block_on(server.store.delete_many(all));
    let kinds: Vec<_> = answers.iter().map(|one| one.as_ref().map_err(|e| e.kind())).collect();
    assert_eq!(
        kinds,
        [Ok(&()), Err(ErrorKind::Denied), Ok(&()), Err(ErrorKind::Unavailable), Ok(&())]
    );
    assert_eq!(server.requests(), 1);
}

#[test]
fn a_service_without_it_is_asked_name_by_name_from_then_on() {
    let refusals = [
        status("501 Not Implemented", "<Code>NotImplemented</Code>"),
        status("405 Method Not Allowed", ""),
        status("400 Bad Request", "<Code>MalformedXML</Code>"),
        status("200 OK", "<html>welcome</html>"),
        // For a name that was not requested.
        answered(&failure(ObjectName::Wal(WalId(99)), "AccessDenied")),
    ];
    for refusal in refusals {
        let server = serve_by(&[], move |_, head, _| {
            if head.starts_with("POST") { refusal.clone() } else { status("204 No Content", "") }
        });
        let (store, counts) = CountingStore::wrap(Arc::clone(&server.store));
        for _ in 0..2 {
            let answers = server.runtime.block_on(store.delete_many(names(20)));
            assert!(answers.len() == 20 && answers.iter().all(Result::is_ok), "{answers:?}");
        }
        assert_eq!((methods(&server, "POST"), methods(&server, "DELETE")), (1, 40));
        assert_eq!(counts.totals().deletes, 41, "the one for many counts too");
    }
}

#[test]
fn trouble_of_the_moment_is_no_reason_to_ask_name_by_name() {
    let busy = || status("503 Slow Down", "");
    let server = serve_by(&[], move |number, _, _| if number < 2 { busy() } else { answered("") });
    let answers = server.runtime.block_on(server.store.delete_many(names(20)));
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!((methods(&server, "POST"), server.requests()), (3, 3));
    let server = serve_by(&[], move |_, _, _| busy());
    let answers = server.runtime.block_on(server.store.delete_many(names(20)));
    let kinds = answers.iter().map(|one| one.as_ref().unwrap_err().kind());
    assert!(kinds.into_iter().all(|kind| kind == ErrorKind::Unavailable));
    assert_eq!(server.requests(), 3);
}
