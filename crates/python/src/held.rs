//! An engine handle, and the process it belongs to.

use crate::error;
use crate::process::Process;
use pyo3::prelude::*;

/// Holds a `T` of the engine. In a forked child it gives nothing out, and its drop leaks the
/// value: the destructor could wait for a lock whose holder the fork left behind.
pub(crate) struct Held<T> {
    value: Option<T>,
    process: &'static Process,
}

impl<T> Held<T> {
    pub(crate) fn new(process: &'static Process, value: T) -> Self {
        // Python allocates its objects at multiples of 16 bytes: what wants more is boxed.
        const { assert!(align_of::<T>() <= 16) };
        Held { value: Some(value), process }
    }

    /// Holds nothing: what its user had was closed.
    pub(crate) fn empty(process: &'static Process) -> Self {
        Held { value: None, process }
    }

    /// Whether it was made before a fork.
    pub(crate) fn is_stale(&self) -> bool {
        self.process.is_stale()
    }

    /// The process it belongs to.
    pub(crate) fn process(&self) -> &'static Process {
        self.process
    }

    /// The value.
    ///
    /// # Errors
    /// Closed in a forked child.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        match &self.value {
            Some(value) if !self.is_stale() => Ok(value),
            None if !self.is_stale() => Err(error::closed(py, "the handle was closed")),
            _ => Err(stale(py)),
        }
    }

    /// The value, to change it.
    ///
    /// # Errors
    /// Closed in a forked child.
    pub(crate) fn get_mut(&mut self, py: Python<'_>) -> PyResult<&mut T> {
        match &mut self.value {
            Some(value) if !self.process.is_stale() => Ok(value),
            _ => Err(stale(py)),
        }
    }

    /// The value, out of its holder.
    ///
    /// # Errors
    /// Closed in a forked child.
    pub(crate) fn into_inner(mut self, py: Python<'_>) -> PyResult<T> {
        if self.is_stale() {
            return Err(stale(py));
        }
        self.value.take().ok_or_else(|| stale(py))
    }

    /// The value where the interpreter is not at hand; `None` in a forked child.
    pub(crate) fn peek_mut(&mut self) -> Option<&mut T> {
        if self.is_stale() { None } else { self.value.as_mut() }
    }

    /// The value, to hand it on; `None` in a forked child.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.is_stale() { None } else { self.value.take() }
    }

    /// As [`Held::peek_mut`], to read.
    pub(crate) fn peek(&self) -> Option<&T> {
        if self.is_stale() { None } else { self.value.as_ref() }
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if self.is_stale() {
            std::mem::forget(self.value.take());
        }
    }
}

/// The Closed that a forked child gets.
pub(crate) fn stale(py: Python<'_>) -> PyErr {
    error::closed(
        py,
        "this handle was opened before a fork and belongs to the parent process; open another one \
         here",
    )
}
