//! `Port`: notifies one event loop of completed calls.
//!
//! ```text
//!   engine thread                        event loop's thread
//!   wake(ticket)                         drain(), a reader of the loop
//!     inbox.woken <- id                    receive what the socket has
//!     one byte, if none is under way ----> poll what was woken, complete its asyncio futures
//! ```
//!
//! An engine thread never takes the interpreter lock: it records an id and writes at most one byte.
//! While that byte is in the socket, or the loop handles the ids that came with it, no thread
//! writes another byte: calls that complete together wake the loop once.

use crate::aio::pending::{Finish, Waits};
use crate::error;
use crate::held::Held;
use crate::process::Process;
use parking_lot::Mutex;
use pyo3::exceptions::PyNotImplementedError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyWeakrefReference;
use siltstone::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Ids that engine threads leave for the loop.
struct Inbox {
    mail: Mutex<Mail>,
    sender: UnixStream,
}

#[derive(Default)]
struct Mail {
    /// Ids of waits that must be polled.
    woken: Vec<u64>,
    /// A byte is in the socket, or the loop is handling the ids.
    signalled: bool,
}

impl Inbox {
    /// The ids recorded since the last call. If there are none, the next wake writes a byte again.
    fn take(&self) -> Vec<u64> {
        let mut mail = self.mail.lock();
        if mail.woken.is_empty() {
            mail.signalled = false;
        }
        std::mem::take(&mut mail.woken)
    }
}

/// The waker of one wait.
struct WaitTicket {
    id: u64,
    inbox: Arc<Inbox>,
    /// Cleared when the wait is over: then waking it has no effect.
    live: AtomicBool,
}

impl Wake for WaitTicket {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut mail = self.inbox.mail.lock();
        if !self.live.load(Ordering::Relaxed) {
            return;
        }
        mail.woken.push(self.id);
        if !std::mem::replace(&mut mail.signalled, true) {
            // The write fails only if the port was closed with its loop: then no reader is left.
            let _ = (&self.inbox.sender).write(&[0]);
        }
    }
}

/// A wait of a task of the loop.
enum Entry {
    Waiting(PortWait),
    /// Complete, but the result was not taken by the waiting task yet.
    Done(Held<Result<Finish>>),
}

struct PortWait {
    waits: Held<Waits>,
    ticket: Arc<WaitTicket>,
    future: Py<PyAny>,
}

#[derive(Default)]
struct Table {
    next_id: u64,
    entries: BTreeMap<u64, Entry>,
}

/// The result of polling a wait.
enum PortPoll {
    Done(Result<Finish>),
    Pending(PortWait),
}

/// The result of beginning a wait.
pub(crate) enum WaitStart {
    /// It was complete at the first poll.
    Done(Result<Finish>),
    /// The asyncio future that completes with it, and the id under which the result can be taken.
    Waiting(u64, Py<PyAny>),
}

/// The port of one event loop. The loop owns it through a reader callback, and no other object
/// references it for long: it is dropped when the loop is closed.
#[pyclass(frozen, weakref, module = "siltstone.aio")]
pub(crate) struct Port {
    process: &'static Process,
    inbox: Arc<Inbox>,
    receiver: UnixStream,
    table: Mutex<Table>,
}

