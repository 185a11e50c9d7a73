//! Time limits of requests. A limit grows with the length of the request, so that the same bytes
//! can arrive in the end even over a slow link.
//!
//! ```text
//! sending, up to the head of the answer:  patience + bytes sent / slowest
//! the body of the answer:                 timeout + bytes come so far / slowest
//! between two pieces of a body:           patience
//! ```
//! Patience ([`StorePace`]) is at most the store option `timeout`, and mostly two seconds. The
//! client's own limit is one number for all requests: a limit that suits a listing would always end
//! a large object on a slow link. Here the store option `timeout` is the limit of a request without
//! bytes, and bytes extend it. A stalled request is given up, which counts as a connection error
//! and is retried.

use super::pace::{InFlightRequest, LEAST_PATIENCE, StorePace};
use crate::env::Clock;
use crate::retry::limit_of;
use crate::sent::{SentKind, SentOutcome};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use http_body::{Body, Frame, SizeHint};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use object_store::{ClientConfigKey, ClientOptions};
use parking_lot::Mutex;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The name of the header with a signature or a token.
const AUTHORIZATION: &str = "authorization";

/// Makes clients with time limits.
pub(super) struct LimitedConnector {
    clock: Arc<dyn Clock>,
    pace: Arc<StorePace>,
}

impl LimitedConnector {
    pub(super) fn new(clock: Arc<dyn Clock>, pace: Arc<StorePace>) -> LimitedConnector {
        LimitedConnector { clock, pace }
    }
}

impl fmt::Debug for LimitedConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedConnector").finish_non_exhaustive()
    }
}

impl HttpConnector for LimitedConnector {
    /// A client without its own limit, under ours.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let base = match options.get_config_value(&ClientConfigKey::Timeout) {
            Some(text) => humantime::parse_duration(&text).map_err(|error| {
                let source = format!("`timeout` is not a duration such as 30s: {error}").into();
                object_store::Error::Generic { store: "options", source }
            })?,
            // Only the client itself can disable the timeout.
            None => Duration::MAX,
        };
        let unlimited = options.clone().with_timeout_disabled();
        let client = ReqwestConnector::default().connect(&unlimited)?;
        Ok(HttpClient::new(Limited {
            client,
            base,
            clock: Arc::clone(&self.clock),
            pace: Arc::clone(&self.pace),
        }))
    }
}

/// A client with time limits.
struct Limited {
    client: HttpClient,
    base: Duration,
    clock: Arc<dyn Clock>,
    pace: Arc<StorePace>,
}

impl fmt::Debug for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Limited {
    /// Sends a request with a body of `bytes`, and again if the answer is late: the first answer
    /// that settles it counts.
    async fn send(&self, request: HttpRequest, bytes: u64) -> Result<HttpResponse, HttpError> {
        let (hedges, counted) = (&self.pace.hedges, self.pace.sent());
        let query = request.uri().query().unwrap_or_default();
        let kind = SentKind::of(request.method().as_str(), query);
        counted.sends(kind);
        let began = self.clock.monotonic();
        let delay = hedges.delay(kind, bytes).filter(|_| is_repeatable(&request));
        let Some(delay) = delay else {
            let answer = self.client.execute(request).await;
            hedges.answered(kind, bytes, self.clock.monotonic().saturating_sub(began));
            return answer;
        };
        let first = self.client.execute(request.clone()).boxed();
        let first = match select(first, self.clock.sleep(delay)).await {
            Either::Left((answer, _)) => {
                hedges.answered(kind, bytes, self.clock.monotonic().saturating_sub(began));
                return answer;
            }
            Either::Right((_, first)) => first,
        };
        // A hedged request counts as one that took as long as its delay: without it, it would have
        // taken longer.
        hedges.answered(kind, bytes, delay);
        if !hedges.take() {
            return first.await;
        }
        counted.sends(kind);
        counted.hedges(1);
        let second = self.client.execute(request).boxed();
        let (answer, other) = select(first, second).await.factor_first();
        if settles(kind, &answer) {
            return answer;
        }
        let later = other.await;
        if settles(kind, &later) { later } else { answer }
    }
}

/// Whether two copies of a request do what one does. Not a request that begins an upload in parts,
/// since each copy begins one, nor one that has the store copy an object, which takes as long as
/// the object is large.
fn is_repeatable(request: &HttpRequest) -> bool {
    const COPIES: [&str; 3] = ["x-amz-copy-source", "x-goog-copy-source", "x-ms-copy-source"];
    matches!(request.method().as_str(), "GET" | "HEAD" | "PUT")
        && !COPIES.iter().any(|header| request.headers().contains_key(*header))
}

/// Whether an answer to one of two copies stands for both. A create that finds its object (412) may
/// have met its own copy: the caller reads the object back and compares the attempt id (rule M1). A
/// conflict with a create under way (409) may be one with the other copy, whose answer is awaited.
fn settles(kind: SentKind, answer: &Result<HttpResponse, HttpError>) -> bool {
    let Ok(answer) = answer else { return false };
    match (kind, answer.status().as_u16()) {
        (SentKind::Put, status) => status == 412 || (200..300).contains(&status),
        (_, status) => SentOutcome::of(status) != SentOutcome::Transient,
    }
}

