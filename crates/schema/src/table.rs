//! Tables: the columns of keys and values under one schema, with one text form.
//!
//! ```text
//! keys 1 (country string not null, day date desc)
//! values 1 generation 2 (amount int64 not null, note string since 2)
//! ```

mod decode;
mod encode;
mod range;

pub use range::KeyRange;

use crate::keys::{KeyColumn, KeySchema};
use crate::types::ColumnType;
use crate::values::{ValueColumn, ValueSchema};
use arrow_schema::{Field, Fields, Schema};
use siltstone_base::{Error, Result};
use std::collections::BTreeSet;
use std::fmt;

/// The columns of a table: those of its key, in their order, then those of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSchema {
    keys: KeySchema,
    values: ValueSchema,
}

impl TableSchema {
    /// A table of these columns, of which `key` says those of the key, each as its name and words
    /// about its order: `"day desc nulls last"`. The others are the value's, in their order.
    ///
    /// # Errors
    /// Invalid for a key without columns, a column that there is not, or twice, and for words that
    /// are none. Unsupported for a type that no column has.
    pub fn of<S: AsRef<str>>(columns: &Fields, key: &[S]) -> Result<Self> {
        let mut names = BTreeSet::new();
        if let Some(twice) = columns.iter().find(|field| !names.insert(field.name())) {
            let text = "two columns have one name";
            return Err(Error::invalid(text).with("column", twice.name()));
        }
        let mut taken = BTreeSet::new();
        let mut keys = Vec::with_capacity(key.len());
        for spoken in key {
            let (field, order) = found(columns, spoken.as_ref())?;
            if !taken.insert(field.name()) {
                let text = "a column stands twice in the key";
                return Err(Error::invalid(text).with("column", field.name()));
            }
            keys.push(order.column(field)?);
        }
        let rest = columns.iter().filter(|field| !taken.contains(field.name()));
        let values = rest
            .map(|field| Ok(ValueColumn::new(field.name(), type_of(field)?, field.is_nullable())));
        TableSchema::new(KeySchema::new(keys)?, ValueSchema::new(values.collect::<Result<_>>()?)?)
    }

    /// Keys and values of one table.
    ///
    /// # Errors
    /// Invalid for a name that is in both.
    pub fn new(keys: KeySchema, values: ValueSchema) -> Result<Self> {
        let names: BTreeSet<&str> =
            keys.columns().iter().map(|column| column.name.as_str()).collect();
        let mut twice = values.columns().iter().filter(|column| names.contains(column.name()));
        if let Some(column) = twice.next() {
            let text = "a column of the key and one of the value have one name";
            return Err(Error::invalid(text).with("column", column.name()));
        }
        Ok(TableSchema { keys, values })
    }

    /// The schema that this text says.
    ///
    /// # Errors
    /// Corruption for another text than its `Display` writes; Unsupported for a later version.
    pub fn parse(text: &str) -> Result<Self> {
        let Some((keys, values)) = split_at_line_end(text) else {
            return Err(Error::corruption("a table's schema has two lines: keys, and values"));
        };
        TableSchema::new(KeySchema::parse(keys)?, ValueSchema::parse(values)?)
            .map_err(|error| Error::corruption("this is no schema").caused_by(error))
    }

    /// Those of the key.
    #[must_use]
    pub fn keys(&self) -> &KeySchema {
        &self.keys
    }

    /// Those of the value.
    #[must_use]
    pub fn values(&self) -> &ValueSchema {
        &self.values
    }

    /// The same key, with other values.
    ///
    /// # Errors
    /// As [`TableSchema::new`].
    pub fn with_values(&self, values: ValueSchema) -> Result<Self> {
        TableSchema::new(self.keys.clone(), values)
    }

    /// Checks that the value column `name` may be changed.
    ///
    /// # Errors
    /// Invalid for a column of the key, and for a name that no column has.
    pub fn check_changeable(&self, name: &str) -> Result<()> {
        if self.values.columns().iter().any(|column| column.name() == name) {
            return Ok(());
        }
        if self.keys.columns().iter().all(|column| column.name != name) {
            return Err(self.no_column(name));
        }
        let text = "the column is part of the key, and the key of a table cannot be changed: \
                    create a table with another key, and load the rows of this one into it";
        Err(Error::invalid(text).with("column", name))
    }

