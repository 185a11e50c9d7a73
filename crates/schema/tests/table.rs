//! Tables: names to places, rows there and back, ranges, and schemas that grow.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect"
)]

mod support;

use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Fields, Schema};
use proptest::prelude::*;
use siltstone_base::ErrorKind;
use siltstone_schema::{ColumnType, TableSchema};
use std::sync::Arc;
use support::{Cell, cell, column, types};

fn fields(columns: &[(&str, DataType, bool)]) -> Fields {
    columns.iter().map(|(name, of, nullable)| Field::new(*name, of.clone(), *nullable)).collect()
}

fn visits() -> TableSchema {
    let columns = fields(&[
        ("country", DataType::Utf8, false),
        ("n", DataType::Int32, true),
        ("day", DataType::Int32, true),
        ("note", DataType::Utf8, true),
    ]);
    TableSchema::of(&columns, &["country", "day desc"]).unwrap()
}

fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

fn text(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn ints(values: &[Option<i32>]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

#[test]
fn a_text_says_all_and_comes_back() {
    let schema = visits();
    let said = "keys 1 (country string not null, day int32 desc)\nvalues 1 generation 1 (n int32, \
                note string)";
    assert_eq!(schema.to_string(), said);
    assert_eq!(TableSchema::parse(said).unwrap(), schema);
    let names: Vec<_> = schema.arrow().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["country", "day", "n", "note"]);
    for wrong in ["", "keys 1 (a int8)", "keys 1 (a int8)\nvalues 1 generation 1 (a int8)"] {
        assert_eq!(TableSchema::parse(wrong).unwrap_err().kind(), ErrorKind::Corruption, "{wrong}");
    }
}

#[test]
fn names_may_hold_line_ends_and_quotation_marks() {
    let text = "keys 1 (\"a\nb\" string not null, \"c\"\"\n\"\"\" int8)\nvalues 1 generation 1 \
                (\"v\n\" int32)";
    let schema = TableSchema::parse(text).unwrap();
    assert_eq!(schema.to_string(), text);
    let names: Vec<_> = schema.arrow().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["a\nb", "c\"\n\"", "v\n"]);
}

#[test]
fn a_key_is_spoken_of_by_name_and_order() {
    let columns = fields(&[
        ("a", DataType::Int8, true),
        ("a desc", DataType::Int8, true),
        ("b", DataType::Int8, false),
    ]);
    let said = |key: &[&str]| TableSchema::of(&columns, key).map(|s| s.keys().to_string());
    assert_eq!(said(&["a asc"]).unwrap(), "keys 1 (a int8)");
    assert_eq!(said(&["a desc"]).unwrap(), "keys 1 (\"a desc\" int8)");
    assert_eq!(said(&["a desc desc"]).unwrap(), "keys 1 (\"a desc\" int8 desc)");
    assert_eq!(said(&["a  nulls last"]).unwrap(), "keys 1 (a int8 nulls last)");
    assert_eq!(
        said(&["a desc nulls first", "b desc"]).unwrap(),
        "keys 1 (\"a desc\" int8, b int8 not null desc)"
    );
    let wrong: [&[&str]; 7] = [
        &[],
        &["c"],
        &["b", "b desc"],
        &["b nulls last"],
        &["a asc desc"],
        &["a nulls first nulls last"],
        &["a nulls last desc"],
    ];
    for key in wrong {
        assert_eq!(said(key).unwrap_err().kind(), ErrorKind::Invalid, "{key:?}");
    }
}

