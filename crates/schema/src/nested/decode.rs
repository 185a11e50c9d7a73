//! Decodes cells of nested columns: each cell is split into its parts, which go to the builders of
//! the column's arrays.

use crate::column::{StringBuilder, booleans, end_bytes, end_code, fixed, numbers, timestamps};
use crate::types::ColumnType;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BinaryArray, ListArray, MapArray, StructArray};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType};
use siltstone_base::{Error, Result};
use std::sync::Arc;

/// Why cells are no column.
pub(crate) enum BadCells {
    /// The cell of this row is none that encoding makes.
    Row(usize),
    /// Another error.
    Error(Error),
}

impl From<Error> for BadCells {
    fn from(error: Error) -> BadCells {
        BadCells::Error(error)
    }
}

/// The column of these cells.
///
/// # Errors
/// The row of a cell that encoding does not make; Corruption for text that is not UTF-8; Invalid
/// past 2 GiB of strings.
pub(crate) fn decode(cells: &BinaryArray, column_type: &ColumnType) -> Result<ArrayRef, BadCells> {
    let mut column = PartBuilder::new(column_type, true);
    for row in 0..cells.len() {
        match cells.is_valid(row) {
            false => column.push_null()?,
            true => column.push(cells.value(row))?.ok_or(BadCells::Row(row))?,
        }
    }
    Ok(column.finish()?)
}

/// An array in the making.
struct PartBuilder<'a> {
    column_type: &'a ColumnType,
    nullable: bool,
    valid: BooleanBufferBuilder,
    parts: BuilderParts<'a>,
}

