//! Decodes keys and values to columns.

use super::TableSchema;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::NullBuffer;
use arrow_schema::{Field, Schema, SchemaRef};
use siltstone_base::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

impl TableSchema {
    /// The Arrow schema of the columns at `wanted`, in that order.
    ///
    /// # Errors
    /// Invalid for a place that there is not.
    pub fn arrow_of(&self, wanted: &[usize]) -> Result<SchemaRef> {
        let wrong = |error| Error::invalid("no such column").caused_by(error);
        Ok(Arc::new(self.arrow().project(wanted).map_err(wrong)?))
    }

    /// The columns at `wanted` of these rows, in that order; no others are decoded. Where no column
    /// of the value is wanted, `values` is not looked at, and may be empty.
    ///
    /// # Errors
    /// As [`crate::KeySchema::decode`] and [`crate::ValueSchema::decode`].
    pub fn decode(
        &self,
        keys: &[&[u8]],
        values: &[&[u8]],
        wanted: &[usize],
    ) -> Result<RecordBatch> {
        let schema = self.arrow_of(wanted)?;
        let mut columns = self.decode_keys(keys, wanted)?;
        columns.extend(self.decode_values(&self.values, keys, values, wanted)?);
        batch(schema, &columns, wanted, keys.len())
    }

    /// As [`TableSchema::decode`], for rows of which some are absent: an absent row has nulls in
    /// all columns, also in those that the schema declares without nulls.
    ///
    /// # Errors
    /// As [`TableSchema::decode`].
    pub fn decode_found(
        &self,
        keys: &[&[u8]],
        values: &[Option<&[u8]>],
        wanted: &[usize],
    ) -> Result<RecordBatch> {
        let fields = self.arrow_of(wanted)?;
        let fields = fields.fields().iter();
        let schema: Vec<Field> =
            fields.map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let valid = NullBuffer::from_iter(values.iter().map(Option::is_some));
        let mut columns = self.decode_keys(keys, wanted)?;
        for column in columns.values_mut() {
            *column = masked(column, &valid)?;
        }
        let absent = self.values.all_null();
        let rows: Vec<&[u8]> = values.iter().map(|value| value.unwrap_or(&absent)).collect();
        columns.extend(self.decode_values(&self.values.lenient(), keys, &rows, wanted)?);
        batch(Arc::new(Schema::new(schema)), &columns, wanted, keys.len())
    }

    /// The key's columns among those wanted, by their places.
    fn decode_keys(&self, keys: &[&[u8]], wanted: &[usize]) -> Result<BTreeMap<usize, ArrayRef>> {
        let mut places: Vec<usize> = wanted.to_vec();
        places.retain(|place| *place < self.keys.columns().len());
        places.sort_unstable();
        places.dedup();
        let decoded = self.keys.decode(keys, &places);
        let decoded = decoded.map_err(|error| {
            let broken = keys.iter().find(|key| self.keys.decode(&[key], &places).is_err());
            naming(error, broken)
        })?;
        Ok(places.into_iter().zip(decoded).collect())
    }

    fn decode_values(
        &self,
        schema: &crate::ValueSchema,
        keys: &[&[u8]],
        values: &[&[u8]],
        wanted: &[usize],
    ) -> Result<BTreeMap<usize, ArrayRef>> {
        let before = self.keys.columns().len();
        let mut places: Vec<usize> =
            wanted.iter().filter_map(|place| place.checked_sub(before)).collect();
        places.sort_unstable();
        places.dedup();
        if places.is_empty() {
            return Ok(BTreeMap::new());
        }
        let decoded = schema.decode(values, &places).map_err(|error| {
            let mut rows = keys.iter().zip(values);
            let broken = rows.find(|(_, value)| schema.decode(&[value], &places).is_err());
            naming(error, broken.map(|(key, _)| key))
        })?;
        Ok(places.into_iter().map(|place| place + before).zip(decoded).collect())
    }
}

/// The error of a row that is none of the table, with its key: `row` counts within a batch that the
/// caller may not know.
fn naming(error: Error, key: Option<&&[u8]>) -> Error {
    match key {
        Some(key) => error.with("key", key.escape_ascii()),
        None => error,
    }
}

fn batch(
    schema: SchemaRef,
    columns: &BTreeMap<usize, ArrayRef>,
    wanted: &[usize],
    rows: usize,
) -> Result<RecordBatch> {
    let columns = wanted.iter().filter_map(|place| columns.get(place).cloned()).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
        .map_err(|error| Error::internal("columns are no record batch").caused_by(error))
}

/// `column`, with nulls where it is not valid.
fn masked(column: &ArrayRef, valid: &NullBuffer) -> Result<ArrayRef> {
    let nulls = NullBuffer::union(column.nulls(), Some(valid));
    let data = column.to_data().into_builder().nulls(nulls).build();
    let data = data.map_err(|error| Error::internal("nulls of a column").caused_by(error))?;
    Ok(make_array(data))
}
