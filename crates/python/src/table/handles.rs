//! The schema of a handle: the known one, the newest one, and its evolution. The blocking and the
//! async interface in Python both use these functions.

use super::SCHEMA_NOT_TEXT;
use crate::aio::pending::Pending;
use crate::database::Database;
use crate::error::Raise;
use crate::reader::Reader;
use crate::snapshot::Snapshot;
use crate::source::Source;
use crate::wait::wait;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// # Errors
/// Corruption if the schema is not text.
fn text(schema: Option<Bytes>) -> siltstone::Result<Option<String>> {
    let text = |schema: Bytes| {
        String::from_utf8(schema.to_vec())
            .map_err(|error| siltstone::Error::corruption(SCHEMA_NOT_TEXT).caused_by(error))
    };
    schema.map(text).transpose()
}

fn told(py: Python<'_>, text: Option<String>) -> Py<PyAny> {
    text.map_or_else(|| py.None(), |text| PyString::new(py, &text).into_any().unbind())
}

/// Makes the object with the table methods.
fn table<'py>(slf: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    slf.py().import("siltstone.table")?.getattr("Table")?.call1((slf,))
}

macro_rules! tables {
    ($($class:ident: $known:expr;)+) => {$(
        #[pymethods]
        impl $class {
            /// The typed view of the rows, for a database that `siltstone.table.create` made.
            ///
            /// :raises Invalid: if the database has no columns.
            /// :raises Closed, Fenced: see `siltstone.exceptions`.
            #[getter]
            fn table<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                table(slf.as_any())
            }

            /// The schema known to the handle, without a request.
            fn _schema(&self, py: Python<'_>) -> PyResult<Option<String>> {
                let held = Source::held(self, py)?;
                let known: siltstone::Result<Option<Bytes>> = ($known)(held.get(py)?);
                known.and_then(text).raise(py)
            }

            /// The schema in the newest manifest.
            fn _newest_schema(&self, py: Python<'_>) -> PyResult<Option<String>> {
                let held = Source::held(self, py)?;
                let (process, engine) = (held.process(), held.get(py)?.clone());
                wait(py, process, async move { text(engine.newest_schema().await?) })
            }

            /// `_newest_schema` for `siltstone.aio`.
            fn _begin_newest_schema(&self, py: Python<'_>) -> PyResult<Pending> {
                let held = Source::held(self, py)?;
                let (process, engine) = (held.process(), held.get(py)?.clone());
                let work = async move { text(engine.newest_schema().await?) };
                Ok(Pending::running(process, work, |py, text| Ok(told(py, text))))
            }
        }
    )+};
}

tables! {
    Database: siltstone::Database::schema;
    Reader: |reader: &siltstone::Reader| Ok(reader.schema());
    Snapshot: |snapshot: &siltstone::Snapshot| Ok(snapshot.schema());
}

#[pymethods]
impl Database {
    /// Replaces one schema by another.
    fn _evolve(&self, py: Python<'_>, from: String, to: String) -> PyResult<()> {
        let held = self.held();
        let (process, engine) = (held.process(), held.get(py)?.clone());
        wait(py, process, async move { engine.evolve(from.into(), to.into()).await })
    }

    /// `_evolve` for `siltstone.aio`.
    fn _begin_evolve(&self, py: Python<'_>, from: String, to: String) -> PyResult<Pending> {
        let held = self.held();
        let (process, engine) = (held.process(), held.get(py)?.clone());
        let work = async move { engine.evolve(from.into(), to.into()).await };
        Ok(Pending::running(process, work, |py, ()| Ok(py.None())))
    }
}
