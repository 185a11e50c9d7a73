//! Bodies of answers: paced, and broken where a fault says so.

use crate::log::{LogEntry, RequestLog};
use crate::pace::{Direction, Pace};
use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The body of an answer.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, io::Error>;

/// Bytes of a frame of a paced body.
const FRAME: usize = 64 << 10;

/// How a body is broken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BodyFault {
    /// The connection ends after this many bytes.
    pub(crate) cut_at: Option<usize>,
    /// Before that it waits so long.
    pub(crate) stall: Option<Duration>,
    /// Bytes per second.
    pub(crate) rate: Option<u64>,
}

impl BodyFault {
    fn is_none(&self) -> bool {
        self.cut_at.is_none() && self.rate.is_none()
    }
}

/// Writes its entry into the log when the answer has left.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) entry: LogEntry,
    pub(crate) log: Arc<RequestLog>,
}

impl Drop for Logged {
    fn drop(&mut self) {
        self.log.end(self.entry.clone());
    }
}

/// An error that ends a connection.
pub(crate) fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "an injected fault ends the connection")
}

struct Paced {
    rest: Bytes,
    sent: usize,
    last: Instant,
    fault: BodyFault,
    pace: Arc<Pace>,
    logged: Logged,
}

impl Paced {
    async fn next(mut self) -> Option<(io::Result<Frame<Bytes>>, Paced)> {
        let left = self.fault.cut_at.map(|cut| cut - self.sent);
        if left == Some(0) {
            if let Some(stall) = self.fault.stall.take() {
                tokio::time::sleep(stall).await;
            }
            self.logged.entry.status = 0;
            return Some((Err(broken()), self));
        }
        if self.rest.is_empty() {
            return None;
        }
        let frame = match self.fault.rate {
            Some(rate) => usize::try_from(rate / 20).unwrap_or(FRAME).clamp(1, FRAME),
            None => FRAME,
        };
        let bytes = self.rest.len().min(frame).min(left.unwrap_or(usize::MAX));
        let mut passed = self.pace.passed(bytes, self.last, Direction::Out);
        if let Some(rate) = self.fault.rate {
            passed = passed.max(self.last + Duration::from_secs_f64(bytes as f64 / rate as f64));
        }
        wait_until(passed).await;
        self.last = passed;
        self.sent += bytes;
        self.logged.entry.bytes_out += bytes as u64;
        let frame = Frame::data(self.rest.split_to(bytes));
        Some((Ok(frame), self))
    }
}

/// Waits until a time, unless it is closer than a timer can tell.
pub(crate) async fn wait_until(time: Instant) {
    let wait = time.saturating_duration_since(Instant::now());
    if wait > Duration::from_micros(500) {
        tokio::time::sleep(wait).await;
    }
}

/// The body of `bytes`. Its entry is logged once it has left.
pub(crate) fn body(
    bytes: Bytes,
    fault: BodyFault,
    pace: &Arc<Pace>,
    mut logged: Logged,
) -> AnswerBody {
    if fault.is_none() && !pace.is_limited() {
        logged.entry.bytes_out = bytes.len() as u64;
        return Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    }
    let cut_at = fault.cut_at.map(|cut| cut.min(bytes.len()));
    let fault = BodyFault { cut_at, ..fault };
    let (pace, last) = (Arc::clone(pace), Instant::now());
    let paced = Paced { rest: bytes, sent: 0, last, fault, pace, logged };
    StreamBody::new(stream::unfold(paced, Paced::next)).boxed_unsync()
}
