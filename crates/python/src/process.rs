//! State of this process: one runtime and the list of open databases.
//!
//! A fork leaves the child with one thread. A lock held by another thread stays locked for ever,
//! and the runtime has no workers. So a child must never touch objects of its parent: a fork hook
//! increments a generation, objects of an earlier generation are recognised and leaked, and the
//! child creates its own on first use.

use crate::database::Opened;
use crate::error;
use crate::lines;
use crate::shared::SharedPlace;
use crate::stats;
use futures::future::{BoxFuture, Shared, join_all};
use parking_lot::{Mutex, RwLock};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::{Error, ErrorKind};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// Threads that drive requests. Two, because one machine may run dozens of such processes.
const WORKERS: usize = 2;
/// Maximum number of threads for blocking file operations.
const MAX_BLOCKING_THREADS: usize = 16;
/// How long the exit of the process waits for running file operations.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Number of forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Number of forks between the first process and this one.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// The state of this process, or of the process that it was forked from. The lock is taken only by
/// threads that hold the interpreter lock, and is released before the interpreter lock is released.
/// `os.fork` is called with the interpreter lock held, so no other thread can hold this lock at a
/// fork.
static CURRENT: Mutex<Option<&'static Process>> = Mutex::new(None);

/// A close that runs as a task. It is over when the future completes.
pub(crate) type BackgroundClose = Shared<BoxFuture<'static, ()>>;

/// The state of one process. Leaked, because a forked child may not drop it, and there is only one
/// per process.
pub(crate) struct Process {
    generation: u64,
    handle: Handle,
    runtime: Mutex<Option<Runtime>>,
    /// Locked for reading while a future is polled, for writing while the runtime ends. `true` once
    /// the runtime has ended: after that no future may be polled.
    over: RwLock<bool>,
    open: Mutex<Vec<Weak<Opened>>>,
    /// Closes that run in the background, by the key of their place.
    closing: Mutex<Vec<(String, BackgroundClose)>>,
    /// Shared handles, by location. Locked by the same rule as [`CURRENT`].
    shared: Mutex<HashMap<String, Weak<SharedPlace>>>,
}

impl Process {
    /// The state of this process, created on first use.
    ///
    /// # Errors
    /// Unavailable if threads cannot be started; Closed if the interpreter is exiting.
    pub(crate) fn current(py: Python<'_>) -> PyResult<&'static Process> {
        let mut current = CURRENT.lock();
        if let Some(process) = *current
            && !process.is_stale()
        {
            if process.is_over() {
                return Err(over(py));
            }
            return Ok(process);
        }
        let process = Process::start().map_err(|cause| {
            let text = "the runtime's threads could not be started";
            error::exception(py, &Error::new(ErrorKind::Unavailable, text).caused_by(cause))
        })?;
        let process: &'static Process = Box::leak(Box::new(process));
        *current = Some(process);
        drop(current);
        stats::import_classes(py)?;
        lines::start(py);
        Ok(process)
    }

    /// The state of this process, if it has been created.
    pub(crate) fn existing(_py: Python<'_>) -> Option<&'static Process> {
        CURRENT.lock().filter(|process| !process.is_stale())
    }

    fn start() -> std::io::Result<Process> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .thread_name("siltstone-io")
            .enable_all()
            .build()?;
        Ok(Process {
            generation: GENERATION.load(Ordering::Relaxed),
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            over: RwLock::new(false),
            open: Mutex::default(),
            closing: Mutex::default(),
            shared: Mutex::default(),
        })
    }

    /// Whether the process has forked since this state was created.
    pub(crate) fn is_stale(&self) -> bool {
        self.generation != GENERATION.load(Ordering::Relaxed)
    }

    /// The runtime's handle.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs `work` on its own thread. `work` must end when its result is no longer awaited.
    ///
    /// # Errors
    /// Unavailable if the thread cannot be started.
    pub(crate) fn start_thread(
        &self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> siltstone::Result<()> {
        let builder = std::thread::Builder::new().name(name.to_owned());
        builder.spawn(work).map(drop).map_err(|cause| {
            Error::new(ErrorKind::Unavailable, "a thread could not be started").caused_by(cause)
        })
    }

    /// Runs `work`, which may have any number of steps, on the runtime. The poller is woken once,
    /// when `work` is complete. Dropping the returned future stops `work`.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = siltstone::Result<T>> + Send + 'static,
    ) -> Running<T> {
        Running { task: self.handle.spawn(work), goes_on: false }
    }

    /// As [`Process::run`], but `work` continues if the returned future is dropped, because it must
    /// not stop half-way.
    pub(crate) fn run_to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = siltstone::Result<T>> + Send + 'static,
    ) -> Running<T> {
        Running { task: self.handle.spawn(work), goes_on: true }
    }

