//! Refusals of a store, through the engine: permanent ones are reported immediately.

use crate::server::{Server, TABLE, serve, status};
use siltstone::{Database, ErrorKind, OpenOptions, Options, Reader, ReaderOptions};
use siltstone_base::name::prefix;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any caller waits: a request that is retried until then is retried for ever.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn refuse_everything(line: &str, code: &str) -> Server {
    serve(vec![status(line, &format!("<Error><Code>{code}</Code></Error>"))])
}

#[test]
fn a_permanent_error_ends_an_open_at_once() {
    let cases = [
        ("400 Bad Request", "InvalidBucketName", ErrorKind::Invalid),
        ("404 Not Found", "NoSuchBucket", ErrorKind::NotFound),
        ("405 Method Not Allowed", "MethodNotAllowed", ErrorKind::Unsupported),
        ("501 Not Implemented", "NotImplemented", ErrorKind::Unsupported),
        ("400 Bad Request", "KMS.DisabledException", ErrorKind::Denied),
        ("403 Forbidden", "InvalidAccessKeyId", ErrorKind::Denied),
    ];
    for (line, code, kind) in cases {
        let server = refuse_everything(line, code);
        let env = server.effects.clone().with_store(Arc::clone(&server.store));
        let options = Options { deadline: FOR_EVER, ..Options::default() };
        let how = OpenOptions { options: options.clone(), ..OpenOptions::default() };
        let error = server.runtime.block_on(Database::open(env.clone(), how)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.to_string();
        // The client below retries 501, as it does other 5xx.
        assert!(text.contains(code) && text.contains("s3://quarry"), "{text}");
        let how = ReaderOptions { options, ..ReaderOptions::default() };
        let error = server.runtime.block_on(Reader::open(env, how)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        // The writer sends three requests at once, the reader one. The client repeats 501.
        let most = if code == "NotImplemented" { 16 } else { 4 };
        assert!(server.requests() <= most, "{code}: {} requests", server.requests());
    }
}

#[test]
fn a_read_in_a_missing_bucket_finds_no_absent_object() {
    let server = refuse_everything("404 Not Found", "NoSuchBucket");
    for range in [None, Some(0..4)] {
        let error = server.get(range).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("s3://quarry"), "{error}");
    }
    let deleted = server.runtime.block_on(server.store.delete(TABLE));
    assert_eq!(deleted.unwrap_err().kind(), ErrorKind::NotFound);
    let listed = server.runtime.block_on(server.store.list(prefix::COMPACTED, None));
    assert_eq!(listed.unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_clock_that_is_wrong_is_called_that() {
    let server = refuse_everything("403 Forbidden", "RequestTimeTooSkewed");
    let error = server.get(None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("clock"), "{error}");
    assert_eq!(server.requests(), 1);
}
