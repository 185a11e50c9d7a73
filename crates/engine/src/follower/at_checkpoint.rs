//! Reading a fixed state: at a checkpoint, or at a version that is not collected yet. Such a reader
//! writes nothing and does not follow (RFC 0017, RFC 0027).

use super::following::ReaderView;
use super::lease::expired;
use super::rows::LogRows;
use crate::cache::fetch::ReadContext;
use crate::cache::metadata::MetadataBudget;
use crate::manifests::ahead::ReadAhead;
use crate::manifests::client::{ManifestRequests, absent, look, newest};
use crate::manifests::missing::no_manifest;
use crate::manifests::objects::{Objects, seen};
use crate::manifests::rules;
use crate::options::Options;
use crate::read::queue::{IngestQueue, QueuedIngest};
use crate::read::settings::check_settings;
use crate::read::tree::{Levels, Tree};
use crate::tables::log_to_tables::TakenLog;
use crate::wal::readahead::WalReadahead;
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Error, ErrorKind, ManifestId, ObjectName, Result, Seq,
};
use siltstone_manifest::protocol::{PinnedAction, PinnedWalk, WalSeen};
use siltstone_manifest::{Checkpoint, CheckpointName, Manifest};
use siltstone_sst::wal::WalObject;
use std::sync::Arc;

/// The fixed state that a reader reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadAt {
    /// The state that a checkpoint pins. The newest manifest names it.
    Checkpoint(CheckpointName),
    /// The same, from the knowledge of another reader. This saves one request for each known fact.
    Known(Box<KnownCheckpoint>),
    /// The tables of this manifest, as long as they are kept: the reader pins nothing. Rows of the
    /// WAL are not part of the state.
    Version(ManifestId),
}

/// A checkpoint, and the attempt that created its manifest. The number alone may name another
/// manifest once the checkpoint is gone (rule L6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownCheckpoint {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The attempt that created its manifest.
    pub attempt: AttemptId,
}

impl ReadAt {
    /// The error for a missing table that only this checkpoint or version could keep.
    pub(crate) fn gone(&self) -> Error {
        match self {
            ReadAt::Checkpoint(CheckpointName::Id(id)) => expired(*id),
            ReadAt::Checkpoint(CheckpointName::Name(name)) => {
                Error::new(ErrorKind::Expired, "the checkpoint is gone; make a new one")
                    .with("name", name)
            }
            ReadAt::Known(known) => expired(known.checkpoint.id),
            ReadAt::Version(id) => Error::new(
                ErrorKind::Expired,
                "tables of this version were collected: only a checkpoint keeps them; make one of \
                 the state that is to stay readable",
            )
            .with("version", id),
        }
    }
}

/// The view of the state, and the checkpoint if the state is that of one.
///
/// # Errors
/// NotFound if there is no database, and for a version that is not kept; Expired if the checkpoint
/// is gone; errors of the reads.
pub(crate) async fn view(
    context: &ReadContext,
    options: &Options,
    budget: &Arc<MetadataBudget>,
    at: &ReadAt,
) -> Result<(ReaderView, Option<KnownCheckpoint>)> {
    let objects = Objects { env: context.env.clone(), limit: options.deadline };
    match at {
        ReadAt::Checkpoint(name) => at_name(context, &objects, options, budget, name).await,
        ReadAt::Known(known) => match known_manifest(&objects, known).await? {
            Some(manifest) => {
                check_settings(&manifest, context)?;
                let mut pinned = PinnedRows::on(&manifest, options);
                if known.checkpoint.pins_any_wal() {
                    pinned.walk(&objects, &known.checkpoint, manifest.database).await?;
                }
                let view = pinned.assemble(&objects, &manifest, budget).await?;
                Ok((view, Some(KnownCheckpoint::clone(known))))
            }
            // The manifest is gone, or belongs to another database. The newest manifest tells
            // which.
            None => {
                let name = known.checkpoint.id.into();
                at_name(context, &objects, options, budget, &name).await
            }
        },
        ReadAt::Version(id) => {
            let manifest = kept(&objects, *id).await?;
            check_settings(&manifest, context)?;
            let pinned = PinnedRows::on(&manifest, options);
            Ok((pinned.assemble(&objects, &manifest, budget).await?, None))
        }
    }
}

