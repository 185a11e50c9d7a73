//! Values: rows of columns at fixed offsets, decoded column by column.
//!
//! ```text
//! 0  1   low 4 bits: form, 1; next 2: bytes of an end, 1, 2 or 4 (as 0, 1, 2); else 0
//! 1  2   generation of the schema, from 1, little-endian
//! 3  n   one bit a column, set: null; the last byte filled up with zeros
//!    …   columns of fixed width, in order, little-endian; zeros for a null
//!    …   for every string or binary column: where its bytes end, from the first of these
//!    …   their bytes, one behind the other; none for a null
//! ```

mod decode;
mod encode;
mod layout;

use crate::text::{MAX_COLUMNS, TextScanner, canonical};
use crate::types::{ColumnType, QuotedName};
use layout::Layout;
use siltstone_base::{Error, Result};
use std::collections::BTreeSet;
use std::fmt;

/// The beginning of a schema's text.
const HEAD: &str = "values 1 generation ";

/// Maximum number of columns of all generations together, which limits the memory of a schema.
const MAX_SLOTS: usize = 1 << 20;

/// A type that a column had.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Was {
    column_type: ColumnType,
    /// The first generation in which the column has another type.
    until: u16,
}

/// A column of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueColumn {
    name: String,
    column_type: ColumnType,
    nullable: bool,
    /// The generation that added the column.
    since: u16,
    /// Its earlier types, oldest first.
    was: Vec<Was>,
}

impl ValueColumn {
    /// A column of a new schema.
    #[must_use]
    pub fn new(name: impl Into<String>, column_type: ColumnType, nullable: bool) -> Self {
        ValueColumn { name: name.into(), column_type, nullable, since: 1, was: Vec::new() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    #[must_use]
    pub fn column_type(&self) -> &ColumnType {
        &self.column_type
    }

    /// Whether it may hold nulls.
    #[must_use]
    pub fn nullable(&self) -> bool {
        self.nullable
    }

    /// Whether a later generation than the first added the column.
    pub(crate) fn is_added(&self) -> bool {
        self.since > 1
    }

    /// Its type in an earlier generation, in which it was there.
    fn type_in(&self, generation: u16) -> &ColumnType {
        let was = self.was.iter().find(|was| generation < was.until);
        was.map_or(&self.column_type, |was| &was.column_type)
    }
}

impl fmt::Display for ValueColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", QuotedName(&self.name), self.column_type)?;
        if !self.nullable {
            f.write_str(" not null")?;
        }
        if self.since > 1 {
            write!(f, " since {}", self.since)?;
        }
        self.was
            .iter()
            .try_for_each(|was| write!(f, " was {} until {}", was.column_type, was.until))
    }
}

/// The columns of values, in every generation so far.
#[derive(Clone, Debug)]
pub struct ValueSchema {
    generation: u16,
    columns: Vec<ValueColumn>,
    /// The layout of the columns in each generation, from the first on.
    layouts: Vec<Layout>,
    /// The layout of the newest generation.
    newest: Layout,
}

impl PartialEq for ValueSchema {
    fn eq(&self, other: &Self) -> bool {
        (self.generation, &self.columns) == (other.generation, &other.columns)
    }
}

impl Eq for ValueSchema {}

impl ValueSchema {
    /// The first generation of a schema. It may have no columns: then keys have all data.
    ///
    /// # Errors
    /// Invalid for two columns of one name, for an invalid type, and for too many columns.
    pub fn new(columns: Vec<ValueColumn>) -> Result<Self> {
        ValueSchema::of(1, columns)
    }

    fn of(generation: u16, columns: Vec<ValueColumn>) -> Result<Self> {
        if columns.len() > MAX_COLUMNS
            || columns.len().saturating_mul(usize::from(generation)) > MAX_SLOTS
        {
            let text = "a value has at most 4096 columns, and columns times generations are at \
                        most 2^20: load it anew";
            return Err(Error::invalid(text).with("columns", columns.len()));
        }
        if generation == 0 {
            return Err(Error::invalid(
                "the generation of a schema of values is 0; the first is 1",
            ));
        }
        let mut names = BTreeSet::new();
        for column in &columns {
            let wrong = if !names.insert(&column.name) {
                "two columns of a value have one name"
            } else if !column.has_history(generation) {
                "a column has no history that could have been"
            } else {
                continue;
            };
            return Err(Error::invalid(wrong).with("column", column));
        }
        if !columns.is_sorted_by_key(|column| column.since) {
            return Err(Error::invalid("columns are added at the end"));
        }
        let layouts = (1..=generation).map(|each| Layout::new(&columns, each)).collect();
        let newest = Layout::new(&columns, generation);
        Ok(ValueSchema { generation, columns, layouts, newest })
    }

