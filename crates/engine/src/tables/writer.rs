//! Writes a table into its own file, from rows in order or in any order.

use super::sorter::Sorter;
use super::table::TableInfo;
use crate::options::Options;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::entry::{check_key, check_value};
use siltstone_base::id::ulid_bits;
use siltstone_base::{
    AttemptId, DatabaseId, Entry, Envelope, Error, Kind, ObjectId, ObjectKind, Result, Seq,
    UnixMillis,
};
use siltstone_sst::TableBuilder;
use siltstone_store::Upload;
use siltstone_store::env::Effects;
use std::fmt;
use std::path::PathBuf;

/// Chunk size of an upload, and bytes that are built before other tasks may run: about 10 ms of one
/// core.
const SLICE_BYTES: usize = 4 << 20;

/// The treatment of rows that have equal keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// Return an error that names both rows.
    #[default]
    Refuse,
    /// The row that came last counts.
    KeepLast,
}

/// How a table is written.
#[derive(Clone, Debug)]
pub struct TableWriterOptions {
    /// Block size, codec and filter; other options have no effect.
    pub options: Options,
    /// Whether rows may come in any order. Otherwise they must ascend.
    pub sort: bool,
    /// The treatment of equal keys.
    pub duplicates: Duplicates,
    /// Memory for sorting, in bytes; further rows go to temporary files.
    pub sort_memory_bytes: usize,
    /// The existing folder of these files.
    pub scratch: PathBuf,
}

/// The result of adding a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "rows that are not relieved pile up in memory"]
pub enum PushResult {
    /// There is room for more.
    Room,
    /// Await [`TableWriter::relieve`] before the next row.
    Full,
}

/// Writes one table. Rows are counted from 0 in the order in which they come.
pub struct TableWriter {
    effects: Effects,
    output: Output,
    sorter: Option<Sorter>,
    duplicates: Duplicates,
    rows: u64,
    /// A call has failed or was cancelled, and rows may be lost, so further calls fail.
    broken: bool,
}

impl TableWriter {
    /// A writer into `upload`. The table gets a new id and belongs to no database.
    #[must_use]
    pub fn new(effects: Effects, upload: Box<dyn Upload>, how: TableWriterOptions) -> TableWriter {
        let random = || {
            let high = u128::from(effects.random.next_u64());
            (high << 64) | u128::from(effects.random.next_u64())
        };
        let id = ObjectId(ulid_bits(effects.clock.now().0, random()));
        let attempt = AttemptId(random());
        let envelope = Envelope::new(ObjectKind::Table, DatabaseId::NONE, id, attempt);
        let output = Output {
            upload: Some(upload),
            builder: Some(TableBuilder::new(how.options.table_options(), envelope)),
            chunk: None,
            held: LastRow::default(),
            key_bytes: 0,
            value_bytes: 0,
        };
        let sorter =
            how.sort.then(|| Sorter::new(effects.clone(), how.sort_memory_bytes, how.scratch));
        let duplicates = how.duplicates;
        TableWriter { effects, output, sorter, duplicates, rows: 0, broken: false }
    }

    /// Number of added rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row of kind put or delete (without a value).
    ///
    /// # Errors
    /// Invalid for an invalid key or value, and for a row that does not ascend if rows must; the
    /// writer is unchanged then. Invalid too after an earlier failure.
    pub fn push(
        &mut self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        expires_at: Option<UnixMillis>,
    ) -> Result<PushResult> {
        self.check_whole()?;
        check_key(key)?;
        check_value(value)?;
        let seq = Seq(self.rows + 1);
        let entry = Entry { key, seq, kind, expires_at, value };
        let full = match &mut self.sorter {
            Some(sorter) => sorter.push(&entry)?,
            None => self.output.in_order(&entry, self.duplicates)?,
        };
        self.rows += 1;
        Ok(if full { PushResult::Full } else { PushResult::Room })
    }

