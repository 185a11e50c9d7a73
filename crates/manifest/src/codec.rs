//! The encoding of manifest objects and boundary objects (RFC 0002).
//!
//! ```text
//! manifest                                 boundary
//! offset  size  field                      offset  size  field
//!      0    72  envelope, kind Manifest         0    72  envelope, kind Boundary
//!     72     8  length n of the body           72     8  the id in its name
//!     80     n  FlatBuffers body               80     4  checksum, as on the left
//!   80+n     4  CRC32C of bytes 0..80+n,
//!               bound to the object id, 0
//! ```
//! Numbers are little-endian. The checksum is verified before the body is read. So the later checks
//! protect against a faulty writer, not against a flipped bit: the FlatBuffers verifier with limits
//! derived from the length, then ranges, then the invariants.
//!
//! The identity of the database, the attempt id and the feature bits are only in the envelope;
//! [`Manifest::decode`] copies them into the state. This module enforces RFC 0024: it must not
//! decode data that this version cannot read, and must not encode a state if unknown data would be
//! lost.

pub(crate) mod decode;
pub(crate) mod encode;
mod shared;
pub(crate) mod unknown;

pub(crate) use encode::TABLE_BYTES_AT_MOST;

use crate::state::{FedIngest, ForgottenApps, Manifest, behind};
use bytes::Bytes;
use siltstone_base::bytes_io::Reader;
use siltstone_base::checksum::bound;
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::limits::MAX_MANIFEST_BYTES;
use siltstone_base::{AttemptId, DatabaseId, Envelope, Error, ObjectId, ObjectKind, Result};

/// Bytes before the body: the envelope and the body's length.
const HEAD_BYTES: usize = ENVELOPE_BYTES + 8;
/// Bytes after the body: the checksum.
const CHECKSUM_BYTES: usize = 4;
/// Bytes around the body.
pub(crate) const FRAME_BYTES: u64 = (HEAD_BYTES + CHECKSUM_BYTES) as u64;

impl Manifest {
    /// Encodes a manifest object with the identity `object`, written by `attempt`. Equal arguments
    /// give equal bytes.
    ///
    /// # Errors
    /// Invalid if the object could exceed
    /// [`MAX_MANIFEST_BYTES`](siltstone_base::limits::MAX_MANIFEST_BYTES), above which no process
    /// reads it. Unsupported if data of a newer version would be lost or broken.
    pub fn encode(&self, object: ObjectId, attempt: AttemptId) -> Result<Bytes> {
        self.features.check_committable()?;
        let envelope = Envelope::new(ObjectKind::Manifest, self.database, object, attempt);
        self.encode_with(&self.features.carried.onto(envelope))
    }

    /// Encodes with this envelope, even if data of a newer version is lost: for tools and tests.
    ///
    /// # Errors
    /// Invalid when the object could be too large.
    pub fn encode_with(&self, envelope: &Envelope) -> Result<Bytes> {
        if let Some(mirror) = &self.mirror {
            let features = mirror.onto(&self.features);
            let stored = Manifest { features, mirror: None, ..self.clone() };
            return stored.encode_with(envelope);
        }
        if !self.fed.is_empty() {
            let features = FedIngest::onto(&self.fed, &self.features);
            let stored = Manifest { features, fed: Vec::new(), ..self.clone() };
            return stored.encode_with(envelope);
        }
        if let Some(taken) = self.behind {
            let features = behind::onto(taken, &self.features);
            let stored = Manifest { features, behind: None, ..self.clone() };
            return stored.encode_with(envelope);
        }
        if self.forgotten_apps != ForgottenApps::default() {
            let features = self.forgotten_apps.onto(&self.features);
            let forgotten_apps = ForgottenApps::default();
            let stored = Manifest { features, forgotten_apps, ..self.clone() };
            return stored.encode_with(envelope);
        }
        let most = encode::body_bytes_at_most(self).saturating_add(FRAME_BYTES);
        if most > MAX_MANIFEST_BYTES {
            return Err(Error::invalid("the manifest would be too large; compact the database")
                .with("bytes at most", most)
                .with("limit", MAX_MANIFEST_BYTES));
        }
        let body = encode::body(self);
        Ok(seal(envelope, body.len() as u64, &body))
    }

