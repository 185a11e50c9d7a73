//! Counts requests as clients send them, including retries below the seam and refused requests.
//! These are the requests that a store bills; [`Requests`](crate::counting::Requests) shows them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The billing class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentKind {
    Get,
    Put,
    List,
    Delete,
    /// A part of an upload.
    Chunk,
}

impl SentKind {
    /// The class of an HTTP request, from its method and the query of its URL, for S3, GCS and
    /// Azure.
    pub(crate) fn of(method: &str, query: &str) -> SentKind {
        let has = |name: &str| {
            query.split('&').any(|part| part.split('=').next().is_some_and(|word| word == name))
        };
        let comp = query.split('&').find_map(|part| part.strip_prefix("comp="));
        match method {
            "GET" if has("list-type") || comp == Some("list") => SentKind::List,
            "GET" | "HEAD" => SentKind::Get,
            "PUT" if has("partNumber") || comp == Some("block") => SentKind::Chunk,
            "DELETE" => SentKind::Delete,
            "POST" if has("delete") || comp == Some("batch") => SentKind::Delete,
            _ => SentKind::Put,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentOutcome {
    /// With an answer. A missing object or a condition that does not hold is an answer.
    Answered,
    /// With a permanent refusal.
    Failed,
    /// With a failure that a retry may cure.
    Transient,
}

impl SentOutcome {
    /// The outcome of an HTTP status.
    pub(crate) fn of(status: u16) -> SentOutcome {
        match status {
            404 | 409 | 412 => SentOutcome::Answered,
            408 | 429 | 500.. => SentOutcome::Transient,
            400.. => SentOutcome::Failed,
            _ => SentOutcome::Answered,
        }
    }
}

/// Counts of the requests that the clients of one store have sent.
#[derive(Debug, Default)]
pub struct SentRequests {
    kinds: [AtomicU64; 5],
    failed: AtomicU64,
    transient: AtomicU64,
    bytes_came: AtomicU64,
    hedged: AtomicU64,
}

/// [`SentRequests`] at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentTotals {
    kinds: [u64; 5],
    pub(crate) failed: u64,
    pub(crate) transient: u64,
    pub(crate) hedged: u64,
}

impl SentRequests {
    /// Counts a request that is sent.
    pub(crate) fn sends(&self, kind: SentKind) {
        if let Some(count) = self.kinds.get(kind as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Counts requests that were sent a second time because their answer was late.
    pub(crate) fn hedges(&self, requests: u64) {
        self.hedged.fetch_add(requests, Relaxed);
    }

    /// Counts a piece of an answer.
    pub(crate) fn comes(&self, bytes: u64) {
        self.bytes_came.fetch_add(bytes, Relaxed);
    }

    /// Bytes of answers, including those in flight.
    pub(crate) fn bytes_came(&self) -> u64 {
        self.bytes_came.load(Relaxed)
    }

    /// Counts the end of a request.
    pub(crate) fn ended(&self, outcome: SentOutcome) {
        self.failed.fetch_add(u64::from(outcome != SentOutcome::Answered), Relaxed);
        self.transient.fetch_add(u64::from(outcome == SentOutcome::Transient), Relaxed);
    }

    pub(crate) fn totals(&self) -> SentTotals {
        SentTotals {
            kinds: self.kinds.each_ref().map(|count| count.load(Relaxed)),
            failed: self.failed.load(Relaxed),
            transient: self.transient.load(Relaxed),
            hedged: self.hedged.load(Relaxed),
        }
    }
}

impl SentTotals {
    pub(crate) fn of(&self, kind: SentKind) -> u64 {
        self.kinds.get(kind as usize).copied().unwrap_or_default()
    }

    /// Adds the difference of `now` and `before` to `self`.
    pub(crate) fn plus_since(mut self, now: &SentTotals, before: &SentTotals) -> SentTotals {
        let grown = now.kinds.iter().zip(&before.kinds).map(|(now, before)| now - before);
        self.kinds.iter_mut().zip(grown).for_each(|(sum, grown)| *sum += grown);
        self.failed += now.failed - before.failed;
        self.transient += now.transient - before.transient;
        self.hedged += now.hedged - before.hedged;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_every_provider_are_told_apart() {
        for (method, query, kind) in [
            ("GET", "", SentKind::Get),
            ("HEAD", "", SentKind::Get),
            ("GET", "list-type=2&prefix=db%2Fwal%2F", SentKind::List),
            ("GET", "restype=container&comp=list&prefix=x", SentKind::List),
            ("PUT", "", SentKind::Put),
            ("PUT", "partNumber=1&uploadId=x", SentKind::Chunk),
            ("PUT", "comp=block&blockid=x", SentKind::Chunk),
            ("PUT", "comp=blocklist", SentKind::Put),
            ("POST", "uploads=", SentKind::Put),
            ("POST", "uploadId=x", SentKind::Put),
            ("POST", "delete", SentKind::Delete),
            ("POST", "restype=container&comp=batch", SentKind::Delete),
            ("DELETE", "", SentKind::Delete),
        ] {
            assert_eq!(SentKind::of(method, query), kind, "{method} {query}");
        }
    }

    #[test]
    fn a_missing_object_is_an_answer() {
        let outcomes = [200, 206, 304, 404, 412, 400, 403, 416, 429, 500, 503].map(SentOutcome::of);
        use SentOutcome::{Answered, Failed, Transient};
        let expected = [Answered; 5].into_iter().chain([Failed; 3]).chain([Transient; 3]);
        assert!(outcomes.into_iter().eq(expected), "{outcomes:?}");
    }
}
