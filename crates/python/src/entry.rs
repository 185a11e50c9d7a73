//! `get_entry`: a value with its expiry and the sequence number of its write.

use crate::aio::pending::Pending;
use crate::bytes::{BytesArg, to_python};
use crate::database::Database;
use crate::error::Raise;
use crate::reader::Reader;
use crate::snapshot::Snapshot;
use crate::source::Source;
use crate::wait::wait;
use pyo3::prelude::*;
use siltstone::{Answer, KeyEntry};

macro_rules! entries {
    ($($class:ident),+) => {$(
        #[pymethods]
        impl $class {
            /// Returns the value of `key` with its expiry and the sequence number of its write, if
            /// that is still known. Returns None if the key is absent.
            ///
            /// :raises Invalid: if the key is empty or too long.
            /// :raises Closed, Fenced, Unavailable, Timeout, Denied, Corruption: see
            ///     `siltstone.exceptions`.
            fn get_entry<'py>(
                &self,
                py: Python<'py>,
                key: BytesArg<'_>,
            ) -> PyResult<Option<Bound<'py, PyAny>>> {
                let held = Source::held(self, py)?;
                let entry = match held.get(py)?.get_entry(key.as_ref()).raise(py)? {
                    Answer::Ready(entry) => entry,
                    Answer::Pending(entry) => wait(py, held.process(), entry)?,
                };
                entry.map(|entry| object(py, key.as_ref(), &entry)).transpose()
            }

            /// `get_entry`: the entry, or a Pending. Private: called by `siltstone.aio`.
            fn _begin_get_entry<'py>(
                &self,
                py: Python<'py>,
                key: BytesArg<'_>,
            ) -> PyResult<Bound<'py, PyAny>> {
                let held = Source::held(self, py)?;
                match held.get(py)?.get_entry(key.as_ref()).raise(py)? {
                    Answer::Ready(Some(entry)) => object(py, key.as_ref(), &entry),
                    Answer::Ready(None) => Ok(py.None().into_bound(py)),
                    Answer::Pending(answer) => {
                        let key = key.as_ref().to_vec();
                        let finish = move |py: Python<'_>, entry: Option<KeyEntry>| match entry {
                            Some(entry) => object(py, &key, &entry).map(Bound::unbind),
                            None => Ok(py.None()),
                        };
                        let running = Pending::running(held.process(), answer, finish);
                        Ok(Bound::new(py, running)?.into_any())
                    }
                }
            }
        }
    )+};
}

entries!(Database, Reader, Snapshot);

/// Makes a `siltstone.Entry`.
fn object<'py>(py: Python<'py>, key: &[u8], entry: &KeyEntry) -> PyResult<Bound<'py, PyAny>> {
    let made = py.import("siltstone._entry")?.getattr("made")?;
    let (key, value) = (to_python(py, key)?, to_python(py, &entry.value)?);
    let expires_millis = entry.expires_at.map(|at| at.0);
    made.call1((key, value, expires_millis, entry.seq.map(|seq| seq.get())))
}
