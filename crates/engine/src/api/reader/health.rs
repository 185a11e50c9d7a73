//! Health of a following reader: the age of its state, the errors of its refreshes, and the error
//! that ends the reader.
//!
//! A permanent error ends the reader once two consecutive refreshes have met one. Every later read
//! returns it, since the reader must never serve data that is no longer the database. `stats()`
//! reports other errors, and the next refresh retries.

use super::TARGET;
use parking_lot::Mutex;
use siltstone_base::{Error, ErrorKind, Result, UnixMillis};
use siltstone_store::env::Env;
use siltstone_store::supervise::{closed, ends_the_handle};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Number of consecutive refreshes that must meet a permanent error before it ends the reader. A
/// single error may come from bytes damaged in transfer, or a permission that is just being set
/// up.
const LOOKS_BEFORE_THE_END: u32 = 2;

/// Whether a reader has ended, and the results of its refreshes.
pub(super) struct ReaderHealth {
    closed: AtomicBool,
    /// Why the reader has ended by itself.
    died: OnceLock<Error>,
    failures: AtomicU64,
    last: Mutex<LastLooks>,
}

struct LastLooks {
    /// When the last refresh succeeded, by the clock that continues while the machine is suspended,
    /// and by the wall clock.
    succeeded: Duration,
    succeeded_at: UnixMillis,
    /// The error of the last refresh.
    error: Option<Error>,
    /// Number of consecutive refreshes that met a permanent error.
    definitive: u32,
}

impl ReaderHealth {
    /// The health of a new reader.
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

    /// Records the result of a refresh, and ends the reader after repeated permanent errors.
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

    /// Ends the reader with the error of a refresh.
    pub(super) fn end(&self, error: &Error) {
        if !self.is_closed() {
            let (kind, text) = (error.kind().name(), error.to_string());
            log::error!(target: TARGET, "event=reader_ends kind={kind} error={text:?}");
            self.die(&error.clone().with("the reader has ended", "open another one"));
        }
    }

    /// Whether the reader ends if the next refresh meets a permanent error.
    pub(super) fn is_doubtful(&self) -> bool {
        self.last.lock().definitive > 0
    }

    /// The error of the last refresh; `None` if it succeeded.
    pub(super) fn error(&self) -> Option<Error> {
        self.last.lock().error.clone()
    }

    /// Number of failed refreshes.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The time of the last successful refresh, and the time since then.
    pub(super) fn last_success(&self, env: &Env) -> (UnixMillis, Duration) {
        let last = self.last.lock();
        (last.succeeded_at, env.clock.elapsed().saturating_sub(last.succeeded))
    }
}

/// Whether the error is permanent: a refresh cannot succeed until its cause is repaired. Examples
/// are a gap in the log, a database that was deleted or replaced, and a refused permission.
fn is_definitive(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::Denied | ErrorKind::Unsupported
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_store::memory::MemoryStore;
    use siltstone_store::task::tokio_env;

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
