//! How a store is best worked with: what its requests cost decides how much is asked for at a time.

use siltstone_sst::Codec;

/// What a store is like for those who read and write tables. A value of its kind says why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Whether [`Store::get_now`](super::Store::get_now) answers, and an upload is written where it
    /// is made: a task beside it would only cost.
    pub answers_at_once: bool,
    /// Most bytes that a merge reads of one table at a time.
    pub input_bytes: u64,
    /// Most bytes that a scan reads ahead in one table.
    pub scan_bytes: u64,
    /// Bytes of a table in the making that a merge hands over at a time.
    pub chunk_bytes: usize,
    /// Ranges of a compaction that are merged at once for each of several cores.
    pub ranges_a_core: usize,
    /// Whether its conditional creates are this process's own and the kernel's: there is nothing to
    /// prove before they are relied on.
    pub decides_itself: bool,
    /// What all bytes may come to in times of the last layer's where the tiered scheduler has no
    /// bound of its own; `None`: never too much.
    pub space_amplification: Option<f64>,
    /// The codec of blocks where the options name none.
    pub codec: Codec,
}

impl Profile {
    /// An object store: a request costs milliseconds, however much it brings. Space is cheap there,
    /// and what is merged goes over the network twice.
    pub const REMOTE: Profile = Profile {
        answers_at_once: false,
        input_bytes: u64::MAX,
        // The product of bandwidth and delay of one stream: 50 MiB/s, 80 ms.
        scan_bytes: 4 << 20,
        chunk_bytes: 2 << 20,
        ranges_a_core: 1,
        decides_itself: false,
        space_amplification: None,
        // Half the bytes to send, keep and fetch, for a third more work of a cold scan.
        codec: Codec::Lz4,
    };

    /// Memory: nothing is waited for, so as much is taken at a time as stays in the caches of a
    /// core (of a merge: what eight inputs have at hand, and the chunk that it makes). Where a
    /// table of one range ends and waits to be finished and taken up again, its core is the other
    /// range's.
    pub const MEMORY: Profile = Profile {
        answers_at_once: true,
        input_bytes: 256 << 10,
        scan_bytes: 256 << 10,
        chunk_bytes: 256 << 10,
        ranges_a_core: 2,
        decides_itself: true,
        // A block that is not cached is copied in a microsecond, and unpacked in five.
        codec: Codec::None,
        ..Profile::REMOTE
    };

    /// A local folder: as memory, on a disk that can be full. 1.5 keeps overwrites of 1 GB at full
    /// speed below twice the live bytes and 1 GiB, a merge's inputs and outputs and the WAL
    /// included (RFC 0018 has the measurements).
    pub const FOLDER: Profile = Profile { space_amplification: Some(1.5), ..Profile::MEMORY };
}
