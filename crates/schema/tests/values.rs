//! Values: golden bytes, columns that are passed over, generations, and hostile bytes.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect"
)]

mod support;

use arrow_array::builder::{
    FixedSizeListBuilder, Int32Builder, Int64Builder, LargeListBuilder, LargeStringBuilder,
    ListBuilder, MapBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, StringArray, StructArray,
};
use arrow_schema::{DataType, Field};
use proptest::prelude::*;
use siltstone_base::ErrorKind;
use siltstone_schema::{ColumnType, ValueColumn, ValueSchema};
use std::sync::Arc;
use support::{Cell, cell, column, nested_types, types};

const INT32: ColumnType = ColumnType::Int { bits: 32, signed: true };
const INT64: ColumnType = ColumnType::Int { bits: 64, signed: true };

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encoded(schema: &ValueSchema, columns: &[ArrayRef]) -> Vec<Vec<u8>> {
    let rows = columns.first().map_or(1, |column| column.len());
    schema.encode(columns, rows).unwrap().iter().map(<[u8]>::to_vec).collect()
}

fn decoded(schema: &ValueSchema, rows: &[Vec<u8>], wanted: &[usize]) -> Vec<ArrayRef> {
    let rows: Vec<_> = rows.iter().map(Vec::as_slice).collect();
    schema.decode(&rows, wanted).unwrap()
}

