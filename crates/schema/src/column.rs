//! Reading the values of an Arrow column in place, and building columns from values.

use crate::types::ColumnType;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray,
    PrimitiveArray, StringArray, StringViewArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use siltstone_base::{Error, Result};
use std::sync::Arc;

/// The code of the bytes that an end takes, when all strings of a row have so many.
pub(crate) fn end_code(strings: usize) -> u8 {
    match strings {
        0..=0xff => 0,
        0x100..=0xffff => 1,
        _ => 2,
    }
}

/// The bytes that an end takes.
pub(crate) fn end_bytes(code: u8) -> usize {
    1 << code
}

/// Values without their nulls.
pub(crate) enum PresentValues<'a> {
    Boolean(&'a BooleanBuffer),
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    I128(&'a [i128]),
    /// So many bytes each, one behind the other.
    Fixed(usize, &'a [u8]),
    Bytes(Strings<'a>),
}

/// Values of any length.
pub(crate) enum Strings<'a> {
    Small(&'a [i32], &'a [u8]),
    Large(&'a [i64], &'a [u8]),
    Texts(&'a StringViewArray),
    Views(&'a BinaryViewArray),
}

/// The strings between these ends.
pub(crate) fn between<'a, O: Copy + TryInto<usize>>(
    ends: &'a [O],
    bytes: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> {
    let place = |end: O| end.try_into().unwrap_or(usize::MAX);
    ends.windows(2).map(move |pair| match pair {
        [start, end] => bytes.get(place(*start)..place(*end)).unwrap_or_default(),
        _ => &[],
    })
}

/// Evaluates an expression in which `$values` iterates over the strings, those under a null too.
macro_rules! with_strings {
    ($strings:expr, $values:ident => $done:expr) => {
        match $strings {
            $crate::column::Strings::Small(ends, bytes) => {
                let $values = $crate::column::between(ends, bytes);
                $done
            }
            $crate::column::Strings::Large(ends, bytes) => {
                let $values = $crate::column::between(ends, bytes);
                $done
            }
            $crate::column::Strings::Texts(array) => {
                let $values = array.iter().map(|text| text.unwrap_or_default().as_bytes());
                $done
            }
            $crate::column::Strings::Views(array) => {
                let $values = array.iter().map(Option::unwrap_or_default);
                $done
            }
        }
    };
}
pub(crate) use with_strings;

/// The values and nulls of a column that is encoded.
pub(crate) struct EncodedCells<'a> {
    pub(crate) values: PresentValues<'a>,
    pub(crate) nulls: Option<&'a NullBuffer>,
    /// Length of a value in bytes, if all values have the same length.
    pub(crate) width: Option<usize>,
    /// The smallest number that is too large for the decimal type.
    bound: Option<i128>,
}

/// The column of a schema that an array is encoded for.
pub(crate) struct Place<'a> {
    pub(crate) name: &'a str,
    pub(crate) column_type: &'a ColumnType,
    pub(crate) nullable: bool,
    pub(crate) rows: usize,
}

impl<'a> EncodedCells<'a> {
    /// The values of `array`, which is to be put at `place`.
    ///
    /// # Errors
    /// Invalid for another type or length, for nulls where there may be none, and for decimals
    /// with more digits than their type has. Unsupported for types that no column has.
    pub(crate) fn of(array: &'a ArrayRef, place: &Place<'_>) -> Result<EncodedCells<'a>> {
        let invalid = |text: &str| Err(Error::invalid(text).with("column", place.name));
        let given = ColumnType::of(array.data_type());
        let given = given.map_err(|error| error.with("column", place.name))?;
        if !place.column_type.takes(&given) {
            let wrong = invalid("the column has another type than the schema says: cast it");
            return wrong
                .map_err(|error| error.with("type", given).with("schema", place.column_type));
        }
        if array.len() != place.rows {
            return invalid("the columns differ in length");
        }
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        if let Some(nulls) = nulls.filter(|_| !place.nullable) {
            let row = nulls.iter().position(|valid| !valid).unwrap_or_default();
            let wrong =
                invalid("the column is null or missing in a row, and its schema says not null");
            return wrong.map_err(|error| error.with("row", row));
        }
        let bound = match place.column_type {
            ColumnType::Decimal { precision, .. } => Some(10i128.pow(u32::from(*precision))),
            _ => None,
        };
        let width = place.column_type.width();
        let given = EncodedCells { values: lying(array), nulls, width, bound };
        given.check_bound().map_err(|error| error.with("column", place.name))?;
        if *place.column_type == ColumnType::String {
            given.check_text().map_err(|error| error.with("column", place.name))?;
        }
        Ok(given)
    }

    /// Arrow lets a decimal have more digits than its type says.
    fn check_bound(&self) -> Result<()> {
        let (PresentValues::I128(values), Some(bound)) = (&self.values, self.bound) else {
            return Ok(());
        };
        let beyond = |(row, value): (usize, &i128)| {
            (value.unsigned_abs() >= bound.unsigned_abs()) && self.is_valid(row)
        };
        match values.iter().enumerate().position(beyond) {
            None => Ok(()),
            Some(row) => {
                let text = "a decimal has more digits than its type: widen it";
                Err(Error::invalid(text).with("row", row))
            }
        }
    }

    /// A column of type text may hold other bytes, after a cast without checks. Such rows could be
    /// stored and never read.
    fn check_text(&self) -> Result<()> {
        let PresentValues::Bytes(strings) = &self.values else { return Ok(()) };
        let is_sound = match strings {
            Strings::Small(ends, bytes) => are_texts(ends, bytes),
            Strings::Large(ends, bytes) => are_texts(ends, bytes),
            Strings::Texts(_) | Strings::Views(_) => false,
        };
        let texts = match strings {
            // Its strings are taken to be text where they are read as such.
            Strings::Texts(array) => Some((*array).clone().to_binary_view()),
            _ => None,
        };
        let strings = texts.as_ref().map_or_else(|| strings.same(), Strings::Views);
        let is_text = |(row, value): (usize, &[u8])| {
            std::str::from_utf8(value).is_ok() || !self.is_valid(row)
        };
        let wrong = match is_sound {
            true => None,
            false => with_strings!(strings, values => {
                values.enumerate().find(|each| !is_text(*each)).map(|(row, _)| row)
            }),
        };
        let text = "the column says that it is text, and a value of it is no UTF-8";
        wrong.map_or(Ok(()), |row| Err(Error::invalid(text).with("row", row)))
    }

    fn is_valid(&self, row: usize) -> bool {
        self.nulls.is_none_or(|nulls| nulls.is_valid(row))
    }
}

impl<'a> Strings<'a> {
    fn same(&self) -> Strings<'a> {
        match self {
            Strings::Small(ends, bytes) => Strings::Small(ends, bytes),
            Strings::Large(ends, bytes) => Strings::Large(ends, bytes),
            Strings::Texts(array) => Strings::Texts(array),
            Strings::Views(array) => Strings::Views(array),
        }
    }
}

