//! The newest record of compaction jobs is damaged: no compactor or collector can run.
//!
//! ```text
//! claim a compactor epoch ─► create the next record, without jobs ─► release the epoch
//! ```
//! The effect of jobs on the database depends on the manifest alone, so no row is lost. The jobs of
//! the damaged record can no longer commit, because the claim fences their compactor; their tables
//! are unreferenced, and a collector deletes them.

use super::report::Damage;
use super::void::create;
use crate::manifests::client::{newest, try_commit_alone};
use crate::manifests::objects::Objects;
use siltstone_base::{AttemptId, Epoch, Error, ErrorKind, ObjectId, ObjectName, Result};
use siltstone_manifest::compaction::Compactions;
use siltstone_manifest::edit::Conflict;
use siltstone_manifest::{Edit, Manifest, Refusal};
use std::sync::Arc;

/// A record that cannot be read.
#[derive(Clone, Debug)]
pub(super) struct DamagedRecord {
    pub(super) number: u64,
    pub(super) damage: Damage,
}

/// The newest record of the database of `state`, if it cannot be read.
///
/// # Errors
/// Errors of the store.
pub(super) async fn inspect(objects: &Objects, state: &Manifest) -> Result<Option<DamagedRecord>> {
    if state.mirror.is_some() {
        // No process compacts a mirror.
        return Ok(None);
    }
    let listed = match objects.list_records(state.database, || Ok(())).await {
        // All records are missing: the error says what to do.
        Err(error) if error.kind() == ErrorKind::Corruption => return Ok(None),
        listed => listed?,
    };
    if listed.newest == 0 {
        return Ok(None);
    }
    match objects.record(listed.newest, state.database).await {
        Err(error) if error.kind() == ErrorKind::Corruption => {
            let damage = Damage::new(ObjectName::Compactions(listed.newest), error);
            Ok(Some(DamagedRecord { number: listed.newest, damage }))
        }
        read => read.map(|_| None),
    }
}

/// Continues behind the damaged record, without jobs.
///
/// # Errors
/// Conflict if the record was deleted meanwhile; errors of the store and of a commit.
pub(super) async fn go_on(objects: &Objects, damaged: &DamagedRecord) -> Result<()> {
    let env = &objects.env;
    let state = newest(objects).await?;
    let database = state.database;
    let epoch = claim(objects, state).await?;
    let number = damaged.number.saturating_add(1);
    let record = Compactions { number, epoch, ..Compactions::none(database) };
    let attempt = AttemptId(env.random_u128());
    let bytes = record.encode(ObjectId(env.random_u128()), attempt)?;
    // An existing record was created by a compactor that had the damaged one in memory.
    create(objects, ObjectName::Compactions(number), bytes, attempt).await?;
    let listed = objects.list_records(database, || Ok(())).await?;
    if listed.boundary >= number {
        let text = "the records of compaction jobs were changed meanwhile: check again whether \
                    they are damaged";
        return Err(
            Error::new(ErrorKind::Conflict, text).with("object", ObjectName::Compactions(number))
        );
    }
    // If another compactor has claimed meanwhile, nothing is left to release.
    let release = Edit::ReleaseCompactor { epoch };
    match try_commit_alone(objects, release, newest(objects).await?).await? {
        Ok(_) | Err(Refusal::CompactorFenced { .. }) => Ok(()),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Claims the next compactor epoch.
async fn claim(objects: &Objects, mut state: Arc<Manifest>) -> Result<Epoch> {
    let claim = AttemptId(objects.env.random_u128());
    loop {
        let expected = state.compactor_epoch;
        let edit = Edit::ClaimCompactor { writer: None, expected, claim };
        match try_commit_alone(objects, edit, state).await? {
            Ok(_) => return Ok(expected.next()),
            Err(Refusal::Conflict(Conflict::EpochMoved { .. })) => state = newest(objects).await?,
            Err(refusal) => return Err(refusal.into()),
        }
    }
}
