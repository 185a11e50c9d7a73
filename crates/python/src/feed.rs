//! The change feed: committed writes as Arrow data (RFC 0041). The public interface is
//! `siltstone.changes`, which passes its arguments here as plain values.

use crate::aio::commit::AsyncCommit;
use crate::aio::pending::Pending;
use crate::argument::optional_text;
use crate::array::ArrowArray;
use crate::bytes::to_python;
use crate::checkpoint::{place, shown};
use crate::commit::Commit;
use crate::database::Database;
use crate::duration::duration;
use crate::error::Raise;
use crate::held::Held;
use crate::process::Process;
use crate::reader::Reader;
use crate::source::Source;
use crate::wait::wait;
use arrow_array::{
    ArrayRef, BinaryArray, Int64Array, StringArray, StructArray, TimestampMillisecondArray,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use futures::FutureExt;
use futures::lock::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use siltstone::changes::{self, Changes, ChangesFrom, ChangesOptions, Consumer, ImageBase};
use siltstone::{
    ChangeRows, ChangeToken, Checkpoint, CheckpointName, Column, CommitPlace, Error, Kind, Result,
    Seq, UnixMillis,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The start and the end of a feed, and its consumer: name, lifetime, maximum bytes.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct FeedArguments<'py> {
    since: (String, Option<Bound<'py, PyAny>>),
    until: Bound<'py, PyAny>,
    consumer: Bound<'py, PyAny>,
    lifetime: Option<Bound<'py, PyAny>>,
    most_bytes: Option<u64>,
    before: (String, Option<String>),
}

fn how(asked: &Bound<'_, PyDict>) -> PyResult<ChangesOptions> {
    let py = asked.py();
    let asked: FeedArguments<'_> = asked.extract()?;
    let (word, value) = asked.since;
    let text = || value.as_ref().map(|value| value.extract::<String>()).transpose();
    let since = match word.as_str() {
        "kept" => ChangesFrom::Kept,
        "oldest" => ChangesFrom::Oldest,
        "latest" => ChangesFrom::Newest,
        "snapshot" => ChangesFrom::Snapshot,
        "commit" => ChangesFrom::Commit(place_of(&value.into_pyobject(py)?)?),
        "checkpoint" => match text()?.unwrap_or_default().parse::<CheckpointName>() {
            Ok(name) => ChangesFrom::Checkpoint(name),
            Err(never) => match never {},
        },
        _ => ChangesFrom::Token(text()?.unwrap_or_default().parse().raise(py)?),
    };
    let until = optional_text(&asked.until, "until")?;
    let until = until.map(|text| text.parse::<ChangeToken>()).transpose().raise(py)?;
    let lifetime = asked.lifetime.map(|one| duration(&one, "lifetime")).transpose()?;
    let consumer = optional_text(&asked.consumer, "consumer")?;
    let consumer = consumer.map(|name| {
        let usual = Consumer::new(&name);
        let most_bytes = asked.most_bytes.or(usual.most_bytes);
        Consumer { name, lifetime: lifetime.or(usual.lifetime), most_bytes }
    });
    let before = match (asked.before.0.as_str(), asked.before.1) {
        ("start", _) => Some(ImageBase::Start),
        ("checkpoint", name) => match name.unwrap_or_default().parse::<CheckpointName>() {
            Ok(name) => Some(ImageBase::Checkpoint(name)),
            Err(never) => match never {},
        },
        _ => None,
    };
    Ok(ChangesOptions { since, until, consumer, before })
}

/// The position of a `Commit` of either module.
fn place_of(commit: &Bound<'_, PyAny>) -> PyResult<CommitPlace> {
    match commit.cast::<Commit>() {
        Ok(commit) => commit.get().place(commit.py()),
        Err(_) => commit.cast::<AsyncCommit>()?.get().place(commit.py()),
    }
}

/// An open change feed.
#[pyclass(frozen, module = "siltstone")]
pub(crate) struct Feed {
    process: &'static Process,
    changes: Held<Arc<Mutex<Changes>>>,
    passed_on: Arc<FeedPosition>,
    checkpoint: Option<Checkpoint>,
    consumer: Option<String>,
}

/// The position of the feed after the changes that the caller has received.
struct FeedPosition {
    token: parking_lot::Mutex<ChangeToken>,
    /// A read was cancelled after it may have moved the feed forward.
    is_behind: AtomicBool,
}

impl Feed {
    fn new(process: &'static Process, changes: Changes) -> Feed {
        let token = parking_lot::Mutex::new(changes.token());
        Feed {
            process,
            passed_on: Arc::new(FeedPosition { token, is_behind: AtomicBool::new(false) }),
            checkpoint: changes.checkpoint().cloned(),
            consumer: changes.consumer().map(str::to_owned),
            changes: Held::new(process, Arc::new(Mutex::new(changes))),
        }
    }

    /// The next changes and the position after them. If there are no changes, the position is
    /// advanced here. Reads nothing once `given_up` is set.
    fn next(
        &self,
        py: Python<'_>,
        (rows, bytes): (usize, usize),
        given_up: Arc<AtomicBool>,
    ) -> PyResult<impl Future<Output = Result<Option<(ChangeRows, ChangeToken)>>> + Send + 'static>
    {
        let (changes, passed_on) = (Arc::clone(self.changes.get(py)?), Arc::clone(&self.passed_on));
        Ok(async move {
            let mut changes = changes.lock().await;
            if passed_on.is_behind.swap(false, Ordering::AcqRel) {
                changes.rewind(*passed_on.token.lock());
            }
            // `given_up` is set before `is_behind`: a read that clears `is_behind` also sees its
            // own `given_up`.
            if given_up.load(Ordering::Acquire) {
                return Ok(None);
            }
            let read = changes.read(rows, bytes).await;
            let behind = changes.token();
            match read {
                Ok(Some(changed)) => Ok(Some((changed, behind))),
                nothing => {
                    passed_on.passes(behind);
                    nothing.map(|_| None)
                }
            }
        })
    }

    /// Acknowledges changes up to the token; without a token, all changes that the caller has
    /// received.
    fn dealt_with(
        &self,
        py: Python<'_>,
        token: Option<&str>,
    ) -> PyResult<impl Future<Output = Result<()>> + Send + 'static> {
        let token = token.map(str::parse).transpose().raise(py)?;
        let token = token.unwrap_or_else(|| self.place());
        let changes = Arc::clone(self.changes.get(py)?);
        Ok(async move { changes.lock().await.acknowledge(Some(token)).await })
    }

    /// After an interrupted wait, the feed may have read changes that the caller has not received.
    fn or_behind<T>(&self, waited: PyResult<T>) -> PyResult<T> {
        waited.inspect_err(|_| self.passed_on.is_behind.store(true, Ordering::Release))
    }

    fn place(&self) -> ChangeToken {
        *self.passed_on.token.lock()
    }
}

impl FeedPosition {
    fn passes(&self, behind: ChangeToken) {
        *self.token.lock() = behind;
    }
}

/// Converts changes to Arrow.
fn as_arrow(next: Option<(ChangeRows, ChangeToken)>) -> Result<Option<(ArrayRef, ChangeToken)>> {
    next.map(|(changed, behind)| Ok((into_array(changed)?, behind))).transpose()
}

#[pymethods]
impl Feed {
    /// Returns the next changes as an array of structs; None if there are none.
    fn read(&self, py: Python<'_>, rows: usize, bytes: usize) -> PyResult<Option<ArrowArray>> {
        let next = self.next(py, (rows, bytes), Arc::default())?;
        let next = next.map(|read| read.and_then(as_arrow));
        let read = self.or_behind(wait(py, self.process, next))?;
        Ok(read.map(|(array, behind)| {
            self.passed_on.passes(behind);
            ArrowArray::new(array)
        }))
    }

    /// Like `read`, but returns tuples of kind, key, value, sequence number, Unix time in
    /// milliseconds, and value before, for callers without a library that reads Arrow.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        rows: usize,
        bytes: usize,
    ) -> PyResult<Option<Vec<PlainRow<'py>>>> {
        let next = self.next(py, (rows, bytes), Arc::default())?;
        let read = self.or_behind(wait(py, self.process, next))?;
        let rows = |(changed, behind)| {
            let rows = plain_rows(py, &changed)?;
            self.passed_on.passes(behind);
            Ok(rows)
        };
        self.or_behind(read.map(rows).transpose())
    }

    fn _begin_read(&self, py: Python<'_>, rows: usize, bytes: usize) -> PyResult<Pending> {
        let given_up = Arc::<AtomicBool>::default();
        let next = self.next(py, (rows, bytes), Arc::clone(&given_up))?;
        let next = next.map(|read| read.and_then(as_arrow));
        let (passed_on, behind) = (Arc::clone(&self.passed_on), Arc::clone(&self.passed_on));
        let pending = Pending::running(self.process, next, move |py, read| match read {
            Some((array, place)) => {
                let array = Py::new(py, ArrowArray::new(array))?;
                passed_on.passes(place);
                Ok(array.into_any())
            }
            None => Ok(py.None()),
        });
        Ok(pending.or_given_up(move || {
            given_up.store(true, Ordering::Release);
            // The read may have completed without its result being taken.
            behind.is_behind.store(true, Ordering::Release);
        }))
    }

    /// Acknowledges changes, so that the log before them is no longer retained.
    #[pyo3(signature = (token = None))]
    fn acknowledge(&self, py: Python<'_>, token: Option<&str>) -> PyResult<()> {
        let work = self.dealt_with(py, token)?;
        wait(py, self.process, work)
    }

    #[pyo3(signature = (token = None))]
    fn _begin_acknowledge(&self, py: Python<'_>, token: Option<&str>) -> PyResult<Pending> {
        let work = self.dealt_with(py, token)?;
        Ok(Pending::running(self.process, work, |py, ()| Ok(py.None())))
    }

    /// The token of the current position.
    #[getter]
    fn token(&self) -> String {
        self.place().to_string()
    }

    /// The last sequence number that was returned completely.
    #[getter]
    fn seq(&self) -> u64 {
        self.place().seq.get()
    }

    /// The checkpoint from which the feed continues.
    #[getter]
    fn checkpoint<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.checkpoint.as_ref().map(|checkpoint| shown(py, checkpoint)).transpose()
    }

    /// The name of the consumer.
    #[getter]
    fn consumer(&self) -> Option<String> {
        self.consumer.clone()
    }
}

