//! Every decoder of stored bytes, behind one signature.

use crate::{is_refusal, samples, seal, typed};
use bytes::Bytes;
use siltstone_base::bytes_io::Reader;
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{
    Batch, BatchOps, Entry, Envelope, ErrorKind, Kind, ObjectKind, Result, Seq, UnixMillis, WalId,
    compare_internal,
};
use siltstone_bloom::{Bloom, DecodeError};
use siltstone_manifest::Manifest;
use siltstone_manifest::codec::{decode_boundary, encode_boundary};
use siltstone_manifest::compaction::Compactions;
use siltstone_memtable::Memtable;
use siltstone_sst::wal::{self, WalBody, WalBuilder, WalRecord, encode_fence};
use siltstone_sst::{Table, TableBuilder, TableOptions};
use std::sync::Arc;

/// One decoder.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    /// The input that it reads.
    pub name: &'static str,
    /// Decodes, holds what came out against what it promises, and answers it in a canonical form:
    /// equal bytes mean an equal value.
    pub decode: fn(&[u8]) -> Result<Vec<u8>>,
    /// Makes every checksum right; `None` where there is none.
    pub reseal: Option<fn(&mut [u8])>,
    /// Valid files.
    pub samples: fn() -> Vec<Vec<u8>>,
    /// Bytes of memory that it may take for each byte of input; RFC 0015 derives it.
    pub memory_factor: usize,
}

impl Decoder {
    /// Any bytes, as they are and with checksums made right: an answer or a refusal.
    ///
    /// # Panics
    /// When an error is of another kind, or what was decoded breaks a promise.
    pub fn fuzz(&self, data: &[u8]) {
        self.refused(data);
        if let Some(reseal) = self.reseal {
            let mut sealed = data.to_vec();
            reseal(&mut sealed);
            self.refused(&sealed);
        }
    }

    /// Whether the bytes were refused.
    ///
    /// # Panics
    /// As [`Decoder::fuzz`].
    pub fn refused(&self, data: &[u8]) -> bool {
        match (self.decode)(data) {
            Ok(_) => false,
            Err(error) => {
                assert!(is_refusal(error.kind()), "{}: {error:?}", self.name);
                true
            }
        }
    }
}

/// Every one of them.
pub const DECODERS: [Decoder; 13] = [
    ENVELOPE,
    MANIFEST,
    COMPACTIONS,
    BOUNDARY,
    WAL,
    TABLE,
    BLOCK,
    FILTER,
    BATCH,
    typed::TYPED_KEY,
    typed::TYPED_VALUE,
    typed::TUPLE,
    typed::TABLE_SCHEMA,
];

/// The head of every object.
pub const ENVELOPE: Decoder = Decoder {
    name: "envelope",
    decode: |bytes| {
        let kinds = [ObjectKind::Manifest, ObjectKind::Wal, ObjectKind::Table];
        let kinds = kinds.into_iter().chain([ObjectKind::Boundary, ObjectKind::Probe]);
        let mut answer = Envelope::decode(bytes, ObjectKind::Compactions);
        for kind in kinds.chain([ObjectKind::Ingest]) {
            let decoded = Envelope::decode(bytes, kind);
            assert!(answer.is_err() || decoded.is_err(), "an object is of two kinds");
            answer = answer.or(decoded);
        }
        let envelope = answer?;
        let encoded = envelope.encode();
        assert_eq!(bytes.get(..ENVELOPE_BYTES), Some(encoded.as_slice()));
        Ok(encoded.to_vec())
    },
    reseal: Some(|bytes| seal::envelope_at(bytes, 0)),
    samples: samples::envelopes,
    memory_factor: 64,
};

/// A manifest object.
pub const MANIFEST: Decoder = Decoder {
    name: "manifest",
    decode: |bytes| {
        let (envelope, manifest) = Manifest::decode(bytes)?;
        let encoded = manifest.encode(envelope.object, envelope.attempt)?;
        let (_, again) = Manifest::decode(&encoded)?;
        assert!(again == manifest, "a manifest changes when it is written again");
        Ok([encoded.as_ref(), &envelope.compatible.to_le_bytes()].concat())
    },
    reseal: Some(seal::manifest),
    samples: samples::manifests,
    memory_factor: 256,
};

