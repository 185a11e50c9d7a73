//! The types of columns, and the corresponding Arrow types.

use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, TimeUnit};
use siltstone_base::{Error, Result};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Longest `binary(n)`: that of a key.
pub(crate) const MAX_FIXED_BYTES: usize = siltstone_base::limits::MAX_KEY_BYTES;
/// Maximum depth of a type: parsing and reading recurse.
const MAX_DEPTH: usize = 16;
/// The name of the items of a list.
pub(crate) const ITEM: &str = "item";
/// The name of the values of a map.
pub(crate) const VALUE: &str = "value";

/// The type of a column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// A truth value.
    Boolean,
    /// A whole number.
    Int {
        /// 8, 16, 32 or 64.
        bits: u8,
        /// Whether it may be below zero.
        signed: bool,
    },
    /// A float.
    Float {
        /// 32 or 64.
        bits: u8,
    },
    /// A decimal number with a fixed point.
    Decimal {
        /// Digits, 1 to 38.
        precision: u8,
        /// Digits after the decimal point.
        scale: i8,
    },
    /// Days since 1970.
    Date,
    /// A count since 1970.
    Timestamp {
        /// The unit.
        unit: TimeUnit,
        /// Time zone in which instants are shown; `None`: local timestamps.
        zone: Option<Arc<str>>,
    },
    /// Text in UTF-8.
    String,
    /// Bytes.
    Binary,
    /// A fixed number of bytes.
    FixedBinary(i32),
    /// A sequence of items of one type. Only columns of values may have this type and the two
    /// below.
    List(Box<NestedField>),
    /// Fields by name.
    Struct(Vec<NestedField>),
    /// Values by keys, in the order given.
    Map {
        /// The type of the keys, which is not nested. A key is never null.
        key: Box<ColumnType>,
        /// The values; their name is "value".
        value: Box<NestedField>,
    },
}

/// A part of a nested type: the items of a list, a field of a struct, the values of a map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NestedField {
    /// The name; "item" for the items of a list.
    pub name: String,
    /// The type.
    pub column_type: ColumnType,
    /// Whether it may be null.
    pub nullable: bool,
}

impl NestedField {
    fn of(field: &Field, depth: usize) -> Result<NestedField> {
        Ok(NestedField {
            name: field.name().clone(),
            column_type: ColumnType::nested(field.data_type(), depth)?,
            nullable: field.is_nullable(),
        })
    }

    /// The same part under the name that schemas use, instead of the name given by the program that
    /// made it.
    fn named(self, name: &str) -> Box<NestedField> {
        Box::new(NestedField { name: name.to_owned(), ..self })
    }

    pub(crate) fn arrow(&self) -> FieldRef {
        Arc::new(Field::new(&self.name, self.column_type.arrow(), self.nullable))
    }
}

impl ColumnType {
    /// The column type of an Arrow type.
    ///
    /// # Errors
    /// Unsupported for other types; the message has the remedy.
    pub fn of(arrow: &DataType) -> Result<ColumnType> {
        ColumnType::nested(arrow, 0)
    }

