//! How long a request may take: a limit that grows with its length, so that the same bytes can
//! arrive at last, however slow the way is.
//!
//! ```text
//! sending, up to the head of the answer:  timeout + bytes sent / slowest
//! the body of the answer:                 timeout + bytes come so far / slowest
//! ```
//! The client's own limit is one number for every request: one that suits a listing ends a large
//! object on a slow link each time, for ever. Here it is what the store option `timeout` says, for
//! a request without bytes, and bytes buy time. What stands still ends after `timeout` and what its
//! bytes have bought, and is a trouble of the connection like every other.

use crate::io::env::Clock;
use crate::io::store::retry::limit_of;
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

/// Makes clients whose requests are limited.
pub(super) struct LimitedConnector {
    clock: Arc<dyn Clock>,
}

impl LimitedConnector {
    pub(super) fn new(clock: Arc<dyn Clock>) -> LimitedConnector {
        LimitedConnector { clock }
    }
}

impl fmt::Debug for LimitedConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedConnector").finish_non_exhaustive()
    }
}

impl HttpConnector for LimitedConnector {
    /// A client without a limit of its own, under ours.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let base = match options.get_config_value(&ClientConfigKey::Timeout) {
            Some(text) => humantime::parse_duration(&text).map_err(|error| {
                let source = format!("`timeout` is not a duration, as 30s is: {error}").into();
                object_store::Error::Generic { store: "options", source }
            })?,
            // Nobody but the client itself can ask for none.
            None => Duration::MAX,
        };
        let unlimited = options.clone().with_timeout_disabled();
        let client = ReqwestConnector::default().connect(&unlimited)?;
        Ok(HttpClient::new(Limited { client, base, clock: Arc::clone(&self.clock) }))
    }
}

/// A client whose requests are limited.
struct Limited {
    client: HttpClient,
    base: Duration,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited").field("base", &self.base).finish_non_exhaustive()
    }
}

impl HttpService for Limited {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> CallFuture<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        async move {
            let sent = request.body().content_length() as u64;
            let limit = limit_of(self.base, sent);
            let answer = select(self.client.execute(request).boxed(), self.clock.sleep(limit));
            let (head, body) = match answer.await {
                Either::Left((answer, _)) => answer?.into_parts(),
                Either::Right(_) => return Err(too_long(limit)),
            };
            let body = LimitedBody {
                body,
                base: self.base,
                came: 0,
                since: self.clock.monotonic(),
                until: Mutex::new(self.clock.sleep(self.base)),
                clock: Arc::clone(&self.clock),
            };
            Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
        }
        .boxed()
    }
}

/// The shape that the client's own macro gives to an asynchronous method.
type CallFuture<'b> = BoxFuture<'b, Result<HttpResponse, HttpError>>;

/// The body of an answer: what came so far says how long the rest may take.
struct LimitedBody {
    body: HttpResponseBody,
    base: Duration,
    came: u64,
    since: Duration,
    /// Never locked: behind a lock, what can be sent to another thread can be shared too, which a
    /// body has to be.
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
                this.came += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            return Poll::Ready(frame);
        }
        while this.until.get_mut().poll_unpin(context).is_ready() {
            let limit = limit_of(this.base, this.came);
            let took = this.clock.monotonic().saturating_sub(this.since);
            if took >= limit {
                return Poll::Ready(Some(Err(too_long(limit))));
            }
            *this.until.get_mut() = this.clock.sleep(limit - took);
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

/// What a request ends with that took too long.
#[derive(Debug)]
struct TooLong(Duration);

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        write!(f, "the request was not done within {seconds:.1} s; the store option `timeout` ")?;
        f.write_str("gives it more")
    }
}

impl std::error::Error for TooLong {}

fn too_long(limit: Duration) -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, TooLong(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_buy_time() {
        let time_for = |bytes| limit_of(Duration::ZERO, bytes);
        assert_eq!(time_for(0), Duration::ZERO);
        assert_eq!(time_for(8 << 20), Duration::from_secs(64));
        assert_eq!(time_for(190 << 20), Duration::from_secs(1520));
        assert!(time_for(u64::MAX) > Duration::from_secs(1 << 32));
    }
}
