//! Lines of the engine on their way to Python's `logging` (RFC 0022): a bounded queue that any
//! thread fills without asking for the interpreter, and that one thread of Python empties.

use crate::process;
use log::{LevelFilter, Log, Metadata, Record};
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use std::collections::VecDeque;

/// Lines that wait at most; further ones are dropped, and counted.
const MOST: usize = 1024;
/// A fork may leave a queue locked for ever in the child, which takes the next one: so many in
/// turn.
const QUEUES: usize = 8;

/// Logger, level as `logging` has it, text.
type LogLine = (String, u8, String);

#[derive(Default)]
struct WaitingLines {
    lines: VecDeque<LogLine>,
    dropped: u64,
    over: bool,
}

struct Queue {
    waiting: Mutex<WaitingLines>,
    arrived: Condvar,
}

static LINES: [Queue; QUEUES] = [const {
    let lines = VecDeque::new();
    let waiting = Mutex::new(WaitingLines { lines, dropped: 0, over: false });
    Queue { waiting, arrived: Condvar::new() }
}; QUEUES];

/// That of this process.
fn queue() -> Option<&'static Queue> {
    LINES.get(process::generation() as usize % QUEUES)
}

/// What the engine's lines are given to.
struct ToPython;

impl Log for ToPython {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("siltstone")
    }

    fn log(&self, record: &Record<'_>) {
        let Some(queue) = queue().filter(|_| self.enabled(record.metadata())) else { return };
        let line = (record.target().to_owned(), level(record.level()), record.args().to_string());
        let mut waiting = queue.waiting.lock();
        if waiting.over {
            return;
        }
        if waiting.lines.len() >= MOST {
            waiting.dropped += 1;
            return;
        }
        waiting.lines.push_back(line);
        drop(waiting);
        queue.arrived.notify_one();
    }

    fn flush(&self) {}
}

fn level(level: log::Level) -> u8 {
    match level {
        log::Level::Error => 40,
        log::Level::Warn => 30,
        log::Level::Info => 20,
        log::Level::Debug | log::Level::Trace => 10,
    }
}

/// Has the engine speak to [`ToPython`].
pub(crate) fn register() {
    // Another copy of the module in this process was first: its lines serve both.
    if log::set_logger(&ToPython).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Has Python's thread run.
pub(crate) fn start(py: Python<'_>) {
    // Without it nothing is lost but lines.
    let _ = py.import("siltstone._log_forwarding").and_then(|lines| lines.call_method0("start"));
}

/// No more lines come; waits until Python's thread has told those that are there.
pub(crate) fn end(py: Python<'_>) {
    let Some(queue) = queue() else { return };
    queue.waiting.lock().over = true;
    queue.arrived.notify_all();
    let _ = py.import("siltstone._log_forwarding").and_then(|lines| lines.call_method0("stop"));
}

/// The lines that wait: those there are, or the next ones to come. `None` when there will be none.
#[pyfunction]
pub(crate) fn next_lines(py: Python<'_>) -> Option<Vec<LogLine>> {
    let queue = queue()?;
    py.detach(|| {
        let mut waiting = queue.waiting.lock();
        while waiting.lines.is_empty() && !waiting.over {
            queue.arrived.wait(&mut waiting);
        }
        let mut lines: Vec<LogLine> = waiting.lines.drain(..).collect();
        let dropped = std::mem::take(&mut waiting.dropped);
        if dropped > 0 {
            lines.push(("siltstone".to_owned(), 30, format!("{dropped} lines were dropped")));
        }
        (!lines.is_empty()).then_some(lines)
    })
}
