//! The offsets of the columns of a generation in its rows.

use super::ValueColumn;
use crate::types::ColumnType;

/// Bytes before the bits of the nulls.
pub(super) const HEAD_BYTES: usize = 3;
/// The form of rows, in the low half of their first byte.
pub(super) const FORM: u8 = 1;

/// The place of a column in a value.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// As it is stored in this generation.
    pub(super) column_type: ColumnType,
    pub(super) place: Stored,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stored {
    /// From this byte on.
    At(usize),
    /// The so manyth of those that end somewhere.
    String(usize),
}

/// The rows of a generation.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) slots: Vec<Slot>,
    /// Bytes before the ends.
    pub(super) fixed: usize,
    /// The number of ends.
    pub(super) strings: usize,
}

impl Layout {
    pub(super) fn new(columns: &[ValueColumn], generation: u16) -> Layout {
        let there = columns.iter().filter(|column| column.since <= generation);
        let types: Vec<_> = there.map(|column| column.type_in(generation).clone()).collect();
        let mut fixed = HEAD_BYTES + types.len().div_ceil(8);
        let mut strings = 0;
        let slots = types.into_iter().map(|column_type| {
            let place = match column_type.width() {
                Some(width) => {
                    fixed += width;
                    Stored::At(fixed - width)
                }
                None => {
                    strings += 1;
                    Stored::String(strings - 1)
                }
            };
            Slot { column_type, place }
        });
        Layout { slots: slots.collect(), fixed, strings }
    }

    /// Bytes of the bits of the nulls.
    pub(super) fn null_bytes(&self) -> usize {
        self.slots.len().div_ceil(8)
    }
}
