//! An engine handle with the process that it belongs to.

use crate::error;
use crate::process::Process;
use pyo3::prelude::*;

/// Holds an engine value. In a forked child it returns an error instead of the value, and its drop
/// leaks the value: the destructor could wait for a lock whose holder does not exist in the child.
pub(crate) struct Held<T> {
    value: Option<T>,
    process: &'static Process,
}

impl<T> Held<T> {
    pub(crate) fn new(process: &'static Process, value: T) -> Self {
        // Python allocates objects at multiples of 16 bytes: a type with a larger alignment must be
        // boxed.
        const { assert!(align_of::<T>() <= 16) };
        Held { value: Some(value), process }
    }

    /// An empty holder, for a handle that was closed.
    pub(crate) fn empty(process: &'static Process) -> Self {
        Held { value: None, process }
    }

    /// Whether it was created before a fork.
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

    /// The value, mutably.
    ///
    /// # Errors
    /// Closed in a forked child.
    pub(crate) fn get_mut(&mut self, py: Python<'_>) -> PyResult<&mut T> {
        match &mut self.value {
            Some(value) if !self.process.is_stale() => Ok(value),
            _ => Err(stale(py)),
        }
    }

    /// Takes the value out of its holder.
    ///
    /// # Errors
    /// Closed in a forked child.
    pub(crate) fn into_inner(mut self, py: Python<'_>) -> PyResult<T> {
        if self.is_stale() {
            return Err(stale(py));
        }
        self.value.take().ok_or_else(|| stale(py))
    }

    /// The value without the interpreter lock; `None` in a forked child.
    pub(crate) fn peek_mut(&mut self) -> Option<&mut T> {
        if self.is_stale() { None } else { self.value.as_mut() }
    }

    /// Takes the value, to pass it on; `None` in a forked child.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.is_stale() { None } else { self.value.take() }
    }

    /// As [`Held::peek_mut`], shared.
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

/// The Closed error of a forked child.
pub(crate) fn stale(py: Python<'_>) -> PyErr {
    error::closed(
        py,
        "this handle was opened before a fork and belongs to the parent process; open another one \
         here",
    )
}
