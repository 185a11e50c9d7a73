//! Encodes nested columns: the arrays of a column are resolved once, then each cell is written.

use crate::column::{EncodedCells, Place, PresentValues, Strings, end_bytes, end_code};
use crate::conform::conformed;
use crate::types::{ColumnType, ITEM, VALUE};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use siltstone_base::{Error, Result};
use std::sync::Arc;

/// The cells of a nested column as bytes, with the nulls of the column.
///
/// # Errors
/// Invalid for another type, for nulls in parts that may hold none, for other values that the
/// schema does not take, and past 2 GiB.
pub(crate) fn encode(array: &ArrayRef, column_type: &ColumnType, name: &str) -> Result<ArrayRef> {
    let array = conformed(array, column_type, name)?;
    if *array.data_type() != column_type.arrow() {
        let error = Error::invalid("the column has another type than the schema says: cast it");
        let error = error.with("column", name).with("type", array.data_type());
        return Err(error.with("schema", column_type));
    }
    let whole = WholeColumn { name, column_type };
    let cells = Cells::of(&array, column_type, true, &whole)?;
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(array.len() + 1));
    ends.push(0);
    for row in 0..array.len() {
        if array.is_valid(row) {
            cells
                .put(row, &mut bytes)
                .map_err(|error| error.with("column", name).with("row", row))?;
        }
        let end = i32::try_from(bytes.len()).map_err(|_| {
            let text = "the nested cells of a column have over 2 GiB: write fewer rows at a time";
            Error::invalid(text).with("column", name)
        })?;
        ends.push(end);
    }
    let ends = OffsetBuffer::new(ends.into());
    let made = BinaryArray::try_new(ends, Buffer::from_vec(bytes), array.nulls().cloned());
    let made = made.map_err(|error| Error::internal("cells are no column").caused_by(error))?;
    Ok(Arc::new(made))
}

/// The column that a part belongs to, for error texts.
struct WholeColumn<'a> {
    name: &'a str,
    column_type: &'a ColumnType,
}

/// The cells of an array.
struct Cells<'a> {
    nulls: Option<&'a NullBuffer>,
    nullable: bool,
    parts: CellParts<'a>,
}

enum CellParts<'a> {
    /// Values of fixed width, and of decimals the least number that is too large.
    Fixed(usize, PresentValues<'a>),
    Bytes(Strings<'a>),
    List(&'a [i32], Box<Cells<'a>>),
    Struct(Vec<Cells<'a>>),
}

impl<'a> Cells<'a> {
    /// The cells of an array whose type is exactly `column_type`.
    fn of(
        array: &'a ArrayRef,
        column_type: &'a ColumnType,
        nullable: bool,
        whole: &WholeColumn<'_>,
    ) -> Result<Cells<'a>> {
        let parts = match column_type {
            ColumnType::List(items) => {
                let list = array.as_list::<i32>();
                let part = Cells::of(list.values(), &items.column_type, items.nullable, whole)?;
                CellParts::List(list.value_offsets(), Box::new(part))
            }
            ColumnType::Struct(fields) => {
                let given = array.as_struct().columns().iter().zip(fields);
                let parts = given.map(|(array, field)| {
                    Cells::of(array, &field.column_type, field.nullable, whole)
                });
                CellParts::Struct(parts.collect::<Result<_>>()?)
            }
            ColumnType::Map { key, value } => {
                let map = array.as_map();
                let keys = Cells::of(map.keys(), key, false, whole)?;
                let values = Cells::of(map.values(), &value.column_type, value.nullable, whole)?;
                let pair = Cells {
                    nulls: None,
                    nullable: false,
                    parts: CellParts::Struct(vec![keys, values]),
                };
                CellParts::List(map.value_offsets(), Box::new(pair))
            }
            flat => {
                let rows = array.len();
                // Whether a null is in a cell, or under a null of the whole, shows when it is put.
                let place = Place { name: whole.name, column_type: flat, nullable: true, rows };
                let cells = EncodedCells::of(array, &place)
                    .map_err(|error| error.with("schema", whole.column_type))?;
                match (cells.values, cells.width) {
                    (PresentValues::Bytes(strings), _) => CellParts::Bytes(strings),
                    (values, width) => CellParts::Fixed(width.unwrap_or_default(), values),
                }
            }
        };
        Ok(Cells { nulls: array.nulls(), nullable, parts })
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row))
    }

    /// Appends the cell of `row`, which is not null.
    fn put(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        match &self.parts {
            CellParts::Fixed(width, values) => put_fixed(values, *width, row, out),
            CellParts::Bytes(strings) => out.extend_from_slice(string(strings, row)),
            CellParts::Struct(fields) => {
                put_parts(None, fields.iter().map(|field| (field, row)), out)?;
            }
            CellParts::List(ends, items) => {
                let end = |at: usize| ends.get(at).and_then(|end| usize::try_from(*end).ok());
                let (start, end) = (end(row).unwrap_or_default(), end(row + 1).unwrap_or_default());
                let items = (start..end).map(|at| (items.as_ref(), at));
                put_parts(Some(end.saturating_sub(start)), items, out)?;
            }
        }
        Ok(())
    }
}

