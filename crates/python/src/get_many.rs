//! `get_many`: keys packed into one buffer, one call, values as a list or an Arrow array.

use crate::array;
use crate::bytes::{HOLD, Object, hold, refuse_one, row};
use crate::column::Column;
use crate::error::Raise;
use crate::frames::is_arrow_column;
use crate::source::{Readable, Source};
use crate::wait::wait;
use pyo3::prelude::*;
use pyo3::types::PyList;
use siltstone::{Answer, Keys, Value};

/// Maximum number of keys for which the interpreter lock is kept: looking them up in memory takes
/// less time than handing over a contended lock.
pub(crate) const KEYS_WITH_LOCK: usize = 16;

/// Keys between two checks for signals.
const KEYS_BETWEEN_SIGNALS: usize = 1 << 18;

/// The values of `keys` in the order of `keys`: a list, or an Arrow array for Arrow keys.
pub(crate) fn get_many<'py, S: Source>(
    py: Python<'py>,
    source: &S,
    keys: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if is_arrow_column(keys)? {
        let column = Column::from_python(keys, "keys")?;
        // A null key has no value; the other keys are looked up without it.
        let values = look_up(py, source, column.packed_keys())?;
        return array::answer(py, keys, column.nulls_kept(values));
    }
    let values = look_up(py, source, pack(keys)?)?;
    list(py, &values)
}

/// The values as a list.
pub(crate) fn list<'py>(py: Python<'py>, values: &[Option<Value>]) -> PyResult<Bound<'py, PyAny>> {
    let objects = values.iter().map(|value| value.as_deref().map(Object));
    Ok(PyList::new(py, objects)?.into_any())
}

/// The keys, packed into one buffer.
pub(crate) fn pack(keys: &Bound<'_, PyAny>) -> PyResult<Keys> {
    if !keys.is_exact_instance_of::<PyList>() {
        refuse_one(keys, "keys")?;
    }
    let mut packed = Keys::with_capacity(keys.len().unwrap_or(0));
    let mut held = Vec::with_capacity(HOLD);
    if let Ok(list) = keys.cast_exact::<PyList>() {
        // Indexing a list costs a third of its iterator.
        pack_from(&mut list.iter().map(Ok), &mut held, &mut packed)?;
    } else {
        pack_from(&mut keys.try_iter()?, &mut held, &mut packed)?;
    }
    Ok(packed)
}

fn pack_from<'py>(
    keys: &mut impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
    held: &mut Vec<Bound<'py, PyAny>>,
    packed: &mut Keys,
) -> PyResult<()> {
    let mut signals_at = KEYS_BETWEEN_SIGNALS;
    loop {
        hold(keys, held)?;
        let Some(first) = held.first() else { return Ok(()) };
        // Taking a million keys from Python takes a tenth of a second.
        if packed.len() >= signals_at {
            first.py().check_signals()?;
            signals_at = packed.len() + KEYS_BETWEEN_SIGNALS;
        }
        for key in held.iter() {
            packed.push(row(key, "keys", packed.len())?.as_ref());
        }
    }
}

fn look_up<S: Source>(py: Python<'_>, source: &S, keys: Keys) -> PyResult<Vec<Option<Value>>> {
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
