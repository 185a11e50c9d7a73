//! Before the interpreter goes: what is open is closed, then the runtime ends. Otherwise a thread
//! of the runtime could complete a write while the interpreter's state is being freed.

use crate::database::{CloseReason, Opened};
use crate::lines;
use crate::process::Process;
use crate::wait::{PollOutcome, SIGNAL_INTERVAL, poll_for};
use futures::future::{join, join_all};
use pyo3::prelude::*;
use std::pin::pin;
use std::sync::{Arc, Weak};

/// Has the interpreter call [`at_exit`] before it goes.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let hook = module.getattr("at_exit")?;
    module.py().import("atexit")?.call_method1("register", (hook,))?;
    Ok(())
}

/// Closes every open database, waits for those being closed, and ends the runtime. A close that
/// fails, and of which nobody was told, is a line of the logger `siltstone.close`; a second call
/// does nothing. After it, nothing can be opened in this process.
///
/// # Errors
/// What a signal handler raised: then the runtime ends without waiting further.
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
