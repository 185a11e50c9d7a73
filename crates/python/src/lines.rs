//! Forwards log lines of the engine to Python's `logging` (RFC 0022) through a bounded queue. Any
//! thread adds lines without the interpreter lock; one Python thread takes them out.

use crate::process;
use log::{LevelFilter, Log, Metadata, Record};
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use std::collections::VecDeque;

/// Maximum number of queued lines; further lines are dropped and counted.
const MOST: usize = 1024;
/// A fork may leave a queue locked for ever in the child, so the child uses the next queue. The
/// queues are used in turn.
const QUEUES: usize = 8;

/// Logger name, level as in `logging`, text.
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

/// The queue of this process.
fn queue() -> Option<&'static Queue> {
    LINES.get(process::generation() as usize % QUEUES)
}

/// The logger that receives the lines of the engine.
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

/// Installs [`ToPython`] as the logger of the engine.
pub(crate) fn register() {
    // Another copy of the module in this process registered first: its queue serves both.
    if log::set_logger(&ToPython).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Starts the Python thread that logs the lines.
pub(crate) fn start(py: Python<'_>) {
    // If this fails, only log lines are lost.
    let _ = py.import("siltstone._log_forwarding").and_then(|lines| lines.call_method0("start"));
}

/// Marks the end of the queue, and waits until the Python thread has logged the queued lines.
pub(crate) fn end(py: Python<'_>) {
    let Some(queue) = queue() else { return };
    queue.waiting.lock().over = true;
    queue.arrived.notify_all();
    let _ = py.import("siltstone._log_forwarding").and_then(|lines| lines.call_method0("stop"));
}

/// The queued lines; waits for the next ones if the queue is empty. `None` once the queue has
/// ended.
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
