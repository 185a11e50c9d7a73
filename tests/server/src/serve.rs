//! One connection, and one request: its pace, its fault, its answer.

use crate::bucket::ServerState;
use crate::call::{Call, Kind};
use crate::fault::{Fault, FaultPlan};
use crate::listing::Disturbance;
use crate::log::RequestLog;
use crate::operations::{self, Answer, Manner};
use crate::pace::{Direction, Pace};
use crate::stream::{AnswerBody, BodyFault, Logged, body, broken, wait_until};
use crate::{signature, time};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, DATE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) state: Mutex<ServerState>,
    pub(crate) plan: Mutex<FaultPlan>,
    pub(crate) pace: Arc<Pace>,
    pub(crate) log: Arc<RequestLog>,
    /// No key: signatures are not looked at.
    pub(crate) keys: Vec<(String, String)>,
    pub(crate) clock_offset_millis: AtomicI64,
    pub(crate) write_interval: Option<Duration>,
    pub(crate) in_flight: Semaphore,
    pub(crate) room: Semaphore,
    pub(crate) drops_connections: AtomicBool,
}

type Answered = Result<Response<AnswerBody>, io::Error>;

/// The largest body of a request, as for S3.
const LARGEST_BODY: usize = 5 << 30;

/// Answers one request. An error ends the connection; `reset` says that it ends with a reset.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    reset: Arc<AtomicBool>,
    request: Request<Incoming>,
) -> Answered {
    let Ok(_turn) = shared.in_flight.acquire().await else { return Err(broken()) };
    let arrived = Instant::now();
    let (head, incoming) = request.into_parts();
    let Parts { method, uri, headers, .. } = head;
    let Some(mut call) = Call::read(method, &uri, headers, Bytes::new()) else {
        let refused = Answer::error(501, "NotImplemented", "This server has no such request");
        return respond(refused, None);
    };
    let entry = shared.log.begin(call.kind, call.place(), call.header("range"));
    let mut logged = Logged { entry, log: Arc::clone(&shared.log) };
    call.body = shared.receive(incoming, arrived).await?;
    logged.entry.bytes_in = call.body.len() as u64;
    if call.header("x-amz-content-sha256").is_some_and(|hash| hash.starts_with("STREAMING-")) {
        call.body = unchunked(&call.body).unwrap_or_default();
    }
    let Ok(_room) = shared.room.try_acquire() else {
        logged.entry.status = 503;
        return respond(Answer::error(503, "SlowDown", "Please reduce your request rate"), None);
    };
    let fault = shared.plan.lock().draw(call.kind, call.place());
    logged.entry.fault = fault.as_ref().map(Fault::name);
    let latency = shared.pace.latency(call.kind);
    wait_until(arrived + latency / 2).await;
    let attempt = Attempt { shared: Arc::clone(&shared), call, fault };
    let Some(answer) = attempt.answer().await.map(|answer| attempt.seen(answer)) else {
        reset.store(attempt.resets(), Ordering::Relaxed);
        return Err(broken());
    };
    wait_until(arrived + latency).await;
    logged.entry.status = answer.status;
    let number = logged.entry.number;
    let broken = attempt.body_fault(answer.body.len());
    reset.store(broken.cut_at.is_some(), Ordering::Relaxed);
    let date = shared.clock_offset_millis.load(Ordering::Relaxed);
    let date = (date != 0).then(|| time::http(time::now_millis(date)));
    let length = answer.announced.unwrap_or(answer.body.len() as u64);
    let answer = answer.with("x-amz-request-id", format!("{number:016}"));
    let mut response = respond(answer, Some((broken, &shared, logged)))?;
    if response.status() != 204 && response.status() != 304 {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if let Some(date) = date.and_then(|date| HeaderValue::from_str(&date).ok()) {
        response.headers_mut().insert(DATE, date);
    }
    Ok(response)
}

fn respond(answer: Answer, paced: Option<(BodyFault, &Shared, Logged)>) -> Answered {
    let mut response = Response::builder().status(answer.status);
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    let body = match paced {
        Some((fault, shared, logged)) => body(answer.body, fault, &shared.pace, logged),
        None => {
            http_body_util::Full::new(answer.body).map_err(|never| match never {}).boxed_unsync()
        }
    };
    response.body(body).map_err(io::Error::other)
}

impl Shared {
    /// The body of a request, as fast as the bandwidth allows.
    async fn receive(&self, mut incoming: Incoming, arrived: Instant) -> io::Result<Bytes> {
        let (mut whole, mut first) = (BytesMut::new(), Bytes::new());
        let mut last = arrived;
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(io::Error::other)?;
            let Ok(data) = frame.into_data() else { continue };
            if self.pace.is_limited() {
                last = self.pace.passed(data.len(), last, Direction::In);
                wait_until(last).await;
            }
            // Most bodies are one frame, which needs no copy.
            if first.is_empty() && whole.is_empty() {
                first = data;
                continue;
            }
            if whole.is_empty() {
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&data);
            if whole.len() > LARGEST_BODY {
                return Err(broken());
            }
        }
        Ok(if whole.is_empty() { first } else { whole.freeze() })
    }

    fn apply(&self, call: &Call, fault: Option<&Fault>) -> Answer {
        let now = time::now_millis(self.clock_offset_millis.load(Ordering::Relaxed));
        let manner = Manner {
            now,
            ignores_conditions: matches!(fault, Some(Fault::IgnoreConditions)),
            fails_halfway: matches!(fault, Some(Fault::PartlyFailedDelete)),
            write_interval: self.write_interval.map(|interval| interval.as_millis() as u64),
            disturbance: match fault {
                Some(Fault::StaleList(newest)) => Some(Disturbance::Stale(*newest)),
                Some(Fault::MessyList) => Some(Disturbance::Messy(self.plan.lock().number())),
                _ => None,
            },
            checks_only: false,
        };
        operations::apply(&mut self.state.lock(), call, manner)
    }
}

