//! The check of encrypted objects without a key: their form, and which data keys they name.
//!
//! A check of the form must never report an object that its key opens.

use super::cipher::{self, MAGIC, OVERHEAD, STORED_PIECE, is_table};
use super::keys::StoredKey;
use super::{begins_otherwise, cut, lacks_key};
use siltstone_base::envelope;
use siltstone_base::{Error, ObjectName, Result};
use std::collections::BTreeSet;

/// The number of the data key that `stored`, the object of key `number`, holds.
///
/// # Errors
/// Corruption if the object is no wrapped key.
pub fn check_data_key(number: u64, stored: &[u8]) -> Result<u32> {
    StoredKey::decode(number, stored).map(|key| key.number)
}

/// Whether `stored`, the first bytes of an object that is not a table, are those of an encrypted
/// one.
#[must_use]
pub fn is_encrypted(stored: &[u8]) -> bool {
    stored.starts_with(MAGIC)
}

/// The length of the parts in which a table is read to check its form: at most `most` bytes.
#[must_use]
pub fn part_bytes(most: u64) -> u64 {
    (most / STORED_PIECE).max(1) * STORED_PIECE
}

/// Checks the form of `stored`: all of an object, or a part of a table that begins at a multiple of
/// [`part_bytes`]. `keys` are the numbers of the data keys that exist.
///
/// # Errors
/// Corruption if no key of the database can open it.
pub fn check_form(name: ObjectName, stored: &[u8], keys: &BTreeSet<u32>) -> Result<()> {
    if is_table(name) {
        return stored.chunks(STORED_PIECE as usize).try_for_each(|one| piece(name, one, keys));
    }
    match stored.strip_prefix(MAGIC.as_slice()) {
        Some(sealed) => piece(name, sealed, keys),
        None if stored.starts_with(envelope::MAGIC) => {
            Err(Error::corruption("the object is not encrypted, and others of the database are"))
        }
        None => Err(begins_otherwise()),
    }
}

/// Checks one sealed piece: its length, and the number of its data key.
fn piece(name: ObjectName, sealed: &[u8], keys: &BTreeSet<u32>) -> Result<()> {
    match cipher::key_number(sealed) {
        Some(number) if sealed.len() as u64 > OVERHEAD && keys.contains(&number) => Ok(()),
        Some(number) if sealed.len() as u64 > OVERHEAD => Err(lacks_key(number)),
        _ => Err(cut(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cipher::{ObjectKey, PIECE, seal_table, seal_whole};
    use super::super::keys::DataKey;
    use super::*;
    use crate::env::Random;
    use siltstone_base::{ManifestId, SstId};

    struct Zeros;

    impl Random for Zeros {
        fn next_u64(&self) -> u64 {
            0
        }
    }

    #[test]
    fn objects_that_a_key_opens_have_the_form() {
        let (table, manifest) =
            (ObjectName::Compacted(SstId(1)), ObjectName::Manifest(ManifestId(1)));
        let keys = BTreeSet::from([7]);
        let key = |name| ObjectKey::new(&DataKey::new(7, [3; 32]), name).unwrap();
        for plain in [1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE] {
            let plain = vec![b'x'; plain as usize];
            let stored = seal_table(&key(table), &Zeros, &plain).unwrap();
            check_form(table, &stored, &keys).unwrap();
            for part in stored.chunks(part_bytes(0) as usize) {
                check_form(table, part, &keys).unwrap();
            }
            assert!(check_form(table, &stored, &BTreeSet::from([6])).is_err());
            let stored = seal_whole(&key(manifest), &Zeros, &plain).unwrap();
            assert!(is_encrypted(&stored));
            check_form(manifest, &stored, &keys).unwrap();
            assert!(check_form(manifest, &stored, &BTreeSet::new()).is_err());
            assert!(check_form(manifest, &stored[1..], &keys).is_err());
            assert!(check_form(manifest, &stored[..20], &keys).is_err());
        }
        assert!(check_form(table, &[0; 10], &keys).is_err());
        assert!(check_form(manifest, b"", &keys).is_err());
        assert!(check_data_key(1, b"SLTKEY1\n").is_err());
    }
}
