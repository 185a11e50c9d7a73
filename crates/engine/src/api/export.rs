//! Export and import (RFC 0033): copies a state of a database to another location, where it opens
//! without the source. The head of a mirror must never name a table that was not copied.
//!
//! ```text
//! look at the target ─► pin the source ─► begin or claim the target ─► write rows of the log, copy
//! tables ─► head: one commit ─► unpin
//! ```
//! The module `siltstone_manifest::mirror` decides which tables are new and builds the head.

mod copy;
mod pin;

use super::clone::request;
use crate::manifests::ahead::CommitAfter;
use crate::manifests::client::{ManifestRequests, commit_alone, found, look, look_or_left, newest};
use crate::manifests::gate;
use crate::manifests::missing::check_lives;
use crate::manifests::new_database;
use crate::manifests::objects::{Left, Objects};
use crate::options::Options;
use crate::tables::listed::ListedTables;
use crate::tables::log_to_tables::{TableTarget, TablesOfLog, tables_of_log};
use copy::Copier;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use pin::PinnedSource;
use siltstone_base::{
    AttemptId, Error, ErrorKind, JobId, ManifestId, Result, SstDescriptor, SstId, TimelineId,
};
use siltstone_manifest::edit::{Conflict, MirrorUse};
use siltstone_manifest::mirror::{
    ExportPlan, LogWritten, begun, check_target, is_overtaken, is_promoted_by,
};
use siltstone_manifest::{CheckpointName, Edit, Manifest, Mirror, MirrorEdit, Refusal};
use siltstone_store::env::Env;
use siltstone_store::progress::Progress;
use std::sync::Arc;
use std::time::Duration;

/// The result of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Number of tables that are new in the mirror, including those that an interrupted export had
    /// copied.
    pub tables_moved: u64,
    /// Number of tables that the mirror already had.
    pub tables_shared: u64,
    /// Bytes of tables that this call copied.
    pub bytes: u64,
}

/// The source and the target of an export.
#[derive(Clone, Copy, Debug)]
pub struct ExportPlaces<'a> {
    /// The database whose state is copied. Its store must be writable, since the export pins its
    /// tables.
    pub source: &'a Env,
    /// The target: an empty location, or a mirror of the same database.
    pub target: &'a Env,
}

/// Copies the state of the checkpoint `which`, or the current durable state, into a mirror at the
/// target. A mirror is a database that opens without the source and accepts no writes. If the
/// target has a mirror already, the export copies new tables only, and continues an interrupted
/// export.
///
/// Only the deadline, which bounds each request, and the table options of `options` apply. The
/// export updates `progress`: bytes of tables copied, and bytes to copy in total.
///
/// # Errors
/// NotFound if there is no source; Expired if the checkpoint was deleted or has expired; Conflict
/// if the target is not a mirror of this source, or a newer export to it has taken over; Corruption
/// for a damaged table; Denied, Unavailable, Unsupported; Timeout of one request. After a Timeout
/// of the last commit the export may be complete.
pub fn export<'a>(
    places: ExportPlaces<'a>,
    which: Option<&'a CheckpointName>,
    options: &'a Options,
    progress: &'a Progress,
) -> BoxFuture<'a, Result<ExportReport>> {
    async move {
        let exporter = Exporter::new(places, false, options, progress);
        exporter.run(which).await.map_err(|error| error.during("export"))
    }
    .boxed()
}

/// Exports as [`export`] does, and promotes the mirror to a database that accepts writes. A
/// repeated call continues an interrupted import with the source's then current state. If the same
/// import is complete and the target was not written to since, the call does nothing.
///
/// # Errors
/// As [`export`]; Conflict if the target is a mirror of [`export`], or was written to since the
/// import.
pub fn import<'a>(
    places: ExportPlaces<'a>,
    which: Option<&'a CheckpointName>,
    options: &'a Options,
    progress: &'a Progress,
) -> BoxFuture<'a, Result<ExportReport>> {
    async move {
        let importer = Exporter::new(places, true, options, progress);
        importer.import(which).await.map_err(|error| error.during("import"))
    }
    .boxed()
}

