//! Copies tables from one location to another, and verifies each. It must never leave an unverified
//! table for a commit.
//!
//! ```text
//! there already ─────────────────► read: its checksum is the manifest's ─► done
//! one bucket: the store copies it ─► read: its checksum is the manifest's ─► done
//! else: parts ─► checksum ─► upload, complete once the checksum is the manifest's
//! ```
//! A store copies a damaged table without an error, so every table is read once.
//!
//! Memory: [`PARALLEL_TABLES`] tables, each with [`PARTS_AHEAD`] parts of [`PART_BYTES`] that are
//! being read, and the parts that its upload has in flight.

use super::Move;
use crate::cache::ancestors::Ancestors;
use crate::manifests::objects::{Objects, is_damage};
use crate::tables::listed::ListedTables;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use siltstone_base::{Error, ErrorKind, ObjectName, Result, SstDescriptor, checksum};
use siltstone_manifest::Manifest;
use siltstone_store::progress::Progress;
use siltstone_store::retry::{limit_of, with_retries};
use siltstone_store::{Store, Upload};
use std::ops::Range;
use std::sync::Arc;

/// Tables that are copied in parallel: enough to keep two cores, and a network, busy.
const PARALLEL_TABLES: usize = 4;
/// Bytes of one read, and of one part of an upload (RFC 0002 has the reason).
const PART_BYTES: u64 = 8 << 20;
/// Parts of one table that are read in parallel.
const PARTS_AHEAD: usize = 2;
/// Attempts to copy a table whose bytes do not match: the damage may be in transit, once.
const TRIES: u32 = 2;

/// Copies tables of a source to a target.
pub(super) struct Copier<'a> {
    progress: &'a Progress,
    target: &'a Objects,
    source: &'a Objects,
    ancestors: Ancestors,
}

impl<'a> Copier<'a> {
    /// A copier for the tables of the state `pinned` of the source.
    pub(super) fn new(
        progress: &'a Progress,
        target: &'a Objects,
        source: &'a Objects,
        pinned: &Manifest,
    ) -> Copier<'a> {
        let ancestors = Ancestors::default();
        ancestors.learn(pinned);
        Copier { progress, target, source, ancestors }
    }

    /// Copies each table, except those that are completely `staged`. Returns the number of copied
    /// bytes.
    ///
    /// # Errors
    /// NotFound for a missing table; Corruption for a damaged one; errors of the stores.
    pub(super) async fn copy_all(&self, moves: &[Move], staged: &ListedTables) -> Result<u64> {
        // A loop instead of a closure: the compiler cannot prove that a stream with the closure is
        // `Send`.
        let mut copies = Vec::with_capacity(moves.len());
        for one in moves {
            copies.push(self.moved(one, staged));
        }
        let mut copies = stream::iter(copies).buffer_unordered(PARALLEL_TABLES);
        let mut sum = 0u64;
        while let Some(bytes) = copies.next().await {
            sum = sum.saturating_add(bytes?);
        }
        Ok(sum)
    }

    /// Copies one table, unless it is staged completely. Returns the number of copied bytes.
    fn moved<'b>(
        &'b self,
        (table, to): &'b Move,
        staged: &'b ListedTables,
    ) -> BoxFuture<'b, Result<u64>> {
        async move {
            if staged.has(to) && self.is_whole(to).await? {
                self.progress.add(to.object_bytes);
                return Ok(0);
            }
            self.copy(table, to).await.map_err(|error| error.with("table", table.name()))?;
            Ok(to.object_bytes)
        }
        .boxed()
    }

    async fn copy(&self, table: &SstDescriptor, to: &SstDescriptor) -> Result<()> {
        let from = self.ancestors.store_of(&self.source.env.store, table)?;
        if self.copied_by_the_store(&*from, table, to).await? {
            self.progress.add(to.object_bytes);
            return Ok(());
        }
        for tried in 1.. {
            match self.send(&from, table, to).await {
                Err(error) if error.kind() == ErrorKind::Corruption && tried < TRIES => {}
                ended => return ended,
            }
        }
        Ok(())
    }

    /// Whether the store has copied the table within itself. If the store cannot, or this process
    /// may not, the caller sends the bytes.
    async fn copied_by_the_store(
        &self,
        from: &dyn Store,
        table: &SstDescriptor,
        to: &SstDescriptor,
    ) -> Result<bool> {
        let Some(location) = from.place().location() else { return Ok(false) };
        let (env, limit) = (&self.target.env, limit_of(self.target.limit, to.object_bytes));
        let copy = env.store.neighbours().copy_from(&location, table.name(), to.name());
        match env.deadline(limit, "copy", copy).await {
            Ok(true) => self.is_whole(to).await,
            Ok(false) | Err(_) => Ok(false),
        }
    }

    /// Whether the table exists and every byte is right.
    async fn is_whole(&self, to: &SstDescriptor) -> Result<bool> {
        let store = &self.target.env.store;
        let summed = self.checksum(self.target, store, to, None).await;
        match summed {
            Ok(sum) => Ok(sum == to.checksum),
            Err(error) if is_damage(error.kind()) || error.kind() == ErrorKind::NotFound => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The CRC32C of a whole table. With `upload` the parts are also uploaded.
    async fn checksum(
        &self,
        objects: &Objects,
        store: &Arc<dyn Store>,
        table: &SstDescriptor,
        mut upload: Option<&mut dyn Upload>,
    ) -> Result<u32> {
        let starts = (0..table.object_bytes).step_by(PART_BYTES as usize);
        let parts = starts.map(|start| {
            let range = start..table.object_bytes.min(start + PART_BYTES);
            read(objects, store, table.name(), range).boxed()
        });
        let mut parts = stream::iter(parts).buffered(PARTS_AHEAD);
        let mut sum = checksum::crc32c(&[]);
        while let Some(part) = parts.next().await {
            let gone = || Error::new(ErrorKind::NotFound, "the table is gone");
            let part = part?.ok_or_else(gone)?;
            let bytes = part.clone();
            let extend = move || checksum::extend(sum, &bytes);
            sum = objects.env.blocking("checksum", extend).await?;
            if let Some(upload) = &mut upload {
                self.progress.add(part.len() as u64);
                upload.write(part).await?;
            }
        }
        Ok(sum)
    }

    /// Reads the table and uploads it through this process.
    async fn send(
        &self,
        from: &Arc<dyn Store>,
        table: &SstDescriptor,
        to: &SstDescriptor,
    ) -> Result<()> {
        let env = &self.target.env;
        let open = env.store.upload(to.name());
        let mut upload = env.deadline(self.target.limit, "begin upload", open).await?;
        let filled = async {
            let sum = self.checksum(self.source, from, table, Some(&mut *upload)).await?;
            if sum == table.checksum {
                return Ok(());
            }
            Err(Error::corruption("the checksum of the whole table is not the manifest's"))
        };
        match filled.await {
            Ok(()) => upload.finish().await,
            Err(error) => {
                // The caller must get the first error, not that of the abort.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }
}

async fn read(
    objects: &Objects,
    store: &Arc<dyn Store>,
    name: ObjectName,
    range: Range<u64>,
) -> Result<Option<Bytes>> {
    let get = || store.get(name, Some(range.clone()));
    let limit = limit_of(objects.limit, range.end.saturating_sub(range.start));
    with_retries(&objects.env, limit, "read", get).await
}
