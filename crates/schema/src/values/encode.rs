//! Encodes columns to values: all rows are measured, then each column is written to all of them.

use super::ValueSchema;
use super::layout::{FORM, HEAD_BYTES};
use crate::column::{EncodedCells, Place, PresentValues, end_bytes, end_code, with_strings};
use crate::escaped::write;
use crate::nested;
use crate::rows::Rows;
use crate::types::ColumnType;
use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use siltstone_base::limits::MAX_VALUE_BYTES;
use siltstone_base::{Error, Result};
use std::sync::Arc;

impl ValueSchema {
    /// The values of these columns, which are all of the schema's, in its order; `rows` of them,
    /// which a schema without columns cannot say.
    ///
    /// # Errors
    /// Invalid for columns that are not the schema's, for nulls in a column without, and for a row
    /// of 4 GiB. Unsupported for other types.
    pub fn encode(&self, columns: &[ArrayRef], rows: usize) -> Result<Rows> {
        if columns.len() != self.columns().len() {
            let wrong = Error::invalid("a value takes every column of its schema");
            return Err(wrong.with("given", columns.len()).with("columns", self.columns().len()));
        }
        // Cells of nested columns are bytes from here on.
        let columns = self.columns().iter().zip(columns).map(|(column, array)| {
            match column.column_type().is_nested() {
                true => nested::encode(array, column.column_type(), column.name()),
                false => Ok(Arc::clone(array)),
            }
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let mut given = Vec::with_capacity(columns.len());
        for (column, array) in self.columns().iter().zip(&columns) {
            let (name, nullable) = (column.name(), column.nullable());
            let column_type = match column.column_type() {
                nested if nested.is_nested() => &ColumnType::Binary,
                flat => flat,
            };
            given.push(EncodedCells::of(array, &Place { name, column_type, nullable, rows })?);
        }
        let layout = &self.newest;
        let mut strings = vec![0; rows];
        given.iter().for_each(|column| measure(&mut strings, column));
        let wrong = strings.iter().position(|length| length + layout.fixed > MAX_VALUE_BYTES);
        if let Some(row) = wrong {
            let wrong = Error::invalid("a value is under 4 GiB");
            return Err(wrong.with("row", row));
        }
        // A row without strings has no ends, and so no bytes of one.
        let code = |length: usize| if layout.strings == 0 { 0 } else { end_code(length) };
        let length =
            |strings: &usize| layout.fixed + layout.strings * end_bytes(code(*strings)) + strings;
        let mut values = Rows::zeros(&strings.iter().map(length).collect::<Vec<_>>());
        let mut parts = values.parts();
        for (position, column) in given.iter().enumerate() {
            put_nulls(&mut parts, position, column.nulls);
        }
        let [low, high] = self.generation().to_le_bytes();
        for (row, strings) in parts.iter_mut().zip(&strings) {
            write(row, &[FORM | code(*strings) << 4, low, high], 0);
            *row = std::mem::take(row).get_mut(layout.null_bytes()..).unwrap_or_default();
        }
        given.iter().for_each(|column| put_fixed(&mut parts, column));
        put_ends(&mut parts, &given, &strings);
        given.iter().for_each(|column| put_strings(&mut parts, column));
        debug_assert!(parts.iter().all(|rest| rest.is_empty()), "a row was measured too long");
        Ok(values)
    }
}

/// Adds the bytes of a column's strings to each row's.
fn measure(lengths: &mut [usize], column: &EncodedCells<'_>) {
    let PresentValues::Bytes(strings) = &column.values else { return };
    with_strings!(strings, values => {
        for_valid(lengths, values, column.nulls, |length, value| *length += value.len());
    });
}

/// Calls `put` for every row whose value is no null.
#[inline]
fn for_valid<R, T>(
    rows: &mut [R],
    values: impl Iterator<Item = T>,
    nulls: Option<&NullBuffer>,
    put: impl Fn(&mut R, T),
) {
    let pairs = rows.iter_mut().zip(values);
    match nulls {
        None => pairs.for_each(|(row, value)| put(row, value)),
        Some(nulls) => {
            pairs.zip(nulls).filter(|(_, valid)| *valid).for_each(|((row, value), _)| {
                put(row, value);
            });
        }
    }
}

/// Sets the bit of a column in the rows that have a null there.
fn put_nulls(rows: &mut [&mut [u8]], position: usize, nulls: Option<&NullBuffer>) {
    let Some(nulls) = nulls else { return };
    for (row, _) in rows.iter_mut().zip(nulls).filter(|(_, valid)| !valid) {
        if let Some(bits) = row.get_mut(HEAD_BYTES + position / 8) {
            *bits |= 1 << (position % 8);
        }
    }
}

/// Puts a column of fixed width, zeros under a null.
fn put_fixed(rows: &mut [&mut [u8]], column: &EncodedCells<'_>) {
    let nulls = column.nulls;
    macro_rules! numbers {
        ($values:expr) => {
            each(rows, $values.iter().map(|value| value.to_le_bytes()), nulls)
        };
    }
    match &column.values {
        PresentValues::Boolean(values) => {
            each(rows, values.iter().map(|value| [u8::from(value)]), nulls);
        }
        PresentValues::I8(values) => numbers!(values),
        PresentValues::I16(values) => numbers!(values),
        PresentValues::I32(values) => numbers!(values),
        PresentValues::I64(values) => numbers!(values),
        PresentValues::U8(values) => numbers!(values),
        PresentValues::U16(values) => numbers!(values),
        PresentValues::U32(values) => numbers!(values),
        PresentValues::U64(values) => numbers!(values),
        PresentValues::F32(values) => numbers!(values),
        PresentValues::F64(values) => numbers!(values),
        // The bound on the digits was checked: the number fits what its precision gets.
        PresentValues::I128(values) => match column.width {
            Some(4) => each(rows, values.iter().map(|value| (*value as i32).to_le_bytes()), nulls),
            Some(8) => each(rows, values.iter().map(|value| (*value as i64).to_le_bytes()), nulls),
            _ => numbers!(values),
        },
        PresentValues::Fixed(bytes, values) => {
            let zeros = vec![0; *bytes];
            let values = values.chunks_exact((*bytes).max(1)).enumerate().map(|(at, value)| {
                let valid = nulls.is_none_or(|nulls| nulls.is_valid(at));
                if valid { value } else { &zeros }
            });
            rows.iter_mut().zip(values).for_each(|(row, value)| write(row, value, 0));
        }
        PresentValues::Bytes(_) => {}
    }
}

/// Puts numbers, whose length the compiler knows.
#[inline]
fn each<const N: usize>(
    rows: &mut [&mut [u8]],
    values: impl Iterator<Item = [u8; N]>,
    nulls: Option<&NullBuffer>,
) {
    let put = |row: &mut &mut [u8], value: [u8; N]| {
        if let Some((head, tail)) = std::mem::take(row).split_first_chunk_mut::<N>() {
            *head = value;
            *row = tail;
        }
    };
    let pairs = rows.iter_mut().zip(values);
    match nulls {
        None => pairs.for_each(|(row, value)| put(row, value)),
        Some(nulls) => pairs.zip(nulls).for_each(|((row, value), valid)| {
            put(row, if valid { value } else { [0; N] });
        }),
    }
}

/// Puts where the strings of every row end.
fn put_ends(rows: &mut [&mut [u8]], given: &[EncodedCells<'_>], totals: &[usize]) {
    let mut ends = vec![0; totals.len()];
    for column in given {
        if !matches!(column.values, PresentValues::Bytes(_)) {
            continue;
        }
        measure(&mut ends, column);
        for ((row, end), total) in rows.iter_mut().zip(&ends).zip(totals) {
            let bytes = end.to_le_bytes();
            let bytes = bytes.get(..end_bytes(end_code(*total))).unwrap_or_default();
            write(row, bytes, 0);
        }
    }
}

fn put_strings(rows: &mut [&mut [u8]], column: &EncodedCells<'_>) {
    let PresentValues::Bytes(strings) = &column.values else { return };
    with_strings!(strings, values => {
        for_valid(rows, values, column.nulls, |row, value| write(row, value, 0));
    });
}
