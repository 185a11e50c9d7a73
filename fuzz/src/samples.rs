//! Small valid files of every format, made by the builders, and the golden files.

use crate::seal;
use siltstone_base::bytes_io::put_varint;
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{
    AttemptId, Batch, DatabaseId, Entry, Envelope, Epoch, Kind, ObjectId, ObjectKind, Result, Seq,
    UnixMillis, WalId, compare_internal,
};
use siltstone_bloom::{BloomBuilder, key_hash};
use siltstone_manifest::codec::encode_boundary;
use siltstone_manifest::{Manifest, Settings};
use siltstone_sst::wal::{CutInfo, WalBuilder, encode_fence};
use siltstone_sst::{Codec, FOOTER_BYTES, TableBuilder, TableOptions};

/// Identity of the objects that samples are.
pub const OBJECT: ObjectId = ObjectId(0x5157);
const DATABASE: DatabaseId = DatabaseId(0xdb);
const ATTEMPT: AttemptId = AttemptId(0xa7);
const CODECS: [Codec; 3] = [Codec::None, Codec::Lz4, Codec::Zstd];
/// Bytes of a stored block before the block, and of its seal after it.
const BLOCK_FRAME: usize = 9;
const SEAL: usize = 4;

/// Includes golden files of a folder.
macro_rules! golden {
    ($($path:literal),+ $(,)?) => {
        [$(include_bytes!(concat!("../../tests/golden/", $path)).to_vec()),+]
    };
}

/// The envelope of an object of this kind.
#[must_use]
pub fn envelope(kind: ObjectKind, object: ObjectId) -> Envelope {
    Envelope::new(kind, DATABASE, object, ATTEMPT)
}

/// Envelopes of every kind.
#[must_use]
pub fn envelopes() -> Vec<Vec<u8>> {
    let kinds = [ObjectKind::Manifest, ObjectKind::Wal, ObjectKind::Probe];
    let mut samples: Vec<Vec<u8>> =
        kinds.iter().map(|kind| envelope(*kind, OBJECT).encode().to_vec()).collect();
    let featured = Envelope { compatible: 1 << 9, ..envelope(ObjectKind::Table, OBJECT) };
    samples.push(featured.encode().to_vec());
    samples
}

/// Manifests: the golden ones, and one that was just created.
#[must_use]
pub fn manifests() -> Vec<Vec<u8>> {
    let mut samples = golden!["manifest/full.manifest", "manifest/empty.manifest"].to_vec();
    let new = Manifest::new_database(DATABASE, Settings::default());
    samples.extend(new.encode(OBJECT, ATTEMPT).map(|bytes| bytes.to_vec()));
    samples
}

/// Records of compaction jobs.
#[must_use]
pub fn records() -> Vec<Vec<u8>> {
    golden!["manifest/full.compactions", "manifest/empty.compactions"].to_vec()
}

/// Boundaries.
#[must_use]
pub fn boundaries() -> Vec<Vec<u8>> {
    let mut samples = golden!["manifest/7.boundary"].to_vec();
    samples.push(encode_boundary(u64::MAX, DATABASE, OBJECT, ATTEMPT).to_vec());
    samples
}

/// Batches with every kind of operation.
#[must_use]
pub fn batches() -> Vec<Vec<u8>> {
    let batch = |fill: fn(&mut Batch) -> Result<()>| {
        let mut batch = Batch::new();
        let filled = fill(&mut batch);
        debug_assert!(filled.is_ok());
        batch.as_bytes().to_vec()
    };
    vec![
        batch(|batch| batch.put(b"key", b"value", None)),
        batch(|batch| {
            batch.put(b"k", &[7; 200], Some(UnixMillis(1_700_000_000_000)))?;
            batch.delete(b"kk")?;
            batch.merge(b"m", b"+1", None)?;
            batch.put(b"\xff\xff", b"", None)
        }),
    ]
}

