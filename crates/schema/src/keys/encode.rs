//! Encodes columns to keys: all rows are measured, then each column is written to all of them.

use super::{KeyColumn, KeySchema, PRESENT};
use crate::column::{EncodedCells, Place, PresentValues, with_strings};
use crate::escaped::{escaped_len, write, write_escaped};
use crate::ordered::Ordered;
use crate::rows::Rows;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use siltstone_base::limits::MAX_KEY_BYTES;
use siltstone_base::{Error, Result};

/// A column of the key with its values.
type Filled<'a> = (&'a KeyColumn, EncodedCells<'a>);

impl KeySchema {
    /// The keys of these columns, which are all of the schema's, in its order.
    ///
    /// # Errors
    /// Invalid for columns that are not the schema's, for nulls in a column without, and for keys
    /// of no bytes or of more than 65,535, with their row. Unsupported for other types.
    pub fn encode(&self, columns: &[ArrayRef]) -> Result<Rows> {
        if columns.len() != self.columns().len() {
            let wrong = Error::invalid("a key takes every column of its schema");
            return Err(wrong.with("given", columns.len()).with("columns", self.columns().len()));
        }
        let keys = self.encode_leading(columns)?;
        let wrong = |key: &[u8]| key.is_empty() || key.len() > MAX_KEY_BYTES;
        if let Some((row, key)) = keys.iter().enumerate().find(|(_, key)| wrong(key)) {
            let wrong = match key.is_empty() {
                true => self.empty_key(),
                false => Error::invalid("a key has 1 to 65,535 bytes"),
            };
            return Err(wrong.with("row", row).with("bytes", key.len()));
        }
        Ok(keys)
    }

    /// The only column of the key holds an empty value, which takes no byte.
    fn empty_key(&self) -> Error {
        let text = "a key has 1 to 65,535 bytes, and an empty value is no key in a table whose \
                    only key column is not nullable and ascending: create the table with a \
                    nullable column, with the key \"name desc\", or with a second key column";
        let names = self.columns().iter().map(|column| column.name.as_str());
        Error::invalid(text).with("column", names.collect::<Vec<_>>().join(", "))
    }

    /// The common prefix of all keys whose first columns are these. All these keys are at or after
    /// it, and before the next byte string that does not begin with it.
    ///
    /// # Errors
    /// As [`KeySchema::encode`], but for the lengths.
    pub fn encode_leading(&self, columns: &[ArrayRef]) -> Result<Rows> {
        let rows = columns.first().map_or(0, |column| column.len());
        let mut filled: Vec<Filled<'_>> = Vec::with_capacity(columns.len());
        for (column, array) in self.columns().iter().zip(columns) {
            let place = Place {
                name: &column.name,
                column_type: &column.column_type,
                nullable: column.nullable,
                rows,
            };
            filled.push((column, EncodedCells::of(array, &place)?));
        }
        let is_last = |position: usize| position + 1 == self.columns().len();
        let mut lengths = vec![0; rows];
        for (position, (column, given)) in filled.iter().enumerate() {
            measure(&mut lengths, column, given, is_last(position));
        }
        let mut keys = Rows::zeros(&lengths);
        let mut parts = keys.parts();
        for (position, (column, given)) in filled.iter().enumerate() {
            put_column(&mut parts, column, given, is_last(position));
        }
        debug_assert!(parts.iter().all(|rest| rest.is_empty()), "a row was measured too long");
        Ok(keys)
    }
}

fn measure(lengths: &mut [usize], column: &KeyColumn, given: &EncodedCells<'_>, last: bool) {
    let mark = usize::from(column.nullable);
    let nulls = given.nulls;
    match (&given.values, column.width()) {
        (PresentValues::Bytes(strings), _) if column.is_raw(last) => {
            with_strings!(strings, values => {
                add(lengths, mark, values.map(<[u8]>::len), nulls);
            })
        }
        (PresentValues::Bytes(strings), _) => with_strings!(strings, values => {
            add(lengths, mark, values.map(escaped_len), nulls);
        }),
        (_, width) => {
            add(lengths, mark, std::iter::repeat(width.unwrap_or_default()), nulls);
        }
    }
}

