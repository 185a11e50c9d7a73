//! Python values as columns of a type, and back: dicts are converted to Arrow data and then handled
//! like it.

mod nested;

use super::{as_dict, type_of};
use crate::bytes::{BytesArg, to_python};
use crate::error::{Raise, exception};
use crate::keys::{ORDINAL_OF_1970, imported};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray,
};
use arrow_schema::{Field, Schema, TimeUnit};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDate, PyDateTime, PyDict, PyFloat, PyInt, PyString, PyTuple};
use siltstone::Error;
use siltstone_schema::ColumnType;
use std::sync::Arc;

type Cell<'py> = Option<Bound<'py, PyAny>>;

/// Dicts as a record batch of the first `needed` columns of `schema`, of which the first `keys`
/// belong to the key. A value column that is missing in a dict is null in its row.
///
/// # Errors
/// Invalid if a dict lacks a key column, or, if all columns are needed, if it has a name that is
/// not a column; TypeError if a row is not a dict; the errors of [`column_of`].
pub(super) fn batch_of_dicts(
    rows: &Bound<'_, PyAny>,
    schema: &Schema,
    (keys, needed): (usize, usize),
) -> PyResult<RecordBatch> {
    let py = rows.py();
    if rows.is_instance_of::<PyDict>() || rows.is_none() {
        let kind = rows.get_type().qualname()?;
        let text = format!("rows is a list of dicts, or Arrow data, not one {kind}: [{{…}}]");
        return Err(PyTypeError::new_err(text));
    }
    let rows: Vec<Bound<'_, PyAny>> = rows.try_iter()?.collect::<PyResult<_>>()?;
    let mut fields = Vec::with_capacity(needed);
    let mut columns = Vec::with_capacity(needed);
    let mut known = vec![0; rows.len()];
    for (place, field) in schema.fields().iter().take(needed).enumerate() {
        let mut cells = Vec::with_capacity(rows.len());
        for (at, row) in rows.iter().enumerate() {
            let found = as_dict(row, at)?.get_item(field.name())?;
            if found.is_none() && place < keys {
                return Err(lacks_key(row, at, field.name()));
            }
            if let Some(known) = known.get_mut(at).filter(|_| found.is_some()) {
                *known += 1;
            }
            cells.push(found.filter(|value| !value.is_none()));
        }
        let column_type = type_of(schema, place).raise(py)?;
        let convert = if place < keys { key_column_of } else { column_of };
        let column = convert(&column_type, field.name(), &cells)?;
        // The encoder checks for nulls and has better error messages.
        fields.push(Field::new(field.name(), column.data_type().clone(), true));
        columns.push(column);
    }
    if needed == schema.fields().len() {
        for (at, known) in known.iter().enumerate() {
            refuse_others(&rows, at, *known, schema)?;
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(|error| Error::internal("dicts are no record batch").caused_by(error))
        .raise(py)
}

/// Without this key column the dict would mean another row: the one with null in the column.
fn lacks_key(row: &Bound<'_, PyAny>, at: usize, column: &str) -> PyErr {
    let text = "a row lacks a column of the key: name it, with None where it is null";
    let mut error = Error::invalid(text).with("column", column).with("row", at);
    if let Ok(names) = as_dict(row, at).and_then(|row| row.keys().repr()) {
        error = error.with("given", names);
    }
    exception(row.py(), &error)
}

/// # Errors
/// Invalid if the row has a name that is not a column.
fn refuse_others(
    rows: &[Bound<'_, PyAny>],
    at: usize,
    known: usize,
    schema: &Schema,
) -> PyResult<()> {
    let Some(row) = rows.get(at) else { return Ok(()) };
    let row = as_dict(row, at)?;
    if row.len() == known {
        return Ok(());
    }
    for name in row.keys() {
        let text = name.str()?.to_cow()?.into_owned();
        if schema.column_with_name(&text).is_none() {
            let error = Error::invalid("the table has no such column").with("column", text);
            return Err(exception(row.py(), &error.with("row", at)));
        }
    }
    Ok(())
}

/// The values as a column of the key. A rounded value could be the key of another row, so none is
/// rounded.
///
/// # Errors
/// As [`column_of`]; Invalid for a float that a 32-bit float of the column does not equal.
pub(super) fn key_column_of(
    column_type: &ColumnType,
    name: &str,
    cells: &[Cell<'_>],
) -> PyResult<ArrayRef> {
    match column_type {
        ColumnType::Float { bits: 32 } => {
            CellPlace { name, column_type }.made::<Float32Type>(cells, narrowed_exactly)
        }
        _ => column_of(column_type, name, cells),
    }
}

/// The values as a column.
///
/// # Errors
/// TypeError for a value of another type, with column and row; Invalid for a value that the type
/// cannot hold.
fn column_of(column_type: &ColumnType, name: &str, cells: &[Cell<'_>]) -> PyResult<ArrayRef> {
    let place = CellPlace { name, column_type };
    macro_rules! number {
        ($of:ty) => {
            place.made::<$of>(cells, |cell| {
                refuse_boolean(cell)?;
                cell.extract::<<$of as ArrowPrimitiveType>::Native>()
            })?
        };
    }
    Ok(match column_type {
        ColumnType::Boolean => {
            // Also the bool of NumPy.
            let values = place.each(cells, |cell| cell.extract::<bool>())?;
            Arc::new(BooleanArray::from(values))
        }
        ColumnType::Int { bits: 8, signed: true } => number!(Int8Type),
        ColumnType::Int { bits: 16, signed: true } => number!(Int16Type),
        ColumnType::Int { bits: 32, signed: true } => number!(Int32Type),
        ColumnType::Int { signed: true, .. } => number!(Int64Type),
        ColumnType::Int { bits: 8, .. } => number!(UInt8Type),
        ColumnType::Int { bits: 16, .. } => number!(UInt16Type),
        ColumnType::Int { bits: 32, .. } => number!(UInt32Type),
        ColumnType::Int { .. } => number!(UInt64Type),
        ColumnType::Float { bits: 32 } => place.made::<Float32Type>(cells, narrowed)?,
        ColumnType::Float { .. } => place.made::<Float64Type>(cells, float)?,
        ColumnType::Date => place.made::<Date32Type>(cells, day)?,
        ColumnType::Timestamp { unit, zone } => {
            let count = |cell: &Bound<'_, PyAny>| count_of(cell, *unit, zone.is_some());
            match unit {
                TimeUnit::Second => place.made::<TimestampSecondType>(cells, count)?,
                TimeUnit::Millisecond => place.made::<TimestampMillisecondType>(cells, count)?,
                TimeUnit::Microsecond => place.made::<TimestampMicrosecondType>(cells, count)?,
                TimeUnit::Nanosecond => place.made::<TimestampNanosecondType>(cells, count)?,
            }
        }
        ColumnType::Decimal { scale, .. } => {
            place.made::<Decimal128Type>(cells, |cell| unscaled(cell, *scale))?
        }
        ColumnType::String => {
            let texts =
                place.each(cells, |cell| Ok(cell.cast::<PyString>()?.to_str()?.to_owned()))?;
            Arc::new(StringArray::from(texts))
        }
        ColumnType::Binary => {
            let bytes = place.each(cells, bytes)?;
            Arc::new(BinaryArray::from_iter(bytes))
        }
        ColumnType::FixedBinary(length) => place.fixed(*length, cells)?,
        ColumnType::List(_) | ColumnType::Struct(_) | ColumnType::Map { .. } => {
            nested::column_of(&place, cells)?
        }
    })
}

/// The column and the rows of a value, for error texts.
struct CellPlace<'a> {
    name: &'a str,
    column_type: &'a ColumnType,
}

impl CellPlace<'_> {
    fn each<'py, T>(
        &self,
        cells: &[Cell<'py>],
        convert: impl Fn(&Bound<'py, PyAny>) -> PyResult<T>,
    ) -> PyResult<Vec<Option<T>>> {
        let one = |(row, cell): (usize, &Cell<'py>)| {
            let Some(cell) = cell else { return Ok(None) };
            match convert(cell) {
                Ok(value) => Ok(Some(value)),
                // Looked at last, because few cells are missing values of pandas.
                Err(_) if is_missing(cell) => Ok(None),
                Err(error) => Err(self.wrong(row, cell, &error)),
            }
        };
        cells.iter().enumerate().map(one).collect()
    }

    /// The error for a wrong value: for its type, or for the value itself.
    fn wrong(&self, row: usize, cell: &Bound<'_, PyAny>, error: &PyErr) -> PyErr {
        let py = cell.py();
        let (name, column_type) = (self.name, self.column_type);
        if error.is_instance_of::<PyTypeError>(py) {
            let kind = cell.get_type().qualname().map(|kind| kind.to_string()).unwrap_or_default();
            let why = error.value(py);
            let text = format!(
                "rows[{row}]: the column {name} is {column_type}, which {kind} is not: {why}"
            );
            return PyTypeError::new_err(text);
        }
        let error = Error::invalid("a value is not one of its column's type")
            .with("column", name)
            .with("row", row)
            .with("type", column_type)
            .with("why", error.value(py));
        exception(py, &error)
    }

    fn made<'py, T: ArrowPrimitiveType>(
        &self,
        cells: &[Cell<'py>],
        convert: impl Fn(&Bound<'py, PyAny>) -> PyResult<T::Native>,
    ) -> PyResult<ArrayRef> {
        let values = self.each(cells, convert)?;
        let array = PrimitiveArray::<T>::from_iter(values);
        Ok(Arc::new(array.with_data_type(self.column_type.arrow())))
    }

    fn fixed<'py>(&self, length: i32, cells: &[Cell<'py>]) -> PyResult<ArrayRef> {
        let wanted = usize::try_from(length).unwrap_or_default();
        let values = self.each(cells, |cell| {
            let bytes = bytes(cell)?;
            let text = || PyOverflowError::new_err(format!("{} bytes", bytes.len()));
            if bytes.len() == wanted { Ok(bytes) } else { Err(text()) }
        })?;
        let array =
            FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.into_iter(), length);
        Ok(Arc::new(array.map_err(|error| PyOverflowError::new_err(error.to_string()))?))
    }
}

/// Whether the value is `NA` or `NaT` of pandas, which mean null.
fn is_missing(cell: &Bound<'_, PyAny>) -> bool {
    let class = cell.get_type();
    let is_of = |name: &str| class.name().is_ok_and(|found| found == name);
    let of_pandas = || {
        let module = class.module();
        module.is_ok_and(|name| name.to_cow().is_ok_and(|name| name.starts_with("pandas.")))
    };
    (is_of("NAType") || is_of("NaTType")) && of_pandas()
}

/// The nearest 32-bit float, as in other conversions from Python's floats; an error if the value is
/// out of range.
fn narrowed(cell: &Bound<'_, PyAny>) -> PyResult<f32> {
    let wide = float(cell)?;
    let narrow = wide as f32;
    if narrow.is_infinite() && wide.is_finite() {
        return Err(PyOverflowError::new_err("it is beyond what 32 bits hold"));
    }
    // The float of a program is rounded here; a number of another type is not a float that was.
    if f64::from(narrow) != wide && !wide.is_nan() && !cell.is_instance_of::<PyFloat>() {
        return Err(rounded());
    }
    Ok(narrow)
}

/// A 32-bit float that equals the value.
fn narrowed_exactly(cell: &Bound<'_, PyAny>) -> PyResult<f32> {
    let narrow = narrowed(cell)?;
    let wide = float(cell)?;
    if f64::from(narrow) == wide || wide.is_nan() {
        return Ok(narrow);
    }
    Err(PyOverflowError::new_err(
        "no 32-bit float equals this number, and a rounded one could be the key of another row: \
         round it yourself, as with float(numpy.float32(x)), or declare the column as float64",
    ))
}

/// A float, or a number that equals one, such as a small int.
fn float(cell: &Bound<'_, PyAny>) -> PyResult<f64> {
    if let Ok(float) = cell.cast::<PyFloat>() {
        return Ok(float.value());
    }
    refuse_boolean(cell)?;
    let float: f64 = cell.extract()?;
    // NumPy compares its integers with a float as floats, so the integer of Python is compared. The
    // method of an array or a tensor of floats raises.
    let index = cell.getattr_opt(intern!(cell.py(), "__index__"))?;
    let exact = index.and_then(|index| index.call0().ok()).unwrap_or_else(|| cell.clone());
    match float.is_nan() || exact.eq(float)? {
        true => Ok(float),
        false => Err(rounded()),
    }
}

#[cold]
fn rounded() -> PyErr {
    PyOverflowError::new_err(
        "no float of the column is exactly this number: round it with float(), or declare the \
         column as int64 or decimal",
    )
}

/// A bool of Python is an int, but a column of numbers takes none, as it takes no Arrow column of
/// booleans.
fn refuse_boolean(cell: &Bound<'_, PyAny>) -> PyResult<()> {
    // Most cells are numbers of Python.
    if cell.is_exact_instance_of::<PyInt>() {
        return Ok(());
    }
    let class = cell.get_type();
    let is_boolean = cell.is_instance_of::<PyBool>()
        || class.module()?.to_cow()? == "numpy"
            && matches!(class.name()?.to_cow()?.as_ref(), "bool" | "bool_");
    match is_boolean {
        false => Ok(()),
        true => Err(PyTypeError::new_err("it takes a number: convert it, as with int()")),
    }
}

fn bytes(cell: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    Ok(cell.extract::<BytesArg<'_>>()?.as_ref().to_vec())
}

fn day(cell: &Bound<'_, PyAny>) -> PyResult<i32> {
    if cell.cast::<PyDateTime>().is_ok() {
        return Err(PyTypeError::new_err("it has a time; take its date()"));
    }
    cell.cast::<PyDate>()?;
    let ordinal: i32 = cell.call_method0("toordinal")?.extract()?;
    Ok(ordinal - ORDINAL_OF_1970)
}

/// Units since 1970, from a datetime, which must be aware or not like the column. A number is
/// refused, as Arrow data of numbers is: it does not say in which unit it counts, or from when.
fn count_of(cell: &Bound<'_, PyAny>, unit: TimeUnit, aware: bool) -> PyResult<i64> {
    if cell.cast::<PyDateTime>().is_err() {
        let text = if cell.is_instance_of::<PyInt>() {
            "it takes a datetime, because a number does not say its unit: convert it, as with \
             datetime.fromtimestamp(seconds, timezone.utc)"
        } else {
            "it takes a datetime"
        };
        return Err(PyTypeError::new_err(text));
    }
    let py = cell.py();
    if cell.getattr("tzinfo")?.is_none() == aware {
        let text = if aware {
            "it has no time zone, so its moment is unknown: give it a time zone, as in \
             datetime.now(timezone.utc)"
        } else {
            "it has a time zone, and the column holds times of a clock: take it off with \
             replace(tzinfo=None)"
        };
        return Err(PyTypeError::new_err(text));
    }
    let imported = imported(py)?;
    let mut epoch = imported.epoch.bind(py).clone();
    if !aware {
        let none = PyDict::new(py);
        none.set_item("tzinfo", py.None())?;
        epoch = epoch.call_method("replace", (), Some(&none))?;
    }
    let micros: i64 = cell.sub(epoch)?.floor_div(imported.micro.bind(py))?.extract()?;
    let nanos = i128::from(micros) * 1000 + nanos_behind(cell)?;
    let size: i128 = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1,
    };
    if nanos % size != 0 {
        return Err(PyOverflowError::new_err("it is finer than the column: round it"));
    }
    i64::try_from(nanos / size).map_err(|_| PyOverflowError::new_err("it is beyond 64 bits"))
}

/// A pandas Timestamp is a datetime with nanoseconds.
fn nanos_behind(cell: &Bound<'_, PyAny>) -> PyResult<i128> {
    if cell.is_exact_instance_of::<PyDateTime>() {
        return Ok(0);
    }
    cell.getattr_opt("nanosecond")?.map_or(Ok(0), |more| more.extract())
}

/// A Decimal or an int as an unscaled integer, in units of the last digit of the column.
fn unscaled(cell: &Bound<'_, PyAny>, scale: i8) -> PyResult<i128> {
    let py = cell.py();
    refuse_boolean(cell)?;
    let class = imported(py)?.decimal.bind(py);
    let number = match cell.is_instance(class)? {
        true => cell.clone(),
        false if cell.is_instance_of::<PyInt>() => class.call1((cell,))?,
        false => return Err(PyTypeError::new_err("it takes a decimal.Decimal, or an int")),
    };
    let (sign, digits, exponent): (u8, Vec<u8>, Bound<'_, PyAny>) =
        number.call_method0("as_tuple")?.extract()?;
    let beyond = || PyOverflowError::new_err("it has more digits than the column");
    let exponent: i64 = exponent.extract().map_err(|_| beyond())?;
    let mut value: i128 = 0;
    let mut push = |digit: u8| -> PyResult<()> {
        let next = value.checked_mul(10).and_then(|value| value.checked_add(digit.into()));
        value = next.ok_or_else(beyond)?;
        Ok(())
    };
    let shift = exponent.saturating_add(scale.into());
    let dropped = usize::try_from(shift.saturating_neg()).unwrap_or_default().min(digits.len());
    let (kept, lost) = digits.split_at(digits.len() - dropped);
    if lost.iter().any(|digit| *digit != 0) {
        return Err(PyOverflowError::new_err("it has more digits behind the point: round it"));
    }
    kept.iter().try_for_each(|digit| push(*digit))?;
    // A zero may have any exponent.
    if kept.iter().any(|digit| *digit != 0) {
        (0..shift.clamp(0, 40)).try_for_each(|_| push(0))?;
    }
    Ok(if sign == 1 { -value } else { value })
}

/// A row as a dict.
///
/// # Errors
/// Invalid if a timestamp does not fit a datetime.
pub(super) fn dict_of_row<'py>(py: Python<'py>, row: &RecordBatch) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let schema = row.schema_ref();
    for (place, (field, array)) in schema.fields().iter().zip(row.columns()).enumerate() {
        let column_type = type_of(schema, place).raise(py)?;
        dict.set_item(field.name(), cell_of(py, &column_type, array)?)?;
    }
    Ok(dict)
}

/// The first value of a column, or None.
fn cell_of<'py>(
    py: Python<'py>,
    column_type: &ColumnType,
    array: &ArrayRef,
) -> PyResult<Bound<'py, PyAny>> {
    match array.is_null(0) {
        true => Ok(py.None().into_bound(py)),
        false => value_of(py, column_type, array),
    }
}

