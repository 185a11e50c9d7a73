//! CRC32C (Castagnoli), computed in hardware if available.
//!
//! A checksum of a part of an object is *bound* to its location: it includes the object id and the
//! offset. So a block moved to another offset or another object does not verify, while a whole
//! object copied to another path does.

use crate::id::ObjectId;

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// Continues `crc` over `bytes`: `extend(crc32c(a), b) == crc32c(a ++ b)`.
#[must_use]
pub fn extend(crc: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, bytes)
}

/// CRC32C of `object id (16 bytes, big-endian) ++ offset (8 bytes, little-endian) ++ bytes`.
#[must_use]
pub fn bound(object: ObjectId, offset: u64, bytes: &[u8]) -> u32 {
    let mut place = [0u8; 24];
    let (id, at) = place.split_at_mut(16);
    id.copy_from_slice(&object.to_bytes());
    at.copy_from_slice(&offset.to_le_bytes());
    extend(crc32c(&place), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(extend(crc32c(b"1234"), b"56789"), 0xe306_9283);
    }

    #[test]
    fn bound_to_its_place() {
        let here = bound(ObjectId(1), 0, b"x");
        assert_ne!(here, bound(ObjectId(2), 0, b"x"));
        assert_ne!(here, bound(ObjectId(1), 1, b"x"));
    }
}
