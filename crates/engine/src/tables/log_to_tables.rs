//! A pinned range of the log as tables (rules K2, N14, S1): what a clone or a restored state begins
//! with, in addition to the tables that its manifest names.
//!
//! ```text
//! objects, in order ─► memtable ─► table, as soon as it is full, or an ingest comes ─► table …
//!                  └─► ingest ──► its tables, as they were staged ───────────────────────┘
//! ```
//! Rows keep the sequence numbers that they had in the log.

use super::flush::TableInProgress;
use crate::manifests::objects::Objects;
use crate::options::Options;
use crate::wal::replay::{ingest_of, insert_rows, last_ingest, layers_of};
use bytes::Bytes;
use siltstone_base::{
    AttemptId, Cursor, DatabaseId, Envelope, Error, JobId, ObjectId, ObjectKind, ObjectName,
    Result, Seq, SstDescriptor, SstId, UnixMillis, WalId,
};
use siltstone_manifest::span::Span;
use siltstone_manifest::{InstallBatch, InstallIngest, LogTables};
use siltstone_memtable::Memtable;
use siltstone_sst::TableOptions;
use siltstone_sst::wal::{WalIngestContent, WalObject};
use siltstone_store::env::Env;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The place and format of tables that are written.
pub(crate) struct TableTarget<'a> {
    /// The environment with their store.
    pub(crate) env: &'a Env,
    /// The database that their envelopes name.
    pub(crate) database: DatabaseId,
    /// The job whose folder they go to; `None` for the database's own folder.
    pub(crate) job: Option<JobId>,
    /// Options of tables and their size.
    pub(crate) options: &'a Options,
}

/// A part of a log that is to be taken over.
#[derive(Debug, Default)]
pub(crate) struct TakenLog {
    /// Consecutive objects, in order.
    pub(crate) objects: Vec<WalObject>,
    /// The layers of the ingest with which an object ends, oldest first, each at its sequence
    /// number.
    brought: BTreeMap<WalId, Vec<Vec<SstDescriptor>>>,
}

impl TakenLog {
    /// Reads the contents of the ingests in `log` above `flushed`. The owner of the log must keep
    /// them too: the state from which the log continues names them as pending or left.
    ///
    /// # Errors
    /// As [`layers_of`].
    pub(crate) async fn read(
        objects: &Objects,
        log: Vec<WalObject>,
        flushed: Seq,
    ) -> Result<TakenLog> {
        let mut brought = BTreeMap::new();
        for object in &log {
            if let Some(ingest) = last_ingest(object, flushed)? {
                brought.insert(object.id, layers_of(objects, &ingest).await?);
            }
        }
        Ok(TakenLog { objects: log, brought })
    }

    /// The last sequence number in it, at least `flushed`.
    pub(crate) fn last_seq(&self, flushed: Seq) -> Seq {
        self.objects.iter().map(|object| object.last_seq).fold(flushed, Seq::max)
    }

    /// Tables of its ingests.
    pub(crate) fn brought(&self) -> impl Iterator<Item = &SstDescriptor> {
        self.brought.values().flatten().flatten()
    }
}

/// A part of the tables of a log.
#[expect(clippy::large_enum_variant, reason = "there are a few of them, for one commit")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogPart {
    /// Rows, as a table that was written.
    Rows(SstDescriptor),
    /// An ingest.
    Brought {
        /// The ingest.
        content: WalIngestContent,
        /// Its layers, oldest first, each at its sequence number. Their tables stay where they were
        /// staged.
        layers: Vec<Vec<SstDescriptor>>,
    },
}

/// The tables of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TablesOfLog {
    /// Oldest first, with ascending sequence numbers.
    pub(crate) parts: Vec<LogPart>,
    /// The largest sequence number found, or that of the earlier tables if the log has no larger
    /// one.
    pub(crate) last_seq: Seq,
    /// The latest commit time of the objects; 0 if there are none.
    pub(crate) commit_time: UnixMillis,
}

impl TablesOfLog {
    /// The tables that were written.
    pub(crate) fn written(&self) -> impl Iterator<Item = &SstDescriptor> {
        self.parts.iter().filter_map(|part| match part {
            LogPart::Rows(table) => Some(table),
            LogPart::Brought { .. } => None,
        })
    }

    /// Each part as layers of L0, oldest first. Tables of ingests are converted with `of_brought`.
    pub(crate) fn layers(
        &self,
        of_brought: impl Fn(&SstDescriptor) -> SstDescriptor,
    ) -> Vec<Vec<SstDescriptor>> {
        let mut all = Vec::new();
        for part in &self.parts {
            match part {
                LogPart::Rows(table) => all.push(vec![table.clone()]),
                LogPart::Brought { layers, .. } => {
                    all.extend(
                        layers.iter().map(|tables| tables.iter().map(&of_brought).collect()),
                    );
                }
            }
        }
        all
    }

    /// Converts it to an edit of the database whose log it was.
    pub(crate) fn into_edit(self) -> LogTables {
        let mut log = LogTables::default();
        for part in self.parts {
            let after = log.layers.len();
            match part {
                LogPart::Rows(table) => log.layers.push(vec![table]),
                LogPart::Brought { content: WalIngestContent::Job { job, digest }, layers } => {
                    log.ingests.push(InstallIngest { after, job, digest, layers });
                }
                LogPart::Brought { content: WalIngestContent::Tables(_), layers } => {
                    log.batches.push(InstallBatch { after, tables: layers.concat() });
                }
            }
        }
        log
    }
}

