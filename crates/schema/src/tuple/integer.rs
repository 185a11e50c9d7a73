//! Whole numbers: the tag says sign and length, so that a longer magnitude is farther from zero;
//! below zero the magnitude is inverted. The fewest bytes are the only ones.

use siltstone_base::{Error, Result};
use std::ops::RangeInclusive;

/// The tag of zero.
const ZERO: u8 = 0x20;
/// The tags of numbers of at most 8 bytes, zero in the middle.
pub(super) const SMALLEST: RangeInclusive<u8> = ZERO - 8..=ZERO + 8;
/// Longer ones say their length in a byte.
pub(super) const LONG_BELOW: u8 = ZERO - 9;
pub(super) const LONG_ABOVE: u8 = ZERO + 9;
/// Bytes of the shortest number that says its length.
const LONG: usize = 9;

/// Appends a number of at most 8 bytes, inverted once more with a `flip` of `0xff`.
pub(super) fn put_int(out: &mut Vec<u8>, negative: bool, magnitude: u64, flip: u8) {
    // Started bytes, at most 8.
    let bytes = u64::BITS.div_ceil(8) - magnitude.leading_zeros() / 8;
    let length = bytes as u8;
    let (tag, sign) = if negative { (ZERO - length, 0xff) } else { (ZERO + length, 0) };
    out.push(tag ^ flip);
    let skipped = 8 - bytes as usize;
    out.extend(magnitude.to_be_bytes().iter().skip(skipped).map(|byte| byte ^ sign ^ flip));
}

/// The number at the front of `rest`: whether it is below zero, and its magnitude.
pub(super) fn take_int(rest: &mut &[u8], flip: u8) -> Option<(bool, u64)> {
    let (tag, after) = rest.split_first()?;
    let tag = Some(tag ^ flip).filter(|tag| SMALLEST.contains(tag))?;
    let (negative, sign) = if tag < ZERO { (true, 0xff) } else { (false, 0) };
    let (bytes, after) = after.split_at_checked(usize::from(tag.abs_diff(ZERO)))?;
    let fold = |magnitude: u64, byte: &u8| magnitude << 8 | u64::from(byte ^ sign ^ flip);
    let magnitude = bytes.iter().fold(0, fold);
    *rest = after;
    // A zero in front would be a second way to say the same.
    (bytes.first().is_none_or(|first| *first != sign ^ flip)).then_some((negative, magnitude))
}

/// Appends a number of any length up to 255 bytes.
///
/// # Errors
/// Invalid beyond.
pub(super) fn put_long(out: &mut Vec<u8>, negative: bool, magnitude: &[u8]) -> Result<()> {
    let zeros = magnitude.iter().take_while(|byte| **byte == 0).count();
    let magnitude = magnitude.get(zeros..).unwrap_or_default();
    if magnitude.len() < LONG {
        let small = magnitude.iter().fold(0, |small, byte| small << 8 | u64::from(*byte));
        put_int(out, negative && small > 0, small, 0);
        return Ok(());
    }
    let Ok(length) = u8::try_from(magnitude.len()) else {
        let text = "an int in a key has at most 255 bytes, 2040 bits: hash it, or put it as text";
        return Err(Error::invalid(text).with("bytes", magnitude.len()));
    };
    let (tag, sign) = if negative { (LONG_BELOW, 0xff) } else { (LONG_ABOVE, 0) };
    out.extend([tag, length ^ sign]);
    out.extend(magnitude.iter().map(|byte| byte ^ sign));
    Ok(())
}

/// The magnitude behind the tag of a long number; `sign` is `0xff` below zero.
pub(super) fn take_long(rest: &mut &[u8], sign: u8) -> Option<Vec<u8>> {
    let (length, after) = rest.split_first()?;
    let length = usize::from(length ^ sign);
    let (bytes, after) = after.split_at_checked(length)?;
    *rest = after;
    let magnitude: Vec<u8> = bytes.iter().map(|byte| byte ^ sign).collect();
    (length >= LONG && magnitude.first() != Some(&0)).then_some(magnitude)
}
