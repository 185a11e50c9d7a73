//! Reads the staged tables of an ingest row by row for the change feed (rule W4).
//!
//! The feed must return exactly the staged rows: never compacted tables, which may lack rows, and
//! no delete that is in a table only because of its format.

use super::rows::ChangeRows;
use crate::manifests::objects::Objects;
use bytes::Bytes;
use siltstone_base::open_end::GREATEST_KEY;
use siltstone_base::{
    Cover, Entry, Error, ErrorKind, Kind, Result, Seq, SstDescriptor, UnixMillis, checksum,
};
use siltstone_manifest::batch::decode_tables;
use siltstone_sst::wal::{WalIngest, WalIngestContent};
use siltstone_sst::{Block, Table};
use siltstone_store::retry::{limit_of, with_retries};

/// Limits of one read: number of rows, bytes, and a position inside the ingest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OriginalsLimit {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    pub(crate) place: Option<(u32, u32)>,
}

/// The tables of an ingest in their order, and the position up to which they were read.
pub(crate) struct Originals {
    objects: Objects,
    tables: Vec<(SstDescriptor, Seq)>,
    /// Number of tables that were read completely, and number of rows read of the next table.
    at: (u32, u32),
    open: Option<OpenOriginal>,
}

/// A table of an ingest that is being read.
struct OpenOriginal {
    table: Table,
    bytes: Bytes,
    seq: Seq,
    /// The range deletes of the table. They come before the rows of its blocks, since a range
    /// delete does not hide rows of its own table.
    deletes: u32,
    /// The current block, the row in it, and the row in the table.
    block: Option<(u32, Block)>,
    position: usize,
    row: u32,
}

impl Originals {
    /// Opens the tables of `ingest`, to read from the position `at`.
    ///
    /// # Errors
    /// Expired if the tables were deleted; Corruption; errors of the store.
    pub(crate) async fn open(
        objects: &Objects,
        ingest: &WalIngest,
        at: (u32, u32),
    ) -> Result<Originals> {
        let layers = match &ingest.content {
            WalIngestContent::Tables(tables) => vec![decode_tables(tables)?],
            WalIngestContent::Job { job, digest } => {
                let closed = objects.closed_job(*job).await?;
                let closed = closed.filter(|closed| closed.digest() == *digest);
                closed.ok_or_else(|| collected(ingest))?.layers
            }
        };
        if layers.len() != ingest.numbers as usize {
            return Err(Error::corruption("the layers of an ingest differ from its log record")
                .with("last sequence number of the ingest", ingest.last_seq()));
        }
        let mut tables = Vec::new();
        for (layer, seq) in layers.into_iter().zip(ingest.first_seq.get()..) {
            tables.extend(layer.into_iter().map(|table| (table, Seq(seq))));
        }
        Ok(Originals { objects: objects.clone(), tables, at, open: None })
    }

    /// The position: tables read completely, and rows read of the next table.
    pub(crate) fn at(&self) -> (u32, u32) {
        self.at
    }

    /// Whether the whole ingest was read.
    pub(crate) fn is_over(&self) -> bool {
        self.at.0 as usize >= self.tables.len()
    }

    /// Appends rows of one table, up to the limits. Rows may be left in this table and in others.
    ///
    /// # Errors
    /// As [`Originals::open`].
    pub(crate) async fn fill(
        &mut self,
        ingest: &WalIngest,
        time: UnixMillis,
        until: OriginalsLimit,
        rows: &mut ChangeRows,
    ) -> Result<()> {
        let Some((descriptor, seq)) = self.tables.get(self.at.0 as usize) else { return Ok(()) };
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let bytes = whole(&self.objects, descriptor).await?;
                let bytes = bytes.ok_or_else(|| collected(ingest))?;
                OpenOriginal::new(descriptor, *seq, bytes, self.at.1)?
            }
        };
        let last = until.place.filter(|(table, _)| *table == self.at.0).map(|(_, row)| row);
        loop {
            let full = rows.len() >= until.rows || rows.bytes() >= until.bytes;
            if full || last == Some(open.row) {
                self.at.1 = open.row;
                self.open = Some(open);
                return Ok(());
            }
            if !open.push_next(rows, time)? {
                self.at = (self.at.0 + 1, 0);
                return Ok(());
            }
        }
    }
}

