//! Converts the columns of a caller to the types of a schema: dictionaries are decoded, columns of
//! nulls take any type, and numbers, timestamps, decimals and bytes change their representation if
//! every value stays the same.
//!
//! It must never round, truncate or wrap: a value that the target type cannot hold is an error with
//! the column and the row.

use crate::types::{ColumnType, ITEM, NestedField, VALUE};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal128Type, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, ListArray, MapArray, PrimitiveArray, StringArray,
    StructArray, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use siltstone_base::{Error, Result};
use std::sync::Arc;

/// Milliseconds of a day, the unit of `date64`.
const DAY_MILLIS: i128 = 86_400_000;

/// The values of a dictionary or category column, and nulls of type `null_type` for a column
/// without a type; any other column as it is.
///
/// # Errors
/// Invalid for a dictionary whose indices point past its values.
pub fn unpacked(array: &ArrayRef, null_type: &DataType) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Null => Ok(new_null_array(null_type, array.len())),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let values = arrow_select::take::take(dictionary.values(), dictionary.keys(), None);
            let values = values.map_err(|error| {
                Error::invalid("a dictionary's indices do not fit its values").caused_by(error)
            })?;
            // The values of a dictionary may be a dictionary, or nulls.
            unpacked(&values, null_type)
        }
        _ => Ok(Arc::clone(array)),
    }
}

/// `array` as a column of type `wanted`. A column that has the type already is returned as it is.
///
/// # Errors
/// Invalid for a value that `wanted` cannot hold, with column, row and value. A column of a type
/// that cannot become `wanted` without loss is returned as it is: the encoder refuses it by name.
pub(crate) fn conformed(array: &ArrayRef, wanted: &ColumnType, name: &str) -> Result<ArrayRef> {
    let array = unpacked(array, &wanted.arrow()).map_err(|error| error.with("column", name))?;
    if wanted.is_nested() {
        return nested(&array, wanted, name);
    }
    let target = Target { wanted, name, nulls: array.nulls() };
    let changed = match (array.data_type(), wanted) {
        (given, _) if ColumnType::of(given).is_ok_and(|given| wanted.takes(&given)) => None,
        (DataType::Date64, ColumnType::Date) => {
            let millis = numbers::<Date64Type>(&array);
            Some(target.primitive::<Date32Type>(millis.map(|millis| divided(millis, DAY_MILLIS)))?)
        }
        (DataType::Timestamp(unit, zone), ColumnType::Timestamp { unit: other, zone: shown })
            if zone.is_some() == shown.is_some() =>
        {
            Some(target.timestamps(&array, *unit, *other)?)
        }
        (DataType::Decimal128(_, scale), ColumnType::Decimal { scale: other, .. }) => {
            let shift = i32::from(*other) - i32::from(*scale);
            let values = numbers::<Decimal128Type>(&array).map(|value| shifted(value, shift));
            Some(target.primitive::<Decimal128Type>(values)?)
        }
        (DataType::Float16, ColumnType::Float { bits }) => {
            let values = array.as_primitive::<Float16Type>().values().iter();
            Some(match bits {
                32 => target.floats::<Float32Type>(values.map(|value| value.to_f32())),
                _ => target.floats::<Float64Type>(values.map(|value| value.to_f64())),
            })
        }
        (DataType::Float32, ColumnType::Float { bits: 64 }) => {
            let values = array.as_primitive::<Float32Type>().values().iter();
            Some(target.floats::<Float64Type>(values.map(|value| f64::from(*value))))
        }
        (given, ColumnType::Int { bits, signed }) => match integers(&array, given) {
            Some(values) => Some(target.integers(values, *bits, *signed)?),
            None => None,
        },
        (_, ColumnType::Binary) => bytes(&array),
        _ => None,
    };
    Ok(changed.unwrap_or(array))
}

