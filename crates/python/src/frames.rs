//! Arrow data passed by callers: tables, frames and streams of any library. Handles columns without
//! a type and errors of the caller's stream in one place for all methods.

use crate::error::{self, CallerException};
use crate::nesting;
use crate::scan::Scan;
use crate::sliced::{self, GuardedReader, guarded};
use arrow_array::{ArrayRef, NullArray, RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::exceptions::{PyException, PyStopIteration, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyList};
use pyo3_arrow::input::{AnyArray, AnyRecordBatch};
use pyo3_arrow::{PyRecordBatch, PySchema};
use siltstone::Error;
use std::sync::Arc;

/// Record batches passed by the caller.
type IncomingBatches = Box<dyn RecordBatchReader + Send>;

/// Whether the object is a column of Arrow data. A scan is a stream of keys and values in Arrow's
/// form, but where a sequence of keys or values is expected, it yields them one by one.
pub(crate) fn is_arrow_column(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(is_arrow(object)? && !object.is_instance_of::<Scan>())
}

/// Whether the object supports the Arrow PyCapsule interface.
///
/// # Errors
/// TypeError for a LazyFrame of polars, which has a method to get its rows.
pub(crate) fn is_arrow(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    // Looking up a missing attribute costs an exception; a list has neither attribute.
    if object.is_exact_instance_of::<PyList>() {
        return Ok(false);
    }
    if has_capsule(object)? || is_column_of_pandas(object) {
        return Ok(true);
    }
    if is_of_polars(object) && object.hasattr("collect")? {
        let text = "a LazyFrame has no rows before it is collected: pass frame.collect()";
        return Err(PyTypeError::new_err(text));
    }
    Ok(false)
}

fn has_capsule(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    Ok(object.hasattr(intern!(py, "__arrow_c_array__"))?
        || object.hasattr(intern!(py, "__arrow_c_stream__"))?)
}

/// Whether the object is a Series or an Index of pandas that pyarrow can convert. Older versions of
/// pandas do not export them.
fn is_column_of_pandas(object: &Bound<'_, PyAny>) -> bool {
    is_of(object, "pandas") && object.hasattr("dtype").unwrap_or_default() && {
        object.py().import("pyarrow").is_ok()
    }
}

/// Arrow data as record batches.
///
/// # Errors
/// TypeError for an object without columns, such as a single array.
pub(crate) fn batches_of(data: &Bound<'_, PyAny>) -> PyResult<IncomingBatches> {
    let are_flat = nesting::check(data)?;
    if let Some(reader) = PyarrowReader::of(data, are_flat)? {
        return Ok(Box::new(GuardedReader(reader)));
    }
    let batches = imported(data)?;
    let schema = batches.schema();
    if !is_of_polars(data) || !schema.fields().iter().any(|field| is_untyped(field)) {
        return Ok(batches);
    }
    without_untyped(data, &schema)
}

fn imported(data: &Bound<'_, PyAny>) -> PyResult<IncomingBatches> {
    let import = || data.extract::<AnyRecordBatch>().and_then(AnyRecordBatch::into_reader);
    let reader = guarded(data.py(), import)?.map_err(|error| error.to_string());
    let reader = reader.map(|reader| Box::new(GuardedReader(reader)) as IncomingBatches);
    reader.map_err(|why| {
        let kind = data.get_type().qualname().map(|kind| kind.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!(
            "{kind}: expected a table, a record batch, or a stream of them, which have columns by \
             name: {why}"
        ))
    })
}

/// One array in one or more chunks, with dictionaries decoded.
///
/// # Errors
/// TypeError if the object is not an array; Invalid if an index of a dictionary is out of range, or
/// if the caller's stream fails.
pub(crate) fn chunks_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<ArrayRef>> {
    if !has_capsule(object)? && is_column_of_pandas(object) {
        let given = [("from_pandas", true)].into_py_dict(object.py())?;
        let array = object.py().import("pyarrow")?.call_method("array", (object,), Some(&given))?;
        return chunks_of(&array);
    }
    // A DataFrame has no dtype.
    if is_of_polars(object)
        && let Some(dtype) = object.getattr_opt("dtype")?
        && dtype.str()?.to_cow()? == "Null"
    {
        return Ok(vec![
            as_bytes(&(Arc::new(NullArray::new(object.len()?)) as ArrayRef))
                .map_err(|error| error::exception(object.py(), &error))?,
        ]);
    }
    nesting::check(object)?;
    let import = || {
        let array = object.extract::<AnyArray>();
        array.and_then(|array| Ok(array.into_chunked_array()?))
    };
    let array = guarded(object.py(), import)?;
    let (chunks, _) = array.map_err(|raised| through_c(object.py(), raised))?.into_inner();
    let chunks = chunks.iter().map(as_bytes).collect::<siltstone::Result<_>>();
    chunks.map_err(|error| error::exception(object.py(), &error))
}

/// A column of keys or values: a dictionary is decoded, and a column without a type becomes nulls.
pub(crate) fn as_bytes(array: &ArrayRef) -> siltstone::Result<ArrayRef> {
    siltstone_schema::unpacked(array, &DataType::Binary)
}

/// The exception for an error of a batch stream. An error of this package is returned as it is. An
/// exception of the caller's stream becomes the cause of an error of this package.
pub(crate) fn ended(py: Python<'_>, error: ArrowError) -> PyErr {
    let ArrowError::ExternalError(cause) = error else { return stopped(py, &error.to_string()) };
    let cause = match cause.downcast::<Error>() {
        Ok(own) => return error::exception(py, &own),
        Err(cause) => cause,
    };
    match cause.downcast::<PyErr>() {
        Ok(raised) => *raised,
        Err(cause) => stopped(py, &cause.to_string()),
    }
}

/// For a stream of another library, whose errors are text only. The first line contains the reason;
/// a detail and the other lines are a traceback.
fn stopped(py: Python<'_>, text: &str) -> PyErr {
    let line = text.lines().next().unwrap_or_default();
    let line = line.split(". Detail: ").next().unwrap_or_default();
    error::invalid(py, format!("reading the data failed: {line}"))
}

/// The exception for one that came through the C interface, which has only the text of an exception
/// of the caller's stream.
fn through_c(py: Python<'_>, raised: PyErr) -> PyErr {
    match raised.get_type(py).is(py.get_type::<PyException>()) {
        true => match raised.value(py).str().and_then(|text| Ok(text.to_cow()?.into_owned())) {
            Ok(text) => stopped(py, &text),
            Err(error) => error,
        },
        false => raised,
    }
}

/// A pyarrow reader, read by its own method. The C interface would convert its exceptions to text,
/// and the caller would not receive the exception raised by a generator of batches.
struct PyarrowReader {
    reader: Py<PyAny>,
    schema: SchemaRef,
    /// The positions of the columns to copy.
    copied: Vec<usize>,
}

impl PyarrowReader {
    /// A reader of `data`: of a reader, and of a table or record batch with columns to copy, which
    /// are none if their types are flat; `None` for other data.
    fn of(data: &Bound<'_, PyAny>, are_flat: bool) -> PyResult<Option<PyarrowReader>> {
        let is_reader = data.hasattr(intern!(data.py(), "read_next_batch"))?;
        if !is_reader && (are_flat || !is_of(data, "pyarrow")) {
            return Ok(None);
        }
        let Some(schema) = data.getattr_opt("schema")? else { return Ok(None) };
        let schema = match schema.extract::<PySchema>() {
            Ok(schema) => schema.into_inner(),
            Err(error) if is_reader => return Err(error),
            // The import reports the type.
            Err(_) => return Ok(None),
        };
        let copied = match is_of(data, "pyarrow") {
            true => sliced::columns(&schema),
            false => Vec::new(),
        };
        let reader = match is_reader {
            true => data.clone(),
            false if copied.is_empty() => return Ok(None),
            false => readable(data)?,
        };
        Ok(Some(PyarrowReader { reader: reader.unbind(), schema, copied }))
    }

    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let batch = self.reader.bind(py).call_method0("read_next_batch")?;
        if self.copied.is_empty() { Ok(batch) } else { sliced::copied(&batch, &self.copied) }
    }
}