impl Port {
    /// The running loop and its port.
    ///
    /// # Errors
    /// RuntimeError if no loop is running; Unsupported if the loop cannot watch file descriptors.
    pub(crate) fn of_running_loop<'py>(
        py: Python<'py>,
        process: &'static Process,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, Port>)> {
        static RUNNING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static PORTS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let running = RUNNING.get_or_try_init(py, || {
            py.import("asyncio")?.getattr("get_running_loop").map(Bound::unbind)
        })?;
        // Maps loops to weak references of ports. A strong reference would keep the loop alive
        // through the futures in the table of the port.
        let ports = PORTS.get_or_try_init(py, || {
            py.import("weakref")?.getattr("WeakKeyDictionary")?.call0().map(Bound::unbind)
        })?;
        let (running, ports) = (running.bind(py).call0()?, ports.bind(py));
        let known = ports.call_method1(intern!(py, "get"), (&running,))?;
        if !known.is_none()
            && let Ok(port) = known.call0()?.cast_into::<Port>()
            && !port.get().process.is_stale()
        {
            return Ok((running, port));
        }
        let port = Port::listen(py, process, &running)?;
        ports.set_item(&running, PyWeakrefReference::new(&port)?)?;
        Ok((running, port))
    }

    /// Registers a new port with `running`.
    fn listen<'py>(
        py: Python<'py>,
        process: &'static Process,
        running: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Port>> {
        let (sender, receiver) = UnixStream::pair()?;
        sender.set_nonblocking(true)?;
        receiver.set_nonblocking(true)?;
        let descriptor = receiver.as_raw_fd();
        let inbox = Arc::new(Inbox { mail: Mutex::default(), sender });
        let port = Bound::new(py, Port { process, inbox, receiver, table: Mutex::default() })?;
        // In an empty context: the callback lives as long as the loop, and must not keep the
        // context variables of the task that happened to come here first.
        let context = py.import("contextvars")?.getattr("Context")?.call0()?;
        let (add, drain) = (running.getattr("add_reader")?, port.getattr("_drain")?);
        match context.call_method1("run", (add, descriptor, drain)) {
            Err(missing) if missing.is_instance_of::<PyNotImplementedError>(py) => {
                let text = "this event loop watches no file descriptors (add_reader), which \
                     siltstone.aio needs";
                Err(error::exception(py, &Error::unsupported(text)))
            }
            listening => listening.map(|_| port),
        }
    }

    /// Begins a wait: polls once, and stores it in the table if it is not complete.
    pub(crate) fn begin(
        &self,
        py: Python<'_>,
        running: &Bound<'_, PyAny>,
        waits: Waits,
    ) -> PyResult<WaitStart> {
        let future = running.call_method0(intern!(py, "create_future"))?.unbind();
        let mut table = self.table.lock();
        let id = table.next_id;
        table.next_id += 1;
        drop(table);
        let ticket = WaitTicket { id, inbox: Arc::clone(&self.inbox), live: AtomicBool::new(true) };
        let (waits, ticket) = (Held::new(self.process, waits), Arc::new(ticket));
        match self.poll(py, PortWait { waits, ticket, future })? {
            PortPoll::Done(outcome) => Ok(WaitStart::Done(outcome)),
            PortPoll::Pending(waiting) => {
                let future = waiting.future.clone_ref(py);
                self.table.lock().entries.insert(id, Entry::Waiting(waiting));
                Ok(WaitStart::Waiting(id, future))
            }
        }
    }

    /// Takes the result of a complete wait.
    pub(crate) fn take(&self, py: Python<'_>, id: u64) -> PyResult<Option<Result<Finish>>> {
        let entry = self.table.lock().entries.remove(&id);
        match entry {
            Some(Entry::Done(outcome)) => outcome.into_inner(py).map(Some),
            _ => Ok(None),
        }
    }

    /// Drops a wait in any state.
    pub(crate) fn forget(&self, id: u64) {
        // Dropped after the lock is released: the entry may be the last owner of a value.
        let entry = self.table.lock().entries.remove(&id);
        if let Some(Entry::Waiting(waiting)) = &entry {
            waiting.ticket.live.store(false, Ordering::Relaxed);
        }
        drop(entry);
    }

    fn poll(&self, py: Python<'_>, mut waiting: PortWait) -> PyResult<PortPoll> {
        let waker = Waker::from(Arc::clone(&waiting.ticket));
        let waits = waiting.waits.get_mut(py)?;
        let polled = self.process.while_alive(|| {
            let _entered = self.process.handle().enter();
            waits.work.as_mut().poll(&mut Context::from_waker(&waker))
        });
        let outcome = match polled {
            Some(Poll::Pending) => return Ok(PortPoll::Pending(waiting)),
            Some(Poll::Ready(outcome)) => outcome,
            None => {
                let text = "the interpreter is exiting: what was open has been closed";
                Err(Error::new(ErrorKind::Closed, text))
            }
        };
        waiting.ticket.live.store(false, Ordering::Relaxed);
        Ok(PortPoll::Done(outcome))
    }

    /// Takes a wait out of the table, unless it is complete.
    fn waiting(&self, id: u64) -> Option<PortWait> {
        let mut table = self.table.lock();
        let entry = table.entries.remove(&id)?;
        match entry {
            Entry::Waiting(waiting) => Some(waiting),
            done @ Entry::Done(_) => {
                table.entries.insert(id, done);
                None
            }
        }
    }

    /// Polls a woken wait; returns whether it waited for a commit that became durable.
    fn look_at(&self, py: Python<'_>, id: u64) -> PyResult<bool> {
        let Some(waiting) = self.waiting(id) else { return Ok(false) };
        let is_commit = waiting.waits.get(py)?.commit.is_some();
        let future = waiting.future.clone_ref(py);
        match self.poll(py, waiting)? {
            PortPoll::Pending(waiting) => {
                self.table.lock().entries.insert(id, Entry::Waiting(waiting));
                Ok(false)
            }
            PortPoll::Done(outcome) => {
                let durable = is_commit && outcome.is_ok();
                self.complete(py, id, outcome, future.bind(py))?;
                Ok(durable)
            }
        }
    }

    /// Completes every wait for a commit that is durable now. One advance of the watermark wakes
    /// these waits one by one, and the first wake handles all of them.
    fn sweep(&self, py: Python<'_>) -> PyResult<()> {
        let durable = |entry: &Entry| match entry {
            Entry::Waiting(waiting) => waiting
                .waits
                .peek()
                .and_then(|waits| waits.commit.as_ref())
                .is_some_and(siltstone::Commit::is_durable),
            Entry::Done(_) => false,
        };
        let ids: Vec<u64> = {
            let table = self.table.lock();
            let durable = table.entries.iter().filter(|(_, entry)| durable(entry));
            durable.map(|(id, _)| *id).collect()
        };
        for id in ids {
            if let Some(waiting) = self.waiting(id) {
                waiting.ticket.live.store(false, Ordering::Relaxed);
                let done: Finish = Box::new(|py| Ok(py.None()));
                self.complete(py, id, Ok(done), waiting.future.bind(py))?;
            }
        }
        Ok(())
    }

    /// Stores the result in the table and makes the loop resume the task, unless the task was
    /// cancelled: then the result is dropped.
    fn complete(
        &self,
        py: Python<'_>,
        id: u64,
        outcome: Result<Finish>,
        future: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if future.call_method0(intern!(py, "done"))?.is_truthy()? {
            return Ok(());
        }
        let done = Entry::Done(Held::new(self.process, outcome));
        self.table.lock().entries.insert(id, done);
        future.call_method1(intern!(py, "set_result"), (py.None(),)).map(drop)
    }
}