enum BuilderParts<'a> {
    /// The bytes of values of fixed width.
    Fixed(usize, Vec<u8>),
    Bytes(StringBuilder),
    List(Vec<i32>, Box<PartBuilder<'a>>),
    Struct(Vec<PartBuilder<'a>>),
    /// A list of keys and values.
    Map(Vec<i32>, Box<[PartBuilder<'a>; 2]>),
}

/// The count of a list, the nulls and the places of parts in a cell.
struct CellHead<'a> {
    count: usize,
    nulls: &'a [u8],
    end_bytes: usize,
    rest: &'a [u8],
}

impl<'a> CellHead<'a> {
    /// The head of a struct of `fields`, or of a list; `None` for bytes that no encoder makes.
    fn of(cell: &'a [u8], fields: Option<usize>) -> Option<CellHead<'a>> {
        let (head, mut rest) = cell.split_first()?;
        let (ends, counts) = (head & 3, head >> 2);
        let count = match fields {
            Some(fields) => (counts == 0).then_some(fields)?,
            None if counts <= 2 => {
                let count = number(&mut rest, end_bytes(counts))?;
                (end_code(count) == counts).then_some(count)?
            }
            None => return None,
        };
        let nulls = take(&mut rest, count.div_ceil(8))?;
        let over = count % 8;
        let clean = over == 0 || nulls.last().is_some_and(|bits| bits >> over == 0);
        (ends <= 2 && clean).then_some(CellHead { count, nulls, end_bytes: end_bytes(ends), rest })
    }

    fn is_null(&self, place: usize) -> bool {
        self.nulls.get(place / 8).is_some_and(|bits| bits & (1 << (place % 8)) != 0)
    }
}

/// The first `length` bytes, which leave `rest`.
fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (first, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(first)
}

/// A number of 1, 2 or 4 bytes.
fn number(rest: &mut &[u8], length: usize) -> Option<usize> {
    let bytes = take(rest, length)?;
    let mut whole = [0; 4];
    whole.get_mut(..length)?.copy_from_slice(bytes);
    usize::try_from(u32::from_le_bytes(whole)).ok()
}

impl<'a> PartBuilder<'a> {
    fn new(column_type: &'a ColumnType, nullable: bool) -> PartBuilder<'a> {
        let parts = match column_type {
            ColumnType::List(items) => {
                let items = PartBuilder::new(&items.column_type, items.nullable);
                BuilderParts::List(vec![0], Box::new(items))
            }
            ColumnType::Struct(fields) => BuilderParts::Struct(
                fields
                    .iter()
                    .map(|field| PartBuilder::new(&field.column_type, field.nullable))
                    .collect(),
            ),
            ColumnType::Map { key, value } => {
                let value = PartBuilder::new(&value.column_type, value.nullable);
                BuilderParts::Map(vec![0], Box::new([PartBuilder::new(key, false), value]))
            }
            flat => match flat.width() {
                Some(width) => BuilderParts::Fixed(width, Vec::new()),
                None => BuilderParts::Bytes(StringBuilder::new(0)),
            },
        };
        PartBuilder { column_type, nullable, valid: BooleanBufferBuilder::new(0), parts }
    }

    /// Adds a null, also where the part may hold none: a null above may cover it.
    fn push_null(&mut self) -> Result<()> {
        self.valid.append(false);
        match &mut self.parts {
            BuilderParts::Fixed(width, bytes) => bytes.resize(bytes.len() + *width, 0),
            BuilderParts::Bytes(strings) => strings.end()?,
            BuilderParts::List(ends, _) | BuilderParts::Map(ends, _) => push_end(ends, 0)?,
            BuilderParts::Struct(fields) => {
                fields.iter_mut().try_for_each(PartBuilder::push_null)?
            }
        }
        Ok(())
    }

    /// Adds a value; `None` for bytes that encoding does not make.
    fn push(&mut self, cell: &[u8]) -> Result<Option<()>> {
        self.valid.append(true);
        match &mut self.parts {
            BuilderParts::Fixed(width, bytes) => {
                if cell.len() != *width || !is_value(self.column_type, cell) {
                    return Ok(None);
                }
                bytes.extend_from_slice(cell);
            }
            BuilderParts::Bytes(strings) => {
                strings.bytes.extend_from_slice(cell);
                strings.end()?;
            }
            BuilderParts::Struct(fields) => return push_fields(cell, fields),
            BuilderParts::List(ends, items) => {
                let Some(head) = CellHead::of(cell, None) else { return Ok(None) };
                let width = items.column_type.width();
                let parts = CellEnds::of_list(&head, items.column_type);
                let Some(mut parts) = parts else { return Ok(None) };
                for place in 0..head.count {
                    let Some(part) = parts.next(width) else { return Ok(None) };
                    if items.take(head.is_null(place), part)?.is_none() {
                        return Ok(None);
                    }
                }
                if !parts.is_whole() {
                    return Ok(None);
                }
                return push_end(ends, head.count).map(Some);
            }
            BuilderParts::Map(ends, pair) => {
                let Some(head) = CellHead::of(cell, None) else { return Ok(None) };
                let parts = CellEnds::new(&head, 0, head.count);
                let Some(mut parts) = parts else { return Ok(None) };
                for place in 0..head.count {
                    let Some(part) = parts.next(None).filter(|_| !head.is_null(place)) else {
                        return Ok(None);
                    };
                    if push_fields(part, pair.as_mut_slice())?.is_none() {
                        return Ok(None);
                    }
                }
                if !parts.is_whole() {
                    return Ok(None);
                }
                return push_end(ends, head.count).map(Some);
            }
        }
        Ok(Some(()))
    }

    /// Adds a part of a cell.
    fn take(&mut self, is_null: bool, part: &[u8]) -> Result<Option<()>> {
        match is_null {
            false => self.push(part),
            true if !self.nullable || (self.column_type.width().is_none() && !part.is_empty()) => {
                Ok(None)
            }
            true => self.push_null().map(Some),
        }
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let nulls = NullBuffer::new(self.valid.finish());
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        let column_type = self.column_type;
        let broken = |error: ArrowError| {
            Error::corruption("the bytes are no values of the column's type").caused_by(error)
        };
        match self.parts {
            BuilderParts::Fixed(_, bytes) => finish_fixed(column_type, bytes, nulls),
            BuilderParts::Bytes(strings) => strings.column(column_type, nulls),
            BuilderParts::List(ends, items) => {
                let ColumnType::List(field) = column_type else { return Err(other_type()) };
                let (ends, items) = (OffsetBuffer::new(ends.into()), items.finish()?);
                let list = ListArray::try_new(field.arrow(), ends, items, nulls).map_err(broken)?;
                Ok(Arc::new(list))
            }
            BuilderParts::Struct(fields) => {
                let DataType::Struct(names) = column_type.arrow() else { return Err(other_type()) };
                let fields = fields.into_iter().map(PartBuilder::finish);
                let fields = fields.collect::<Result<Vec<_>>>()?;
                Ok(Arc::new(StructArray::try_new(names, fields, nulls).map_err(broken)?))
            }
            BuilderParts::Map(ends, pair) => {
                let DataType::Map(entries, _) = column_type.arrow() else {
                    return Err(other_type());
                };
                let DataType::Struct(names) = entries.data_type() else { return Err(other_type()) };
                let [keys, values] = *pair;
                let pair = vec![keys.finish()?, values.finish()?];
                let pair = StructArray::try_new(names.clone(), pair, None).map_err(broken)?;
                let ends = OffsetBuffer::new(ends.into());
                let map = MapArray::try_new(entries, ends, pair, nulls, false).map_err(broken)?;
                Ok(Arc::new(map))
            }
        }
    }
}

fn other_type() -> Error {
    Error::internal("the builder of a nested column is of another type")
}

/// The fields of a cell that is a struct.
fn push_fields(cell: &[u8], fields: &mut [PartBuilder<'_>]) -> Result<Option<()>> {
    let Some(head) = CellHead::of(cell, Some(fields.len())) else { return Ok(None) };
    let strings = fields.iter().filter(|field| field.column_type.width().is_none()).count();
    let widths = fields.iter().filter_map(|field| field.column_type.width()).sum();
    let Some(mut parts) = CellEnds::new(&head, widths, strings) else { return Ok(None) };
    for (place, field) in fields.iter_mut().enumerate() {
        let Some(part) = parts.next(field.column_type.width()) else { return Ok(None) };
        if field.take(head.is_null(place), part)?.is_none() {
            return Ok(None);
        }
    }
    Ok(parts.is_whole().then_some(()))
}

/// Adds where a list of `count` items ends.
fn push_end(ends: &mut Vec<i32>, count: usize) -> Result<()> {
    let last = ends.last().copied().unwrap_or_default();
    let end = i32::try_from(count).ok().and_then(|count| last.checked_add(count));
    let end = end.ok_or_else(|| {
        Error::invalid("a column of these rows has over 2^31 items: decode fewer at a time")
    })?;
    ends.push(end);
    Ok(())
}

/// Walks over the parts of a cell: those of fixed width, and the others.
struct CellEnds<'a> {
    fixed: &'a [u8],
    ends: &'a [u8],
    end_bytes: usize,
    strings: &'a [u8],
    /// The end of the last string.
    at: usize,
}

impl<'a> CellEnds<'a> {
    /// The parts behind `head`: so many bytes of fixed width, and so many strings.
    fn new(head: &CellHead<'a>, fixed: usize, strings: usize) -> Option<CellEnds<'a>> {
        let mut rest = head.rest;
        let fixed = take(&mut rest, fixed)?;
        let ends = take(&mut rest, strings.checked_mul(head.end_bytes)?)?;
        let shortest = if strings == 0 { 1 } else { end_bytes(end_code(rest.len())) };
        let sound = shortest == head.end_bytes;
        let end_bytes = head.end_bytes;
        sound.then_some(CellEnds { fixed, ends, end_bytes, strings: rest, at: 0 })
    }

    /// The parts of a list of `items`.
    fn of_list(head: &CellHead<'a>, items: &ColumnType) -> Option<CellEnds<'a>> {
        match items.width() {
            Some(width) => CellEnds::new(head, width.checked_mul(head.count)?, 0),
            None => CellEnds::new(head, 0, head.count),
        }
    }

    /// The bytes of the next part.
    fn next(&mut self, width: Option<usize>) -> Option<&'a [u8]> {
        let Some(width) = width else {
            let end = number(&mut self.ends, self.end_bytes)?;
            let part = self.strings.get(self.at..end)?;
            self.at = end;
            return Some(part);
        };
        take(&mut self.fixed, width)
    }

    fn is_whole(&self) -> bool {
        self.fixed.is_empty() && self.ends.is_empty() && self.at == self.strings.len()
    }
}

/// Whether these bytes, whose number is right, are a value of the type.
fn is_value(column_type: &ColumnType, bytes: &[u8]) -> bool {
    match column_type {
        ColumnType::Boolean => matches!(bytes, [0 | 1]),
        ColumnType::Decimal { precision, .. } => {
            unscaled(bytes).unsigned_abs() < 10u128.pow(u32::from(*precision))
        }
        _ => true,
    }
}

/// The unscaled value of a decimal of 4, 8 or 16 bytes.
fn unscaled(bytes: &[u8]) -> i128 {
    let fill = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
    let mut whole = [fill; 16];
    whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    i128::from_le_bytes(whole)
}

/// The column of values of fixed width.
fn finish_fixed(
    column_type: &ColumnType,
    bytes: Vec<u8>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    macro_rules! array {
        ($kind:ty) => {{
            type Native = <$kind as ArrowPrimitiveType>::Native;
            let (values, _) = bytes.as_chunks();
            let values = values.iter().map(|bytes| Native::from_le_bytes(*bytes)).collect();
            numbers::<$kind>(values, nulls, column_type)
        }};
    }
    match column_type {
        ColumnType::Boolean => booleans(bytes.iter().map(|byte| *byte == 1).collect(), nulls),
        ColumnType::Int { bits: 8, signed: true } => array!(Int8Type),
        ColumnType::Int { bits: 16, signed: true } => array!(Int16Type),
        ColumnType::Int { bits: 32, signed: true } => array!(Int32Type),
        ColumnType::Int { signed: true, .. } => array!(Int64Type),
        ColumnType::Int { bits: 8, .. } => array!(UInt8Type),
        ColumnType::Int { bits: 16, .. } => array!(UInt16Type),
        ColumnType::Int { bits: 32, .. } => array!(UInt32Type),
        ColumnType::Int { .. } => array!(UInt64Type),
        ColumnType::Float { bits: 32 } => array!(Float32Type),
        ColumnType::Float { .. } => array!(Float64Type),
        ColumnType::Date => array!(Date32Type),
        ColumnType::Timestamp { unit, .. } => {
            let (values, _) = bytes.as_chunks();
            let values = values.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
            timestamps(values, nulls, *unit, column_type)
        }
        ColumnType::Decimal { .. } => {
            let width = column_type.width().unwrap_or(1);
            let values = bytes.chunks_exact(width).map(unscaled).collect();
            numbers::<Decimal128Type>(values, nulls, column_type)
        }
        ColumnType::FixedBinary(length) => fixed(*length, bytes, nulls),
        _ => Err(other_type()),
    }
}
