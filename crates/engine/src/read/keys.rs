//! A list of keys in one buffer.

/// A list of keys in one contiguous buffer, without an allocation for each key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    bytes: Vec<u8>,
    /// End offset of each key.
    ends: Vec<usize>,
}

impl Keys {
    /// An empty list with capacity for a number of keys.
    #[must_use]
    pub fn with_capacity(keys: usize) -> Self {
        Keys { bytes: Vec::new(), ends: Vec::with_capacity(keys) }
    }

    /// An empty list with capacity for a number of keys and for their bytes.
    pub(crate) fn with_room(keys: usize, bytes: usize) -> Self {
        Keys { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(keys) }
    }

    /// Appends a key.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key at index `position`. Past the end the result is empty, which is not a valid key.
    #[must_use]
    #[inline]
    pub fn key(&self, position: usize) -> &[u8] {
        let end = |n: usize| self.ends.get(n).copied().unwrap_or_default();
        let start = if position == 0 { 0 } else { end(position - 1) };
        self.bytes.get(start..end(position)).unwrap_or_default()
    }

    /// Iterates over the keys in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|position| self.key(position))
    }
}

impl<K: AsRef<[u8]>> FromIterator<K> for Keys {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let keys = keys.into_iter();
        let mut packed = Keys::with_capacity(keys.size_hint().0);
        keys.for_each(|key| packed.push(key.as_ref()));
        packed
    }
}

impl<K: AsRef<[u8]>> From<Vec<K>> for Keys {
    fn from(keys: Vec<K>) -> Self {
        keys.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn keys_come_back_as_they_went_in() {
        let keys = Keys::from(vec![b"one".as_slice(), b"", b"three"]);
        assert_eq!(keys.iter().collect::<Vec<_>>(), [b"one".as_slice(), b"", b"three"]);
        assert_eq!((keys.len(), keys.key(3)), (3, b"".as_slice()));
    }
}