/// A nested column with exactly the type `wanted`: the parts conform like columns, and fields of
/// structs are matched by name. A column that is not nested is returned as it is.
///
/// # Errors
/// As [`conformed`]; Invalid for a field that is missing or that `wanted` does not have.
fn nested(array: &ArrayRef, wanted: &ColumnType, name: &str) -> Result<ArrayRef> {
    let refused = |error: ArrowError| {
        let text = "a nested column has a null where its schema says not null, or its parts do not \
                    fit each other";
        Error::invalid(text).with("column", name).caused_by(error)
    };
    let (rows, nulls) = (array.len(), array.nulls().cloned());
    match wanted {
        ColumnType::List(items) => {
            let Some((ends, values)) = items_of(array, name)? else { return Ok(Arc::clone(array)) };
            let (ends, values) = match &nulls {
                Some(nulls) if !items.nullable && values.null_count() > 0 => {
                    shown(&ends, &values, nulls).map_err(refused)?
                }
                _ => (ends, values),
            };
            let values = exact(&values, &items.column_type, &format!("{name}.{ITEM}"))?;
            let list = ListArray::try_new(items.arrow(), ends, values, nulls);
            Ok(Arc::new(list.map_err(refused)?))
        }
        ColumnType::Struct(fields) => {
            let Some(given) = array.as_struct_opt() else { return Ok(Arc::clone(array)) };
            let mut names = given.column_names().into_iter();
            let is_known = |name: &str| fields.iter().any(|field| field.name == name);
            if let Some(other) = names.find(|name| !is_known(name)) {
                let error = Error::invalid("the struct of this column has no such field");
                return Err(error.with("column", name).with("field", other));
            }
            let field = |field: &NestedField| match given.column_by_name(&field.name) {
                Some(part) => exact(part, &field.column_type, &format!("{name}.{}", field.name)),
                None if field.nullable => Ok(new_null_array(&field.column_type.arrow(), rows)),
                None => {
                    let error = Error::invalid("a field is missing, and may hold no nulls");
                    Err(error.with("column", name).with("field", &field.name))
                }
            };
            let parts = fields.iter().map(field).collect::<Result<Vec<_>>>()?;
            let fields = fields.iter().map(NestedField::arrow).collect();
            Ok(Arc::new(StructArray::try_new(fields, parts, nulls).map_err(refused)?))
        }
        ColumnType::Map { key, value } => {
            let DataType::Map(..) = array.data_type() else { return Ok(Arc::clone(array)) };
            let given = array.as_map();
            let keys = exact(given.keys(), key, &format!("{name}.key"))?;
            let values = exact(given.values(), &value.column_type, &format!("{name}.{VALUE}"))?;
            let DataType::Map(entries, _) = wanted.arrow() else { return Ok(Arc::clone(array)) };
            let DataType::Struct(pair) = entries.data_type() else { return Ok(Arc::clone(array)) };
            let pairs =
                StructArray::try_new(pair.clone(), vec![keys, values], None).map_err(refused)?;
            let ends = given.offsets().clone();
            let map = MapArray::try_new(entries, ends, pairs, nulls, false).map_err(refused)?;
            Ok(Arc::new(map))
        }
        _ => Ok(Arc::clone(array)),
    }
}

/// A part of a nested column with exactly the type that decoding makes: Arrow's representation of
/// text and bytes, and the zone of instants, do not differ either.
fn exact(array: &ArrayRef, wanted: &ColumnType, name: &str) -> Result<ArrayRef> {
    let array = conformed(array, wanted, name)?;
    let target = wanted.arrow();
    if *array.data_type() == target {
        return Ok(array);
    }
    macro_rules! in_zone {
        ($of:ty) => {
            Some(Arc::new(array.as_primitive::<$of>().clone().with_data_type(target)) as ArrayRef)
        };
    }
    let changed: Option<ArrayRef> = match (array.data_type(), wanted) {
        (DataType::Timestamp(given, Some(_)), ColumnType::Timestamp { unit, zone: Some(_) })
            if given == unit =>
        {
            match unit {
                TimeUnit::Second => in_zone!(TimestampSecondType),
                TimeUnit::Millisecond => in_zone!(TimestampMillisecondType),
                TimeUnit::Microsecond => in_zone!(TimestampMicrosecondType),
                TimeUnit::Nanosecond => in_zone!(TimestampNanosecondType),
            }
        }
        (DataType::LargeUtf8, ColumnType::String) => {
            Some(Arc::new(StringArray::from_iter(array.as_string::<i64>())))
        }
        (DataType::Utf8View, ColumnType::String) => {
            Some(Arc::new(StringArray::from_iter(array.as_string_view())))
        }
        (DataType::LargeBinary, ColumnType::Binary) => {
            Some(Arc::new(BinaryArray::from_iter(array.as_binary::<i64>())))
        }
        (DataType::BinaryView, ColumnType::Binary) => {
            Some(Arc::new(BinaryArray::from_iter(array.as_binary_view())))
        }
        _ => None,
    };
    changed.ok_or_else(|| {
        let error =
            Error::invalid("a part of a nested column has another type than the schema says");
        let error = error.with("column", name).with("type", array.data_type());
        error.with("schema", wanted)
    })
}

