//! Waiting for the engine: without the interpreter, and looking for signals.

use crate::error::Raise;
use crate::process::{Process, over};
use pyo3::prelude::*;
use siltstone::{Progress, Result};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How often a wait looks for signals: Ctrl-C must end it within a second.
pub(crate) const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Wakes the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for `work` with the interpreter given up.
///
/// # Errors
/// Those of `work`; what a signal handler raised (KeyboardInterrupt), and Closed once the runtime
/// has ended: then `work` is dropped.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    process: &'static Process,
    work: impl Future<Output = Result<T>> + Send,
) -> PyResult<T> {
    wait_telling(py, process, work, || Ok(()))
}

/// As [`wait`]; `tell` is called a few times a second, as long as it takes.
///
/// # Errors
/// As [`wait`]; those of `tell`, by which `work` is dropped.
pub(crate) fn wait_telling<T: Send>(
    py: Python<'_>,
    process: &'static Process,
    work: impl Future<Output = Result<T>> + Send,
    tell: impl Fn() -> PyResult<()>,
) -> PyResult<T> {
    let mut work = pin!(work);
    loop {
        match py.detach(|| poll_for(process, work.as_mut(), SIGNAL_INTERVAL)) {
            PollOutcome::Done(done) => return done.raise(py),
            PollOutcome::Later => py.check_signals().and_then(|()| tell())?,
            PollOutcome::Over => return Err(over(py)),
        }
    }
}

/// As [`wait`]; `told` is called with how far `work` is, a few times a second.
///
/// # Errors
/// As [`wait`]; those of `told`.
pub(crate) fn wait_watched<T: Send>(
    py: Python<'_>,
    process: &'static Process,
    work: impl Future<Output = Result<T>> + Send,
    (progress, told): (&Progress, Option<&Bound<'_, PyAny>>),
) -> PyResult<T> {
    let tell = || told.map_or(Ok(()), |told| told.call1(progress.so_far()).map(drop));
    wait_telling(py, process, work, tell)
}

/// What polling for a while came to.
pub(crate) enum PollOutcome<T> {
    /// The output.
    Done(T),
    /// Nothing yet.
    Later,
    /// The runtime has ended: there will be nothing.
    Over,
}

/// Polls `work` on this thread until it is done or `limit` has passed.
pub(crate) fn poll_for<F: Future + ?Sized>(
    process: &Process,
    mut work: Pin<&mut F>,
    limit: Duration,
) -> PollOutcome<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let until = now() + limit;
    loop {
        let polled = process.while_alive(|| {
            let _entered = process.handle().enter();
            work.as_mut().poll(&mut context)
        });
        match polled {
            Some(Poll::Ready(done)) => return PollOutcome::Done(done),
            Some(Poll::Pending) => {}
            None => return PollOutcome::Over,
        }
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            return PollOutcome::Later;
        }
        std::thread::park_timeout(left);
    }
}

/// A few times a second, for loops that hardly ever wait.
pub(crate) struct PacedSignals(Instant);

impl PacedSignals {
    pub(crate) fn new() -> PacedSignals {
        PacedSignals(now())
    }

    /// Whether it is time again.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = now().saturating_duration_since(self.0) >= SIGNAL_INTERVAL;
        if due {
            self.0 = now();
        }
        due
    }
}

#[expect(clippy::disallowed_methods, reason = "paces signal checks of a real thread, no logic")]
fn now() -> Instant {
    Instant::now()
}
