//! A list of keys in one buffer.

/// Keys, one after the other in one buffer: no allocation a key, and neighbours lie together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
}

impl Keys {
    /// No keys, with room for so many.
    #[must_use]
    pub fn with_capacity(keys: usize) -> Self {
        Keys { bytes: Vec::new(), ends: Vec::with_capacity(keys) }
    }

    /// No keys, with room for so many of so many bytes.
    pub(crate) fn with_room(keys: usize, bytes: usize) -> Self {
        Keys { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(keys) }
    }

    /// Appends a key.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Key number `position`; empty past the end, which no key is.
    #[must_use]
    #[inline]
    pub fn key(&self, position: usize) -> &[u8] {
        let end = |n: usize| self.ends.get(n).copied().unwrap_or_default();
        let start = if position == 0 { 0 } else { end(position - 1) };
        self.bytes.get(start..end(position)).unwrap_or_default()
    }

    /// All of them, in their order.
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
