//! Each fault of the plan, as a client sees it.

use crate::{Served, refused};
use siltstone_test_server::Kind;
use siltstone_test_server::client::{Client, Reply};
use siltstone_test_server::fault::{Fault, NAMES, Rule};
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

const OBJECT: &[u8] = b"0123456789abcdefghij";
const SHORT: Duration = Duration::from_millis(60);
/// An event that has not come by then counts as missing, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The answer to a request, once, under a fault; the next one is undisturbed.
fn under(
    served: &mut Served,
    fault: &Fault,
    method: &str,
    path: &str,
    body: &[u8],
) -> io::Result<Reply> {
    served.reconnect();
    served.server.inject(Rule::new(fault.clone()).count(1));
    let create = [("if-none-match", "*")];
    let part = [("range", "bytes=4-7")];
    let headers: &[(&str, &str)] = match method {
        "PUT" => &create,
        "GET" if path == "object" => &part,
        _ => &[],
    };
    let answer = served.client.send(method, &format!("/quarry/{path}"), headers, body);
    served.server.heal();
    served.reconnect();
    answer
}

fn has(served: &Served, key: &str) -> bool {
    served.server.keys("quarry").iter().any(|known| known == key)
}

fn refuse(status: u16, code: &str) -> Fault {
    Fault::Refuse { status, code: code.to_owned(), retry_after: Some(3) }
}

#[test]
fn a_refused_write_is_not_applied() {
    let mut served = Served::plain();
    for (status, code) in [
        (301, "PermanentRedirect"),
        (403, "AccessDenied"),
        (404, "NoSuchBucket"),
        (409, "ConditionalRequestConflict"),
        (429, "SlowDown"),
        (500, "InternalError"),
        (503, "SlowDown"),
        (507, "InsufficientStorage"),
    ] {
        let reply = under(&mut served, &refuse(status, code), "PUT", "new", b"1").unwrap();
        assert_eq!(refused(&reply), (status, code.to_owned()));
        assert_eq!(reply.header("retry-after"), Some("3"));
        assert!(!has(&served, "new"));
    }
    for fault in [Fault::ErrorInSuccess, Fault::WebPage] {
        let reply = under(&mut served, &fault, "PUT", "new", b"1").unwrap();
        assert_eq!(reply.status, 200);
        assert!(reply.text().contains("Error") || reply.text().contains("<html>"));
        assert!(!has(&served, "new"));
    }
    for fault in [Fault::ResetBefore, Fault::HangBefore(SHORT)] {
        under(&mut served, &fault, "PUT", "new", b"1").unwrap_err();
        assert!(!has(&served, "new"), "{fault:?}");
    }
}

#[test]
fn a_write_whose_answer_is_lost_is_applied() {
    let mut served = Served::plain();
    let error = Fault::ApplyThenRefuse { status: 500, code: "InternalError".to_owned() };
    let reply = under(&mut served, &error, "PUT", "error", b"1").unwrap();
    assert_eq!(refused(&reply), (500, "InternalError".to_owned()));
    assert!(has(&served, "error"));
    under(&mut served, &Fault::ResetAfter, "PUT", "reset", b"1").unwrap_err();
    assert!(has(&served, "reset"));
    let began = Instant::now();
    under(&mut served, &Fault::HangAfter(SHORT), "PUT", "hang", b"1").unwrap_err();
    assert!(has(&served, "hang") && began.elapsed() >= SHORT);
    let reply = under(&mut served, &Fault::Twice, "PUT", "twice", b"1").unwrap();
    assert_eq!(reply.status, 412, "the second delivery meets the object of the first");
    assert_eq!(served.get("twice").text(), "1");
    let answer = under(&mut served, &Fault::ResetAfter, "DELETE", "twice", b"");
    assert!(answer.is_err() && !has(&served, "twice"));
}

#[test]
fn a_write_may_land_late() {
    let mut served = Served::plain();
    // Long enough for the client to connect again before it lands. The others are for a machine
    // that stalls for longer.
    for seconds in [1, 4, 16] {
        let (key, late) =
            (format!("late-{seconds}"), Fault::LandLate(Duration::from_secs(seconds)));
        under(&mut served, &late, "PUT", &key, b"1").unwrap_err();
        if !has(&served, &key) {
            let began = Instant::now();
            while !has(&served, &key) {
                assert!(began.elapsed() < PATIENCE, "it does not land");
                std::thread::sleep(Duration::from_millis(5));
            }
            return;
        }
    }
    panic!("it lands at once");
}

#[test]
fn conditions_may_be_ignored() {
    let mut served = Served::plain();
    served.put("old", b"1");
    let reply = under(&mut served, &Fault::IgnoreConditions, "PUT", "old", b"2").unwrap();
    assert_eq!((reply.status, served.get("old").text()), (200, "2".to_owned()));
    let reply = under(&mut served, &Fault::LateWrite(SHORT), "PUT", "old", b"3").unwrap();
    assert_eq!(reply.status, 412, "alone it is exact");
}

