//! Restoring a checkpoint as the current state (RFC 0030, rule S1): takes over as a writer does,
//! and ends with one commit. A restore must never reuse a sequence number or a WAL id.

use crate::follower::at_checkpoint::{pinned_manifest, pinned_to_take, unless_gone};
use crate::manifests::client::{commit_alone, newest};
use crate::manifests::gate;
use crate::manifests::missing::check_writable;
use crate::manifests::objects::Objects;
use crate::options::Options;
use crate::tables::listed::check_tables_of;
use crate::tables::log_to_tables::{TableTarget, TablesOfLog, TakenLog, tables_of_log};
use crate::writer::flush::new_names;
use crate::writer::opening::Opening;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{
    AttemptId, CheckpointId, ErrorKind, Result, Seq, SstId, TimelineId, UnixMillis, WalId,
};
use siltstone_manifest::protocol::{Recovered, WriterOptions};
use siltstone_manifest::{CheckpointName, Edit, Manifest, Restore};
use siltstone_sst::wal::WalObject;
use siltstone_store::counting::within;
use siltstone_store::env::Env;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Restores the checkpoint `which` as the current state of the database. Fences the current writer.
/// Copies no table, and never decreases a sequence number. All checkpoints stay, including those
/// that are later than `which`, so a later state can be restored again if it has a checkpoint.
///
/// # Errors
/// NotFound if there is no database; Expired for a checkpoint that was deleted or has expired;
/// Corruption if the manifest, the log or a table of the checkpoint is missing or damaged (the
/// restore reads no whole table): then nothing was changed; Fenced if the database was opened for
/// writing meanwhile; Denied, Unavailable, Timeout (the restore may be complete), Unsupported.
pub fn restore<'a>(
    env: &'a Env,
    which: &'a CheckpointName,
    options: &'a Options,
) -> BoxFuture<'a, Result<()>> {
    within(env, options.deadline, "restore", move |counted| async move {
        let objects = Objects { env: counted, limit: options.deadline };
        let newest = newest(&objects).await?;
        check_writable(&newest)?;
        gate::check_changes(&newest)?;
        let checkpoint = which.find(&newest)?.clone();
        let version = pinned_manifest(&objects, &checkpoint).await?;
        let log = pinned_to_take(&objects, &checkpoint, &version).await?;
        // The restore puts this state in the place of one that may be intact.
        match check_tables_of(&objects, &version).await {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                return Err(unless_gone(&objects, checkpoint.id, error).await);
            }
            checked => checked?,
        }
        let pinned = RestoreSource { checkpoint: checkpoint.id, version, log };
        pinned.restore(&objects, newest, options).await
    })
    .map(move |restored| {
        restored.map_err(|error| match error.kind() {
            ErrorKind::Timeout | ErrorKind::Unavailable => error.with("perhaps restored", which),
            _ => error,
        })
    })
    .boxed()
}

/// The pinned state of the checkpoint to restore.
struct RestoreSource {
    checkpoint: CheckpointId,
    version: Arc<Manifest>,
    /// The pinned part of the log.
    log: TakenLog,
}

impl RestoreSource {
    async fn restore(
        &self,
        objects: &Objects,
        newest: Arc<Manifest>,
        options: &Options,
    ) -> Result<()> {
        let env = &objects.env;
        // Marks the database as in use, so that a handle of this process that is fenced now does
        // not keep later openers out.
        let _presence = env.store.place().occupy(newest.database, true).await?;
        // The claim reserves these ids: a collector deletes no object with a reserved id (rule R1).
        let names = new_names(env, self.log.objects.len());
        let how = WriterOptions {
            claim: AttemptId(env.random_u128()),
            max_parallel_writes: 1,
            take_over: true,
            reserve: names.clone(),
            ..WriterOptions::default()
        };
        let (recovered, bodies) = Opening::new(objects, newest, how).drive().await?;
        let (reached, commit_time) = reached(&recovered, &bodies);
        let log = self.tables(objects, &recovered, options, names).await?;
        let edit = Restore {
            epoch: recovered.epoch,
            checkpoint: self.checkpoint,
            version: Arc::clone(&self.version),
            cut: log.last_seq,
            log: log.into_edit(),
            reached,
            commit_time,
            fences: recovered.fences(),
            timeline: TimelineId(env.random_u128()),
            began_at: env.clock.now(),
        };
        commit_alone(objects, Edit::Restore(edit), recovered.manifest).await.map(drop)
    }

    /// Writes the pinned part of the log as tables. The database does not name them before the
    /// commit.
    async fn tables(
        &self,
        objects: &Objects,
        recovered: &Recovered,
        options: &Options,
        names: Vec<SstId>,
    ) -> Result<TablesOfLog> {
        let (env, database) = (&objects.env, recovered.manifest.database);
        let target = TableTarget { env, database, job: None, options };
        let flushed = self.version.flushed_seq;
        tables_of_log(&self.log, flushed, &target, &mut names.into_iter()).await
    }
}

/// The highest sequence number of the walked log, and its latest commit time. Later writes must not
/// have lower ones.
fn reached(recovered: &Recovered, bodies: &BTreeMap<WalId, WalObject>) -> (Seq, UnixMillis) {
    let met = recovered.replay.iter().filter_map(|(id, _)| bodies.get(id));
    let state = &recovered.manifest;
    met.fold((state.flushed_seq, state.commit_time), |(seq, at), object| {
        (seq.max(object.last_seq), at.max(object.sent.at))
    })
}
