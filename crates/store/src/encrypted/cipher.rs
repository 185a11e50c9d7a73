//! Authenticated encryption of objects: AES-256-GCM with a key for each object.
//!
//! ```text
//! object key   HKDF-SHA256(data key, "siltstone object" | name)
//! sealed       key number u32 | nonce 12 | ciphertext | tag 16        associated: name | index u64
//! whole        "SLTENC1\n" | sealed, index 0
//! table        sealed of 16 KiB, index 0 │ sealed of 16 KiB, index 1 │ … │ the rest
//! ```
//! Nonces are random. A key encrypts one object, in 2^32 pieces at most, so they do not repeat. The
//! associated data binds each piece to its object and place. An object cut at a piece's end is
//! noticed by the length that the manifest records, and by the table's footer.

use super::keys::DataKey;
use crate::env::Random;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use bytes::{Bytes, BytesMut};
use siltstone_base::{Error, ObjectName, Result};

/// Begins every object that is encrypted as a whole.
pub(super) const MAGIC: &[u8; 8] = siltstone_base::envelope::ENCRYPTED;
/// Plain bytes of a piece of a table: a point read decrypts one or two of them, some 10 us.
pub(super) const PIECE: u64 = 16 << 10;
const KEY_NUMBER: usize = 4;
const TAG: usize = 16;
/// The bytes of a sealed piece besides its content.
pub(super) const OVERHEAD: u64 = (KEY_NUMBER + NONCE_LEN + TAG) as u64;
/// Stored bytes of a whole piece.
pub(super) const STORED_PIECE: u64 = PIECE + OVERHEAD;

/// Whether objects of this name are read in ranges, and so are encrypted in pieces.
pub(super) fn is_table(name: ObjectName) -> bool {
    matches!(
        name,
        ObjectName::Compacted(_) | ObjectName::IngestSst(..) | ObjectName::DamagedTable(..)
    )
}

/// Plain bytes of a stored object.
pub(super) fn plain_bytes(name: ObjectName, stored: u64) -> u64 {
    if is_table(name) {
        stored / STORED_PIECE * PIECE + (stored % STORED_PIECE).saturating_sub(OVERHEAD)
    } else {
        stored.saturating_sub(MAGIC.len() as u64 + OVERHEAD)
    }
}

pub(super) fn failed() -> Error {
    Error::internal("the cipher failed")
}

/// The key of one object.
pub(super) struct ObjectKey {
    number: u32,
    name: String,
    key: LessSafeKey,
}

impl ObjectKey {
    pub(super) fn new(data: &DataKey, name: ObjectName) -> Result<ObjectKey> {
        let name = name.to_string();
        let info = [b"siltstone object".as_slice(), name.as_bytes()];
        let secret = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, data.bytes());
        let key = secret.expand(&info, &AES_256_GCM).map_err(|_| failed())?;
        let key = LessSafeKey::new(UnboundKey::from(key));
        Ok(ObjectKey { number: data.number(), name, key })
    }

    fn associated(&self, index: u64) -> Aad<Vec<u8>> {
        Aad::from([self.name.as_bytes(), &index.to_be_bytes()].concat())
    }

    /// Appends the sealed form of `plain`.
    pub(super) fn seal(
        &self,
        random: &dyn Random,
        index: u64,
        plain: &[u8],
        sealed: &mut BytesMut,
    ) -> Result<()> {
        let mut nonce = [0; NONCE_LEN];
        let drawn = [random.next_u64().to_le_bytes(), random.next_u64().to_le_bytes()].concat();
        nonce.copy_from_slice(drawn.get(..NONCE_LEN).ok_or_else(failed)?);
        sealed.extend_from_slice(&self.number.to_be_bytes());
        sealed.extend_from_slice(&nonce);
        let at = sealed.len();
        sealed.extend_from_slice(plain);
        let text = sealed.get_mut(at..).ok_or_else(failed)?;
        let (nonce, associated) = (Nonce::assume_unique_for_key(nonce), self.associated(index));
        let tag = self.key.seal_in_place_separate_tag(nonce, associated, text);
        sealed.extend_from_slice(tag.map_err(|_| failed())?.as_ref());
        Ok(())
    }

    /// The plain bytes of a piece.
    ///
    /// # Errors
    /// Corruption for bytes that were changed, or of another place.
    pub(super) fn open(&self, index: u64, sealed: &[u8]) -> Result<Vec<u8>> {
        let damaged = || {
            Error::corruption("encrypted bytes were changed or are of another object")
                .with("object", &self.name)
        };
        let (head, text) = sealed.split_at_checked(KEY_NUMBER + NONCE_LEN).ok_or_else(damaged)?;
        let nonce = head.get(KEY_NUMBER..).and_then(|nonce| nonce.try_into().ok());
        let nonce = Nonce::assume_unique_for_key(nonce.ok_or_else(damaged)?);
        let mut text = text.to_vec();
        let opened = self.key.open_in_place(nonce, self.associated(index), &mut text);
        let length = opened.map_err(|_| damaged())?.len();
        text.truncate(length);
        Ok(text)
    }
}

