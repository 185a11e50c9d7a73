//! Corrects checksums after damage, as an attacker would, so that decoders meet the damaged bytes.
//! Follows `crates/sst/FORMAT.md` and the heads of the manifest's codec, apart
//! from the code that reads them.

use siltstone_base::bytes_io::Reader;
use siltstone_base::checksum::{bound, crc32c};
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{ObjectId, Result};
use std::ops::Range;

const CHECKSUM_BYTES: usize = 4;
const FOOTER_BYTES: usize = 144;
/// The place of the object's identity in an envelope.
const OBJECT_ID: Range<usize> = 36..52;
/// Blocks that are sealed at most: a hostile index may name very many empty ones.
const MOST_BLOCKS: u32 = 1 << 12;

fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    if let Some(place) = at.checked_add(new.len()).and_then(|end| bytes.get_mut(at..end)) {
        place.copy_from_slice(new);
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

fn object(envelope: &[u8]) -> ObjectId {
    let id = envelope.get(OBJECT_ID).and_then(|id| id.first_chunk::<16>());
    ObjectId::from_bytes(id.copied().unwrap_or_default())
}

/// Seals the envelope that starts at `at`.
pub fn envelope_at(bytes: &mut [u8], at: usize) {
    let head = bytes.get(at..at + ENVELOPE_BYTES - CHECKSUM_BYTES);
    if let Some(checksum) = head.map(crc32c) {
        put(bytes, at + ENVELOPE_BYTES - CHECKSUM_BYTES, &checksum.to_le_bytes());
    }
}

/// The seal of `bytes` at a place, as FORMAT.md has it.
#[must_use]
pub fn seal(object: ObjectId, offset: u64, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    bound(object, offset, bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Seals the bytes of `range`, the last four of which hold the seal.
fn section(bytes: &mut [u8], object: ObjectId, range: Range<usize>) {
    let Some(end) = range.end.checked_sub(CHECKSUM_BYTES) else { return };
    if let Some(sealed) = bytes.get(range.start..end) {
        let sealed = seal(object, range.start as u64, sealed);
        put(bytes, end, &sealed);
    }
}

/// A WAL object.
pub fn wal(bytes: &mut [u8]) {
    envelope_at(bytes, 0);
    let (object, length) = (object(bytes), bytes.len());
    section(bytes, object, 0..length);
}

/// A manifest or a boundary, whose checksum is bound and not masked. A manifest's length is put
/// right too.
pub fn manifest(bytes: &mut [u8]) {
    envelope_at(bytes, 0);
    let framed = ENVELOPE_BYTES + 8 + CHECKSUM_BYTES;
    if let Some(body) = bytes.len().checked_sub(framed) {
        put(bytes, ENVELOPE_BYTES, &(body as u64).to_le_bytes());
    }
    checksum_at_end(bytes);
}

/// As [`manifest`], without a word about the length.
pub fn boundary(bytes: &mut [u8]) {
    envelope_at(bytes, 0);
    checksum_at_end(bytes);
}

fn checksum_at_end(bytes: &mut [u8]) {
    let Some(end) = bytes.len().checked_sub(CHECKSUM_BYTES) else { return };
    let checksum = bytes.get(..end).map(|covered| bound(object(bytes), 0, covered));
    put(bytes, end, &checksum.unwrap_or_default().to_le_bytes());
}

/// A table: every block that its index names, the sections of its tail, its footer.
pub fn table(bytes: &mut [u8]) {
    let Some(footer) = bytes.len().checked_sub(FOOTER_BYTES) else { return };
    envelope_at(bytes, 0);
    envelope_at(bytes, footer);
    let object = object(bytes.get(footer..).unwrap_or_default());
    let place = |n: usize| usize::try_from(word(bytes, footer + ENVELOPE_BYTES + 8 * n)).ok();
    let places = [place(0), place(1), place(2), Some(footer)];
    if let [Some(filter), Some(index), Some(properties), Some(footer)] = places {
        let blocks = bytes.get(index..properties).and_then(|index| blocks(index).ok());
        for block in blocks.unwrap_or_default() {
            section(bytes, object, block);
        }
        for range in [filter..index, index..properties, properties..footer] {
            section(bytes, object, range);
        }
    }
    let body = bytes.get(..footer).map_or(0, crc32c);
    put(bytes, footer + ENVELOPE_BYTES + 32, &body.to_le_bytes());
    let length = bytes.len();
    section(bytes, object, footer..length);
}

/// The ranges of the blocks, according to the index.
fn blocks(index: &[u8]) -> Result<Vec<Range<usize>>> {
    let mut reader = Reader::new(index);
    let count = reader.u32()?.min(MOST_BLOCKS);
    let prefix = reader.u16()?;
    reader.take(usize::from(prefix))?;
    let (mut at, mut blocks) = (ENVELOPE_BYTES, Vec::new());
    for _ in 0..count {
        let stored = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
        let _bound = reader.varint()?;
        let suffix = reader.length()?;
        reader.take(suffix)?;
        let end = at.saturating_add(stored);
        blocks.push(at..end);
        at = end;
    }
    Ok(blocks)
}
