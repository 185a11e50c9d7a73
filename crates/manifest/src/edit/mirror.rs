//! Edits of a mirror: claims and heads of exporters, and its promotion to a normal database (RFC
//! 0033).
//!
//! ```text
//! begin (manifest 1) ─► claim ─► head ─► claim ─► head … ─► promote
//!        └── or claim, claim: a newer exporter continues with the folder of the previous one
//! ```

use super::{Conflict, MirrorUse, Refusal};
use crate::features::Features;
use crate::rules::{Rule, Rules};
use crate::state::clone::Composed;
use crate::state::{IngestApp, Manifest, Mirror, MirrorHead, Timeline};
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    AttemptId, DatabaseId, JobId, ObjectName, RequestId, SstDescriptor, TimelineId, UnixMillis,
};
use std::collections::HashSet;

/// A change of a mirror.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MirrorEdit {
    /// A new exporter: earlier exporters can no longer commit a head (rule X2).
    Claim {
        /// The database that it exports; refused if it is not the source of the mirror (rule X4).
        source: DatabaseId,
        /// The URL of that database.
        location: String,
        /// Whether it is an import; refused if the mirror was created by exports.
        is_import: bool,
        /// Its identity, random.
        claim: AttemptId,
        /// A new folder; if a folder is being filled already, the exporter continues with that one.
        job: JobId,
    },
    /// The exported data becomes the state.
    Head(Box<NewHead>),
    /// The mirror becomes a normal database (rule X4).
    Promote {
        /// Identity of the request, by which a repeated request recognises its success.
        request: RequestId,
    },
}

/// A head to commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewHead {
    /// The folder with the new tables: it ends here, and its name is never reused.
    pub job: JobId,
    /// The origin of the head, with the claim.
    pub head: MirrorHead,
    /// Its tables, each in the folder, or referenced by the base state of the commit.
    pub tables: Composed,
    /// The last version of each application.
    pub apps: Vec<IngestApp>,
    /// The features of the source that its tables require.
    pub features: Features,
    /// As [`Manifest::behind`].
    pub behind: Option<u64>,
    /// The identity of the history that begins with the first head, and with a head that goes back:
    /// new.
    pub timeline: TimelineId,
    /// When that history begins.
    pub began_at: UnixMillis,
}

impl MirrorEdit {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let database = next.database;
        let has_head = next.initialized;
        let Some(mirror) = &mut next.mirror else {
            let wanted_by = match self {
                MirrorEdit::Claim { is_import, .. } => MirrorUse::of_transfer(*is_import),
                MirrorEdit::Head(_) => MirrorUse::Export,
                MirrorEdit::Promote { .. } => MirrorUse::Promote,
            };
            return Err(Conflict::NoMirror { database, wanted_by }.into());
        };
        match self {
            MirrorEdit::Claim { source, location, is_import, claim, job } => {
                check_source(mirror, database, *source, *is_import)?;
                mirror.location.clone_from(location);
                mirror.claim = *claim;
                let folder = mirror.job.get_or_insert(*job);
                if !rules.has(Rule::ExportFreshFolder) {
                    *folder = JobId::of_an_export(0);
                }
                Ok(())
            }
            MirrorEdit::Head(new) => new.apply(next, rules),
            MirrorEdit::Promote { .. } if !has_head => Err(Conflict::NotInitialized.into()),
            MirrorEdit::Promote { request } => {
                next.mirror = None;
                next.request = Some(*request);
                Ok(())
            }
        }
    }

    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        let mirror = state.mirror.as_ref();
        match self {
            MirrorEdit::Claim { claim, .. } => mirror.is_some_and(|one| one.claim == *claim),
            MirrorEdit::Head(new) => {
                let head = mirror.and_then(|mirror| mirror.head.as_ref());
                head.is_some_and(|head| head.claim == new.head.claim)
            }
            MirrorEdit::Promote { request } => mirror.is_none() && state.request == Some(*request),
        }
    }
}

/// Whether `request` promoted the mirror to a normal database, and no writer has opened it since.
#[must_use]
pub fn is_promoted_by(state: &Manifest, request: RequestId) -> bool {
    state.mirror.is_none() && state.request == Some(request) && state.writer_epoch.is_none()
}

