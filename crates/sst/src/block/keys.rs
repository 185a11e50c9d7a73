//! The keys of a block: their location, and their two possible layouts.
//!
//! ```text
//! shared := (shared suffix_len? suffix)*    rebuilt in separate memory
//! whole  := key*                            read in place; where lengths vary, a column of ends
//! ```

use super::guess::Interpolation;
use crate::packed::Column;
use siltstone_base::bytes_io::Reader;
use siltstone_base::limits::MAX_KEY_BYTES;
use siltstone_base::prefix::head;
use siltstone_base::{Error, Result, Seq};
use std::cmp::Ordering;
use std::ops::Range;

/// Memory for whole keys that is reserved without verification of the head; more is reserved only
/// as keys are decoded.
const TRUSTED_RESERVE_BYTES: usize = 1 << 20;

/// Decoded keys. Accessors take the block's bytes, which may contain the keys.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    place: KeysPlace,
    ends: KeyEnds,
    pub(crate) guess: Interpolation,
}

#[derive(Clone, Debug)]
enum KeysPlace {
    /// In the block's bytes, from this offset on.
    Stored(usize),
    /// In separate memory.
    Rebuilt(Vec<u8>),
}

/// The ends of keys, from the first one's start.
#[derive(Clone, Debug)]
enum KeyEnds {
    /// All keys have this length.
    Fixed(usize),
    /// One end per key.
    Each(Vec<u32>),
    /// One end per key, in the block's bytes.
    Stored(Column),
}

/// The properties of the keys in the head.
pub(crate) struct KeyShape {
    pub(crate) entries: usize,
    /// Length of every key, 0 if lengths vary.
    pub(crate) key_len: usize,
    /// Bytes of all keys without shared prefixes.
    pub(crate) whole_bytes: usize,
    /// Whether no key may occur twice.
    pub(crate) distinct: bool,
}

fn wrong(message: &'static str) -> Error {
    Error::corruption(message)
}

impl Keys {
    /// Bytes of memory besides the block's.
    pub(crate) fn memory_bytes(&self) -> usize {
        let keys = match &self.place {
            KeysPlace::Stored(_) => 0,
            KeysPlace::Rebuilt(keys) => keys.capacity(),
        };
        let ends = match &self.ends {
            KeyEnds::Each(ends) => ends.capacity() * size_of::<u32>(),
            KeyEnds::Fixed(_) | KeyEnds::Stored(_) => 0,
        };
        keys + ends
    }

    /// The key at `position`; empty past the end (no key is empty).
    #[inline]
    pub(crate) fn get<'a>(&'a self, bytes: &'a [u8], position: usize) -> &'a [u8] {
        match (&self.place, &self.ends) {
            (KeysPlace::Stored(from), KeyEnds::Fixed(len)) => {
                let start = from + position * len;
                bytes.get(start..start + len).unwrap_or_default()
            }
            (KeysPlace::Rebuilt(keys), KeyEnds::Fixed(len)) => {
                let start = position * len;
                keys.get(start..start + len).unwrap_or_default()
            }
            _ => self.get_any(bytes, position),
        }
    }

    /// The bytes of neighbouring keys.
    #[inline]
    pub(crate) fn slice<'a>(&'a self, bytes: &'a [u8], positions: Range<usize>) -> &'a [u8] {
        let end = |n: usize| match &self.ends {
            KeyEnds::Fixed(len) => n * len,
            _ if n == 0 => 0,
            KeyEnds::Each(ends) => ends.get(n - 1).map_or(0, |end| *end as usize),
            KeyEnds::Stored(ends) => ends.get(bytes, n - 1) as usize,
        };
        let (start, end) = (end(positions.start), end(positions.end));
        match &self.place {
            KeysPlace::Stored(from) => bytes.get(from + start..from + end).unwrap_or_default(),
            KeysPlace::Rebuilt(keys) => keys.get(start..end).unwrap_or_default(),
        }
    }

