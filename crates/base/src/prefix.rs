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
        None => short_head(key),
    }
}

/// [`head`] of a key below 8 bytes. A copy into a padded array would be a call of `memcpy` for
/// every row of a scan whose keys share all but their last bytes. Instead both halves of the key
/// are loaded whole; where the two overlap they have the same bits.
#[inline]
fn short_head(key: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
        let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
        return u64::from(first) << 32 | u64::from(last) << (64 - 8 * key.len());
    }
    let first = match *key {
        [a, b, c] => [a, b, c, 0],
        [a, b] => [a, b, 0, 0],
        [a] => [a, 0, 0, 0],
        _ => [0; 4],
    };
    u64::from(u32::from_be_bytes(first)) << 32
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
    fn heads_are_the_first_eight_bytes_padded_with_zeros() {
        let key: Vec<u8> = (1..=12).map(|byte| byte * 19).collect();
        for length in 0..=key.len() {
            let mut padded = key[..length].to_vec();
            padded.resize(length.max(8), 0);
            let expected = u64::from_be_bytes(*padded.first_chunk().unwrap());
            assert_eq!(head(&key[..length]), expected, "{length} bytes");
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
