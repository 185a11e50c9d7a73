//! Reads the staged tables of an ingest row by row for the change feed (rule W4).
//!
//! The feed must return exactly the staged rows: never compacted tables, which may lack rows.

use super::rows::ChangeRows;
use crate::manifests::objects::Objects;
use bytes::Bytes;
use siltstone_base::{
    Entry, Error, ErrorKind, Kind, Result, Seq, SstDescriptor, UnixMillis, checksum,
};
use siltstone_manifest::batch::decode_tables;
use siltstone_sst::wal::{WalBrings, WalIngest};
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
        let layers = match &ingest.brings {
            WalBrings::Tables(tables) => vec![decode_tables(tables)?],
            WalBrings::Job { job, digest } => {
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

    /// Appends the next row. Returns `false` if there is none.
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
                    rows.push(&Entry { seq: self.seq, ..entry }, time)?;
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
