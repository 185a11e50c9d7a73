//! A compactor, or a compaction worker, in this process, without a writer.

use crate::argument::flag;
use crate::error::exception;
use crate::open::{env, text_of};
use crate::operator::operator;
use crate::options::options;
use crate::process::{Process, over};
use crate::stats::compaction;
use crate::wait::{PollOutcome, SIGNAL_INTERVAL, poll_for, wait};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::{CompactorEvent, CompactorOptions, CompactorProcess, Result};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How long an interrupted compactor may take to stop in order: Ctrl-C must end a call within a
/// second.
const STOP_GRACE: Duration = Duration::from_millis(700);

/// Events that were received but not forwarded yet.
pub(crate) type Heard = Arc<Mutex<Vec<CompactorEvent>>>;

/// Merges everything into one sorted run. `told` is called with each event, and a few times a
/// second with `"bytes"`, the bytes read and the bytes to read.
#[pyfunction]
#[pyo3(signature = (url, named, store_options, merge_operator, workers, told))]
pub(crate) fn compact(
    py: Python<'_>,
    url: &str,
    named: &Bound<'_, PyDict>,
    store_options: &Bound<'_, PyDict>,
    merge_operator: Option<&Bound<'_, PyAny>>,
    workers: usize,
    told: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let how = how(named, merge_operator, workers)?;
    let (process, compactor, heard) = open(py, url, how, store_options)?;
    let work = compactor.clone();
    let work = process.run(async move { work.compact().await });
    let far = || told.call1(("bytes", compactor.bytes())).map(drop);
    drive(py, process, &compactor, (&heard, told, &far), work)
}

/// Compacts until it is interrupted, or works for a compactor in another process.
#[pyfunction]
#[pyo3(signature = (url, named, store_options, merge_operator, workers, told))]
pub(crate) fn run_compactor(
    py: Python<'_>,
    url: &str,
    named: &Bound<'_, PyDict>,
    store_options: &Bound<'_, PyDict>,
    merge_operator: Option<&Bound<'_, PyAny>>,
    workers: (usize, Bound<'_, PyAny>),
    told: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (workers, worker) = (workers.0, flag(&workers.1, "worker")?);
    let how = how(named, merge_operator, workers)?;
    let (process, compactor, heard) = open(py, url, how, store_options)?;
    let work = compactor.clone();
    let work =
        process.run(async move { if worker { work.work().await } else { work.run().await } });
    drive(py, process, &compactor, (&heard, told, &|| Ok(())), work)
}

pub(crate) fn how(
    named: &Bound<'_, PyDict>,
    merge_operator: Option<&Bound<'_, PyAny>>,
    workers: usize,
) -> PyResult<CompactorOptions> {
    let (options, merge_operator) = (options(named)?, operator(merge_operator)?);
    Ok(CompactorOptions { options, merge_operator, workers })
}

pub(crate) fn open(
    py: Python<'_>,
    url: &str,
    how: CompactorOptions,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<(&'static Process, CompactorProcess, Heard)> {
    let process = Process::current(py)?;
    let env = env(py, process, url, &text_of(store_options)?)?;
    let heard = Heard::default();
    let hears = Arc::clone(&heard);
    let listener = move |event| hears.lock().push(event);
    let compactor = wait(py, process, CompactorProcess::open(env, how, listener))?;
    Ok((process, compactor, heard))
}

/// Waits for `work`, forwards events and progress meanwhile, and stops `work` in order on a signal.
pub(crate) fn drive<T: Send>(
    py: Python<'_>,
    process: &'static Process,
    compactor: &CompactorProcess,
    (heard, told, far): (&Heard, &Bound<'_, PyAny>, &dyn Fn() -> PyResult<()>),
    work: impl Future<Output = Result<T>> + Send,
) -> PyResult<T> {
    let mut work = pin!(work);
    loop {
        let polled = py.detach(|| poll_for(process, work.as_mut(), SIGNAL_INTERVAL));
        let interrupted = match polled {
            PollOutcome::Done(done) => {
                tell(heard, told)?;
                return done.map_err(|error| exception(py, &error));
            }
            PollOutcome::Over => return Err(over(py)),
            PollOutcome::Later => {
                py.check_signals().and_then(|()| tell(heard, told)).and_then(|()| far())
            }
        };
        if let Err(interrupted) = interrupted {
            compactor.stop();
            // Its last result only says that it was stopped.
            drop(py.detach(|| poll_for(process, work.as_mut(), STOP_GRACE)));
            return Err(interrupted);
        }
    }
}

/// Calls `told` with the kind and the values of each event.
fn tell(heard: &Heard, told: &Bound<'_, PyAny>) -> PyResult<()> {
    let events = std::mem::take(&mut *heard.lock());
    let py = told.py();
    for event in events {
        match &event {
            CompactorEvent::Compacted(entry) => {
                told.call1(("compacted", compaction(py, entry)?))?;
            }
            CompactorEvent::Merged(range) => {
                let named = PyDict::new(py);
                named.set_item("job", &range.job)?;
                named.set_item("range", range.range)?;
                named.set_item("seconds", range.took.as_secs_f64())?;
                named.set_item("line", range.to_string())?;
                told.call1(("merged", named))?;
            }
            CompactorEvent::Trouble(error) => {
                told.call1(("trouble", exception(py, error)))?;
            }
        }
    }
    Ok(())
}