/// Kind, key, value, sequence number, time, value before.
type PlainRow<'py> = (
    &'static str,
    Bound<'py, PyBytes>,
    Option<Bound<'py, PyBytes>>,
    u64,
    u64,
    Option<Bound<'py, PyBytes>>,
);

fn plain_rows<'py>(py: Python<'py>, changed: &ChangeRows) -> PyResult<Vec<PlainRow<'py>>> {
    let rows = changed.kinds.iter().zip(&changed.seqs).zip(&changed.times).enumerate();
    let row = |(at, ((kind, seq), time)): (usize, ((&Kind, &Seq), &UnixMillis))| {
        let bytes = |column: &Column| to_python(py, column.get(at).unwrap_or_default());
        let value = (*kind != Kind::Delete).then(|| bytes(&changed.values)).transpose()?;
        let before = changed.before.as_ref().and_then(|before| before.get(at));
        let before = before.map(|before| to_python(py, before)).transpose()?;
        Ok((word(*kind), bytes(&changed.keys)?, value, seq.get(), time.0, before))
    };
    rows.map(row).collect()
}

fn fields(with_before: bool) -> Fields {
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    let fields = [
        Field::new("kind", DataType::Utf8, false),
        Field::new("key", DataType::Binary, false),
        Field::new("value", DataType::Binary, true),
        Field::new("seq", DataType::Int64, false),
        Field::new("time", time, false),
    ];
    let before = with_before.then(|| Field::new("before", DataType::Binary, true));
    fields.into_iter().chain(before).collect()
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Put => "put",
        Kind::Delete => "delete",
        Kind::Merge => "merge",
        Kind::RangeDelete => "delete_range",
    }
}