/// Whether all strings between these ends are UTF-8, those under a null too: one look at the bytes,
/// and one at the ends where not all of it is ASCII.
fn are_texts<O: Copy + TryInto<usize>>(ends: &[O], bytes: &[u8]) -> bool {
    let place = |end: &O| (*end).try_into().unwrap_or(usize::MAX);
    let (Some(first), Some(last)) = (ends.first().map(place), ends.last().map(place)) else {
        return true;
    };
    let Some(all) = bytes.get(first..last) else { return false };
    let Ok(text) = std::str::from_utf8(all) else { return false };
    all.is_ascii() || ends.iter().all(|end| text.is_char_boundary(place(end).wrapping_sub(first)))
}

/// The values of an array whose type was checked.
fn lying(array: &ArrayRef) -> PresentValues<'_> {
    fn primitive<T: ArrowPrimitiveType>(array: &ArrayRef) -> &[T::Native] {
        array.as_primitive::<T>().values()
    }
    match array.data_type() {
        DataType::Boolean => PresentValues::Boolean(array.as_boolean().values()),
        DataType::Int8 => PresentValues::I8(primitive::<Int8Type>(array)),
        DataType::Int16 => PresentValues::I16(primitive::<Int16Type>(array)),
        DataType::Int32 => PresentValues::I32(primitive::<Int32Type>(array)),
        DataType::Date32 => PresentValues::I32(primitive::<Date32Type>(array)),
        DataType::Int64 => PresentValues::I64(primitive::<Int64Type>(array)),
        DataType::Timestamp(unit, _) => PresentValues::I64(match unit {
            TimeUnit::Second => primitive::<TimestampSecondType>(array),
            TimeUnit::Millisecond => primitive::<TimestampMillisecondType>(array),
            TimeUnit::Microsecond => primitive::<TimestampMicrosecondType>(array),
            TimeUnit::Nanosecond => primitive::<TimestampNanosecondType>(array),
        }),
        DataType::UInt8 => PresentValues::U8(primitive::<UInt8Type>(array)),
        DataType::UInt16 => PresentValues::U16(primitive::<UInt16Type>(array)),
        DataType::UInt32 => PresentValues::U32(primitive::<UInt32Type>(array)),
        DataType::UInt64 => PresentValues::U64(primitive::<UInt64Type>(array)),
        DataType::Float32 => PresentValues::F32(primitive::<Float32Type>(array)),
        DataType::Float64 => PresentValues::F64(primitive::<Float64Type>(array)),
        DataType::Decimal128(..) => PresentValues::I128(primitive::<Decimal128Type>(array)),
        DataType::FixedSizeBinary(bytes) => {
            let array = array.as_fixed_size_binary();
            PresentValues::Fixed(usize::try_from(*bytes).unwrap_or_default(), array.value_data())
        }
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            PresentValues::Bytes(Strings::Small(array.value_offsets(), array.value_data()))
        }
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            PresentValues::Bytes(Strings::Small(array.value_offsets(), array.value_data()))
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>();
            PresentValues::Bytes(Strings::Large(array.value_offsets(), array.value_data()))
        }
        DataType::LargeBinary => {
            let array = array.as_binary::<i64>();
            PresentValues::Bytes(Strings::Large(array.value_offsets(), array.value_data()))
        }
        DataType::Utf8View => PresentValues::Bytes(Strings::Texts(array.as_string_view())),
        _ => PresentValues::Bytes(Strings::Views(array.as_binary_view())),
    }
}