impl OpenOriginal {
    fn new(descriptor: &SstDescriptor, seq: Seq, bytes: Bytes, from: u32) -> Result<OpenOriginal> {
        let tail = Table::tail_range(descriptor);
        let damaged = || {
            Error::corruption("a table of an ingest differs in length from the staged table")
                .with("object", descriptor.name())
        };
        let in_bytes = tail.start as usize..tail.end as usize;
        let tail = bytes.get(in_bytes.clone()).map(|_| bytes.slice(in_bytes));
        let table = Table::open(descriptor.clone(), tail.ok_or_else(damaged)?)?;
        let deletes = table.range_deletes().spans().len() as u32;
        let mut open =
            OpenOriginal { table, bytes, seq, deletes, block: None, position: 0, row: 0 };
        // Skip the rows that were returned before.
        let mut block = 0;
        open.row = from.min(deletes);
        while open.row < from && open.load(block)? {
            let rows = open.block.as_ref().map_or(0, |(_, block)| block.len());
            open.position = rows.min((from - open.row) as usize);
            open.row += open.position as u32;
            block += 1;
        }
        Ok(open)
    }

    /// Loads a block as the current one. Returns `false` after the last block.
    fn load(&mut self, number: u32) -> Result<bool> {
        let Some(range) = self.table.block_range(number) else { return Ok(false) };
        let range = range.start as usize..range.end as usize;
        let bytes = self.bytes.get(range.clone()).map(|_| self.bytes.slice(range));
        let bytes = bytes.ok_or_else(|| Error::corruption("a block ends after its table"))?;
        self.block = Some((number, self.table.decode_block(number, bytes)?));
        self.position = 0;
        Ok(true)
    }

    /// Appends the next row, or skips a delete that repeats a range delete. A skipped row counts in
    /// the position, so that positions in tokens do not depend on what is skipped. Returns `false`
    /// if there is no row.
    fn push_next(&mut self, rows: &mut ChangeRows, time: UnixMillis) -> Result<bool> {
        if self.row < self.deletes {
            if let Some(delete) = self.table.range_deletes().spans().get(self.row as usize) {
                let (key, value) = (&delete.start[..], &delete.end[..]);
                let (seq, kind) = (self.seq, Kind::RangeDelete);
                rows.push(&Entry { key, seq, kind, expires_at: None, value }, time)?;
            }
            self.row += 1;
            return Ok(true);
        }
        loop {
            if let Some((number, block)) = &self.block {
                if let Some(entry) = block.entry(self.position) {
                    if !repeats_range_delete(&entry, self.table.range_deletes()) {
                        rows.push(&Entry { seq: self.seq, ..entry }, time)?;
                    }
                    self.position += 1;
                    self.row += 1;
                    return Ok(true);
                }
                let next = number + 1;
                if !self.load(next)? {
                    return Ok(false);
                }
            } else if !self.load(0)? {
                return Ok(false);
            }
        }
    }
}

/// Whether `entry` adds nothing to the range deletes of its table, which the feed returns before
/// the rows of the table. No user made such a delete: tables of parts and of large batches have no
/// range deletes. A table that only replaces a range has one for one of two reasons:
///
/// - A table needs an entry, so the builder deletes the first key of the range again. Every delete
///   of a key that a range delete of at least its number covers is without effect: the key has no
///   value after the range delete, and its table has no other entry of it.
/// - No range delete can end after the greatest possible key. A range without an end therefore ends
///   before that key, and a delete of the key completes it. It is part of the range delete,
///   although it is not covered: a table with a schema could not decode its key.
///
/// Any other delete is a change: a delete outside the ranges, and a newer one.
fn repeats_range_delete(entry: &Entry<'_>, deletes: &Cover) -> bool {
    if entry.kind != Kind::Delete {
        return false;
    }
    let spans = deletes.spans();
    let next = spans.partition_point(|span| *span.end <= *entry.key);
    let covering = spans.get(next).filter(|span| span.covers(entry.key));
    let open_end = spans.last().filter(|last| entry.key == GREATEST_KEY && last.end == entry.key);
    covering.or(open_end).is_some_and(|span| entry.seq <= span.seq)
}

