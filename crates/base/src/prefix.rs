//! Prefixes of keys: the length of the common prefix of two keys, and eight bytes as a number.

/// The number of bytes that `a` and `b` have in common at the start.
#[must_use]
pub fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut shared = 0;
    // Words first: the lowest set bit of the difference identifies the byte.
    for (x, y) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return shared + difference.trailing_zeros() as usize / 8;
        }
        shared += 8;
    }
    let tail = a.iter().zip(b).skip(shared);
    shared + tail.take_while(|(x, y)| x == y).count()
}

/// The first 8 bytes of `key` as a number with the same order; a shorter key is padded with zeros.
/// Different numbers decide the order of their keys; equal numbers do not.
#[must_use]
#[inline]
pub fn head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut padded = [0u8; 8];
            padded.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(padded)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_found_at_every_length() {
        let key: Vec<u8> = (0..40).collect();
        for cut in 0..key.len() {
            assert_eq!(shared_prefix(&key, &key[..cut]), cut);
            let mut other = key.clone();
            other[cut] ^= 0x80;
            assert_eq!(shared_prefix(&other, &key), cut);
        }
    }

    #[test]
    fn heads_never_contradict_the_order() {
        let keys: [&[u8]; 6] = [b"", b"\0", b"a", b"a\0", b"abcdefgh", b"abcdefghi"];
        for (low, high) in keys.iter().zip(keys.iter().skip(1)) {
            assert!(head(low) <= head(high));
        }
        assert!(head(b"abcdefgh") < head(b"abcdefgi"));
    }
}
