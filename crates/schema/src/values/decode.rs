//! Decodes values to columns: the heads of all rows are checked, then each requested column is read
//! in place; consecutive rows of one generation share a loop.

use super::layout::{FORM, HEAD_BYTES, Layout, Slot, Stored};
use super::{ValueColumn, ValueSchema};
use crate::column::{StringBuilder, booleans, end_bytes, end_code, fixed, numbers, timestamps};
use crate::nested::{self, BadCells};
use crate::types::ColumnType;
use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use siltstone_base::{Error, Result};

/// Rows of one layout that follow each other.
struct Run<'a> {
    layout: &'a Layout,
    /// Bytes of an end.
    end_bytes: usize,
    first: usize,
    rows: &'a [&'a [u8]],
}

impl ValueSchema {
    /// The columns of these values that `wanted` says, by their positions, in that order. Other
    /// columns are not touched.
    ///
    /// # Errors
    /// Corruption, with the row, for a value that no generation encodes; Unsupported for one of a
    /// later generation or form. Invalid for a column that there is not, and past 2 GiB of strings.
    pub fn decode(&self, values: &[&[u8]], wanted: &[usize]) -> Result<Vec<ArrayRef>> {
        let runs = self.runs(values)?;
        let columns = wanted.iter().map(|position| {
            let Some(column) = self.columns().get(*position) else {
                return Err(Error::invalid("no such column").with("position", position));
            };
            let reading = Reading { column, position: *position, runs: &runs, rows: values.len() };
            reading.read().map_err(|error| error.with("column", column.name()))
        });
        columns.collect()
    }

    /// The rows by their layouts, each checked for its length.
    fn runs<'a>(&'a self, values: &'a [&'a [u8]]) -> Result<Vec<Run<'a>>> {
        let mut runs: Vec<Run<'a>> = Vec::new();
        // The head that the rows of the run share.
        let mut head: Option<[u8; HEAD_BYTES]> = None;
        for (row, value) in values.iter().enumerate() {
            let found = value.first_chunk::<HEAD_BYTES>().ok_or_else(|| no_value(row))?;
            if head != Some(*found) {
                let (layout, end_bytes) = self.opened(*found, row)?;
                runs.push(Run { layout, end_bytes, first: row, rows: &[] });
                head = Some(*found);
            }
            let Some(run) = runs.last_mut() else { continue };
            run.check(value).ok_or_else(|| no_value(row))?;
            run.rows = values.get(run.first..=row).unwrap_or_default();
        }
        Ok(runs)
    }

    /// The layout and the bytes of an end that a head says.
    fn opened(&self, head: [u8; HEAD_BYTES], row: usize) -> Result<(&Layout, usize)> {
        let [form, low, high] = head;
        let generation = u16::from_le_bytes([low, high]);
        if form & 0x0f != FORM {
            let text = "this value has a form that is not known: it was put as plain bytes, or is \
                        of a newer version; read it with db.get or db.scan, and delete it with \
                        db.delete";
            return Err(Error::unsupported(text).with("row", row).with("form", form & 0x0f));
        }
        if generation > self.generation() {
            let text = "this value is of a newer generation of its schema: read the schema again";
            let error = Error::unsupported(text).with("row", row).with("generation", generation);
            return Err(error.with("known", self.generation()));
        }
        let layout = usize::from(generation).checked_sub(1).and_then(|at| self.layouts.get(at));
        let layout = layout.filter(|_| form >> 4 <= 2).ok_or_else(|| no_value(row))?;
        Ok((layout, end_bytes(form >> 4)))
    }
}

/// A value that encoding never makes.
fn no_value(row: usize) -> Error {
    let text = "this value has not the columns of the table: it was put as plain bytes, or is \
                damaged; read it with db.get or db.scan, and delete it with db.delete";
    Error::corruption(text).with("row", row)
}

