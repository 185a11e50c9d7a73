//! Tuples as keys: every part is a tag and a payload, so a key can be decoded without a schema.
//!
//! ```text
//! 01        None                   30   float: 8 bytes, ordered
//! 02, 03    false, true            38   decimal (see `decimal`)
//! 17        int below 0, 9 to 255 bytes: their number and they, inverted
//! 20 - n    int below 0, n bytes, 1 to 8, inverted
//! 20        int 0                  40   date: days since 1970, 4 bytes, ordered
//! 20 + n    int above 0, n bytes   44   instant: microseconds since 1970 in UTC, 8 bytes, ordered
//! 29        int above 0, 9 to 255 bytes: their number, they
//! 50        text, escaped          58   bytes, escaped          60   UUID: 16 bytes
//! ```
//!
//! An int takes the fewest bytes. Tags are 01 to fe, and no part is a prefix of another: parts
//! compare one after the other, types before values, and what begins with a tuple's parts lies
//! between its key and the same with `ff` behind.

mod decimal;
mod integer;

pub use decimal::Decimal;

use crate::escaped::{escaped_len, take_escaped, write_escaped};
use crate::ordered::Ordered;
use integer::{LONG_ABOVE, LONG_BELOW, SMALLEST, put_int, put_long, take_int, take_long};
use siltstone_base::limits::MAX_KEY_BYTES;
use siltstone_base::{Error, Result};
use std::borrow::Cow;
use std::ops::RangeInclusive;

const NONE: u8 = 0x01;
const FALSE: u8 = 0x02;
const TRUE: u8 = 0x03;
const FLOAT: u8 = 0x30;
const DECIMAL: u8 = 0x38;
const DATE: u8 = 0x40;
const MOMENT: u8 = 0x44;
const TEXT: u8 = 0x50;
const BYTES: u8 = 0x58;
const UUID: u8 = 0x60;
/// Above every tag: what a range ends with.
const END_OF_RANGE: u8 = 0xff;

/// Days since 1970 of the years 1 to 9999, which are those of ISO 8601 and of Python.
pub const DAYS: RangeInclusive<i32> = -719_162..=2_932_896;
/// Microseconds since 1970 of the same years.
pub const MICROSECONDS: RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// One part of a tuple.
#[derive(Clone, Debug, PartialEq)]
pub enum Part<'a> {
    /// Nothing; before everything else.
    None,
    /// A truth value.
    Bool(bool),
    /// A whole number that 64 bits with a sign hold.
    Int(i64),
    /// A whole number, up to 255 bytes.
    BigInt {
        /// Whether it is below zero.
        negative: bool,
        /// Big-endian. Zeros in front are passed over.
        magnitude: Cow<'a, [u8]>,
    },
    /// A float. There is one zero and one NaN, the largest.
    Float(f64),
    /// A decimal number, by its value.
    Decimal(Decimal),
    /// Days since 1970, among [`DAYS`].
    Date(i32),
    /// Microseconds since 1970 in UTC, among [`MICROSECONDS`].
    Moment(i64),
    /// Text, by code points.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
    /// A UUID, as its bytes in order.
    Uuid([u8; 16]),
}

/// The key that `parts` make.
///
/// # Errors
/// Those of [`put_part`]; Invalid for no parts, and for a key longer than 65,535 bytes.
pub fn pack(parts: &[Part<'_>]) -> Result<Vec<u8>> {
    let mut key = Vec::new();
    parts.iter().try_for_each(|part| put_part(&mut key, part))?;
    check_key(&key)?;
    Ok(key)
}

/// Whether the parts that were put into `key` are a key.
///
/// # Errors
/// Invalid for none, and for more than 65,535 bytes.
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() {
        return Err(Error::invalid("a key has at least one part"));
    }
    if key.len() > MAX_KEY_BYTES {
        let text = "these parts make a longer key than there can be: hash the long one, or put it \
                    into the value";
        return Err(Error::invalid(text).with("bytes", key.len()).with("most", MAX_KEY_BYTES));
    }
    Ok(())
}

/// The range of the keys whose first parts were put into `key`; the second is past the range.
///
/// # Errors
/// Invalid for parts that leave no room for a bound.
pub fn range_of(key: Vec<u8>) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut end = key.clone();
    end.push(END_OF_RANGE);
    check_key(&end)?;
    // A bound is a key; the least tuple begins with the least tag.
    let start = if key.is_empty() { vec![NONE] } else { key };
    Ok((start, end))
}

