//! Ids. Counted ids start at 1; 0 means "none". Identities are 128 random bits.

use std::fmt;
use ulid::{ULID_LEN, Ulid};

macro_rules! counted {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// "None": the value before anything was counted.
            pub const NONE: $name = $name(0);
            /// The first one.
            pub const FIRST: $name = $name(1);

            /// The number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Whether this is [`Self::NONE`].
            #[must_use]
            pub const fn is_none(self) -> bool {
                self.0 == 0
            }

            /// The next id. Saturates: 2^64 ids are never reached (a million a second take 584,000
            /// years).
            #[must_use]
            pub const fn next(self) -> $name {
                $name(self.0.saturating_add(1))
            }

            /// The id `n` later, saturating.
            #[must_use]
            pub const fn plus(self, n: u64) -> $name {
                $name(self.0.saturating_add(n))
            }

            /// The id `n` earlier, saturating at [`Self::NONE`].
            #[must_use]
            pub const fn minus(self, n: u64) -> $name {
                $name(self.0.saturating_sub(n))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counted! {
    /// Sequence number of an entry: the position of a write in the one history of the database. At
    /// most [`Seq::MAX`] (2^56 - 1), which leaves a byte for a kind in the same word.
    Seq
}
counted! {
    /// Number of a manifest; contiguous.
    ManifestId
}
counted! {
    /// Number of a WAL object.
    WalId
}
counted! {
    /// Writer epoch or compactor epoch: identifies the process that may act.
    Epoch
}

impl Seq {
    /// The largest sequence number; as a read bound it means "everything".
    pub const MAX: Seq = Seq((1 << 56) - 1);
}

macro_rules! identity {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl $name {
            /// "None".
            pub const NONE: $name = $name(0);

            /// The 128 bits.
            #[must_use]
            pub const fn get(self) -> u128 {
                self.0
            }

            /// Big-endian bytes, as they are stored.
            #[must_use]
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }

            /// From big-endian bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> $name {
                $name(u128::from_be_bytes(bytes))
            }

            /// Whether this is [`Self::NONE`].
            #[must_use]
            pub const fn is_none(self) -> bool {
                self.0 == 0
            }
        }
    };
}

