//! Handles panics of tasks, and tasks that are dropped because their runtime has ended: code that
//! depends on such a task gets an error, so that no caller waits for ever (RFC 0003).
//!
//! *Why a panic may be caught here* (what `AssertUnwindSafe` asserts). Locks do not poison, so the
//! locks of the panicked code are free after unwinding, perhaps with a half-made change behind
//! them. State that only that code used is dropped with it. Shared state is one of two kinds:
//! - It belongs to the handle (the tail, the tree, the watermark, the checkpoints), and the handle
//!   is ended. After that the state is only read, for statistics and by running scans, and no write
//!   is acknowledged from it. If the next holder of a lock could continue from a half-made change
//!   before the handle has ended, the panic is caught while the lock is still held (`commit`,
//!   `pins`, `reader`).
//! - It belongs to a compactor or a collector, which continue. Their state must be valid at every
//!   await anyway, because their futures may be dropped there. Between two awaits it is replaced as
//!   a whole.
//!
//! If panics abort, nothing is caught; the process ends, which is safe too.

use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{Error, ErrorKind, Result};
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Log target of lines about tasks.
const TARGET: &str = "siltstone.task";

/// The error of a call on a closed handle.
pub fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database handle is closed; open it again")
}

/// The output of `work`.
///
/// # Errors
/// Internal if it panics, with the message of the panic.
pub async fn caught<T>(name: &'static str, work: impl Future<Output = T>) -> Result<T> {
    let ended = AssertUnwindSafe(work).catch_unwind().await;
    ended.map_err(|panic| panicked(name, &*panic))
}

/// As [`caught`], for synchronous work.
///
/// # Errors
/// As [`caught`].
pub fn caught_now<T>(name: &'static str, work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| panicked(name, &*panic))
}

/// Runs `task` and calls `died` if it panics (Internal) or is dropped before its end (Closed).
pub fn watched(
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
    died: impl FnOnce(&Error) + Send + 'static,
) -> BoxFuture<'static, ()> {
    // Created outside of the future, so that a task that is dropped before its first poll is
    // reported too.
    let mut watch = TaskWatch { died: Some(died) };
    Box::pin(async move {
        let ended = caught(name, task).await;
        if let (Some(died), Err(error)) = (watch.died.take(), ended) {
            died(&error);
        }
    })
}

/// Reports a task that is dropped before its end.
struct TaskWatch<F: FnOnce(&Error)> {
    died: Option<F>,
}

impl<F: FnOnce(&Error)> Drop for TaskWatch<F> {
    fn drop(&mut self) {
        if let Some(died) = self.died.take() {
            died(&Error::new(
                ErrorKind::Closed,
                "the runtime on which the handle was opened has ended; acknowledged writes are \
                 durable; open it again on a runtime that lives as long as the handle",
            ));
        }
    }
}

/// The error that calls of a handle return after it ended because of `died`.
pub fn ends_the_handle(died: &Error) -> Error {
    if died.kind() != ErrorKind::Internal {
        return died.clone();
    }
    let text = "the handle has ended because one of its tasks died; acknowledged writes are \
                durable: open it again, and please report this";
    Error::internal(text).caused_by(died.clone())
}

/// The error of a panic.
fn panicked(name: &'static str, panic: &(dyn Any + Send)) -> Error {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let said = said.unwrap_or("(a message that is no text)");
    let error = Error::internal(format!("a task panicked: {said}")).with("task", name);
    log::error!(target: TARGET, "{error}");
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};

    /// A watched task, and a receiver of its death.
    fn watch(
        task: impl Future<Output = ()> + Send + 'static,
    ) -> (BoxFuture<'static, ()>, Receiver<Error>) {
        let (tell, told) = channel();
        (watched("wal", task, move |error| drop(tell.send(error.clone()))), told)
    }

    #[test]
    fn a_task_that_ends_tells_nothing() {
        let (task, told) = watch(async {});
        assert!(task.now_or_never().is_some());
        assert!(told.recv().is_err());
    }

    #[test]
    fn a_panic_is_told_with_its_text() {
        for text in [true, false] {
            let (task, told) = watch(async move {
                if text {
                    std::panic::panic_any(format!("page {}", 7));
                }
                std::panic::panic_any(7);
            });
            assert!(task.now_or_never().is_some());
            let error = told.recv().unwrap();
            assert_eq!(error.kind(), ErrorKind::Internal);
            let said = if text { "page 7" } else { "no text" };
            assert!(error.to_string().contains(said), "{error}");
            assert!(error.to_string().contains("task: wal"), "{error}");
        }
    }

    #[test]
    fn a_task_that_is_dropped_tells_before_and_after_its_first_step() {
        for steps in 0..2 {
            let (mut task, told) = watch(futures::future::pending());
            for _ in 0..steps {
                assert!((&mut task).now_or_never().is_none());
            }
            drop(task);
            assert_eq!(told.recv().unwrap().kind(), ErrorKind::Closed);
        }
    }

    #[test]
    fn locks_are_free_when_a_panic_is_told() {
        let lock = Arc::new(parking_lot::Mutex::new(()));
        let (inside, outside) = (Arc::clone(&lock), Arc::clone(&lock));
        let (tell, told) = channel();
        let task = watched(
            "wal",
            async move {
                let _locked = inside.lock();
                std::panic::panic_any("x");
            },
            move |_| tell.send(outside.try_lock().is_some()).unwrap(),
        );
        assert!(task.now_or_never().is_some());
        assert!(told.recv().unwrap());
    }
}
