//! The composition of an export (RFC 0033), as pure functions. An exporter reads the state of the
//! target, and [`check_target`] says whether the export may go there. After it has pinned the
//! source and claimed the target, [`ExportPlan`] says which tables to copy, which are already
//! present, and what the new head is.

use crate::edit::ingest::apps_with;
use crate::edit::mirror::check_source;
pub use crate::edit::mirror::is_promoted_by;
use crate::edit::{Conflict, InstallIngest, MirrorUse, NewHead, Refusal};
use crate::state::clone::Composed;
use crate::state::{L0Entry, Manifest, Mirror, MirrorHead, SortedRun};
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    AttemptId, DatabaseId, JobId, ManifestId, ObjectName, Seq, SstDescriptor, SstId, TimelineId,
    UnixMillis,
};
use std::collections::{HashMap, HashSet};

/// Maximum number of tables with log rows in a mirror before they are rewritten as one: each is a
/// layer that look-ups must read.
const MOST_LOG_TABLES: usize = 8;

/// Checks that the target accepts this export.
///
/// # Errors
/// Conflict, with the database at the target.
pub fn check_target(
    state: &Manifest,
    source: DatabaseId,
    is_import: bool,
) -> Result<&Mirror, Refusal> {
    let database = state.database;
    if state.destroyed_at.is_some() {
        return Err(Conflict::Destroyed.into());
    }
    let Some(mirror) = &state.mirror else {
        let wanted_by = MirrorUse::of_transfer(is_import);
        return Err(Conflict::NoMirror { database, wanted_by }.into());
    };
    check_source(mirror, database, source, is_import)?;
    Ok(mirror)
}

/// The first manifest of a mirror: it cannot be opened before its first head.
#[must_use]
pub fn begun(id: ManifestId, database: DatabaseId, source: &Manifest, mirror: Mirror) -> Manifest {
    let first = Manifest::new_database(database, source.settings.clone());
    Manifest {
        id,
        initialized: false,
        mirror: Some(mirror),
        features: source.features.clone(),
        schema: source.schema.clone(),
        ..first.behind_as(source)
    }
}

/// The steps of an export, and its head without the log tables that are still to be written.
#[derive(Clone, Debug)]
pub struct ExportPlan {
    /// Tables of the source that are not in the target yet, each object once, paired with their
    /// descriptors in the target: the first locates the bytes, the second names them.
    pub moves: Vec<(SstDescriptor, SstDescriptor)>,
    /// Number of objects that are already present.
    pub shared: usize,
    /// Entries of the source's log above this number are to be copied; the others are in tables.
    pub written: Seq,
    job: JobId,
    claim: AttemptId,
    /// Tables of the source by their names in the target.
    placed: HashMap<SstId, Option<JobId>>,
    /// Whether the log contains ingests: later exports then copy the whole log again.
    has_ingests: bool,
    /// Log tables that stay, oldest first.
    log: Vec<SstDescriptor>,
    l0: Vec<L0Entry>,
    runs: Vec<SortedRun>,
}

/// The log of the source, written to tables.
#[derive(Clone, Debug, Default)]
pub struct LogWritten {
    /// Layers of the target, oldest first: tables of rows that were written into the folder, and
    /// tables of ingests, [placed](ExportPlan::placed).
    pub layers: Vec<Vec<SstDescriptor>>,
    /// Its ingest jobs.
    pub ingests: Vec<InstallIngest>,
    /// The last number of the source.
    pub last_seq: Seq,
    /// The latest commit time.
    pub commit_time: UnixMillis,
}

impl ExportPlan {
    /// Plans the export of the state `source`, whose log reaches to `last_seq` and contains the
    /// tables `brought`, into `target`, the state after the exporter's claim. Tables of the target
    /// that are `lost` are not shared but copied again, into the exporter's folder: their names
    /// may be in a checkpoint of the target, whose readers hold them to its manifest. `None` if the
    /// target is not a mirror, or no folder of it is being filled.
    #[must_use]
    pub fn new<'a>(
        source: &Manifest,
        (last_seq, brought): (Seq, impl Iterator<Item = &'a SstDescriptor>),
        target: &Manifest,
        lost: &HashSet<ObjectName>,
    ) -> Option<ExportPlan> {
        let mirror = target.mirror.as_ref()?;
        let job = mirror.job?;
        let is_there = |table: &&SstDescriptor| !lost.contains(&table.name());
        let there: HashMap<SstId, &SstDescriptor> =
            target.tables().filter(is_there).map(|table| (table.id, table)).collect();
        let mut plan = ExportPlan {
            moves: Vec::new(),
            shared: 0,
            written: source.flushed_seq,
            job,
            claim: mirror.claim,
            placed: HashMap::new(),
            has_ingests: false,
            log: Vec::new(),
            l0: Vec::new(),
            runs: Vec::new(),
        };
        for table in brought {
            plan.place(table, &there);
            plan.has_ingests = true;
        }
        source.tables().for_each(|table| plan.place(table, &there));
        plan.l0 = source.l0.clone();
        let l0 = plan.l0.iter_mut().flat_map(|layer| &mut layer.tables);
        plan.runs = source.runs.clone();
        let runs = plan.runs.iter_mut().flat_map(|run| &mut run.tables);
        for table in l0.chain(runs) {
            *table = placed(table, &plan.placed);
        }
        // A table of log rows has no counterpart in the source: if one is lost, all are rewritten.
        let has_log = |head: &MirrorHead| head.log.iter().all(|id| there.contains_key(id));
        let goes_on = |head: &&MirrorHead| has_log(head) && log_goes_on(source, last_seq, head);
        if let Some(head) = mirror.head.as_ref().filter(goes_on)
            && !plan.has_ingests
        {
            let log = head.log.iter().filter_map(|id| there.get(id));
            plan.log = log.map(|&table| table.clone()).collect();
            plan.written = head.last_seq;
            plan.shared += plan.log.len();
        }
        Some(plan)
    }