/// The first value of a column; the value is not null.
fn value_of<'py>(
    py: Python<'py>,
    column_type: &ColumnType,
    array: &ArrayRef,
) -> PyResult<Bound<'py, PyAny>> {
    macro_rules! number {
        ($of:ty) => {
            array.as_primitive::<$of>().value(0).into_pyobject(py)?.into_any()
        };
    }
    Ok(match column_type {
        ColumnType::Boolean => PyBool::new(py, array.as_boolean().value(0)).to_owned().into_any(),
        ColumnType::Int { bits: 8, signed: true } => number!(Int8Type),
        ColumnType::Int { bits: 16, signed: true } => number!(Int16Type),
        ColumnType::Int { bits: 32, signed: true } => number!(Int32Type),
        ColumnType::Int { signed: true, .. } => number!(Int64Type),
        ColumnType::Int { bits: 8, .. } => number!(UInt8Type),
        ColumnType::Int { bits: 16, .. } => number!(UInt16Type),
        ColumnType::Int { bits: 32, .. } => number!(UInt32Type),
        ColumnType::Int { .. } => number!(UInt64Type),
        ColumnType::Float { bits: 32 } => {
            PyFloat::new(py, array.as_primitive::<Float32Type>().value(0).into()).into_any()
        }
        ColumnType::Float { .. } => number!(Float64Type),
        ColumnType::Date => {
            let days = array.as_primitive::<Date32Type>().value(0);
            let date = imported(py)?.date.bind(py);
            date.call_method1("fromordinal", (i64::from(days) + i64::from(ORDINAL_OF_1970),))
                .map_err(|_| beyond(py, "a date"))?
        }
        ColumnType::Timestamp { unit, zone } => {
            let count = match unit {
                TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(0),
                TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().value(0),
                TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(0),
                TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().value(0),
            };
            moment(py, count, *unit, zone.is_some())?
        }
        ColumnType::Decimal { scale, .. } => {
            let unscaled = array.as_primitive::<Decimal128Type>().value(0);
            let digits = unscaled.unsigned_abs().to_string();
            let digits = PyTuple::new(py, digits.bytes().map(|digit| u32::from(digit - b'0')))?;
            let parts = (u8::from(unscaled < 0), digits, -i32::from(*scale));
            imported(py)?.decimal.bind(py).call1((parts,))?
        }
        ColumnType::String => PyString::new(py, array.as_string::<i32>().value(0)).into_any(),
        ColumnType::Binary => to_python(py, array.as_binary::<i32>().value(0))?.into_any(),
        ColumnType::FixedBinary(_) => {
            PyBytes::new(py, array.as_fixed_size_binary().value(0)).into_any()
        }
        ColumnType::List(_) | ColumnType::Struct(_) | ColumnType::Map { .. } => {
            nested::value_of(py, column_type, array)?
        }
    })
}