macro_rules! hex_identity {
    ($(#[$meta:meta])* $name:ident) => {
        identity! { $(#[$meta])* $name }

        impl $name {
            /// Parses the 32 hexadecimal digits that are displayed; `None` for anything else.
            #[must_use]
            pub fn parse(text: &str) -> Option<$name> {
                let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
                let bits = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
                bits.map($name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:032x})"), self.0)
            }
        }
    };
}

macro_rules! ulid_identity {
    ($(#[$meta:meta])* $name:ident) => {
        identity! { $(#[$meta])* $name }

        impl $name {
            /// Parses the 26 characters of a ULID; `None` for anything else, lower case included
            /// (one object, one name).
            #[must_use]
            pub fn parse(text: &str) -> Option<$name> {
                let bits = Ulid::from_string(text).ok()?.0;
                let id = $name(bits);
                // The crate also reads lower case.
                (id.to_string() == text).then_some(id)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(Ulid(self.0).array_to_str(&mut [0; ULID_LEN]))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

hex_identity! {
    /// Identity of a database, made when it is created; every object carries it.
    ///
    /// ```text
    /// | 64 bits: the number that it counts from | 64 random bits |   a place that may be deleted
    /// | 128 random bits                                          |   all others, and older ones
    /// ```
    DatabaseId
}

/// Numbers that a database has for each millisecond of its life: some four million manifests or WAL
/// objects a second. Until the year 2039 a number then fits into the 53 bits that every JSON reader
/// preserves.
pub const NUMBERS_A_MILLI: u64 = 1 << 12;

impl DatabaseId {
    /// The identity of a database whose manifests, WAL objects and job records count from `first`:
    /// the first number of a millisecond, below 2^53. The identity contains this number because
    /// every process knows it and it never changes.
    #[must_use]
    pub const fn counting_from(first: u64, random: u64) -> DatabaseId {
        DatabaseId((first as u128) << 64 | random as u128)
    }

    /// The number that its manifests, WAL objects and job records count from; 1 if the identity
    /// contains none. One in eight million random identities appears to contain one: 11 bits are 0
    /// above the 53, and 12 below a millisecond.
    #[must_use]
    pub const fn counts_from(self) -> u64 {
        let first = (self.0 >> 64) as u64;
        let says = first != 0 && first < 1 << 53 && first.is_multiple_of(NUMBERS_A_MILLI);
        if says { first } else { 1 }
    }
}
hex_identity! {
    /// Identity of one stored object.
    ObjectId
}
hex_identity! {
    /// Identity of one attempt to create an object. It is part of the bytes, so that reading them
    /// back settles an ambiguous answer.
    AttemptId
}
hex_identity! {
    /// Identity of a checkpoint (a UUID).
    CheckpointId
}

impl CheckpointId {
    /// A UUID of version 4 from `random` bits (RFC 9562, section 5.4): four bits contain the
    /// version, two the variant.
    #[must_use]
    pub const fn random(random: u128) -> CheckpointId {
        let (version, variant) = (0xf << 76, 0b11 << 62);
        CheckpointId((random & !(version | variant)) | (4 << 76) | (0b10 << 62))
    }
}
hex_identity! {
    /// Identity of a history of a database that began with a restore, or with a clone.
    TimelineId
}
hex_identity! {
    /// Identity of a request for a clone. A repeated request continues the first one.
    RequestId
}
hex_identity! {
    /// Identity of an object store.
    StoreId
}
ulid_identity! {
    /// Name of a table under `compacted/`: a ULID, time-ordered to the millisecond.
    SstId
}
ulid_identity! {
    /// Name of an ingest or compaction job: a ULID.
    JobId
}

impl JobId {
    /// The folder of an export into this database: a ULID of time 0, with a `1` above its random
    /// bits. So the id is never "none", and never that of an ingest, whose time is a deadline.
    #[must_use]
    pub const fn of_an_export(random: u128) -> JobId {
        const RANDOM_BITS: u32 = 79;
        JobId((1 << RANDOM_BITS) | (random & ((1 << RANDOM_BITS) - 1)))
    }

    /// Whether it is the folder of an export.
    #[must_use]
    pub const fn is_of_an_export(self) -> bool {
        const RANDOM_BITS: u32 = 79;
        self.0 >> RANDOM_BITS == 1
    }

    /// The folder of a compaction job's units: a ULID of time 0, with a `01` above the job's last
    /// bits. So the id is never that of an export or of an ingest.
    #[must_use]
    pub const fn of_units(job: JobId) -> JobId {
        const RANDOM_BITS: u32 = 78;
        JobId((1 << RANDOM_BITS) | (job.0 & ((1 << RANDOM_BITS) - 1)))
    }

    /// Whether it is the folder of a compaction job's units.
    #[must_use]
    pub const fn is_of_units(self) -> bool {
        const RANDOM_BITS: u32 = 78;
        self.0 >> RANDOM_BITS == 1
    }
}

/// Makes the 128 bits of a ULID: 48 bits of Unix milliseconds, then 80 random bits.
/// (ULID specification, "Layout and byte order".)
#[must_use]
pub fn ulid_bits(unix_millis: u64, random: u128) -> u128 {
    const RANDOM_BITS: u32 = 80;
    (u128::from(unix_millis & ((1 << 48) - 1)) << RANDOM_BITS) | (random & ((1 << RANDOM_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulid_text_round_trips_and_sorts_like_the_bits() {
        let early = SstId(ulid_bits(1, u128::MAX));
        let late = SstId(ulid_bits(2, 0));
        assert!(early.to_string() < late.to_string());
        for id in [early, late, SstId(0), SstId(u128::MAX)] {
            assert_eq!(SstId::parse(&id.to_string()), Some(id));
        }
    }

    #[test]
    fn ulid_parse_refuses_what_is_not_one() {
        for text in ["", "0", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01ARZ3NDEKTSV4RRFFQ69G5FAI"] {
            assert_eq!(SstId::parse(text), None, "{text}");
        }
        assert_eq!(SstId::parse("01arz3ndektsv4rrffq69g5fav"), None);
        assert!(SstId::parse("01ARZ3NDEKTSV4RRFFQ69G5FAV").is_some());
    }

    #[test]
    fn an_identity_says_what_its_database_counts_from() {
        let first = 440_000_000_000 * NUMBERS_A_MILLI;
        for random in [0, 1, u64::MAX] {
            let id = DatabaseId::counting_from(first, random);
            assert_eq!((id.counts_from(), id.0 as u64), (first, random));
            assert_eq!(DatabaseId::parse(&id.to_string()), Some(id));
        }
        let says_nothing = [0, 1 << 53, first + 1, first + NUMBERS_A_MILLI / 2, u64::MAX];
        for high in says_nothing {
            assert_eq!(DatabaseId::counting_from(high, 7).counts_from(), 1, "{high:x}");
        }
    }

    #[test]
    fn hex_ids_parse_what_they_display() {
        for id in [CheckpointId(0), CheckpointId(77), CheckpointId(u128::MAX)] {
            assert_eq!(CheckpointId::parse(&id.to_string()), Some(id));
        }
        let signed = format!("+{}", "1".repeat(31));
        for text in ["", "4d", &"g".repeat(32), &"1".repeat(33), &signed] {
            assert_eq!(CheckpointId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn random_checkpoint_ids_are_uuids_of_version_4() {
        for random in [0, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let text = CheckpointId::random(random).to_string();
            assert_eq!(text.as_bytes()[12], b'4', "{text}");
            assert!(b"89ab".contains(&text.as_bytes()[16]), "{text}");
            let kept = !((0xf << 76) | (0b11 << 62));
            assert_eq!(CheckpointId::random(random).0 & kept, random & kept);
        }
    }

    #[test]
    fn jobs_of_exports_are_told_from_all_others() {
        for random in [0, 7, u128::MAX] {
            let job = JobId::of_an_export(random);
            assert!(job.is_of_an_export() && !job.is_none(), "{job}");
            assert!(job.to_string().starts_with("0000000000"), "{job}");
        }
        assert!(!JobId(ulid_bits(1, u128::MAX)).is_of_an_export());
        assert!(!JobId(ulid_bits(0, 7)).is_of_an_export());
    }

    #[test]
    fn folders_of_units_are_told_from_all_others() {
        for random in [0, 7, u128::MAX] {
            let folder = JobId::of_units(JobId(random));
            assert!(folder.is_of_units() && !folder.is_of_an_export(), "{folder}");
            assert!(!JobId::of_an_export(random).is_of_units());
            assert_eq!(JobId::of_units(folder), folder, "applied twice");
        }
        assert!(!JobId(ulid_bits(1, u128::MAX)).is_of_units());
        assert!(!JobId(ulid_bits(0, 7)).is_of_units());
        assert_ne!(JobId::of_units(JobId(1)), JobId::of_units(JobId(2)));
    }

    #[test]
    fn counted_ids_saturate() {
        assert_eq!(WalId(u64::MAX).next(), WalId(u64::MAX));
        assert_eq!(WalId(3).minus(4), WalId::NONE);
    }
}