/// The lists without the items that nulls hide: a list of fixed size has nulls there, which a
/// schema without nulls refuses.
fn shown(
    ends: &OffsetBuffer<i32>,
    items: &ArrayRef,
    nulls: &NullBuffer,
) -> std::result::Result<(OffsetBuffer<i32>, ArrayRef), ArrowError> {
    let (mut lengths, mut places) = (Vec::with_capacity(nulls.len()), Vec::new());
    for (row, list) in ends.windows(2).enumerate() {
        let (start, end) = match list {
            [start, end] if nulls.is_valid(row) => (*start, *end),
            _ => (0, 0),
        };
        places.extend(start..end);
        lengths.push(usize::try_from(end - start).unwrap_or_default());
    }
    let items = arrow_select::take::take(items, &Int32Array::from(places), None)?;
    Ok((OffsetBuffer::from_lengths(lengths), items))
}

/// The ends of a column's lists, and their items; `None` for a column of another type.
fn items_of(array: &ArrayRef, name: &str) -> Result<Option<(OffsetBuffer<i32>, ArrayRef)>> {
    let too_many = || {
        let text = "a column of lists has over 2^31 items: write fewer rows at a time";
        Error::invalid(text).with("column", name)
    };
    let small = |end: usize| i32::try_from(end).map_err(|_| too_many());
    Ok(Some(match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            (list.offsets().clone(), Arc::clone(list.values()))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let ends =
                list.offsets().iter().map(|end| small(usize::try_from(*end).unwrap_or(usize::MAX)));
            let ends = ends.collect::<Result<Vec<_>>>()?;
            (OffsetBuffer::new(ends.into()), Arc::clone(list.values()))
        }
        DataType::FixedSizeList(..) => {
            let list = array.as_fixed_size_list();
            let size = usize::try_from(list.value_length()).unwrap_or_default();
            let ends = (0..=list.len()).map(|row| small(row * size));
            let ends = ends.collect::<Result<Vec<_>>>()?;
            (OffsetBuffer::new(ends.into()), Arc::clone(list.values()))
        }
        _ => return Ok(None),
    }))
}

/// The type that a column is converted to, and the nulls that it keeps.
struct Target<'a> {
    wanted: &'a ColumnType,
    name: &'a str,
    nulls: Option<&'a NullBuffer>,
}

impl Target<'_> {
    /// Each value as one of `T`; `None` stands for a value that has no such representation.
    fn primitive<T: ArrowPrimitiveType>(
        &self,
        values: impl Iterator<Item = Option<i128>>,
    ) -> Result<ArrayRef>
    where
        T::Native: TryFrom<i128>,
    {
        let mut made = Vec::with_capacity(values.size_hint().0);
        for (row, value) in values.enumerate() {
            let is_null = self.nulls.is_some_and(|nulls| nulls.is_null(row));
            let fitting = value.and_then(|value| T::Native::try_from(value).ok());
            made.push(match fitting {
                Some(value) => value,
                None if is_null => T::Native::default(),
                None => return Err(self.lost(row)),
            });
        }
        let array = PrimitiveArray::<T>::new(made.into(), self.nulls.cloned());
        Ok(Arc::new(array.with_data_type(self.wanted.arrow())))
    }

    fn lost(&self, row: usize) -> Error {
        let text = "a value of the column does not fit the type that the schema says: cast the \
                    column, and decide what becomes of such values";
        let error = Error::invalid(text).with("column", self.name).with("row", row);
        error.with("schema", self.wanted)
    }

    fn floats<T: ArrowPrimitiveType>(&self, values: impl Iterator<Item = T::Native>) -> ArrayRef {
        let values: Vec<T::Native> = values.collect();
        Arc::new(PrimitiveArray::<T>::new(values.into(), self.nulls.cloned()))
    }

    fn integers(
        &self,
        values: Box<dyn Iterator<Item = i128> + '_>,
        bits: u8,
        signed: bool,
    ) -> Result<ArrayRef> {
        let values = values.map(Some);
        match (bits, signed) {
            (8, true) => self.primitive::<Int8Type>(values),
            (16, true) => self.primitive::<Int16Type>(values),
            (32, true) => self.primitive::<Int32Type>(values),
            (_, true) => self.primitive::<Int64Type>(values),
            (8, false) => self.primitive::<UInt8Type>(values),
            (16, false) => self.primitive::<UInt16Type>(values),
            (32, false) => self.primitive::<UInt32Type>(values),
            (_, false) => self.primitive::<UInt64Type>(values),
        }
    }

    fn timestamps(&self, array: &ArrayRef, from: TimeUnit, to: TimeUnit) -> Result<ArrayRef> {
        let counts: Box<dyn Iterator<Item = i128>> = match from {
            TimeUnit::Second => Box::new(numbers::<TimestampSecondType>(array)),
            TimeUnit::Millisecond => Box::new(numbers::<TimestampMillisecondType>(array)),
            TimeUnit::Microsecond => Box::new(numbers::<TimestampMicrosecondType>(array)),
            TimeUnit::Nanosecond => Box::new(numbers::<TimestampNanosecondType>(array)),
        };
        let (from, to) = (nanos(from), nanos(to));
        // 64 bits of the coarsest unit in nanoseconds are below 2^94.
        let values = counts.map(move |count| divided(count * from, to));
        match to {
            1 => self.primitive::<TimestampNanosecondType>(values),
            1_000 => self.primitive::<TimestampMicrosecondType>(values),
            1_000_000 => self.primitive::<TimestampMillisecondType>(values),
            _ => self.primitive::<TimestampSecondType>(values),
        }
    }
}

