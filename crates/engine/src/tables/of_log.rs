//! A pinned range of the log as tables (rules K2, N14, S1): what a clone, or a restored state,
//! begins with beside the tables that it names.
//!
//! ```text
//! objects, in order ─► memtable ─► table, as soon as it is full, or an ingest comes ─► table …
//!                  └─► ingest ──► its tables, as they were staged ───────────────────────┘
//! ```
//! Numbers are kept: a row counts as having the one that it had in the log.

use super::of_memtable::TableInProgress;
use crate::io::env::Env;
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
use siltstone_sst::wal::{WalBrings, WalObject};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where tables go, and how they are built.
pub(crate) struct TableTarget<'a> {
    /// Their place.
    pub(crate) env: &'a Env,
    /// The database that they belong to, which their envelopes name.
    pub(crate) database: DatabaseId,
    /// The job in whose folder they go; `None`: where the database's own are.
    pub(crate) job: Option<JobId>,
    /// How they are built, and how large they get.
    pub(crate) options: &'a Options,
}

/// A part of a log that is to be taken over.
#[derive(Debug, Default)]
pub(crate) struct TakenLog {
    /// Neighbours, in order.
    pub(crate) objects: Vec<WalObject>,
    /// The layers of the ingest that an object ends with, the oldest first, each at its number.
    brought: BTreeMap<WalId, Vec<Vec<SstDescriptor>>>,
}

impl TakenLog {
    /// Reads what the ingests of `log` bring that are above `flushed`. Whoever keeps the log keeps
    /// that too: they are asked for, or left, in the state that the log goes on from.
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

    /// The last number in it, at least `flushed`.
    pub(crate) fn last_seq(&self, flushed: Seq) -> Seq {
        self.objects.iter().map(|object| object.last_seq).fold(flushed, Seq::max)
    }

    /// Tables that its ingests bring.
    pub(crate) fn brought(&self) -> impl Iterator<Item = &SstDescriptor> {
        self.brought.values().flatten().flatten()
    }
}

/// A part of what a log came to.
#[expect(clippy::large_enum_variant, reason = "there are a few of them, for one commit")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogPart {
    /// Rows, as a table that was written.
    Rows(SstDescriptor),
    /// An ingest.
    Brought {
        /// Which.
        brings: WalBrings,
        /// Its layers, the oldest first, each at its number; their tables lie where they were
        /// staged.
        layers: Vec<Vec<SstDescriptor>>,
    },
}

/// What a log came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TablesOfLog {
    /// The oldest first; their numbers ascend.
    pub(crate) parts: Vec<LogPart>,
    /// The largest number met: that of the tables before, where nothing was above it.
    pub(crate) last_seq: Seq,
    /// The latest commit time of the objects; 0 where there are none.
    pub(crate) commit_time: UnixMillis,
}

impl TablesOfLog {
    /// Tables that were written.
    pub(crate) fn written(&self) -> impl Iterator<Item = &SstDescriptor> {
        self.parts.iter().filter_map(|part| match part {
            LogPart::Rows(table) => Some(table),
            LogPart::Brought { .. } => None,
        })
    }

    /// Each part as layers of L0, the oldest first; of tables that were brought what `of_brought`
    /// makes of them.
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

    /// For an edit of the database whose log it was.
    pub(crate) fn into_edit(self) -> LogTables {
        let mut log = LogTables::default();
        for part in self.parts {
            let after = log.layers.len();
            match part {
                LogPart::Rows(table) => log.layers.push(vec![table]),
                LogPart::Brought { brings: WalBrings::Job { job, digest }, layers } => {
                    log.ingests.push(InstallIngest { after, job, digest, layers });
                }
                LogPart::Brought { brings: WalBrings::Tables(_), layers } => {
                    log.batches.push(InstallBatch { after, tables: layers.concat() });
                }
            }
        }
        log
    }
}

/// Writes the rows of `log` into tables named by `names` in the order given, and names what its
/// ingests bring among them. What is at or below `flushed` is in tables already and left out; the
/// rest must follow it without a gap.
///
/// Nothing names the tables yet: a commit must, under names that its database reserved, or that
/// nobody collects. Names are used up as they come, also those of a call that fails.
///
/// # Errors
/// Corruption where the numbers do not follow; Internal where names run out; the store's.
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
            ReadPart::Brought(brings, layers) => {
                LogPart::Brought { brings, layers: layers.to_vec() }
            }
        });
    }
    Ok(TablesOfLog { parts, last_seq: read.last_seq, commit_time: read.commit_time })
}

/// What the tables of [`tables_of_log`] will span, at most: rows that have expired by then are left
/// out of them.
///
/// # Errors
/// Corruption where the numbers do not follow.
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

/// A part of a log as it is read.
enum ReadPart<'a> {
    /// Rows, at least one.
    Rows(Arc<Memtable>),
    /// An ingest, and its layers.
    Brought(WalBrings, &'a [Vec<SstDescriptor>]),
}

/// Reads a log in memtables of the size of a table, none of which spans an ingest (rule Q1).
struct LogParts<'a> {
    log: &'a TakenLog,
    objects: std::slice::Iter<'a, WalObject>,
    /// What comes behind the rows that were read last.
    next: Option<ReadPart<'a>>,
    flushed: Seq,
    most_bytes: usize,
    /// The largest number met.
    last_seq: Seq,
    /// The latest commit time met.
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

    /// The next one; `None` where nothing is left.
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
                    Error::internal("nobody read what an ingest of the log brings")
                        .with("wal id", object.id)
                })?;
                self.next = Some(ReadPart::Brought(ingest.brings, layers));
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
    // Operands stay what they are: whoever reads them has the operator.
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
