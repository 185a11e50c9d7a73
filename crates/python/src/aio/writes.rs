//! The writes of Database for `siltstone.aio`: accepted at once while there is room in memory.

use crate::aio::commit::AsyncCommit;
use crate::aio::pending::{Finish, First, Pending, Waits};
use crate::bytes::BytesArg;
use crate::checkpoint;
use crate::conditional::{IfValue, condition};
use crate::database::Database;
use crate::deletion::Deletion;
use crate::error::{Raise, closed};
use crate::expiry::LifetimeArguments;
use crate::write::{BYTES_WITH_LOCK, begin_large, beside, with_rows};
use futures::FutureExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use siltstone::{Accept, Batch};
use std::task::{Context, Poll, Waker};

impl Database {
    /// Makes the write: returns the commit, or a Pending if there is no room. A waiting write needs
    /// its own copy of the data, which `owned` makes.
    fn begin_accept<'py, W>(
        &self,
        py: Python<'py>,
        first: siltstone::Result<Accept>,
        owned: impl FnOnce() -> W,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        W: Fn(&siltstone::Database) -> siltstone::Result<Accept> + Send + 'static,
    {
        let held = self.held();
        let process = held.process();
        let mut stall = match first.raise(py)? {
            Accept::Accepted(commit) => {
                return Ok(Bound::new(py, AsyncCommit::new(process, commit))?.into_any());
            }
            Accept::Pressure(stall) => stall,
        };
        let (engine, write) = (held.get(py)?.clone(), owned());
        let accepted = async move {
            loop {
                stall.await?;
                match write(&engine)? {
                    Accept::Accepted(commit) => return Ok(commit),
                    Accept::Pressure(again) => stall = again,
                }
            }
        };
        let pending = Pending::running(process, accepted, move |py, commit| {
            Ok(Py::new(py, AsyncCommit::new(process, commit))?.into_any())
        });
        Ok(Bound::new(py, pending)?.into_any())
    }

    fn begin_batch<'py>(&self, py: Python<'py>, batch: &Batch) -> PyResult<Bound<'py, PyAny>> {
        let (process, engine) = (self.held().process(), self.held().get(py)?);
        if let Some(large) = begin_large(py, engine, batch)? {
            let pending = Pending::running(process, large, move |py, commit| {
                Ok(Py::new(py, AsyncCommit::new(process, commit))?.into_any())
            });
            return Ok(Bound::new(py, pending)?.into_any());
        }
        let first = if batch.as_bytes().len() <= BYTES_WITH_LOCK {
            engine.write(batch)
        } else {
            py.detach(|| engine.write(batch))
        };
        self.begin_accept(py, first, || {
            let batch = batch.clone();
            move |engine: &siltstone::Database| engine.write(&batch)
        })
    }
}

