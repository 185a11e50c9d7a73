//! Objects, conditions, copies, bulk deletes and multipart uploads.

use crate::{Served, refused};

const CREATE: (&str, &str) = ("if-none-match", "*");

fn no(code: &str, status: u16) -> (u16, String) {
    (status, code.to_owned())
}

#[test]
fn an_object_is_stored_read_and_deleted() {
    let mut served = Served::plain();
    let meta = [("x-amz-meta-attempt", "7"), ("content-type", "text/plain")];
    let put = served.send("PUT", "a/b%20c", &meta, b"0123456789");
    let etag = put.header("etag").unwrap().to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    let got = served.get("a/b%20c");
    assert_eq!((got.status, got.body.as_slice()), (200, &b"0123456789"[..]));
    for (name, value) in meta.into_iter().chain([("etag", etag.as_str())]) {
        assert_eq!(got.header(name), Some(value));
    }
    assert!(got.header("last-modified").unwrap().ends_with("GMT"));
    let head = served.send("HEAD", "a/b%20c", &[], b"");
    assert_eq!((head.status, head.header("content-length")), (200, Some("10")));
    assert_eq!(head.header("x-amz-meta-attempt"), Some("7"));
    assert_eq!(served.send("DELETE", "a/b%20c", &[], b"").status, 204);
    assert_eq!(served.send("DELETE", "a/b%20c", &[], b"").status, 204, "deleting is idempotent");
    assert_eq!(refused(&served.get("a/b%20c")), no("NoSuchKey", 404));
    assert_eq!(served.send("HEAD", "a/b%20c", &[], b"").status, 404);
    let other = served.client.send("GET", "/other/a", &[], b"").unwrap();
    assert_eq!(refused(&other), no("NoSuchBucket", 404));
    assert_eq!(served.client.send("PATCH", "/quarry/a", &[], b"").unwrap().status, 501);
}

#[test]
fn ranges_are_those_of_s3() {
    let mut served = Served::plain();
    served.put("a", b"0123456789");
    for (range, status, body, content) in [
        ("bytes=2-4", 206, "234", "bytes 2-4/10"),
        ("bytes=8-99", 206, "89", "bytes 8-9/10"),
        ("bytes=7-", 206, "789", "bytes 7-9/10"),
        ("bytes=-3", 206, "789", "bytes 7-9/10"),
        ("bytes=0-1,4-5", 200, "0123456789", ""),
    ] {
        let got = served.send("GET", "a", &[("range", range)], b"");
        assert_eq!((got.status, got.text()), (status, body.to_owned()), "{range}");
        assert_eq!(got.header("content-range").unwrap_or_default(), content, "{range}");
    }
    let beyond = served.send("GET", "a", &[("range", "bytes=10-11")], b"");
    assert_eq!(refused(&beyond), no("InvalidRange", 416));
    assert_eq!(beyond.header("content-range"), Some("bytes */10"));
    served.put("empty", b"");
    assert_eq!(served.send("GET", "empty", &[("range", "bytes=0-0")], b"").status, 416);
}

#[test]
fn reads_and_writes_have_conditions() {
    let mut served = Served::plain();
    let missing = served.send("PUT", "a", &[("if-match", "\"x\"")], b"1");
    assert_eq!(refused(&missing), no("NoSuchKey", 404));
    assert_eq!(served.send("PUT", "a", &[CREATE], b"1").status, 200);
    assert_eq!(refused(&served.send("PUT", "a", &[CREATE], b"2")), no("PreconditionFailed", 412));
    assert_eq!(served.get("a").text(), "1");
    let etag = served.get("a").header("etag").unwrap().to_owned();
    let stale = served.send("PUT", "a", &[("if-match", "\"stale\"")], b"2");
    assert_eq!(refused(&stale), no("PreconditionFailed", 412));
    assert_eq!(served.send("PUT", "a", &[("if-match", &etag)], b"2").status, 200);
    assert_eq!(served.send("PUT", "a", &[("if-match", &etag)], b"3").status, 412);
    let other = served.send("PUT", "a", &[("if-none-match", &etag)], b"3");
    assert_eq!(refused(&other), no("NotImplemented", 501));
    let etag = served.get("a").header("etag").unwrap().to_owned();
    assert_eq!(served.send("GET", "a", &[("if-none-match", &etag)], b"").status, 304);
    assert_eq!(served.send("GET", "a", &[("if-match", "\"stale\"")], b"").status, 412);
    assert_eq!(served.send("DELETE", "a", &[("if-match", "\"stale\"")], b"").status, 412);
    assert_eq!(served.send("DELETE", "a", &[("if-match", &etag)], b"").status, 204);
}