fn nanos(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// The quotient, where nothing remains.
fn divided(value: i128, divisor: i128) -> Option<i128> {
    (value % divisor == 0).then_some(value / divisor)
}

/// The unscaled value of a decimal with `shift` digits more behind its point.
fn shifted(value: i128, shift: i32) -> Option<i128> {
    let factor = 10i128.checked_pow(shift.unsigned_abs());
    match factor {
        // Only zero keeps its value by a factor beyond 128 bits.
        None => (value == 0).then_some(0),
        Some(factor) if shift >= 0 => value.checked_mul(factor),
        Some(factor) => divided(value, factor),
    }
}

/// The values of a primitive array, those under a null too.
fn numbers<T: ArrowPrimitiveType>(array: &ArrayRef) -> impl Iterator<Item = i128> + '_
where
    T::Native: Into<i128>,
{
    array.as_primitive::<T>().values().iter().map(|value| (*value).into())
}

/// The values of a column of integers; `None` for any other column.
fn integers<'a>(
    array: &'a ArrayRef,
    given: &DataType,
) -> Option<Box<dyn Iterator<Item = i128> + 'a>> {
    Some(match given {
        DataType::Int8 => Box::new(numbers::<Int8Type>(array)),
        DataType::Int16 => Box::new(numbers::<Int16Type>(array)),
        DataType::Int32 => Box::new(numbers::<Int32Type>(array)),
        DataType::Int64 => Box::new(numbers::<Int64Type>(array)),
        DataType::UInt8 => Box::new(numbers::<UInt8Type>(array)),
        DataType::UInt16 => Box::new(numbers::<UInt16Type>(array)),
        DataType::UInt32 => Box::new(numbers::<UInt32Type>(array)),
        DataType::UInt64 => Box::new(numbers::<UInt64Type>(array)),
        _ => return None,
    })
}