/// The `_begin` methods of the writes. Private: called by `siltstone.aio`.
#[pymethods]
impl Database {
    /// `put`: the commit, or a Pending.
    #[expect(clippy::too_many_arguments, reason = "the arguments of put")]
    fn _begin_put<'py>(
        &self,
        py: Python<'py>,
        key: BytesArg<'_>,
        value: BytesArg<'_>,
        ttl: Option<Bound<'py, PyAny>>,
        expire_at: Option<Bound<'py, PyAny>>,
        if_absent: bool,
        if_value: IfValue<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let life = LifetimeArguments::of(ttl, expire_at)?;
        let (key, value) = (key.as_ref(), value.as_ref());
        let engine = self.held().get(py)?;
        if let Some(condition) = condition(py, if_absent, if_value)? {
            let ended = life.end(engine);
            let answer = ended.and_then(|end| engine.put_if(key, value, end, condition));
            return self.begin_on_condition(py, answer);
        }
        let first = life.end(engine).and_then(|end| engine.put_until(key, value, end));
        self.begin_accept(py, first, || {
            let (key, value) = (key.to_vec(), value.to_vec());
            move |engine: &siltstone::Database| engine.put_until(&key, &value, life.end(engine)?)
        })
    }

    /// `merge`: the commit, or a Pending.
    fn _begin_merge<'py>(
        &self,
        py: Python<'py>,
        key: BytesArg<'_>,
        operand: BytesArg<'_>,
        ttl: Option<Bound<'py, PyAny>>,
        expire_at: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let life = LifetimeArguments::of(ttl, expire_at)?;
        let (key, operand) = (key.as_ref(), operand.as_ref());
        let engine = self.held().get(py)?;
        let first = life.end(engine).and_then(|end| engine.merge_until(key, operand, end));
        self.begin_accept(py, first, || {
            let (key, operand) = (key.to_vec(), operand.to_vec());
            move |engine: &siltstone::Database| {
                engine.merge_until(&key, &operand, life.end(engine)?)
            }
        })
    }

    /// `delete`: the commit, or a Pending.
    fn _begin_delete<'py>(
        &self,
        py: Python<'py>,
        key: BytesArg<'_>,
        if_value: IfValue<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let key = key.as_ref();
        if let Some(condition) = condition(py, false, if_value)? {
            let answer = self.held().get(py)?.delete_if(key, condition);
            return self.begin_on_condition(py, answer);
        }
        let first = self.held().get(py)?.delete(key);
        self.begin_accept(py, first, || {
            let key = key.to_vec();
            move |engine: &siltstone::Database| engine.delete(&key)
        })
    }

    /// `delete_range`: the commit, or a Pending.
    fn _begin_delete_range<'py>(
        &self,
        py: Python<'py>,
        start: Option<BytesArg<'_>>,
        end: Option<BytesArg<'_>>,
        prefix: Option<BytesArg<'_>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let deletion = Deletion::of(py, start, end, prefix)?;
        let first = deletion.write(self.held().get(py)?);
        self.begin_accept(py, first, || move |engine: &siltstone::Database| deletion.write(engine))
    }

    /// `put_many`: the commit, or a Pending.
    fn _begin_put_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        ttl: Option<Bound<'_, PyAny>>,
        expire_at: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.begin_batch(
            py,
            &beside(py, self, (keys, values), LifetimeArguments::of(ttl, expire_at)?)?,
        )
    }

    /// `write`: the commit, or a Pending.
    fn _begin_write<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        with_rows(py, self, batch, |batch| self.begin_batch(py, batch))
    }

    /// `flush`: completes at once if everything is durable.
    fn _begin_flush(&self, py: Python<'_>, memtable: bool) -> PyResult<Pending> {
        let (process, engine) = (self.held().process(), self.held().get(py)?.clone());
        if memtable {
            let work = async move { engine.flush_memtable().await };
            return Ok(Pending::running(process, work, nothing));
        }
        Ok(Pending::later(process, move || {
            let mut flush = async move { engine.flush().await }.boxed();
            let _entered = process.handle().enter();
            // One poll without a waker: a flush with nothing to do needs no event loop.
            match flush.as_mut().poll_unpin(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(())) => {
                    let nothing: Finish = Box::new(|py| Ok(py.None()));
                    First::Ready(nothing)
                }
                Poll::Ready(Err(error)) => {
                    First::Waits(Waits::new(std::future::ready(Err(error)), nothing))
                }
                Poll::Pending => First::Waits(Waits::new(flush, nothing)),
            }
        }))
    }

    /// `compact`. It continues if the wait is cancelled.
    fn _begin_compact(&self, py: Python<'_>) -> PyResult<Pending> {
        let (process, engine) = (self.held().process(), self.held().get(py)?.clone());
        Ok(Pending::later(process, move || {
            let work = process.run_to_its_end(async move { engine.compact().await.map(|_| ()) });
            First::Waits(Waits::new(work, nothing))
        }))
    }

    /// `checkpoint`. It continues if the wait is cancelled.
    fn _begin_checkpoint(&self, py: Python<'_>, asked: &Bound<'_, PyDict>) -> PyResult<Pending> {
        let (process, engine) = (self.held().process(), self.held().get(py)?.clone());
        let how = checkpoint::how(asked)?;
        Ok(Pending::later(process, move || {
            let work = process.run_to_its_end(async move { engine.checkpoint(&how).await });
            let shown = |py: Python<'_>, made| Ok(checkpoint::shown(py, &made)?.unbind());
            First::Waits(Waits::new(work, shown))
        }))
    }

    /// `close`. It continues if the wait is cancelled.
    fn _begin_close(&self, py: Python<'_>) -> PyResult<Pending> {
        let process = self.held().process();
        if process.is_stale() {
            return Err(closed(py, "only the process that opened the database can close it"));
        }
        if let Some(ended) = self.closed() {
            let finish: Finish = Box::new(|py| ended.raise(py).map(|()| py.None()));
            return Ok(Pending::later(process, || First::Ready(finish)));
        }
        let close = self.close_begun();
        Ok(Pending::later(process, move || First::Waits(Waits::new(close, nothing))))
    }
}

fn nothing(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}
