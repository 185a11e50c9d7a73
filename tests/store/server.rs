//! An S3 server on loopback with scripted answers, and the real client.

use crate::conformance::runtime;
use parking_lot::Mutex;
use siltstone::env::Effects;
use siltstone::store::options::StoreOptions;
use siltstone::store::{PutAnswer, Store, url};
use siltstone_base::{ObjectName, SstId, WalId};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The server's reaction to one request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Sends these bytes and closes.
    Raw(String),
    /// Closes without an answer.
    Reset,
    /// Sends these bytes, waits, sends the others and closes.
    Slow(String, Duration, String),
    /// Sends only these bytes, and keeps the connection open.
    Held(String),
}

pub(crate) struct Server {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) endpoint: String,
    /// The head and body of every request.
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
    pub(crate) bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    pub(crate) runtime: Runtime,
    pub(crate) effects: Effects,
}

pub(crate) const WAL: ObjectName = ObjectName::Wal(WalId(1));
pub(crate) const TABLE: ObjectName = ObjectName::Compacted(SstId(1));

pub(crate) fn status(status: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Raw(format!(
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    ))
}

/// The head of an answer to a read: the range, and the announced length.
pub(crate) fn part_head(range: &str, announced: usize) -> String {
    format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {range}\r\nETag: \"e\"\r\n\
         Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\nContent-Length: {announced}\r\n\
         Connection: close\r\n\r\n"
    )
}

/// An answer to a read: the range in the header, and the actual body.
pub(crate) fn part(range: &str, announced: usize, body: &str) -> Reply {
    Reply::Raw(part_head(range, announced) + body)
}

/// The answer to a request that completes an upload in parts.
pub(crate) fn completed() -> Reply {
    let tag = "<ETag>&quot;e&quot;</ETag>";
    let result = "CompleteMultipartUploadResult";
    status("200 OK", &format!("<{result}>{tag}</{result}>"))
}

/// The answer to a request that begins an upload in parts.
pub(crate) fn begun() -> Reply {
    let body = "<InitiateMultipartUploadResult><Bucket>quarry</Bucket><Key>k</Key>\
                <UploadId>u</UploadId></InitiateMultipartUploadResult>";
    status("200 OK", body)
}

pub(crate) fn created() -> Reply {
    Reply::Raw(
        "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".into(),
    )
}

/// Reads one request: the head, and the body with its announced length.
fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 65536];
    let mut length = None;
    loop {
        let end =
            bytes.windows(4).position(|four| four == b"\r\n\r\n").filter(|_| length.is_none());
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let lower = head.to_ascii_lowercase();
            let announced = lower.split("content-length: ").nth(1).unwrap_or("0");
            let announced: usize = announced.split("\r\n").next()?.parse().ok()?;
            length = Some((head, end + 4, announced));
        }
        if let Some((head, start, announced)) = &length
            && bytes.len() >= start + announced
        {
            return Some((head.clone(), bytes.split_off(*start)));
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

/// A server that follows `script` and then repeats its last line.
pub(crate) fn serve(script: Vec<Reply>) -> Server {
    serve_by(&[], move |number, _, _| script[number.min(script.len() - 1)].clone())
}

/// A server that answers by the number of a request, its head and its body.
#[allow(clippy::disallowed_methods, reason = "a server is a thread of its own")]
pub(crate) fn serve_by(
    more: &[(&str, &str)],
    answer: impl Fn(usize, &str, &[u8]) -> Reply + Send + 'static,
) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (requests, bodies) = (Arc::default(), Arc::default());
    let seen: (Arc<Mutex<Vec<String>>>, Arc<Mutex<Vec<Vec<u8>>>>) =
        (Arc::clone(&requests), Arc::clone(&bodies));
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let Some((head, body)) = read_request(&mut stream) else { continue };
            let reply = answer(seen.0.lock().len(), &head, &body);
            seen.0.lock().push(head);
            seen.1.lock().push(body);
            match reply {
                Reply::Raw(text) => drop(stream.write_all(text.as_bytes())),
                Reply::Reset => {}
                Reply::Slow(first, pause, rest) => {
                    drop(stream.write_all(first.as_bytes()));
                    std::thread::sleep(pause);
                    drop(stream.write_all(rest.as_bytes()));
                }
                Reply::Held(text) => {
                    drop(stream.write_all(text.as_bytes()));
                    held.push(stream);
                }
            }
        }
    });
    let given = [
        ("endpoint", endpoint.as_str()),
        ("access_key_id", "canary-id"),
        ("secret_access_key", "canary-secret"),
    ];
    let options: StoreOptions = given
        .iter()
        .chain(more)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let (runtime, effects) = runtime();
    let store = url::parse("s3://quarry/db", &options, [], &effects).unwrap();
    Server { store, endpoint, requests, bodies, runtime, effects }
}

impl Server {
    pub(crate) fn put(&self) -> PutAnswer {
        self.runtime.block_on(self.store.put_if_absent(WAL, "body".into()))
    }

    pub(crate) fn get(
        &self,
        range: Option<std::ops::Range<u64>>,
    ) -> siltstone::Result<Option<bytes::Bytes>> {
        self.runtime.block_on(self.store.get(TABLE, range))
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.lock().len()
    }
}