/// The number of the data key of a piece; `None` for bytes that are too short.
pub(super) fn key_number(sealed: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*sealed.first_chunk()?))
}

/// Seals an object as a whole.
pub(super) fn seal_whole(key: &ObjectKey, random: &dyn Random, plain: &[u8]) -> Result<Bytes> {
    let mut sealed = BytesMut::with_capacity(plain.len() + 64);
    sealed.extend_from_slice(MAGIC);
    key.seal(random, 0, plain, &mut sealed)?;
    Ok(sealed.freeze())
}

/// Seals a whole table in pieces.
pub(super) fn seal_table(key: &ObjectKey, random: &dyn Random, plain: &[u8]) -> Result<Bytes> {
    let mut sealed = BytesMut::with_capacity(plain.len() + 64);
    for (index, piece) in (0..).zip(plain.chunks(PIECE as usize)) {
        key.seal(random, index, piece, &mut sealed)?;
    }
    Ok(sealed.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_base::{ManifestId, SstId};

    struct Counting(std::sync::atomic::AtomicU64);

    impl Random for Counting {
        fn next_u64(&self) -> u64 {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        }
    }

    const TABLE: ObjectName = ObjectName::Compacted(SstId(1));

    fn key(name: ObjectName) -> ObjectKey {
        ObjectKey::new(&DataKey::new(7, [3; 32]), name).unwrap()
    }

    fn sealed(plain: &[u8], index: u64) -> BytesMut {
        let (mut sealed, random) = (BytesMut::new(), Counting(Default::default()));
        key(TABLE).seal(&random, index, plain, &mut sealed).unwrap();
        sealed
    }

    #[test]
    fn a_piece_opens_in_its_place_alone() {
        let piece = sealed(b"plain", 3);
        assert_eq!(piece.len() as u64, 5 + OVERHEAD);
        assert_eq!(key_number(&piece), Some(7));
        assert_eq!(key(TABLE).open(3, &piece).unwrap(), b"plain");
        assert!(key(TABLE).open(2, &piece).is_err());
        assert!(key(ObjectName::Compacted(SstId(2))).open(3, &piece).is_err());
        assert!(key(ObjectName::Manifest(ManifestId(1))).open(3, &piece).is_err());
        for at in 0..piece.len() {
            let mut changed = piece.to_vec();
            changed[at] ^= 1;
            // The number of the key is checked by the key that it names.
            assert_eq!(key(TABLE).open(3, &changed).is_ok(), at < 4, "{at}");
            assert!(key(TABLE).open(3, &piece[..at]).is_err());
        }
    }

    #[test]
    fn lengths_of_stored_objects_tell_the_plain_ones() {
        for plain in [0, 1, PIECE - 1, PIECE, PIECE + 1, 10 * PIECE, 10 * PIECE + 7] {
            let pieces = plain.div_ceil(PIECE);
            assert_eq!(plain_bytes(TABLE, plain + pieces * OVERHEAD), plain);
            let whole = plain + OVERHEAD + MAGIC.len() as u64;
            assert_eq!(plain_bytes(ObjectName::Manifest(ManifestId(1)), whole), plain);
        }
    }
}
