//! What an export is made of (RFC 0033): pure. An exporter looks at what stands in the target, and
//! [`check_target`] says whether it may go there; once it has pinned the source and claimed the
//! target, [`ExportPlan`] says which tables move, which are there already, and what the new head
//! is.

use crate::edit::mirror::check_source;
use crate::edit::{Conflict, NewHead, Refusal};
use crate::state::clone::Composed;
use crate::state::{L0Entry, Manifest, Mirror, MirrorHead, SortedRun};
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    AttemptId, DatabaseId, JobId, ManifestId, Seq, SstDescriptor, SstId, TimelineId, UnixMillis,
};
use std::collections::{HashMap, HashSet};

/// Tables of rows of the log that a mirror gathers before they are written anew as one: each is a
/// layer that look-ups ask.
const MOST_LOG_TABLES: usize = 8;

/// Whether what stands in the target takes this export.
///
/// # Errors
/// Conflict, with what stands there.
pub fn check_target(
    state: &Manifest,
    source: DatabaseId,
    is_import: bool,
) -> Result<&Mirror, Refusal> {
    let database = state.database;
    if state.destroyed_at.is_some() {
        return Err(Conflict::Destroyed.into());
    }
    let Some(mirror) = &state.mirror else { return Err(Conflict::NoMirror { database }.into()) };
    check_source(mirror, database, source, is_import)?;
    Ok(mirror)
}

/// The first manifest of a mirror: nobody opens it before its first head.
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

/// What an export has to do, and the head that it ends with but for the tables of the log that are
/// still to be written.
#[derive(Clone, Debug)]
pub struct ExportPlan {
    /// Tables of the source that are not there yet, each object once, and as the target will have
    /// it: by the first its bytes are found, by the second they are named.
    pub moves: Vec<(SstDescriptor, SstDescriptor)>,
    /// Objects that stay where they are.
    pub shared: usize,
    /// Rows of the source's log above this are to be written; those up to it are in tables.
    pub written: Seq,
    job: JobId,
    claim: AttemptId,
    /// Tables of the log that stay, the oldest first.
    log: Vec<SstDescriptor>,
    l0: Vec<L0Entry>,
    runs: Vec<SortedRun>,
}

/// Rows of the source's log that were written into the folder.
#[derive(Clone, Debug, Default)]
pub struct LogWritten {
    /// Their tables, the oldest first.
    pub tables: Vec<SstDescriptor>,
    /// The last number of the source.
    pub last_seq: Seq,
    /// The latest commit time.
    pub commit_time: UnixMillis,
}

impl ExportPlan {
    /// Of the state `source`, whose log reaches to `last_seq`, into `target`, as the exporter's
    /// claim left it; `None` where it is no mirror, or none whose folder is being filled.
    #[must_use]
    pub fn new(source: &Manifest, last_seq: Seq, target: &Manifest) -> Option<ExportPlan> {
        let mirror = target.mirror.as_ref()?;
        let job = mirror.job?;
        let there: HashMap<SstId, &SstDescriptor> =
            target.tables().map(|table| (table.id, table)).collect();
        let mut met = HashSet::new();
        let (mut moves, mut shared) = (Vec::new(), 0);
        let mut placed = |table: &SstDescriptor| {
            let same = there.get(&table.id).filter(|there| is_same_object(there, table));
            let job = same.map_or(Some(job), |there| there.job);
            let placed = SstDescriptor { location: SstLocation::Own, job, ..table.clone() };
            if met.insert(table.id) {
                match same {
                    Some(_) => shared += 1,
                    None => moves.push((table.whole(), placed.whole())),
                }
            }
            placed
        };
        let l0 = source.l0.iter().map(|layer| L0Entry {
            order: layer.order,
            tables: layer.tables.iter().map(&mut placed).collect(),
        });
        let l0 = l0.collect();
        let runs = source.runs.iter().map(|run| SortedRun {
            id: run.id,
            tables: run.tables.iter().map(&mut placed).collect(),
        });
        let runs = runs.collect();
        let kept = mirror.head.as_ref().filter(|head| log_goes_on(source, last_seq, head));
        let log = kept.map(|head| head.log.iter().filter_map(|id| there.get(id)));
        let log: Vec<SstDescriptor> =
            log.into_iter().flatten().map(|&table| table.clone()).collect();
        let written = kept.map_or(source.flushed_seq, |head| head.last_seq);
        shared += log.len();
        Some(ExportPlan { moves, shared, written, job, claim: mirror.claim, log, l0, runs })
    }

    /// The folder that tables are staged in.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The head, once all of `moves` are there and `log` is written.
    #[must_use]
    pub fn head(
        self,
        source: &Manifest,
        log: LogWritten,
        timeline: TimelineId,
        began_at: UnixMillis,
    ) -> NewHead {
        let (mut l0, mut order) = (self.l0, source.last_l0_order);
        let layers: Vec<SstDescriptor> = self.log.into_iter().chain(log.tables).collect();
        let names = layers.iter().map(|table| table.id).collect();
        for table in layers {
            order = order.saturating_add(1);
            l0.insert(0, L0Entry { order, tables: vec![table] });
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
            apps: source.ingest_apps.clone(),
            features: source.features.clone(),
            behind: source.behind,
            timeline,
            began_at,
        }
    }
}

/// Whether the two name one object; a part of it may be in sight.
fn is_same_object(left: &SstDescriptor, right: &SstDescriptor) -> bool {
    left.checksum == right.checksum && left.object_bytes == right.object_bytes
}

/// Whether the rows of the log that `head` has still are those that follow the source's tables: the
/// same history, nothing flushed since, and no older state.
fn log_goes_on(source: &Manifest, last_seq: Seq, head: &MirrorHead) -> bool {
    head.timeline == history_of(source)
        && head.flushed == source.flushed_seq
        && head.last_seq <= last_seq
        && head.log.len() < MOST_LOG_TABLES
}

fn history_of(source: &Manifest) -> TimelineId {
    source.timelines.last().map_or(TimelineId::NONE, |timeline| timeline.id)
}

#[cfg(test)]
mod tests;
