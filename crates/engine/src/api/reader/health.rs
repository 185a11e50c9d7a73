//! How a following reader does: the age of its state, the errors of its looks, and what ends
//! the reader.
//!
//! An error that time does not cure ends the reader once two looks in a row have met one: reads
//! raise it from then on, since what they would serve is not the database any more. Other errors
//! are told by `stats()`, and the next look tries again.

use super::TARGET;
use crate::io::env::Env;
use crate::io::supervise::{closed, ends_the_handle};
use parking_lot::Mutex;
use siltstone_base::{Error, ErrorKind, Result, UnixMillis};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Looks in a row that have to meet a definitive error before it ends the reader: bytes that were
/// damaged on the way once, or a permission that is set up just now, do not.
const LOOKS_BEFORE_THE_END: u32 = 2;

/// Whether a reader goes on, and how its looks have ended.
pub(super) struct ReaderHealth {
    closed: AtomicBool,
    /// Why the reader has ended by itself.
    died: OnceLock<Error>,
    failures: AtomicU64,
    last: Mutex<LastLooks>,
}

struct LastLooks {
    /// When the last look succeeded, by the clock that runs on while the machine is suspended, and
    /// by the wall clock.
    succeeded: Duration,
    succeeded_at: UnixMillis,
    /// What the last look failed with.
    error: Option<Error>,
    /// Looks in a row that met a definitive error.
    definitive: u32,
}

impl ReaderHealth {
    /// A reader that has begun just now.
    pub(super) fn new(env: &Env) -> ReaderHealth {
        let last = LastLooks {
            succeeded: env.clock.elapsed(),
            succeeded_at: env.clock.now(),
            error: None,
            definitive: 0,
        };
        ReaderHealth {
            closed: AtomicBool::new(false),
            died: OnceLock::new(),
            failures: AtomicU64::new(0),
            last: Mutex::new(last),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// # Errors
    /// Why the reader has ended.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.is_closed() {
            return Err(self.ended().unwrap_or_else(closed));
        }
        Ok(())
    }

    /// Why the reader has ended by itself.
    pub(super) fn ended(&self) -> Option<Error> {
        self.died.get().cloned()
    }

    /// Ends the reader because of what died.
    pub(super) fn die(&self, died: &Error) {
        self.died.get_or_init(|| ends_the_handle(died));
        self.close();
    }

    /// Notes how a look ended, and ends the reader where that is definitive.
    pub(super) fn note(&self, env: &Env, looked: &Result<()>) {
        let mut last = self.last.lock();
        let Err(error) = looked else {
            (last.succeeded, last.succeeded_at) = (env.clock.elapsed(), env.clock.now());
            (last.error, last.definitive) = (None, 0);
            return;
        };
        self.failures.fetch_add(1, Ordering::Relaxed);
        last.error = Some(error.clone());
        last.definitive += u32::from(is_definitive(error.kind()));
        let ends = last.definitive >= LOOKS_BEFORE_THE_END && is_definitive(error.kind());
        drop(last);
        if ends {
            self.end(error);
        }
    }

    /// Ends the reader because of what a look has met.
    pub(super) fn end(&self, error: &Error) {
        if !self.is_closed() {
            let (kind, text) = (error.kind().name(), error.to_string());
            log::error!(target: TARGET, "event=reader_ends kind={kind} error={text:?}");
            self.die(&error.clone().with("the reader has ended", "open another one"));
        }
    }

    /// Whether the next look decides if the reader ends.
    pub(super) fn is_doubtful(&self) -> bool {
        self.last.lock().definitive > 0
    }

    /// What the last look failed with; `None` where it succeeded.
    pub(super) fn error(&self) -> Option<Error> {
        self.last.lock().error.clone()
    }

    /// Looks that failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// When the last look succeeded, and how long that is ago.
    pub(super) fn last_success(&self, env: &Env) -> (UnixMillis, Duration) {
        let last = self.last.lock();
        (last.succeeded_at, env.clock.elapsed().saturating_sub(last.succeeded))
    }
}

/// Whether no later look can be expected to end better, unless somebody mends what the error names:
/// a log with a hole, a database that is gone or another one, a permission that is refused.
fn is_definitive(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::Denied | ErrorKind::Unsupported
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::store::memory::MemoryStore;
    use crate::io::task::tokio_env;

    #[tokio::test]
    async fn two_definitive_errors_in_a_row_end_a_reader() {
        let env = tokio_env(tokio::runtime::Handle::current(), MemoryStore::unnamed());
        let (hole, busy) = (Err(Error::corruption("a hole")), Err(Error::unavailable("busy")));
        let health = ReaderHealth::new(&env);
        for looked in [&hole, &busy, &busy, &Ok(()), &hole] {
            health.note(&env, looked);
            assert!(health.check_open().is_ok());
        }
        assert_eq!(health.failures(), 4);
        health.note(&env, &hole);
        let error = health.check_open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(health.ended().is_some() && error.to_string().contains("a hole"), "{error}");
    }
}
