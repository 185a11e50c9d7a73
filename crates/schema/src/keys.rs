//! Typed keys: the encoded columns concatenated, ordered as their values.
//!
//! ```text
//! mark, if nullable   00 null, first    01 a value follows    02 null, last
//! boolean             00, 01
//! int, date, instant  big-endian, sign bit flipped
//! uint                big-endian
//! float               big-endian; sign bit set: all bits flipped, else: the sign bit
//! decimal             an int of 4 bytes (up to 9 digits), 8 (up to 18) or 16
//! binary(n)           n bytes
//! string, binary      00 becomes 00 ff, then 00 00; in the last column, ascending: as they are
//! descending          every byte but the mark inverted
//! ```

mod decode;
mod encode;

use crate::text::{TextScanner, canonical};
use crate::types::{ColumnType, QuotedName};
use siltstone_base::{Error, Result};
use std::collections::BTreeSet;
use std::fmt;

/// The beginning of a schema's text.
const HEAD: &str = "keys 1 ";
/// Marks of a nullable column.
const NULL_FIRST: u8 = 0;
const PRESENT: u8 = 1;
const NULL_LAST: u8 = 2;

/// A column of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub column_type: ColumnType,
    /// Whether it may hold nulls; for good, since keys do not evolve.
    pub nullable: bool,
    /// Whether larger values come first.
    pub descending: bool,
    /// Whether nulls come behind all values.
    pub nulls_last: bool,
}

impl KeyColumn {
    /// A nullable column in ascending order, nulls first.
    #[must_use]
    pub fn new(name: impl Into<String>, column_type: ColumnType) -> Self {
        KeyColumn {
            name: name.into(),
            column_type,
            nullable: true,
            descending: false,
            nulls_last: false,
        }
    }

    /// Without nulls.
    #[must_use]
    pub fn not_null(mut self) -> Self {
        self.nullable = false;
        self.nulls_last = self.descending;
        self
    }

    /// Larger values first, nulls last.
    #[must_use]
    pub fn descending(mut self) -> Self {
        self.descending = true;
        self.nulls_last = true;
        self
    }

    /// The mask by which every byte of the payload is inverted.
    fn flip(&self) -> u8 {
        if self.descending { 0xff } else { 0 }
    }

    /// The mark of a null.
    fn null(&self) -> u8 {
        if self.nulls_last { NULL_LAST } else { NULL_FIRST }
    }

    /// Length of a payload in bytes, if all payloads have the same length.
    fn width(&self) -> Option<usize> {
        self.column_type.width()
    }

    /// Whether its strings stand as they are, if it is the last column.
    fn is_raw(&self, last: bool) -> bool {
        last && !self.descending && self.width().is_none()
    }
}

impl fmt::Display for KeyColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", QuotedName(&self.name), self.column_type)?;
        if !self.nullable {
            f.write_str(" not null")?;
        }
        if self.descending {
            f.write_str(" desc")?;
        }
        match (self.nulls_last, self.descending) {
            (true, false) => f.write_str(" nulls last"),
            (false, true) => f.write_str(" nulls first"),
            _ => Ok(()),
        }
    }
}

/// The columns of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySchema {
    columns: Vec<KeyColumn>,
}

impl KeySchema {
    /// A key of these columns.
    ///
    /// # Errors
    /// Invalid for none, for two of one name, for a type that cannot be. Unsupported for a nested
    /// type.
    pub fn new(columns: Vec<KeyColumn>) -> Result<Self> {
        if columns.is_empty() {
            return Err(Error::invalid("a key has at least one column"));
        }
        let mut names = BTreeSet::new();
        for column in &columns {
            if !names.insert(&column.name) {
                let text = "two columns of a key have one name";
                return Err(Error::invalid(text).with("column", &column.name));
            }
            if column.column_type.is_nested() {
                let text = "a column of the key is not nested: make each field a column";
                return Err(Error::unsupported(text).with("column", column));
            }
            if !column.column_type.is_valid() {
                let text = "a column has a type beyond its bounds";
                return Err(Error::invalid(text).with("column", column));
            }
            if !column.nullable && column.nulls_last != column.descending {
                let text = "a column without nulls has no place for them";
                return Err(Error::invalid(text).with("column", column));
            }
        }
        Ok(KeySchema { columns })
    }

    /// The schema that this text says.
    ///
    /// # Errors
    /// Corruption for another text than its `Display` writes; Unsupported for a later version.
    pub fn parse(text: &str) -> Result<Self> {
        let mut words = TextScanner::new(text);
        if !words.passes(HEAD) {
            let wrong = "this key schema has a version that is not known; update siltstone";
            return Err(Error::unsupported(wrong).with("known", HEAD.trim()));
        }
        let columns = words.list(|words| {
            let mut column = KeyColumn::new(words.name()?, {
                words.expect(" ")?;
                words.column_type()?
            });
            let nullable = !words.passes(" not null");
            if words.passes(" desc") {
                column = column.descending();
            }
            column.nullable = nullable;
            if words.passes(" nulls ") {
                column.nulls_last = words.passes("last");
                if !column.nulls_last {
                    words.expect("first")?;
                }
            }
            Ok(column)
        })?;
        let parsed = KeySchema::new(columns)
            .map_err(|error| Error::corruption("this is no key schema").caused_by(error))?;
        canonical(text, parsed)
    }

    /// The columns, in order.
    #[must_use]
    pub fn columns(&self) -> &[KeyColumn] {
        &self.columns
    }
}

impl fmt::Display for KeySchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        for (position, column) in self.columns.iter().enumerate() {
            write!(f, "{}{column}", if position == 0 { "(" } else { ", " })?;
        }
        f.write_str(")")
    }
}
