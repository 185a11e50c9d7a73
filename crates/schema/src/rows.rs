//! Byte rows concatenated in one buffer.

use arrow_array::BinaryArray;
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use siltstone_base::{Error, Result};

/// Encoded rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    bytes: Vec<u8>,
    /// The end of each row.
    ends: Vec<usize>,
}

impl Rows {
    /// Zeros: as many rows as there are `lengths`.
    pub(crate) fn zeros(lengths: &[usize]) -> Rows {
        let mut end = 0;
        let ends: Vec<usize> = lengths
            .iter()
            .map(|length| {
                end += length;
                end
            })
            .collect();
        Rows { bytes: vec![0; end], ends }
    }

    /// The rows as mutable slices, to be filled.
    pub(crate) fn parts(&mut self) -> Vec<&mut [u8]> {
        let mut rest = self.bytes.as_mut_slice();
        let mut start = 0;
        let parts = self.ends.iter().map(|end| {
            let length = end - start;
            start = *end;
            match std::mem::take(&mut rest).split_at_mut_checked(length) {
                Some((row, after)) => {
                    rest = after;
                    row
                }
                None => &mut [],
            }
        });
        parts.collect()
    }

    /// Appends the rows of `other`.
    pub fn append(&mut self, other: &Rows) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The rows.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let row = self.bytes.get(start..*end).unwrap_or_default();
            start = *end;
            row
        })
    }

    /// As an Arrow array, without a copy of the bytes.
    ///
    /// # Errors
    /// Invalid beyond 2 GiB, where Arrow's offsets end.
    pub fn into_array(self) -> Result<BinaryArray> {
        if i32::try_from(self.bytes.len()).is_err() {
            let text = "these rows have over 2 GiB together: encode fewer at a time";
            return Err(Error::invalid(text).with("bytes", self.bytes.len()));
        }
        let offsets: Vec<i32> =
            std::iter::once(0).chain(self.ends.iter().map(|end| *end as i32)).collect();
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        BinaryArray::try_new(offsets, Buffer::from_vec(self.bytes), None)
            .map_err(|error| Error::internal("rows are no Arrow array").caused_by(error))
    }
}