/// Writes the rows of `log` to tables with the given `names`, in order, and adds the tables of its
/// ingests between them. Rows at or below `flushed` are in tables already and are skipped; the rest
/// must follow without a gap.
///
/// No manifest names the tables yet. A commit must name them, under names that its database has
/// reserved or that no collector deletes. A failed call also uses names up.
///
/// # Errors
/// Corruption if the sequence numbers have a gap; Internal if the names run out; errors of the
/// store.
pub(crate) async fn tables_of_log(
    log: &TakenLog,
    flushed: Seq,
    target: &TableTarget<'_>,
    names: &mut (dyn Iterator<Item = SstId> + Send),
) -> Result<TablesOfLog> {
    let mut read = LogParts::new(log, flushed, target.options);
    let mut parts = Vec::new();
    while let Some(part) = read.advance()? {
        parts.push(match part {
            ReadPart::Rows(memtable) => LogPart::Rows(write(&memtable, target, names).await?),
            ReadPart::Brought(content, layers) => {
                LogPart::Brought { content, layers: layers.to_vec() }
            }
        });
    }
    Ok(TablesOfLog { parts, last_seq: read.last_seq, commit_time: read.commit_time })
}

/// The largest key ranges that the tables of [`tables_of_log`] can span. Rows that have expired by
/// then are not written.
///
/// # Errors
/// Corruption if the sequence numbers have a gap.
pub(crate) fn spans_of_log(log: &TakenLog, flushed: Seq, options: &Options) -> Result<Vec<Span>> {
    let mut read = LogParts::new(log, flushed, options);
    let mut spans = Vec::new();
    while let Some(part) = read.advance()? {
        match part {
            ReadPart::Rows(memtable) => spans.extend(span_of(&memtable)?),
            ReadPart::Brought(_, layers) => spans.extend(layers.iter().flatten().map(Span::of)),
        }
    }
    Ok(spans)
}

fn span_of(memtable: &Arc<Memtable>) -> Result<Option<Span>> {
    let deletes = memtable.range_deletes();
    let mut spanned: Vec<Span> =
        deletes.iter().map(|one| Span::between(one.start.clone(), one.last_key())).collect();
    let mut rows = memtable.cursor().passing_once();
    rows.seek_first()?;
    if let (Some(first), Some(last)) = (rows.entry(), memtable.greatest_key()) {
        let first = Bytes::copy_from_slice(first.key);
        spanned.push(Span::between(first, last.into()));
    }
    Ok(Span::hull(spanned))
}

/// A part of a log while it is read.
enum ReadPart<'a> {
    /// Rows, at least one.
    Rows(Arc<Memtable>),
    /// An ingest, and its layers.
    Brought(WalIngestContent, &'a [Vec<SstDescriptor>]),
}

/// Reads a log into memtables of the size of a table. No memtable spans an ingest (rule Q1).
struct LogParts<'a> {
    log: &'a TakenLog,
    objects: std::slice::Iter<'a, WalObject>,
    /// The part after the rows that were read last.
    next: Option<ReadPart<'a>>,
    flushed: Seq,
    most_bytes: usize,
    /// The largest sequence number so far.
    last_seq: Seq,
    /// The latest commit time so far.
    commit_time: UnixMillis,
}

impl<'a> LogParts<'a> {
    fn new(log: &'a TakenLog, flushed: Seq, options: &Options) -> LogParts<'a> {
        LogParts {
            log,
            objects: log.objects.iter(),
            next: None,
            flushed,
            most_bytes: options.l0_sst_size_bytes,
            last_seq: flushed,
            commit_time: UnixMillis(0),
        }
    }

    /// The next part; `None` at the end.
    fn advance(&mut self) -> Result<Option<ReadPart<'a>>> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        let memtable = Arc::new(Memtable::new());
        while self.next.is_none()
            && (memtable.first_seq().is_none() || memtable.bytes() < self.most_bytes)
            && let Some(object) = self.objects.next()
        {
            if let Some(last) = insert_rows(&memtable, object, self.flushed, self.last_seq)? {
                self.last_seq = last;
            }
            if let Some(ingest) = ingest_of(object, self.flushed, self.last_seq)? {
                self.last_seq = ingest.last_seq();
                let layers = self.log.brought.get(&object.id);
                let layers = layers.ok_or_else(|| {
                    Error::internal("the content of an ingest in the log was not read")
                        .with("wal id", object.id)
                })?;
                self.next = Some(ReadPart::Brought(ingest.content, layers));
            }
            self.commit_time = self.commit_time.max(object.sent.at);
        }
        match memtable.first_seq() {
            Some(_) => Ok(Some(ReadPart::Rows(memtable))),
            None => Ok(self.next.take()),
        }
    }
}

async fn write(
    memtable: &Arc<Memtable>,
    target: &TableTarget<'_>,
    names: &mut (dyn Iterator<Item = SstId> + Send),
) -> Result<SstDescriptor> {
    let (env, options) = (target.env, target.options);
    let name = names.next().ok_or_else(|| Error::internal("names of tables ran out"))?;
    let attempt = AttemptId(env.random_u128());
    let object = ObjectId(name.get());
    let envelope = Envelope::new(ObjectKind::Table, target.database, object, attempt);
    let built = TableOptions {
        filter_bits_per_key: options.filter_bits_per_key,
        ..options.table_options()
    };
    // Operands are kept unfolded, because readers have the operator.
    let table = TableInProgress::new(memtable, envelope, built, env.clock.now(), None)?;
    let place = match target.job {
        None => ObjectName::Compacted(name),
        Some(job) => ObjectName::IngestSst(job, name),
    };
    let open = env.store.upload(place);
    let upload = env.deadline(options.deadline, "begin upload", open).await?;
    let built = table.stream(env, upload).await?;
    Ok(SstDescriptor { job: target.job, ..built })
}

#[cfg(test)]
mod tests;