/// WAL objects: the golden ones, one of two batches, an empty one, a fence.
#[must_use]
pub fn wal_objects() -> Vec<Vec<u8>> {
    let mut samples = golden!["sst/wal-records.bin", "sst/wal-fence.bin"].to_vec();
    let envelope = envelope(ObjectKind::Wal, OBJECT);
    let mut builder = WalBuilder::new();
    for (batch, (seq, ops)) in batches().iter().zip([(5u64, 1u32), (6, 4)]) {
        builder.push_batch(Seq(seq), ops, batch);
    }
    let sent = CutInfo { durable: WalId(7), at: UnixMillis(1_700_000_000_000) };
    samples.push(builder.finish(envelope, Epoch(3), WalId(9), sent).to_vec());
    samples.push(WalBuilder::new().finish(envelope, Epoch(3), WalId(10), sent).to_vec());
    samples.push(encode_fence(envelope, Epoch(4), WalId(11), WalId(75)).to_vec());
    samples
}

/// An entry that owns what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// User key.
    pub key: Vec<u8>,
    /// Place in the history.
    pub seq: Seq,
    /// Its kind.
    pub kind: Kind,
    /// Expiry.
    pub expires_at: Option<UnixMillis>,
    /// Value or operand.
    pub value: Vec<u8>,
}

impl Owned {
    /// A copy.
    #[must_use]
    pub fn of(entry: &Entry<'_>) -> Owned {
        let (key, value) = (entry.key.to_vec(), entry.value.to_vec());
        Owned { key, seq: entry.seq, kind: entry.kind, expires_at: entry.expires_at, value }
    }

    /// Borrowed.
    #[must_use]
    pub fn entry(&self) -> Entry<'_> {
        let Owned { key, seq, kind, expires_at, value } = self;
        Entry { key, seq: *seq, kind: *kind, expires_at: *expires_at, value }
    }
}

/// Every kind, several versions, expiries, lengths that vary: no column of a block collapses.
#[must_use]
pub fn entries() -> Vec<Owned> {
    let mut entries = Vec::new();
    for n in 0u64..12 {
        let kind = match n % 5 {
            2 => Kind::Delete,
            3 => Kind::Merge,
            _ => Kind::Put,
        };
        let value = if kind == Kind::Delete { String::new() } else { format!("value {n}") };
        entries.push(Owned {
            key: format!("key/{:02}", n / 3).into_bytes(),
            seq: Seq(300 - n * 20),
            kind,
            expires_at: (n % 4 == 1).then_some(UnixMillis(1_700_000_000_000 + n * 300)),
            value: value.into_bytes(),
        });
    }
    let (key, value) = (vec![b'z'; 40], vec![b'v'; 160]);
    entries.push(Owned { key, seq: Seq(7), kind: Kind::Put, expires_at: None, value });
    entries.sort_by(|a, b| compare_internal(&a.key, a.seq, &b.key, b.seq));
    entries
}

/// The table of `entries`, which are in order.
///
/// # Errors
/// The builder's.
pub fn table(options: TableOptions, entries: &[Owned]) -> Result<Vec<u8>> {
    let mut builder = TableBuilder::new(options, envelope(ObjectKind::Table, OBJECT));
    for entry in entries {
        builder.add(&entry.entry())?;
    }
    builder.finish().map(|(bytes, _)| bytes.to_vec())
}

/// Tables: the golden ones, and small ones of several blocks with each codec.
#[must_use]
pub fn tables() -> Vec<Vec<u8>> {
    let mut samples = golden![
        "sst/table-lz4.bin",
        "sst/table-no-filter.bin",
        "sst/table-uniform.bin",
        "sst/table-varied.bin",
        "sst/table-zstd.bin",
    ]
    .to_vec();
    for codec in CODECS {
        let options = TableOptions { block_bytes: 90, codec, filter_bits_per_key: 10 };
        samples.extend(table(options, &entries()));
    }
    samples
}

/// The beginnings of a table's sections, according to its footer.
fn places(table: &[u8]) -> [usize; 4] {
    let footer = table.len().saturating_sub(FOOTER_BYTES as usize);
    [0, 8, 16, 24].map(|field| {
        let word = table.get(footer + ENVELOPE_BYTES + field..).and_then(|w| w.first_chunk::<8>());
        word.map_or(0, |word| u64::from_le_bytes(*word) as usize)
    })
}

