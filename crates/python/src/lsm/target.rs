//! The target of a writer or the source of a reader: a path, a URL, a file object, bytes.

use crate::bytes::BytesArg;
use crate::error::Raise;
use crate::open::{environment, shown, text_of};
use crate::process::Process;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use pyo3::exceptions::{PyBlockingIOError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use siltstone::env::Effects;
use siltstone::store::Upload;
use siltstone::store::lone_object::LoneObject;
use siltstone::store::options::StoreOptions;
use siltstone::store::url;
use siltstone::{Error, ErrorKind, Options, Result, task};
use std::sync::Arc;

/// `object` as a URL or an absolute path; `None` for other types. The path is absolute because the
/// file may be reopened, after a fork or in another process, with another working directory.
///
/// # Errors
/// TypeError for a path of bytes; Invalid as for `siltstone.opening.place_of`.
pub(super) fn path_of(object: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let is_text = object.is_instance_of::<PyString>();
    if !is_text && !object.hasattr("__fspath__")? {
        return Ok(None);
    }
    let place = object.py().import("siltstone._open")?.call_method1("place_of", (object,))?;
    let place: String = place.extract()?;
    if place.contains("://") {
        return Ok(Some(place));
    }
    let module = object.py().import("os.path")?;
    module.call_method1("abspath", (place,))?.extract().map(Some)
}

/// Options given as `siltstone.Options` or as a dict, and the options as the caller passed them.
///
/// # Errors
/// Invalid, as for `Options`.
pub(crate) fn options<'py>(
    py: Python<'py>,
    given: Option<Bound<'py, PyAny>>,
) -> PyResult<(Options, Bound<'py, PyDict>)> {
    let module = py.import("siltstone.options")?;
    let named = module.call_method1("named_options", (given,))?.cast_into::<PyDict>()?;
    Ok((crate::options::options(&named)?, named))
}

/// Store options, and the name of the function that returned them.
pub(super) struct Access {
    options: StoreOptions,
    provider: Option<String>,
}

/// Store options from a mapping or a provider.
///
/// # Errors
/// TypeError for other types, and as [`text_of`].
pub(super) fn access(py: Python<'_>, given: Option<Bound<'_, PyAny>>) -> PyResult<Access> {
    let options = py.import("siltstone._open")?.call_method1("_store", (&given,))?;
    let provider = py.import("siltstone._importable")?.call_method1("name_of", (given,))?;
    Ok(Access { options: text_of(&options.cast_into::<PyDict>()?)?, provider: provider.extract()? })
}

/// The environment of this process for the parts of the engine.
pub(super) fn effects(process: &'static Process) -> Effects {
    let _entered = process.handle().enter();
    task::tokio_effects(process.handle().clone())
}

/// The source of a table.
pub(super) enum TableSource {
    /// A path or URL.
    Url(String, Access),
    /// Bytes in memory.
    Bytes(Bytes),
}

impl TableSource {
    /// # Errors
    /// TypeError if the object is not a path, a URL or a buffer.
    pub(super) fn of(object: &Bound<'_, PyAny>, access: Access) -> PyResult<TableSource> {
        if let Some(path) = path_of(object)? {
            return Ok(TableSource::Url(path, access));
        }
        let bytes = object.extract::<BytesArg<'_>>().map_err(|_| {
            let text = "a table is read from a path, a URL, or bytes: read other sources first";
            PyTypeError::new_err(text)
        })?;
        Ok(TableSource::Bytes(Bytes::copy_from_slice(bytes.as_ref())))
    }

    /// The object in the store, read through `effects`.
    ///
    /// # Errors
    /// Invalid for a URL or store options that do not describe an object.
    pub(super) fn object(&self, py: Python<'_>, effects: &Effects) -> PyResult<LoneObject> {
        match self {
            TableSource::Url(place, access) => {
                url::parse_object(place, &access.options, environment(), effects).raise(py)
            }
            TableSource::Bytes(bytes) => Ok(LoneObject::of_bytes(bytes.clone())),
        }
    }

    /// The name of the function that returned the store options.
    pub(super) fn provider(&self) -> Option<&str> {
        match self {
            TableSource::Url(_, access) => access.provider.as_deref(),
            TableSource::Bytes(_) => None,
        }
    }

    /// The URL without secrets.
    pub(super) fn shown(&self) -> Option<String> {
        match self {
            TableSource::Url(place, _) => Some(shown(place)),
            TableSource::Bytes(_) => None,
        }
    }
}

/// The exception raised by a file object, kept beside the engine error that represents it.
pub(super) type FileRaised = Arc<Mutex<Option<PyErr>>>;

/// An upload to a Python file object. Written bytes cannot be removed: the bytes of a discarded
/// table stay in the file.
pub(super) struct FileObject {
    write: Py<PyAny>,
    /// Whether the object is an `io.RawIOBase`.
    is_raw: bool,
    raised: FileRaised,
}

impl FileObject {
    /// # Errors
    /// TypeError if the object cannot be written to.
    pub(super) fn of(object: &Bound<'_, PyAny>) -> PyResult<(FileObject, FileRaised)> {
        let Ok(write) = object.getattr("write") else {
            let given = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "a table is written to a path, a URL or a binary file object, not {given}"
            )));
        };
        let is_raw = object.is_instance(&object.py().import("io")?.getattr("RawIOBase")?)?;
        let raised = FileRaised::default();
        let file = FileObject { write: write.unbind(), is_raw, raised: Arc::clone(&raised) };
        Ok((file, raised))
    }

    fn write_all(&self, chunk: &Bytes) -> Result<()> {
        let written = Python::attach(|py| {
            let mut rest = chunk.as_ref();
            while !rest.is_empty() {
                let count = self.write.bind(py).call1((PyBytes::new(py, rest),))?;
                // A raw file may write only a part. The writers of other objects often return None
                // for all bytes; a raw file that does not block returns it for no bytes.
                let count = match count.is_none() && !self.is_raw {
                    true => rest.len(),
                    false => count.extract::<Option<usize>>()?.unwrap_or_default(),
                };
                if count == 0 {
                    return Err(PyBlockingIOError::new_err(
                        "the file takes no bytes now: give a file that blocks, or a buffered one",
                    ));
                }
                rest = rest.get(count..).unwrap_or_default();
            }
            Ok(())
        });
        written.map_err(|error: PyErr| {
            *self.raised.lock() = Some(error);
            Error::new(ErrorKind::Unavailable, "the file object refused the table's bytes")
        })
    }
}

impl Upload for FileObject {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        ready(self.write_all(&chunk)).boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        ready(Ok(())).boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        ready(Ok(())).boxed()
    }
}
