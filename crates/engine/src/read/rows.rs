//! Rows in columns, in the binary layout of Arrow, so that a binding can pass them on without a
//! copy.

/// A column of byte strings: `offsets[i]..offsets[i + 1]` of `bytes` is row `i`.
#[derive(Clone, Debug)]
pub struct Column {
    /// Row boundaries, one more than rows, starting with 0.
    pub offsets: Vec<i32>,
    /// The bytes of all rows, concatenated; at most 2^31 - 1 bytes.
    pub bytes: Vec<u8>,
}

impl Default for Column {
    fn default() -> Self {
        Column { offsets: vec![0], bytes: Vec::new() }
    }
}

impl Column {
    #[inline]
    pub(crate) fn push(&mut self, row: &[u8]) {
        self.bytes.extend_from_slice(row);
        self.offsets.push(self.bytes.len() as i32);
    }

    /// Row `row`.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        let (from, to) = (*self.offsets.get(row)?, *self.offsets.get(row + 1)?);
        self.bytes.get(from as usize..to as usize)
    }

    fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Column { offsets, bytes: Vec::with_capacity(bytes) }
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.bytes.truncate(self.offsets.last().map_or(0, |end| *end as usize));
    }

    /// Forgets the first `rows`.
    fn pass(&mut self, rows: usize) {
        let rows = rows.min(self.offsets.len() - 1);
        let Some(gone) = self.offsets.get(rows).copied() else { return };
        self.offsets.drain(..rows);
        self.offsets.iter_mut().for_each(|offset| *offset -= gone);
        self.bytes.drain(..gone as usize);
    }

    fn clear(&mut self) {
        self.offsets.truncate(1);
        self.bytes.clear();
    }

    /// Whether `more` bytes still fit under a 32-bit offset.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.bytes.len() + more <= i32::MAX as usize
    }
}

/// Rows of a scan.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Keys.
    pub keys: Column,
    /// Values.
    pub values: Column,
}

impl Rows {
    /// An empty batch of rows.
    #[must_use]
    pub fn new() -> Self {
        Rows::default()
    }

    /// An empty batch with capacity for a number of rows and bytes.
    #[must_use]
    pub fn with_capacity(rows: usize, key_bytes: usize, value_bytes: usize) -> Self {
        Rows {
            keys: Column::with_capacity(rows, key_bytes),
            values: Column::with_capacity(rows, value_bytes),
        }
    }

    /// Removes all rows after the first `rows`.
    pub fn truncate(&mut self, rows: usize) {
        self.keys.truncate(rows);
        self.values.truncate(rows);
    }

    /// Forgets the first `rows`.
    pub fn pass(&mut self, rows: usize) {
        self.keys.pass(rows);
        self.values.pass(rows);
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.offsets.len() - 1
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.bytes.len() + self.values.bytes.len()
    }

    /// Row `row`: key and value.
    #[must_use]
    pub fn row(&self, row: usize) -> Option<(&[u8], &[u8])> {
        Some((self.keys.get(row)?, self.values.get(row)?))
    }

    /// Removes all rows and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
    }

    /// Appends a row; `false` (and nothing appended) when an offset would overflow.
    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        let room = self.keys.has_room(key.len()) && self.values.has_room(value.len());
        if room {
            self.keys.push(key);
            self.values.push(value);
        }
        room
    }
}