#[test]
fn an_object_is_copied() {
    let mut served = Served::plain();
    served.send("PUT", "a%2Bb", &[("x-amz-meta-kind", "table")], b"bytes");
    let source = ("x-amz-copy-source", "/quarry/a%2Bb");
    let copied = served.send("PUT", "c", &[source, CREATE], b"");
    assert_eq!(copied.status, 200);
    assert_eq!(copied.element("ETag"), served.get("c").header("etag").map(str::to_owned));
    assert_eq!(served.get("c").text(), "bytes");
    assert_eq!(served.get("c").header("x-amz-meta-kind"), Some("table"));
    assert_eq!(served.send("PUT", "c", &[source, CREATE], b"").status, 412);
    let stale = ("x-amz-copy-source-if-match", "\"stale\"");
    assert_eq!(served.send("PUT", "d", &[source, stale], b"").status, 412);
    let replace = [source, ("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-kind", "log")];
    served.send("PUT", "d", &replace, b"");
    assert_eq!(served.get("d").header("x-amz-meta-kind"), Some("log"));
    let none = served.send("PUT", "e", &[("x-amz-copy-source", "quarry/none")], b"");
    assert_eq!(refused(&none), no("NoSuchKey", 404));
}

#[test]
fn many_objects_are_deleted_at_once() {
    let mut served = Served::plain();
    for key in ["a", "b", "c"] {
        served.put(key, b"1");
    }
    let object = |key| format!("<Object><Key>{key}</Key></Object>");
    let body = format!("<Delete>{}{}{}</Delete>", object("a"), object("c"), object("none"));
    let reply = served.client.send("POST", "/quarry?delete", &[], body.as_bytes()).unwrap();
    assert_eq!(reply.elements("Key"), ["a", "c", "none"]);
    assert_eq!(served.server.keys("quarry"), ["b"]);
    let quiet = format!("<Delete><Quiet>true</Quiet>{}</Delete>", object("b"));
    let reply = served.client.send("POST", "/quarry?delete", &[], quiet.as_bytes()).unwrap();
    assert_eq!((reply.status, reply.elements("Key").len()), (200, 0));
    let reply = served.client.send("POST", "/quarry?delete", &[], b"<Delete/>").unwrap();
    assert_eq!(refused(&reply), no("MalformedXML", 400));
}

fn begin(served: &mut Served, key: &str) -> String {
    let begun = served.send("POST", &format!("{key}?uploads"), &[], b"");
    begun.element("UploadId").unwrap()
}

fn completion(parts: &[(u32, &str)]) -> String {
    let parts = parts.iter().map(|(number, etag)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
    });
    format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", parts.collect::<String>())
}