/// Moves the columns into arrays without a copy.
fn into_array(changed: ChangeRows) -> Result<ArrayRef> {
    let binary = |column: Column, valid: Option<NullBuffer>| {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(column.offsets));
        BinaryArray::try_new(offsets, Buffer::from_vec(column.bytes), valid)
    };
    let made = || {
        let kinds = StringArray::from_iter_values(changed.kinds.iter().map(|kind| word(*kind)));
        let valid = changed.kinds.iter().map(|kind| *kind != Kind::Delete).collect();
        let seqs: Vec<i64> = changed.seqs.iter().map(|seq| seq.get() as i64).collect();
        let times: Vec<i64> = changed.times.iter().map(|at| at.0 as i64).collect();
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(kinds),
            Arc::new(binary(changed.keys, None)?),
            Arc::new(binary(changed.values, Some(valid))?),
            Arc::new(Int64Array::from(seqs)),
            Arc::new(TimestampMillisecondArray::from(times).with_timezone("UTC")),
        ];
        let fields = fields(changed.before.is_some());
        if let Some(before) = changed.before {
            let present = before.present.into_iter().collect();
            columns.push(Arc::new(binary(before.values, Some(present))?));
        }
        StructArray::try_new(fields, columns, None)
    };
    let array =
        made().map_err(|error| Error::internal("changes make no record batch").caused_by(error))?;
    Ok(Arc::new(array))
}

