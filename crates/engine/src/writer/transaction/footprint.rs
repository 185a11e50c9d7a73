//! The keys and ranges that a transaction depends on, and whether a commit touched them (RFC 0025,
//! O2, O4). Pure.

use crate::read::Keys;
use siltstone_base::{Batch, BatchOps, Error, ErrorKind, Kind, Result};

/// A key or range that a commit touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitFootprint<'a> {
    /// A key.
    Key(&'a [u8]),
    /// Every key of `[start, end)`.
    Span(&'a [u8], &'a [u8]),
}

/// The keys and ranges that the operations of an encoded batch touch.
pub(crate) fn touched(bytes: &[u8]) -> impl Iterator<Item = Result<CommitFootprint<'_>>> {
    BatchOps::new(bytes).map(|op| {
        op.map(|op| match op.kind {
            Kind::RangeDelete => CommitFootprint::Span(op.key, op.value),
            _ => CommitFootprint::Key(op.key),
        })
    })
}

/// A range of keys from `start` to below `end`. `None` means up to the last key, and an empty
/// `start` means from the first key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeySpan {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
}

impl KeySpan {
    fn holds(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && self.is_below_end(key)
    }

    fn is_below_end(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| key < end)
    }

    fn is_empty(&self) -> bool {
        !self.is_below_end(&self.start)
    }
}

/// A commit touched a key or range of the footprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConflictingWrite {
    /// The key that both share; for two ranges, the first key of their intersection.
    pub(crate) key: Vec<u8>,
    /// Whether the key lies in a range of the footprint and is not one of its keys.
    pub(crate) in_range: bool,
}

impl From<ConflictingWrite> for Error {
    fn from(clash: ConflictingWrite) -> Error {
        let text = if clash.in_range {
            "another commit has changed a range that this transaction depends on; run it again \
             (siltstone.retry does, and siltstone.aio.retry)"
        } else {
            "another commit has changed a key that this transaction depends on; run it again \
             (siltstone.retry does, and siltstone.aio.retry)"
        };
        Error::new(ErrorKind::Conflict, text).with("key", clash.key.escape_ascii())
    }
}

/// Keys and ranges, sorted so that each check is a binary search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Ascending, without duplicates.
    keys: Keys,
    /// Ascending and disjoint.
    ranges: Vec<KeySpan>,
}

impl Footprint {
    /// The footprint of keys and ranges in any order.
    pub(crate) fn new(keys: &Keys, ranges: Vec<KeySpan>) -> Footprint {
        Footprint { keys: sorted(keys), ranges: joined(ranges) }
    }

    /// The footprint of one key.
    pub(crate) fn of_key(key: &[u8]) -> Footprint {
        Footprint { keys: [key].into_iter().collect(), ranges: Vec::new() }
    }

    /// The footprint of the writes of a batch.
    ///
    /// # Errors
    /// None in practice: a batch decodes to the operations that were added.
    pub(crate) fn of_writes(batch: &Batch) -> Result<Footprint> {
        let (mut keys, mut ranges) = (Keys::default(), Vec::new());
        for one in touched(batch.as_bytes()) {
            match one? {
                CommitFootprint::Key(key) => keys.push(key),
                CommitFootprint::Span(start, end) => {
                    ranges.push(KeySpan { start: start.to_vec(), end: Some(end.to_vec()) });
                }
            }
        }
        Ok(Footprint::new(&keys, ranges))
    }

    /// The conflict between the footprint and a touched key or range, if there is one.
    pub(crate) fn clash(&self, touched: CommitFootprint<'_>) -> Option<ConflictingWrite> {
        match touched {
            CommitFootprint::Key(key) => {
                let at = self.first_key(key);
                if at < self.keys.len() && self.keys.key(at) == key {
                    return Some(ConflictingWrite { key: key.to_vec(), in_range: false });
                }
                let range = self.reaching(key).first().filter(|range| range.holds(key));
                range.map(|_| ConflictingWrite { key: key.to_vec(), in_range: true })
            }
            CommitFootprint::Span(start, end) => {
                let at = self.first_key(start);
                if at < self.keys.len() && self.keys.key(at) < end {
                    return Some(ConflictingWrite {
                        key: self.keys.key(at).to_vec(),
                        in_range: false,
                    });
                }
                let range =
                    self.reaching(start).first().filter(|range| range.start.as_slice() < end)?;
                let first = start.max(range.start.as_slice());
                Some(ConflictingWrite { key: first.to_vec(), in_range: true })
            }
        }
    }

    /// Index of the first key at or above `key`.
    fn first_key(&self, key: &[u8]) -> usize {
        let (mut from, mut to) = (0, self.keys.len());
        while from < to {
            let middle = from + (to - from) / 2;
            if self.keys.key(middle) < key {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }

    /// The ranges that end above `key`.
    fn reaching(&self, key: &[u8]) -> &[KeySpan] {
        let at = self.ranges.partition_point(|range| !range.is_below_end(key));
        self.ranges.get(at..).unwrap_or_default()
    }
}

/// The keys in order, without duplicates.
pub(crate) fn sorted(keys: &Keys) -> Keys {
    let mut all: Vec<&[u8]> = keys.iter().collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().collect()
}

/// Disjoint ranges in order that cover the same keys.
pub(crate) fn joined(mut ranges: Vec<KeySpan>) -> Vec<KeySpan> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable();
    let mut joined: Vec<KeySpan> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end.as_ref().is_none_or(|end| *end >= range.start) => {
                let longer = match (&last.end, &range.end) {
                    (None, _) | (_, None) => None,
                    (Some(one), Some(other)) => Some(one.max(other).clone()),
                };
                last.end = longer;
            }
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
#[path = "footprint/tests.rs"]
mod tests;