#[test]
fn an_object_is_uploaded_in_parts() {
    let mut served = Served::plain();
    let id = begin(&mut served, "big");
    let (large, small) = (vec![b'l'; 5 << 20], vec![b's'; 10]);
    let mut etags = Vec::new();
    for (number, part) in [(1, &large), (2, &small)] {
        let put = served.send("PUT", &format!("big?partNumber={number}&uploadId={id}"), &[], part);
        etags.push(put.header("etag").unwrap().to_owned());
    }
    assert_eq!(served.get("big").status, 404, "visible before it is complete");
    let parts = served.get(&format!("big?uploadId={id}"));
    assert_eq!(parts.elements("Size"), ["5242880", "10"]);
    let pending = served.client.send("GET", "/quarry?uploads", &[], b"").unwrap();
    assert_eq!(pending.elements("UploadId"), [id.as_str()]);
    let path = format!("big?uploadId={id}");
    for (parts, code) in [
        (vec![(2, etags[1].as_str()), (1, etags[0].as_str())], "InvalidPartOrder"),
        (vec![(1, "\"wrong\"")], "InvalidPart"),
        (vec![(3, etags[0].as_str())], "InvalidPart"),
        (vec![], "MalformedXML"),
    ] {
        let reply = served.send("POST", &path, &[], completion(&parts).as_bytes());
        assert_eq!(refused(&reply), no(code, 400));
    }
    let all = completion(&[(1, &etags[0]), (2, &etags[1])]);
    let done = served.send("POST", &path, &[CREATE], all.as_bytes());
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(done.element("ETag").unwrap().ends_with("-2\""));
    assert_eq!(served.get("big").body, [large, small].concat());
    assert_eq!(served.server.pending_uploads(), 0);
    let gone = served.send("POST", &path, &[], all.as_bytes());
    assert_eq!(refused(&gone), no("NoSuchUpload", 404));
}

#[test]
fn uploads_are_aborted_and_conditional() {
    let mut served = Served::plain();
    let id = begin(&mut served, "a");
    assert_eq!(served.send("DELETE", &format!("a?uploadId={id}"), &[], b"").status, 204);
    assert_eq!(served.server.pending_uploads(), 0);
    let id = begin(&mut served, "a");
    served.put("a", b"first");
    let tiny = [1, 2].map(|number| {
        let path = format!("a?partNumber={number}&uploadId={id}");
        served.send("PUT", &path, &[], b"x").header("etag").unwrap().to_owned()
    });
    let path = format!("a?uploadId={id}");
    let both = completion(&[(1, &tiny[0]), (2, &tiny[1])]);
    let reply = served.send("POST", &path, &[], both.as_bytes());
    assert_eq!(refused(&reply), no("EntityTooSmall", 400));
    let one = completion(&[(1, &tiny[0])]);
    let reply = served.send("POST", &path, &[CREATE], one.as_bytes());
    assert_eq!(refused(&reply), no("PreconditionFailed", 412));
    assert_eq!(served.get("a").text(), "first");
    let path = format!("b?partNumber=1&uploadId={id}");
    assert_eq!(served.send("PUT", &path, &[], b"x").status, 404, "the upload of another key");
    let id = begin(&mut served, "b");
    let path = format!("b?partNumber=0&uploadId={id}");
    assert_eq!(served.send("PUT", &path, &[], b"x").status, 400);
    let path = format!("b?partNumber=1&uploadId={id}");
    let copied = served.send("PUT", &path, &[("x-amz-copy-source", "quarry/a")], b"");
    assert_eq!(copied.status, 200, "{}", copied.text());
}

#[test]
fn buckets_are_created_and_deleted() {
    let mut served = Served::plain();
    let mut send = |method: &str, path: &str| {
        served.client.send(method, path, &[], b"").map(|reply| refused(&reply)).unwrap()
    };
    assert_eq!(send("HEAD", "/more").0, 404);
    assert_eq!(send("PUT", "/more").0, 200);
    assert_eq!(send("HEAD", "/more").0, 200);
    assert_eq!(send("GET", "/more?location").0, 200);
    assert_eq!(send("PUT", "/more/a").0, 200);
    assert_eq!(send("DELETE", "/more"), no("BucketNotEmpty", 409));
    assert_eq!(send("DELETE", "/more/a").0, 204);
    assert_eq!(send("DELETE", "/more").0, 204);
    assert_eq!(send("GET", "/more?list-type=2"), no("NoSuchBucket", 404));
}