/// A record of compaction jobs.
pub const COMPACTIONS: Decoder = Decoder {
    name: "compactions",
    decode: |bytes| {
        let (envelope, record) = Compactions::decode(bytes)?;
        let encoded = record.encode(envelope.object, envelope.attempt)?;
        let (_, again) = Compactions::decode(&encoded)?;
        assert!(again == record, "a record changes when it is written again");
        Ok([encoded.as_ref(), &envelope.compatible.to_le_bytes()].concat())
    },
    reseal: Some(seal::manifest),
    samples: samples::records,
    memory_factor: 256,
};

/// A boundary object.
pub const BOUNDARY: Decoder = Decoder {
    name: "boundary",
    decode: |bytes| {
        let (envelope, id) = decode_boundary(bytes)?;
        let encoded = encode_boundary(id, envelope.database, envelope.object, envelope.attempt);
        Ok([encoded.as_ref(), &envelope.compatible.to_le_bytes()].concat())
    },
    reseal: Some(seal::boundary),
    samples: samples::boundaries,
    memory_factor: 64,
};

/// A WAL object: its records, and their operations into a memtable.
pub const WAL: Decoder = Decoder {
    name: "wal",
    decode: |bytes| {
        // The id that its name says, which is the one thing that comes from outside.
        let id = bytes.get(88..96).and_then(|id| id.first_chunk::<8>());
        let id = WalId(u64::from_le_bytes(id.copied().unwrap_or_default()));
        let object = wal::decode(Bytes::copy_from_slice(bytes), id)?;
        let mut builder = WalBuilder::new();
        let memtable = Memtable::new();
        for record in object.records() {
            let WalRecord::Batch { first_seq, ops, bytes } = record? else { continue };
            assert_eq!(BatchOps::new(&bytes).count() as u64, u64::from(ops));
            memtable.insert_batch(first_seq, &Arc::from(bytes.as_ref()))?;
            builder.push_batch(first_seq, ops, &bytes);
        }
        let envelope = object.envelope;
        let encoded = match object.body {
            WalBody::Fence { next_id } => encode_fence(envelope, object.epoch, id, next_id),
            WalBody::Records(_) => builder.finish(envelope, object.epoch, id, object.sent),
        };
        // A longer head is a newer version's; what it says more is not written again.
        let longer = bytes.get(74..76) != Some(&[88, 0]);
        assert!(
            longer || encoded.as_ref() == bytes,
            "a WAL object changes when it is written again"
        );
        Ok(encoded.to_vec())
    },
    reseal: Some(seal::wal),
    samples: samples::wal_objects,
    memory_factor: 64,
};

/// A table that is read alone: its tail, then every block.
pub const TABLE: Decoder = Decoder {
    name: "table",
    decode: |bytes| {
        let (table, entries) = read_table(bytes)?;
        let mut canonical = Vec::new();
        for pair in entries.windows(2) {
            let [left, right] = pair else { continue };
            let order = compare_internal(&left.0, left.1, &right.0, right.1);
            assert!(order.is_lt(), "entries out of order were accepted");
        }
        // The canonical form leaves out the envelope at the front, which a reader never sees.
        canonical.extend_from_slice(&table.envelope().encode());
        for (key, seq, rest) in &entries {
            canonical.extend_from_slice(&(key.len() as u32).to_le_bytes());
            canonical.extend_from_slice(key);
            canonical.extend_from_slice(&seq.get().to_le_bytes());
            canonical.extend_from_slice(rest);
        }
        Ok(canonical)
    },
    reseal: Some(seal::table),
    samples: samples::tables,
    memory_factor: 512,
};

type Row = (Vec<u8>, Seq, Vec<u8>);

fn row(entry: &Entry<'_>) -> Row {
    let expiry = entry.expires_at.map_or(0, |at| at.0);
    let mut rest = vec![entry.kind as u8, u8::from(entry.expires_at.is_some())];
    rest.extend_from_slice(&expiry.to_le_bytes());
    rest.extend_from_slice(entry.value);
    (entry.key.to_vec(), entry.seq, rest)
}