    /// The number of columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.keys.columns().len() + self.values.columns().len()
    }

    /// The Arrow schema: the columns of the key, then those of the value.
    #[must_use]
    pub fn arrow(&self) -> Schema {
        let keys =
            self.keys.columns().iter().map(|column| {
                Field::new(&column.name, column.column_type.arrow(), column.nullable)
            });
        let values = self.values.columns().iter().map(|column| {
            Field::new(column.name(), column.column_type().arrow(), column.nullable())
        });
        Schema::new(keys.chain(values).collect::<Vec<_>>())
    }

    /// The places of columns, by name.
    ///
    /// # Errors
    /// Invalid for a name that no column has.
    pub fn places<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<usize>> {
        let arrow = self.arrow();
        let place = |name: &S| {
            let found = arrow.fields().iter().position(|field| field.name() == name.as_ref());
            found.ok_or_else(|| self.no_column(name.as_ref()))
        };
        names.iter().map(place).collect()
    }

    fn no_column(&self, name: &str) -> Error {
        let arrow = self.arrow();
        let names: Vec<_> = arrow.fields().iter().map(|field| field.name().as_str()).collect();
        let error = Error::invalid("the table has no such column").with("column", name);
        error.with("columns", names.join(", "))
    }

    /// Whether a table with the schema `self` is the one that `other` describes: the same key, and
    /// values of the same columns, except for columns that were added since `other`. A program that
    /// does not know an added column continues to work.
    ///
    /// # Errors
    /// Invalid, with both.
    pub fn agrees_with(&self, other: &TableSchema) -> Result<()> {
        let shape = |schema: &TableSchema| {
            let columns = schema.values.columns().iter().map(|column| {
                (column.name().to_owned(), column.column_type().clone(), column.nullable())
            });
            columns.collect::<Vec<_>>()
        };
        let (own, brought) = (shape(self), shape(other));
        let mut further = self.values.columns().iter().skip(brought.len());
        let differs_by_added = own.starts_with(&brought) && further.all(ValueColumn::is_added);
        if self.keys == other.keys && differs_by_added {
            return Ok(());
        }
        let text = "the table was made with other columns: open it without a schema, and add or \
                    widen columns of its values; its key is for good";
        Err(Error::invalid(text).with("recorded", self).with("brought", other))
    }
}

impl fmt::Display for TableSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.keys, self.values)
    }
}

fn type_of(field: &Field) -> Result<ColumnType> {
    ColumnType::of(field.data_type()).map_err(|error| error.with("column", field.name()))
}

/// The order of a column of a key.
#[derive(Default)]
struct Order {
    descending: bool,
    nulls_last: Option<bool>,
}

impl Order {
    fn column(&self, field: &Field) -> Result<KeyColumn> {
        let mut column = KeyColumn::new(field.name(), type_of(field)?);
        if self.descending {
            column = column.descending();
        }
        if !field.is_nullable() {
            column = column.not_null();
        }
        if let Some(last) = self.nulls_last {
            column.nulls_last = last;
        }
        Ok(column)
    }
}

/// The words that may follow a name, last word first: the position of nulls, and the direction.
const WORDS: [&[&str]; 2] = [&[" nulls first", " nulls last"], &[" asc", " desc"]];

/// The column that is spoken of, and its order. A name may have words of an order in it, so the
/// longest name counts.
fn found<'a>(columns: &'a Fields, spoken: &str) -> Result<(&'a Field, Order)> {
    let field = |name: &str| columns.iter().find(|field| field.name() == name);
    let mut order = Order::default();
    let mut name = spoken;
    for words in WORDS {
        let word = words.iter().find(|word| name.ends_with(**word));
        let (None, Some(word)) = (field(name), word) else { continue };
        match *word {
            " desc" => order.descending = true,
            " nulls first" => order.nulls_last = Some(false),
            " nulls last" => order.nulls_last = Some(true),
            _ => {}
        }
        name = name.strip_suffix(*word).unwrap_or_default().trim_end();
    }
    if let Some(field) = field(name) {
        return Ok((field, order));
    }
    let known: Vec<_> = columns.iter().map(|field| field.name().as_str()).collect();
    let text = "the key names a column that is not there; behind a name only `desc`, `nulls first` \
                and `nulls last` may follow";
    let error = Error::invalid(text).with("key", spoken);
    Err(error.with("columns", known.join(", ")))
}
/// The parts of `text` before and behind its first line end that is in no quoted name. A quotation
/// mark within a name is written twice, so the marks before such a line end are even in number.
fn split_at_line_end(text: &str) -> Option<(&str, &str)> {
    let mut quoted = false;
    let at = text.bytes().position(|byte| {
        quoted ^= byte == b'"';
        byte == b'\n' && !quoted
    })?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}