    /// Whether the runtime has ended.
    pub(crate) fn is_over(&self) -> bool {
        // Recursive: another thread may hold the read lock in a poll and wait for the interpreter
        // lock, which this thread holds, while a third thread waits for the write lock to end the
        // runtime. A plain read would queue behind that writer and deadlock.
        *self.over.read_recursive()
    }

    /// Runs `poll` while the runtime is kept alive; `None` if it has ended: after that no future
    /// may be polled.
    pub(crate) fn while_alive<T>(&self, poll: impl FnOnce() -> T) -> Option<T> {
        // Recursive, as in `is_over`.
        let over = self.over.read_recursive();
        if *over { None } else { Some(poll()) }
    }

    /// Registers a database that must be closed at exit.
    pub(crate) fn note_open(&self, opened: Weak<Opened>) {
        let mut open = self.open.lock();
        open.retain(|other| other.strong_count() > 0);
        open.push(opened);
    }

    /// The registry entry through which openers of `place` share one handle.
    pub(crate) fn meeting(&self, place: String) -> Arc<SharedPlace> {
        let mut shared = self.shared.lock();
        if let Some(meeting) = shared.get(&place).and_then(Weak::upgrade) {
            return meeting;
        }
        shared.retain(|_, meeting| meeting.strong_count() > 0);
        let meeting = Arc::new(SharedPlace::default());
        shared.insert(place, Arc::downgrade(&meeting));
        meeting
    }

    /// Registers the background close of a handle that was dropped while open. `key` is that of its
    /// place.
    pub(crate) fn note_closing(&self, key: String, close: BackgroundClose) {
        let mut closing = self.closing.lock();
        closing.retain(|(_, other)| other.peek().is_none());
        closing.push((key, close));
    }

    /// Waits until the handles at `key` that were dropped while open are closed. Opening the
    /// database earlier would fence them, and lose writes that they have accepted.
    pub(crate) async fn await_closing(&self, key: &str) {
        let closing = self.closing.lock().clone();
        join_all(closing.into_iter().filter(|(other, _)| other == key).map(|(_, close)| close))
            .await;
    }

    /// Takes the open databases and the closes that run in the background; both lists are empty
    /// afterwards.
    pub(crate) fn take_open(&self) -> (Vec<Weak<Opened>>, Vec<BackgroundClose>) {
        let closing = std::mem::take(&mut *self.closing.lock());
        let closing = closing.into_iter().map(|(_, close)| close).collect();
        (std::mem::take(&mut self.open.lock()), closing)
    }

    /// Ends the runtime. Waiting callers receive an error that says so.
    pub(crate) fn end(&self) {
        *self.over.write() = true;
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_timeout(SHUTDOWN_GRACE);
        }
    }
}

/// The modules that identify the current interpreter: of Python 3.13 and newer, and of older
/// versions.
const INTERPRETERS: [&str; 2] = ["_interpreters", "_xxsubinterpreters"];

/// Refuses every interpreter of the process except the first. The state of this module belongs to
/// the whole process, and the exit hook of a second interpreter would close the handles of the
/// first.
///
/// # Errors
/// ImportError with the reason and the alternative.
pub(crate) fn refuse_subinterpreters(py: Python<'_>) -> PyResult<()> {
    let module = INTERPRETERS.iter().find_map(|name| py.import(*name).ok());
    // A Python without such a module cannot create a second interpreter either.
    let Some(module) = module else { return Ok(()) };
    let current = module.call_method0("get_current")?;
    if current.eq(module.call_method0("get_main")?)? {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "siltstone cannot be imported in a subinterpreter: its threads and open databases belong \
         to the whole process, and a second interpreter that ends would close the first one's; \
         import it in the main interpreter, or use multiprocessing (under mod_wsgi: \
         WSGIApplicationGroup %{GLOBAL})",
    ))
}

/// A task started by [`Process::run`].
pub(crate) struct Running<T> {
    task: JoinHandle<siltstone::Result<T>>,
    goes_on: bool,
}

impl<T> Future for Running<T> {
    type Output = siltstone::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.task).poll(context).map(|ended| {
            ended.unwrap_or_else(|died| {
                Err(Error::internal("a task ended without an answer").caused_by(died))
            })
        })
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        if !self.goes_on {
            self.task.abort();
        }
    }
}

/// The exception for calls after the runtime has ended.
pub(crate) fn over(py: Python<'_>) -> PyErr {
    error::closed(py, "the interpreter is exiting: what was open has been closed")
}

/// Registers the fork hook with the interpreter.
pub(crate) fn watch_forks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let hooks = PyDict::new(py);
    hooks.set_item("after_in_child", wrap_pyfunction!(after_fork, module)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}

/// Called by the interpreter in a forked child.
#[pyfunction]
fn after_fork() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
