//! Opening and closing handles without blocking.

use crate::aio::pending::{First, Pending, Waits};
use crate::checkpoint::{read_at, settled};
use crate::database::Database;
use crate::held::Held;
use crate::open::{Arguments, OpenMode, env, text_of};
use crate::options::options;
use crate::process::Process;
use crate::reader::{Place, Reader};
use crate::source::Source;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::{Error, Occupancy};
use std::sync::Arc;

/// Begins `open`. If the wait is cancelled, the opened database is closed.
#[pyfunction]
#[pyo3(signature = (url, mode, named, store_options, merge_operator))]
pub(crate) fn begin_open(
    py: Python<'_>,
    url: &str,
    mode: OpenMode<'_>,
    named: &Bound<'_, PyDict>,
    store_options: &Bound<'_, PyDict>,
    merge_operator: Option<&Bound<'_, PyAny>>,
) -> PyResult<Pending> {
    let arguments = Arguments::new(py, url, mode, named, store_options, merge_operator)?;
    let (process, alone) = (arguments.process, !arguments.is_shared());
    let occupancy = Occupancy::default();
    let open = arguments.open(occupancy.clone());
    let pending = Pending::running(process, open, |py, database: Database| {
        Ok(Py::new(py, database)?.into_any())
    });
    if alone {
        // The next opener must not be fenced or refused by a handle that no caller waits for.
        return Ok(pending.or_given_up(move || occupancy.end()));
    }
    // Other openers may share the handle, so a cancelled wait must not end it.
    Ok(pending)
}

/// Begins `open_reader`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "what it takes to open one again, elsewhere")]
#[pyo3(signature = (url, named, store_options, provider, at, operator, described))]
pub(crate) fn begin_open_reader(
    py: Python<'_>,
    url: &str,
    named: &Bound<'_, PyDict>,
    store_options: &Bound<'_, PyDict>,
    provider: Option<String>,
    at: Option<&Bound<'_, PyAny>>,
    operator: Option<&Bound<'_, PyAny>>,
    described: Option<Py<PyAny>>,
) -> PyResult<Pending> {
    let mut place = Place {
        url: url.to_owned(),
        options: options(named)?,
        store_options: text_of(store_options)?,
        provider,
        at: read_at(at)?,
        merge_operator: crate::operator::operator(operator)?,
        described,
    };
    let process = Process::current(py)?;
    let env = env(py, process, url, &place.store_options)?;
    let how = place.how();
    let named = named.copy()?.unbind();
    Ok(Pending::running(process, siltstone::Reader::open(env, how), move |py, engine| {
        place.at = settled(place.at.take(), &engine);
        let reader = Reader::new(place, named, Held::new(process, engine));
        Ok(Py::new(py, reader)?.into_any())
    }))
}

#[pymethods]
impl Reader {
    /// Begins `refresh`.
    fn _begin_refresh(&self, py: Python<'_>) -> PyResult<Pending> {
        let held = self.held(py)?;
        let process = held.process();
        let refresh = async move {
            match held.peek() {
                Some(engine) => engine.refresh().await,
                None => Err(Error::internal("a reader of another process was refreshed")),
            }
        };
        Ok(Pending::running(process, refresh, |py, ()| Ok(py.None())))
    }

    /// Begins `close`; `None` if there is nothing to wait for.
    fn _begin_close(&self) -> Option<Pending> {
        let held = self.take().filter(|held| !held.is_stale())?;
        let process = held.process();
        if process.is_over() {
            return None;
        }
        let close = close_reader(held);
        Some(Pending::later(process, move || {
            let close = process.run(close);
            First::Waits(Waits::new(close, |py, ()| Ok(py.None())))
        }))
    }
}

async fn close_reader(held: Arc<Held<siltstone::Reader>>) -> siltstone::Result<()> {
    match held.peek() {
        Some(engine) => engine.close().await,
        None => Ok(()),
    }
}
