//! Arrow arrays as results.

use arrow_array::builder::GenericBinaryBuilder;
use arrow_array::{Array, ArrayRef, OffsetSizeTrait};
use arrow_schema::Field;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyTuple};
use pyo3_arrow::ffi::to_array_pycapsules;
use siltstone::Value;
use std::sync::Arc;

/// An Arrow array, for any library with the Arrow PyCapsule interface.
#[pyclass(frozen, module = "siltstone")]
pub(crate) struct ArrowArray {
    array: ArrayRef,
}

impl ArrowArray {
    pub(crate) fn new(array: ArrayRef) -> Self {
        ArrowArray { array }
    }
}

#[pymethods]
impl ArrowArray {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let field = Arc::new(Field::new("", self.array.data_type().clone(), true));
        Ok(to_array_pycapsules(py, field, &self.array, requested_schema)?)
    }

    fn __len__(&self) -> usize {
        self.array.len()
    }

    fn __repr__(&self) -> String {
        format!("<siltstone.ArrowArray {} of {}>", self.array.data_type(), self.array.len())
    }
}

/// `values` as an array of the library that `asked` belongs to, if that library is known.
pub(crate) fn answer<'py>(
    py: Python<'py>,
    asked: &Bound<'py, PyAny>,
    values: Vec<Option<Value>>,
) -> PyResult<Bound<'py, PyAny>> {
    wrap(py, asked, binary(&values))
}

/// `array` as an array of the library that `asked` belongs to, if that library is known.
pub(crate) fn wrap<'py>(
    py: Python<'py>,
    asked: &Bound<'py, PyAny>,
    array: ArrayRef,
) -> PyResult<Bound<'py, PyAny>> {
    let array = Bound::new(py, ArrowArray { array })?.into_any();
    static ARRAY_OF_PYARROW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let module = asked.get_type().module()?;
    match module.to_cow()?.split('.').next() {
        Some("pyarrow") => {
            let function = || Ok::<_, PyErr>(py.import("pyarrow")?.getattr("array")?.unbind());
            ARRAY_OF_PYARROW.get_or_try_init(py, function)?.bind(py).call1((array,))
        }
        Some("arro3") => {
            py.import("arro3.core")?.getattr("Array")?.call_method1("from_arrow", (array,))
        }
        Some("polars") => py.import("polars")?.getattr("Series")?.call1(("", array)),
        _ => Ok(array),
    }
}

/// A binary array, or a large binary array if 32-bit offsets would overflow.
fn binary(values: &[Option<Value>]) -> ArrayRef {
    let bytes = values.iter().flatten().map(|value| value.len()).sum();
    if i32::try_from(bytes).is_ok() {
        build::<i32>(values, bytes)
    } else {
        build::<i64>(values, bytes)
    }
}

fn build<O: OffsetSizeTrait>(values: &[Option<Value>], bytes: usize) -> ArrayRef {
    let mut builder = GenericBinaryBuilder::<O>::with_capacity(values.len(), bytes);
    for value in values {
        builder.append_option(value.as_deref());
    }
    Arc::new(builder.finish())
}