async fn whole(objects: &Objects, table: &SstDescriptor) -> Result<Option<Bytes>> {
    let get = || objects.env.store.get(table.name(), None);
    let limit = limit_of(objects.limit, table.object_bytes);
    match with_retries(&objects.env, limit, "read table", get).await? {
        // The bytes may be damaged only in transfer: read them once more.
        Some(bytes) if checksum::crc32c(&bytes) != table.checksum => {
            with_retries(&objects.env, limit, "read table", get).await
        }
        found => Ok(found),
    }
}

fn collected(ingest: &WalIngest) -> Error {
    Error::new(
        ErrorKind::Expired,
        "the feed needs an ingest whose tables were compacted and deleted: only a consumer \
         that holds the log retains them; begin again from a snapshot, or at the newest change",
    )
    .with("last sequence number of the ingest", ingest.last_seq())
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_base::RangeDelete;

    fn cover(ranges: &[(&[u8], &[u8], u64)]) -> Cover {
        let range =
            |&(start, end, seq): &(&[u8], &[u8], u64)| RangeDelete::new(start, end, Seq(seq));
        Cover::of(ranges.iter().map(range).collect())
    }

    fn repeats(key: &[u8], seq: u64, kind: Kind, deletes: &Cover) -> bool {
        let entry = Entry { key, seq: Seq(seq), kind, expires_at: None, value: &[] };
        repeats_range_delete(&entry, deletes)
    }

    /// Staged tables have the number 0 everywhere, which must not read as "no range delete".
    #[test]
    fn a_covered_delete_repeats_its_range_delete() {
        for seq in [0, 7] {
            let deletes = cover(&[(b"b", b"d", seq), (b"m", b"p", seq)]);
            for key in [&b"b"[..], b"c\xff", b"m", b"o"] {
                assert!(repeats(key, seq, Kind::Delete, &deletes), "{key:?} at {seq}");
            }
        }
        // If ranges overlap, the newest one counts.
        let deletes = cover(&[(b"a", b"z", 3), (b"m", b"p", 9)]);
        assert!(repeats(b"n", 9, Kind::Delete, &deletes));
        assert!(repeats(b"a", 3, Kind::Delete, &deletes));
    }

    #[test]
    fn every_other_entry_is_a_change() {
        let deletes = cover(&[(b"b", b"d", 7), (b"m", b"p", 7)]);
        for key in [&b"a\xff"[..], b"d", b"l", b"p", &GREATEST_KEY] {
            assert!(!repeats(key, 7, Kind::Delete, &deletes), "{key:?}");
        }
        assert!(!repeats(b"b", 8, Kind::Delete, &deletes), "it is newer than the range delete");
        assert!(!repeats(b"b", 7, Kind::Put, &deletes));
        assert!(!repeats(b"b", 7, Kind::Merge, &deletes));
        assert!(!repeats(b"b", 7, Kind::Delete, &Cover::default()));
        assert!(!repeats(&GREATEST_KEY, 0, Kind::Delete, &Cover::default()));
    }

    #[test]
    fn the_delete_of_the_greatest_key_completes_a_range_without_an_end() {
        let deletes = cover(&[(b"b", b"d", 0), (b"m", &GREATEST_KEY, 0)]);
        assert!(repeats(&GREATEST_KEY, 0, Kind::Delete, &deletes));
        assert!(!repeats(&GREATEST_KEY, 1, Kind::Delete, &deletes));
        assert!(!repeats(&GREATEST_KEY, 0, Kind::Put, &deletes));
        assert!(!repeats(&GREATEST_KEY[1..], 1, Kind::Delete, &deletes));
    }
}