/// The reader of a table or a record batch of pyarrow.
fn readable<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if data.hasattr("to_reader")? {
        return data.call_method0("to_reader");
    }
    let table = data.py().import("pyarrow")?.getattr("Table")?;
    table.call_method1("from_batches", ([data],))?.call_method0("to_reader")
}

impl Iterator for PyarrowReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        Python::attach(|py| {
            let next = self.read(py);
            match next.and_then(|batch| Ok(batch.extract::<PyRecordBatch>()?.into_inner())) {
                Ok(batch) => Some(Ok(batch)),
                Err(end) if end.is_instance_of::<PyStopIteration>(py) => None,
                Err(raised) => Some(Err(ArrowError::ExternalError(external(py, raised)))),
            }
        })
    }
}

/// An exception becomes the cause of an error of this package. Exceptions that end a program, such
/// as KeyboardInterrupt, are not wrapped.
fn external(py: Python<'_>, raised: PyErr) -> Box<dyn std::error::Error + Send + Sync> {
    if !raised.is_instance_of::<PyException>(py) {
        return Box::new(raised);
    }
    let text = format!("reading the data failed: {raised}");
    Box::new(Error::invalid(text).caused_by(CallerException::new(raised)))
}

impl RecordBatchReader for PyarrowReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Polars exports a column without a type with a validity buffer. Arrow's null layout has no such
/// buffer, and the import refuses it.
fn is_of_polars(object: &Bound<'_, PyAny>) -> bool {
    is_of(object, "polars")
}

