//! `get_many`: keys packed into one buffer, one call, values as a list or an Arrow array.

use crate::array;
use crate::bytes::BytesArg;
use crate::column::{Column, is_arrow};
use crate::error::Raise;
use crate::source::{Readable, Source};
use crate::wait::wait;
use arrow_buffer::Buffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use siltstone::{Answer, Value};

/// Up to so many keys the interpreter lock is kept: their look-ups in memory take less than a
/// contended hand-over.
pub(crate) const KEYS_WITH_LOCK: usize = 16;

/// A key inside a shared buffer: nothing of the interpreter, so that it may leave it.
pub(crate) struct PackedKey {
    buffer: Buffer,
    from: usize,
    to: usize,
}

impl PackedKey {
    pub(crate) fn new(buffer: Buffer, from: usize, to: usize) -> Self {
        PackedKey { buffer, from, to }
    }
}

impl AsRef<[u8]> for PackedKey {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(self.from..self.to).unwrap_or_default()
    }
}

/// The values of `keys` in their order: a list, or an Arrow array for Arrow keys.
pub(crate) fn get_many<'py, S: Source>(
    py: Python<'py>,
    source: &S,
    keys: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if is_arrow(keys)? {
        let column = Column::from_python(keys)?;
        // A null key has no value; the others are asked for without it.
        let values = look_up(py, source, column.packed_keys())?;
        return array::answer(py, keys, column.nulls_kept(values));
    }
    let values = look_up(py, source, pack(keys)?)?;
    let values = values.iter().map(|value| value.as_deref().map(|value| PyBytes::new(py, value)));
    Ok(PyList::new(py, values)?.into_any())
}

/// The keys, packed into one buffer.
pub(crate) fn pack(keys: &Bound<'_, PyAny>) -> PyResult<Vec<PackedKey>> {
    let mut bytes = Vec::new();
    let mut ends = Vec::with_capacity(keys.len().unwrap_or(0));
    for key in keys.try_iter()? {
        let key = key?;
        bytes.extend_from_slice(key.extract::<BytesArg<'_>>()?.as_ref());
        ends.push(bytes.len());
    }
    let buffer = Buffer::from_vec(bytes);
    let mut from = 0;
    let packed = ends.into_iter().map(|to| {
        let key = PackedKey::new(buffer.clone(), from, to);
        from = to;
        key
    });
    Ok(packed.collect())
}

fn look_up<S: Source>(
    py: Python<'_>,
    source: &S,
    keys: Vec<PackedKey>,
) -> PyResult<Vec<Option<Value>>> {
    let held = source.held(py)?;
    let engine = held.get(py)?;
    let answer = if keys.len() <= KEYS_WITH_LOCK {
        engine.get_many(keys)
    } else {
        py.detach(|| engine.get_many(keys))
    };
    match answer.raise(py)? {
        Answer::Ready(values) => Ok(values),
        Answer::Pending(answer) => wait(py, held.process(), answer),
    }
}
