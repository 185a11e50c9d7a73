//! Columns of every type, made of numbers: each number is a value at an edge, or anything.

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampNanosecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, ListArray, MapArray, PrimitiveArray, StringArray,
    StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, TimeUnit};
use proptest::prelude::*;
use siltstone_schema::{ColumnType, NestedField};
use std::sync::Arc;

/// A value, by number; `None` is null.
pub(crate) type Cell = Option<u64>;

pub(crate) fn types() -> Vec<ColumnType> {
    let int = |bits, signed| ColumnType::Int { bits, signed };
    let decimal = |precision, scale| ColumnType::Decimal { precision, scale };
    let zone = |zone: &str| Some(zone.into());
    vec![
        ColumnType::Boolean,
        int(8, true),
        int(16, true),
        int(32, true),
        int(64, true),
        int(8, false),
        int(16, false),
        int(32, false),
        int(64, false),
        ColumnType::Float { bits: 32 },
        ColumnType::Float { bits: 64 },
        decimal(9, 2),
        decimal(18, 18),
        decimal(38, -3),
        ColumnType::Date,
        ColumnType::Timestamp { unit: TimeUnit::Microsecond, zone: zone("UTC") },
        ColumnType::Timestamp { unit: TimeUnit::Nanosecond, zone: None },
        ColumnType::String,
        ColumnType::Binary,
        ColumnType::FixedBinary(3),
    ]
}

/// Nested types of those, and of each other.
#[allow(dead_code, reason = "keys have no nested columns")]
pub(crate) fn nested_types() -> Vec<ColumnType> {
    let part = |name: &str, column_type, nullable| NestedField {
        name: name.to_owned(),
        column_type,
        nullable,
    };
    let list =
        |column_type, nullable| ColumnType::List(Box::new(part("item", column_type, nullable)));
    let every = types().into_iter().enumerate();
    let every = every.map(|(at, one)| part(&format!("field {at}"), one, at % 3 > 0)).collect();
    let pair = ColumnType::Struct(vec![
        part("a", list(ColumnType::String, true), true),
        part("b", ColumnType::Date, false),
    ]);
    let map = |key, value| {
        let value = Box::new(part("value", value, true));
        ColumnType::Map { key: Box::new(key), value }
    };
    let lists = types().into_iter().enumerate().map(|(at, one)| list(one, at % 2 > 0));
    let mut all: Vec<_> = lists.collect();
    all.extend([
        ColumnType::Struct(every),
        list(pair.clone(), true),
        list(list(ColumnType::Boolean, false), true),
        map(ColumnType::String, pair.clone()),
        map(ColumnType::Int { bits: 64, signed: true }, list(ColumnType::Binary, true)),
        pair,
    ]);
    all
}

