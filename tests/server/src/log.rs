//! The request log: what was asked, when, what it cost.

use crate::call::Kind;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// From 1, in the order of arrival.
    pub number: u64,
    /// Its kind.
    pub kind: Kind,
    /// The key, or the prefix of a listing.
    pub key: String,
    /// The header `Range`.
    pub range: Option<String>,
    /// The status of the answer; 0 without an answer.
    pub status: u16,
    /// Bytes of the body of the request.
    pub bytes_in: u64,
    /// Bytes of the body of the answer.
    pub bytes_out: u64,
    /// When its head had arrived, since the server started.
    pub began: Duration,
    /// When the last byte of the answer left, since the server started.
    pub ended: Duration,
    /// The injected fault.
    pub fault: Option<&'static str>,
}

/// Counts of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindTotals {
    /// Requests.
    pub requests: u64,
    /// Those with a status of 400 or more, or without an answer.
    pub failed: u64,
    /// Bytes of the bodies of requests.
    pub bytes_in: u64,
    /// Bytes of the bodies of answers.
    pub bytes_out: u64,
}

/// Prices in dollars per 1,000 requests, and per GB of answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// GET and HEAD.
    pub read: f64,
    /// PUT, COPY, POST and LIST.
    pub write: f64,
    /// DELETE, and what aborts an upload.
    pub delete: f64,
    /// Each GB (10^9 bytes) that leaves.
    pub gigabyte_out: f64,
}

impl Default for Prices {
    /// S3 Standard in its first regions, read from the same region.
    fn default() -> Prices {
        Prices { read: 0.0004, write: 0.005, delete: 0.0, gigabyte_out: 0.0 }
    }
}

impl Prices {
    /// The price of requests of one kind, in dollars.
    #[must_use]
    pub fn of(&self, kind: Kind, totals: KindTotals) -> f64 {
        let thousand = match kind {
            Kind::Get | Kind::Head => self.read,
            Kind::Delete | Kind::Abort => self.delete,
            _ => self.write,
        };
        let bytes = totals.bytes_out as f64 / 1e9 * self.gigabyte_out;
        totals.requests as f64 / 1000.0 * thousand + bytes
    }
}

#[derive(Debug, Default)]
struct LogState {
    numbers: u64,
    entries: VecDeque<LogEntry>,
    totals: BTreeMap<Kind, KindTotals>,
}

/// The log of a server.
#[derive(Debug)]
pub struct RequestLog {
    started: Instant,
    state: Mutex<LogState>,
    most: usize,
    prices: Prices,
}

impl RequestLog {
    /// A log of the newest `most` requests, and of the totals of all.
    pub(crate) fn new(most: usize, prices: Prices) -> RequestLog {
        RequestLog { started: Instant::now(), state: Mutex::default(), most, prices }
    }

    /// A request has arrived.
    pub(crate) fn begin(&self, kind: Kind, key: &str, range: Option<&str>) -> LogEntry {
        let mut state = self.state.lock();
        state.numbers += 1;
        let began = self.started.elapsed();
        LogEntry {
            number: state.numbers,
            kind,
            key: key.to_owned(),
            range: range.map(str::to_owned),
            status: 0,
            bytes_in: 0,
            bytes_out: 0,
            began,
            ended: began,
            fault: None,
        }
    }

    /// A request has ended.
    pub(crate) fn end(&self, mut entry: LogEntry) {
        entry.ended = self.started.elapsed();
        let mut state = self.state.lock();
        let totals = state.totals.entry(entry.kind).or_default();
        totals.requests += 1;
        totals.failed += u64::from(entry.status == 0 || entry.status >= 400);
        totals.bytes_in += entry.bytes_in;
        totals.bytes_out += entry.bytes_out;
        state.entries.push_back(entry);
        while state.entries.len() > self.most {
            state.entries.pop_front();
        }
    }

    /// The newest requests that have ended, in the order of their ends, and forgets them. Totals
    /// stay.
    pub fn take(&self) -> Vec<LogEntry> {
        self.state.lock().entries.drain(..).collect()
    }

    /// Counts by kind, since the start or the last [`RequestLog::clear`].
    pub fn totals(&self) -> BTreeMap<Kind, KindTotals> {
        self.state.lock().totals.clone()
    }

    /// The number of requests of one kind.
    pub fn count(&self, kind: Kind) -> u64 {
        self.state.lock().totals.get(&kind).map_or(0, |totals| totals.requests)
    }

    /// The price of all requests, in dollars.
    pub fn price(&self) -> f64 {
        self.totals().into_iter().map(|(kind, totals)| self.prices.of(kind, totals)).sum()
    }

    /// Forgets all requests and totals.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.entries.clear();
        state.totals.clear();
    }

    /// A table of the totals, with prices.
    pub fn table(&self) -> String {
        let mut table = format!(
            "{:<14}{:>10}{:>8}{:>16}{:>16}{:>12}\n",
            "kind", "requests", "failed", "bytes in", "bytes out", "dollars"
        );
        for (kind, totals) in self.totals() {
            let price = self.prices.of(kind, totals);
            let KindTotals { requests, failed, bytes_in, bytes_out } = totals;
            table.push_str(&format!(
                "{:<14}{requests:>10}{failed:>8}{bytes_in:>16}{bytes_out:>16}{price:>12.6}\n",
                kind.name()
            ));
        }
        table + &format!("{:<14}{:>62.6}\n", "total", self.price())
    }
}

/// The length of the longest chain of requests that began after the end of the one before: the
/// round trips that no parallelism hides.
#[must_use]
pub fn round_trips(entries: &[LogEntry]) -> usize {
    let mut by_end: Vec<&LogEntry> = entries.iter().collect();
    by_end.sort_by_key(|entry| entry.ended);
    let mut chain = 0;
    let mut last = None;
    for entry in by_end {
        if last.is_none_or(|last| entry.began >= last) {
            chain += 1;
            last = Some(entry.ended);
        }
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_the_longest_chain() {
        let log = RequestLog::new(10, Prices::default());
        let entry = |began, ended| LogEntry {
            began: Duration::from_millis(began),
            ended: Duration::from_millis(ended),
            ..log.begin(Kind::Get, "a", None)
        };
        assert_eq!(round_trips(&[]), 0);
        assert_eq!(round_trips(&[entry(0, 25), entry(0, 26), entry(1, 25)]), 1);
        assert_eq!(round_trips(&[entry(0, 25), entry(26, 50), entry(10, 40), entry(51, 60)]), 3);
    }

    #[test]
    fn prices_are_per_thousand() {
        let log = RequestLog::new(2, Prices { gigabyte_out: 0.09, ..Prices::default() });
        for _ in 0..1000 {
            let entry = log.begin(Kind::Get, "a", None);
            log.end(LogEntry { status: 200, bytes_out: 1_000_000, ..entry });
            let entry = log.begin(Kind::Put, "a", None);
            log.end(LogEntry { status: 503, ..entry });
        }
        assert!((log.price() - (0.0004 + 0.005 + 0.09)).abs() < 1e-9, "{}", log.price());
        assert_eq!(log.take().len(), 2);
        assert_eq!(log.totals()[&Kind::Put].failed, 1000);
        assert!(log.table().contains("put"), "{}", log.table());
        log.clear();
        assert_eq!(log.count(Kind::Get), 0);
    }
}
