//! The exit hook: closes open databases, then ends the runtime. Otherwise a thread of the runtime
//! could complete a write while the state of the interpreter is being freed.

use crate::database::{CloseReason, Opened};
use crate::lines;
use crate::process::Process;
use crate::wait::{PollOutcome, SIGNAL_INTERVAL, poll_for};
use futures::future::{join, join_all};
use pyo3::prelude::*;
use std::pin::pin;
use std::sync::{Arc, Weak};

/// Registers [`at_exit`] with the interpreter.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let hook = module.getattr("at_exit")?;
    module.py().import("atexit")?.call_method1("register", (hook,))?;
    Ok(())
}

/// Closes every open database, waits for the closes that are running, and ends the runtime. If a
/// close fails and its error was not returned to a caller, the error is logged to
/// `siltstone.close`. A second call has no effect. After it, no database can be opened in this
/// process.
///
/// # Errors
/// An exception raised by a signal handler: the runtime then ends without further waiting.
#[pyfunction]
pub(crate) fn at_exit(py: Python<'_>) -> PyResult<()> {
    let Some(process) = Process::existing(py) else { return Ok(()) };
    let (open, closing) = process.take_open();
    let open: Vec<Arc<Opened>> = open.iter().filter_map(Weak::upgrade).collect();
    let closes = open.iter().map(|opened| opened.close_unasked(CloseReason::AtExit));
    let mut all = pin!(join(join_all(closes), join_all(closing)));
    let ended = loop {
        match py.detach(|| poll_for(process, all.as_mut(), SIGNAL_INTERVAL)) {
            PollOutcome::Done(ended) => break Ok(ended),
            PollOutcome::Over => return Ok(()),
            PollOutcome::Later => {
                if let Err(interrupt) = py.check_signals() {
                    break Err(interrupt);
                }
            }
        }
    };
    py.detach(|| process.end());
    lines::end(py);
    ended.map(drop)
}
