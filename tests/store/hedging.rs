//! Requests whose answer is late are sent a second time.

use crate::server::{Reply, Server, created, part, serve, status};
use siltstone::store::PutAnswer;
use std::time::{Duration, Instant};

/// Requests after which the usual response time is known.
const KNOWN: usize = 20;
/// Less than the two seconds after which a request is given up.
const SOON: Duration = Duration::from_millis(1500);

/// A server that answers `usual` so often that its response time is known, and then `then`.
fn known(usual: &Reply, then: &[Reply]) -> Server {
    serve([vec![usual.clone(); KNOWN], then.to_vec()].concat())
}

fn read() -> Reply {
    part("0-3/100", 4, "abcd")
}

#[allow(clippy::disallowed_methods, reason = "the client and its server run in real time")]
fn took(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// A machine that stalls makes an answer late, or hedges a request that needs no second copy: one
/// of a few tries must go as it should.
fn some_try(attempt: impl Fn() -> Result<(), String>) {
    let tries: Vec<_> = (0..5).map_while(|_| attempt().err()).collect();
    assert!(tries.len() < 5, "{tries:?}");
}

#[test]
fn a_read_that_is_not_answered_is_sent_again_soon() {
    some_try(|| {
        let server = known(&read(), &[Reply::Held(String::new()), read()]);
        for _ in 0..KNOWN {
            server.get(Some(0..4)).unwrap();
        }
        let waited = took(|| {
            assert_eq!(server.get(Some(0..4)).unwrap().as_deref(), Some(&b"abcd"[..]));
        });
        let is_right = waited < SOON && server.requests() == KNOWN + 2;
        is_right.then_some(()).ok_or_else(|| format!("{waited:?}, {} requests", server.requests()))
    });
}

#[test]
fn a_read_is_not_hedged_before_the_response_time_is_known() {
    let server = serve(vec![read(), Reply::Held(String::new()), read()]);
    server.get(Some(0..4)).unwrap();
    let waited = took(|| drop(server.get(Some(0..4)).unwrap()));
    assert!(waited > SOON, "{waited:?}");
}

#[test]
fn a_create_that_is_not_answered_is_sent_again_soon() {
    for (second, is_created) in [(created(), true), (status("412 Precondition Failed", ""), false)]
    {
        some_try(|| {
            let server = known(&created(), &[Reply::Held(String::new()), second.clone()]);
            let usual = (0..KNOWN).all(|_| matches!(server.put(), PutAnswer::Created));
            let mut is_right = false;
            let waited = took(|| {
                is_right = match server.put() {
                    PutAnswer::Created => is_created,
                    // The object may be that of the first copy: it is read back.
                    PutAnswer::Exists => !is_created,
                    _ => false,
                }
            });
            let bodies = server.bodies.lock();
            let is_same = bodies.get(KNOWN).is_some() && bodies.get(KNOWN) == bodies.get(KNOWN + 1);
            (usual && is_right && is_same && waited < SOON).then_some(()).ok_or_else(|| {
                format!("{waited:?}, usual {usual}, right {is_right}, both copies same {is_same}")
            })
        });
    }
}

#[test]
fn a_store_that_is_slow_as_a_whole_gets_few_requests_twice() {
    let slow = Reply::Slow(String::new(), Duration::from_millis(150), raw(&read()));
    let server = known(&read(), &vec![slow; 200]);
    for _ in 0..KNOWN + 60 {
        server.get(Some(0..4)).unwrap();
    }
    // 80 requests earned one hedge in twenty.
    assert!(server.requests() <= KNOWN + 60 + 5, "{}", server.requests());
}

fn raw(reply: &Reply) -> String {
    match reply {
        Reply::Raw(text) => text.clone(),
        _ => panic!("not a whole reply"),
    }
}
