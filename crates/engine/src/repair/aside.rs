//! Copies objects that a repair gives up, byte for byte, to names of this repair that no collector
//! deletes (rule Y1). Only destroying the database deletes them.

use super::chain::ManifestChain;
use super::jobs::DamagedRecord;
use super::log::Log;
use crate::manifests::conditional_create::{FIRST_PAUSE, LONGEST_PAUSE};
use crate::manifests::objects::Objects;
use bytes::Bytes;
use siltstone_base::name::prefix;
use siltstone_base::{Error, ErrorKind, JobId, ObjectName, Result, SstDescriptor};
use siltstone_store::PutAnswer;
use siltstone_store::retry::{limit_of, with_retries};

/// Bytes of a table per request.
const PART_BYTES: u64 = 8 << 20;

/// Copies the objects. Returns the folder of the copies; `None` if there was nothing to copy.
pub(super) async fn copy(
    objects: &Objects,
    repair: JobId,
    chain: &ManifestChain,
    log: &Log,
    record: Option<&DamagedRecord>,
) -> Result<Option<String>> {
    let manifests = chain
        .unreadable
        .iter()
        .map(|id| (ObjectName::Manifest(*id), ObjectName::DamagedManifest(repair, *id)));
    let cut_off = log
        .cut
        .iter()
        .flat_map(|cut| &cut.off)
        .map(|one| (ObjectName::Wal(one.id), ObjectName::DamagedWal(repair, one.id)));
    let records = record
        .iter()
        .map(|one| one.number)
        .map(|id| (ObjectName::Compactions(id), ObjectName::DamagedCompactions(repair, id)));
    let names: Vec<(ObjectName, ObjectName)> = manifests.chain(cut_off).chain(records).collect();
    let mut copied = false;
    for (from, to) in names {
        if let Some(bytes) = objects.get(from).await? {
            put(objects, to, bytes).await?;
            copied = true;
        }
    }
    Ok(copied.then(|| format!("damaged/{repair}/")))
}

/// Copies the existing bytes of a table in parts. Returns the folder of the copy; `None` if there
/// was nothing to copy.
pub(super) async fn copy_table(
    objects: &Objects,
    repair: JobId,
    table: &SstDescriptor,
) -> Result<Option<String>> {
    let env = &objects.env;
    let (from, to) = (table.name(), ObjectName::DamagedTable(repair, table.id));
    let folder = if table.job.is_some() { prefix::INGEST } else { prefix::COMPACTED };
    let listed = objects.list(folder).await?;
    let Some(bytes) = listed.iter().find(|one| one.name == from).map(|one| one.bytes) else {
        return Ok(None);
    };
    if bytes == 0 {
        // An empty object has no parts.
        put(objects, to, Bytes::new()).await?;
        return Ok(Some(format!("damaged/{repair}/")));
    }
    let mut upload = env.deadline(objects.limit, "begin upload", env.store.upload(to)).await?;
    let filled = async {
        let mut start = 0;
        while start < bytes {
            let range = start..bytes.min(start + PART_BYTES);
            let limit = limit_of(objects.limit, range.end - range.start);
            let get = || env.store.get(from, Some(range.clone()));
            let part = with_retries(env, limit, "read", get).await?;
            let gone = || Error::new(ErrorKind::NotFound, "the table was deleted meanwhile");
            upload.write(part.ok_or_else(gone)?).await?;
            start = range.end;
        }
        Ok::<_, Error>(())
    };
    match filled.await {
        Ok(()) => upload.finish().await?,
        Err(error) => {
            // The first error matters, not that of the abort.
            let _ = upload.abort().await;
            return Err(error.with("object", from));
        }
    }
    Ok(Some(format!("damaged/{repair}/")))
}

/// Creates a copy. Only this repair uses the name, so an existing object is from an earlier
/// attempt.
async fn put(objects: &Objects, name: ObjectName, bytes: Bytes) -> Result<()> {
    let env = &objects.env;
    let limit = limit_of(objects.limit, bytes.len() as u64);
    let (began, mut pause) = (env.clock.monotonic(), FIRST_PAUSE);
    loop {
        let error = match env.store.put_if_absent(name, bytes.clone()).await {
            PutAnswer::Created | PutAnswer::Exists => return Ok(()),
            PutAnswer::Refused(error) | PutAnswer::Ambiguous(error) => error,
        };
        if !error.may_be_repeated() {
            return Err(error.with("object", name));
        }
        if env.clock.monotonic().saturating_sub(began) >= limit {
            let text = "the store does not accept a copy of a damaged object before the deadline; \
                        nothing was changed; repeat the repair";
            return Err(Error::new(ErrorKind::Timeout, text).with("object", name).caused_by(error));
        }
        env.clock.sleep(env.jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