    /// Frees memory by writing its rows.
    ///
    /// # Errors
    /// Unavailable, Denied, as the store or the file system reports. The writer cannot be used any
    /// more then.
    pub fn relieve(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.check_whole()?;
            // It stays set if this future is dropped.
            self.broken = true;
            match &mut self.sorter {
                Some(sorter) => sorter.spill().await?,
                None => self.output.send().await?,
            }
            self.broken = false;
            Ok(())
        })
    }

    /// Makes all later calls fail, because rows were refused halfway.
    pub fn give_up(&mut self) {
        self.broken = true;
    }

    /// Completes the table, which is whole and durable then.
    ///
    /// # Errors
    /// Invalid if there are no rows, and for equal keys that are refused, with both rows;
    /// Unavailable, Denied, as the store reports. No object has the name then.
    pub fn finish(mut self) -> BoxFuture<'static, Result<TableInfo>> {
        async move {
            let finished = self.write_out().await;
            if finished.is_err()
                && let Some(upload) = self.output.upload.take()
            {
                // The first error matters, not that of the abort.
                let _ = upload.abort().await;
            }
            finished
        }
        .boxed()
    }

    async fn write_out(&mut self) -> Result<TableInfo> {
        self.check_whole()?;
        if self.rows == 0 {
            return Err(Error::invalid("a table needs at least one row; none was added"));
        }
        if let Some(sorter) = self.sorter.take() {
            let mut sorted = sorter.finish().await?;
            while sorted.advance().await? {
                let Some(entry) = sorted.entry() else {
                    return Err(Error::internal("a sort has no current row"));
                };
                if self.output.sorted(&entry, self.duplicates)? {
                    self.output.send().await?;
                    // Let other tasks run between two slices.
                    self.effects.clock.sleep(std::time::Duration::ZERO).await;
                }
            }
        }
        self.output.finish().await
    }

    /// Aborts. Nothing is left, as far as the store allows.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn abort(mut self) -> BoxFuture<'static, Result<()>> {
        async move {
            match self.output.upload.take() {
                Some(upload) => upload.abort().await,
                None => Ok(()),
            }
        }
        .boxed()
    }

    fn check_whole(&self) -> Result<()> {
        if self.broken {
            return Err(Error::invalid("an earlier call of this writer failed; begin another one"));
        }
        Ok(())
    }
}

impl fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWriter").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// The table, from rows in order.
struct Output {
    upload: Option<Box<dyn Upload>>,
    /// `None` once the table is finished.
    builder: Option<TableBuilder>,
    /// Finished bytes that are not sent yet.
    chunk: Option<bytes::Bytes>,
    held: LastRow,
    key_bytes: u64,
    value_bytes: u64,
}

/// The last row. With ordered rows the next row is compared with it, and a later row with an equal
/// key may replace it.
#[derive(Default)]
struct LastRow {
    key: Vec<u8>,
    value: Vec<u8>,
    kind: Option<Kind>,
    expires_at: Option<UnixMillis>,
    /// Position, counted from 1; 0 if there is none.
    seq: Seq,
}

impl LastRow {
    fn take_key(&mut self, entry: &Entry<'_>) {
        self.seq = entry.seq;
        self.key.clear();
        self.key.extend_from_slice(entry.key);
    }
}

/// The text for equal keys that are refused. The option has one name in all languages.
const EQUAL_KEYS: &str = "two rows have the same key; remove one of them, or choose another value \
                          than duplicates=\"error\"";

/// Converts a position that is counted from 1 to a row that is counted from 0.
fn row(seq: Seq) -> u64 {
    seq.minus(1).get()
}

/// The error for two rows with equal keys, at these positions.
pub(super) fn equal_keys(before: Seq, now: Seq) -> Error {
    named_twice(Error::invalid(EQUAL_KEYS), row(before), row(now))
}

/// As [`equal_keys`], with the key and with rows that are counted from 0.
pub(super) fn equal_keys_of_load(key: &[u8], before: u64, now: u64) -> Error {
    named_twice(Error::invalid(EQUAL_KEYS).with("key", key.escape_ascii()), before, now)
}

