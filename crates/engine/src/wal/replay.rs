//! Rows of a WAL object back into a memtable; for a writer that opens and for readers that follow.

use crate::manifests::objects::Objects;
use siltstone_base::batch::joined;
use siltstone_base::{Error, ObjectName, Result, Seq, SstDescriptor, WalId};
use siltstone_manifest::Manifest;
use siltstone_manifest::batch::{self, decode_tables};
use siltstone_manifest::ingest::{ClosedJob, pending};
use siltstone_memtable::Memtable;
use siltstone_sst::wal::{WalBrings, WalIngest, WalObject, WalRecord};

/// What `body` ends with, where that is an ingest above `flushed`: it goes on where the batches
/// before it ended, at `before`.
pub(crate) fn ingest_of(body: &WalObject, flushed: Seq, before: Seq) -> Result<Option<WalIngest>> {
    match last_ingest(body, flushed)? {
        Some(ingest) if ingest.first_seq != before.next() => {
            Err(does_not_follow(body.id, before, ingest.first_seq))
        }
        found => Ok(found),
    }
}

/// The ingest that `body` ends with, if its number is above `flushed`. The tables of any other
/// ingest are installed already (rule N13).
pub(crate) fn last_ingest(body: &WalObject, flushed: Seq) -> Result<Option<WalIngest>> {
    match body.records().last().transpose()? {
        Some(WalRecord::Ingest(ingest)) if ingest.last_seq() > flushed => Ok(Some(ingest)),
        _ => Ok(None),
    }
}

/// The layers that an ingest in the log brings, each at its number.
///
/// # Errors
/// Corruption where the object that closed a job is gone, or is another than the one that was
/// ingested, and for tables that no writer wrote; Unsupported for those of a newer version; the
/// store's.
pub(crate) async fn layers_of(
    objects: &Objects,
    ingest: &WalIngest,
) -> Result<Vec<Vec<SstDescriptor>>> {
    match &ingest.brings {
        WalBrings::Tables(tables) => Ok(vec![tables_at(ingest.first_seq, decode_tables(tables)?)]),
        WalBrings::Job { job, digest } => {
            let closed = objects.closed_job(*job).await?;
            let brings = |closed: &ClosedJob| {
                closed.digest() == *digest && closed.layers.len() == ingest.numbers as usize
            };
            let closed = closed.filter(brings).ok_or_else(|| {
                Error::corruption("the log has an ingest, and what it brings is gone")
                    .with("object", ObjectName::IngestManifest(*job))
            });
            Ok(closed?.numbered(ingest.first_seq))
        }
    }
}

/// Tables of a large batch, at its number (rule P4).
pub(crate) fn tables_at(seq: Seq, tables: Vec<SstDescriptor>) -> Vec<SstDescriptor> {
    let numbered = |table| SstDescriptor { seq_override: Some(seq), ..table };
    tables.into_iter().map(numbered).collect()
}

/// Whether a reader of `version` keeps the tables of an ingest of the log (rule Q5): the job is
/// requested there, and not installed.
///
/// # Errors
/// As [`decode_tables`].
pub(crate) fn is_kept(version: &Manifest, ingest: &WalIngest) -> Result<bool> {
    match &ingest.brings {
        WalBrings::Tables(tables) => Ok(batch::keeps(version, &decode_tables(tables)?)),
        WalBrings::Job { job, .. } => Ok(pending(version, *job).is_some()),
    }
}

/// Inserts the batches of `body` that end above `flushed`, the last sequence number in tables (rule
/// N4), and answers the last sequence number of them; `None` when there is none. They must go on
/// where what came before ended, at `before`: from object to object as within one.
///
/// They go in as one: their sequence numbers follow each other, and a batch's operations stand side
/// by side, so several batches in a row read as one. One large insertion is sorted at once, where
/// many small ones would each search for their place.
pub(crate) fn insert_rows(
    memtable: &Memtable,
    body: &WalObject,
    flushed: Seq,
    before: Seq,
) -> Result<Option<Seq>> {
    let (mut first, mut last) = (None, None);
    let mut batches = Vec::new();
    for record in body.records() {
        let (first_seq, ops, bytes) = match record? {
            WalRecord::Batch { first_seq, ops, bytes } => (first_seq, ops, bytes),
            // The last one, and the caller's.
            WalRecord::Ingest(_) => break,
            _ => return Err(unknown_record(body.id)),
        };
        let end = first_seq.plus(u64::from(ops).saturating_sub(1));
        if end > flushed {
            if first.is_none() && first_seq != before.next() {
                return Err(does_not_follow(body.id, before, first_seq));
            }
            first.get_or_insert(first_seq);
            last = Some(end);
            batches.push(bytes);
        }
    }
    if let Some(first) = first {
        memtable.insert_batch(first, &joined(&batches))?;
    }
    Ok(last)
}

/// Such an object was never written where it stands: repeated, moved, or made by another program.
fn does_not_follow(id: WalId, before: Seq, found: Seq) -> Error {
    Error::corruption("the sequence numbers of a WAL object do not follow those before it")
        .with("object", ObjectName::Wal(id))
        .with("expected", before.next())
        .with("found", found)
}

/// A kind of record that a newer version writes; the codec refuses those it does not know.
fn unknown_record(id: WalId) -> Error {
    Error::unsupported("the WAL holds a record that this version can not replay; upgrade")
        .with("wal id", id)
}
