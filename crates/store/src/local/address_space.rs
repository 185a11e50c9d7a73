//! The limit of this process's address space, if it has one (`ulimit -v`; Spark's
//! `spark.executor.pyspark.memory` sets it for its Python workers).
//!
//! A mapped table takes no memory, but it takes addresses, as every allocation does. Under a limit
//! the map of a large table could leave none for allocations, and a process whose allocation fails
//! aborts. A table is therefore mapped only if enough addresses are left. Other tables are read
//! into the block cache, whose size is an option.

use rustix::process::{Resource, getrlimit};

/// Number of bytes that maps leave at least for allocations.
const RESERVE_BYTES: u64 = 256 << 20;

/// The limit. Without one nothing is checked.
pub(super) struct AddressSpace {
    limit: u64,
}

impl AddressSpace {
    /// The address space, if it has a limit.
    pub(super) fn limited() -> Option<AddressSpace> {
        getrlimit(Resource::As).current.map(|limit| AddressSpace { limit })
    }

    /// Whether a map of `bytes` leaves enough for everything else. `false` if the system does not
    /// report how much is in use.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        in_use().is_some_and(|used| leaves_enough(self.limit, used, bytes))
    }
}

/// Whether a map of `bytes` takes at most half of the free space, and leaves a quarter of the limit
/// and [`RESERVE_BYTES`].
fn leaves_enough(limit: u64, used: u64, bytes: u64) -> bool {
    let free = limit.saturating_sub(used);
    let left = free.saturating_sub(bytes);
    bytes <= free / 2 && left >= RESERVE_BYTES.max(limit / 4)
}

/// Number of bytes of the address space in use.
fn in_use() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let kibibytes: u64 = size.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_map_leaves_half_a_quarter_and_the_reserve() {
        // 1 GiB with 424 MiB in use: 600 are free; 256 and half of the free ones have to stay.
        let (limit, used) = (1024 * MIB, 424 * MIB);
        assert!(leaves_enough(limit, used, 300 * MIB));
        assert!(!leaves_enough(limit, used, 301 * MIB));
        assert!(!leaves_enough(limit, used + 100 * MIB, 245 * MIB));
        assert!(leaves_enough(limit, used + 100 * MIB, 244 * MIB));
        // A quarter of a large limit.
        assert!(!leaves_enough(16 << 30, 11 << 30, (1 << 30) + 1));
        assert!(leaves_enough(16 << 30, 11 << 30, 1 << 30));
        // Nothing is free.
        assert!(!leaves_enough(limit, limit, 1));
        assert!(!leaves_enough(limit, limit + 1, 0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_says_how_much_is_in_use() {
        let before = in_use().unwrap();
        let taken = vec![1u8; 64 << 20];
        assert!(in_use().unwrap() >= before.max(64 << 20), "{}", taken.len());
    }
}