/// Promotes a mirror to an ordinary database: it accepts writes, and no further exports. Does
/// nothing if it was promoted already and was not written to since.
///
/// # Errors
/// NotFound if there is no database; Conflict if it is not a mirror, or no export to it is
/// complete; Denied, Unavailable, Timeout, Corruption.
pub fn promote(env: &Env, deadline: Duration) -> BoxFuture<'_, Result<()>> {
    async move {
        let objects = Objects { env: env.clone(), limit: deadline };
        let newest = newest(&objects).await?;
        check_lives(&newest)?;
        let request = request(&[b"promote".to_vec(), newest.database.0.to_be_bytes().to_vec()]);
        if is_promoted_by(&newest, request) {
            return Ok(());
        }
        if newest.mirror.is_none() {
            let (database, wanted_by) = (newest.database, MirrorUse::Promote);
            return Err(Refusal::from(Conflict::NoMirror { database, wanted_by }).into());
        }
        let promote = Edit::Mirror(MirrorEdit::Promote { request });
        commit_alone(&objects, promote, newest).await.map(drop)
    }
    .boxed()
}

/// Executes one export.
struct Exporter<'a> {
    source: Objects,
    target: Objects,
    is_import: bool,
    options: &'a Options,
    progress: &'a Progress,
}

impl<'a> Exporter<'a> {
    fn new(
        places: ExportPlaces<'_>,
        is_import: bool,
        options: &'a Options,
        progress: &'a Progress,
    ) -> Exporter<'a> {
        let objects = |env: &Env| Objects { env: env.clone(), limit: options.deadline };
        let (source, target) = (objects(places.source), objects(places.target));
        let is_encrypted = |objects: &Objects| objects.env.store.profile().is_encrypted;
        if is_encrypted(&source) && !is_encrypted(&target) {
            log::warn!(
                target: "siltstone.export",
                "event=export_is_plain: the source is encrypted, and the copy has no \
                 `encryption_key`: it is readable without one"
            );
        }
        Exporter { source, target, is_import, options, progress }
    }

    /// Exports, and promotes the mirror.
    async fn import(&self, which: Option<&CheckpointName>) -> Result<ExportReport> {
        let source = self.source().await?.database.0.to_be_bytes().to_vec();
        let which_text = which.map(ToString::to_string).unwrap_or_default().into_bytes();
        let request = request(&[b"import".to_vec(), source, which_text]);
        let done = async {
            let report = self.run(which).await?;
            let newest = newest(&self.target).await?;
            let promote = Edit::Mirror(MirrorEdit::Promote { request });
            commit_alone(&self.target, promote, newest).await?;
            Ok::<_, Error>(report)
        };
        match done.await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let newest = look(&self.target, None).await?;
                let made = newest.is_some_and(|newest| is_promoted_by(&newest, request));
                if made { Ok(ExportReport::default()) } else { Err(error) }
            }
            done => done,
        }
    }

    /// The newest manifest of the source.
    async fn source(&self) -> Result<Arc<Manifest>> {
        let source = newest(&self.source).await?;
        check_lives(&source)?;
        Ok(source)
    }

    async fn run(&self, which: Option<&CheckpointName>) -> Result<ExportReport> {
        let source = self.source().await?;
        gate::check_changes(&source)?;
        let mut look = ManifestRequests::before(&self.target, CommitAfter::Edit);
        let before = look_or_left(&self.target, &mut look).await?;
        if let Ok(state) = &before {
            self.check_target(&source, state)?;
        }
        let pinned = PinnedSource::pin(&self.source, &self.target, which).await?;
        let transfer = self.transfer(&pinned, before, which.is_none()).boxed();
        let done = match select(transfer, pinned.renew().boxed()).await {
            Either::Left((done, _)) => done,
            Either::Right((lost, _)) => Err(lost),
        };
        let done = match done {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(pinned.judge(error).await),
            done => done,
        };
        pinned.release().await;
        done
    }

    /// Checks, before anything is written, that the target accepts this export.
    fn check_target(&self, source: &Manifest, state: &Manifest) -> Result<()> {
        if state.database == source.database {
            return Err(Error::invalid(
                "the target of the export is the source itself; choose another location",
            ));
        }
        check_target(state, source.database, self.is_import)?;
        gate::check_changes(state)
    }

    async fn transfer(
        &self,
        pinned: &PinnedSource,
        before: std::result::Result<Arc<Manifest>, Left>,
        is_of_now: bool,
    ) -> Result<ExportReport> {
        let folder = JobId::of_an_export(self.target.env.random_u128());
        let state = self.claim(pinned, folder, before).await?;
        let source = &pinned.state;
        // Another export was completed meanwhile with a later state. Only a checkpoint that the
        // caller names may be older than the mirror's head; the newest state may not.
        let head = state.mirror.as_ref().and_then(|mirror| mirror.head.as_ref());
        if is_of_now && head.is_some_and(|head| is_overtaken(source, pinned.last_seq, head)) {
            return Err(Refusal::from(Conflict::ExportOvertaken).into());
        }
        let there = self.tables_there(&state, folder).await?;
        let lost = state.tables().filter(|table| !there.has(table)).map(SstDescriptor::name);
        let log = (pinned.last_seq, pinned.log.brought());
        let plan = ExportPlan::new(source, log, &state, &lost.collect());
        let plan = plan.ok_or_else(|| Error::internal("an export has no folder"))?;
        self.progress.expect(plan.moves.iter().map(|(table, _)| table.object_bytes).sum());
        let log = self.write_log(pinned, &plan, &state).await?;
        let copier = Copier::new(self.progress, &self.target, &self.source, source);
        let copied = copier.copy_all(&plan.moves, &there).await?;
        let written = || log.written().map(|table| table.object_bytes);
        let report = ExportReport {
            tables_moved: (plan.moves.len() + written().count()) as u64,
            tables_shared: plan.shared as u64,
            bytes: copied + written().sum::<u64>(),
        };
        let layers = log.layers(|table| plan.placed(table));
        let (last_seq, commit_time) = (log.last_seq, log.commit_time);
        let ingests = log.into_edit().ingests;
        let log = LogWritten { layers, ingests, last_seq, commit_time };
        let env = &self.target.env;
        let head = plan.head(source, log, TimelineId(env.random_u128()), env.clock.now());
        let head = MirrorEdit::Head(Box::new(head));
        let done = commit_alone(&self.target, Edit::Mirror(head), state).await;
        done.map(|_| report).map_err(|error| match error.kind() {
            ErrorKind::Timeout | ErrorKind::Unavailable => {
                error.with("perhaps exported", source.id)
            }
            _ => error,
        })
    }

    /// Creates the mirror, or claims the existing one. Afterwards no older exporter can commit a
    /// head. A folder that an earlier export has begun to fill stays in use.
    async fn claim(
        &self,
        pinned: &PinnedSource,
        folder: JobId,
        before: std::result::Result<Arc<Manifest>, Left>,
    ) -> Result<Arc<Manifest>> {
        let (database, claim) = (pinned.state.database, AttemptId(self.target.env.random_u128()));
        let location = pinned.location();
        let state = match before {
            Ok(state) => state,
            Err(left) => {
                let mirror = Mirror {
                    source: database,
                    location: location.clone(),
                    is_import: self.is_import,
                    claim,
                    job: Some(folder),
                    head: None,
                };
                let state = self.begin(pinned, mirror, left).await?;
                if state.mirror.as_ref().is_some_and(|mirror| mirror.claim == claim) {
                    return Ok(state);
                }
                state
            }
        };
        self.check_target(&pinned.state, &state)?;
        let is_import = self.is_import;
        let claim = MirrorEdit::Claim { source: database, location, is_import, claim, job: folder };
        commit_alone(&self.target, Edit::Mirror(claim), state).await
    }

    /// Creates the first manifest of the mirror. If another process created it first, returns that
    /// one.
    async fn begin(
        &self,
        pinned: &PinnedSource,
        mirror: Mirror,
        left: Left,
    ) -> Result<Arc<Manifest>> {
        // If a database was destroyed in this location, its manifest numbers continue (RFC 0030,
        // rule D4).
        let first: ManifestId = left.1.next();
        let database = new_database::identity(&self.target, left).await?;
        let initial = begun(first, database, &pinned.state, mirror);
        found(&self.target, &mut ManifestRequests::new(&self.target), initial).await
    }

    /// The tables that exist in the target: those that its head names, and those that an earlier
    /// exporter has copied into its folder. Something other than Siltstone may have deleted or
    /// truncated one that the head names; a head that shared it would be a backup that cannot be
    /// read.
    async fn tables_there(&self, state: &Manifest, folder: JobId) -> Result<ListedTables> {
        let has_new_folder = state.mirror.as_ref().is_some_and(|one| one.job == Some(folder));
        match has_new_folder && state.tables().next().is_none() {
            true => Ok(ListedTables::default()),
            false => ListedTables::list(&self.target).await,
        }
    }

    /// Writes the rows of the source's log that no table of the mirror has as tables into the
    /// folder.
    async fn write_log(
        &self,
        pinned: &PinnedSource,
        plan: &ExportPlan,
        state: &Manifest,
    ) -> Result<TablesOfLog> {
        let env = &self.target.env;
        let (database, job) = (state.database, Some(plan.job()));
        let target = TableTarget { env, database, job, options: self.options };
        let mut names = std::iter::repeat_with(|| SstId(env.new_ulid()));
        tables_of_log(&pinned.log, plan.written, &target, &mut names).await
    }
}

/// A table of the source, and its name in the target.
type Move = (SstDescriptor, SstDescriptor);
