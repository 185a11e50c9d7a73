//! What this process has: one runtime, and the databases that are open.
//!
//! A fork leaves a child with one thread. Any lock that another thread held stays taken for ever,
//! and the runtime has no workers. So a child never touches what its parent made: a hook counts a
//! generation up, everything made before is recognised by its generation and leaked, and the
//! child makes its own on first use.

use crate::database::Opened;
use crate::error;
use crate::lines;
use crate::shared::SharedPlace;
use crate::stats;
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

/// Threads that drive requests. Two, because a node runs dozens of such processes.
const WORKERS: usize = 2;
/// Ceiling of the threads that do blocking file work.
const MAX_BLOCKING_THREADS: usize = 16;
/// How long the end of the process waits for blocking file work that is under way.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// How many forks lie between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// How many forks lie between the first process and this one.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// This process's, or that of the process it was forked from. Taken only by threads that hold the
/// interpreter lock and never across giving it up; `os.fork` is called with the interpreter lock
/// held, so no other thread can have it at that moment.
static CURRENT: Mutex<Option<&'static Process>> = Mutex::new(None);

/// What one process has. Leaked: a fork may not drop it, and there is one per process.
pub(crate) struct Process {
    generation: u64,
    handle: Handle,
    runtime: Mutex<Option<Runtime>>,
    /// Held for reading while a future is polled, for writing while the runtime goes. `true` once
    /// it is gone: then nothing may be polled.
    over: RwLock<bool>,
    open: Mutex<Vec<Weak<Opened>>>,
    closing: Mutex<Vec<JoinHandle<()>>>,
    /// Handles that openers share, by place. Taken as [`CURRENT`] is.
    shared: Mutex<HashMap<String, Weak<SharedPlace>>>,
}

impl Process {
    /// This process's, made on first use.
    ///
    /// # Errors
    /// Unavailable when threads cannot be started; Closed when the interpreter is exiting.
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

    /// This process's, if there is one.
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

    /// Whether a fork lies between making this and now.
    pub(crate) fn is_stale(&self) -> bool {
        self.generation != GENERATION.load(Ordering::Relaxed)
    }

    /// The runtime's handle.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs `work` on a thread of its own, which must end when nobody waits for it any more.
    ///
    /// # Errors
    /// Unavailable when the thread cannot be started.
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

    /// Has the runtime do `work`, of any number of steps. Whoever polls is woken once, when it is
    /// complete. Dropping it stops the work.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = siltstone::Result<T>> + Send + 'static,
    ) -> Running<T> {
        Running { task: self.handle.spawn(work), goes_on: false }
    }

    /// As [`Process::run`], for work that goes on when nobody waits for it any more: half of it
    /// would help nobody.
    pub(crate) fn run_to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = siltstone::Result<T>> + Send + 'static,
    ) -> Running<T> {
        Running { task: self.handle.spawn(work), goes_on: true }
    }

    /// Whether the runtime is gone.
    pub(crate) fn is_over(&self) -> bool {
        // Recursive: somebody who polls may be waiting for the interpreter lock, held here, and
        // the one who ends the runtime for that somebody.
        *self.over.read_recursive()
    }

    /// Runs `poll` with the runtime held; `None` when it is gone: then no future may be polled.
    pub(crate) fn while_alive<T>(&self, poll: impl FnOnce() -> T) -> Option<T> {
        // Recursive, as in `is_over`.
        let over = self.over.read_recursive();
        if *over { None } else { Some(poll()) }
    }

    /// Notes a database that must be closed at exit.
    pub(crate) fn note_open(&self, opened: Weak<Opened>) {
        let mut open = self.open.lock();
        open.retain(|other| other.strong_count() > 0);
        open.push(opened);
    }

    /// Where the openers of `place` meet that share its handle.
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

    /// Notes a close that runs in the background.
    pub(crate) fn note_closing(&self, task: JoinHandle<()>) {
        let mut closing = self.closing.lock();
        closing.retain(|other| !other.is_finished());
        closing.push(task);
    }

    /// What is open, and what is being closed in the background; both lists are empty after.
    pub(crate) fn take_open(&self) -> (Vec<Weak<Opened>>, Vec<JoinHandle<()>>) {
        (std::mem::take(&mut self.open.lock()), std::mem::take(&mut self.closing.lock()))
    }

    /// Ends the runtime. Whoever waits is told that it is over.
    pub(crate) fn end(&self) {
        *self.over.write() = true;
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_timeout(SHUTDOWN_GRACE);
        }
    }
}

/// The modules by which the interpreter tells which one of several it is: of Python 3.13 and newer,
/// and of those before.
const INTERPRETERS: [&str; 2] = ["_interpreters", "_xxsubinterpreters"];

/// Refuses every interpreter of the process but the first. What this module keeps it keeps for the
/// process; and the end of a second interpreter, which runs hooks of its own, would close what
/// the first has open.
///
/// # Errors
/// ImportError that says so, and the way out.
pub(crate) fn refuse_subinterpreters(py: Python<'_>) -> PyResult<()> {
    let module = INTERPRETERS.iter().find_map(|name| py.import(*name).ok());
    // A Python without such a module has no way to make a second interpreter either.
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

/// Work of [`Process::run`].
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

/// The exception for calls that come after the end.
pub(crate) fn over(py: Python<'_>) -> PyErr {
    error::closed(py, "the interpreter is exiting: what was open has been closed")
}

/// Has the interpreter count forks.
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