#[pymethods]
impl Port {
    /// Called by the loop when the socket is readable: completes the woken waits.
    fn _drain(&self, py: Python<'_>) -> PyResult<()> {
        // The socket is shared with the parent process, and the byte belongs to the parent.
        if self.process.is_stale() {
            return Ok(());
        }
        // At most one byte is in the socket. A loop that runs inside a callback of the same loop
        // may call this twice for it; the second read finds no byte, which is not an error.
        let _ = (&self.receiver).read(&mut [0; 8]);
        // The loop runs Python code where a wait is completed, so any of them may raise
        // KeyboardInterrupt. The others are completed nevertheless: they are woken once.
        let mut first_error = None;
        let mut keep = |error: PyErr| {
            first_error.get_or_insert(error);
        };
        loop {
            let woken = self.inbox.take();
            if woken.is_empty() {
                return first_error.map_or(Ok(()), Err);
            }
            let mut durable = false;
            for id in woken {
                match self.look_at(py, id) {
                    Ok(is_durable) => durable |= is_durable,
                    Err(error) => keep(error),
                }
            }
            if durable && let Err(error) = self.sweep(py) {
                keep(error);
            }
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // If the lock is taken, another thread uses the table. Objects that are not visited are
        // kept.
        if let Some(table) = self.table.try_lock() {
            for entry in table.entries.values() {
                if let Entry::Waiting(waiting) = entry {
                    visit.call(&waiting.future)?;
                }
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let entries = std::mem::take(&mut self.table.lock().entries);
        drop(entries);
    }
}
