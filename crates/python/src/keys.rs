//! `siltstone.keys`: tuples as keys. Converts Python values to parts of a key and back. The
//! encoding belongs to the crate `siltstone-schema` (RFC 0032).

use crate::bytes::BytesArg;
use crate::error::{self, Raise, exception};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDate, PyDateTime, PyFloat, PyInt, PyMemoryView, PyString,
    PyTuple, PyType,
};
use siltstone::{Error, Result};
use siltstone_schema::tuple::{Decimal, Part, Parts, check_key, put_part, range_of};

/// `date.toordinal` of 1970-01-01.
pub(crate) const ORDINAL_OF_1970: i32 = 719_163;
/// Bits of the largest int that a key can hold; a larger int is refused before it is copied.
const MAX_INT_BITS: u64 = 255 * 8;
/// The types that a part may have.
const TYPES: &str = "None, bool, int, float, Decimal, date, datetime, str, bytes and UUID";

/// Python types and constants that the conversion needs.
pub(crate) struct Imported {
    pub(crate) decimal: Py<PyType>,
    uuid: Py<PyType>,
    pub(crate) date: Py<PyType>,
    pub(crate) timedelta: Py<PyType>,
    /// The Unix epoch in UTC, and one microsecond.
    pub(crate) epoch: Py<PyAny>,
    pub(crate) micro: Py<PyAny>,
}

pub(crate) fn imported(py: Python<'_>) -> PyResult<&'static Imported> {
    static IMPORTED: PyOnceLock<Imported> = PyOnceLock::new();
    IMPORTED.get_or_try_init(py, || {
        let class = |module: &str, name: &str| -> PyResult<Py<PyType>> {
            Ok(py.import(module)?.getattr(name)?.cast_into::<PyType>()?.unbind())
        };
        let utc = py.import("datetime")?.getattr("timezone")?.getattr("utc")?;
        let datetime = class("datetime", "datetime")?;
        let timedelta = class("datetime", "timedelta")?;
        Ok(Imported {
            decimal: class("decimal", "Decimal")?,
            uuid: class("uuid", "UUID")?,
            date: class("datetime", "date")?,
            epoch: datetime.bind(py).call_method1("fromtimestamp", (0, utc))?.unbind(),
            micro: timedelta.bind(py).call1((0, 0, 1))?.unbind(),
            timedelta,
        })
    })
}

/// Adds the functions of this module to the compiled module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(pack, module)?)?;
    module.add_function(wrap_pyfunction!(unpack, module)?)?;
    module.add_function(wrap_pyfunction!(prefix_range, module)?)
}

/// Packs `parts` into a key. Keys have the order of their tuples, part by part, and `unpack`
/// returns the parts.
///
/// =====================  ===============================================================
/// ``None``               before everything else
/// ``bool``               False, True
/// ``int``                by value; up to 255 bytes, so below 2 ** 2040 in magnitude
/// ``float``              by value; -0.0 is 0.0; NaN is the largest, and all NaN are equal
/// ``Decimal``            by value, so 1.5 equals 1.50; NaN is the largest
/// ``date``               by day
/// ``datetime``           by instant, to the microsecond; it must be aware
/// ``str``                by code points
/// ``bytes``              by their bytes; a bytearray or a memoryview is accepted too
/// ``UUID``               by its bytes
/// =====================  ===============================================================
///
/// Types are ordered before values, in the order of this table: every int sorts before every float.
/// ``1``, ``1.0``, ``True`` and ``Decimal(1)`` are therefore four different parts; use one type for
/// each position of your keys.
///
/// :raises Invalid: if there are no parts, the key is longer than 65,535 bytes, a part is a
///     signalling NaN, or an int is too large.
/// :raises TypeError: if a part has another type, or a datetime has no time zone.
#[pyfunction]
#[pyo3(signature = (*parts))]
fn pack<'py>(py: Python<'py>, parts: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyBytes>> {
    let key = packed(parts)?;
    check_key(&key).raise(py)?;
    Ok(PyBytes::new(py, &key))
}

/// Returns the parts from which `pack` made `key`. They are equal to the packed parts, but not
/// always identical: a Decimal is normalized as by `Decimal.normalize`, a datetime is in UTC, a
/// bytearray becomes bytes, and a NumPy number becomes an int or a float.
///
/// :raises Corruption: if `key` was not made by `pack`.
#[pyfunction]
#[pyo3(signature = (key, /))]
fn unpack<'py>(py: Python<'py>, key: BytesArg<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let parts = Parts::new(key.as_ref()).raise(py)?;
    let values: PyResult<Vec<_>> = parts.map(|part| value(py, part.raise(py)?)).collect();
    PyTuple::new(py, values?)
}

