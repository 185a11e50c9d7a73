//! What an ingest brought, row by row, as it was staged (rule W4).

use super::rows::ChangeRows;
use crate::io::store::retry::{limit_of, with_retries};
use crate::manifests::objects::Objects;
use bytes::Bytes;
use siltstone_base::{
    Entry, Error, ErrorKind, Kind, Result, Seq, SstDescriptor, UnixMillis, checksum,
};
use siltstone_manifest::batch::decode_tables;
use siltstone_sst::wal::{WalBrings, WalIngest};
use siltstone_sst::{Block, Table};

/// Where to stop: rows and bytes that there may be, and a place inside the ingest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OriginalsLimit {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    pub(crate) place: Option<(u32, u32)>,
}

/// The tables of an ingest in their order, and how far they were read.
pub(crate) struct Originals {
    objects: Objects,
    tables: Vec<(SstDescriptor, Seq)>,
    /// Tables that were read whole, and rows of the next one.
    at: (u32, u32),
    open: Option<OpenOriginal>,
}

/// One of the tables.
struct OpenOriginal {
    table: Table,
    bytes: Bytes,
    seq: Seq,
    /// Rows that come before those of the blocks: range deletes, which hide nothing of their own
    /// table.
    deletes: u32,
    /// The block that is read, the row in it, and the row of the table.
    block: Option<(u32, Block)>,
    position: usize,
    row: u32,
}

impl Originals {
    /// Those of `ingest`, from `at` on.
    ///
    /// # Errors
    /// Expired where they were collected; Corruption; the store's.
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
            return Err(Error::corruption("an ingest has other layers than the log says")
                .with("last sequence number of the ingest", ingest.last_seq()));
        }
        let mut tables = Vec::new();
        for (layer, seq) in layers.into_iter().zip(ingest.first_seq.get()..) {
            tables.extend(layer.into_iter().map(|table| (table, Seq(seq))));
        }
        Ok(Originals { objects: objects.clone(), tables, at, open: None })
    }

    /// How far it was read.
    pub(crate) fn at(&self) -> (u32, u32) {
        self.at
    }

    /// Whether all of it was.
    pub(crate) fn is_over(&self) -> bool {
        self.at.0 as usize >= self.tables.len()
    }

    /// Appends rows of one table; more may be left in it, or in others.
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
            Error::corruption("a table of an ingest has another length than was staged")
                .with("object", descriptor.name())
        };
        let in_bytes = tail.start as usize..tail.end as usize;
        let tail = bytes.get(in_bytes.clone()).map(|_| bytes.slice(in_bytes));
        let table = Table::open(descriptor.clone(), tail.ok_or_else(damaged)?)?;
        let deletes = table.range_deletes().spans().len() as u32;
        let mut open =
            OpenOriginal { table, bytes, seq, deletes, block: None, position: 0, row: 0 };
        // What was passed on is passed over.
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

    /// Makes a block the one that is read; whether it is there.
    fn load(&mut self, number: u32) -> Result<bool> {
        let Some(range) = self.table.block_range(number) else { return Ok(false) };
        let range = range.start as usize..range.end as usize;
        let bytes = self.bytes.get(range.clone()).map(|_| self.bytes.slice(range));
        let bytes = bytes.ok_or_else(|| Error::corruption("a block lies behind its table"))?;
        self.block = Some((number, self.table.decode_block(number, bytes)?));
        self.position = 0;
        Ok(true)
    }

    /// Appends the next row; whether there was one.
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
        // Bytes may be damaged on the way: what lies there is asked for once more.
        Some(bytes) if checksum::crc32c(&bytes) != table.checksum => {
            with_retries(&objects.env, limit, "read table", get).await
        }
        found => Ok(found),
    }
}

fn collected(ingest: &WalIngest) -> Error {
    Error::new(
        ErrorKind::Expired,
        "the feed has come to an ingest whose tables were compacted and collected: only a consumer \
         that holds the log keeps them; begin anew from a snapshot, or at the newest place",
    )
    .with("last sequence number of the ingest", ingest.last_seq())
}
