//! The memory allocator of the extension.
//!
//! A warm read waits for memory: for the cache line of the row, and before that for the translation
//! of its address. Half a gigabyte of blocks needs 131,072 translations with pages of 4 KiB, far
//! more than a core caches, but only 256 with pages of 2 MiB. The system allocator requests such
//! pages only if the environment said so before the process started. So on Linux the extension uses
//! jemalloc, configured to request them; the interpreter and other extensions keep the system
//! allocator. The configuration is in `.cargo/config.toml`; RFC 0016 gives the reasons and a
//! comparison of allocators.

use pyo3::prelude::*;

#[cfg(target_os = "linux")]
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Bytes allocated by the allocator of the extension, which the count of the system does not
/// include; 0 if the extension uses the system allocator. For tests: memory cached by threads
/// counts as allocated.
#[pyfunction]
pub(crate) fn memory_in_use() -> usize {
    #[cfg(target_os = "linux")]
    {
        use tikv_jemalloc_ctl::{epoch, stats};
        // The figures change only when the epoch advances. Neither call can fail in a build with
        // statistics, which the feature of the dependency enables.
        let turned = epoch::advance().is_ok();
        if turned { stats::allocated::read().unwrap_or(0) } else { 0 }
    }
    #[cfg(not(target_os = "linux"))]
    0
}
