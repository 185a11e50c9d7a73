//! Cells of nested columns: a list, a struct or a map as bytes, in the place of a string of a row.
//!
//! ```text
//! 0  1   low 2 bits: bytes of an end, 1, 2 or 4 (as 0, 1, 2); next 2, of a list: the same of its
//!        count; else 0
//!    …   of a list: the count of its items, little-endian
//!    …   one bit an item or field, set: null; the last byte filled up with zeros
//!    …   every item or field of fixed width, in order, little-endian; zeros for a null
//!    …   for every other one: where its bytes end, counted from the first of these
//!    …   their bytes, one behind the other; none for a null
//! ```
//! A map is a list of structs of a key and a value. Parts may be nested in turn.

mod decode;
mod encode;

pub(crate) use decode::{BadCells, decode};
pub(crate) use encode::encode;
