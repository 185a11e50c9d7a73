//! Where the extension's memory comes from.
//!
//! A warm read waits for memory: for the row's cache line, and before that for the address's
//! translation. Half a gigabyte of blocks on pages of 4 KiB has 131,072 translations, far more than
//! a core keeps; on pages of 2 MiB it has 256. The system's allocator asks for those only if the
//! environment said so before the process began. So on Linux the extension has jemalloc, told to
//! ask for them; the interpreter and other extensions keep the system's. `.cargo/config.toml` holds
//! what it is told, RFC 0016 why, with the figures of the allocators that were compared.

use pyo3::prelude::*;

#[cfg(target_os = "linux")]
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Bytes that the extension's allocator has given out, which the system's count lacks; 0 where the
/// system's is the one. For tests: what threads keep for later counts as given out.
#[pyfunction]
pub(crate) fn memory_in_use() -> usize {
    #[cfg(target_os = "linux")]
    {
        use tikv_jemalloc_ctl::{epoch, stats};
        // Its figures stand still between two turns of its epoch. Neither can fail in a build with
        // statistics, which the dependency's feature asks for.
        let turned = epoch::advance().is_ok();
        if turned { stats::allocated::read().unwrap_or(0) } else { 0 }
    }
    #[cfg(not(target_os = "linux"))]
    0
}