impl Run<'_> {
    /// Bytes before the strings.
    fn head(&self) -> usize {
        self.layout.fixed + self.layout.strings * self.end_bytes
    }

    /// Whether a row is as long as it says; `None` if not.
    #[inline]
    fn check(&self, value: &[u8]) -> Option<()> {
        let strings = value.len().checked_sub(self.head())?;
        let said = match self.layout.strings.checked_sub(1) {
            None => 0,
            Some(last) => self.end(value, last)?,
        };
        let shortest = if self.layout.strings == 0 { 1 } else { end_bytes(end_code(strings)) };
        // Bits behind the last column's are not set.
        let over = self.layout.slots.len() % 8;
        let last = value.get(HEAD_BYTES + self.layout.slots.len() / 8);
        let clean = over == 0 || last.is_some_and(|bits| bits >> over == 0);
        (said == strings && shortest == self.end_bytes && clean).then_some(())
    }

    /// The end of a string.
    #[inline]
    fn end(&self, value: &[u8], string: usize) -> Option<usize> {
        let at = self.layout.fixed + string * self.end_bytes;
        Some(match self.end_bytes {
            1 => usize::from(*value.get(at)?),
            2 => usize::from(u16::from_le_bytes(*value.get(at..)?.first_chunk()?)),
            _ => usize::try_from(u32::from_le_bytes(*value.get(at..)?.first_chunk()?)).ok()?,
        })
    }

    /// The bytes of a string.
    #[inline]
    fn string<'a>(&self, value: &'a [u8], string: usize) -> Option<&'a [u8]> {
        let start = match string.checked_sub(1) {
            None => 0,
            Some(before) => self.end(value, before)?,
        };
        let end = self.end(value, string)?;
        value.get(self.head()..)?.get(start..end)
    }
}

/// A column on its way out.
struct Reading<'a> {
    column: &'a ValueColumn,
    position: usize,
    runs: &'a [Run<'a>],
    rows: usize,
}

/// The integer type that integers of any width are read as: the same type, or a wider one if the
/// column's type is wider today.
trait WidenedInteger:
    Default
    + TryFrom<i8>
    + TryFrom<i16>
    + TryFrom<i32>
    + TryFrom<i64>
    + TryFrom<i128>
    + TryFrom<u8>
    + TryFrom<u16>
    + TryFrom<u32>
    + TryFrom<u64>
{
}

macro_rules! whole {
    ($($number:ident),*) => { $(impl WidenedInteger for $number {})* };
}

whole!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

impl Reading<'_> {
    fn read(&self) -> Result<ArrayRef> {
        let nulls = self.nulls()?;
        let column_type = self.column.column_type();
        match column_type {
            ColumnType::Boolean => booleans(self.each(boolean)?, nulls),
            ColumnType::Int { bits: 8, signed: true } => self.ints::<Int8Type>(nulls),
            ColumnType::Int { bits: 16, signed: true } => self.ints::<Int16Type>(nulls),
            ColumnType::Int { bits: 32, signed: true } => self.ints::<Int32Type>(nulls),
            ColumnType::Int { signed: true, .. } => self.ints::<Int64Type>(nulls),
            ColumnType::Int { bits: 8, .. } => self.ints::<UInt8Type>(nulls),
            ColumnType::Int { bits: 16, .. } => self.ints::<UInt16Type>(nulls),
            ColumnType::Int { bits: 32, .. } => self.ints::<UInt32Type>(nulls),
            ColumnType::Int { .. } => self.ints::<UInt64Type>(nulls),
            ColumnType::Date => self.ints::<Date32Type>(nulls),
            ColumnType::Float { bits: 32 } => {
                numbers::<Float32Type>(self.each(float)?, nulls, column_type)
            }
            ColumnType::Float { .. } => {
                numbers::<Float64Type>(self.each(double)?, nulls, column_type)
            }
            ColumnType::Timestamp { unit, .. } => {
                timestamps(self.each(whole)?, nulls, *unit, column_type)
            }
            ColumnType::Decimal { precision, .. } => {
                let bound = 10u128.pow(u32::from(*precision));
                let values: Vec<i128> = self.each(whole)?;
                let beyond = values.iter().position(|value| value.unsigned_abs() >= bound);
                match beyond {
                    None => numbers::<Decimal128Type>(values, nulls, column_type),
                    Some(row) => Err(no_value(row)),
                }
            }
            ColumnType::FixedBinary(bytes) => self.fixed(*bytes, nulls),
            ColumnType::String | ColumnType::Binary => self.strings(nulls),
            ColumnType::List(_) | ColumnType::Struct(_) | ColumnType::Map { .. } => {
                let cells = self.strings(nulls)?;
                nested::decode(cells.as_binary(), column_type).map_err(|bad| match bad {
                    BadCells::Row(row) => no_value(row),
                    BadCells::Error(error) => error,
                })
            }
        }
    }

    /// The nulls of a column that has some.
    fn nulls(&self) -> Result<Option<NullBuffer>> {
        let mut valid = BooleanBufferBuilder::new(self.rows);
        for run in self.runs {
            if run.layout.slots.get(self.position).is_none() {
                valid.append_n(run.rows.len(), false);
                continue;
            }
            let (byte, bit) = (HEAD_BYTES + self.position / 8, 1 << (self.position % 8));
            for value in run.rows {
                valid.append(value.get(byte).is_some_and(|bits| bits & bit == 0));
            }
        }
        let nulls = NullBuffer::new(valid.finish());
        if nulls.null_count() == 0 {
            return Ok(None);
        }
        if !self.column.nullable() {
            let row = nulls.iter().position(|valid| !valid).unwrap_or_default();
            return Err(no_value(row));
        }
        Ok(Some(nulls))
    }

    fn ints<T: ArrowPrimitiveType<Native: WidenedInteger>>(
        &self,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        numbers::<T>(self.each(whole::<T::Native>)?, nulls, self.column.column_type())
    }

    /// The values of a column, a run at a time by `read`; the default where it is not there.
    fn each<T: Default>(
        &self,
        read: impl Fn(&mut Vec<T>, &Run<'_>, &ColumnType, usize) -> Option<()>,
    ) -> Result<Vec<T>> {
        let mut out = Vec::with_capacity(self.rows);
        for run in self.runs {
            match run.layout.slots.get(self.position) {
                Some(Slot { column_type, place: Stored::At(at) }) => {
                    // The number of values that were read before the failure is the row.
                    read(&mut out, run, column_type, *at).ok_or_else(|| no_value(out.len()))?;
                }
                _ => out.resize_with(out.len() + run.rows.len(), T::default),
            }
        }
        Ok(out)
    }

    fn fixed(&self, bytes: i32, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let length = usize::try_from(bytes).unwrap_or_default();
        let mut out = Vec::new();
        for run in self.runs {
            let Some(Slot { place: Stored::At(at), .. }) = run.layout.slots.get(self.position)
            else {
                out.resize(out.len() + run.rows.len() * length, 0);
                continue;
            };
            for (row, value) in run.rows.iter().enumerate() {
                let found =
                    value.get(*at..*at + length).ok_or_else(|| no_value(run.first + row))?;
                out.extend_from_slice(found);
            }
        }
        fixed(bytes, out, nulls)
    }

    fn strings(&self, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let mut out = StringBuilder::new(self.rows);
        for run in self.runs {
            let slot = run.layout.slots.get(self.position);
            for (row, value) in run.rows.iter().enumerate() {
                if let Some(Slot { place: Stored::String(string), .. }) = slot {
                    let found = run.string(value, *string);
                    out.bytes.extend_from_slice(found.ok_or_else(|| no_value(run.first + row))?);
                }
                out.end()?;
            }
        }
        out.column(self.column.column_type(), nulls)
    }
}

