//! The tokens of the text of a schema: names, numbers, types. A parser must format its result and
//! compare it with the text, so that only the canonical form is accepted.

use crate::types::{ColumnType, ITEM, NestedField, VALUE};
use arrow_schema::TimeUnit;
use siltstone_base::{Error, Result};
use std::fmt;

/// Most columns of a schema: more than any table has, and few enough for 16 bits.
pub(crate) const MAX_COLUMNS: usize = 4096;

/// Maximum depth of a parsed type. [`ColumnType::of`] rejects less deep ones already.
const MAX_PARSED_DEPTH: usize = 32;

/// Reads words from the front of a text.
pub(crate) struct TextScanner<'a> {
    rest: &'a str,
    /// The depth of the type that is being read.
    depth: usize,
}

impl<'a> TextScanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        TextScanner { rest: text, depth: 0 }
    }

    /// Passes over `word` if it is what comes next.
    pub(crate) fn passes(&mut self, word: &str) -> bool {
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Passes over `word`.
    ///
    /// # Errors
    /// Corruption when it is not there.
    pub(crate) fn expect(&mut self, word: &str) -> Result<()> {
        if self.passes(word) { Ok(()) } else { Err(self.wrong(word)) }
    }

    /// A number without zeros in front.
    ///
    /// # Errors
    /// Corruption when there is none that fits.
    pub(crate) fn number<T: std::str::FromStr>(&mut self) -> Result<T> {
        let digits = |each: char| each.is_ascii_digit() || each == '-';
        let end = self.rest.find(|each| !digits(each)).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        let number = number.parse().map_err(|_| self.wrong("a number"))?;
        self.rest = rest;
        Ok(number)
    }

    /// A name, plain or in quotation marks.
    ///
    /// # Errors
    /// Corruption when there is none.
    pub(crate) fn name(&mut self) -> Result<String> {
        if self.rest.starts_with('"') {
            return self.quoted();
        }
        let plain = |each: char| each.is_ascii_alphanumeric() || each == '_';
        let end = self.rest.find(|each| !plain(each)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() {
            return Err(self.wrong("a name"));
        }
        self.rest = rest;
        Ok(name.to_owned())
    }

    fn quoted(&mut self) -> Result<String> {
        self.expect("\"")?;
        let mut name = String::new();
        loop {
            let (piece, rest) = self.rest.split_once('"').ok_or_else(|| self.wrong("\""))?;
            name.push_str(piece);
            self.rest = rest;
            if !self.passes("\"") {
                return Ok(name);
            }
            name.push('"');
        }
    }

    /// A type.
    ///
    /// # Errors
    /// Corruption for what is none; Unsupported for the name of one that is not known.
    pub(crate) fn column_type(&mut self) -> Result<ColumnType> {
        let name = self.name()?;
        let int = |bits, signed| ColumnType::Int { bits, signed };
        let parsed = match name.as_str() {
            "boolean" => ColumnType::Boolean,
            "int8" => int(8, true),
            "int16" => int(16, true),
            "int32" => int(32, true),
            "int64" => int(64, true),
            "uint8" => int(8, false),
            "uint16" => int(16, false),
            "uint32" => int(32, false),
            "uint64" => int(64, false),
            "float32" => ColumnType::Float { bits: 32 },
            "float64" => ColumnType::Float { bits: 64 },
            "date" => ColumnType::Date,
            "string" => ColumnType::String,
            "binary" if self.passes("(") => {
                let bytes = self.number()?;
                self.expect(")")?;
                ColumnType::FixedBinary(bytes)
            }
            "binary" => ColumnType::Binary,
            "decimal" => {
                self.expect("(")?;
                let precision = self.number()?;
                self.expect(",")?;
                let scale = self.number()?;
                self.expect(")")?;
                ColumnType::Decimal { precision, scale }
            }
            "timestamp" => self.timestamp()?,
            "list" | "struct" | "map" => self.nested(&name)?,
            _ => {
                let text = "this schema has a type that this version does not know; update it";
                return Err(Error::unsupported(text).with("type", name));
            }
        };
        if parsed.is_valid() { Ok(parsed) } else { Err(self.wrong("a type within its bounds")) }
    }

    /// The parts of a nested type, behind its name.
    fn nested(&mut self, name: &str) -> Result<ColumnType> {
        if self.depth >= MAX_PARSED_DEPTH {
            return Err(self.wrong("types that are nested less deep"));
        }
        self.depth += 1;
        self.expect("<")?;
        let parsed = match name {
            "list" => ColumnType::List(Box::new(self.part(ITEM)?)),
            "map" => {
                let key = Box::new(self.column_type()?);
                self.expect(", ")?;
                ColumnType::Map { key, value: Box::new(self.part(VALUE)?) }
            }
            _ => {
                let mut fields = Vec::new();
                loop {
                    let name = self.name()?;
                    self.expect(" ")?;
                    fields.push(self.part(&name)?);
                    if !self.passes(", ") {
                        break;
                    }
                }
                ColumnType::Struct(fields)
            }
        };
        self.depth -= 1;
        self.expect(">")?;
        Ok(parsed)
    }

    fn part(&mut self, name: &str) -> Result<NestedField> {
        let column_type = self.column_type()?;
        let nullable = !self.passes(" not null");
        Ok(NestedField { name: name.to_owned(), column_type, nullable })
    }

    fn timestamp(&mut self) -> Result<ColumnType> {
        self.expect("(")?;
        let unit = match self.name()?.as_str() {
            "s" => TimeUnit::Second,
            "ms" => TimeUnit::Millisecond,
            "us" => TimeUnit::Microsecond,
            "ns" => TimeUnit::Nanosecond,
            _ => return Err(self.wrong("a unit")),
        };
        let zone = if self.passes(",") { Some(self.quoted()?.into()) } else { None };
        self.expect(")")?;
        Ok(ColumnType::Timestamp { unit, zone })
    }

    /// A list in parentheses, each item read by `item`.
    ///
    /// # Errors
    /// Those of `item`; Corruption for no list, and for too long a one.
    pub(crate) fn list<T>(&mut self, item: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect("(")?;
        let mut items = Vec::new();
        while !self.passes(")") {
            if !items.is_empty() {
                self.expect(", ")?;
            }
            items.push(item(self)?);
            if items.len() > MAX_COLUMNS {
                return Err(self.wrong("at most 4096 columns"));
            }
        }
        Ok(items)
    }

    fn wrong(&self, wanted: &str) -> Error {
        let found: String = self.rest.chars().take(32).collect();
        Error::corruption("this is no schema").with("expected", wanted).with("found", found)
    }
}

/// `parsed`, if `text` is how it is written.
///
/// # Errors
/// Corruption for any other way to say the same.
pub(crate) fn canonical<T: fmt::Display>(text: &str, parsed: T) -> Result<T> {
    let written = parsed.to_string();
    if written == text {
        return Ok(parsed);
    }
    let wrong = Error::corruption("this schema is not written in its one canonical form");
    Err(wrong.with("schema", text).with("canonical", written))
}