/// A mirror has one source and one purpose (rule X4).
pub(crate) fn check_source(
    mirror: &Mirror,
    database: DatabaseId,
    source: DatabaseId,
    is_import: bool,
) -> Result<(), Refusal> {
    if mirror.source != source {
        return Err(Conflict::OtherSource { database, source: mirror.source }.into());
    }
    if mirror.is_import != is_import {
        return Err(Conflict::OtherPurpose { database, is_import: mirror.is_import }.into());
    }
    Ok(())
}

impl NewHead {
    fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let Some(mirror) = &next.mirror else {
            let (database, wanted_by) = (next.database, MirrorUse::Export);
            return Err(Conflict::NoMirror { database, wanted_by }.into());
        };
        let is_own = mirror.claim == self.head.claim && mirror.job == Some(self.job);
        if !is_own && rules.has(Rule::ExportByClaim) {
            return Err(Conflict::ExportOvertaken.into());
        }
        if rules.has(Rule::ExportSharesHead) {
            self.check_tables(next)?;
        }
        let turns_back = self.turns_back(next);
        let tables = &self.tables;
        next.settings.clone_from(&tables.settings);
        next.schema.clone_from(&tables.schema);
        // How creates are committed belongs to the place, not to the rows.
        let records = next.features.records().map(str::to_owned);
        next.features = self.features.clone().committed_by(records.as_deref());
        // Exporting an older state again does not reuse a sequence number.
        next.behind = self.behind.max(next.behind);
        // Readers continue under their leases if no table has changed.
        if next.l0 != tables.l0 || next.runs != tables.runs {
            next.tables_since = next.id;
        }
        next.l0.clone_from(&tables.l0);
        next.last_l0_order = next.last_l0_order.max(tables.last_l0_order);
        next.l0_last_compacted = tables.l0_last_compacted;
        next.runs.clone_from(&tables.runs);
        next.flushed_seq = next.flushed_seq.max(tables.flushed_seq);
        next.floor = next.flushed_seq;
        next.commit_time = next.commit_time.max(tables.commit_time);
        next.ingest_apps.clone_from(&self.apps);
        next.initialized = true;
        if turns_back {
            next.timelines.push(Timeline {
                id: self.timeline,
                cut: self.head.last_seq,
                begins: next.flushed_seq.next(),
                manifest_id: next.id,
                began_at: self.began_at,
            });
        }
        if let Some(mirror) = &mut next.mirror {
            mirror.job = None;
            mirror.head = Some(self.head.clone());
        }
        Ok(())
    }

    /// Whether the head does not continue from the previous head. Readers of the mirror must then
    /// end with an error (rule S3). The first head begins a history.
    fn turns_back(&self, state: &Manifest) -> bool {
        let before = state.mirror.as_ref().and_then(|mirror| mirror.head.as_ref());
        // An ingest behind all other data is not in the last sequence number. The mirror's count is
        // the highest that it ever had, so a head of the same or a later state does not turn.
        let lacks_jobs = self.behind < state.behind;
        before.is_none_or(|before| {
            before.timeline != self.head.timeline
                || self.head.last_seq < before.last_seq
                || self.head.manifest < before.manifest && lacks_jobs
        })
    }

    /// Checks that every table is in the folder of the exporter, which no other process references,
    /// or is alive in `state`. Any other table may be deleted now or later (rule X2). No table is
    /// elsewhere (rule X3).
    fn check_tables(&self, state: &Manifest) -> Result<(), Refusal> {
        let alive: HashSet<ObjectName> = state.tables().map(SstDescriptor::name).collect();
        let l0 = self.tables.l0.iter().flat_map(|entry| &entry.tables);
        let mut all = l0.chain(self.tables.runs.iter().flat_map(|run| &run.tables));
        let doubtful = all.find(|table| {
            let is_here = table.job == Some(self.job) || alive.contains(&table.name());
            !is_here || table.location != SstLocation::Own
        });
        match doubtful {
            None => Ok(()),
            Some(table) => Err(Conflict::TableGone { table: table.id }.into()),
        }
    }
}