    /// Reads the data for a guess and for [`Keys::slice`]. Using the result keeps the compiler from
    /// removing the reads.
    #[inline]
    pub(crate) fn prefetch(&self) -> usize {
        let place = match &self.place {
            KeysPlace::Stored(from) => *from,
            KeysPlace::Rebuilt(keys) => keys.len(),
        };
        let ends = match &self.ends {
            KeyEnds::Fixed(len) => *len,
            KeyEnds::Each(ends) => ends.len(),
            KeyEnds::Stored(ends) => ends.start,
        };
        place ^ ends ^ self.guess.prefetch()
    }

    /// The keys from `position` on and their length, if all have one length.
    #[inline]
    pub(crate) fn column<'a>(
        &'a self,
        bytes: &'a [u8],
        position: usize,
    ) -> Option<(&'a [u8], usize)> {
        let KeyEnds::Fixed(len) = &self.ends else { return None };
        let start = position * len;
        let keys = match &self.place {
            KeysPlace::Stored(from) => bytes.get(from + start..),
            KeysPlace::Rebuilt(keys) => keys.get(start..),
        };
        Some((keys?, *len))
    }

    /// The bytes from the first key's head on, and the distance between heads, if all keys have one
    /// length and at least eight bytes after the shared prefix.
    #[inline]
    pub(crate) fn heads<'a>(&'a self, bytes: &'a [u8]) -> Option<(&'a [u8], usize)> {
        let (keys, len) = self.column(bytes, 0)?;
        let shared = self.guess.shared();
        if len < shared + size_of::<u64>() {
            return None;
        }
        Some((keys.get(shared..)?, len))
    }

    fn get_any<'a>(&'a self, bytes: &'a [u8], position: usize) -> &'a [u8] {
        let (start, end) = match &self.ends {
            KeyEnds::Fixed(len) => (position * len, (position + 1) * len),
            KeyEnds::Each(ends) => {
                let end = |n: usize| ends.get(n).map_or(0, |end| *end as usize);
                (if position == 0 { 0 } else { end(position - 1) }, end(position))
            }
            KeyEnds::Stored(ends) => {
                let end = |n: usize| ends.get(bytes, n) as usize;
                (if position == 0 { 0 } else { end(position - 1) }, end(position))
            }
        };
        match &self.place {
            KeysPlace::Stored(from) => bytes.get(from + start..from + end).unwrap_or_default(),
            KeysPlace::Rebuilt(keys) => keys.get(start..end).unwrap_or_default(),
        }
    }

    fn guessing(mut self, bytes: &[u8], entries: usize) -> Keys {
        self.guess = Interpolation::new(self.get(bytes, 0), self.get(bytes, entries - 1), entries);
        self
    }

    /// Keys that are stored whole in `bytes` from `start` on; checks that internal keys ascend
    /// strictly.
    ///
    /// # Errors
    /// Corruption if they do not ascend, or do not fill their region.
    pub(crate) fn whole(
        shape: &KeyShape,
        bytes: &[u8],
        start: usize,
        ends: Option<Column>,
        seq: &dyn Fn(usize) -> Seq,
    ) -> Result<Keys> {
        if let Some(ends) = &ends {
            check_ends(ends, bytes, shape.entries)?;
        }
        let keys = Keys::whole_again(shape, bytes, start, ends, seq)?;
        let mut before = keys.get(bytes, 0);
        let mut before_head = head(before);
        for position in 1..shape.entries {
            let key = keys.get(bytes, position);
            let key_head = head(key);
            // One comparison of numbers decides for most keys.
            let ascends = before_head < key_head
                || match before.cmp(key) {
                    Ordering::Less => true,
                    Ordering::Equal => !shape.distinct && seq(position) < seq(position - 1),
                    Ordering::Greater => false,
                };
            if !ascends {
                return Err(wrong("keys are out of order in a block"));
            }
            (before, before_head) = (key, key_head);
        }
        Ok(keys)
    }

    /// The same for keys that were checked before.
    ///
    /// # Errors
    /// Corruption if they do not fill their region.
    pub(crate) fn whole_again(
        shape: &KeyShape,
        bytes: &[u8],
        start: usize,
        ends: Option<Column>,
        _: &dyn Fn(usize) -> Seq,
    ) -> Result<Keys> {
        let filled = match &ends {
            Some(ends) => ends.get(bytes, shape.entries - 1),
            None => shape.key_len as u64 * shape.entries as u64,
        };
        if filled != shape.whole_bytes as u64 {
            return Err(wrong("keys do not fill their region of a block"));
        }
        let ends = ends.map_or(KeyEnds::Fixed(shape.key_len), KeyEnds::Stored);
        let keys = Keys { place: KeysPlace::Stored(start), ends, guess: Interpolation::default() };
        Ok(keys.guessing(bytes, shape.entries))
    }

    /// Rebuilds keys with shared prefixes, and checks that internal keys ascend strictly.
    ///
    /// The stored form makes the order cheap to check: the part shared with the previous key is
    /// skipped, so one byte decides, and only equal keys compare their sequence numbers.
    ///
    /// # Errors
    /// As [`Keys::whole`].
    pub(crate) fn rebuild(
        shape: &KeyShape,
        region: &[u8],
        seq: impl Fn(usize) -> Seq,
    ) -> Result<Keys> {
        let mut reader = Reader::new(region);
        let mut keys = Vec::with_capacity(shape.whole_bytes.min(TRUSTED_RESERVE_BYTES));
        let fixed = shape.key_len != 0;
        let mut ends = Vec::with_capacity(if fixed { 0 } else { shape.entries });
        let mut previous = 0..0;
        for position in 0..shape.entries {
            let shared = reader.varint()? as usize;
            let suffix_len = match (fixed, shape.key_len.checked_sub(shared)) {
                (false, _) => reader.length()?,
                (true, Some(known)) => known,
                (true, None) => return Err(wrong("a key shares more than its length")),
            };
            let suffix = reader.take(suffix_len)?;
            if shared > previous.len() || shared + suffix_len > MAX_KEY_BYTES {
                return Err(wrong("impossible key in a block"));
            }
            // The suffix is empty only if the previous key is shared as a whole: then this is an
            // older version of it, or, at the first position, an empty key.
            match (keys.get(previous.start + shared..previous.end).and_then(<[u8]>::first), suffix)
            {
                (Some(before), [first, ..]) if before < first => {}
                (None, [_, ..]) => {}
                (None, []) if position > 0 && !shape.distinct => {
                    if seq(position) >= seq(position - 1) {
                        return Err(wrong("versions of a key are out of order in a block"));
                    }
                }
                _ => return Err(wrong("keys are out of order in a block")),
            }
            let start = keys.len();
            keys.extend_from_within(previous.start..previous.start + shared);
            keys.extend_from_slice(suffix);
            previous = start..keys.len();
            if keys.len() > shape.whole_bytes {
                break;
            }
            if !fixed {
                ends.push(keys.len() as u32);
            }
        }
        if keys.len() != shape.whole_bytes || !reader.is_empty() {
            return Err(wrong("keys do not fill their region of a block"));
        }
        let ends = if fixed { KeyEnds::Fixed(shape.key_len) } else { KeyEnds::Each(ends) };
        let keys = Keys { place: KeysPlace::Rebuilt(keys), ends, guess: Interpolation::default() };
        Ok(keys.guessing(&[], shape.entries))
    }
}

/// Every key has 1 to [`MAX_KEY_BYTES`] bytes.
fn check_ends(ends: &Column, bytes: &[u8], entries: usize) -> Result<()> {
    let mut start = 0;
    for row in 0..entries {
        let end = ends.get(bytes, row);
        if end <= start || end - start > MAX_KEY_BYTES as u64 {
            return Err(wrong("impossible key in a block"));
        }
        start = end;
    }
    Ok(())
}
