//! Reading at a checkpoint that somebody else keeps: nothing is written, nothing is followed
//! (RFC 0017).

use super::following::ReaderView;
use super::lease::expired;
use crate::cache::fetch::ReadContext;
use crate::cache::metadata::MetadataBudget;
use crate::manifests::client::{ManifestRequests, look};
use crate::manifests::missing::no_database;
use crate::manifests::objects::{Objects, seen};
use crate::manifests::replay::insert_rows;
use crate::manifests::rules;
use crate::options::Options;
use crate::read::settings::check_settings;
use crate::read::tree::{Levels, Tree};
use siltstone_base::{CheckpointId, DatabaseId, Error, Result, WalId};
use siltstone_manifest::protocol::{PinnedAction, PinnedWalk, WalSeen};
use siltstone_manifest::{Checkpoint, Manifest};
use siltstone_memtable::Memtable;
use siltstone_sst::wal::WalObject;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What `checkpoint` pins: its tables, and the rows of its part of the WAL.
///
/// # Errors
/// NotFound without a database, Expired when the checkpoint is gone; what reading gives.
pub(crate) async fn view(
    context: &ReadContext,
    options: &Options,
    budget: &Arc<MetadataBudget>,
    checkpoint: CheckpointId,
) -> Result<ReaderView> {
    let objects = Objects { env: context.env.clone(), limit: options.deadline };
    let newest = look(&objects, None).await?.ok_or_else(|| no_database(&context.env))?;
    check_settings(&newest, context)?;
    let found = newest.checkpoint(checkpoint).ok_or_else(|| expired(checkpoint))?;
    let manifest = objects.manifest(found.manifest_id).await?;
    let manifest = manifest.ok_or_else(|| expired(checkpoint))?;
    let rows = walk(&objects, found, newest.database).await?;
    assemble(&manifest, &rows, budget)
}

/// The WAL objects of `checkpoint`, in order.
async fn walk(
    objects: &Objects,
    checkpoint: &Checkpoint,
    database: DatabaseId,
) -> Result<Vec<WalObject>> {
    let mut machine = PinnedWalk::new(checkpoint, rules::in_force());
    let mut requests = ManifestRequests::new(objects);
    let mut bodies: BTreeMap<WalId, WalObject> = BTreeMap::new();
    loop {
        match machine.action() {
            PinnedAction::ReadWal(id) => match objects.wal(id).await? {
                None => machine.on_wal(WalSeen::Absent),
                Some(object) => {
                    machine.on_wal(seen(&object, database));
                    bodies.insert(id, object);
                }
            },
            PinnedAction::Request(request) => {
                machine.on_answer(requests.perform(request).await?);
            }
            PinnedAction::Failed(failure) => return Err(failure.into()),
            PinnedAction::Done(ids) => {
                let kept = ids.iter().map(|id| bodies.remove(id));
                let kept: Option<Vec<_>> = kept.collect();
                return kept.ok_or_else(|| Error::internal("a body met was not kept"));
            }
        }
    }
}

fn assemble(
    manifest: &Arc<Manifest>,
    rows: &[WalObject],
    budget: &Arc<MetadataBudget>,
) -> Result<ReaderView> {
    let active = Arc::new(Memtable::new());
    let flushed = manifest.flushed_seq;
    let mut seq = flushed;
    for object in rows {
        // In tables already (rule N4).
        if let Some(last) = insert_rows(&active, object, flushed, seq)? {
            seq = last;
        }
    }
    let tree = Tree {
        active,
        frozen: Vec::new(),
        levels: Arc::new(Levels::of_manifest(manifest, &Levels::default(), budget)?),
        flushed_seq: flushed,
    };
    Ok(ReaderView { tree: Arc::new(tree), seq, manifest: Arc::clone(manifest) })
}
