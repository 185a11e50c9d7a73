//! Operations that may wait for a transaction or a read: commits, conditional writes, `pop`.

use crate::aio::commit::AsyncCommit;
use crate::aio::pending::Pending;
use crate::bytes::{BytesArg, reserve, to_python};
use crate::database::Database;
use crate::error::Raise;
use crate::process::Process;
use crate::transaction::{Transaction, try_commit};
use pyo3::prelude::*;
use siltstone::{Accept, Answer};

fn commit_object(
    py: Python<'_>,
    process: &'static Process,
    commit: siltstone::Commit,
) -> PyResult<Py<PyAny>> {
    Ok(Py::new(py, AsyncCommit::new(process, commit))?.into_any())
}

impl Database {
    /// Makes a conditional write: the commit, or a Pending.
    pub(crate) fn begin_on_condition<'py>(
        &self,
        py: Python<'py>,
        answer: siltstone::Result<Answer<siltstone::Commit>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let process = self.held().process();
        match answer.raise(py)? {
            Answer::Ready(commit) => Ok(commit_object(py, process, commit)?.into_bound(py)),
            Answer::Pending(answer) => {
                let finish = move |py: Python<'_>, commit| commit_object(py, process, commit);
                Ok(Bound::new(py, Pending::running(process, answer, finish))?.into_any())
            }
        }
    }
}

/// Private: called by `siltstone.aio`.
#[pymethods]
impl Database {
    /// `pop`: the value or `default`, or a Pending for it.
    fn _begin_pop<'py>(
        &self,
        py: Python<'py>,
        key: BytesArg<'_>,
        default: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let held = self.held();
        match held.get(py)?.pop(key.as_ref(), reserve).raise(py)? {
            Answer::Ready(Some((value, _))) => Ok(to_python(py, &value)?.into_any()),
            Answer::Ready(None) => Ok(default),
            Answer::Pending(answer) => {
                let default = default.unbind();
                let finish = move |py: Python<'_>, popped: Option<(siltstone::Value, _)>| {
                    Ok(match popped {
                        Some((value, _)) => to_python(py, &value)?.into_any().unbind(),
                        None => default,
                    })
                };
                Ok(Bound::new(py, Pending::running(held.process(), answer, finish))?.into_any())
            }
        }
    }
}

/// Private: called by `siltstone.aio`.
#[pymethods]
impl Transaction {
    /// `commit`: the commit or None, or a Pending. A cancelled wait has committed either nothing or
    /// everything.
    fn _begin_commit<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (engine, process) = self.engine(py)?;
        let mut room = match try_commit(py, engine)? {
            None => return Ok(py.None().into_bound(py)),
            Some(Accept::Accepted(commit)) => {
                return Ok(commit_object(py, process, commit)?.into_bound(py));
            }
            Some(Accept::Pressure(room)) => room,
        };
        let engine = engine.clone();
        let committed = async move {
            loop {
                room.await?;
                match engine.commit()? {
                    None => return Ok(None),
                    Some(Accept::Accepted(commit)) => return Ok(Some(commit)),
                    Some(Accept::Pressure(again)) => room = again,
                }
            }
        };
        let finish = move |py: Python<'_>, commit: Option<siltstone::Commit>| match commit {
            Some(commit) => commit_object(py, process, commit),
            None => Ok(py.None()),
        };
        Ok(Bound::new(py, Pending::running(process, committed, finish))?.into_any())
    }

    /// The end of the transaction in one word; None while it is open.
    #[getter]
    fn _ended(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        Ok(self.engine(py)?.0.ended())
    }
}
