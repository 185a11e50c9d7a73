//! The time limit of a request grows with its length.

use crate::server::{Reply, Server, TABLE, part, part_head, serve_by};
use bytes::Bytes;
use siltstone::store::PutAnswer;
use siltstone_base::ErrorKind;
use std::time::Duration;

/// The time limit of a request without bytes, as in the option; and a pause beyond it, for which 4
/// MiB (32 s at the slowest bandwidth) leave ample time. It is shorter than the two seconds after
/// which a body that stands still is given up.
const TIMEOUT: &str = "1s";
const PAUSE: Duration = Duration::from_millis(1500);
const BYTES: usize = 4 << 20;

fn server(reply: Reply) -> Server {
    serve_by(&[("timeout", TIMEOUT)], move |_, _, _| reply.clone())
}

#[test]
fn a_long_body_may_take_its_time_to_be_sent() {
    let done = "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let server = server(Reply::Slow(String::new(), PAUSE, done.to_owned()));
    let long = Bytes::from(vec![7; BYTES]);
    let put = |bytes| server.runtime.block_on(server.store.put_if_absent(TABLE, bytes));
    let answer = put(long.clone());
    assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
    let answer = put(Bytes::from_static(b"short"));
    assert!(matches!(answer, PutAnswer::Ambiguous(_)), "{answer:?}");
    let sent = server.runtime.block_on(async {
        let mut upload = server.store.upload(TABLE).await?;
        upload.write(long).await?;
        upload.finish().await
    });
    sent.unwrap();
}

#[test]
fn a_long_body_may_take_its_time_to_come() {
    let half = "x".repeat(BYTES / 2);
    let head = part_head(&format!("0-{}/{BYTES}", BYTES - 1), BYTES);
    let server = server(Reply::Slow(head + &half, PAUSE, half));
    let got = server.get(Some(0..BYTES as u64)).unwrap().unwrap();
    assert_eq!(got.len(), BYTES);
    assert_eq!(server.requests(), 1);
}

#[test]
fn a_stalled_request_ends() {
    for held in [String::new(), part_head("0-9/10", 10)] {
        let server = server(Reply::Held(held));
        let error = server.get(Some(0..10)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("`timeout`"), "{error}");
    }
}

/// The time since a moment of the server's clock.
fn took(server: &Server, since: Duration) -> Duration {
    server.effects.clock.monotonic() - since
}

/// With default options: the first request of each kind is never answered.
#[test]
fn a_lost_request_is_sent_again() {
    let body = part("0-9/10", 10, "0123456789");
    let server = serve_by(&[], move |number, _, _| match number {
        0 => Reply::Held(String::new()),
        _ => body.clone(),
    });
    let begun = server.effects.clock.monotonic();
    assert_eq!(server.get(Some(0..10)).unwrap().unwrap(), "0123456789");
    assert!(took(&server, begun) < Duration::from_secs(5), "{:?}", took(&server, begun));
    assert_eq!(server.requests(), 2);

    // The body of an answer may be lost as well.
    let half = part_head("0-9/10", 10) + "01234";
    let server = serve_by(&[], move |number, _, _| match number {
        0 => Reply::Held(half.clone()),
        _ => part("0-9/10", 10, "0123456789"),
    });
    let error = server.get(Some(0..10));
    assert!(error.is_err() || server.requests() == 2, "a caller repeats it: {error:?}");
}

#[test]
fn a_lost_create_is_ambiguous_soon_and_named() {
    let server = serve_by(&[], |_, _, _| Reply::Held(String::new()));
    let begun = server.effects.clock.monotonic();
    let create = server.store.put_if_absent(TABLE, Bytes::from_static(b"short"));
    let PutAnswer::Ambiguous(error) = server.runtime.block_on(create) else { panic!("settled") };
    assert!(took(&server, begun) < Duration::from_secs(5), "{:?}", took(&server, begun));
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let waited = server.store.unanswered().unwrap();
    assert!(waited.starts_with("PUT http://127.0.0.1:"), "{waited}");
    assert!(waited.ends_with(&TABLE.to_string()), "{waited}");
}