impl HttpService for Limited {
    fn call<'a, 'b>(&'a self, mut request: HttpRequest) -> CallFuture<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        // The empty token of a store without signatures: servers refuse it.
        if request.headers().get(AUTHORIZATION).is_some_and(|token| token == "Bearer ") {
            request.headers_mut().remove(AUTHORIZATION);
        }
        async move {
            let turn = self.pace.concurrency.turn().await;
            let sent = request.body().content_length() as u64;
            let patience = self.pace.patience(self.base);
            let bought = limit_of(Duration::ZERO, sent);
            let limit = patience.saturating_add(self.pace.sending(sent, bought));
            let under_way = self.pace.begin(named(&request), patience);
            let counted = self.pace.sent();
            let answer = select(self.send(request, sent).boxed(), self.clock.sleep(limit));
            let (head, body) = match answer.await {
                Either::Left((Ok(answer), _)) => {
                    turn.answered(answer.status().as_u16());
                    counted.ended(SentOutcome::of(answer.status().as_u16()));
                    under_way.answered(sent, answer.status().as_u16());
                    answer.into_parts()
                }
                Either::Left((Err(error), _)) => {
                    counted.ended(SentOutcome::Transient);
                    if error.kind() == HttpErrorKind::Connect {
                        under_way.not_connected(all_of(&error));
                    }
                    return Err(error);
                }
                Either::Right(_) => {
                    counted.ended(SentOutcome::Transient);
                    under_way.gave_up(sent);
                    return Err(too_long(limit));
                }
            };
            drop(turn);
            let body = LimitedBody {
                body,
                base: self.base,
                came: 0,
                since: self.clock.monotonic(),
                last: self.clock.monotonic(),
                stall: patience.max(LEAST_PATIENCE),
                until: Mutex::new(self.clock.sleep(self.base.min(patience.max(LEAST_PATIENCE)))),
                clock: Arc::clone(&self.clock),
                under_way,
            };
            Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
        }
        .boxed()
    }
}

/// The request as text: method, endpoint and path, without possible secrets.
fn named(request: &HttpRequest) -> String {
    let uri = request.uri();
    let place = uri.authority().map_or("", |authority| authority.as_str());
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let scheme = uri.scheme_str().unwrap_or("http");
    format!("{} {scheme}://{place}{}", request.method(), uri.path())
}

/// The texts of an error and its causes.
pub(super) fn all_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The type that the client's macro gives to an asynchronous method.
type CallFuture<'b> = BoxFuture<'b, Result<HttpResponse, HttpError>>;

/// The body of an answer. The bytes so far decide how long the rest may take.
struct LimitedBody {
    body: HttpResponseBody,
    base: Duration,
    came: u64,
    since: Duration,
    /// Time of the last piece.
    last: Duration,
    /// Longest time between two pieces.
    stall: Duration,
    under_way: InFlightRequest,
    /// Never locked. The lock makes the type shareable between threads, which a body has to be.
    until: Mutex<BoxFuture<'static, ()>>,
    clock: Arc<dyn Clock>,
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            if let Some(Ok(frame)) = &frame {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                this.came += bytes;
                this.under_way.comes(bytes);
                this.last = this.clock.monotonic();
            }
            return Poll::Ready(frame);
        }
        while this.until.get_mut().poll_unpin(context).is_ready() {
            let limit = limit_of(this.base, this.came);
            let ends = (this.since + limit).min(this.last + this.stall);
            let left = ends.saturating_sub(this.clock.monotonic());
            if left.is_zero() {
                this.under_way.gave_up(0);
                return Poll::Ready(Some(Err(too_long(limit.min(this.stall)))));
            }
            *this.until.get_mut() = this.clock.sleep(left);
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The error of a request that took too long.
#[derive(Debug)]
struct RequestTooLong(Duration);

impl fmt::Display for RequestTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        write!(f, "no answer within {seconds:.1} s (at most the store option `timeout`)")
    }
}

impl std::error::Error for RequestTooLong {}

fn too_long(limit: Duration) -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, RequestTooLong(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_make_something_new_each_time_are_not_hedged() {
        let request = |method: &str, header: Option<&'static str>| {
            let mut request = HttpRequest::new(Bytes::new().into());
            *request.method_mut() = method.parse().unwrap();
            if let Some(header) = header {
                request.headers_mut().insert(header, "/bucket/key".parse().unwrap());
            }
            is_repeatable(&request)
        };
        assert!(request("GET", None) && request("PUT", None) && request("HEAD", None));
        assert!(!request("POST", None) && !request("PUT", Some("x-amz-copy-source")));
    }

    #[test]
    fn bytes_buy_time() {
        let time_for = |bytes| limit_of(Duration::ZERO, bytes);
        assert_eq!(time_for(0), Duration::ZERO);
        assert_eq!(time_for(8 << 20), Duration::from_secs(64));
        assert_eq!(time_for(190 << 20), Duration::from_secs(1520));
        assert!(time_for(u64::MAX) > Duration::from_secs(1 << 32));
    }
}
