//! Arrow data that the import of arrow-rs cannot take as a slice: structs in structs, and structs
//! in lists of fixed size. The import slices the parts of such a column, and panics if the column
//! begins behind the start of its buffers.
//!
//! Columns of pyarrow are copied before the import. For other libraries the panic becomes an error;
//! it must never reach Python, where it is no `Exception`.

use crate::error;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use siltstone::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The positions of the columns that the import may not take as they are.
pub(crate) fn columns(schema: &Schema) -> Vec<usize> {
    let fields = schema.fields().iter().enumerate();
    let found = fields.filter(|(_, field)| slices_structs(field.data_type()));
    found.map(|(place, _)| place).collect()
}

/// Whether the import of a slice of this type slices a struct.
fn slices_structs(data_type: &DataType) -> bool {
    let is_sliced = |part: &DataType| matches!(part, DataType::Struct(_)) || slices_structs(part);
    match data_type {
        DataType::Struct(fields) => fields.iter().any(|field| is_sliced(field.data_type())),
        DataType::FixedSizeList(item, _) => is_sliced(item.data_type()),
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            slices_structs(item.data_type())
        }
        DataType::Dictionary(_, values) => slices_structs(values),
        _ => false,
    }
}

/// A record batch of pyarrow with copies of the columns at `places`, which begin at the start of
/// their buffers.
///
/// # Errors
/// The exceptions of pyarrow.
pub(crate) fn copied<'py>(
    batch: &Bound<'py, PyAny>,
    places: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let py = batch.py();
    let pyarrow = py.import("pyarrow")?;
    let mut columns: Vec<Bound<'py, PyAny>> = batch.getattr("columns")?.extract()?;
    for (place, column) in columns.iter_mut().enumerate() {
        if places.contains(&place) {
            // One array alone is returned as it is.
            let none = column.call_method1("slice", (0, 0))?;
            *column = pyarrow.call_method1("concat_arrays", ([&*column, &none],))?;
        }
    }
    let schema = [("schema", batch.getattr("schema")?)].into_py_dict(py)?;
    pyarrow.getattr("RecordBatch")?.call_method("from_arrays", (columns,), Some(&schema))
}

/// The error for a slice that the import cannot take.
fn refused() -> Error {
    Error::invalid(
        "reading the data failed: a slice of a column with a struct in a struct, or in a list of \
         fixed size, cannot be imported from this library: pass pyarrow.table(data), whose columns \
         are copied",
    )
}

/// The result of an import.
///
/// # Errors
/// Invalid if it panics.
pub(crate) fn guarded<T>(py: Python<'_>, import: impl FnOnce() -> T) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(import)).map_err(|_| error::exception(py, &refused()))
}

/// A stream whose imports may panic.
pub(crate) struct GuardedReader<R>(pub R);

impl<R: RecordBatchReader> Iterator for GuardedReader<R> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = catch_unwind(AssertUnwindSafe(|| self.0.next()));
        next.unwrap_or_else(|_| Some(Err(ArrowError::ExternalError(Box::new(refused())))))
    }
}

impl<R: RecordBatchReader> RecordBatchReader for GuardedReader<R> {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}
