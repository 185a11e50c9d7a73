//! Keys and values by number.

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Bytes of a value.
pub const VALUE_BYTES: usize = 100;
/// Bytes of a row.
pub const ROW_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;

/// A permutation of 64-bit numbers (the finaliser of SplitMix64; G. Steele, D. Lea, C. Flood, *Fast
/// Splittable Pseudorandom Number Generators*, 2014).
#[must_use]
pub fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// The `n`-th key in ascending order: sixteen decimal digits.
#[must_use]
pub fn sorted_key(n: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'0'; KEY_BYTES];
    let mut rest = n;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The `n`-th of `count` keys in random order: every key of `sorted_key(0..count)` once, if `count`
/// is a power of ten or any other number that 7,368,787, a prime, does not divide.
#[must_use]
pub fn shuffled_key(n: u64, count: u64) -> [u8; KEY_BYTES] {
    sorted_key((n.wrapping_mul(7_368_787)) % count)
}

/// A key between the `n`-th and the next one: certainly absent.
#[must_use]
pub fn absent_key(n: u64) -> [u8; KEY_BYTES + 1] {
    let mut key = [b'x'; KEY_BYTES + 1];
    for (to, from) in key.iter_mut().zip(sorted_key(n)) {
        *to = from;
    }
    key
}

/// The `n`-th value: incompressible bytes.
#[must_use]
pub fn value(n: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    for (part, bytes) in value.chunks_mut(8).enumerate() {
        let drawn = mixed(n.wrapping_mul(13).wrapping_add(part as u64)).to_le_bytes();
        for (to, from) in bytes.iter_mut().zip(drawn) {
            *to = from;
        }
    }
    value
}
