//! The real S3 client with a server that misbehaves by a script: the results for the caller, and
//! the number of requests.

use crate::conformance::runtime;
use crate::server::{Reply, TABLE, WAL, created, part, serve, status};
use siltstone::store::options::StoreOptions;
use siltstone::store::{PutAnswer, url};
use siltstone_base::name::prefix;
use siltstone_base::{ErrorKind, ManifestId, ObjectName};
use std::net::TcpListener;

#[test]
fn a_create_is_conditional_and_sent_once_for_any_answer() {
    let missing = "<Error><Code>NoSuchBucket</Code></Error>";
    let cases = [
        (created(), "created"),
        (status("412 Precondition Failed", ""), "exists"),
        (status("409 Conflict", "ConditionalRequestConflict"), "exists"),
        (status("403 Forbidden", "no"), "refused Denied"),
        (status("404 Not Found", missing), "refused NotFound"),
        (status("501 Not Implemented", ""), "refused Unsupported"),
        (status("400 Bad Request", "<Code>ExpiredToken</Code>"), "refused Denied"),
        (status("400 Bad Request", "<Code>InvalidBucketName</Code>"), "refused Invalid"),
        (status("400 Bad Request", "<Code>EntityTooLarge</Code>"), "refused Invalid"),
        (status("400 Bad Request", "<Code>RequestTimeout</Code>"), "ambiguous Unavailable"),
        (status("403 Forbidden", "<Code>RequestTimeTooSkewed</Code>"), "refused Denied"),
        (status("405 Method Not Allowed", ""), "refused Unsupported"),
        (status("413 Content Too Large", ""), "refused Invalid"),
        (status("500 Internal Server Error", ""), "ambiguous Unavailable"),
        (status("503 Slow Down", ""), "ambiguous Unavailable"),
        (status("429 Too Many Requests", ""), "ambiguous Unavailable"),
        (status("408 Request Timeout", ""), "ambiguous Unavailable"),
        (Reply::Reset, "ambiguous Unavailable"),
    ];
    for (reply, expected) in cases {
        let server = serve(vec![reply]);
        let answer = match server.put() {
            PutAnswer::Created => "created".to_owned(),
            PutAnswer::Exists => "exists".to_owned(),
            PutAnswer::Refused(error) => format!("refused {}", error.kind().name()),
            PutAnswer::Ambiguous(error) => format!("ambiguous {}", error.kind().name()),
        };
        assert_eq!(answer, expected);
        assert_eq!(server.requests(), 1, "{expected}: sent more than once");
        let head = server.requests.lock()[0].to_ascii_lowercase();
        assert!(head.starts_with("put /quarry/db/wal/00000000000000000001.sst"), "{head}");
        assert!(head.contains("if-none-match: *"), "{head}");
    }
}

#[test]
fn a_store_that_ignores_conditions_is_refused_and_left_as_it_was() {
    let server = serve(vec![created()]);
    let proof = server.runtime.block_on(server.store.ensure_conditions());
    assert_eq!(proof.unwrap_err().kind(), ErrorKind::Unsupported);
    let heads = server.requests.lock().clone();
    let (last, creates) = heads.split_last().unwrap();
    assert!(creates.iter().all(|head| head.contains("/quarry/db/probe/record")), "{heads:?}");
    assert!(last.starts_with("DELETE /quarry/db/probe/record"), "{heads:?}");
}

#[test]
fn a_store_that_honours_conditions_is_proven_by_one_request_of_a_handle() {
    let server = serve(vec![created(), status("412 Precondition Failed", "")]);
    for _ in 0..3 {
        server.runtime.block_on(server.store.ensure_conditions()).unwrap();
    }
    assert_eq!(server.requests(), 2, "the record is created once, and then found");
    let server = serve(vec![status("412 Precondition Failed", "")]);
    server.runtime.block_on(server.store.ensure_conditions()).unwrap();
    assert_eq!(server.requests(), 1);
}

#[test]
fn reads_are_repeated_below_the_seam() {
    let server = serve(vec![status("503 Slow Down", ""), Reply::Reset, part("0-3/100", 4, "abcd")]);
    assert_eq!(server.get(Some(0..4)).unwrap().as_deref(), Some(&b"abcd"[..]));
    assert_eq!(server.requests(), 3);
    let head = server.requests.lock()[2].to_ascii_lowercase();
    assert!(head.contains("range: bytes=0-3"), "{head}");
}

