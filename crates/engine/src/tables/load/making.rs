//! Makes tables from ordered rows: builds them on blocking threads and sends them as they are
//! built.

use super::Maker;
use super::heap::SortedPart;
use super::piece::Ordered;
use super::runs::RunRange;
use crate::tables::staged::OpenPart;
use bytes::Bytes;
use siltstone_base::{Entry, Error, Kind, Result, Seq, SstDescriptor};
use siltstone_store::env::Env;

/// Ordered rows from any source.
pub(super) enum Making {
    /// Rows that came in order.
    Piece(Ordered),
    /// A sorted part of a heap.
    Heap(SortedPart),
    /// A range of runs, merged.
    Runs(Box<RunRange>),
}

/// Why filling returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FillResult {
    /// Bytes are ready to be sent.
    Chunk,
    /// The table is full, and a row is left.
    Full,
    /// Blocks of a run are missing.
    Lacks,
    /// No row is left.
    End,
}

/// A table that takes rows.
pub(super) struct Target {
    part: OpenPart,
    /// Bytes that are ready to be sent.
    chunk: Option<Bytes>,
    /// Bytes of rows since the last progress report.
    bytes: u64,
}

impl Target {
    /// Adds a row. Returns `true` if bytes are ready to be sent.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.chunk = self.part.add(&Entry {
            key,
            seq: Seq::NONE,
            kind: Kind::Put,
            expires_at: None,
            value,
        })?;
        self.bytes += (key.len() + value.len()) as u64;
        Ok(self.chunk.is_some())
    }

    /// The last key that was added.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        (self.part.builder.entries() > 0).then(|| self.part.builder.last_key())
    }

    /// Bytes of its rows.
    pub(super) fn row_bytes(&self) -> u64 {
        self.part.bytes
    }
}

impl Making {
    fn fill(&mut self, target: &mut Target, table_bytes: u64) -> Result<FillResult> {
        match self {
            Making::Piece(rows) => rows.fill(target),
            Making::Heap(rows) => rows.fill(target, table_bytes),
            Making::Runs(rows) => rows.fill(target, table_bytes),
        }
    }

    /// Fills the table and writes chunks that the store accepts immediately. Returns if it has to
    /// wait, or at the end.
    fn slice(&mut self, target: &mut Target, maker: &Maker) -> Result<FillResult> {
        loop {
            maker.check()?;
            let filled = self.fill(target, maker.how.table_bytes);
            maker.progress.add(std::mem::take(&mut target.bytes));
            let filled = filled?;
            if filled != FillResult::Chunk {
                return Ok(filled);
            }
            let Some(chunk) = &target.chunk else { return Ok(filled) };
            match target.part.upload.write_now(chunk) {
                Some(written) => written?,
                None => return Ok(FillResult::Chunk),
            }
        }
    }
}

/// Makes tables of all rows. If the load exceeds memory, the tables bypass the page cache.
pub(super) async fn make_tables(
    maker: Maker,
    mut rows: Making,
    passes: bool,
) -> Result<Vec<SstDescriptor>> {
    if let Making::Piece(rows) = &rows {
        rows.check_first()?;
    }
    let mut tables = Vec::new();
    loop {
        let mut part =
            OpenPart::begin(&maker.env, maker.of, &maker.how.options, &maker.spare).await?;
        if passes {
            part.upload.hint_no_cache();
        }
        let target = Target { part, chunk: None, bytes: 0 };
        let (rest, target, filled) = make_table(&maker, rows, target).await?;
        rows = rest;
        if target.part.builder.entries() == 0 {
            target.part.upload.abort().await?;
        } else {
            tables.push(finish(&maker.env, target, &maker).await?);
        }
        if filled == FillResult::End {
            return Ok(tables);
        }
    }
}

async fn make_table(
    maker: &Maker,
    mut rows: Making,
    mut target: Target,
) -> Result<(Making, Target, FillResult)> {
    loop {
        let of = maker.clone();
        let work = move || {
            let filled = rows.slice(&mut target, &of);
            (rows, target, filled)
        };
        let filled;
        (rows, target, filled) = maker.env.blocking("load", work).await?;
        match filled? {
            FillResult::Chunk => {
                if let Some(chunk) = target.chunk.take() {
                    target.part.upload.write(chunk).await?;
                }
            }
            FillResult::Lacks => match &mut rows {
                Making::Runs(rows) => rows.fetch().await?,
                _ => return Err(Error::internal("rows in memory asked for blocks of a run")),
            },
            end => return Ok((rows, target, end)),
        }
    }
}

/// Finishes a table. Filter and index are also built on a blocking thread.
async fn finish(env: &Env, target: Target, maker: &Maker) -> Result<SstDescriptor> {
    let OpenPart { builder, mut upload, spare, .. } = target.part;
    let (rest, table) = env.blocking("load", move || spare.finish(builder)).await??;
    upload.write(rest).await?;
    upload.finish().await?;
    Ok(SstDescriptor { job: Some(maker.of.0), ..table })
}
