//! Typed keys and values (RFC 0032, RFC 0040): what users' bytes are read as by a schema, and the
//! schema's own text, which lies in the manifest.

use crate::decoders::Decoder;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Float64Array, Int64Array, StringArray,
};
use siltstone_base::{Error, Result};
use siltstone_schema::tuple::{Part, pack, unpack};
use siltstone_schema::{
    ColumnType, KeyColumn, KeySchema, TableSchema, ValueColumn, ValueSchema, tuple,
};
use std::sync::Arc;

/// Unreadable keys and values are refused under every schema.
const MEMORY_FACTOR: usize = 64;

/// A key made of columns of several types and orders: what encoding makes of what was decoded is
/// the key.
pub const TYPED_KEY: Decoder = Decoder {
    name: "typed_key",
    decode: |bytes| {
        let schema = key_schema()?;
        let wanted: Vec<usize> = (0..schema.columns().len()).collect();
        let columns = schema.decode(&[bytes], &wanted)?;
        let again = schema.encode(&columns).map_err(broken)?;
        assert_eq!(again.iter().next(), Some(bytes), "a key changes when it is written again");
        // Any column alone is what it is among others.
        for place in wanted {
            let alone = schema.decode(&[bytes], &[place])?;
            assert_eq!(alone.first(), columns.get(place), "column {place} depends on others");
        }
        Ok(bytes.to_vec())
    },
    reseal: None,
    samples: || kept(keys()),
    memory_factor: MEMORY_FACTOR,
};

/// A value made of columns, of the newest generation or an older one: what was decoded is decoded
/// again from what encoding makes of it.
pub const TYPED_VALUE: Decoder = Decoder {
    name: "typed_value",
    decode: |bytes| {
        let schema = value_schema()?;
        let wanted: Vec<usize> = (0..schema.columns().len()).collect();
        let columns = schema.decode(&[bytes], &wanted)?;
        let again = schema.encode(&columns, 1).map_err(broken)?;
        let again = again.iter().next().unwrap_or_default().to_vec();
        let twice = schema.decode(&[&again], &wanted).map_err(broken)?;
        assert_eq!(twice, columns, "a value changes when it is written again");
        for place in wanted {
            let alone = schema.decode(&[bytes], &[place])?;
            assert_eq!(alone.first(), columns.get(place), "column {place} depends on others");
        }
        Ok(again)
    },
    reseal: None,
    samples: || kept(values()),
    memory_factor: MEMORY_FACTOR,
};

/// A key of parts that say what they are.
pub const TUPLE: Decoder = Decoder {
    name: "tuple",
    decode: |bytes| {
        let parts = unpack(bytes)?;
        let again = pack(&parts).map_err(broken)?;
        assert_eq!(again, bytes, "a tuple changes when it is written again");
        Ok(again)
    },
    reseal: None,
    samples: || kept(tuples()),
    memory_factor: MEMORY_FACTOR,
};

/// The text of a table's schema.
pub const TABLE_SCHEMA: Decoder = Decoder {
    name: "table_schema",
    decode: |bytes| {
        let wrong = |error| Error::corruption("a schema is text").caused_by(error);
        let text = std::str::from_utf8(bytes).map_err(wrong)?;
        let schema = TableSchema::parse(text)?;
        assert_eq!(schema.to_string(), text, "a schema has two spellings");
        assert_eq!(schema.arrow().fields().len(), schema.width());
        Ok(bytes.to_vec())
    },
    reseal: None,
    samples: || kept(schemas()),
    memory_factor: MEMORY_FACTOR,
};

/// A decoded value cannot be encoded again: any error breaks the promise.
fn broken(error: Error) -> Error {
    Error::internal("what was decoded cannot be written again").caused_by(error)
}

fn kept(samples: Result<Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
    samples.unwrap_or_default()
}

const INT: ColumnType = ColumnType::Int { bits: 64, signed: true };
const PRICE: ColumnType = ColumnType::Decimal { precision: 18, scale: 2 };

