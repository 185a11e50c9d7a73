//! Typed keys and values (RFC 0032): encodes columns or parts of a tuple to bytes that are ordered
//! as the values, and decodes them.
//!
//! This crate is pure: it has no I/O and no state. It is internal to Siltstone and may change with
//! any release; the encodings are frozen. Every decoder returns Corruption for bytes that no
//! encoder makes.
//!
//! | module | holds |
//! | --- | --- |
//! | [`tuple`] | keys of self-describing parts: `siltstone.keys` |
//! | [`keys`] | keys of typed columns |
//! | [`values`] | values of typed columns, and their generations |
//! | [`table`] | keys and values under one schema: `siltstone.table` |
//! | [`types`] | what columns may hold |
//! | [`rows`] | what encoding makes |
//! | `conform` | columns as callers have them, as the types that a schema asks for |
//! | `column` | Arrow's columns as their values lie |
//! | `nested` | cells of lists, structs and maps as bytes |
//! | `text` | the words of a schema's text |
//! | `ordered` | numbers as bytes in their order |
//! | `escaped` | strings with an end mark |

#![forbid(unsafe_code)]

mod column;
mod conform;
mod escaped;
pub mod keys;
mod nested;
mod ordered;
pub mod rows;
pub mod table;
mod text;
pub mod tuple;
pub mod types;
pub mod values;

pub use conform::unpacked;
pub use keys::{KeyColumn, KeySchema};
pub use rows::Rows;
pub use table::TableSchema;
pub use types::{ColumnType, NestedField};
pub use values::{ValueColumn, ValueSchema};
