//! Tables from one place to another, each checked on its way.
//!
//! ```text
//! there already ─────────────────► read: its checksum is the manifest's ─► done
//! one bucket: the store copies it ─► read: its checksum is the manifest's ─► done
//! else: parts ─► checksum ─► upload, complete once the checksum is the manifest's
//! ```
//! A store copies a damaged table without an error, so every table is read once.
//!
//! Memory: [`PARALLEL_TABLES`] tables, each with [`PARTS_AHEAD`] parts of [`PART_BYTES`] that are
//! read, and those that its upload has under way.

use super::Move;
use crate::cache::ancestors::Ancestors;
use crate::io::progress::Progress;
use crate::io::store::retry::{limit_of, with_retries};
use crate::io::store::{Store, Upload};
use crate::manifests::objects::{Objects, is_damage};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use siltstone_base::{Error, ErrorKind, ObjectName, Result, SstDescriptor, checksum};
use siltstone_manifest::Manifest;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Tables on their way at a time: enough to keep two cores, and a network, busy.
const PARALLEL_TABLES: usize = 4;
/// What one request reads: that of one part of an upload (RFC 0002 has why).
const PART_BYTES: u64 = 8 << 20;
/// Parts of one table that are read side by side.
const PARTS_AHEAD: usize = 2;
/// How often a table is sent whose bytes are wrong: they may be damaged on the way, once.
const TRIES: u32 = 2;

/// Copies tables of a source to a target.
pub(super) struct Copier<'a> {
    progress: &'a Progress,
    target: &'a Objects,
    source: &'a Objects,
    ancestors: Ancestors,
}

impl<'a> Copier<'a> {
    /// Of the state `pinned` of the source.
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

    /// Copies each, but for those that are `staged` whole. Gives the bytes that went.
    ///
    /// # Errors
    /// NotFound for a table that is gone; Corruption for one that is damaged; the stores'.
    pub(super) async fn copy_all(
        &self,
        moves: &[Move],
        staged: &HashMap<ObjectName, u64>,
    ) -> Result<u64> {
        // No closure: a compiler cannot tell that a stream of one may be sent.
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

    /// One, unless it is staged whole. Gives the bytes that went.
    fn moved<'b>(
        &'b self,
        (table, to): &'b Move,
        staged: &'b HashMap<ObjectName, u64>,
    ) -> BoxFuture<'b, Result<u64>> {
        async move {
            let is_there = staged.get(&to.name()) == Some(&to.object_bytes);
            if is_there && self.is_whole(to).await? {
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

    /// Whether the store has copied it by itself. One that cannot, or may not, is helped.
    async fn copied_by_the_store(
        &self,
        from: &dyn Store,
        table: &SstDescriptor,
        to: &SstDescriptor,
    ) -> Result<bool> {
        let Some(location) = from.location() else { return Ok(false) };
        let (env, limit) = (&self.target.env, limit_of(self.target.limit, to.object_bytes));
        let copy = env.store.copy_from(&location, table.name(), to.name());
        match env.deadline(limit, "copy", copy).await {
            Ok(true) => self.is_whole(to).await,
            Ok(false) | Err(_) => Ok(false),
        }
    }

    /// Whether the table is there, every byte of it.
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

    /// The CRC32C of all of a table, whose parts go into `upload` too.
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

    /// Through this process.
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
                // What failed first is what the caller must know.
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