async fn at_name(
    context: &ReadContext,
    objects: &Objects,
    options: &Options,
    budget: &Arc<MetadataBudget>,
    name: &CheckpointName,
) -> Result<(ReaderView, Option<KnownCheckpoint>)> {
    let newest = newest(objects).await?;
    check_settings(&newest, context)?;
    let found = name.find(&newest)?;
    let manifest = objects.manifest_and_attempt(found.manifest_id).await?;
    let Some((attempt, manifest)) = manifest else {
        return Err(lost_manifest(objects, found).await);
    };
    let mut pinned = PinnedRows::on(&manifest, options);
    pinned.walk(objects, found, newest.database).await?;
    let known = KnownCheckpoint { checkpoint: found.clone(), attempt };
    Ok((pinned.assemble(objects, &manifest, budget).await?, Some(known)))
}

/// The manifest, if it is the object that was known.
async fn known_manifest(
    objects: &Objects,
    known: &KnownCheckpoint,
) -> Result<Option<Arc<Manifest>>> {
    let found = objects.manifest_and_attempt(known.checkpoint.manifest_id).await?;
    let found = found.filter(|(attempt, _)| *attempt == known.attempt);
    let Some((_, manifest)) = found else { return Ok(None) };
    // No look for the newest manifest comes before the log is read.
    objects.follow_log(&manifest)?;
    Ok(Some(manifest))
}

/// The manifest `id`, if it counts: it is between the boundary and the newest, or a checkpoint or
/// lease names it. Below the boundary a late create may have filled a freed number.
async fn kept(objects: &Objects, id: ManifestId) -> Result<Arc<Manifest>> {
    let (listing, ids) = objects.list_run(ManifestId::NONE, &mut ReadAhead::default()).await?;
    let Some(newest) = listing.newest else { return Err(absent(objects).await?) };
    let is_named = async || {
        let newest = objects.manifest(newest).await?;
        Ok::<_, Error>(newest.is_some_and(|newest| newest.pins(id)))
    };
    let counts = id <= newest && (id > listing.boundary || is_named().await?);
    let found = match counts && (ids.contains(&id) || id == newest) {
        true => objects.manifest(id).await?,
        false => None,
    };
    found.ok_or_else(|| no_manifest(id))
}

/// The manifest that `checkpoint` pins.
///
/// # Errors
/// Expired if the checkpoint is gone; Corruption if it exists and its manifest does not; errors of
/// the store.
pub(crate) async fn pinned_manifest(
    objects: &Objects,
    checkpoint: &Checkpoint,
) -> Result<Arc<Manifest>> {
    match objects.manifest(checkpoint.manifest_id).await? {
        Some(manifest) => Ok(manifest),
        None => Err(lost_manifest(objects, checkpoint).await),
    }
}

async fn lost_manifest(objects: &Objects, checkpoint: &Checkpoint) -> Error {
    let text = "the manifest of a checkpoint is gone, although the checkpoint keeps it; put it \
                back from the store's older versions or a backup, or delete the checkpoint";
    let lost = Error::corruption(text).with("object", ObjectName::Manifest(checkpoint.manifest_id));
    unless_gone(objects, checkpoint.id, lost).await
}

/// `lost`, the error for a missing object that `checkpoint` keeps; Expired if the checkpoint was
/// deleted meanwhile, since a collector may have deleted the object then.
pub(crate) async fn unless_gone(objects: &Objects, checkpoint: CheckpointId, lost: Error) -> Error {
    let lost = lost.with("checkpoint", checkpoint);
    match look(objects, None).await {
        Ok(Some(newest)) if newest.checkpoint(checkpoint).is_some() => lost,
        Ok(_) => expired(checkpoint).caused_by(lost),
        Err(error) => error,
    }
}

/// The part of the log that `checkpoint` pins, for a restore or a clone that takes it over.
/// `version` is the manifest of the checkpoint.
///
/// # Errors
/// Expired if the checkpoint is gone; Corruption for a hole, and for an ingest with missing
/// objects; errors of the store.
pub(crate) async fn pinned_to_take(
    objects: &Objects,
    checkpoint: &Checkpoint,
    version: &Manifest,
) -> Result<TakenLog> {
    if !checkpoint.pins_any_wal() {
        return Ok(TakenLog::default());
    }
    let log = pinned_log(objects, checkpoint, version.database).await?;
    match TakenLog::read(objects, log, version.flushed_seq).await {
        // The objects of an ingest are kept as long as the checkpoint is present (rule N14).
        Err(error) if error.kind() == ErrorKind::Corruption => {
            Err(unless_gone(objects, checkpoint.id, error).await)
        }
        read => read,
    }
}