/// Returns the first key and the exclusive end of all keys that begin with `parts`, for `start`
/// and `end` of `scan`, `delete_range` and `approximate_size`. Without parts the range covers all
/// keys that `pack` makes.
///
/// Only whole parts match: ``prefix_range("DE")`` covers ``("DE", 7)`` and ``("DE",)``, but not
/// ``("DEN",)``.
///
/// :raises Invalid, TypeError: as for `pack`.
#[pyfunction]
#[pyo3(signature = (*parts))]
fn prefix_range<'py>(
    py: Python<'py>,
    parts: &Bound<'py, PyTuple>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (start, end) = range_of(packed(parts)?).raise(py)?;
    Ok((PyBytes::new(py, &start), PyBytes::new(py, &end)))
}

/// The concatenated encodings of the parts.
fn packed(parts: &Bound<'_, PyTuple>) -> PyResult<Vec<u8>> {
    let mut key = Vec::with_capacity(64);
    for (position, part) in parts.iter().enumerate() {
        put(&mut key, &part, position)?;
    }
    Ok(key)
}

fn put(key: &mut Vec<u8>, part: &Bound<'_, PyAny>, position: usize) -> PyResult<()> {
    let py = part.py();
    let put = |key: &mut Vec<u8>, part: Part<'_>| -> PyResult<()> {
        let put: Result<()> = put_part(key, &part).map_err(|error| error.with("part", position));
        put.raise(py)
    };
    // In Python a bool is also an int, and a datetime is also a date.
    if let Ok(text) = part.cast::<PyString>() {
        return put(key, Part::Text(text.to_str()?.into()));
    }
    if part.is_none() {
        return put(key, Part::None);
    }
    if let Ok(truth) = part.cast::<PyBool>() {
        return put(key, Part::Bool(truth.is_true()));
    }
    if let Ok(number) = part.cast::<PyInt>() {
        return put(key, int(number.as_any())?);
    }
    if let Ok(bytes) = part.cast::<PyBytes>() {
        return put(key, Part::Bytes(bytes.as_bytes().into()));
    }
    if let Ok(number) = part.cast::<PyFloat>() {
        return put(key, Part::Float(number.value()));
    }
    if part.cast::<PyDateTime>().is_ok() {
        return put(key, Part::Moment(instant(part, position)?));
    }
    if part.cast::<PyDate>().is_ok() {
        let ordinal: i32 = part.call_method0("toordinal")?.extract()?;
        return put(key, Part::Date(ordinal - ORDINAL_OF_1970));
    }
    let imported = imported(py)?;
    if part.is_instance(imported.uuid.bind(py))? {
        return put(key, Part::Uuid(part.getattr("bytes")?.extract()?));
    }
    if part.is_instance(imported.decimal.bind(py))? {
        return put(key, Part::Decimal(decimal(part, position)?));
    }
    if part.is_instance_of::<PyByteArray>() || part.is_instance_of::<PyMemoryView>() {
        let bytes: BytesArg<'_> = part.extract()?;
        return put(key, Part::Bytes(bytes.as_ref().into()));
    }
    // NumPy integers are not ints, but have `__index__`.
    if part.hasattr("__index__")? {
        return put(key, int(&part.call_method0("__index__")?)?);
    }
    // The other scalars of NumPy: `item` gives a Python object.
    if part.hasattr("dtype")? && part.hasattr("item")? {
        let item = part.call_method0("item")?;
        if !item.hasattr("dtype")? {
            return self::put(key, &item, position);
        }
    }
    let given = part.get_type().qualname()?;
    let text = format!("parts[{position}]: a key is made of {TYPES}, not of {given}");
    Err(PyTypeError::new_err(text))
}

