//! Decodes keys to columns: each column is taken from the front of the rest of every key.

use super::{KeyColumn, KeySchema, PRESENT};
use crate::column::{StringBuilder, booleans, fixed, numbers, timestamps};
use crate::escaped::take_escaped;
use crate::ordered::Ordered;
use crate::types::ColumnType;
use arrow_array::ArrayRef;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use siltstone_base::{Error, Result};

impl KeySchema {
    /// The columns of these keys that `wanted` says, by their positions in ascending order. What
    /// is behind the last one wanted is not looked at.
    ///
    /// # Errors
    /// Corruption, with row and column, for a key that encoding never makes. Invalid for a column
    /// that there is not, and past 2 GiB of strings.
    pub fn decode(&self, keys: &[&[u8]], wanted: &[usize]) -> Result<Vec<ArrayRef>> {
        let mut rests = keys.to_vec();
        let mut columns = Vec::with_capacity(wanted.len());
        let mut at = 0;
        for want in wanted {
            let found = self.columns().get(at..=*want);
            let Some((column, before)) = found.and_then(|found| found.split_last()) else {
                let wrong = Error::invalid("no such column, or not in ascending order");
                return Err(wrong.with("position", want));
            };
            for passed in before {
                self.take(passed, &mut rests, false)?;
            }
            let last = want + 1 == self.columns().len();
            columns.push(self.take(column, &mut rests, last)?);
            at = want + 1;
        }
        if at == self.columns().len()
            && let Some(row) = rests.iter().position(|rest| !rest.is_empty())
        {
            return Err(no_key(row).with("behind", "the last column"));
        }
        Ok(columns)
    }

    /// One column off the front of every key.
    fn take(&self, column: &KeyColumn, rests: &mut [&[u8]], last: bool) -> Result<ArrayRef> {
        taken(column, rests, last).map_err(|error| error.with("column", &column.name))
    }
}

/// A key that encoding never makes.
fn no_key(row: usize) -> Error {
    let text = "this key has not the columns of the table: it was put as plain bytes, or is \
                damaged; read it with db.get or db.scan, and delete it with db.delete";
    Error::corruption(text).with("row", row)
}

fn taken(column: &KeyColumn, rests: &mut [&[u8]], last: bool) -> Result<ArrayRef> {
    let column_type = &column.column_type;
    match column_type {
        ColumnType::Boolean => {
            let (values, nulls) = each(column, rests, |rest| match array::<1>(rest, 0)? {
                [byte] => match byte ^ column.flip() {
                    0 => Some(false),
                    1 => Some(true),
                    _ => None,
                },
            })?;
            booleans(values, nulls)
        }
        ColumnType::Int { bits: 8, signed: true } => number::<1, Int8Type>(column, rests),
        ColumnType::Int { bits: 16, signed: true } => number::<2, Int16Type>(column, rests),
        ColumnType::Int { bits: 32, signed: true } => number::<4, Int32Type>(column, rests),
        ColumnType::Int { signed: true, .. } => number::<8, Int64Type>(column, rests),
        ColumnType::Int { bits: 8, .. } => number::<1, UInt8Type>(column, rests),
        ColumnType::Int { bits: 16, .. } => number::<2, UInt16Type>(column, rests),
        ColumnType::Int { bits: 32, .. } => number::<4, UInt32Type>(column, rests),
        ColumnType::Int { .. } => number::<8, UInt64Type>(column, rests),
        ColumnType::Float { bits: 32 } => number::<4, Float32Type>(column, rests),
        ColumnType::Float { .. } => number::<8, Float64Type>(column, rests),
        ColumnType::Date => number::<4, Date32Type>(column, rests),
        ColumnType::Timestamp { unit, .. } => {
            let (values, nulls) = each(column, rests, |rest| value::<8, i64>(rest, column))?;
            timestamps(values, nulls, *unit, column_type)
        }
        ColumnType::Decimal { precision, .. } => {
            let bound = 10u128.pow(u32::from(*precision));
            let within = |value: i128| (value.unsigned_abs() < bound).then_some(value);
            let (values, nulls) = match column.width() {
                Some(4) => {
                    each(column, rests, |rest| within(value::<4, i32>(rest, column)?.into()))?
                }
                Some(8) => {
                    each(column, rests, |rest| within(value::<8, i64>(rest, column)?.into()))?
                }
                _ => each(column, rests, |rest| within(value::<16, i128>(rest, column)?))?,
            };
            numbers::<Decimal128Type>(values, nulls, column_type)
        }
        ColumnType::FixedBinary(bytes) => fixed_binary(column, *bytes, rests),
        ColumnType::String | ColumnType::Binary => strings(column, rests, last),
        ColumnType::List(_) | ColumnType::Struct(_) | ColumnType::Map { .. } => {
            Err(Error::internal("a column of a key is nested"))
        }
    }
}