/// A timestamp as a datetime, in UTC if the column has a time zone. A timestamp with a fraction of
/// a microsecond, or outside the years of a datetime, is refused rather than rounded.
fn moment(py: Python<'_>, count: i64, unit: TimeUnit, aware: bool) -> PyResult<Bound<'_, PyAny>> {
    let micros = match unit {
        TimeUnit::Second => i128::from(count) * 1_000_000,
        TimeUnit::Millisecond => i128::from(count) * 1000,
        TimeUnit::Microsecond => count.into(),
        TimeUnit::Nanosecond if count % 1000 != 0 => return Err(beyond(py, "a datetime")),
        TimeUnit::Nanosecond => i128::from(count) / 1000,
    };
    let imported = imported(py)?;
    let since = imported.timedelta.bind(py).call1((0, 0, micros));
    let at = since.and_then(|since| imported.epoch.bind(py).add(since));
    let at = at.map_err(|_| beyond(py, "a datetime"))?;
    if aware {
        return Ok(at);
    }
    let none = PyDict::new(py);
    none.set_item("tzinfo", py.None())?;
    at.call_method("replace", (), Some(&none))
}

fn beyond(py: Python<'_>, what: &str) -> PyErr {
    let text = format!("a value is no Python value: {what} does not hold it; read it as Arrow");
    exception(py, &Error::invalid(text))
}
