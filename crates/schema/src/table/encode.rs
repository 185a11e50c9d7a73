//! Encodes columns, matched by name, to keys and values.

use super::TableSchema;
use crate::conform::conformed;
use crate::rows::Rows;
use crate::types::ColumnType;
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use siltstone_base::{Error, Result};

impl TableSchema {
    /// The keys of these rows, by the columns' names; others than the key's are not looked at.
    ///
    /// # Errors
    /// Invalid for a column that is missing, and as [`crate::KeySchema::encode`].
    pub fn encode_keys(&self, rows: &RecordBatch) -> Result<Rows> {
        self.keys.encode(&self.key_columns(rows)?)
    }

    /// The key and the value of these rows, by the columns' names, in any order. A column of the
    /// value that may hold nulls may be missing: it is null, as for who wrote before it came.
    ///
    /// # Errors
    /// Invalid for a column that is missing or that the table has not, and as
    /// [`crate::KeySchema::encode`] and [`crate::ValueSchema::encode`].
    pub fn encode(&self, rows: &RecordBatch) -> Result<(Rows, Rows)> {
        let columns = self.arrow();
        for field in rows.schema_ref().fields() {
            let is_known = columns.column_with_name(field.name()).is_some();
            if !is_known && !is_index_of_pandas(field.name()) {
                return Err(self.no_column(field.name()));
            }
        }
        let keys = self.encode_keys(rows)?;
        let values = self.values.columns().iter().map(|column| {
            let missing = || column.nullable().then(|| nulls(column.column_type(), rows));
            let found = given(rows, column.name(), column.column_type())?.or_else(missing);
            found.ok_or_else(|| is_missing(column.name()))
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        Ok((keys, self.values.encode(&values, rows.num_rows())?))
    }

    fn key_columns(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let columns = self.keys.columns().iter().map(|column| {
            let found = given(rows, &column.name, &column.column_type)?;
            found.ok_or_else(|| is_missing(&column.name))
        });
        columns.collect()
    }
}

/// Whether pandas gave a column this name: that of an index without a name, which frames bring
/// along once rows were filtered.
fn is_index_of_pandas(name: &str) -> bool {
    let level = name.strip_prefix("__index_level_").and_then(|rest| rest.strip_suffix("__"));
    level.is_some_and(|level| !level.is_empty() && level.bytes().all(|b| b.is_ascii_digit()))
}

/// The column of this name, as the type that is wanted; `None` where there is none.
fn given(rows: &RecordBatch, name: &str, wanted: &ColumnType) -> Result<Option<ArrayRef>> {
    let fields = rows.schema_ref().fields().iter();
    let mut places = fields.enumerate().filter(|(_, field)| field.name() == name);
    let first = places.next();
    if places.next().is_some() {
        return Err(Error::invalid("two columns have one name").with("column", name));
    }
    first.map(|(place, _)| conformed(rows.column(place), wanted, name)).transpose()
}

fn nulls(column_type: &ColumnType, rows: &RecordBatch) -> ArrayRef {
    new_null_array(&column_type.arrow(), rows.num_rows())
}

fn is_missing(name: &str) -> Error {
    Error::invalid("a column is missing, and may hold no nulls").with("column", name)
}
