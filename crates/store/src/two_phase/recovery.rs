//! Completing committed creates, deleting objects with their records, and collecting sources.
//!
//! ```text
//! copy:     read source │ write destination │ mark complete │ delete source
//! delete:   complete │ delete destination │ remove record
//! collect:  complete all │ revoke an old source │ delete it
//! ```
//! A copy may be late: another process may have completed, and the collector deleted, the object
//! meanwhile. A numbered object then lies at or below a boundary, where no process trusts it (rule
//! M3), and the collector deletes it again. The closing object of a job counts only after a read of
//! the manifest (rule N8).

use super::records::Record;
use super::{Shared, has_record};
use crate::{Listed, SweepReport};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use siltstone_base::checksum::crc32c;
use siltstone_base::name::prefix;
use siltstone_base::{Error, ErrorKind, ObjectName, Result, UnixMillis};
use std::collections::HashSet;
use std::ops::Range;

/// Copies that one recovery makes at a time.
const COPIES_AT_ONCE: usize = 8;

/// Folders with objects that have records.
const FOLDERS: [&str; 6] = [
    prefix::MANIFEST,
    prefix::WAL,
    prefix::COMPACTIONS,
    prefix::INGEST,
    prefix::PROBE,
    prefix::DAMAGED,
];

/// A committed create that this process may not copy: it has no right to write.
pub(super) struct Uncopied {
    record: Record,
    bytes: u64,
}

impl Shared {
    /// Copies the bytes of a record to its destination.
    pub(super) async fn copy(&self, namespace: u128, record: Record, bytes: Bytes) -> Result<()> {
        self.write(record.destination, bytes).await?;
        self.records.complete(namespace, record).await?;
        self.store.delete(record.source).await
    }

    /// The bytes of an incomplete record; `None` if it was completed meanwhile.
    async fn source(&self, namespace: u128, record: Record) -> Result<Option<Bytes>> {
        let ObjectName::TwoPhaseSource(_, crc) = record.source else {
            return Err(Error::corruption(
                "a record of the transactional store names no source of bytes",
            )
            .with("found", record.source));
        };
        match self.store.get(record.source, None).await? {
            Some(bytes) if crc32c(&bytes) == crc => Ok(Some(bytes)),
            Some(_) => Err(Error::corruption("the source of a committed create is damaged")
                .with("object", record.destination)
                .with("source", record.source)),
            None => match self.records.get(namespace, record.destination).await? {
                Some(now) if now == record => self.without_source(namespace, record).await,
                _ => Ok(None),
            },
        }
    }

    /// A record that is incomplete and whose source is gone: that of a backup that was taken before
    /// the copy was recorded, if the destination exists.
    async fn without_source(&self, namespace: u128, record: Record) -> Result<Option<Bytes>> {
        if self.exists(record.destination).await? {
            self.records.complete(namespace, record).await?;
            return Ok(None);
        }
        Err(Error::corruption(
            "a create is recorded, and neither its object nor the source of its bytes exists: \
             restore the objects and the transactional store from backups of one moment, taken \
             while no process wrote",
        )
        .with("object", record.destination)
        .with("source", record.source))
    }

    /// Completes one record. The bytes, if this process may not write them.
    async fn complete(&self, namespace: u128, record: Record) -> Result<Option<Uncopied>> {
        let Some(bytes) = self.source(namespace, record).await? else { return Ok(None) };
        let length = bytes.len() as u64;
        match self.copy(namespace, record, bytes).await {
            Err(error) if error.kind() == ErrorKind::Denied => {
                Ok(Some(Uncopied { record, bytes: length }))
            }
            Err(error) => Err(error),
            Ok(()) => Ok(None),
        }
    }

    /// Completes every incomplete record. Those that this process may not write.
    pub(super) async fn complete_all(&self) -> Result<Vec<Uncopied>> {
        let Some(namespace) = self.known_namespace().await? else { return Ok(Vec::new()) };
        let incomplete = self.records.list(namespace, false).await?;
        let complete = |record| self.complete(namespace, record);
        let completed = stream::iter(incomplete).map(complete).buffer_unordered(COPIES_AT_ONCE);
        let uncopied: Vec<_> = completed.try_collect().await?;
        Ok(uncopied.into_iter().flatten().collect())
    }