fn read_table(bytes: &[u8]) -> Result<(Table, Vec<Row>)> {
    let length = bytes.len() as u64;
    let part = |start: u64, end: u64| {
        let part = bytes.get(start as usize..end as usize);
        Bytes::copy_from_slice(part.unwrap_or_default())
    };
    let footer = Table::footer_range(length)?;
    let tail = Table::tail_range_of_footer(length, &part(footer.start, footer.end))?;
    let table = Table::open_alone(length, part(tail.start, tail.end))?;
    let mut rows = Vec::new();
    for number in 0..table.block_count() {
        let Some(range) = table.block_range(number) else { continue };
        let block = table.decode_block(number, part(range.start, range.end))?;
        for position in 0..block.len() {
            if let Some(entry) = block.entry(position) {
                rows.push(row(&entry));
            }
        }
        assert!(block.entry(block.len()).is_none());
    }
    Ok((table, rows))
}

/// One block, as it lies in a table: codec, length, bytes. The table around it is made to fit.
pub const BLOCK: Decoder = Decoder {
    name: "block",
    decode: |stored| {
        let bytes = samples::table_around(stored);
        let (_, rows) = read_table(&bytes)?;
        // A decoded value can be encoded, and is decoded again.
        let envelope = samples::envelope(ObjectKind::Table, samples::OBJECT);
        let mut builder = TableBuilder::new(TableOptions::default(), envelope);
        for (key, seq, rest) in &rows {
            builder.add(&entry_of(key, *seq, rest)?)?;
        }
        let (again, _) = builder.finish()?;
        let (_, read) = read_table(&again)?;
        assert!(read == rows, "entries change when they are written again");
        Ok(rows.into_iter().flat_map(|(key, _, rest)| [key, rest].concat()).collect())
    },
    reseal: None,
    samples: samples::blocks,
    memory_factor: 1024,
};

fn entry_of<'a>(key: &'a [u8], seq: Seq, rest: &'a [u8]) -> Result<Entry<'a>> {
    let mut reader = Reader::new(rest);
    let kind = Kind::from_byte(reader.u8()?)?;
    let expires = reader.u8()? != 0;
    let expiry = UnixMillis(reader.u64()?);
    let value = reader.take(reader.remaining())?;
    Ok(Entry { key, seq, kind, expires_at: expires.then_some(expiry), value })
}

/// A filter. It has no checksum of its own; its section in the table does.
pub const FILTER: Decoder = Decoder {
    name: "filter",
    decode: |bytes| {
        let filter = Bloom::decode(bytes).map_err(|error| {
            let kind = match error {
                DecodeError::Corrupt => ErrorKind::Corruption,
                DecodeError::UnknownVersion(_) => ErrorKind::Unsupported,
            };
            siltstone_base::Error::new(kind, error.to_string())
        })?;
        assert!(filter.memory_bytes() <= 128 + bytes.len());
        let asked = (0..64u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Ok(asked.map(|hash| u8::from(filter.may_contain(hash))).collect())
    },
    reseal: None,
    samples: samples::filters,
    memory_factor: 64,
};

/// An encoded batch. It has no checksum of its own; the WAL object around it does.
pub const BATCH: Decoder = Decoder {
    name: "batch",
    decode: |bytes| {
        let mut again = Batch::new();
        for op in BatchOps::new(bytes) {
            let op = op?;
            again.push(op.kind, op.key, op.value, op.expires_at)?;
            let at = op.key_offset;
            assert_eq!(bytes.get(at..at + op.key.len()), Some(op.key));
        }
        let ops: Vec<_> = BatchOps::new(bytes).filter_map(Result::ok).collect();
        let read = BatchOps::new(again.as_bytes()).filter_map(Result::ok);
        let same = read.zip(&ops).all(|(a, b)| {
            (a.kind, a.key, a.value, a.expires_at) == (b.kind, b.key, b.value, b.expires_at)
        });
        assert!(same && ops.len() as u64 == u64::from(again.ops()));
        Ok(again.as_bytes().to_vec())
    },
    reseal: None,
    samples: samples::batches,
    memory_factor: 64,
};