#[test]
fn columns_are_found_by_name_and_missing_ones_are_null() {
    let schema = visits();
    let given = rows(vec![
        ("day", ints(&[Some(3), None])),
        ("n", ints(&[None, Some(7)])),
        ("country", text(&["DE", "FR"])),
    ]);
    let (keys, values) = schema.encode(&given).unwrap();
    let (keys, values): (Vec<_>, Vec<_>) = (keys.iter().collect(), values.iter().collect());
    let all = schema.decode(&keys, &values, &[0, 1, 2, 3]).unwrap();
    assert_eq!(all.column(0).as_ref(), text(&["DE", "FR"]).as_ref());
    assert_eq!(all.column(1).as_ref(), ints(&[Some(3), None]).as_ref());
    assert_eq!(all.column(2).as_ref(), ints(&[None, Some(7)]).as_ref());
    assert_eq!(all.column(3).null_count(), 2);
    // In the order that was asked for, one of them twice; without values where none is wanted.
    let some = schema.decode(&keys, &values, &[2, 0, 2]).unwrap();
    assert_eq!(some.column(0), all.column(2));
    assert_eq!(some.column(2), all.column(2));
    assert_eq!(schema.decode(&keys, &[], &[1]).unwrap().column(0), all.column(1));
    assert_eq!(schema.decode(&keys, &[], &[]).unwrap().num_rows(), 2);
    for (wrong, word) in [
        (rows(vec![("country", text(&["DE"]))]), "day"),
        (rows(vec![("day", ints(&[None])), ("x", ints(&[None]))]), "no such column"),
    ] {
        let error = schema.encode(&wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn an_absent_row_is_null_in_all_columns() {
    let columns: Vec<_> = (0..9).map(|n| (format!("c{n}"), DataType::Int32, n == 1)).collect();
    let columns: Fields =
        columns.iter().map(|(name, of, null)| Field::new(name, of.clone(), *null)).collect();
    let schema = TableSchema::of(&columns, &["c0"]).unwrap();
    let one: ArrayRef = ints(&[Some(5)]);
    let given = columns.iter().map(|field| (field.name().as_str(), Arc::clone(&one)));
    let (keys, values) = schema.encode(&rows(given.collect())).unwrap();
    let (key, value) = (keys.iter().next().unwrap(), values.iter().next().unwrap());
    let places: Vec<_> = (0..9).collect();
    let found = schema.decode_found(&[key, key], &[None, Some(value)], &places).unwrap();
    for column in found.columns() {
        assert_eq!(column.as_ref(), ints(&[None, Some(5)]).as_ref());
    }
    assert!(found.schema().fields().iter().all(|field| field.is_nullable()));
}

#[test]
fn equality_and_a_range_are_one_range_of_keys() {
    let schema = visits();
    let given = rows(vec![
        ("country", text(&["DE", "DE", "DE", "DEN", "FR"])),
        ("day", ints(&[Some(9), Some(3), None, Some(4), Some(5)])),
    ]);
    let (keys, _) = schema.encode(&given).unwrap();
    let keys: Vec<_> = keys.iter().collect();
    assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
    let within = |equal: &[ArrayRef], start: Option<i32>, end: Option<i32>| -> Vec<usize> {
        let bound = |bound: Option<i32>| bound.map(|bound| ints(&[Some(bound)]));
        let (start, end) = schema.range(equal, bound(start), bound(end)).unwrap();
        let inside = |key: &[u8]| {
            start.as_deref().is_none_or(|start| key >= start)
                && end.as_deref().is_none_or(|end| key < end)
        };
        (0..keys.len()).filter(|row| inside(keys[*row])).collect()
    };
    assert_eq!(within(&[], None, None), [0, 1, 2, 3, 4]);
    assert_eq!(within(&[text(&["DE"])], None, None), [0, 1, 2]);
    // The order is descending, and nulls are behind.
    assert_eq!(within(&[text(&["DE"])], Some(8), None), [1, 2]);
    assert_eq!(within(&[text(&["DE"])], Some(9), Some(3)), [0]);
    assert_eq!(within(&[text(&["DE"]), ints(&[None])], None, None), [2]);
    assert_eq!(within(&[text(&["DEN"]), ints(&[Some(4)])], None, None), [3]);
    assert_eq!(within(&[text(&["A"])], None, None), [0; 0]);
    let full = schema.range(&[text(&["DE"]), ints(&[None])], Some(ints(&[None])), None);
    assert_eq!(full.unwrap_err().kind(), ErrorKind::Invalid);
}

/// A whole key whose last string is raw is not the keys that begin with it.
#[test]
fn a_whole_key_is_one_key() {
    let schema = TableSchema::of(&fields(&[("k", DataType::Utf8, false)]), &["k"]).unwrap();
    assert_eq!(
        schema.range(&[text(&["a"])], None, None).unwrap(),
        (Some(b"a".to_vec()), Some(b"a\0".to_vec()))
    );
    // A bound is where the string itself would be.
    assert_eq!(
        schema.range(&[], Some(text(&["a"])), Some(text(&["b"]))).unwrap(),
        (Some(b"a".to_vec()), Some(b"b".to_vec()))
    );
}

#[test]
fn a_schema_grows_and_older_rows_are_read() {
    let first = visits();
    let given =
        rows(vec![("country", text(&["DE"])), ("day", ints(&[Some(1)])), ("n", ints(&[Some(-7)]))]);
    let (key, old) = first.encode(&given).unwrap();
    let wide = ColumnType::Int { bits: 64, signed: true };
    let second = first.with_values(first.values().with_wider("n", wide).unwrap()).unwrap();
    let third = second.values().with_column("more", ColumnType::String).unwrap();
    let third = second.with_values(third).unwrap();
    let (key, old): (Vec<_>, Vec<_>) = (key.iter().collect(), old.iter().collect());
    let read = third.decode(&key, &old, &[2, 4]).unwrap();
    assert_eq!(read.column(0).as_ref(), &Int64Array::from(vec![-7]));
    assert_eq!(read.column(1).null_count(), 1);
    assert_eq!(TableSchema::parse(&third.to_string()).unwrap(), third);
    // An added column is no other table; other columns, and a widened one, are.
    let added = first.values().with_column("more", ColumnType::String).unwrap();
    let added = first.with_values(added).unwrap();
    added.agrees_with(&first).unwrap();
    assert_eq!(first.agrees_with(&added).unwrap_err().kind(), ErrorKind::Invalid);
    let whole = TableSchema::of(added.arrow().fields(), &["country", "day desc"]).unwrap();
    assert_eq!(whole.agrees_with(&first).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(third.agrees_with(&first).unwrap_err().kind(), ErrorKind::Invalid);
    let columns = third.arrow();
    let afresh = TableSchema::of(columns.fields(), &["country", "day desc"]).unwrap();
    assert_ne!(afresh, third);
    third.agrees_with(&afresh).unwrap();
    // A name of the key is taken.
    let taken = first.values().with_column("day", ColumnType::Date).unwrap();
    assert_eq!(first.with_values(taken).unwrap_err().kind(), ErrorKind::Invalid);
}

fn tables() -> impl Strategy<Value = (Vec<(usize, Vec<Cell>)>, usize)> {
    (1usize..6, 1usize..5).prop_flat_map(|(columns, rows)| {
        let cells = prop::collection::vec(cell(), rows);
        let columns = prop::collection::vec((0..types().len(), cells), columns);
        (columns, 1usize..6)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any columns, some of them in the key: what was put in comes out, but for the zero and the
    /// NaN of keys.
    #[test]
    fn rows_come_back((given, keys) in tables()) {
        let types = types();
        let keys = keys.min(given.len());
        let names: Vec<_> = (0..given.len()).map(|at| format!("c{at}")).collect();
        let arrays: Vec<ArrayRef> =
            given.iter().map(|(of, cells)| column(&types[*of], cells)).collect();
        let fields: Fields = names.iter().zip(&given).map(|(name, (of, _))| {
            Field::new(name, types[*of].arrow(), true)
        }).collect();
        let schema = TableSchema::of(&fields, &names[..keys]).unwrap();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays.clone()).unwrap();
        let (encoded, values) = schema.encode(&batch).unwrap();
        let encoded: Vec<_> = encoded.iter().collect();
        let values: Vec<_> = values.iter().collect();
        let places: Vec<_> = (0..schema.width()).collect();
        let read = schema.decode(&encoded, &values, &places).unwrap();
        let again = schema.encode(&read).unwrap();
        prop_assert!(again.0.iter().eq(encoded.iter().copied()));
        prop_assert!(again.1.iter().eq(values.iter().copied()));
        for (at, array) in arrays.iter().enumerate().skip(keys) {
            prop_assert_eq!(read.column(at).nulls(), array.nulls());
        }
    }

    /// Any bytes give rows or a refusal.
    #[test]
    fn arbitrary_bytes_are_rows_or_refused(
        key in prop::collection::vec(any::<u8>(), 0..40),
        value in prop::collection::vec(prop_oneof![2 => 0u8..2, 1 => any::<u8>()], 0..40),
    ) {
        let schema = visits();
        let places = [0, 1, 2, 3];
        let _ = schema.decode(&[&key], &[&value], &places);
        let _ = schema.decode_found(&[&key], &[Some(&value)], &places);
    }

    #[test]
    fn any_text_is_a_schema_or_refused(
        text in "(keys|values|[ -~\n]){0,6}( 1 \\(.{0,20}\\)\n?)?.{0,30}",
    ) {
        if let Ok(schema) = TableSchema::parse(&text) {
            prop_assert_eq!(schema.to_string(), text);
        }
    }
}