/// Appends a list of `count` items, or a struct.
///
/// # Errors
/// Invalid for a null in a part that may hold none.
fn put_parts<'a, 'b: 'a>(
    count: Option<usize>,
    parts: impl Iterator<Item = (&'a Cells<'b>, usize)> + Clone,
    out: &mut Vec<u8>,
) -> Result<()> {
    let head = out.len();
    out.push(0);
    if let Some(count) = count {
        let code = end_code(count);
        put_number(count, code, out);
        set(out, head, code << 2);
    }
    let nulls = out.len();
    out.resize(nulls + parts.clone().count().div_ceil(8), 0);
    let mut strings = Vec::new();
    let mut ends = Vec::new();
    for (place, (cells, row)) in parts.enumerate() {
        let is_null = cells.is_null(row);
        if is_null && !cells.nullable {
            return Err(Error::invalid(format!(
                "a part of a nested value is null, and its schema says not null: the {ITEM} of a \
                 list, a field of a struct, or the key or {VALUE} of a map"
            )));
        }
        if is_null {
            set(out, nulls + place / 8, 1 << (place % 8));
        }
        match (&cells.parts, is_null) {
            (CellParts::Fixed(width, _), true) => out.resize(out.len() + width, 0),
            (CellParts::Fixed(..), false) => cells.put(row, out)?,
            (_, true) => ends.push(strings.len()),
            (_, false) => {
                cells.put(row, &mut strings)?;
                ends.push(strings.len());
            }
        }
    }
    let code = if ends.is_empty() { 0 } else { end_code(strings.len()) };
    set(out, head, code);
    ends.iter().for_each(|end| put_number(*end, code, out));
    out.append(&mut strings);
    Ok(())
}

fn set(out: &mut [u8], at: usize, bits: u8) {
    if let Some(byte) = out.get_mut(at) {
        *byte |= bits;
    }
}

/// Appends a number in the bytes of `code`.
fn put_number(number: usize, code: u8, out: &mut Vec<u8>) {
    let bytes = number.to_le_bytes();
    out.extend_from_slice(bytes.get(..end_bytes(code)).unwrap_or_default());
}

fn put_fixed(values: &PresentValues<'_>, width: usize, row: usize, out: &mut Vec<u8>) {
    macro_rules! number {
        ($values:expr) => {
            out.extend_from_slice(&$values.get(row).copied().unwrap_or_default().to_le_bytes())
        };
    }
    match values {
        PresentValues::Boolean(values) => out.push(u8::from(values.value(row))),
        PresentValues::I8(values) => number!(values),
        PresentValues::I16(values) => number!(values),
        PresentValues::I32(values) => number!(values),
        PresentValues::I64(values) => number!(values),
        PresentValues::U8(values) => number!(values),
        PresentValues::U16(values) => number!(values),
        PresentValues::U32(values) => number!(values),
        PresentValues::U64(values) => number!(values),
        PresentValues::F32(values) => number!(values),
        PresentValues::F64(values) => number!(values),
        // The bound on the digits was checked: the number fits the bytes of its precision.
        PresentValues::I128(values) => {
            let bytes = values.get(row).copied().unwrap_or_default().to_le_bytes();
            out.extend_from_slice(bytes.get(..width).unwrap_or_default());
        }
        PresentValues::Fixed(bytes, values) => {
            let value = values.get(row * bytes..(row + 1) * bytes);
            out.extend_from_slice(value.unwrap_or_default());
        }
        PresentValues::Bytes(_) => {}
    }
}

fn string<'a>(strings: &'a Strings<'a>, row: usize) -> &'a [u8] {
    let place = |end: Option<usize>| end.unwrap_or_default();
    match strings {
        Strings::Small(ends, bytes) => {
            let end = |at: usize| place(ends.get(at).and_then(|end| usize::try_from(*end).ok()));
            bytes.get(end(row)..end(row + 1)).unwrap_or_default()
        }
        Strings::Large(ends, bytes) => {
            let end = |at: usize| place(ends.get(at).and_then(|end| usize::try_from(*end).ok()));
            bytes.get(end(row)..end(row + 1)).unwrap_or_default()
        }
        Strings::Texts(array) => array.value(row).as_bytes(),
        Strings::Views(array) => array.value(row),
    }
}