/// Opens a feed of a database without an open handle.
#[pyfunction]
pub(crate) fn feed_begin(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    asked: &Bound<'_, PyDict>,
) -> PyResult<Feed> {
    let how = how(asked)?;
    let (process, env, deadline) = place(py, url, store_options)?;
    Ok(Feed::new(process, wait(py, process, changes::changes(&env, how, deadline))?))
}

/// The token of the end of the durable log.
#[pyfunction]
pub(crate) fn feed_latest(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<String> {
    let (process, env, deadline) = place(py, url, store_options)?;
    Ok(wait(py, process, changes::newest(&env, deadline))?.to_string())
}

/// Consumers: name, sequence number, WAL id, expiry in milliseconds, bound in bytes.
type PlainHold = (String, u64, u64, Option<u64>, Option<u64>);

/// Lists the consumers that retain the log.
#[pyfunction]
pub(crate) fn feed_consumers(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
) -> PyResult<Vec<PlainHold>> {
    let (process, env, deadline) = place(py, url, store_options)?;
    let holds = wait(py, process, changes::consumers(&env, deadline))?;
    let plain = holds.into_iter().map(|hold| {
        let expires = hold.expires_at.map(|at| at.0);
        let seq = hold.acknowledged().seq.get();
        (hold.name, seq, hold.wal_from.get(), expires, hold.most_bytes)
    });
    Ok(plain.collect())
}

/// Removes a consumer.
#[pyfunction]
pub(crate) fn feed_forget(
    py: Python<'_>,
    url: &str,
    store_options: &Bound<'_, PyDict>,
    name: &str,
) -> PyResult<()> {
    let (process, env, deadline) = place(py, url, store_options)?;
    wait(py, process, changes::forget_consumer(&env, name, deadline))
}

/// Adds the items of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Feed>()?;
    module.add_function(wrap_pyfunction!(feed_begin, module)?)?;
    module.add_function(wrap_pyfunction!(feed_consumers, module)?)?;
    module.add_function(wrap_pyfunction!(feed_forget, module)?)?;
    module.add_function(wrap_pyfunction!(feed_latest, module)?)
}

/// Adds the methods of the feed to `$class`.
macro_rules! feeds {
    ($class:ident) => {
        impl $class {
            fn feed(&self, py: Python<'_>, asked: &Bound<'_, PyDict>) -> PyResult<Feed> {
                let how = how(asked)?;
                let held = Source::held(self, py)?;
                let (process, engine) = (held.process(), held.get(py)?.clone());
                let begun = wait(py, process, async move { engine.changes(how).await })?;
                Ok(Feed::new(process, begun))
            }
        }

        #[pymethods]
        impl $class {
            /// Returns the change feed, a `siltstone.changes.Changes`: all durable changes in
            /// commit order, as an iterator over Arrow record batches. Arguments and errors are
            /// those of `siltstone.changes.begin`.
            #[pyo3(signature = (
                                *, since = None, consumer = None, until = None, lifetime = None,
                                most_bytes = None, before = None
                            ))]
            #[allow(clippy::too_many_arguments, reason = "they are the arguments of the feed")]
            fn changes<'py>(
                slf: &Bound<'py, Self>,
                since: Option<Bound<'py, PyAny>>,
                consumer: Option<&str>,
                until: Option<&str>,
                lifetime: Option<Bound<'py, PyAny>>,
                most_bytes: Option<Bound<'py, PyAny>>,
                before: Option<Bound<'py, PyAny>>,
            ) -> PyResult<Bound<'py, PyAny>> {
                let (py, module) = (slf.py(), slf.py().import("siltstone.changes")?);
                let given = (since, consumer, until, lifetime, most_bytes, before);
                let asked = module.getattr("_asked")?.call1(given)?;
                let feed = slf.get().feed(py, asked.cast::<PyDict>()?)?;
                module.getattr("Changes")?.call1((feed,))
            }

            fn _begin_feed(&self, py: Python<'_>, asked: &Bound<'_, PyDict>) -> PyResult<Pending> {
                let how = how(asked)?;
                let held = Source::held(self, py)?;
                let (process, engine) = (held.process(), held.get(py)?.clone());
                let work = async move { engine.changes(how).await };
                Ok(Pending::running(process, work, move |py, begun| {
                    Ok(Py::new(py, Feed::new(process, begun))?.into_any())
                }))
            }
        }
    };
}

feeds!(Database);
feeds!(Reader);