#[test]
fn bodies_may_be_broken() {
    let mut served = Served::plain();
    served.put("object", OBJECT);
    under(&mut served, &Fault::ResetInBody, "GET", "object", b"").unwrap_err();
    let began = Instant::now();
    under(&mut served, &Fault::StallInBody(SHORT), "GET", "object", b"").unwrap_err();
    assert!(began.elapsed() >= SHORT);
    let began = Instant::now();
    let reply = under(&mut served, &Fault::Trickle(40), "GET", "object", b"").unwrap();
    assert_eq!(reply.body, OBJECT[4..8]);
    assert!(began.elapsed() >= Duration::from_millis(90), "{:?}", began.elapsed());
    let mut get = |fault| {
        let reply = under(&mut served, &fault, "GET", "object", b"").unwrap();
        (reply.status, reply.text(), reply.header("content-range").unwrap_or_default().to_owned())
    };
    let range = "bytes 4-7/20".to_owned();
    assert_eq!(get(Fault::ShortBody), (206, "45".to_owned(), range.clone()));
    let (status, wrong, same) = get(Fault::WrongBytes);
    assert_eq!((status, wrong.len(), same), (206, 4, range));
    assert_ne!(wrong, "4567");
    let whole = String::from_utf8(OBJECT.to_vec()).unwrap();
    assert_eq!(get(Fault::WholeForRange), (200, whole, String::new()));
    assert_eq!(get(Fault::WrongRange), (206, "0123".to_owned(), "bytes 0-3/20".to_owned()));
    assert_eq!(get(Fault::Missing).0, 404);
    let mut etag = |fault| {
        let reply = under(&mut served, &fault, "GET", "object", b"").unwrap();
        reply.header("etag").unwrap().to_owned()
    };
    assert_ne!(etag(Fault::WrongEtag), etag(Fault::WrongEtag));
}

#[test]
fn listings_may_be_wrong() {
    let mut served = Served::plain();
    for key in ["a", "b", "c", "d", "e", "deleted"] {
        served.put(key, b"1");
    }
    served.send("DELETE", "deleted", &[], b"");
    let mut list = |fault: &Fault| {
        served.reconnect();
        served.server.inject(Rule::new(fault.clone()).count(1).on(Kind::List));
        let answer = served.client.send("GET", "/quarry?list-type=2&start-after=c", &[], b"");
        answer.map(|reply| reply.elements("Key"))
    };
    assert_eq!(list(&Fault::StaleList(1)).unwrap(), ["d"]);
    assert_eq!(list(&Fault::StaleList(9)).unwrap(), [""; 0]);
    let messy = list(&Fault::MessyList).unwrap();
    assert!(!messy.is_sorted(), "{messy:?}");
    let distinct: BTreeSet<&str> = messy.iter().map(String::as_str).collect();
    assert_eq!(distinct.into_iter().collect::<Vec<_>>(), ["a", "b", "c", "d", "deleted", "e"]);
    assert!(messy.len() > 6, "{messy:?}");
    list(&Fault::ResetInBody).unwrap_err();
}

#[test]
fn a_bulk_delete_may_fail_in_parts() {
    let mut served = Served::plain();
    for key in ["a", "b", "c"] {
        served.put(key, b"1");
    }
    let keys = ["a", "b", "c"].map(|key| format!("<Object><Key>{key}</Key></Object>"));
    let body = format!("<Delete>{}</Delete>", keys.concat());
    served.server.inject(Rule::new(Fault::PartlyFailedDelete).count(1));
    let reply = served.client.send("POST", "/quarry?delete", &[], body.as_bytes()).unwrap();
    assert_eq!((reply.status, reply.elements("Error").len()), (200, 1));
    assert_eq!(served.server.keys("quarry"), ["b"]);
}

#[test]
fn rules_choose_requests_and_are_logged() {
    let mut served = Served::plain();
    let rule = "refuse=503:SlowDown on=put key=wal/* skip=1 count=1";
    served.server.inject(Rule::parse(rule).unwrap());
    let statuses = ["wal/1", "manifest/1", "wal/2", "wal/3"]
        .map(|key| served.send("PUT", key, &[], b"1").status);
    assert_eq!(statuses, [200, 200, 503, 200]);
    assert_eq!(served.server.injected().into_iter().collect::<Vec<_>>(), [("refuse", 1)]);
    let log = served.server.log().take();
    let faults: Vec<_> = log.iter().map(|entry| entry.fault).collect();
    assert_eq!(faults, [None, None, Some("refuse"), None]);
    assert_eq!(log[2].key, "wal/2");
    assert_eq!(served.server.log().totals()[&Kind::Put].failed, 1);
}

#[test]
fn connections_may_be_refused() {
    let mut served = Served::plain();
    served.server.set_drops_connections(true);
    // The server resets the connection: before the client has it, or after.
    let connected = Client::connect(served.server.address());
    connected.and_then(|mut client| client.send("GET", "/quarry/a", &[], b"")).unwrap_err();
    served.server.heal();
    served.reconnect();
    assert_eq!(served.get("a").status, 404);
    let address = served.server.address();
    drop(served);
    let began = Instant::now();
    while std::net::TcpStream::connect(address).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it still listens");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Every fault is in a test of this file.
#[test]
fn every_fault_is_tested() {
    let here = include_str!("faults.rs");
    for (name, _) in NAMES {
        let camel: String =
            name.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
        assert!(here.contains(&format!("Fault::{camel}")), "{camel}");
    }
}
