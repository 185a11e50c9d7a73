//! Typed keys: golden bytes, and properties against arrow-ord's order.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect"
)]

mod support;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array, Int32Array, LargeBinaryArray,
    StringArray, StringViewArray, TimestampMicrosecondArray, UInt8Array,
};
use arrow_ord::ord::make_comparator;
use arrow_schema::{DataType, SortOptions};
use proptest::prelude::*;
use siltstone_base::ErrorKind;
use siltstone_schema::{ColumnType, KeyColumn, KeySchema};
use std::cmp::Ordering;
use std::sync::Arc;
use support::{Cell, cell, column, types};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encoded(schema: &KeySchema, columns: &[ArrayRef]) -> Vec<Vec<u8>> {
    schema.encode(columns).unwrap().iter().map(<[u8]>::to_vec).collect()
}

fn one(column: KeyColumn) -> KeySchema {
    KeySchema::new(vec![column]).unwrap()
}

/// The input for arrow-ord, which orders floats by IEEE's total order: one zero, one NaN.
fn by_spark(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            Arc::new(array.unary::<_, Float32Type>(|value| {
                if value.is_nan() {
                    f32::NAN
                } else if value == 0.0 {
                    0.0
                } else {
                    value
                }
            }))
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            Arc::new(array.unary::<_, Float64Type>(|value| {
                if value.is_nan() {
                    f64::NAN
                } else if value == 0.0 {
                    0.0
                } else {
                    value
                }
            }))
        }
        _ => Arc::clone(array),
    }
}

/// The keys of `columns` by the schema that a text says, in hexadecimal; they come back.
fn golden(columns: &str, arrays: &[ArrayRef]) -> Vec<String> {
    let schema = KeySchema::parse(&format!("keys 1 ({columns})")).unwrap();
    let keys = encoded(&schema, arrays);
    let slices: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let all: Vec<_> = (0..arrays.len()).collect();
    let expected: Vec<_> = arrays.iter().map(by_spark).collect();
    assert_eq!(schema.decode(&slices, &all).unwrap(), expected);
    keys.iter().map(|key| hex(key)).collect()
}