#[test]
fn a_short_body_is_read_again_and_then_corruption() {
    // The body is consistent with its length, but is not the requested part.
    let short = part("0-3/100", 2, "ab");
    let server = serve(vec![short.clone(), part("0-3/100", 4, "abcd")]);
    assert_eq!(server.get(Some(0..4)).unwrap().as_deref(), Some(&b"abcd"[..]));
    let server = serve(vec![short]);
    assert_eq!(server.get(Some(0..4)).unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(server.requests(), 2);
}

#[test]
fn an_object_that_ends_before_the_range_is_corruption() {
    // Clipped by the server, as the protocol permits.
    let server = serve(vec![part("2-3/4", 2, "cd")]);
    assert_eq!(server.get(Some(2..9)).unwrap_err().kind(), ErrorKind::Corruption);
    // Entirely past the end: the length is requested, and proves it.
    let beyond = status("416 Range Not Satisfiable", "");
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"e\"\r\n\
                Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\nConnection: close\r\n\r\n";
    let server = serve(vec![beyond.clone(), Reply::Raw(head.to_owned())]);
    assert_eq!(server.get(Some(6..9)).unwrap_err().kind(), ErrorKind::Corruption);
    // A 416 for an object that is long enough proves nothing.
    let long = head.replace("Content-Length: 4", "Content-Length: 400");
    let server = serve(vec![beyond, Reply::Raw(long)]);
    assert_eq!(server.get(Some(6..9)).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_range_that_begins_at_the_end_is_answered_for_any_reply() {
    let head = |bytes: usize| {
        Reply::Raw(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nETag: \"e\"\r\n\
             Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\nConnection: close\r\n\r\n"
        ))
    };
    let azure = "<Code>InvalidRange</Code>";
    // The answer to the range, and the length of the object.
    let cases = [
        (status("416 The range specified is invalid for the current size", azure), 4),
        (status("400 Bad Request", azure), 4),
        // An empty part: its last byte lies before the first.
        (part("4-3/4", 0, ""), 4),
        (part("0--1/0", 0, ""), 0),
        // Empty objects have no part, so some servers send the whole.
        (head(0), 0),
    ];
    for (reply, bytes) in cases {
        let start = bytes as u64;
        let server = serve(vec![reply.clone(), head(bytes)]);
        let error = server.get(Some(start..start + 5)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        let server = serve(vec![reply, head(bytes)]);
        let clamped = server.store.get_clamped(TABLE, start..start + 5);
        let error = server.runtime.block_on(clamped).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
}

#[test]
fn a_range_that_was_not_asked_for_is_not_taken() {
    let whole = Reply::Raw(
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"e\"\r\n\
         Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\nConnection: close\r\n\r\nabcd"
            .to_owned(),
    );
    for reply in [part("5-6/100", 2, "xy"), whole] {
        let server = serve(vec![reply]);
        assert!(server.get(Some(0..2)).is_err());
    }
}

#[test]
fn a_missing_bucket_is_told_from_a_missing_object() {
    let server = serve(vec![status("404 Not Found", "<Code>NoSuchKey</Code>")]);
    assert_eq!(server.get(None).unwrap(), None);
    let server = serve(vec![status("404 Not Found", "<Code>NoSuchBucket</Code>")]);
    let error = server.get(None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("s3://quarry"), "{error}");
    let listed = server.runtime.block_on(server.store.list(prefix::WAL, None));
    assert_eq!(listed.unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn refused_credentials_are_told_at_once_and_not_shown() {
    let body = "<Code>SignatureDoesNotMatch</Code><Secret>canary-secret</Secret>";
    let server = serve(vec![status("403 Forbidden", body)]);
    let error = server.get(None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert_eq!(server.requests(), 1);
    let text = format!("{error} {error:?}");
    assert!(text.contains("SignatureDoesNotMatch"), "{text}");
    assert!(!text.contains("canary-secret"), "{text}");
}

#[test]
fn listings_are_filtered_and_sorted_here() {
    let object = |key: &str| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2023-11-14T22:13:20.000Z</LastModified>\
             <ETag>e</ETag><Size>7</Size></Contents>"
        )
    };
    let manifest = |id: u64| object(&format!("db/manifest/{id:020}.manifest"));
    // Out of order, twice, before the requested start, foreign names, names of another database.
    let contents = [
        manifest(9),
        manifest(3),
        manifest(9),
        manifest(1),
        object("db/manifest/notes.txt"),
        object("db2/manifest/00000000000000000005.manifest"),
        object("db/wal/00000000000000000004.sst"),
    ]
    .concat();
    let body = format!(
        "<?xml version=\"1.0\"?><ListBucketResult>{contents}<IsTruncated>false</IsTruncated>\
         </ListBucketResult>"
    );
    let server = serve(vec![status("200 OK", &body)]);
    let after = Some(ObjectName::Manifest(ManifestId(2)));
    let listed = server.runtime.block_on(server.store.list(prefix::MANIFEST, after)).unwrap();
    let ids: Vec<_> = listed.iter().map(|object| object.name).collect();
    assert_eq!(ids, [3, 9].map(|id| ObjectName::Manifest(ManifestId(id))));
    assert!(listed.iter().all(|object| object.bytes == 7));
    assert!(listed.iter().all(|object| object.modified.0 == 1_700_000_000_000));
    // An incomplete listing is an error, never a partial result.
    let server = serve(vec![Reply::Raw(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\nConnection: close\r\n\r\n{body}"
    ))]);
    let listed = server.runtime.block_on(server.store.list(prefix::MANIFEST, None));
    assert_eq!(listed.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_single_delete_needs_no_bulk_protocol() {
    let server = serve(vec![status("204 No Content", "")]);
    server.runtime.block_on(server.store.delete(WAL)).unwrap();
    assert!(server.requests.lock()[0].starts_with("DELETE /quarry/db/wal/"));
    let server = serve(vec![status("404 Not Found", "<Code>NoSuchKey</Code>")]);
    server.runtime.block_on(server.store.delete(WAL)).unwrap();
}

#[test]
fn a_server_that_never_answered_and_is_not_there_is_told_at_once() {
    let endpoint = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let options: StoreOptions = [("endpoint", endpoint.as_str()), ("skip_signature", "true")]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let (runtime, effects) = runtime();
    let store = url::parse("s3://quarry/db", &options, [], &effects).unwrap();
    let error = runtime.block_on(store.get(WAL, None)).unwrap_err();
    assert_eq!((error.kind(), error.may_be_repeated()), (ErrorKind::Unavailable, false));
    let text = error.to_string();
    assert!(text.contains("`endpoint`") && text.contains(&endpoint), "{text}");
    let answer = runtime.block_on(store.put_if_absent(WAL, "x".into()));
    assert!(matches!(answer, PutAnswer::Refused(_)), "{answer:?}");
}
