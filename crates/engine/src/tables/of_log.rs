//! Rows of a pinned range of the log as tables (rules K2, S1): what a clone, or a restored state,
//! begins with beside the tables that it names.
//!
//! ```text
//! objects, in order ─► memtable ─► table, as soon as it is full ─► table … ─► descriptors
//! ```
//! Numbers are kept: a row counts as having the one that it had in the log.

use super::of_memtable::TableInProgress;
use crate::io::env::Env;
use crate::options::Options;
use crate::wal::replay::{ingest_of, insert_rows, last_ingest};
use bytes::Bytes;
use siltstone_base::{
    AttemptId, Cursor, DatabaseId, Envelope, Error, JobId, ObjectId, ObjectKind, ObjectName,
    Result, Seq, SstDescriptor, SstId, UnixMillis,
};
use siltstone_manifest::span::Span;
use siltstone_memtable::Memtable;
use siltstone_sst::TableOptions;
use siltstone_sst::wal::WalObject;
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

/// What rows of a log came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TablesOfLog {
    /// Each a layer of L0 by itself, the oldest first; their numbers ascend.
    pub(crate) tables: Vec<SstDescriptor>,
    /// The largest number met: that of the tables before, where no row was above it.
    pub(crate) last_seq: Seq,
    /// The latest commit time of the objects; 0 where there are none.
    pub(crate) commit_time: UnixMillis,
}

/// Writes the rows of `objects`, neighbours of one log in its order, into tables named by `names`
/// in the order given. Rows up to `flushed` are in tables already and are left out; the others must
/// follow it without a gap.
///
/// Nothing names the tables yet: a commit must, under names that its database reserved, or that
/// nobody collects. Names are used up as they come, also those of a call that fails.
///
/// # Errors
/// Corruption where the numbers do not follow; Unsupported for an ingest among the rows; Internal
/// where names run out; the store's.
pub(crate) async fn tables_of_log(
    objects: &[WalObject],
    flushed: Seq,
    target: &TableTarget<'_>,
    names: &mut (dyn Iterator<Item = SstId> + Send),
) -> Result<TablesOfLog> {
    let mut full = LogMemtables::new(objects, flushed, target.options);
    let mut tables = Vec::new();
    while let Some(memtable) = full.advance()? {
        tables.push(write(&memtable, target, names).await?);
    }
    Ok(TablesOfLog { tables, last_seq: full.last_seq, commit_time: full.commit_time })
}

/// What the tables of [`tables_of_log`] will span, at most: rows that have expired by then are left
/// out of them.
///
/// # Errors
/// Corruption where the numbers do not follow; Unsupported for an ingest among the rows.
pub(crate) fn spans_of_log(
    objects: &[WalObject],
    flushed: Seq,
    options: &Options,
) -> Result<Vec<Span>> {
    let mut full = LogMemtables::new(objects, flushed, options);
    let mut spans = Vec::new();
    while let Some(memtable) = full.advance()? {
        let deletes = memtable.range_deletes();
        let mut spanned: Vec<Span> =
            deletes.iter().map(|one| Span::between(one.start.clone(), one.last_key())).collect();
        let mut rows = memtable.cursor().passing_once();
        rows.seek_first()?;
        if let (Some(first), Some(last)) = (rows.entry(), memtable.greatest_key()) {
            let first = Bytes::copy_from_slice(first.key);
            spanned.push(Span::between(first, last.into()));
        }
        spans.extend(Span::hull(spanned));
    }
    Ok(spans)
}

/// Whether an ingest stands in the log that is in no version yet: nobody can take it over then.
///
/// # Errors
/// Corruption.
pub(crate) fn holds_ingest(objects: &[WalObject], flushed: Seq) -> Result<bool> {
    for object in objects {
        if last_ingest(object, flushed)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Rows of a log in memtables of the size of a table.
struct LogMemtables<'a> {
    objects: std::slice::Iter<'a, WalObject>,
    flushed: Seq,
    most_bytes: usize,
    /// The largest number met.
    last_seq: Seq,
    /// The latest commit time met.
    commit_time: UnixMillis,
}

impl<'a> LogMemtables<'a> {
    fn new(objects: &'a [WalObject], flushed: Seq, options: &Options) -> LogMemtables<'a> {
        LogMemtables {
            objects: objects.iter(),
            flushed,
            most_bytes: options.l0_sst_size_bytes,
            last_seq: flushed,
            commit_time: UnixMillis(0),
        }
    }

    /// The next one; `None` where no rows are left.
    fn advance(&mut self) -> Result<Option<Arc<Memtable>>> {
        let memtable = Arc::new(Memtable::new());
        for object in self.objects.by_ref() {
            if let Some(last) = insert_rows(&memtable, object, self.flushed, self.last_seq)? {
                self.last_seq = last;
            }
            if ingest_of(object, self.flushed, self.last_seq)?.is_some() {
                return Err(Error::unsupported(
                    "the log that would be taken over holds an ingest that is in no version yet; \
                     its writer puts it there soon: have a writer open, make a checkpoint by it, \
                     and use that",
                ));
            }
            self.commit_time = self.commit_time.max(object.sent.at);
            if memtable.first_seq().is_some() && memtable.bytes() >= self.most_bytes {
                break;
            }
        }
        Ok(memtable.first_seq().is_some().then_some(memtable))
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