fn text(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn ints(values: &[Option<i32>]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

#[test]
fn golden_bytes() {
    let schema = ValueSchema::new(vec![
        ValueColumn::new("n", INT32, true),
        ValueColumn::new("note", ColumnType::String, true),
        ValueColumn::new("seen", ColumnType::Boolean, false),
        ValueColumn::new("more", ColumnType::Binary, true),
    ])
    .unwrap();
    let long = "x".repeat(256);
    let columns = [
        ints(&[Some(-2), None, Some(7)]),
        text(&[Some("ab"), None, Some(&long)]),
        Arc::new(BooleanArray::from(vec![true, false, true])),
        Arc::new(arrow_array::BinaryArray::from(vec![Some(&b"\0"[..]), None, Some(b"z")])),
    ];
    let rows = encoded(&schema, &columns);
    assert_eq!(hex(&rows[0]), "01010000feffffff010203616200");
    assert_eq!(hex(&rows[1]), "0101000b00000000000000");
    let x = "78".repeat(256);
    assert_eq!(hex(&rows[2]), format!("11010000070000000100010101{x}7a"));
    assert_eq!(decoded(&schema, &rows, &[0, 1, 2, 3]), columns);
    let nothing = ValueSchema::new(vec![]).unwrap();
    assert_eq!(encoded(&nothing, &[]), [[1, 1, 0]]);
    assert_eq!(decoded(&nothing, &[vec![1, 1, 0]], &[]).len(), 0);
}

#[test]
fn golden_bytes_of_nested_columns() {
    let line = "values 1 generation 1 (tags list<string>, at struct<x int32 not null, name \
                string>, counts map<string, int64 not null>)";
    let schema = ValueSchema::parse(line).unwrap();
    assert_eq!(schema.to_string(), line);
    let [tags, at, counts] = [0, 1, 2].map(|place| schema.columns()[place].column_type().clone());
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value([Some("ab"), None, Some("c")]);
    lists.append_null();
    let fields: [ArrayRef; 2] = [ints(&[Some(-2), Some(0)]), text(&[None, Some("n")])];
    let DataType::Struct(names) = at.arrow() else { panic!("{at}") };
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    maps.keys().append_value("k");
    maps.values().append_value(7);
    maps.append(true).unwrap();
    maps.append(true).unwrap();
    let columns: [ArrayRef; 3] = [
        Arc::new(lists.finish()),
        Arc::new(StructArray::new(names, fields.to_vec(), None)),
        Arc::new(maps.finish()),
    ];
    let rows = encoded(&schema, &columns);
    // The count, the nulls, three ends, the bytes.
    let first = "000302020203616263";
    // The nulls, a number, an end.
    let second = "0002feffffff00";
    // One entry; its struct has the nulls, a number, an end, and the key.
    let third = "0001000c0000070000000000000001".to_owned() + "6b";
    let ends = format!("{:02x}{:02x}{:02x}", 9, 9 + 7, 9 + 7 + 16);
    assert_eq!(hex(&rows[0]), format!("01010000{ends}{first}{second}{third}"));
    assert_eq!(hex(&rows[1]), "0101000100080a000000000000016e0000");
    let out = decoded(&schema, &rows, &[0, 1, 2]);
    for (array, wanted) in out.iter().zip([&tags, &at, &counts]) {
        assert_eq!(*array.data_type(), wanted.arrow());
    }
    assert_eq!(encoded(&schema, &out), rows);
    assert_eq!(out[0].as_list::<i32>().value(0).len(), 3);
}

#[test]
fn nested_columns_conform_and_are_refused_by_name() {
    let text = "values 1 generation 1 (at struct<x int32 not null, tags list<int32 not null>>)";
    let schema = ValueSchema::parse(text).unwrap();
    let at = |fields: Vec<(&str, ArrayRef)>| -> ArrayRef {
        let fields = fields.into_iter().map(|(name, array)| {
            (Arc::new(Field::new(name, array.data_type().clone(), true)), array)
        });
        Arc::new(StructArray::from(fields.collect::<Vec<_>>()))
    };
    let mut large = LargeListBuilder::new(Int64Builder::new());
    large.append_value([Some(1), Some(2)]);
    large.append_null();
    // In another order, with wider numbers and a large list.
    let given =
        at(vec![("tags", Arc::new(large.finish())), ("x", Arc::new(Int64Array::from(vec![5, 6])))]);
    let rows = encoded(&schema, &[given]);
    let [out] = &decoded(&schema, &rows, &[0])[..] else { panic!("one column") };
    let out = out.as_struct();
    assert_eq!(out.column(0).as_primitive::<Int32Type>().values(), &[5, 6]);
    assert_eq!(out.column(1).as_list::<i32>().value_length(0), 2);
    assert!(out.column(1).is_null(1));
    let zoned = "values 1 generation 1 (seen list<timestamp(us,\"UTC\")>, names list<string>)";
    let zoned = ValueSchema::parse(zoned).unwrap();
    let mut seen = ListBuilder::new(TimestampMicrosecondBuilder::new().with_timezone("Etc/UTC"));
    seen.append_value([Some(7)]);
    let mut names = ListBuilder::new(LargeStringBuilder::new());
    names.append_value([Some("large")]);
    let rows = encoded(&zoned, &[Arc::new(seen.finish()), Arc::new(names.finish())]);
    let out = decoded(&zoned, &rows, &[1]);
    assert_eq!(out[0].as_list::<i32>().value(0).as_string::<i32>().value(0), "large");
    let refused = |fields| schema.encode(&[at(fields)], 1).unwrap_err().to_string();
    assert!(refused(vec![("x", ints(&[None]))]).contains("not null"));
    assert!(refused(vec![("y", ints(&[Some(1)]))]).contains("no such field"));
    let tags: ArrayRef = Arc::new(ListBuilder::new(Int32Builder::new()).finish());
    let error = schema.encode(&[at(vec![("tags", tags)])], 0).unwrap_err().to_string();
    assert!(error.contains("field: x"), "{error}");
    let wide: ArrayRef = Arc::new(Int64Array::from(vec![1 << 40]));
    assert!(refused(vec![("x", wide)]).contains("at.x"));
    let mut holes = ListBuilder::new(Int32Builder::new());
    holes.append_value([Some(1), None]);
    let error = refused(vec![("x", ints(&[Some(1)])), ("tags", Arc::new(holes.finish()))]);
    assert!(error.contains("at.tags") && error.contains("not null"), "{error}");
    let flat = schema.encode(&[ints(&[Some(1)])], 1).unwrap_err();
    assert_eq!(flat.kind(), ErrorKind::Invalid);
}

/// Below a null, a list of fixed size has items all the same, and they are nulls.
#[test]
fn nulls_hide_the_items_of_a_list() {
    let schema = ValueSchema::parse("values 1 generation 1 (at list<int32 not null>)").unwrap();
    let mut pairs = FixedSizeListBuilder::new(Int32Builder::new(), 2);
    for pair in [Some([1, 2]), None, Some([3, 4])] {
        match pair {
            Some(pair) => pairs.values().append_slice(&pair),
            None => pairs.values().append_nulls(2),
        }
        pairs.append(pair.is_some());
    }
    let pairs: ArrayRef = Arc::new(pairs.finish());
    for first in 0..3 {
        let rows = encoded(&schema, &[pairs.slice(first, 3 - first)]);
        let [out] = &decoded(&schema, &rows, &[0])[..] else { panic!("one column") };
        let out = out.as_list::<i32>();
        assert_eq!(out.value(2 - first).as_primitive::<Int32Type>().values(), &[3, 4]);
        assert_eq!(out.null_count(), usize::from(first < 2));
    }
    let mut holes = FixedSizeListBuilder::new(Int32Builder::new(), 1);
    holes.values().append_nulls(2);
    holes.append(false);
    holes.append(true);
    let error = schema.encode(&[Arc::new(holes.finish())], 2).unwrap_err().to_string();
    assert!(error.contains("not null"), "{error}");
}

#[test]
fn rows_that_do_not_add_up_are_corruption() {
    let columns = vec![
        ValueColumn::new("a", ColumnType::String, true),
        ValueColumn::new("b", ColumnType::String, false),
    ];
    let schema = ValueSchema::new(columns).unwrap();
    let row = encoded(&schema, &[text(&[Some("xy")]), text(&[Some("z")])]).remove(0);
    assert_eq!(hex(&row), "01010000020378797a");
    let with = |at: usize, byte: u8| {
        let mut row = row.clone();
        row[at] = byte;
        row
    };
    let long = [&[0x11, 1, 0, 0, 2, 0, 3, 0][..], b"xyz"].concat();
    let wrong = [
        row[..8].to_vec(),
        [&row[..], b"!"].concat(),
        with(4, 4),
        with(5, 2),
        with(5, 4),
        // Bits behind the last column, a null where none may be, ends that are longer than needed.
        with(3, 4),
        with(3, 2),
        long,
        with(0, 0x31),
        with(1, 0),
        with(8, 0xff),
        vec![],
    ];
    for row in wrong {
        let refused = schema.decode(&[&row], &[0, 1]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corruption, "{row:x?}");
    }
    for later in [with(0, 2), with(1, 2)] {
        assert_eq!(schema.decode(&[&later], &[0]).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn older_rows_are_read_by_later_generations() {
    let first = ValueSchema::new(vec![
        ValueColumn::new("n", INT32, false),
        ValueColumn::new("f", ColumnType::Float { bits: 32 }, true),
        ValueColumn::new("d", ColumnType::Decimal { precision: 9, scale: 2 }, true),
        ValueColumn::new("s", ColumnType::String, true),
    ])
    .unwrap();
    let decimal = |value| {
        let array = arrow_array::Decimal128Array::from(vec![value]);
        Arc::new(array.with_precision_and_scale(9, 2).unwrap()) as ArrayRef
    };
    let float = Arc::new(arrow_array::Float32Array::from(vec![1.5])) as ArrayRef;
    let old = encoded(&first, &[ints(&[Some(-7)]), float, decimal(-123), text(&[Some("old")])]);

    let now = first
        .with_wider("n", INT64)
        .and_then(|next| next.with_column("note", ColumnType::String))
        .and_then(|next| next.with_wider("f", ColumnType::Float { bits: 64 }))
        .and_then(|next| next.with_wider("d", ColumnType::Decimal { precision: 20, scale: 2 }))
        .and_then(|next| next.with_wider("s", ColumnType::Binary))
        .and_then(|next| next.with_nulls("n"))
        .unwrap();
    assert_eq!(
        now.to_string(),
        "values 1 generation 7 (n int64 was int32 until 2, f float64 was float32 until 4, \
         d decimal(20,2) was decimal(9,2) until 5, s binary was string until 6, \
         note string since 3)"
    );
    assert_eq!(ValueSchema::parse(&now.to_string()).unwrap(), now);

    let columns = decoded(&now, &old, &[0, 1, 2, 3, 4]);
    assert_eq!(columns[0].as_primitive::<Int64Type>().value(0), -7);
    assert_eq!(columns[1].as_primitive::<Float64Type>().value(0), 1.5);
    assert_eq!(columns[2].as_primitive::<Decimal128Type>().value(0), -123);
    assert_eq!(columns[3].as_binary::<i32>().value(0), b"old");
    assert!(columns[4].is_null(0));

    // Old and new in one batch, and back.
    let [n, f, d, s, note] = &columns[..] else { unreachable!() };
    let new = encoded(&now, &[n.clone(), f.clone(), d.clone(), s.clone(), note.clone()]);
    let mixed = [old.clone(), new.clone(), new, old.clone()].concat();
    for (column, mixed) in columns.iter().zip(decoded(&now, &mixed, &[0, 1, 2, 3, 4])) {
        for row in 0..4 {
            assert_eq!(&mixed.slice(row, 1), column);
        }
    }
    let refused = first.decode(&[&mixed[1]], &[0]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

#[test]
fn an_impossible_evolution_is_invalid() {
    let schema = ValueSchema::new(vec![ValueColumn::new("n", INT64, true)]).unwrap();
    for refused in [
        schema.with_wider("n", INT32),
        schema.with_wider("n", INT64),
        schema.with_wider("m", INT64),
        schema.with_column("n", INT32),
        schema.with_nulls("n"),
        ValueSchema::new(vec![ValueColumn::new("b", ColumnType::FixedBinary(0), true)]),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn other_texts_are_refused() {
    for wrong in [
        "",
        "values 1 generation 1",
        "values 1 generation 1 (n int64",
        "values 1 generation 1 (\"n\" int64)",
        "values 1 generation 1 (n int64,m int64)",
        "values 1 generation 1 (n int64 since 2)",
        "values 1 generation 3 (n int64 not null since 2)",
        "values 1 generation 3 (n int32 was int64 until 2)",
        "values 1 generation 3 (m int64 since 2, n int64)",
        "values 1 generation 01 (n int64)",
        "values 1 generation 9 (n int64)",
        "values 1 generation 0 ()",
        "values 1 generation 1 (n int64, n int64)",
        "values 1 generation 1 (n decimal(39,0))",
        "values 1 generation 1 (n binary(0))",
        "values 1 generation 1 (n int64) ",
        "values 1 generation 1 (n list(int64))",
        "values 1 generation 1 (n list<int64>>)",
        "values 1 generation 1 (n struct<>)",
        "values 1 generation 1 (n struct<a int64, a int64>)",
        "values 1 generation 1 (n map<list<int64>, int64>)",
        "values 1 generation 1 (n map<int64 not null, int64>)",
    ] {
        assert!(ValueSchema::parse(wrong).is_err(), "{wrong}");
    }
    for later in ["values 2 generation 1 ()", "values 1 generation 1 (n union(int64))"] {
        assert_eq!(ValueSchema::parse(later).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

/// A schema and its columns.
fn filled() -> impl Strategy<Value = (ValueSchema, Vec<ArrayRef>)> {
    let types = prop_oneof![
        3 => prop::sample::select(types()),
        1 => prop::sample::select(nested_types()),
    ];
    let columns = prop::collection::vec((types, any::<bool>()), 1..11);
    (columns, 1..8usize).prop_flat_map(|(columns, rows)| {
        let cells = prop::collection::vec(prop::collection::vec(cell(), rows), columns.len());
        cells.prop_map(move |cells| {
            let named = columns.iter().enumerate().map(|(position, (column_type, nullable))| {
                ValueColumn::new(format!("c{position}"), column_type.clone(), *nullable)
            });
            let schema = ValueSchema::new(named.collect()).unwrap();
            let fill = |((column_type, nullable), cells): (&(ColumnType, bool), Vec<Cell>)| {
                let held = |cell: Cell| if *nullable { cell } else { cell.or(Some(3)) };
                column(column_type, &cells.into_iter().map(held).collect::<Vec<_>>())
            };
            (schema, columns.iter().zip(cells).map(fill).collect())
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn rows_come_back((schema, columns) in filled(), wanted in any::<u16>()) {
        let rows = encoded(&schema, &columns);
        let wanted: Vec<_> = (0..columns.len()).rev().filter(|at| wanted >> at & 1 == 1).collect();
        let out = decoded(&schema, &rows, &wanted);
        let expected: Vec<_> = wanted.iter().map(|at| columns[*at].clone()).collect();
        prop_assert_eq!(&out, &expected);
        // Floats keep their bits: a comparison of arrays may not.
        prop_assert_eq!(format!("{out:?}"), format!("{expected:?}"));
        prop_assert_eq!(ValueSchema::parse(&schema.to_string()).unwrap(), schema);
    }

    #[test]
    fn any_bytes_are_refused_or_a_row(
        (schema, columns) in filled(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        random in prop::collection::vec(any::<u8>(), 0..40),
        cut in any::<bool>(),
    ) {
        let all: Vec<_> = (0..columns.len()).collect();
        let mut damaged = encoded(&schema, &columns).remove(0);
        let at = at.index(damaged.len());
        damaged[at] ^= byte;
        if cut {
            damaged.truncate(at);
        }
        for value in [damaged, [vec![1, 1, 0], random].concat()] {
            match schema.decode(&[&value], &all) {
                Ok(columns) => {
                    let again = encoded(&schema, &columns).remove(0);
                    let [again, value] = [again, value].map(|row| decoded(&schema, &[row], &all));
                    prop_assert_eq!(again, value);
                }
                Err(error) => prop_assert!(
                    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported),
                    "{error}"
                ),
            }
        }
    }
}