    /// Makes sure that a table of the source is in the target.
    fn place(&mut self, table: &SstDescriptor, there: &HashMap<SstId, &SstDescriptor>) {
        if self.placed.contains_key(&table.id) {
            return;
        }
        let same = there.get(&table.id).filter(|there| is_same_object(there, table));
        self.placed.insert(table.id, same.map_or(Some(self.job), |there| there.job));
        match same {
            Some(_) => self.shared += 1,
            None => self.moves.push((table.whole(), placed(table, &self.placed).whole())),
        }
    }

    /// A table of the source with its name and location in the target.
    #[must_use]
    pub fn placed(&self, table: &SstDescriptor) -> SstDescriptor {
        placed(table, &self.placed)
    }

    /// The folder in which tables are staged.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The head, once all `moves` are copied and `log` is written.
    #[must_use]
    pub fn head(
        self,
        source: &Manifest,
        log: LogWritten,
        timeline: TimelineId,
        began_at: UnixMillis,
    ) -> NewHead {
        let (mut l0, mut order) = (self.l0, source.last_l0_order);
        let before = self.log.into_iter().map(|table| vec![table]);
        let layers: Vec<Vec<SstDescriptor>> = before.chain(log.layers).collect();
        // A log that contains an ingest is not continued by the next export.
        let names = match self.has_ingests {
            true => Vec::new(),
            false => layers.iter().flatten().map(|table| table.id).collect(),
        };
        for tables in layers {
            order = order.saturating_add(1);
            l0.insert(0, L0Entry { order, tables });
        }
        let last_seq = source.flushed_seq.max(self.written).max(log.last_seq);
        NewHead {
            job: self.job,
            head: MirrorHead {
                manifest: source.id,
                attempt: source.attempt,
                flushed: source.flushed_seq,
                last_seq,
                timeline: history_of(source),
                claim: self.claim,
                log: names,
            },
            tables: Composed {
                settings: source.settings.clone(),
                schema: source.schema.clone(),
                l0,
                last_l0_order: order,
                l0_last_compacted: source.l0_last_compacted,
                runs: self.runs,
                flushed_seq: last_seq,
                commit_time: source.commit_time.max(log.commit_time),
            },
            apps: apps_with(source, &log.ingests),
            features: source.features.clone(),
            behind: source.behind,
            timeline,
            began_at,
        }
    }
}

fn placed(table: &SstDescriptor, jobs: &HashMap<SstId, Option<JobId>>) -> SstDescriptor {
    let job = jobs.get(&table.id).copied().flatten();
    SstDescriptor { location: SstLocation::Own, job, ..table.clone() }
}

/// Whether both describe the same object; its visible parts may differ.
fn is_same_object(left: &SstDescriptor, right: &SstDescriptor) -> bool {
    left.checksum == right.checksum && left.object_bytes == right.object_bytes
}

/// Whether the log rows in `head` still directly follow the source's tables: the same history,
/// nothing flushed since, and no older state.
fn log_goes_on(source: &Manifest, last_seq: Seq, head: &MirrorHead) -> bool {
    // A head without such tables contained an ingest among its log rows, or no live row.
    let is_listed = !head.log.is_empty() || head.last_seq == head.flushed;
    is_listed
        && head.timeline == history_of(source)
        && head.flushed == source.flushed_seq
        && head.last_seq <= last_seq
        && head.log.len() < MOST_LOG_TABLES
}

/// Whether a mirror with this head shows a later moment of the source than `source` with its log up
/// to `last_seq`. The manifest alone does not order two exports: each pins a manifest first and
/// reads the log after that, so the export with the newer manifest may have read less of the log
/// (rule X2).
#[must_use]
pub fn is_overtaken(source: &Manifest, last_seq: Seq, head: &MirrorHead) -> bool {
    let is_behind = last_seq.max(source.flushed_seq) < head.last_seq;
    source.id < head.manifest || head.timeline == history_of(source) && is_behind
}

fn history_of(source: &Manifest) -> TimelineId {
    source.timelines.last().map_or(TimelineId::NONE, |timeline| timeline.id)
}

#[cfg(test)]
mod tests;
