//! Typed keys and values (RFC 0032): what has columns or parts becomes bytes whose order is the
//! order of the values, and comes back.
//!
//! Pure: values in, bytes out. It is internal to Siltstone and may change with any release; the
//! encodings are frozen. Every decoder answers Corruption for what no encoder makes.
//!
//! | module | holds |
//! | --- | --- |
//! | [`tuple`] | keys of parts that say what they are: `siltstone.keys` |
//! | `ordered` | numbers as bytes in their order |
//! | `escaped` | strings with an end mark |

#![forbid(unsafe_code)]

mod escaped;
mod ordered;
pub mod tuple;