fn key_schema() -> Result<KeySchema> {
    KeySchema::new(vec![
        KeyColumn::new("flag", ColumnType::Boolean),
        KeyColumn::new("count", INT).descending().not_null(),
        KeyColumn::new("ratio", ColumnType::Float { bits: 64 }),
        KeyColumn::new("note", ColumnType::String).descending(),
        KeyColumn::new("day", ColumnType::Date),
        KeyColumn::new("raw", ColumnType::Binary),
    ])
}

/// A schema of the third generation: a column was added, and another widened.
fn value_schema() -> Result<ValueSchema> {
    older_schema()?.with_column("later", ColumnType::String)?.with_wider("small", INT)
}

fn older_schema() -> Result<ValueSchema> {
    ValueSchema::new(vec![
        ValueColumn::new("flag", ColumnType::Boolean, true),
        ValueColumn::new("small", ColumnType::Int { bits: 32, signed: true }, true),
        ValueColumn::new("note", ColumnType::String, true),
        ValueColumn::new("ratio", ColumnType::Float { bits: 64 }, false),
        ValueColumn::new("raw", ColumnType::Binary, true),
    ])
}

fn keys() -> Result<Vec<Vec<u8>>> {
    let columns: [ArrayRef; 6] = [
        Arc::new(BooleanArray::from(vec![None, Some(true)])),
        Arc::new(Int64Array::from(vec![-7, i64::MAX])),
        Arc::new(Float64Array::from(vec![Some(-0.5), None])),
        Arc::new(StringArray::from(vec![Some("a\0b"), Some("")])),
        Arc::new(Date32Array::from(vec![Some(19_000), None])),
        Arc::new(BinaryArray::from(vec![Some(&b"\xff\x00"[..]), None])),
    ];
    Ok(key_schema()?.encode(&columns)?.iter().map(<[u8]>::to_vec).collect())
}

fn values() -> Result<Vec<Vec<u8>>> {
    let older: [ArrayRef; 5] = [
        Arc::new(BooleanArray::from(vec![Some(false), None])),
        Arc::new(arrow_array::Int32Array::from(vec![Some(-3), None])),
        Arc::new(StringArray::from(vec![Some("tide"), None])),
        Arc::new(Float64Array::from(vec![1.5, f64::NAN])),
        Arc::new(BinaryArray::from(vec![None, Some(&b"\0\x01"[..])])),
    ];
    let mut newer = older.to_vec();
    if let Some(small) = newer.get_mut(1) {
        *small = Arc::new(Int64Array::from(vec![Some(1 << 40), Some(0)]));
    }
    newer.push(Arc::new(StringArray::from(vec![None, Some("since then")])));
    let mut samples = Vec::new();
    samples.extend(older_schema()?.encode(&older, 2)?.iter().map(<[u8]>::to_vec));
    samples.extend(value_schema()?.encode(&newer, 2)?.iter().map(<[u8]>::to_vec));
    Ok(samples)
}

fn tuples() -> Result<Vec<Vec<u8>>> {
    let mixed = [
        Part::None,
        Part::Bool(true),
        Part::Int(-300),
        Part::BigInt { negative: true, magnitude: vec![1; 20].into() },
        Part::Float(2.5),
        Part::Date(19_000),
        Part::Moment(1_700_000_000_000_000),
        Part::Text("a\0b".into()),
        Part::Bytes(vec![0, 0xff].into()),
        Part::Uuid([7; 16]),
    ];
    let (start, _) = tuple::range_of(pack(&[Part::Text("prefix".into())])?)?;
    Ok(vec![pack(&mixed)?, pack(&[Part::Int(0), Part::Int(i64::MAX)])?, start])
}

fn schemas() -> Result<Vec<Vec<u8>>> {
    let both = TableSchema::new(key_schema()?, renamed()?)?;
    let one = KeySchema::new(vec![KeyColumn::new("k", PRICE)])?;
    let small = TableSchema::new(one, value_schema()?)?;
    Ok(vec![both.to_string().into_bytes(), small.to_string().into_bytes()])
}

/// Values whose columns have other names than the key's.
fn renamed() -> Result<ValueSchema> {
    let columns = vec![
        ValueColumn::new("amount", PRICE, false),
        ValueColumn::new("of what", ColumnType::FixedBinary(3), true),
    ];
    ValueSchema::new(columns)?.with_column("since", ColumnType::Date)
}