/// An array that Arrow refuses to make of what was read: Corruption, since lengths are right by
/// construction and what remains is text that is no UTF-8.
fn made<A: Array + 'static>(array: Result<A, ArrowError>) -> Result<ArrayRef> {
    let text = "the bytes are no values of the column's type";
    array
        .map(|array| Arc::new(array) as ArrayRef)
        .map_err(|error| Error::corruption(text).caused_by(error))
}

/// A column of numbers.
pub(crate) fn numbers<T: ArrowPrimitiveType>(
    values: Vec<T::Native>,
    nulls: Option<NullBuffer>,
    column_type: &ColumnType,
) -> Result<ArrayRef> {
    let array = PrimitiveArray::<T>::try_new(values.into(), nulls);
    made(array.map(|array| array.with_data_type(column_type.arrow())))
}

/// A column of counts since 1970.
pub(crate) fn timestamps(
    values: Vec<i64>,
    nulls: Option<NullBuffer>,
    unit: TimeUnit,
    column_type: &ColumnType,
) -> Result<ArrayRef> {
    match unit {
        TimeUnit::Second => numbers::<TimestampSecondType>(values, nulls, column_type),
        TimeUnit::Millisecond => numbers::<TimestampMillisecondType>(values, nulls, column_type),
        TimeUnit::Microsecond => numbers::<TimestampMicrosecondType>(values, nulls, column_type),
        TimeUnit::Nanosecond => numbers::<TimestampNanosecondType>(values, nulls, column_type),
    }
}

/// A column of truth values.
pub(crate) fn booleans(values: Vec<bool>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    Ok(Arc::new(BooleanArray::new(values.into(), nulls)))
}

/// A column of strings of one length.
pub(crate) fn fixed(bytes: i32, values: Vec<u8>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    made(FixedSizeBinaryArray::try_new(bytes, Buffer::from_vec(values), nulls))
}

/// Strings on their way into a column.
pub(crate) struct StringBuilder {
    pub(crate) bytes: Vec<u8>,
    ends: Vec<i32>,
}

impl StringBuilder {
    pub(crate) fn new(rows: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        StringBuilder { bytes: Vec::new(), ends }
    }

    /// Ends a row with what was appended to `bytes`.
    ///
    /// # Errors
    /// Invalid past 2 GiB.
    #[inline]
    pub(crate) fn end(&mut self) -> Result<()> {
        let Ok(end) = i32::try_from(self.bytes.len()) else {
            let text = "a column of these rows has over 2 GiB: decode fewer at a time";
            return Err(Error::invalid(text));
        };
        self.ends.push(end);
        Ok(())
    }

    /// The column.
    ///
    /// # Errors
    /// Corruption for text that is no UTF-8.
    pub(crate) fn column(
        self,
        column_type: &ColumnType,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        let bytes = Buffer::from_vec(self.bytes);
        match column_type {
            ColumnType::String => made(StringArray::try_new(ends, bytes, nulls)),
            _ => made(BinaryArray::try_new(ends, bytes, nulls)),
        }
    }
}