    /// Parses the text of a schema.
    ///
    /// # Errors
    /// Corruption for another text than its `Display` writes; Unsupported for a later version.
    pub fn parse(text: &str) -> Result<Self> {
        let mut words = TextScanner::new(text);
        if !words.passes(HEAD) {
            let wrong = "this schema of values has a version that is not known; update siltstone";
            return Err(Error::unsupported(wrong).with("known", "values 1"));
        }
        let generation = words.number()?;
        words.expect(" ")?;
        let columns = words.list(|words| {
            let name = words.name()?;
            words.expect(" ")?;
            let mut column = ValueColumn::new(name, words.column_type()?, true);
            column.nullable = !words.passes(" not null");
            if words.passes(" since ") {
                column.since = words.number()?;
            }
            while words.passes(" was ") {
                let column_type = words.column_type()?;
                words.expect(" until ")?;
                column.was.push(Was { column_type, until: words.number()? });
            }
            Ok(column)
        })?;
        // Each generation came by a change of a column, so a text says no more than it is long.
        let changes = columns.iter().map(|column| 2 + column.was.len()).sum::<usize>() + 1;
        if usize::from(generation) > changes {
            let wrong = "this schema has more generations than its columns have seen";
            return Err(Error::corruption(wrong).with("generation", generation));
        }
        let parsed = ValueSchema::of(generation, columns)
            .map_err(|error| Error::corruption("this is no schema").caused_by(error))?;
        canonical(text, parsed)
    }

    /// The columns, in order.
    #[must_use]
    pub fn columns(&self) -> &[ValueColumn] {
        &self.columns
    }

    /// The number of this generation.
    #[must_use]
    pub fn generation(&self) -> u16 {
        self.generation
    }

    /// The next generation, with an additional column, which is null in older rows.
    ///
    /// # Errors
    /// Invalid for an existing name, and past the last generation.
    pub fn with_column(&self, name: &str, column_type: ColumnType) -> Result<Self> {
        self.next(|generation, columns| {
            let mut column = ValueColumn::new(name, column_type, true);
            column.since = generation;
            columns.push(column);
            Ok(())
        })
    }

    /// The next generation, in which a column has a wider type.
    ///
    /// # Errors
    /// Invalid for a type that cannot represent all values of the column, and if there is no such
    /// column.
    pub fn with_wider(&self, name: &str, column_type: ColumnType) -> Result<Self> {
        self.next(|generation, columns| {
            let column = named(columns, name)?;
            if !column.column_type.widens_to(&column_type) {
                let text = "a column is widened to a type that holds all its values";
                return Err(Error::invalid(text).with("column", &*column).with("to", column_type));
            }
            let column_type = std::mem::replace(&mut column.column_type, column_type);
            column.was.push(Was { column_type, until: generation });
            Ok(())
        })
    }

    /// The next generation, in which a column may hold nulls.
    ///
    /// # Errors
    /// Invalid if there is no such column, or if it is nullable already.
    pub fn with_nulls(&self, name: &str) -> Result<Self> {
        self.next(|_, columns| {
            let column = named(columns, name)?;
            if std::mem::replace(&mut column.nullable, true) {
                return Err(Error::invalid("the column may hold nulls").with("column", name));
            }
            Ok(())
        })
    }

    /// The same schema with nullable columns only, for absent rows.
    pub(crate) fn lenient(&self) -> Self {
        let mut lenient = self.clone();
        lenient.columns.iter_mut().for_each(|column| column.nullable = true);
        lenient
    }

    /// A value with nulls in all columns.
    pub(crate) fn all_null(&self) -> Vec<u8> {
        let layout = &self.newest;
        let [low, high] = self.generation.to_le_bytes();
        let mut value = vec![layout::FORM, low, high];
        let columns = layout.slots.len();
        value.resize(layout::HEAD_BYTES + columns / 8, 0xff);
        if !columns.is_multiple_of(8) {
            value.push((1 << (columns % 8)) - 1);
        }
        // No strings: every end is a zero, of one byte.
        value.resize(layout.fixed + layout.strings, 0);
        value
    }

    fn next(&self, change: impl FnOnce(u16, &mut Vec<ValueColumn>) -> Result<()>) -> Result<Self> {
        let Some(generation) = self.generation.checked_add(1) else {
            return Err(Error::invalid("a schema has at most 65,535 generations: load it anew"));
        };
        let mut columns = self.columns.clone();
        change(generation, &mut columns)?;
        ValueSchema::of(generation, columns)
    }
}

impl ValueColumn {
    /// Whether the history of the column is possible with one change per generation.
    fn has_history(&self, now: u16) -> bool {
        let mut types = self.was.iter().map(|was| &was.column_type).chain([&self.column_type]);
        let widened = types.clone().skip(1);
        let mut untils = [self.since].into_iter().chain(self.was.iter().map(|was| was.until));
        let later = self.was.iter().map(|was| was.until);
        let grows = types.clone().zip(widened).all(|(one, next)| one.widens_to(next));
        let in_order = untils.clone().zip(later).all(|(one, next)| one < next);
        types.all(ColumnType::is_valid)
            && grows
            && in_order
            && untils.all(|each| (1..=now).contains(&each))
            && (self.nullable || self.since == 1)
    }
}

fn named<'a>(columns: &'a mut [ValueColumn], name: &str) -> Result<&'a mut ValueColumn> {
    let found = columns.iter_mut().find(|column| column.name == name);
    found.ok_or_else(|| Error::invalid("there is no such column").with("column", name))
}

impl fmt::Display for ValueSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HEAD}{} (", self.generation)?;
        for (position, column) in self.columns.iter().enumerate() {
            write!(f, "{}{column}", if position == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}
