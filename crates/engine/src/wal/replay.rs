//! Reads the rows and ingests of WAL objects, for a writer that opens and for readers that follow.
//! This module must never skip a row above the flushed sequence number.

use crate::manifests::objects::Objects;
use siltstone_base::batch::joined;
use siltstone_base::{Error, JobId, ObjectName, Result, Seq, SstDescriptor, WalId};
use siltstone_manifest::Manifest;
use siltstone_manifest::batch::{self, decode_tables};
use siltstone_manifest::ingest::{ClosedJob, pending};
use siltstone_memtable::Memtable;
use siltstone_sst::wal::{WalIngest, WalIngestContent, WalObject, WalRecord};

/// The ingest that `body` ends with, if its number is above `flushed`. Its numbers must continue
/// those of the batches before it, which end at `before`.
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

/// The layers of an ingest in the log, each with its sequence number.
///
/// # Errors
/// Corruption if the object that closed a job is missing or differs from the ingested one, and for
/// malformed tables; Unsupported for tables of a newer version; errors of the store.
pub(crate) async fn layers_of(
    objects: &Objects,
    ingest: &WalIngest,
) -> Result<Vec<Vec<SstDescriptor>>> {
    match &ingest.content {
        WalIngestContent::Tables(tables) => {
            Ok(vec![tables_at(ingest.first_seq, decode_tables(tables)?)])
        }
        WalIngestContent::Job { job, digest } => {
            let closed = objects.closed_job(*job).await?;
            let is_same = |closed: &ClosedJob| {
                closed.digest() == *digest && closed.layers.len() == ingest.numbers as usize
            };
            let closed = closed.filter(is_same).ok_or_else(|| content_gone(*job))?;
            Ok(closed.numbered(ingest.first_seq))
        }
    }
}

/// The error for an ingest in the log whose content is missing or differs.
pub(crate) fn content_gone(job: JobId) -> Error {
    Error::corruption(
        "the log refers to an ingest job whose closing object is missing or differs; run \
         `siltstone verify`",
    )
    .with("object", ObjectName::IngestManifest(job))
}

/// Tables of a large batch, with the sequence number of the batch (rule P4).
pub(crate) fn tables_at(seq: Seq, tables: Vec<SstDescriptor>) -> Vec<SstDescriptor> {
    let numbered = |table| SstDescriptor { seq_override: Some(seq), ..table };
    tables.into_iter().map(numbered).collect()
}

/// Whether a lease on `version` keeps the tables of an ingest in the log (rule Q5): the version
/// shows the job as pending.
///
/// # Errors
/// As [`decode_tables`].
pub(crate) fn is_kept(version: &Manifest, ingest: &WalIngest) -> Result<bool> {
    match &ingest.content {
        WalIngestContent::Tables(tables) => Ok(batch::keeps(version, &decode_tables(tables)?)),
        WalIngestContent::Job { job, .. } => Ok(pending(version, *job).is_some()),
    }
}

/// Inserts the batches of `body` that end above `flushed`, the last sequence number in tables (rule
/// N4). Returns their last sequence number; `None` if there are none. They must continue the
/// numbers before this object, which end at `before`: numbers have no gaps, within an object and
/// between objects.
///
/// The batches are inserted as one: their sequence numbers are consecutive, and the operations of a
/// batch are stored side by side, so several consecutive batches can be read as one. One large
/// insertion is sorted at once; many small ones would each search for their place.
pub(crate) fn insert_rows(
    memtable: &Memtable,
    body: &WalObject,
    flushed: Seq,
    before: Seq,
) -> Result<Option<Seq>> {
    let (mut first, mut last) = (None, None);
    let mut batches = Vec::new();
    for record in body.records() {
        let record = record?;
        let (first_seq, end) = record.seqs();
        // An ingest is the last record, and the caller handles it.
        let WalRecord::Batch { bytes, .. } = record else { break };
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

/// The error for an object that a writer cannot have created under this id: it was repeated, moved,
/// or created by another program.
fn does_not_follow(id: WalId, before: Seq, found: Seq) -> Error {
    Error::corruption("the sequence numbers of a WAL object do not follow those before it")
        .with("object", ObjectName::Wal(id))
        .with("expected", before.next())
        .with("found", found)
}