/// The `N` bytes at `at` of every row of a run, as `convert` makes of them.
#[inline]
fn numbers_at<const N: usize, T>(
    out: &mut Vec<T>,
    run: &Run<'_>,
    at: usize,
    convert: impl Fn([u8; N]) -> Option<T>,
) -> Option<()> {
    for value in run.rows {
        out.push(convert(*value.get(at..)?.first_chunk::<N>()?)?);
    }
    Some(())
}

fn boolean(out: &mut Vec<bool>, run: &Run<'_>, _: &ColumnType, at: usize) -> Option<()> {
    numbers_at(out, run, at, |[byte]| match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    })
}

fn float(out: &mut Vec<f32>, run: &Run<'_>, _: &ColumnType, at: usize) -> Option<()> {
    numbers_at(out, run, at, |bytes| Some(f32::from_le_bytes(bytes)))
}

fn double(out: &mut Vec<f64>, run: &Run<'_>, stored: &ColumnType, at: usize) -> Option<()> {
    match stored {
        ColumnType::Float { bits: 32 } => {
            numbers_at(out, run, at, |bytes| Some(f64::from(f32::from_le_bytes(bytes))))
        }
        _ => numbers_at(out, run, at, |bytes| Some(f64::from_le_bytes(bytes))),
    }
}

fn whole<T: WidenedInteger>(
    out: &mut Vec<T>,
    run: &Run<'_>,
    stored: &ColumnType,
    at: usize,
) -> Option<()> {
    macro_rules! read {
        ($number:ident) => {
            numbers_at(out, run, at, |bytes| T::try_from($number::from_le_bytes(bytes)).ok())
        };
    }
    match (stored, stored.width()?) {
        (ColumnType::Int { signed: false, .. }, 1) => read!(u8),
        (ColumnType::Int { signed: false, .. }, 2) => read!(u16),
        (ColumnType::Int { signed: false, .. }, 4) => read!(u32),
        (ColumnType::Int { signed: false, .. }, _) => read!(u64),
        (_, 1) => read!(i8),
        (_, 2) => read!(i16),
        (_, 4) => read!(i32),
        (_, 8) => read!(i64),
        _ => read!(i128),
    }
}