/// Whether the object's type is defined in this package.
fn is_of(object: &Bound<'_, PyAny>, package: &str) -> bool {
    let module = object.get_type().module();
    // `to_string` of an object would call `str()`, which runs signal handlers, and would swallow
    // their exceptions.
    module.is_ok_and(|module| {
        module.to_cow().is_ok_and(|module| module.split('.').next() == Some(package))
    })
}

/// Whether the column or a nested field has no type.
fn is_untyped(field: &Field) -> bool {
    match field.data_type() {
        DataType::Null => true,
        DataType::List(within)
        | DataType::LargeList(within)
        | DataType::FixedSizeList(within, _) => is_untyped(within),
        DataType::Struct(fields) => fields.iter().any(|field| is_untyped(field)),
        _ => false,
    }
}

/// A polars frame with each column without a type replaced by a column of nulls.
fn without_untyped(frame: &Bound<'_, PyAny>, schema: &Schema) -> PyResult<IncomingBatches> {
    let null = |name: &str| Field::new(name, DataType::Null, true);
    let fields = schema.fields().iter().map(|field| match is_untyped(field) {
        true => null(field.name()),
        false => field.as_ref().clone(),
    });
    let whole = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let typed = schema.fields().iter().filter(|field| !is_untyped(field));
    let typed: Vec<&str> = typed.map(|field| field.name().as_str()).collect();
    if typed.is_empty() {
        let rows = frame.len()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let bare = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options);
        let filled = bare.and_then(|bare| filled_in(&bare, &whole));
        return Ok(Box::new(arrow_array::RecordBatchIterator::new([filled], whole)));
    }
    let rest = imported(&frame.call_method1("select", (typed,))?)?;
    let schema = Arc::clone(&whole);
    let batches = rest.map(move |batch| filled_in(&batch?, &whole));
    Ok(Box::new(arrow_array::RecordBatchIterator::new(batches, schema)))
}

/// `batch` with columns of nulls for the columns that only `whole` has.
fn filled_in(batch: &RecordBatch, whole: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let rows = batch.num_rows();
    let columns = whole.fields().iter().map(|field| {
        let found = batch.column_by_name(field.name()).map(Arc::clone);
        found.unwrap_or_else(|| Arc::new(NullArray::new(rows)))
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(whole), columns.collect(), &options)
}