fn named_twice(error: Error, before: u64, now: u64) -> Error {
    error.with("row", before.min(now)).with("other row", before.max(now))
}

fn finished() -> Error {
    Error::internal("a table was finished twice")
}

impl Output {
    /// Adds a row of ordered input. Returns `true` if [`Output::send`] is due.
    fn in_order(&mut self, entry: &Entry<'_>, duplicates: Duplicates) -> Result<bool> {
        let before = self.held.seq;
        if !before.is_none() && entry.key <= self.held.key.as_slice() {
            if entry.key < self.held.key.as_slice() {
                let text = "rows must come in ascending order of their keys, except with sort=True";
                let error = Error::invalid(text).with("row", row(entry.seq));
                return Err(error.with("previous row", row(before)));
            }
            if duplicates == Duplicates::Refuse {
                return Err(equal_keys(before, entry.seq));
            }
        }
        let full = match duplicates {
            Duplicates::Refuse => self.add(entry)?,
            Duplicates::KeepLast if entry.key == self.held.key.as_slice() => false,
            Duplicates::KeepLast => self.release()?,
        };
        self.held.take_key(entry);
        if duplicates == Duplicates::KeepLast {
            self.held.kind = Some(entry.kind);
            self.held.expires_at = entry.expires_at;
            self.held.value.clear();
            self.held.value.extend_from_slice(entry.value);
        }
        Ok(full)
    }

    /// Adds the held row, for which no row with an equal key came.
    fn release(&mut self) -> Result<bool> {
        let Some(kind) = self.held.kind.take() else { return Ok(false) };
        let held = std::mem::take(&mut self.held);
        let full = self.add(&Entry {
            key: &held.key,
            seq: held.seq,
            kind,
            expires_at: held.expires_at,
            value: &held.value,
        });
        self.held = held;
        full
    }

    /// Adds a row of sorted output, in which the last of equal keys comes first. Returns `true` if
    /// [`Output::send`] is due.
    fn sorted(&mut self, entry: &Entry<'_>, duplicates: Duplicates) -> Result<bool> {
        if !self.held.seq.is_none() && entry.key == self.held.key.as_slice() {
            return match duplicates {
                Duplicates::Refuse => Err(equal_keys(self.held.seq, entry.seq)),
                Duplicates::KeepLast => Ok(false),
            };
        }
        let full = self.add(entry)?;
        self.held.take_key(entry);
        Ok(full)
    }

    /// Adds a row to the table at sequence number 0. It is older than every row that is written to
    /// a database, until an ingest assigns a number to the whole table.
    fn add(&mut self, entry: &Entry<'_>) -> Result<bool> {
        let builder = self.builder.as_mut().ok_or_else(finished)?;
        builder.add(&Entry { seq: Seq::NONE, ..*entry })?;
        self.key_bytes += entry.key.len() as u64;
        self.value_bytes += entry.value.len() as u64;
        if self.chunk.is_none() {
            self.chunk = builder.take_chunk(SLICE_BYTES);
        }
        Ok(self.chunk.is_some())
    }

    fn upload(&mut self) -> Result<&mut Box<dyn Upload>> {
        self.upload.as_mut().ok_or_else(finished)
    }

    async fn send(&mut self) -> Result<()> {
        match self.chunk.take() {
            Some(chunk) => self.upload()?.write(chunk).await,
            None => Ok(()),
        }
    }

    async fn finish(&mut self) -> Result<TableInfo> {
        self.release()?;
        self.send().await?;
        let builder = self.builder.take().ok_or_else(finished)?;
        let (rest, descriptor) = builder.finish()?;
        self.upload()?.write(rest).await?;
        self.upload.take().ok_or_else(finished)?.finish().await?;
        Ok(TableInfo::new(&descriptor, self.key_bytes, self.value_bytes))
    }
}
