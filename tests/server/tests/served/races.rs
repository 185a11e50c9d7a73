//! Conditions under races.

use crate::Served;
use siltstone_test_server::client::Client;
use siltstone_test_server::fault::{Fault, Rule};
use siltstone_test_server::{Kind, TestServer};
use std::sync::Barrier;
use std::time::Duration;

const CLIENTS: usize = 8;
const RACES: usize = 100;

/// The winners of each race, in which every client sends the request of `of`.
fn race(
    server: &TestServer,
    races: usize,
    request: impl Fn(usize) -> (String, &'static str, String) + Sync,
) -> Vec<usize> {
    let barrier = Barrier::new(CLIENTS);
    let winners: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (barrier, request) = (&barrier, &request);
                scope.spawn(move || {
                    let mut connection = Client::connect(server.address()).unwrap();
                    let mut won = Vec::new();
                    for race in 0..races {
                        let (path, condition, value) = request(race);
                        let body = format!("client {client}");
                        barrier.wait();
                        let headers = [(condition, value.as_str())];
                        let reply = connection.send("PUT", &path, &headers, body.as_bytes());
                        let status = reply.unwrap().status;
                        assert!(status == 200 || status == 412, "{status}");
                        won.push(status == 200);
                    }
                    won
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    (0..races).map(|race| winners.iter().filter(|won| won[race]).count()).collect()
}

#[test]
fn exactly_one_of_racing_creates_wins() {
    let served = Served::plain();
    let won = race(&served.server, RACES, |race| {
        (format!("/quarry/{race}"), "if-none-match", "*".to_owned())
    });
    assert_eq!(won, [1; RACES]);
}

#[test]
fn exactly_one_of_racing_updates_wins() {
    let mut served = Served::plain();
    let etags: Vec<String> = (0..RACES)
        .map(|race| served.put(&race.to_string(), b"old").header("etag").unwrap().to_owned())
        .collect();
    let won = race(&served.server, RACES, |race| {
        (format!("/quarry/{race}"), "if-match", etags[race].clone())
    });
    assert_eq!(won, [1; RACES]);
}

#[test]
fn a_server_that_checks_too_early_has_two_winners() {
    let served = Served::plain();
    served.server.inject(Rule::new(Fault::LateWrite(Duration::from_millis(20))).on(Kind::Put));
    let won = race(&served.server, 3, |race| {
        (format!("/quarry/{race}"), "if-none-match", "*".to_owned())
    });
    assert!(won.iter().any(|winners| *winners > 1), "{won:?}");
}