/// The cell of a part: another number, and sometimes null.
fn part_of(number: u64, place: usize, nullable: bool) -> Cell {
    let mixed = (number ^ place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match mixed >> 61 {
        0 if nullable => None,
        1 | 2 => Some(mixed >> 7),
        _ => Some((mixed >> 40) % 12),
    }
}

/// The ends of lists whose lengths are in their numbers, and the cells of their items.
fn lists(cells: &[Cell], nullable: bool) -> (OffsetBuffer<i32>, Vec<Cell>) {
    let lengths = cells.iter().map(|cell| cell.map_or(0, |number| number % 11) as usize);
    let ends = OffsetBuffer::from_lengths(lengths.clone());
    let items = cells.iter().zip(lengths).flat_map(|(cell, length)| {
        (0..length).map(move |at| part_of(cell.unwrap_or_default(), at, nullable))
    });
    (ends, items.collect())
}

fn nested_column(column_type: &ColumnType, cells: &[Cell]) -> ArrayRef {
    let nulls = NullBuffer::from_iter(cells.iter().map(Option::is_some));
    let nulls = (nulls.null_count() > 0).then_some(nulls);
    match column_type {
        ColumnType::List(items) => {
            let (ends, parts) = lists(cells, items.nullable);
            let values = column(&items.column_type, &parts);
            let DataType::List(field) = column_type.arrow() else { unreachable!() };
            Arc::new(ListArray::new(field, ends, values, nulls))
        }
        ColumnType::Map { key, value } => {
            let (ends, parts) = lists(cells, false);
            let values = parts.iter().map(|cell| part_of(cell.unwrap(), 1, true));
            let values = column(&value.column_type, &values.collect::<Vec<_>>());
            let DataType::Map(entries, _) = column_type.arrow() else { unreachable!() };
            let DataType::Struct(pair) = entries.data_type() else { unreachable!() };
            let pairs = StructArray::new(pair.clone(), vec![column(key, &parts), values], None);
            Arc::new(MapArray::new(entries, ends, pairs, nulls, false))
        }
        ColumnType::Struct(fields) => {
            let parts = fields.iter().enumerate().map(|(at, field)| {
                let part =
                    |cell: &Cell| cell.and_then(|number| part_of(number, at, field.nullable));
                column(&field.column_type, &cells.iter().map(part).collect::<Vec<_>>())
            });
            let DataType::Struct(names) = column_type.arrow() else { unreachable!() };
            Arc::new(StructArray::new(names, parts.collect(), nulls))
        }
        _ => unreachable!(),
    }
}

pub(crate) fn cell() -> impl Strategy<Value = Cell> {
    let number = prop_oneof![3 => 0u64..12, 1 => any::<u64>()];
    prop_oneof![1 => Just(None), 6 => number.prop_map(Some)]
}

/// One of few numbers at the edges, or the number itself.
fn edge(number: u64, bits: u32) -> i128 {
    let (half, one) = (1i128 << (bits - 1), 1);
    match number {
        0..=8 => [-half, -half + 1, -256, -1, 0, one, 255, 256, half - 1][number as usize],
        other => i128::from(other as i64),
    }
}

fn float(number: u64) -> f64 {
    let edges =
        [f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1.5, -1.5, 5e-324];
    edges.get(number as usize).copied().unwrap_or_else(|| f64::from_bits(number))
}

fn bytes(number: u64) -> Vec<u8> {
    let alphabet = [0u8, 1, 0xff, b'a'];
    let length = number % 4;
    (0..length).map(|at| alphabet[(number >> (2 + 2 * at)) as usize % 4]).collect()
}

fn text(number: u64) -> String {
    let alphabet = ['\0', '\u{1}', 'a', '\u{10ffff}'];
    let length = number % 4;
    (0..length).map(|at| alphabet[(number >> (2 + 2 * at)) as usize % 4]).collect()
}

/// The column that `cells` are in this type.
pub(crate) fn column(column_type: &ColumnType, cells: &[Cell]) -> ArrayRef {
    macro_rules! ints {
        ($kind:ty, $native:ty, $bits:expr) => {
            Arc::new(
                cells
                    .iter()
                    .map(|cell| cell.map(|number| edge(number, $bits) as $native))
                    .collect::<PrimitiveArray<$kind>>()
                    .with_data_type(column_type.arrow()),
            )
        };
    }
    match column_type.arrow() {
        nested if nested.is_nested() => nested_column(column_type, cells),
        DataType::Boolean => Arc::new(
            cells.iter().map(|cell| cell.map(|each| each % 2 == 1)).collect::<BooleanArray>(),
        ),
        DataType::Int8 => ints!(Int8Type, i8, 8),
        DataType::Int16 => ints!(Int16Type, i16, 16),
        DataType::Int32 => ints!(Int32Type, i32, 32),
        DataType::Int64 => ints!(Int64Type, i64, 64),
        DataType::UInt8 => ints!(UInt8Type, u8, 8),
        DataType::UInt16 => ints!(UInt16Type, u16, 16),
        DataType::UInt32 => ints!(UInt32Type, u32, 32),
        DataType::UInt64 => ints!(UInt64Type, u64, 64),
        DataType::Date32 => ints!(Date32Type, i32, 32),
        DataType::Timestamp(TimeUnit::Microsecond, _) => ints!(TimestampMicrosecondType, i64, 64),
        DataType::Timestamp(..) => ints!(TimestampNanosecondType, i64, 64),
        DataType::Decimal128(precision, _) => {
            let bound = 10i128.pow(u32::from(precision));
            let value = |number: u64| match number {
                0 => 1 - bound,
                1 => bound - 1,
                other => edge(other, 64) % bound,
            };
            let array: PrimitiveArray<Decimal128Type> =
                cells.iter().map(|cell| cell.map(value)).collect();
            Arc::new(array.with_data_type(column_type.arrow()))
        }
        DataType::Float32 => Arc::new(
            cells
                .iter()
                .map(|cell| cell.map(|each| float(each) as f32))
                .collect::<PrimitiveArray<Float32Type>>(),
        ),
        DataType::Float64 => Arc::new(
            cells.iter().map(|cell| cell.map(float)).collect::<PrimitiveArray<Float64Type>>(),
        ),
        DataType::Utf8 => {
            Arc::new(cells.iter().map(|cell| cell.map(text)).collect::<StringArray>())
        }
        DataType::Binary => {
            Arc::new(cells.iter().map(|cell| cell.map(bytes)).collect::<BinaryArray>())
        }
        _ => {
            let mut builder = FixedSizeBinaryBuilder::new(3);
            for cell in cells {
                match cell {
                    None => builder.append_null(),
                    Some(number) => {
                        let mut value = bytes(*number);
                        value.resize(3, 7);
                        builder.append_value(value).unwrap();
                    }
                }
            }
            Arc::new(builder.finish())
        }
    }
}
