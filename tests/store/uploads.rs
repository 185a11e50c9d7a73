//! The end of an upload whose answer is lost.

use crate::server::{Server, TABLE, begun, completed, created, part, serve_by, status};
use bytes::Bytes;
use parking_lot::Mutex;
use siltstone::Result;
use siltstone_base::ErrorKind;
use siltstone_base::envelope::ENVELOPE_BYTES;
use std::collections::HashMap;
use std::sync::Arc;

/// More than one PUT takes.
const BYTES: usize = 20 << 20;

/// The object under the upload's name after the answer to its end.
#[derive(Clone, Copy)]
enum Stored {
    Ours,
    Shorter,
    Another,
    Nothing,
}

/// The first request to complete is answered with 500, whether or not it took effect, and all later
/// ones with "no such upload", as S3 does for a completed one.
fn losing(stored: Stored) -> Server {
    let lost = std::sync::atomic::AtomicBool::new(false);
    serve_by(&[], move |_, head, _| {
        let missing = |code: &str| status("404 Not Found", &format!("<Code>{code}</Code>"));
        let to = ENVELOPE_BYTES - 1;
        match head.split(' ').next().unwrap() {
            "POST" if head.contains("?uploads") => begun(),
            "POST" if !lost.swap(true, std::sync::atomic::Ordering::Relaxed) => {
                status("500 Internal Server Error", "")
            }
            "POST" | "DELETE" => missing("NoSuchUpload"),
            "PUT" => created(),
            _ => match stored {
                Stored::Ours => part(&format!("0-{to}/{BYTES}"), to + 1, &"a".repeat(to + 1)),
                Stored::Shorter => part(&format!("0-{to}/{}", to + 9), to + 1, &"a".repeat(to + 1)),
                Stored::Another => part(&format!("0-{to}/{BYTES}"), to + 1, &"b".repeat(to + 1)),
                Stored::Nothing => missing("NoSuchKey"),
            },
        }
    })
}

fn upload(server: &Server, bytes: usize) -> Result<()> {
    server.runtime.block_on(async {
        let mut upload = server.store.upload(TABLE).await?;
        for _ in 0..bytes >> 20 {
            upload.write(Bytes::from(vec![b'a'; 1 << 20])).await?;
        }
        upload.finish().await
    })
}

#[test]
fn a_lost_answer_to_the_completion_is_settled_by_reading_back() {
    let server = losing(Stored::Ours);
    upload(&server, BYTES).unwrap();
    for stored in [Stored::Shorter, Stored::Another, Stored::Nothing] {
        let server = losing(stored);
        let error = upload(&server, BYTES).unwrap_err();
        // A repeated upload may succeed; in particular the bucket exists.
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(text.contains("NoSuchUpload") && !text.contains("bucket does not"), "{text}");
    }
}

#[test]
fn a_bucket_that_is_gone_at_the_completion_is_told() {
    let server = serve_by(&[], |_, head, _| match head.split(' ').next().unwrap() {
        "POST" if head.contains("?uploads") => begun(),
        "PUT" => created(),
        _ => status("404 Not Found", "<Code>NoSuchBucket</Code>"),
    });
    assert_eq!(upload(&server, BYTES).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_lost_answer_to_a_small_upload_is_settled_by_reading_back() {
    let to = ENVELOPE_BYTES - 1;
    let server = serve_by(&[], move |_, head, _| match head.split(' ').next().unwrap() {
        "PUT" => status("500 Internal Server Error", ""),
        _ => part(&format!("0-{to}/{}", 1 << 20), to + 1, &"a".repeat(to + 1)),
    });
    upload(&server, 1 << 20).unwrap();
}

/// The stream of rows has passed, so nothing but the upload itself can repeat a request. Each of
/// them fails here more often than the client repeats it.
#[test]
fn each_request_of_an_upload_is_repeated() {
    let failed = Mutex::new(HashMap::<String, u32>::new());
    let list = Arc::new(Mutex::new(String::new()));
    let told = Arc::clone(&list);
    let server = serve_by(&[], move |_, head, body| {
        let line = head.lines().next().unwrap().to_owned();
        let mut failed = failed.lock();
        let times = failed.entry(line.clone()).or_default();
        *times += 1;
        if *times <= 6 {
            return status("503 Slow Down", "<Code>SlowDown</Code>");
        }
        match line.split(' ').next().unwrap() {
            "POST" if line.contains("?uploads") => begun(),
            "PUT" => created(),
            _ => {
                *told.lock() = String::from_utf8_lossy(body).into_owned();
                completed()
            }
        }
    });
    upload(&server, 3 << 20).unwrap();
    upload(&server, BYTES).unwrap();
    let numbers: Vec<_> = list.lock().matches("<PartNumber>").map(drop).collect();
    assert_eq!(numbers.len(), 3, "{}", list.lock());
}

/// A part failed, and the upload is ended all the same: the object would lack its bytes.
#[test]
fn an_upload_without_one_of_its_parts_is_not_completed() {
    let completed = Arc::new(Mutex::new(false));
    let told = Arc::clone(&completed);
    let server = serve_by(&[], move |_, head, _| match head.split(' ').next().unwrap() {
        "POST" if head.contains("?uploads") => begun(),
        "PUT" if head.contains("partNumber=1&") => {
            status("403 Forbidden", "<Code>AccessDenied</Code>")
        }
        "PUT" => created(),
        "POST" => {
            *told.lock() = true;
            crate::server::completed()
        }
        _ => status("404 Not Found", "<Code>NoSuchKey</Code>"),
    });
    server.runtime.block_on(async {
        let mut upload = server.store.upload(TABLE).await.unwrap();
        let mut failed = 0;
        for _ in 0..64 {
            failed += u32::from(upload.write(Bytes::from(vec![b'a'; 1 << 20])).await.is_err());
        }
        assert_eq!(failed, 1);
        assert_eq!(upload.finish().await.unwrap_err().kind(), ErrorKind::Internal);
    });
    assert!(!*completed.lock());
}

/// Before, the parts of an upload stayed, and were paid for, where the last of them was refused,
/// and where the caller of a refused part, or a cancelled one, did not abort the upload itself.
#[test]
fn an_upload_that_fails_or_is_dropped_is_aborted() {
    let (aborted, notified) = std::sync::mpsc::channel();
    let aborted = Mutex::new(aborted);
    let server = serve_by(&[], move |_, head, _| match head.split(' ').next().unwrap() {
        "POST" if head.contains("?uploads") => begun(),
        "PUT" if head.contains("partNumber=3&") => {
            status("403 Forbidden", "<Code>AccessDenied</Code>")
        }
        "PUT" => created(),
        "DELETE" => {
            aborted.lock().send(()).unwrap();
            status("204 No Content", "")
        }
        _ => status("404 Not Found", "<Code>NoSuchKey</Code>"),
    });
    let is_aborted = || notified.recv_timeout(std::time::Duration::from_secs(60)).is_ok();
    assert!(upload(&server, BYTES).is_err(), "the last part is refused at the end");
    assert!(is_aborted());
    assert!(upload(&server, 80 << 20).is_err(), "a part is refused during the writes");
    assert!(is_aborted());
    server.runtime.block_on(async {
        let mut upload = server.store.upload(TABLE).await.unwrap();
        for _ in 0..BYTES >> 20 {
            upload.write(Bytes::from(vec![b'a'; 1 << 20])).await.unwrap();
        }
    });
    assert!(is_aborted(), "its caller was dropped");
    assert!(notified.try_recv().is_err(), "each is aborted once");
}
