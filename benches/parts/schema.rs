//! Encoding and decoding of a table's rows: 4 columns in the key, 8 in the value, on one core.

use arrow_array::types::{Date32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use criterion::{BatchSize, Criterion, Throughput};
use siltstone_schema::TableSchema;
use std::hint::black_box;
use std::sync::Arc;

const ROWS: usize = 65_536;
const KEY: [&str; 4] = ["country", "day desc", "shop", "number"];

fn column(of: &DataType, seed: u64) -> ArrayRef {
    let mixed = |row: usize| (row as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let each = 0..ROWS;
    match of {
        DataType::Utf8 => {
            let texts = each.map(|row| format!("{:04x}", mixed(row) % 4096));
            Arc::new(StringArray::from_iter_values(texts))
        }
        DataType::Boolean => {
            Arc::new(BooleanArray::from_iter(each.map(|row| Some(mixed(row) % 2 == 0))))
        }
        DataType::Date32 => Arc::new(PrimitiveArray::<Date32Type>::from_iter_values(
            each.map(|row| (mixed(row) % 9999) as i32),
        )),
        DataType::Int32 => Arc::new(PrimitiveArray::<Int32Type>::from_iter_values(
            each.map(|row| mixed(row) as i32),
        )),
        DataType::Float64 => Arc::new(PrimitiveArray::<Float64Type>::from_iter_values(
            each.map(|row| mixed(row) as f64),
        )),
        DataType::Timestamp(..) => {
            let values = each.map(|row| mixed(row) as i64);
            Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from_iter_values(values))
        }
        _ => Arc::new(PrimitiveArray::<Int64Type>::from_iter_values(
            each.map(|row| mixed(row) as i64),
        )),
    }
}

fn rows() -> RecordBatch {
    let moment = DataType::Timestamp(TimeUnit::Microsecond, None);
    let columns = [
        ("country", DataType::Utf8),
        ("day", DataType::Date32),
        ("shop", DataType::Int32),
        ("number", DataType::Int64),
        ("amount", DataType::Int64),
        ("price", DataType::Float64),
        ("tax", DataType::Float64),
        ("paid", DataType::Boolean),
        ("at", moment),
        ("clerk", DataType::Int32),
        ("till", DataType::Int32),
        ("note", DataType::Utf8),
    ];
    let arrays = columns.iter().zip(1..).map(|((_, of), seed)| column(of, seed)).collect();
    let fields = columns.map(|(name, of)| Field::new(name, of, false));
    RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), arrays).unwrap()
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let rows = rows();
    let schema = TableSchema::of(rows.schema_ref().fields(), &KEY).unwrap();
    let (keys, values) = schema.encode(&rows).unwrap();
    let places: Vec<usize> = (0..schema.width()).collect();
    let mut group = criterion.benchmark_group("schema");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("encode 4 + 8 columns", |bencher| {
        bencher.iter(|| schema.encode(black_box(&rows)).unwrap());
    });
    // As in a scan: first slices, of both.
    group.bench_function("decode 4 + 8 columns", |bencher| {
        bencher.iter_batched(
            || (keys.iter().collect::<Vec<_>>(), values.iter().collect::<Vec<_>>()),
            |(keys, values)| schema.decode(&keys, &values, &places).unwrap(),
            BatchSize::LargeInput,
        );
    });
    group.bench_function("decode 1 of 8 columns", |bencher| {
        let values: Vec<&[u8]> = values.iter().collect();
        let keys: Vec<&[u8]> = keys.iter().collect();
        bencher.iter(|| schema.decode(&keys, &values, &[5]).unwrap());
    });
    group.finish();
}