/// A request and its fault.
struct Attempt {
    shared: Arc<Shared>,
    call: Call,
    fault: Option<Fault>,
}

impl Attempt {
    /// The answer; `None` if the connection ends without one.
    async fn answer(&self) -> Option<Answer> {
        let (shared, call) = (&self.shared, &self.call);
        if !shared.keys.is_empty() {
            let now = time::now_millis(shared.clock_offset_millis.load(Ordering::Relaxed));
            if let Err(refused) = signature::check(call, &shared.keys, now) {
                return Some(refused);
            }
        }
        let Some(fault) = &self.fault else { return Some(shared.apply(call, None)) };
        Some(match fault {
            Fault::Refuse { status, code, retry_after } => {
                let answer = Answer::error(*status, code, "An injected fault");
                match retry_after {
                    Some(seconds) => answer.with("retry-after", seconds.to_string()),
                    None => answer,
                }
            }
            Fault::ApplyThenRefuse { status, code } => {
                shared.apply(call, None);
                Answer::error(*status, code, "An injected fault")
            }
            Fault::ResetBefore => return None,
            Fault::ResetAfter => {
                shared.apply(call, None);
                return None;
            }
            Fault::HangBefore(time) => {
                tokio::time::sleep(*time).await;
                return None;
            }
            Fault::HangAfter(time) => {
                shared.apply(call, None);
                tokio::time::sleep(*time).await;
                return None;
            }
            Fault::LandLate(time) => {
                let (shared, call, time) = (Arc::clone(shared), call.clone(), *time);
                tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    shared.apply(&call, None);
                });
                return None;
            }
            Fault::Twice => {
                shared.apply(call, None);
                shared.apply(call, None)
            }
            Fault::LateWrite(time) => self.late_write(*time).await,
            Fault::ErrorInSuccess => {
                Answer::error(200, "InternalError", "We encountered an internal error.")
            }
            Fault::WebPage => {
                let page = "<!DOCTYPE html><html><body>Please log in.</body></html>";
                let answer = Answer::new(200).with("content-type", "text/html");
                Answer { body: Bytes::from_static(page.as_bytes()), ..answer }
            }
            Fault::Missing => Answer::error(404, "NoSuchKey", "The specified key does not exist."),
            Fault::WholeForRange | Fault::WrongRange => self.wrong_part(),
            Fault::ShortBody | Fault::WrongBytes | Fault::WrongEtag => {
                self.altered(shared.apply(call, None))
            }
            _ => shared.apply(call, Some(fault)),
        })
    }

    /// The answer as the client gets it: a HEAD has no body.
    fn seen(&self, answer: Answer) -> Answer {
        match self.call.kind {
            Kind::Head if answer.announced.is_none() => {
                Answer { body: Bytes::new(), announced: Some(0), ..answer }
            }
            _ => answer,
        }
    }

    /// Whether the connection ends with a reset, and not with an ordinary end.
    fn resets(&self) -> bool {
        !matches!(self.fault, Some(Fault::HangBefore(_) | Fault::HangAfter(_)))
    }

    /// Two of these that race both win.
    async fn late_write(&self, time: Duration) -> Answer {
        let now = time::now_millis(0);
        let check = Manner { now, checks_only: true, ..Manner::default() };
        let checked = operations::apply(&mut self.shared.state.lock(), &self.call, check);
        if checked.status >= 400 {
            return checked;
        }
        tokio::time::sleep(time).await;
        self.shared.apply(&self.call, Some(&Fault::IgnoreConditions))
    }

    /// The answer to another range than the requested one.
    fn wrong_part(&self) -> Answer {
        let mut call = self.call.clone();
        let range = call.headers.remove("range");
        if let (Some(Fault::WrongRange), Some(_)) = (&self.fault, range) {
            let (first, last) = self.call.range().unwrap_or_default();
            let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
            let from = if first == 0 { 1 } else { 0 };
            let text = format!("bytes={from}-{}", from + last.saturating_sub(first));
            if let Ok(text) = HeaderValue::from_str(&text) {
                call.headers.insert("range", text);
            }
        }
        self.shared.apply(&call, None)
    }

    /// An answer with a wrong body or a wrong ETag.
    fn altered(&self, mut answer: Answer) -> Answer {
        let draw = self.shared.plan.lock().number();
        match &self.fault {
            Some(Fault::WrongEtag) => {
                answer.headers.retain(|(name, _)| name != "etag");
                answer.with("etag", format!("\"{draw:016x}\""))
            }
            _ if answer.status >= 300 || answer.body.is_empty() => answer,
            Some(Fault::ShortBody) => {
                answer.body.truncate(answer.body.len() / 2);
                answer
            }
            _ => {
                let mut wrong = BytesMut::from(answer.body.as_ref());
                let at = usize::try_from(draw % wrong.len() as u64).unwrap_or(0);
                if let Some(byte) = wrong.get_mut(at) {
                    *byte ^= 1 << (draw >> 61);
                }
                Answer { body: wrong.freeze(), ..answer }
            }
        }
    }

    fn body_fault(&self, length: usize) -> BodyFault {
        let cut_at = Some(length / 2);
        match self.fault {
            Some(Fault::ResetInBody) => BodyFault { cut_at, ..BodyFault::default() },
            Some(Fault::StallInBody(time)) => {
                BodyFault { cut_at, stall: Some(time), ..BodyFault::default() }
            }
            Some(Fault::Trickle(rate)) => BodyFault { rate: Some(rate), ..BodyFault::default() },
            _ => BodyFault::default(),
        }
    }
}

/// The bytes of a body in signed chunks: `LENGTH;…\r\nBYTES\r\n`, where the last length is 0.
fn unchunked(body: &[u8]) -> Option<Bytes> {
    let (mut whole, mut rest) = (BytesMut::new(), body);
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let head = std::str::from_utf8(rest.get(..end)?).ok()?;
        let length = usize::from_str_radix(head.split(';').next()?.trim(), 16).ok()?;
        if length == 0 {
            return Some(whole.freeze());
        }
        let start = end + 2;
        whole.extend_from_slice(rest.get(start..start + length)?);
        rest = rest.get(start + length + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_chunks_are_joined() {
        let body = b"3;chunk-signature=x\r\nabc\r\n2\r\nde\r\n0;chunk-signature=y\r\n\r\n";
        assert_eq!(unchunked(body).as_deref(), Some(&b"abcde"[..]));
        assert_eq!(unchunked(b"9\r\nabc\r\n"), None);
    }
}
