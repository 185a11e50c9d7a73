//! The types of columns, and the corresponding Arrow types.

use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType, TimeUnit};
use siltstone_base::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// Longest `binary(n)`: that of a key.
pub(crate) const MAX_FIXED_BYTES: usize = siltstone_base::limits::MAX_KEY_BYTES;

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
        /// Those behind the point.
        scale: i8,
    },
    /// Days since 1970.
    Date,
    /// A count since 1970.
    Timestamp {
        /// Of what.
        unit: TimeUnit,
        /// Of instants: the zone that they are shown in. `None`: times of a clock.
        zone: Option<Arc<str>>,
    },
    /// Text in UTF-8.
    String,
    /// Bytes.
    Binary,
    /// So many bytes.
    FixedBinary(i32),
}

impl ColumnType {
    /// The type of what Arrow calls this.
    ///
    /// # Errors
    /// Unsupported for all others, with the way out.
    pub fn of(arrow: &DataType) -> Result<ColumnType> {
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
            other => {
                let text = if other.is_nested() {
                    "tables have no nested columns: store the value as JSON in a column of text, \
                     or each field in a column of its own"
                } else {
                    "no column of a table has this type: cast it, for example a dictionary to its \
                     values, a half float to float32, a time to an int"
                };
                return Err(Error::unsupported(text).with("type", other));
            }
        })
    }

    /// What Arrow calls the columns that decoding makes.
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
        }
    }

    /// Bytes of a value that has always as many, in a key and in a value; `None` for strings.
    pub(crate) fn width(&self) -> Option<usize> {
        Some(match self {
            ColumnType::Boolean => 1,
            ColumnType::Int { bits, .. } | ColumnType::Float { bits } => usize::from(bits / 8),
            ColumnType::Decimal { precision: 0..=9, .. } | ColumnType::Date => 4,
            ColumnType::Decimal { precision: 10..=18, .. } | ColumnType::Timestamp { .. } => 8,
            ColumnType::Decimal { .. } => 16,
            ColumnType::FixedBinary(bytes) => usize::try_from(*bytes).unwrap_or_default(),
            ColumnType::String | ColumnType::Binary => return None,
        })
    }

    /// Whether it is one that there can be: the fields are open.
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
            _ => true,
        }
    }

    /// Whether a column of type `other` may be put where this one is asked for: the zone says how
    /// an instant is shown, and no more.
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

/// As in the text of a schema.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::Field;
    use std::sync::Arc;

    #[test]
    fn a_refused_type_comes_with_the_way_out() {
        let numbers = Arc::new(Field::new("item", DataType::Int32, true));
        let refused = |kind: &DataType| ColumnType::of(kind).unwrap_err().to_string();
        let nested = refused(&DataType::List(numbers));
        assert!(nested.contains("as JSON in a column of text"), "{nested}");
        let half = refused(&DataType::Float16);
        assert!(half.contains("a half float to float32"), "{half}");
    }
}