/// The bytes of text and of binary of one length; `None` for any other column.
fn bytes(array: &ArrayRef) -> Option<ArrayRef> {
    Some(match array.data_type() {
        DataType::Utf8 => Arc::new(BinaryArray::from(array.as_string::<i32>().clone())),
        DataType::LargeUtf8 => {
            Arc::new(arrow_array::LargeBinaryArray::from(array.as_string::<i64>().clone()))
        }
        DataType::Utf8View => Arc::new(array.as_string_view().clone().to_binary_view()),
        DataType::FixedSizeBinary(_) => {
            Arc::new(BinaryArray::from_iter(array.as_fixed_size_binary().iter()))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{
        DictionaryArray, Float32Array, Int32Array, Int64Array, NullArray, StringArray,
        TimestampMicrosecondArray, TimestampMillisecondArray, UInt64Array,
    };

    const LONG: ColumnType = ColumnType::Int { bits: 64, signed: true };
    const SMALL: ColumnType = ColumnType::Int { bits: 8, signed: true };

    fn timestamp(unit: TimeUnit) -> ColumnType {
        ColumnType::Timestamp { unit, zone: None }
    }

    fn conform(array: impl Array + 'static, wanted: &ColumnType) -> Result<ArrayRef> {
        conformed(&(Arc::new(array) as ArrayRef), wanted, "c")
    }

    #[test]
    fn nulls_without_a_type_take_any() {
        let made = conform(NullArray::new(3), &ColumnType::String).unwrap();
        assert_eq!((made.data_type(), made.null_count()), (&DataType::Utf8, 3));
    }

    #[test]
    fn a_dictionary_becomes_its_values() {
        let dictionary: DictionaryArray<Int8Type> =
            [Some("b"), None, Some("a"), Some("b")].into_iter().collect();
        let made = conform(dictionary, &ColumnType::String).unwrap();
        let found: Vec<_> = made.as_string::<i32>().iter().collect();
        assert_eq!(found, [Some("b"), None, Some("a"), Some("b")]);
    }

    #[test]
    fn integers_change_their_width_where_every_value_fits() {
        let made = conform(Int32Array::from(vec![Some(-7), None]), &LONG).unwrap();
        assert_eq!(made.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(-7), None]));
        let made = conform(Int64Array::from(vec![127, -128]), &SMALL).unwrap();
        assert_eq!(made.as_primitive::<Int8Type>().values(), &[127, -128]);
        let error = conform(Int64Array::from(vec![1, 128]), &SMALL).unwrap_err();
        assert!(error.to_string().contains("row: 1"), "{error}");
        let unsigned = UInt64Array::from(vec![u64::MAX]);
        assert!(conform(unsigned, &LONG).is_err());
    }

    #[test]
    fn a_value_under_a_null_is_not_looked_at() {
        let nulls = NullBuffer::from(vec![true, false]);
        let array = Int64Array::new(vec![1, 1_000].into(), Some(nulls));
        let made = conform(array, &SMALL).unwrap();
        assert_eq!(made.as_primitive::<Int8Type>().iter().collect::<Vec<_>>(), [Some(1), None]);
    }

    #[test]
    fn moments_change_their_unit_where_nothing_is_cut_off() {
        let wanted = timestamp(TimeUnit::Microsecond);
        let made = conform(TimestampMillisecondArray::from(vec![7]), &wanted).unwrap();
        assert_eq!(made.as_primitive::<TimestampMicrosecondType>().values(), &[7_000]);
        let wanted = timestamp(TimeUnit::Millisecond);
        let made = conform(TimestampMicrosecondArray::from(vec![-7_000]), &wanted).unwrap();
        assert_eq!(made.as_primitive::<TimestampMillisecondType>().values(), &[-7]);
        assert!(conform(TimestampMicrosecondArray::from(vec![7_001]), &wanted).is_err());
        let far = TimestampMillisecondArray::from(vec![i64::MAX]);
        assert!(conform(far, &timestamp(TimeUnit::Nanosecond)).is_err());
    }

    #[test]
    fn times_of_a_clock_are_no_instants() {
        let wanted =
            ColumnType::Timestamp { unit: TimeUnit::Microsecond, zone: Some("UTC".into()) };
        let made = conform(TimestampMillisecondArray::from(vec![7]), &wanted).unwrap();
        assert_eq!(made.data_type(), &DataType::Timestamp(TimeUnit::Millisecond, None));
    }

    #[test]
    fn decimals_change_their_scale_where_no_digit_is_lost() {
        let decimal = |scale| ColumnType::Decimal { precision: 10, scale };
        let array = PrimitiveArray::<Decimal128Type>::from(vec![150])
            .with_data_type(DataType::Decimal128(5, 2));
        let made = conform(array.clone(), &decimal(1)).unwrap();
        assert_eq!(made.as_primitive::<Decimal128Type>().values(), &[15]);
        let made = conform(array.clone(), &decimal(4)).unwrap();
        assert_eq!(made.as_primitive::<Decimal128Type>().values(), &[15_000]);
        assert!(conform(array, &decimal(0)).is_err());
    }

    #[test]
    fn text_becomes_bytes_and_floats_widen_alone() {
        let made = conform(StringArray::from(vec!["ä"]), &ColumnType::Binary).unwrap();
        assert_eq!(made.as_binary::<i32>().value(0), "ä".as_bytes());
        let made = conform(Float32Array::from(vec![0.5]), &ColumnType::Float { bits: 64 }).unwrap();
        assert_eq!(made.as_primitive::<Float64Type>().values(), &[0.5]);
        let kept =
            conform(arrow_array::Float64Array::from(vec![0.5]), &ColumnType::Float { bits: 32 });
        assert_eq!(kept.unwrap().data_type(), &DataType::Float64);
    }
}