    /// As [`ColumnType::of`], for a type that `depth` others contain.
    fn nested(arrow: &DataType, depth: usize) -> Result<ColumnType> {
        if depth > MAX_DEPTH {
            let text =
                "types are nested at most 16 deep: store the value as JSON in a column of text";
            return Err(Error::unsupported(text));
        }
        let part = |field: &Field| NestedField::of(field, depth + 1);
        let int = |bits, signed| ColumnType::Int { bits, signed };
        Ok(match arrow {
            DataType::Boolean => ColumnType::Boolean,
            DataType::Int8 => int(8, true),
            DataType::Int16 => int(16, true),
            DataType::Int32 => int(32, true),
            DataType::Int64 => int(64, true),
            DataType::UInt8 => int(8, false),
            DataType::UInt16 => int(16, false),
            DataType::UInt32 => int(32, false),
            DataType::UInt64 => int(64, false),
            DataType::Float32 => ColumnType::Float { bits: 32 },
            DataType::Float64 => ColumnType::Float { bits: 64 },
            DataType::Decimal128(precision, scale) if *precision > 0 => {
                ColumnType::Decimal { precision: *precision, scale: *scale }
            }
            DataType::Date32 => ColumnType::Date,
            DataType::Timestamp(unit, zone) => {
                ColumnType::Timestamp { unit: *unit, zone: zone.clone() }
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ColumnType::String,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => ColumnType::Binary,
            DataType::FixedSizeBinary(bytes) if fixed_bytes(*bytes) => {
                ColumnType::FixedBinary(*bytes)
            }
            DataType::List(items)
            | DataType::LargeList(items)
            | DataType::FixedSizeList(items, _) => ColumnType::List(part(items)?.named(ITEM)),
            DataType::Struct(fields) if !fields.is_empty() => {
                let fields = fields.iter().map(|field| part(field)).collect::<Result<Vec<_>>>()?;
                let mut names = BTreeSet::new();
                if let Some(twice) = fields.iter().find(|field| !names.insert(&field.name)) {
                    let text = "two fields of a struct have one name";
                    return Err(Error::invalid(text).with("field", &twice.name));
                }
                ColumnType::Struct(fields)
            }
            DataType::Map(entries, _) => ColumnType::map(entries.data_type(), depth + 1)?,
            other => {
                let text = if other.is_nested() {
                    "tables have no columns of unions, views of lists, runs, or structs without \
                     fields: store the value as JSON in a column of text"
                } else {
                    "no column of a table has this type: cast it, for example a dictionary to its \
                     values, a half float to float32, a time to an int"
                };
                return Err(Error::unsupported(text).with("type", other));
            }
        })
    }

    /// The type of a map whose entries have this Arrow type, `depth` types deep.
    fn map(entries: &DataType, depth: usize) -> Result<ColumnType> {
        let DataType::Struct(pair) = entries else {
            return Err(Error::invalid("a map has keys and values"));
        };
        let [key, value] = pair.as_ref() else {
            return Err(Error::invalid("a map has keys and values"));
        };
        let key = NestedField::of(key, depth)?.column_type;
        if key.is_nested() {
            let text = "the keys of a map are not nested: make it a list of structs";
            return Err(Error::unsupported(text).with("key", key));
        }
        let value = NestedField::of(value, depth)?.named(VALUE);
        Ok(ColumnType::Map { key: Box::new(key), value })
    }

    /// The Arrow type of decoded columns.
    #[must_use]
    pub fn arrow(&self) -> DataType {
        match self {
            ColumnType::Boolean => DataType::Boolean,
            ColumnType::Int { bits: 8, signed: true } => DataType::Int8,
            ColumnType::Int { bits: 16, signed: true } => DataType::Int16,
            ColumnType::Int { bits: 32, signed: true } => DataType::Int32,
            ColumnType::Int { signed: true, .. } => DataType::Int64,
            ColumnType::Int { bits: 8, .. } => DataType::UInt8,
            ColumnType::Int { bits: 16, .. } => DataType::UInt16,
            ColumnType::Int { bits: 32, .. } => DataType::UInt32,
            ColumnType::Int { .. } => DataType::UInt64,
            ColumnType::Float { bits: 32 } => DataType::Float32,
            ColumnType::Float { .. } => DataType::Float64,
            ColumnType::Decimal { precision, scale } => DataType::Decimal128(*precision, *scale),
            ColumnType::Date => DataType::Date32,
            ColumnType::Timestamp { unit, zone } => DataType::Timestamp(*unit, zone.clone()),
            ColumnType::String => DataType::Utf8,
            ColumnType::Binary => DataType::Binary,
            ColumnType::FixedBinary(bytes) => DataType::FixedSizeBinary(*bytes),
            ColumnType::List(items) => DataType::List(items.arrow()),
            ColumnType::Struct(fields) => {
                DataType::Struct(fields.iter().map(NestedField::arrow).collect())
            }
            ColumnType::Map { key, value } => {
                let key = Arc::new(Field::new("key", key.arrow(), false));
                let pair = DataType::Struct([key, value.arrow()].into_iter().collect());
                DataType::Map(Arc::new(Field::new("entries", pair, false)), false)
            }
        }
    }

    /// Whether the type is nested.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        matches!(self, ColumnType::List(_) | ColumnType::Struct(_) | ColumnType::Map { .. })
    }

    /// Length of a value in bytes, in a key and in a value; `None` for strings.
    pub(crate) fn width(&self) -> Option<usize> {
        Some(match self {
            ColumnType::Boolean => 1,
            ColumnType::Int { bits, .. } | ColumnType::Float { bits } => usize::from(bits / 8),
            ColumnType::Decimal { precision: 0..=9, .. } | ColumnType::Date => 4,
            ColumnType::Decimal { precision: 10..=18, .. } | ColumnType::Timestamp { .. } => 8,
            ColumnType::Decimal { .. } => 16,
            ColumnType::FixedBinary(bytes) => usize::try_from(*bytes).unwrap_or_default(),
            ColumnType::String
            | ColumnType::Binary
            | ColumnType::List(_)
            | ColumnType::Struct(_)
            | ColumnType::Map { .. } => return None,
        })
    }

    /// Whether the type is valid; the fields are public and may have any values.
    pub(crate) fn is_valid(&self) -> bool {
        match self {
            ColumnType::Int { bits, .. } => matches!(bits, 8 | 16 | 32 | 64),
            ColumnType::Float { bits } => matches!(bits, 32 | 64),
            ColumnType::Decimal { precision, scale } => {
                (1..=DECIMAL128_MAX_PRECISION).contains(precision)
                    && *scale <= DECIMAL128_MAX_PRECISION as i8
                    && *scale >= -(DECIMAL128_MAX_PRECISION as i8)
            }
            ColumnType::FixedBinary(bytes) => fixed_bytes(*bytes),
            // A type that Arrow has no name for, or another name, is none of a column.
            nested if nested.is_nested() => {
                ColumnType::of(&nested.arrow()).is_ok_and(|found| found == *nested)
            }
            _ => true,
        }
    }

