//! Decimal numbers, by value: a class, the exponent of the first digit, the digits.
//!
//! ```text
//! 01 -Infinity    02 below zero    03 zero    04 above zero    05 Infinity    06 NaN
//! behind 02 and 04:
//!   the exponent of the first digit, as an int of at most 8 bytes with its tag
//!   two digits a byte: 2 * pair + 1, the last 2 * pair, filled up with a zero
//! ```
//!
//! Behind 02 every byte is inverted. Neither the first digit is zero nor the last one: a value has
//! one encoding. A last pair is below the same pair with more behind it, so digits compare as they
//! do behind a point.

use super::integer::{put_int, take_int};
use siltstone_base::{Error, Result};

const MINUS_INFINITY: u8 = 1;
const BELOW: u8 = 2;
const ZERO: u8 = 3;
const ABOVE: u8 = 4;
const INFINITY: u8 = 5;
const NAN: u8 = 6;

/// A decimal number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decimal {
    /// A number: `digits * 10^exponent`.
    Finite {
        /// Whether it is below zero; of no meaning for zero.
        negative: bool,
        /// Each 0 to 9, the highest first. Those that come out of a key begin and end with another
        /// digit than zero; zero has none.
        digits: Vec<u8>,
        /// The power of ten of the last digit.
        exponent: i64,
    },
    /// Above every number, or below.
    Infinite {
        /// Whether it is below.
        negative: bool,
    },
    /// Not a number; the largest.
    Nan,
}

impl Decimal {
    pub(super) fn put(&self, out: &mut Vec<u8>) -> Result<()> {
        let (negative, digits, exponent) = match self {
            Decimal::Finite { negative, digits, exponent } => (*negative, digits, *exponent),
            Decimal::Infinite { negative } => {
                out.push(if *negative { MINUS_INFINITY } else { INFINITY });
                return Ok(());
            }
            Decimal::Nan => {
                out.push(NAN);
                return Ok(());
            }
        };
        if digits.iter().any(|digit| *digit > 9) {
            return Err(Error::invalid("a digit of a decimal number is 0 to 9"));
        }
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        let digits = digits.get(zeros..).unwrap_or_default();
        let more = i64::try_from(digits.len()).unwrap_or(i64::MAX) - 1;
        let last = digits.iter().rposition(|digit| *digit != 0);
        let Some(digits) = last.and_then(|last| digits.get(..=last)) else {
            out.push(ZERO);
            return Ok(());
        };
        let Some(first) = exponent.checked_add(more) else {
            let text = "the exponent of a decimal number in a key has at most 64 bits";
            return Err(Error::invalid(text));
        };
        let (class, flip) = if negative { (BELOW, 0xff) } else { (ABOVE, 0) };
        out.push(class);
        put_int(out, first < 0, first.unsigned_abs(), flip);
        let mut pairs = digits.chunks(2).peekable();
        while let Some(pair) = pairs.next() {
            let pair = match pair {
                [high, low] => high * 10 + low,
                [high] => high * 10,
                _ => 0,
            };
            out.push((2 * pair + u8::from(pairs.peek().is_some())) ^ flip);
        }
        Ok(())
    }

    pub(super) fn take(rest: &mut &[u8]) -> Option<Decimal> {
        let (class, after) = rest.split_first()?;
        *rest = after;
        let (negative, flip) = match *class {
            MINUS_INFINITY => return Some(Decimal::Infinite { negative: true }),
            INFINITY => return Some(Decimal::Infinite { negative: false }),
            NAN => return Some(Decimal::Nan),
            ZERO => {
                return Some(Decimal::Finite { negative: false, digits: Vec::new(), exponent: 0 });
            }
            BELOW => (true, 0xff),
            ABOVE => (false, 0),
            _ => return None,
        };
        let (down, magnitude) = take_int(rest, flip)?;
        let magnitude = i128::from(magnitude);
        let first = i64::try_from(if down { -magnitude } else { magnitude }).ok()?;
        let mut digits = Vec::new();
        loop {
            let (byte, after) = rest.split_first()?;
            *rest = after;
            let byte = byte ^ flip;
            let pair = Some(byte >> 1).filter(|pair| *pair < 100)?;
            digits.extend([pair / 10, pair % 10]);
            if byte & 1 == 0 {
                break;
            }
        }
        if digits.last() == Some(&0) {
            digits.pop();
        }
        if digits.first() == Some(&0) || digits.last() == Some(&0) {
            return None;
        }
        let exponent = first.checked_sub(i64::try_from(digits.len()).ok()? - 1)?;
        Some(Decimal::Finite { negative, digits, exponent })
    }
}
