//! Profiles of stores: their properties, and the cost of requests, which decides how much is
//! requested at a time.

/// Properties of a store that do not change. Comments at the constants give the reasons for sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Whether [`LocalReads`](crate::LocalReads) answers and uploads are written in the calling
    /// thread. A separate task would only cost time.
    pub answers_at_once: bool,
    /// Maximum number of bytes that a merge reads of one table at a time.
    pub input_bytes: u64,
    /// Maximum number of bytes that a scan reads ahead in one table.
    pub scan_bytes: u64,
    /// Number of bytes of a new table that a merge hands over at a time.
    pub chunk_bytes: usize,
    /// Ranges of a compaction that are merged in parallel per core, on a machine with several
    /// cores.
    pub ranges_a_core: usize,
    /// Whether this process and the kernel decide conditional creates, so that the store needs no
    /// proof.
    pub decides_itself: bool,
    /// Bound of all bytes, as a multiple of the bytes of the last layer, if the tiered scheduler
    /// has no bound of its own; `None` means no bound.
    pub space_amplification: Option<f64>,
    /// Whether the bytes below are encrypted, so that no copy of what is read here may be stored.
    pub is_encrypted: bool,
    /// Whether the location may be emptied and get another database while handles go on writing to
    /// it. That is so for a prefix of an object store. A removed folder differs from a later one at
    /// its path, and memory ends with its process.
    pub may_be_emptied: bool,
    /// The kind of transactional store that commits creates (`sqlite`, `postgres`, …); `None` for a
    /// store with conditional creates of its own.
    pub records: Option<&'static str>,
    /// Whether the blocks of tables are compressed if the options name no codec.
    pub compresses_blocks: bool,
}

impl Profile {
    /// An object store: a request costs milliseconds, regardless of its size. Space is cheap, and
    /// merged bytes cross the network twice.
    pub const REMOTE: Profile = Profile {
        answers_at_once: false,
        input_bytes: u64::MAX,
        // Product of bandwidth and delay of one stream: 50 MiB/s, 80 ms.
        scan_bytes: 4 << 20,
        chunk_bytes: 2 << 20,
        ranges_a_core: 1,
        decides_itself: false,
        space_amplification: None,
        is_encrypted: false,
        may_be_emptied: false,
        records: None,
        // Half of the bytes to send, store and fetch, for a third more work of a cold scan.
        compresses_blocks: true,
    };

    /// Memory: there is no waiting, so the sizes fit the caches of a core (for a merge: eight
    /// inputs and the chunk that it builds). While the table of one range is finished, another
    /// range uses its core.
    pub const MEMORY: Profile = Profile {
        answers_at_once: true,
        input_bytes: 256 << 10,
        scan_bytes: 256 << 10,
        chunk_bytes: 256 << 10,
        ranges_a_core: 2,
        decides_itself: true,
        // An uncached block is copied in a microsecond and decompressed in five.
        compresses_blocks: false,
        ..Profile::REMOTE
    };

    /// A local folder: as memory, but the disk can be full. 1.5 keeps overwrites of 1 GB at full
    /// speed below twice the live bytes plus 1 GiB, including the inputs and outputs of a merge and
    /// the WAL (RFC 0018 has the measurements).
    pub const FOLDER: Profile = Profile { space_amplification: Some(1.5), ..Profile::MEMORY };
}