/// Appends one part to `key`.
///
/// # Errors
/// Invalid for a number, a date or an instant that has no encoding.
pub fn put_part(key: &mut Vec<u8>, part: &Part<'_>) -> Result<()> {
    match part {
        Part::None => key.push(NONE),
        Part::Bool(false) => key.push(FALSE),
        Part::Bool(true) => key.push(TRUE),
        Part::Int(value) => put_int(key, *value < 0, value.unsigned_abs(), 0),
        Part::BigInt { negative, magnitude } => put_long(key, *negative, magnitude)?,
        Part::Float(value) => {
            key.push(FLOAT);
            key.extend_from_slice(&value.to_ordered());
        }
        Part::Decimal(value) => {
            key.push(DECIMAL);
            value.put(key)?;
        }
        Part::Date(days) if DAYS.contains(days) => {
            key.push(DATE);
            key.extend_from_slice(&days.to_ordered());
        }
        Part::Moment(micros) if MICROSECONDS.contains(micros) => {
            key.push(MOMENT);
            key.extend_from_slice(&micros.to_ordered());
        }
        Part::Date(_) | Part::Moment(_) => {
            return Err(Error::invalid("a date in a key lies in the years 1 to 9999"));
        }
        Part::Text(text) => {
            key.push(TEXT);
            put_escaped(key, text.as_bytes());
        }
        Part::Bytes(bytes) => {
            key.push(BYTES);
            put_escaped(key, bytes);
        }
        Part::Uuid(bytes) => {
            key.push(UUID);
            key.extend_from_slice(bytes);
        }
    }
    Ok(())
}

fn put_escaped(key: &mut Vec<u8>, bytes: &[u8]) {
    let at = key.len();
    key.resize(at + escaped_len(bytes), 0);
    let mut row = key.get_mut(at..).unwrap_or_default();
    write_escaped(&mut row, bytes, 0);
}

/// The parts of a key, one after the other; the first error ends it.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    rest: &'a [u8],
    whole: usize,
}

impl<'a> Parts<'a> {
    /// The parts of `key`.
    ///
    /// # Errors
    /// Corruption for no bytes, and for more than a key has.
    pub fn new(key: &'a [u8]) -> Result<Self> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(no_tuple(0).with("bytes", key.len()));
        }
        Ok(Parts { rest: key, whole: key.len() })
    }
}

impl Iterator for Parts<'_> {
    type Item = Result<Part<'static>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let at = self.whole - self.rest.len();
        let part = take_part(&mut self.rest);
        if part.is_none() {
            self.rest = &[];
        }
        Some(part.ok_or_else(|| no_tuple(at)))
    }
}

/// The parts of `key`. They are those that [`pack`] makes exactly this key of.
///
/// # Errors
/// Corruption for a key that [`pack`] never makes.
pub fn unpack(key: &[u8]) -> Result<Vec<Part<'static>>> {
    Parts::new(key)?.collect()
}

fn no_tuple(at: usize) -> Error {
    let text = "this key was not made of parts by pack: it has no part at this place; a key that \
                was put as plain bytes is read as plain bytes";
    Error::corruption(text).with("offset", at)
}

fn take_part(rest: &mut &[u8]) -> Option<Part<'static>> {
    let (tag, after) = rest.split_first()?;
    let short = SMALLEST.contains(tag);
    if !short {
        *rest = after;
    }
    let part = match *tag {
        _ if short => match take_int(rest, 0)? {
            (true, magnitude) if magnitude <= 1 << 63 => {
                Part::Int((magnitude as i64).wrapping_neg())
            }
            (false, magnitude) if magnitude < 1 << 63 => Part::Int(magnitude as i64),
            (negative, magnitude) => {
                let magnitude = Cow::Owned(magnitude.to_be_bytes().to_vec());
                Part::BigInt { negative, magnitude }
            }
        },
        NONE => Part::None,
        FALSE => Part::Bool(false),
        TRUE => Part::Bool(true),
        LONG_BELOW => Part::BigInt { negative: true, magnitude: take_long(rest, 0xff)?.into() },
        LONG_ABOVE => Part::BigInt { negative: false, magnitude: take_long(rest, 0)?.into() },
        FLOAT => Part::Float(f64::from_ordered(take_array(rest)?)?),
        DECIMAL => Part::Decimal(Decimal::take(rest)?),
        DATE => {
            let days = i32::from_ordered(take_array(rest)?)?;
            Part::Date(Some(days).filter(|days| DAYS.contains(days))?)
        }
        MOMENT => {
            let micros = i64::from_ordered(take_array(rest)?)?;
            Part::Moment(Some(micros).filter(|micros| MICROSECONDS.contains(micros))?)
        }
        TEXT => {
            let mut text = Vec::new();
            take_escaped(rest, 0, &mut text)?;
            Part::Text(String::from_utf8(text).ok()?.into())
        }
        BYTES => {
            let mut bytes = Vec::new();
            take_escaped(rest, 0, &mut bytes)?;
            Part::Bytes(bytes.into())
        }
        UUID => Part::Uuid(take_array(rest)?),
        _ => return None,
    };
    Some(part)
}

/// The next `N` bytes.
fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*taken)
}