/// Adds a mark to every row, and what the payload takes where there is one.
fn add(
    lengths: &mut [usize],
    mark: usize,
    payload: impl Iterator<Item = usize>,
    nulls: Option<&NullBuffer>,
) {
    match nulls {
        None => {
            for (length, payload) in lengths.iter_mut().zip(payload) {
                *length += mark + payload;
            }
        }
        Some(nulls) => {
            for ((length, payload), valid) in lengths.iter_mut().zip(payload).zip(nulls) {
                *length += mark + if valid { payload } else { 0 };
            }
        }
    }
}

fn put_column(rows: &mut [&mut [u8]], column: &KeyColumn, given: &EncodedCells<'_>, last: bool) {
    let (flip, nulls) = (column.flip(), given.nulls);
    match &given.values {
        PresentValues::Boolean(values) => {
            each(rows, values.iter(), nulls, column, |row, value| {
                write(row, &[u8::from(value)], flip);
            });
        }
        PresentValues::I8(values) => number(rows, values, nulls, column),
        PresentValues::I16(values) => number(rows, values, nulls, column),
        PresentValues::I32(values) => number(rows, values, nulls, column),
        PresentValues::I64(values) => number(rows, values, nulls, column),
        PresentValues::U8(values) => number(rows, values, nulls, column),
        PresentValues::U16(values) => number(rows, values, nulls, column),
        PresentValues::U32(values) => number(rows, values, nulls, column),
        PresentValues::U64(values) => number(rows, values, nulls, column),
        PresentValues::F32(values) => number(rows, values, nulls, column),
        PresentValues::F64(values) => number(rows, values, nulls, column),
        // The bound on the digits was checked: the number fits what its precision gets.
        PresentValues::I128(values) => match column.width() {
            Some(4) => each(rows, values.iter(), nulls, column, |row, value| {
                put(row, (*value as i32).to_ordered(), flip);
            }),
            Some(8) => each(rows, values.iter(), nulls, column, |row, value| {
                put(row, (*value as i64).to_ordered(), flip);
            }),
            _ => number(rows, values, nulls, column),
        },
        PresentValues::Fixed(bytes, values) => {
            each(rows, values.chunks_exact((*bytes).max(1)), nulls, column, |row, value| {
                write(row, value, flip);
            });
        }
        PresentValues::Bytes(strings) if column.is_raw(last) => with_strings!(strings, values => {
            each(rows, values, nulls, column, |row, value| write(row, value, flip));
        }),
        PresentValues::Bytes(strings) => with_strings!(strings, values => {
            each(rows, values, nulls, column, |row, value| write_escaped(row, value, flip));
        }),
    }
}

fn number<const N: usize, T: Ordered<N>>(
    rows: &mut [&mut [u8]],
    values: &[T],
    nulls: Option<&NullBuffer>,
    column: &KeyColumn,
) {
    let flip = column.flip();
    each(rows, values.iter(), nulls, column, |row, value| put(row, value.to_ordered(), flip));
}

/// As [`write`], of a length that the compiler knows.
#[inline]
fn put<const N: usize>(row: &mut &mut [u8], bytes: [u8; N], flip: u8) {
    if let Some((head, tail)) = std::mem::take(row).split_first_chunk_mut::<N>() {
        *head = bytes.map(|byte| byte ^ flip);
        *row = tail;
    }
}

/// Writes the mark of every row, where the column has marks, and by `put` every value.
fn each<T>(
    rows: &mut [&mut [u8]],
    values: impl Iterator<Item = T>,
    nulls: Option<&NullBuffer>,
    column: &KeyColumn,
    put: impl Fn(&mut &mut [u8], T),
) {
    let pairs = rows.iter_mut().zip(values);
    match nulls {
        None if !column.nullable => pairs.for_each(|(row, value)| put(row, value)),
        None => pairs.for_each(|(row, value)| {
            write(row, &[PRESENT], 0);
            put(row, value);
        }),
        Some(nulls) => pairs.zip(nulls).for_each(|((row, value), valid)| {
            if valid {
                write(row, &[PRESENT], 0);
                put(row, value);
            } else {
                write(row, &[column.null()], 0);
            }
        }),
    }
}