fn int(number: &Bound<'_, PyAny>) -> PyResult<Part<'static>> {
    if let Ok(small) = number.extract::<i64>() {
        return Ok(Part::Int(small));
    }
    let bits: u64 = number.call_method0("bit_length")?.extract()?;
    if bits > MAX_INT_BITS {
        let text = format!(
            "an int in a key has at most {MAX_INT_BITS} bits, this one has {bits}: hash it, or \
             put it as text"
        );
        return Err(error::invalid(number.py(), text));
    }
    let magnitude = number.abs()?.call_method1("to_bytes", (bits.div_ceil(8), "big"))?;
    let magnitude: Vec<u8> = magnitude.extract()?;
    Ok(Part::BigInt { negative: number.lt(0)?, magnitude: magnitude.into() })
}

/// Microseconds since 1970, computed in integers, because a float would be imprecise.
fn instant(at: &Bound<'_, PyAny>, position: usize) -> PyResult<i64> {
    let py = at.py();
    if at.call_method0("utcoffset")?.is_none() {
        return Err(PyTypeError::new_err(format!(
            "parts[{position}] has no time zone, so its moment is unknown: give it a time zone, \
             as in datetime.now(timezone.utc); .astimezone() takes it as local time"
        )));
    }
    // A pandas Timestamp is a datetime with nanoseconds.
    let finer = if at.is_exact_instance_of::<PyDateTime>() {
        0
    } else {
        at.getattr_opt("nanosecond")?.map_or(Ok(0), |more| more.extract::<i64>())?
    };
    if finer != 0 {
        let text = format!(
            "parts[{position}] has nanoseconds, and an instant in a key has microseconds: round \
             it, or put the nanoseconds since 1970 as an int"
        );
        return Err(error::invalid(py, text));
    }
    let imported = imported(py)?;
    at.sub(imported.epoch.bind(py))?.floor_div(imported.micro.bind(py))?.extract()
}

fn decimal(number: &Bound<'_, PyAny>, position: usize) -> PyResult<Decimal> {
    let (sign, digits, exponent): (u8, Vec<u8>, Bound<'_, PyAny>) =
        number.call_method0("as_tuple")?.extract()?;
    let negative = sign == 1;
    let Ok(letter) = exponent.cast::<PyString>() else {
        return Ok(Decimal::Finite { negative, digits, exponent: exponent.extract()? });
    };
    match letter.to_str()? {
        "F" => Ok(Decimal::Infinite { negative }),
        "n" => Ok(Decimal::Nan),
        _ => {
            let text = format!("parts[{position}] is a signalling NaN, which has no place");
            Err(error::invalid(number.py(), text))
        }
    }
}

/// The Python value of a part.
fn value<'py>(py: Python<'py>, part: Part<'_>) -> PyResult<Bound<'py, PyAny>> {
    let imported = imported(py)?;
    Ok(match part {
        Part::None => py.None().into_bound(py),
        Part::Bool(truth) => PyBool::new(py, truth).to_owned().into_any(),
        Part::Int(number) => number.into_pyobject(py)?.into_any(),
        Part::BigInt { negative, magnitude } => {
            let magnitude = PyBytes::new(py, &magnitude);
            let number = py.get_type::<PyInt>().call_method1("from_bytes", (magnitude, "big"))?;
            if negative { number.neg()? } else { number }
        }
        Part::Float(number) => PyFloat::new(py, number).into_any(),
        Part::Decimal(number) => decimal_value(py, number)?,
        Part::Date(days) => {
            imported.date.bind(py).call_method1("fromordinal", (days + ORDINAL_OF_1970,))?
        }
        Part::Moment(micros) => {
            let since = imported.timedelta.bind(py).call1((0, 0, micros))?;
            imported.epoch.bind(py).add(since)?
        }
        Part::Text(text) => PyString::new(py, &text).into_any(),
        Part::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
        Part::Uuid(bytes) => imported.uuid.bind(py).call1((py.None(), PyBytes::new(py, &bytes)))?,
    })
}

fn decimal_value<'py>(py: Python<'py>, number: Decimal) -> PyResult<Bound<'py, PyAny>> {
    let class = imported(py)?.decimal.bind(py);
    match number {
        Decimal::Nan => class.call1(("NaN",)),
        Decimal::Infinite { negative: false } => class.call1(("Infinity",)),
        Decimal::Infinite { negative: true } => class.call1(("-Infinity",)),
        Decimal::Finite { negative, digits, exponent } => {
            let digits = if digits.is_empty() { vec![0] } else { digits };
            let digits = PyTuple::new(py, digits.iter().map(|digit| u32::from(*digit)))?;
            // Python's exponents have a range below 64 bits, so `pack` never encodes one beyond it.
            class.call1(((u8::from(negative), digits, exponent),)).map_err(|_| {
                let text = "this key was not made of parts by pack: no Decimal has this exponent";
                exception(py, &Error::corruption(text).with("exponent", exponent))
            })
        }
    }
}
