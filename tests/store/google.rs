//! The real GCS client against a server with scripted answers.

use crate::conformance::runtime;
use crate::server::{Reply, TABLE, WAL, serve, status};
use bytes::Bytes;
use siltstone::store::options::StoreOptions;
use siltstone::store::{PutAnswer, url};
use siltstone_base::{Error, ErrorKind};

#[test]
fn writes_without_signatures_ask_for_no_token() {
    let created = "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nx-goog-generation: 1\r\nContent-Length: 0\r\n\
                   Connection: close\r\n\r\n";
    let server = serve(vec![Reply::Raw(created.to_owned()), status("204 No Content", "")]);
    let options: StoreOptions =
        [("base_url", server.endpoint.as_str()), ("skip_signature", "true")]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
    let (runtime, effects) = runtime();
    let store = url::parse("gs://quarry/db", &options, [], &effects).unwrap();
    let answer = runtime.block_on(store.put_if_absent(WAL, Bytes::from_static(b"body")));
    assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
    runtime.block_on(store.delete(TABLE)).unwrap();
    let heads = server.requests.lock().clone();
    assert_eq!(heads.len(), 2, "{heads:?}");
    assert!(heads[0].to_ascii_lowercase().contains("x-goog-if-generation-match: 0"), "{heads:?}");
    // An empty token is one that a server may refuse.
    let signed = |head: &String| head.to_ascii_lowercase().contains("authorization");
    assert!(!heads.iter().any(signed), "{heads:?}");
}

/// The error of a store with this endpoint, other options, and variables of the environment.
fn refusal(base: &str, more: &[(&str, &str)], variables: &[(&str, &str)]) -> Option<Error> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let given = [("base_url", base), ("skip_signature", "true")];
    let given = given.iter().filter(|(_, value)| *value != "none");
    let options: StoreOptions = given.chain(more).map(owned).collect();
    let (_runtime, effects) = runtime();
    url::parse("gs://quarry/db", &options, variables.iter().map(owned), &effects).err()
}

#[test]
fn an_endpoint_is_a_url_and_plain_only_on_this_machine() {
    for wrong in ["127.0.0.1:4443", "localhost", "ftp://host", "http://", "http://a b", ""] {
        for error in [
            refusal(wrong, &[], &[]).unwrap(),
            refusal("none", &[], &[("GOOGLE_BASE_URL", wrong)]).unwrap(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}");
            assert!(error.to_string().contains("`base_url`"), "{error}");
        }
    }
    for far in ["http://store.lan:4443", "http://10.0.0.1", "HTTP://localhost.evil.org"] {
        let text = refusal(far, &[], &[]).unwrap().to_string();
        assert!(text.contains("`allow_http=true`") && text.contains(far), "{text}");
        assert!(refusal(far, &[("allow_http", "false")], &[]).is_some());
        assert!(refusal(far, &[("allow_http", "true")], &[]).is_none());
        assert!(refusal("none", &[], &[("GOOGLE_BASE_URL", far)]).is_some());
        assert!(refusal("https://store.lan", &[], &[("GOOGLE_BASE_URL", far)]).is_none());
    }
    for here in ["http://localhost:4443", "http://127.0.0.1", "http://[::1]:4443"] {
        assert!(refusal(here, &[], &[]).is_none(), "{here}");
        assert!(refusal(here, &[("allow_http", "off")], &[]).is_some(), "{here}");
    }
}
