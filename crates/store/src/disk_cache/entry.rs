//! One entry: a part of a table in a file. Its name, its bytes, and the check that it is whole and
//! the one that was asked for. Pure; decoding never panics.
//!
//! ```text
//! <16 hex digits: place>/<table, "/" as "-">/<number>.part
//! "SILTPRT1" | crc32c of the rest u32 | payload bytes u32 | place u64 | offset u64
//!   | object bytes u64 | name bytes u32 | name | payload          (integers little-endian)
//! ```

use super::parts::bytes_of;
use siltstone_base::ObjectName;
use siltstone_base::checksum::{crc32c, extend};

const MAGIC: &[u8; 8] = b"SILTPRT1";
const ENDING: &str = ".part";
/// Bytes before the checksummed ones.
const PREFIX_BYTES: usize = 12;

/// The identity of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct EntryKey {
    /// See [`place_of`].
    pub(super) place: u64,
    pub(super) name: ObjectName,
    pub(super) object_bytes: u64,
    /// The number of the part.
    pub(super) part: u64,
}

/// The number that stands for the place of a database in names and entries: FNV-1a of its URL. No
/// answer depends on it being unique, because names of tables are.
pub(super) fn place_of(location: &str) -> u64 {
    location.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Whether objects of this name are cached: tables, whose names are unique and whose bytes never
/// change.
pub(super) fn is_cached(name: ObjectName) -> bool {
    matches!(name, ObjectName::Compacted(_) | ObjectName::IngestSst(..))
}

impl EntryKey {
    /// The folder of a place, the folder of the table in it, and the file in that.
    pub(super) fn path(&self) -> [String; 3] {
        let table = self.name.to_string().replace('/', "-");
        [format!("{:016x}", self.place), table, part_file(self.part)]
    }

    /// The bytes of the file before its payload.
    pub(super) fn head(&self, payload: &[u8]) -> Vec<u8> {
        let identity = self.identity(payload.len());
        let sum = extend(crc32c(&identity), payload);
        [MAGIC.as_slice(), &sum.to_le_bytes(), &identity].concat()
    }

    /// The length of the file of this entry.
    pub(super) fn file_bytes(&self) -> usize {
        let payload = self.payload_bytes();
        PREFIX_BYTES + self.identity(payload).len() + payload
    }

    /// The payload of the file, if it is whole and of this identity.
    pub(super) fn payload<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        let rest = file.strip_prefix(MAGIC)?;
        let (sum, rest) = rest.split_first_chunk::<4>()?;
        let payload = rest.strip_prefix(self.identity(self.payload_bytes()).as_slice())?;
        let whole = payload.len() == self.payload_bytes();
        (whole && crc32c(rest) == u32::from_le_bytes(*sum)).then_some(payload)
    }

    fn payload_bytes(&self) -> usize {
        let range = bytes_of(self.part, self.object_bytes);
        (range.end - range.start) as usize
    }

    fn identity(&self, payload_bytes: usize) -> Vec<u8> {
        let name = self.name.to_string();
        let mut bytes = (payload_bytes as u32).to_le_bytes().to_vec();
        let offset = bytes_of(self.part, self.object_bytes).start;
        for number in [self.place, offset, self.object_bytes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes
    }
}

/// The name of the file of a part.
pub(super) fn part_file(part: u64) -> String {
    format!("{part}{ENDING}")
}

/// The number of the part in the file of this name; `None` for a file that is no entry.
pub(super) fn part_of_file(file: &str) -> Option<u64> {
    let part = file.strip_suffix(ENDING)?.parse().ok()?;
    (part_file(part) == file).then_some(part)
}

/// Whether a folder of this name holds the tables of a place.
pub(super) fn is_place_folder(folder: &str) -> bool {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    folder.len() == 16 && folder.bytes().all(is_digit)
}

/// Whether a folder of this name holds the parts of a table.
pub(super) fn is_table_folder(folder: &str) -> bool {
    ObjectName::parse(&folder.replace('-', "/")).is_some_and(is_cached)
}

#[cfg(test)]
mod tests {
    use super::super::parts::PART_BYTES;
    use super::*;
    use siltstone_base::{JobId, SstId};

    fn key(part: u64) -> EntryKey {
        let name = ObjectName::IngestSst(JobId(7), SstId(9));
        EntryKey { place: place_of("s3://a/b"), name, object_bytes: PART_BYTES + 100, part }
    }

    fn file(key: &EntryKey, payload: &[u8]) -> Vec<u8> {
        [key.head(payload).as_slice(), payload].concat()
    }

    #[test]
    fn an_entry_round_trips() {
        let payload = [3; 100];
        let file = file(&key(1), &payload);
        assert_eq!(file.len(), key(1).file_bytes());
        assert_eq!(key(1).payload(&file), Some(payload.as_slice()));
    }

    #[test]
    fn a_damaged_or_truncated_entry_has_no_payload() {
        let whole = file(&key(1), &[3; 100]);
        for length in 0..whole.len() {
            assert_eq!(key(1).payload(&whole[..length]), None);
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert_eq!(key(1).payload(&damaged), None, "byte {at}");
        }
        let longer = [whole.as_slice(), &[0]].concat();
        assert_eq!(key(1).payload(&longer), None);
    }

    #[test]
    fn an_entry_of_another_identity_has_no_payload() {
        let whole = file(&key(1), &[3; 100]);
        let others = [
            EntryKey { place: place_of("s3://a/c"), ..key(1) },
            EntryKey { name: ObjectName::Compacted(SstId(9)), ..key(1) },
            EntryKey { object_bytes: PART_BYTES + 101, ..key(1) },
            key(0),
        ];
        for other in others {
            assert_eq!(other.payload(&whole), None, "{other:?}");
        }
    }

    #[test]
    fn only_own_names_are_taken_for_entries() {
        let [place, table, file] = key(12).path();
        assert!(is_place_folder(&place) && is_table_folder(&table));
        assert_eq!(part_of_file(&file), Some(12));
        assert!(is_table_folder(&ObjectName::Compacted(SstId(1)).to_string().replace('/', "-")));
        for other in ["", "1", "01.part", "+1.part", "1.part.tmp", "x.part", "1.PART"] {
            assert_eq!(part_of_file(other), None, "{other}");
        }
        for other in ["", "..", "0123456789ABCDEF", "0123456789abcde"] {
            assert!(!is_place_folder(other), "{other}");
        }
        for other in ["", "..", "manifest-00000000000000000001.manifest", "compacted", "src"] {
            assert!(!is_table_folder(other), "{other}");
        }
    }
}
