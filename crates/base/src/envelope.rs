//! The envelope at the start of every stored object (RFC 0002).
//!
//! ```text
//! offset size field
//!      0    8 magic "SILTSTON"
//!      8    2 object kind
//!     10    2 format version, 1
//!     12    4 compatible feature bits: a reader that does not know one may continue
//!     16    4 incompatible feature bits: a reader that does not know one must refuse
//!     20   16 database id, big-endian
//!     36   16 object id, big-endian
//!     52   16 attempt id of the writer, big-endian
//!     68    4 CRC32C of bytes 0..68
//! ```
//! Numbers are little-endian unless stated otherwise.

use crate::bytes_io::Reader;
use crate::checksum::crc32c;
use crate::error::{Error, Result};
use crate::id::{AttemptId, DatabaseId, ObjectId};
use std::fmt;

/// Bytes of an envelope.
pub const ENVELOPE_BYTES: usize = 72;
/// The version that this code writes, and the newest that it reads.
pub const FORMAT_VERSION: u16 = 1;
/// Incompatible feature bits that this code knows: none yet.
pub const KNOWN_INCOMPATIBLE: u32 = 0;
/// The first bytes of an envelope.
pub const MAGIC: &[u8; 8] = b"SILTSTON";
/// Begins an object that is encrypted as a whole (RFC 0054), in place of an envelope.
pub const ENCRYPTED: &[u8; 8] = b"SLTENC1\n";

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ObjectKind {
    /// A manifest.
    Manifest = 1,
    /// A WAL object.
    Wal = 2,
    /// A table.
    Table = 3,
    /// A boundary object: its name is its content.
    Boundary = 4,
    /// A compaction job record.
    Compactions = 5,
    /// An ingest job's manifest.
    Ingest = 6,
    /// The record or scratch of the store probe.
    Probe = 7,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ObjectKind::Manifest => "manifest",
            ObjectKind::Wal => "WAL object",
            ObjectKind::Table => "table",
            ObjectKind::Boundary => "boundary",
            ObjectKind::Compactions => "compaction record",
            ObjectKind::Ingest => "ingest manifest",
            ObjectKind::Probe => "probe",
        })
    }
}

impl ObjectKind {
    fn from_number(number: u16) -> Option<ObjectKind> {
        Some(match number {
            1 => ObjectKind::Manifest,
            2 => ObjectKind::Wal,
            3 => ObjectKind::Table,
            4 => ObjectKind::Boundary,
            5 => ObjectKind::Compactions,
            6 => ObjectKind::Ingest,
            7 => ObjectKind::Probe,
            _ => return None,
        })
    }
}

/// The head of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The kind of the object.
    pub kind: ObjectKind,
    /// Features that a reader may ignore.
    pub compatible: u32,
    /// Features that a reader must know.
    pub incompatible: u32,
    /// The database to which it belongs (protocol rule F8).
    pub database: DatabaseId,
    /// Its own identity; the checksums inside are bound to it.
    pub object: ObjectId,
    /// The attempt that wrote it.
    pub attempt: AttemptId,
}

impl Envelope {
    /// An envelope without feature bits.
    #[must_use]
    pub fn new(
        kind: ObjectKind,
        database: DatabaseId,
        object: ObjectId,
        attempt: AttemptId,
    ) -> Self {
        Envelope { kind, compatible: 0, incompatible: 0, database, object, attempt }
    }

    /// The stored bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ENVELOPE_BYTES] {
        let mut bytes = Vec::with_capacity(ENVELOPE_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(self.kind as u16).to_le_bytes());
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.compatible.to_le_bytes());
        bytes.extend_from_slice(&self.incompatible.to_le_bytes());
        bytes.extend_from_slice(&self.database.to_bytes());
        bytes.extend_from_slice(&self.object.to_bytes());
        bytes.extend_from_slice(&self.attempt.to_bytes());
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        let mut head = [0u8; ENVELOPE_BYTES];
        head.copy_from_slice(&bytes);
        head
    }

    /// Reads the envelope at the start of `object` and checks that it is of kind `expected`.
    ///
    /// # Errors
    /// Corruption for damaged bytes or another kind; Unsupported for a newer format version, an
    /// unknown kind or an unknown incompatible feature bit, by number.
    pub fn decode(object: &[u8], expected: ObjectKind) -> Result<Envelope> {
        let mut reader = Reader::new(object);
        let head = reader.take(ENVELOPE_BYTES)?;
        let mut reader = Reader::new(head);
        if head.starts_with(ENCRYPTED) {
            return Err(Error::unsupported(
                "the database is encrypted: give its key as the store option `encryption_key`",
            ));
        }
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(Error::corruption("not a Siltstone object (the magic does not match)"));
        }
        let (covered, _) = head.split_at(ENVELOPE_BYTES - 4);
        let kind = reader.u16()?;
        let version = reader.u16()?;
        let compatible = reader.u32()?;
        let incompatible = reader.u32()?;
        let database = DatabaseId(reader.u128_be()?);
        let object_id = ObjectId(reader.u128_be()?);
        let attempt = AttemptId(reader.u128_be()?);
        if reader.u32()? != crc32c(covered) {
            return Err(Error::corruption("checksum mismatch in the object's head"));
        }
        if version > FORMAT_VERSION || version == 0 {
            return Err(Error::unsupported(
                "written by a newer version of Siltstone; upgrade to read it",
            )
            .with("format version", version)
            .with("newest known", FORMAT_VERSION));
        }
        let unknown = incompatible & !KNOWN_INCOMPATIBLE;
        if unknown != 0 {
            return Err(Error::unsupported(
                "uses a feature that this version of Siltstone does not know; upgrade to read it",
            )
            .with("feature bit", unknown.trailing_zeros()));
        }
        let kind = ObjectKind::from_number(kind).ok_or_else(|| {
            Error::unsupported("an object of a kind that this version of Siltstone does not know")
                .with("kind", kind)
        })?;
        if kind != expected {
            return Err(Error::corruption("an object of another kind stands under this name")
                .with("expected", expected)
                .with("found", kind));
        }
        Ok(Envelope { kind, compatible, incompatible, database, object: object_id, attempt })
    }

    /// Checks that the object belongs to `database` (protocol rule F8).
    ///
    /// # Errors
    /// Corruption if it belongs to another database, for example after a database was destroyed and
    /// created again at the same path.
    pub fn check_database(&self, database: DatabaseId) -> Result<()> {
        if self.database == database {
            return Ok(());
        }
        Err(Error::corruption("the object belongs to another database")
            .with("expected", database)
            .with("found", self.database))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Envelope {
        Envelope::new(ObjectKind::Wal, DatabaseId(1), ObjectId(2), AttemptId(3))
    }

    #[test]
    fn round_trips() {
        let bytes = sample().encode();
        assert_eq!(Envelope::decode(&bytes, ObjectKind::Wal).ok(), Some(sample()));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = sample().encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            if let Some(byte) = flipped.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            let error = Envelope::decode(&flipped, ObjectKind::Wal).err();
            assert_eq!(error.map(|e| e.kind()), Some(crate::ErrorKind::Corruption), "bit {bit}");
        }
    }

    #[test]
    fn newer_features_are_refused_by_number() {
        let newer = Envelope { incompatible: 1 << 5, ..sample() };
        let error = Envelope::decode(&newer.encode(), ObjectKind::Wal).err();
        let error = error.map(|e| (e.kind(), e.to_string()));
        assert!(
            matches!(&error, Some((crate::ErrorKind::Unsupported, text)) if text.contains('5')),
            "{error:?}"
        );
    }
}