fn number<const N: usize, T: ArrowPrimitiveType<Native: Ordered<N>>>(
    column: &KeyColumn,
    rests: &mut [&[u8]],
) -> Result<ArrayRef> {
    let (values, nulls) = each(column, rests, |rest| value::<N, T::Native>(rest, column))?;
    numbers::<T>(values, nulls, &column.column_type)
}

#[inline]
fn value<const N: usize, T: Ordered<N>>(rest: &mut &[u8], column: &KeyColumn) -> Option<T> {
    T::from_ordered(array(rest, column.flip())?)
}

#[inline]
fn array<const N: usize>(rest: &mut &[u8], flip: u8) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(taken.map(|byte| byte ^ flip))
}

/// Whether the front of `rest` has a value, by its mark; `None` for no mark.
#[inline]
fn is_present(column: &KeyColumn, rest: &mut &[u8]) -> Option<bool> {
    if !column.nullable {
        return Some(true);
    }
    let (mark, after) = rest.split_first()?;
    *rest = after;
    if *mark == PRESENT { Some(true) } else { (*mark == column.null()).then_some(false) }
}

/// The values of a column by `take`, with the default under a null.
fn each<T: Default>(
    column: &KeyColumn,
    rests: &mut [&[u8]],
    take: impl Fn(&mut &[u8]) -> Option<T>,
) -> Result<(Vec<T>, Option<NullBuffer>)> {
    let mut values = Vec::with_capacity(rests.len());
    if !column.nullable {
        for (row, rest) in rests.iter_mut().enumerate() {
            values.push(take(rest).ok_or_else(|| no_key(row))?);
        }
        return Ok((values, None));
    }
    let mut valid = BooleanBufferBuilder::new(rests.len());
    for (row, rest) in rests.iter_mut().enumerate() {
        let present = is_present(column, rest).ok_or_else(|| no_key(row))?;
        valid.append(present);
        let value = if present { take(rest) } else { Some(T::default()) };
        values.push(value.ok_or_else(|| no_key(row))?);
    }
    Ok((values, Some(NullBuffer::new(valid.finish()))))
}

fn fixed_binary(column: &KeyColumn, bytes: i32, rests: &mut [&[u8]]) -> Result<ArrayRef> {
    let length = usize::try_from(bytes).unwrap_or_default();
    // No more than the keys have is ever taken in.
    let mut out = Vec::new();
    let mut valid = BooleanBufferBuilder::new(rests.len());
    for (row, rest) in rests.iter_mut().enumerate() {
        let present = is_present(column, rest).ok_or_else(|| no_key(row))?;
        valid.append(present);
        if present {
            let (taken, after) = rest.split_at_checked(length).ok_or_else(|| no_key(row))?;
            out.extend(taken.iter().map(|byte| byte ^ column.flip()));
            *rest = after;
        } else {
            out.resize(out.len() + length, 0);
        }
    }
    fixed(bytes, out, column.nullable.then(|| NullBuffer::new(valid.finish())))
}

fn strings(column: &KeyColumn, rests: &mut [&[u8]], last: bool) -> Result<ArrayRef> {
    let (raw, flip) = (column.is_raw(last), column.flip());
    let mut out = StringBuilder::new(rests.len());
    let mut valid = BooleanBufferBuilder::new(rests.len());
    for (row, rest) in rests.iter_mut().enumerate() {
        let present = is_present(column, rest).ok_or_else(|| no_key(row))?;
        valid.append(present);
        if present && raw {
            out.bytes.extend_from_slice(std::mem::take(rest));
        } else if present {
            take_escaped(rest, flip, &mut out.bytes).ok_or_else(|| no_key(row))?;
        }
        out.end()?;
    }
    let nulls = column.nullable.then(|| NullBuffer::new(valid.finish()));
    out.column(&column.column_type, nulls)
}