    /// Decodes a manifest object.
    ///
    /// # Errors
    /// Corruption for damaged bytes, and for a state that breaks an invariant (with its name);
    /// Unsupported for data of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<(Envelope, Manifest)> {
        if bytes.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(Error::corruption("a manifest exceeds the maximum size")
                .with("bytes", bytes.len())
                .with("limit", MAX_MANIFEST_BYTES));
        }
        let (envelope, length, body) = unseal(bytes, ObjectKind::Manifest)?;
        if length != body.len() as u64 {
            return Err(Error::corruption(
                "the length in a manifest differs from that of its body",
            )
            .with("says", length)
            .with("has", body.len()));
        }
        let manifest = decode::body(body, &envelope)?;
        Ok((envelope, manifest))
    }
}

/// Encodes the boundary object with `id` in its name.
#[must_use]
pub fn encode_boundary(
    id: u64,
    database: DatabaseId,
    object: ObjectId,
    attempt: AttemptId,
) -> Bytes {
    seal(&Envelope::new(ObjectKind::Boundary, database, object, attempt), id, &[])
}

/// A compatible flag in the envelope of a manifest boundary: the database was destroyed, and no
/// manifest is above it (rule D4).
const EMPTIED: u32 = 1;

/// As [`encode_boundary`], for the boundary after the last manifest of a destroyed database.
#[must_use]
pub fn encode_last_boundary(
    id: u64,
    database: DatabaseId,
    object: ObjectId,
    attempt: AttemptId,
) -> Bytes {
    let envelope = Envelope::new(ObjectKind::Boundary, database, object, attempt);
    seal(&Envelope { compatible: EMPTIED, ..envelope }, id, &[])
}

/// Whether a boundary records that its database is destroyed and deleted.
#[must_use]
pub fn says_emptied(boundary: &Envelope) -> bool {
    boundary.compatible & EMPTIED != 0
}

/// Decodes a boundary object: its envelope, and the id that its name must contain.
///
/// # Errors
/// Corruption for damaged bytes or an id of 0; Unsupported for data of a newer version.
pub fn decode_boundary(bytes: &[u8]) -> Result<(Envelope, u64)> {
    let (envelope, id, rest) = unseal(bytes, ObjectKind::Boundary)?;
    if id == 0 || !rest.is_empty() {
        return Err(Error::corruption("not a boundary object")
            .with("id", id)
            .with("bytes left over", rest.len()));
    }
    Ok((envelope, id))
}

/// `envelope | number | body | checksum`.
pub(crate) fn seal(envelope: &Envelope, number: u64, body: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len() + CHECKSUM_BYTES);
    bytes.extend_from_slice(&envelope.encode());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(body);
    let checksum = bound(envelope.object, 0, &bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    Bytes::from(bytes)
}

/// Checks the checksum of the bytes made by [`seal`], and returns envelope, number and body.
pub(crate) fn unseal(bytes: &[u8], kind: ObjectKind) -> Result<(Envelope, u64, &[u8])> {
    let envelope = Envelope::decode(bytes, kind)?;
    let covered = bytes
        .len()
        .checked_sub(CHECKSUM_BYTES)
        .filter(|covered| *covered >= HEAD_BYTES)
        .ok_or_else(|| Error::corruption("bytes end too early").with("bytes", bytes.len()))?;
    let mut reader = Reader::new(bytes);
    let guarded = reader.take(covered)?;
    if reader.u32()? != bound(envelope.object, 0, guarded) {
        return Err(Error::corruption("checksum mismatch").with("kind", kind));
    }
    let mut reader = Reader::new(guarded);
    reader.take(ENVELOPE_BYTES)?;
    let number = reader.u64()?;
    let body = reader.take(reader.remaining())?;
    Ok((envelope, number, body))
}