    /// Whether a column of type `other` is accepted for this type. The time zone is ignored,
    /// because it only affects the display.
    pub(crate) fn takes(&self, other: &ColumnType) -> bool {
        match (self, other) {
            (
                ColumnType::Timestamp { unit, zone: Some(_) },
                ColumnType::Timestamp { unit: given, zone: Some(_) },
            ) => unit == given,
            _ => self == other,
        }
    }

    /// Whether every value of this type is one of `wider`, so that a column may become it.
    #[must_use]
    pub fn widens_to(&self, wider: &ColumnType) -> bool {
        match (self, wider) {
            (
                ColumnType::Int { bits, signed },
                ColumnType::Int { bits: more, signed: also_below },
            ) => bits < more && (signed == also_below || *also_below),
            (ColumnType::Float { bits: 32 }, ColumnType::Float { bits: 64 })
            | (ColumnType::String, ColumnType::Binary) => true,
            (
                ColumnType::Decimal { precision, scale },
                ColumnType::Decimal { precision: more, scale: same },
            ) => precision < more && scale == same,
            _ => false,
        }
    }
}

fn fixed_bytes(bytes: i32) -> bool {
    usize::try_from(bytes).is_ok_and(|bytes| (1..=MAX_FIXED_BYTES).contains(&bytes))
}

/// The type as in the text of a schema.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnType::Boolean => f.write_str("boolean"),
            ColumnType::Int { bits, signed: true } => write!(f, "int{bits}"),
            ColumnType::Int { bits, .. } => write!(f, "uint{bits}"),
            ColumnType::Float { bits } => write!(f, "float{bits}"),
            ColumnType::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            ColumnType::Date => f.write_str("date"),
            ColumnType::Timestamp { unit, zone } => {
                let unit = match unit {
                    TimeUnit::Second => "s",
                    TimeUnit::Millisecond => "ms",
                    TimeUnit::Microsecond => "us",
                    TimeUnit::Nanosecond => "ns",
                };
                match zone {
                    None => write!(f, "timestamp({unit})"),
                    Some(zone) => {
                        write!(f, "timestamp({unit},\"{}\")", zone.replace('"', "\"\""))
                    }
                }
            }
            ColumnType::String => f.write_str("string"),
            ColumnType::Binary => f.write_str("binary"),
            ColumnType::FixedBinary(bytes) => write!(f, "binary({bytes})"),
            ColumnType::List(items) => write!(f, "list<{}>", TypeOfPart(items)),
            ColumnType::Struct(fields) => {
                f.write_str("struct<")?;
                for (at, field) in fields.iter().enumerate() {
                    let comma = if at > 0 { ", " } else { "" };
                    write!(f, "{comma}{} {}", QuotedName(&field.name), TypeOfPart(field))?;
                }
                f.write_str(">")
            }
            ColumnType::Map { key, value } => write!(f, "map<{key}, {}>", TypeOfPart(value)),
        }
    }
}

/// A name, quoted as in the text of a schema.
pub(crate) struct QuotedName<'a>(pub(crate) &'a str);

impl fmt::Display for QuotedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |(at, each): (usize, char)| {
            each.is_ascii_lowercase() || each == '_' || (at > 0 && each.is_ascii_digit())
        };
        if !self.0.is_empty() && self.0.char_indices().all(plain) {
            f.write_str(self.0)
        } else {
            write!(f, "\"{}\"", self.0.replace('"', "\"\""))
        }
    }
}

/// The type of a part, and whether it may be null.
struct TypeOfPart<'a>(&'a NestedField);

impl fmt::Display for TypeOfPart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not_null = if self.0.nullable { "" } else { " not null" };
        write!(f, "{}{not_null}", self.0.column_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_type_comes_with_the_way_out() {
        let refused = |kind: &DataType| ColumnType::of(kind).unwrap_err().to_string();
        let views = DataType::ListView(Arc::new(Field::new("item", DataType::Int32, true)));
        assert!(refused(&views).contains("as JSON in a column of text"));
        assert!(refused(&DataType::Float16).contains("a half float to float32"));
        let deep = |times| {
            (0..times).fold(DataType::Int8, |inner, _| {
                DataType::List(Arc::new(Field::new("item", inner, true)))
            })
        };
        assert!(ColumnType::of(&deep(MAX_DEPTH)).is_ok());
        assert!(refused(&deep(MAX_DEPTH + 1)).contains("at most 16 deep"));
        let pair = |key: DataType| {
            let fields = [Field::new("k", key, false), Field::new("v", DataType::Int8, true)];
            let entries = Field::new("e", DataType::Struct(fields.into_iter().collect()), false);
            DataType::Map(Arc::new(entries), false)
        };
        assert!(ColumnType::of(&pair(DataType::Utf8)).is_ok());
        assert!(refused(&pair(deep(1))).contains("keys of a map are not nested"));
    }
}
