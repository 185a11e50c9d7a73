//! Methods that the surface names and the engine cannot do yet: there by name, so that a program
//! fails by type and with the reason.

use crate::error::exception;
use pyo3::prelude::*;
use siltstone::Error;

/// The exception for a part that is not built yet.
pub(crate) fn unsupported(py: Python<'_>, feature: &str) -> PyErr {
    let text = format!("{feature} is not built yet in this version of Siltstone");
    exception(py, &Error::unsupported(text).with("feature", feature))
}

/// Gives `$class` methods that raise Unsupported, whatever they are called with.
macro_rules! unbuilt {
    ($class:ident: $($name:ident),+ $(,)?) => {
        #[pymethods]
        impl $class {
            $(
                /// Not built yet: raises Unsupported.
                #[pyo3(signature = (*_arguments, **_named))]
                fn $name(
                    &self,
                    py: Python<'_>,
                    _arguments: &Bound<'_, pyo3::types::PyTuple>,
                    _named: Option<&Bound<'_, pyo3::types::PyDict>>,
                ) -> PyResult<()> {
                    let feature = concat!(stringify!($class), ".", stringify!($name));
                    Err($crate::unbuilt::unsupported(py, feature))
                }
            )+
        }
    };
}
pub(crate) use unbuilt;
