//! The compiled part of `siltstone.aio` (RFC 0013). The Python module `siltstone.aio` is the public
//! interface; each of its calls begins here and returns its result at once or a [`Pending`].
//!
//! | file | holds |
//! | --- | --- |
//! | `port` | notifies an event loop of completed calls: one socket and one table per loop |
//! | `pending` | a call that waits, as an awaitable |
//! | `commit` | an accepted write |
//! | `reads`, `writes`, `transaction`, `open` | the methods |
//! | `scan` | batches of the rows of a scan |

pub(crate) mod commit;
mod open;
pub(crate) mod pending;
mod port;
mod reads;
mod scan;
mod transaction;
mod writes;

use pyo3::prelude::*;

/// Adds the items of this part to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<commit::AsyncCommit>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<port::Port>()?;
    module.add_class::<scan::AsyncScan>()?;
    module.add_function(wrap_pyfunction!(crate::destroy::begin_destroy, module)?)?;
    module.add_function(wrap_pyfunction!(open::begin_open, module)?)?;
    module.add_function(wrap_pyfunction!(open::begin_open_reader, module)?)
}
