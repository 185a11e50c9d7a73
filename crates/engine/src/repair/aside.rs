//! Copies of what a repair passes over, byte for byte, under a name of this repair that no
//! collector looks at. Only the end of the database deletes them.

use super::chain::ManifestChain;
use super::log::Log;
use crate::io::store::PutAnswer;
use crate::io::store::retry::limit_of;
use crate::manifests::conditional_create::{FIRST_PAUSE, LONGEST_PAUSE};
use crate::manifests::objects::Objects;
use bytes::Bytes;
use siltstone_base::{Error, ErrorKind, JobId, ObjectName, Result};

/// Copies it, and answers where; `None` where nothing was there to copy.
pub(super) async fn copy(
    objects: &Objects,
    repair: JobId,
    chain: &ManifestChain,
    log: &Log,
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
    let names: Vec<(ObjectName, ObjectName)> = manifests.chain(cut_off).collect();
    let mut copied = false;
    for (from, to) in names {
        if let Some(bytes) = objects.get(from).await? {
            put(objects, to, bytes).await?;
            copied = true;
        }
    }
    Ok(copied.then(|| format!("damaged/{repair}/")))
}

/// Nobody else makes the name: that it is there already was an earlier try.
async fn put(objects: &Objects, name: ObjectName, bytes: Bytes) -> Result<()> {
    let env = &objects.env;
    let limit = limit_of(objects.limit, bytes.len() as u64);
    let (began, mut pause) = (env.clock.monotonic(), FIRST_PAUSE);
    loop {
        let error = match env.store.put_if_absent(name, bytes.clone()).await {
            PutAnswer::Created | PutAnswer::Exists => return Ok(()),
            PutAnswer::Refused(error) | PutAnswer::Ambiguous(error) => error,
        };
        if !error.kind().is_transient() {
            return Err(error.with("object", name));
        }
        if env.clock.monotonic().saturating_sub(began) >= limit {
            return Err(Error::new(ErrorKind::Timeout, "the store does not take a copy")
                .with("object", name)
                .caused_by(error));
        }
        env.clock.sleep(env.jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