/// Stored blocks without their seal, with each codec, as [`table_around`] takes them.
#[must_use]
pub fn blocks() -> Vec<Vec<u8>> {
    let mut samples = Vec::new();
    let mut uniform = entries();
    for (n, entry) in uniform.iter_mut().enumerate() {
        *entry = Owned {
            key: format!("{n:04}").into_bytes(),
            seq: Seq(9),
            kind: Kind::Put,
            expires_at: None,
            value: vec![b'v'; 20],
        };
    }
    for entries in [entries(), uniform] {
        for codec in CODECS {
            let options = TableOptions { block_bytes: 10_000, codec, filter_bits_per_key: 0 };
            let Ok(bytes) = table(options, &entries) else { continue };
            let [filter, ..] = places(&bytes);
            samples.extend(bytes.get(ENVELOPE_BYTES..filter - SEAL).map(<[u8]>::to_vec));
        }
    }
    samples
}

/// A table of two blocks, the second of which is `stored`: a codec, a length, and bytes. The first
/// one holds the least internal key there is, and the second one's separator is above nearly every
/// key, so that `stored` alone decides whether the table is sound. Every checksum is right.
#[must_use]
pub fn table_around(stored: &[u8]) -> Vec<u8> {
    let last = vec![0xff; 64];
    let ends = [(vec![0], Seq::MAX), (last.clone(), Seq(0))].map(|(key, seq)| Owned {
        key,
        seq,
        kind: Kind::Put,
        expires_at: None,
        value: Vec::new(),
    });
    let options = TableOptions { block_bytes: 1, codec: Codec::None, filter_bits_per_key: 0 };
    let base = table(options, &ends).unwrap_or_default();
    let [filter, index, properties, footer] = places(&base);
    let part = |from: usize, to: usize| base.get(from..to).unwrap_or_default();
    // Both blocks of the base have one entry; the first one's length is told by its frame.
    let raw = part(ENVELOPE_BYTES + 1, ENVELOPE_BYTES + BLOCK_FRAME);
    let raw = raw.first_chunk::<8>().map_or(0, |raw| u64::from_le_bytes(*raw) as usize);
    let first = part(ENVELOPE_BYTES, ENVELOPE_BYTES + BLOCK_FRAME + raw + SEAL);

    let mut bytes = [part(0, ENVELOPE_BYTES), first, stored, &[0; SEAL]].concat();
    let new_filter = bytes.len();
    bytes.extend_from_slice(part(filter, index));
    let new_index = bytes.len();
    bytes.extend_from_slice(&2u32.to_le_bytes());
    bytes.extend_from_slice(&0u16.to_le_bytes());
    let blocks = [
        (first.len(), Seq::MAX.get() + 1, [0].as_slice()),
        (stored.len() + SEAL, 1, last.as_slice()),
    ];
    for (length, bound, separator) in blocks {
        put_varint(&mut bytes, length as u64);
        put_varint(&mut bytes, bound);
        put_varint(&mut bytes, separator.len() as u64);
        bytes.extend_from_slice(separator);
    }
    bytes.extend_from_slice(&[0; SEAL]);
    let new_properties = bytes.len();
    bytes.extend_from_slice(part(properties, footer));
    let new_footer = bytes.len();
    bytes.extend_from_slice(part(0, ENVELOPE_BYTES));
    for place in [new_filter, new_index, new_properties, new_footer] {
        bytes.extend_from_slice(&(place as u64).to_le_bytes());
    }
    // Checksum, codecs, key, room, seal.
    bytes.extend_from_slice(&[0; SEAL + 32 + SEAL]);
    seal::table(&mut bytes);
    bytes
}

/// Filters of several sizes.
#[must_use]
pub fn filters() -> Vec<Vec<u8>> {
    let of = |bits: u32, keys: u32| {
        let mut builder = BloomBuilder::new(bits);
        (0..keys).for_each(|key| builder.add(key_hash(&key.to_be_bytes())));
        builder.finish()
    };
    vec![of(0, 5), of(10, 0), of(10, 100), of(30, 20)]
}