    /// An object that is not at its destination: one of an incomplete record, which is completed.
    pub(super) async fn get_committed(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>> {
        match self.settle(name).await? {
            Some(at) => self.store.get(at, range).await,
            None => Ok(None),
        }
    }

    /// Completes the record of a name. The object that has its bytes: the destination, or the
    /// source if this process may not write. `None` without a record.
    pub(super) async fn settle(&self, name: ObjectName) -> Result<Option<ObjectName>> {
        let Some(namespace) = self.known_namespace().await? else { return Ok(None) };
        let Some(record) = self.records.get(namespace, name).await? else { return Ok(None) };
        if record.complete {
            // Copied since the caller looked, or deleted before it.
            return Ok(Some(name));
        }
        let uncopied = self.complete(namespace, record).await?;
        Ok(Some(uncopied.map_or(name, |uncopied| uncopied.record.source)))
    }

    /// Adds to a listing what could not be copied.
    pub(super) fn add_uncopied(
        &self,
        listed: &mut Vec<Listed>,
        uncopied: Vec<Uncopied>,
        is_listed: impl Fn(ObjectName) -> bool,
    ) {
        let modified = self.effects.clock.now();
        let known: HashSet<_> = listed.iter().map(|object| object.name).collect();
        let more = uncopied.into_iter().filter(|one| {
            is_listed(one.record.destination) && !known.contains(&one.record.destination)
        });
        listed.extend(more.map(|one| Listed {
            name: one.record.destination,
            bytes: one.bytes,
            modified,
            tag: None,
        }));
        listed.sort_unstable_by_key(|object| object.name);
    }

    /// Deletes objects, then their records: a record outlives its object, so a name without a
    /// record has no object that a create could overwrite.
    pub(super) async fn delete(
        self: std::sync::Arc<Self>,
        names: Vec<ObjectName>,
    ) -> Vec<Result<()>> {
        let count = names.len();
        let prepared = async {
            if !names.iter().copied().any(has_record) {
                return Ok(None);
            }
            let Some(namespace) = self.known_namespace().await? else { return Ok(None) };
            let wanted: HashSet<_> = names.iter().copied().collect();
            for record in self.records.list(namespace, false).await? {
                if wanted.contains(&record.destination) {
                    self.complete(namespace, record).await?;
                }
            }
            Ok(Some(namespace))
        };
        let namespace = match prepared.await {
            Ok(namespace) => namespace,
            Err(error) => return vec![Err(error); count],
        };
        let mut answers = self.store.delete_many(names.clone()).await;
        let Some(namespace) = namespace else { return answers };
        let deleted = names.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
        let deleted: Vec<_> =
            deleted.map(|(name, _)| *name).filter(|name| has_record(*name)).collect();
        if let Err(error) = self.records.remove(namespace, deleted.clone()).await {
            let lost: HashSet<_> = deleted.into_iter().collect();
            for (name, answer) in names.iter().zip(&mut answers) {
                if lost.contains(name) {
                    *answer = Err(error.clone());
                }
            }
        }
        answers
    }

    /// Completes what is incomplete, deletes sources without a record that are as old as `cutoff`,
    /// and removes records whose object was deleted.
    pub(super) async fn sweep(&self, cutoff: UnixMillis, report: &mut SweepReport) -> Result<()> {
        self.complete_all().await?;
        let Some(namespace) = self.known_namespace().await? else { return Ok(()) };
        // In this order: an object that is missing from the listing was deleted before it.
        let complete = self.records.list(namespace, true).await?;
        let mut present = HashSet::new();
        for folder in FOLDERS {
            present.extend(self.store.names(folder, None).await?);
        }
        let mut sources: HashSet<ObjectName> = HashSet::new();
        let mut gone = Vec::new();
        for record in complete {
            sources.insert(record.source);
            if !present.contains(&record.destination) {
                gone.push(record.destination);
            }
        }
        self.records.remove(namespace, gone).await?;
        let listed = self.store.list(prefix::TWO_PHASE, None).await?;
        let is_source = |name| matches!(name, ObjectName::TwoPhaseSource(..));
        for object in listed {
            if !is_source(object.name) || object.modified > cutoff {
                continue;
            }
            // The source of a complete record was to be deleted by the process that copied it.
            let is_free = sources.contains(&object.name)
                || self.records.revoke(namespace, object.name).await?;
            if is_free {
                self.store.delete(object.name).await?;
                report.uploads += 1;
                report.bytes += object.bytes;
            }
        }
        Ok(())
    }
}
