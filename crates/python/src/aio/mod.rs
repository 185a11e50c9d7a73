//! The part of `siltstone.aio` that is compiled (RFC 0013). The Python module `siltstone.aio` has
//! the surface; each of its calls begins here, and is answered at once or with a [`Pending`].
//!
//! | file | holds |
//! | --- | --- |
//! | `port` | how an event loop hears of what completed: a socket and a table, one a loop |
//! | `pending` | a call that waits, as an awaitable |
//! | `commit` | a write that was accepted |
//! | `reads`, `writes`, `transaction`, `open` | the verbs |
//! | `scan` | batches of a scan's rows |

pub(crate) mod commit;
mod open;
pub(crate) mod pending;
mod port;
mod reads;
mod scan;
mod transaction;
mod writes;

use pyo3::prelude::*;

/// Adds what this part has to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<commit::AsyncCommit>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<port::Port>()?;
    module.add_class::<scan::AsyncScan>()?;
    module.add_function(wrap_pyfunction!(crate::destroy::begin_destroy, module)?)?;
    module.add_function(wrap_pyfunction!(open::begin_open, module)?)?;
    module.add_function(wrap_pyfunction!(open::begin_open_reader, module)?)
}
