//! The check of an encrypted database without its key: each object is there as far as its name is
//! listed, has the form of an encrypted object, and names a data key that exists.
//!
//! The content of the objects is not checked, so the report must never be without a reservation.

use super::{CHUNK_BYTES, PARALLEL_TABLES, Verify};
use crate::manifests::missing::no_database;
use crate::manifests::objects::{Objects, is_damage};
use futures::{StreamExt, TryStreamExt, stream};
use siltstone_base::name::prefix;
use siltstone_base::{ObjectName, Result};
use siltstone_store::encrypted::form::{check_data_key, check_form, is_encrypted, part_bytes};
use siltstone_store::progress::Progress;
use siltstone_store::retry::{limit_of, with_retries};
use std::collections::BTreeSet;
use std::ops::Range;

impl Verify<'_> {
    /// Whether the database is encrypted, and the store that reads it has no key.
    pub(super) async fn lacks_key(&self) -> Result<bool> {
        if self.objects.env.store.profile().is_encrypted {
            return Ok(false);
        }
        if !self.objects.names(prefix::ENCRYPTION).await?.is_empty() {
            return Ok(true);
        }
        let (ids, _) = self.objects.manifests_listed().await?;
        let Some(newest) = ids.last() else { return Ok(false) };
        let newest = self.objects.get(ObjectName::Manifest(*newest)).await?;
        Ok(newest.is_some_and(|bytes| is_encrypted(&bytes)))
    }

    /// Checks the form of every object.
    pub(super) async fn forms(&mut self) -> Result<()> {
        self.list().await?;
        if !self.listed.keys().any(|name| matches!(name, ObjectName::Manifest(_))) {
            return Err(no_database(&self.objects.env));
        }
        let keys = self.data_keys().await?;
        self.progress.expect(self.listed.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)));
        let (objects, progress, keys) = (&self.objects, self.progress, &keys);
        let listed: Vec<(ObjectName, u64)> =
            self.listed.iter().map(|(name, bytes)| (*name, *bytes)).collect();
        let listed = listed.into_iter();
        let checks = listed.map(|(name, bytes)| form(objects, progress, name, bytes, keys));
        let mut checks = stream::iter(checks).buffered(PARALLEL_TABLES);
        while let Some((name, read, problem)) = checks.try_next().await? {
            self.report.sealed_objects += u64::from(read > 0);
            self.report.bytes_read += read;
            if let Some(problem) = problem {
                self.report.problem(name, None, problem);
            }
        }
        Ok(())
    }

    /// The numbers of the data keys that exist.
    async fn data_keys(&mut self) -> Result<BTreeSet<u32>> {
        let mut keys = BTreeSet::new();
        for name in self.objects.names(prefix::ENCRYPTION).await? {
            let ObjectName::EncryptionKey(number) = name else { continue };
            let Some(stored) = self.read(name).await? else { continue };
            match check_data_key(number, &stored) {
                Ok(number) => {
                    keys.insert(number);
                }
                Err(error) => self.report.problem(name, None, error),
            }
        }
        if keys.is_empty() {
            let what = "no data key can be read, and without them nothing in the database can be: \
                        restore their objects from a backup or from older versions in the bucket";
            self.report.problem(ObjectName::EncryptionKey(1), None, what);
        }
        Ok(keys)
    }
}

/// The name, the bytes that were read, and the problem of an object of `bytes` bytes. An object
/// that was deleted since the listing has neither bytes nor a problem.
async fn form(
    objects: &Objects,
    progress: &Progress,
    name: ObjectName,
    bytes: u64,
    keys: &BTreeSet<u32>,
) -> Result<(ObjectName, u64, Option<siltstone_base::Error>)> {
    let part = part_bytes(CHUNK_BYTES);
    let is_table = matches!(name, ObjectName::Compacted(_) | ObjectName::IngestSst(..));
    let parts: Vec<Option<Range<u64>>> = if is_table && bytes > part {
        let starts = (0..bytes).step_by(part as usize);
        starts.map(|start| Some(start..(start + part).min(bytes))).collect()
    } else {
        vec![None]
    };
    let mut read = 0;
    for range in parts {
        let limit = limit_of(objects.limit, part);
        let get = || objects.env.store.get(name, range.clone());
        let stored = match with_retries(&objects.env, limit, "read", get).await {
            Err(error) if is_damage(error.kind()) => return Ok((name, read, Some(error))),
            stored => stored?,
        };
        let Some(stored) = stored else { return Ok((name, read, None)) };
        read += stored.len() as u64;
        progress.add(stored.len() as u64);
        if let Err(error) = check_form(name, &stored, keys) {
            return Ok((name, read, Some(error)));
        }
    }
    Ok((name, read, None))
}