/// Frozen.
#[test]
fn golden_bytes() {
    let decimal = |value, precision, scale| -> ArrayRef {
        let array = Decimal128Array::from(vec![value]);
        Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
    };
    let booleans = Arc::new(BooleanArray::from(vec![None, Some(false), Some(true)]));
    assert_eq!(golden("k boolean", &[booleans]), ["00", "0100", "0101"]);
    let int16s = Arc::new(Int16Array::from(vec![-1, 0, 256]));
    assert_eq!(golden("k int16 not null desc", &[int16s]), ["8000", "7fff", "7eff"]);
    let uint8s = Arc::new(UInt8Array::from(vec![None, Some(7)]));
    assert_eq!(golden("k uint8 nulls last", &[uint8s]), ["02", "0107"]);
    let floats = Arc::new(Float32Array::from(vec![-0.0, -f32::NAN, -1.5]));
    assert_eq!(golden("k float32 not null", &[floats]), ["80000000", "ffc00000", "403fffff"]);
    let doubles = Arc::new(Float64Array::from(vec![1.5]));
    assert_eq!(golden("k float64", &[doubles]), ["01bff8000000000000"]);
    assert_eq!(golden("k decimal(9,2) not null", &[decimal(-1, 9, 2)]), ["7fffffff"]);
    assert_eq!(golden("k decimal(18,2) not null", &[decimal(1, 18, 2)]), ["8000000000000001"]);
    let wide = golden("k decimal(38,0) not null", &[decimal(1, 38, 0)]);
    assert_eq!(wide, ["80000000000000000000000000000001"]);
    let dates = Arc::new(Date32Array::from(vec![1]));
    assert_eq!(golden("k date not null", &[dates]), ["80000001"]);
    let instants = Arc::new(TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC"));
    let keys = golden("k timestamp(us,\"UTC\") not null", &[instants]);
    assert_eq!(keys, ["8000000000000001"]);
    let fixed = Arc::new(FixedSizeBinaryArray::try_from_iter([[0, 1]].into_iter()).unwrap());
    assert_eq!(golden("k binary(2) not null desc", &[fixed]), ["fffe"]);
    let texts = |values: &[Option<&str>]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
    let keys =
        golden("a string not null, k string", &[texts(&[Some("a\0b")]), texts(&[Some("c\0")])]);
    assert_eq!(keys, ["6100ff620000016300"]);
    assert_eq!(golden("k string desc", &[texts(&[None, Some("a\0")])]), ["02", "019eff00ffff"]);
}

#[test]
fn one_binary_column_is_its_own_bytes() {
    let schema = one(KeyColumn::new("k", ColumnType::Binary).not_null());
    let rows: [&[u8]; 3] = [b"\0", b"a\0b", b"\xff"];
    let arrays: [ArrayRef; 3] = [
        Arc::new(BinaryArray::from_iter_values(rows)),
        Arc::new(LargeBinaryArray::from_iter_values(rows)),
        Arc::new(BinaryViewArray::from_iter_values(rows)),
    ];
    for array in arrays {
        assert_eq!(encoded(&schema, &[array]), rows);
    }
    let texts = ["a", "a string that is longer than a view"];
    let schema = one(KeyColumn::new("k", ColumnType::String).not_null());
    let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
    assert_eq!(
        encoded(&schema, std::slice::from_ref(&views)),
        texts.map(|text| text.as_bytes().to_vec())
    );
    assert_eq!(encoded(&schema, &[views.slice(1, 1)]), [texts[1].as_bytes().to_vec()]);
}

#[test]
fn columns_that_are_not_the_schemas_are_invalid() {
    let schema = one(KeyColumn::new("k", ColumnType::String).not_null());
    let kind = |column: ArrayRef| schema.encode(&[column]).unwrap_err().kind();
    assert_eq!(kind(Arc::new(Int32Array::from(vec![1]))), ErrorKind::Invalid);
    assert_eq!(kind(Arc::new(StringArray::from(vec![Some("a"), None]))), ErrorKind::Invalid);
    assert_eq!(kind(Arc::new(StringArray::from(vec!["a", ""]))), ErrorKind::Invalid);
    let long = "x".repeat(65_536);
    assert_eq!(kind(Arc::new(StringArray::from(vec![long]))), ErrorKind::Invalid);
    assert_eq!(schema.encode(&[]).unwrap_err().kind(), ErrorKind::Invalid);
}

fn key_column(nullable: bool) -> impl Strategy<Value = KeyColumn> {
    let types = prop::sample::select(types());
    (types, any::<bool>(), any::<bool>()).prop_map(move |(column_type, descending, nulls_last)| {
        let mut column = KeyColumn::new("", column_type);
        column.nullable = nullable;
        column.descending = descending;
        column.nulls_last = if nullable { nulls_last } else { descending };
        column
    })
}

/// A schema and its columns.
fn filled() -> impl Strategy<Value = (KeySchema, Vec<ArrayRef>)> {
    let columns = any::<bool>().prop_flat_map(key_column);
    (prop::collection::vec(columns, 1..4), 1..8usize).prop_flat_map(|(mut columns, rows)| {
        for (position, column) in columns.iter_mut().enumerate() {
            column.name = format!("c{position}");
        }
        let cells = prop::collection::vec(prop::collection::vec(cell(), rows), columns.len());
        cells.prop_map(move |cells| {
            let schema = KeySchema::new(columns.clone()).unwrap();
            let fill = |(key, cells): (&KeyColumn, Vec<Cell>)| {
                let held = |cell: Cell| if key.nullable { cell } else { cell.or(Some(3)) };
                column(&key.column_type, &cells.into_iter().map(held).collect::<Vec<_>>())
            };
            let arrays = columns.iter().zip(cells).map(fill).collect();
            (schema, arrays)
        })
    })
}

fn order(schema: &KeySchema, columns: &[ArrayRef], left: usize, right: usize) -> Ordering {
    let pairs = schema.columns().iter().zip(columns);
    let each = pairs.map(|(key, array)| {
        let array = by_spark(array);
        let options = SortOptions { descending: key.descending, nulls_first: !key.nulls_last };
        make_comparator(&array, &array, options).unwrap()(left, right)
    });
    each.fold(Ordering::Equal, Ordering::then)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn keys_compare_as_rows((schema, columns) in filled()) {
        // An empty string alone is no key, and compares as one all the same.
        let rows = schema.encode_leading(&columns).unwrap();
        let keys: Vec<_> = rows.iter().collect();
        for left in 0..keys.len() {
            for right in 0..left {
                let expected = order(&schema, &columns, left, right);
                prop_assert_eq!(keys[left].cmp(keys[right]), expected, "{}", schema);
            }
        }
    }

    #[test]
    fn rows_come_back((schema, columns) in filled(), wanted in any::<u8>()) {
        let rows = schema.encode_leading(&columns).unwrap();
        let keys: Vec<_> = rows.iter().collect();
        let wanted: Vec<_> = (0..columns.len()).filter(|at| wanted >> at & 1 == 1).collect();
        let expected: Vec<_> = wanted.iter().map(|at| by_spark(&columns[*at])).collect();
        prop_assert_eq!(schema.decode(&keys, &wanted).unwrap(), expected);
    }

    #[test]
    fn leading_columns_are_what_keys_begin_with((schema, columns) in filled(), cut in 0..3usize) {
        let cut = cut.min(columns.len() - 1);
        let keys = schema.encode_leading(&columns).unwrap();
        let leading = schema.encode_leading(&columns[..cut]).unwrap();
        for (row, prefix) in leading.iter().enumerate() {
            for (other, key) in keys.iter().enumerate() {
                let same = order(&schema, &columns[..cut], row, other).is_eq();
                prop_assert_eq!(key.starts_with(prefix), same);
            }
        }
    }

    #[test]
    fn any_bytes_are_refused_or_the_only_key_of_their_row(
        (schema, columns) in filled(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        random in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let all: Vec<_> = (0..columns.len()).collect();
        let rows = schema.encode_leading(&columns).unwrap();
        let mut damaged = rows.iter().next().unwrap().to_vec();
        if !damaged.is_empty() {
            let at = at.index(damaged.len());
            damaged[at] ^= byte;
        }
        for key in [damaged, random] {
            match schema.decode(&[&key], &all) {
                Ok(columns) => {
                    let again = schema.encode_leading(&columns).unwrap();
                    prop_assert_eq!(again.iter().next().unwrap(), &key);
                }
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corruption),
            }
        }
    }

    #[test]
    fn a_text_says_its_schema((schema, _) in filled(), cut in any::<prop::sample::Index>()) {
        let text = schema.to_string();
        prop_assert_eq!(&KeySchema::parse(&text).unwrap(), &schema);
        prop_assert!(KeySchema::parse(&text[..cut.index(text.len())]).is_err());
    }
}