/// The WAL objects of `checkpoint`, in order.
///
/// # Errors
/// Expired if the checkpoint is gone; Corruption for a hole; errors of the store.
pub(crate) async fn pinned_log(
    objects: &Objects,
    checkpoint: &Checkpoint,
    database: DatabaseId,
) -> Result<Vec<WalObject>> {
    let mut log = Vec::new();
    pinned_walk(objects, checkpoint, database, |object| {
        log.push(object);
        Ok(())
    })
    .await?;
    Ok(log)
}

/// Passes the WAL objects of `checkpoint` that have rows to `take`, in order. They count only if
/// this function succeeds.
async fn pinned_walk(
    objects: &Objects,
    checkpoint: &Checkpoint,
    database: DatabaseId,
    mut take: impl FnMut(WalObject) -> Result<()>,
) -> Result<()> {
    let mut machine = PinnedWalk::new(checkpoint, rules::in_force());
    let mut requests = ManifestRequests::new(objects);
    let mut log = WalReadahead::up_to(objects, checkpoint.wal_id_last_seen);
    loop {
        match machine.action() {
            PinnedAction::ReadWal(id) => match log.read(id).await? {
                None => machine.on_wal(WalSeen::Absent),
                Some(object) => {
                    let seen = seen(&object, database);
                    if matches!(seen, WalSeen::Data { .. }) {
                        take(object)?;
                    }
                    machine.on_wal(seen);
                }
            },
            PinnedAction::Request(request) => {
                machine.on_answer(requests.perform(request).await?);
            }
            PinnedAction::Failed(failure) => return Err(failure.into()),
            PinnedAction::Done(_) => return Ok(()),
        }
    }
}

/// The rows of a checkpoint's WAL. They count only if the whole walk succeeds.
struct PinnedRows {
    rows: LogRows,
    flushed: Seq,
    seq: Seq,
}

impl PinnedRows {
    /// No rows yet, on top of the tables of `manifest`.
    fn on(manifest: &Manifest, options: &Options) -> PinnedRows {
        let flushed = manifest.flushed_seq;
        PinnedRows { rows: LogRows::of(options), flushed, seq: flushed }
    }

    /// Reads the WAL objects of `checkpoint`, in order.
    ///
    /// # Errors
    /// Invalid if the log exceeds the reader's memory, because a part of a checkpoint is not the
    /// checkpoint; Expired if the checkpoint is gone; Corruption; errors of the store.
    async fn walk(
        &mut self,
        objects: &Objects,
        checkpoint: &Checkpoint,
        database: DatabaseId,
    ) -> Result<()> {
        pinned_walk(objects, checkpoint, database, |object| {
            if self.rows.is_full(0) {
                return Err(self.rows.too_much().with("checkpoint", checkpoint.id));
            }
            self.push(&object)
        })
        .await
    }

    fn push(&mut self, object: &WalObject) -> Result<()> {
        // Rows up to `flushed` are in tables already (rule N4).
        if let Some(last) = self.rows.push(object, self.flushed, self.seq)? {
            self.seq = last;
        }
        Ok(())
    }

    /// Builds the view. Ingests of the log are pending in the checkpoint's manifest, so their
    /// tables are kept (rule N14).
    async fn assemble(
        mut self,
        objects: &Objects,
        manifest: &Arc<Manifest>,
        budget: &Arc<MetadataBudget>,
    ) -> Result<ReaderView> {
        while let Some(ingest) = self.rows.held_up_by().cloned() {
            self.rows.serve(QueuedIngest::of_log(objects, ingest, budget).await?);
        }
        let (active, frozen) = self.rows.memtables();
        let below = Arc::new(Levels::of_manifest(manifest, &Levels::default(), budget)?);
        let (levels, queue) = IngestQueue::over(self.rows.queued(), &below);
        let tree = Tree { active, frozen, levels, queue, flushed_seq: self.flushed, own: None };
        Ok(ReaderView { tree: Arc::new(tree), seq: self.seq, manifest: Arc::clone(manifest) })
    }
}
