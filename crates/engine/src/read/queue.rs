//! The queue between memtables (RFC 0035, rules Q1 to Q3): ingests that are in the log and in no
//! version yet.
//!
//! ```text
//! newest                                                   oldest
//! | memtable | ingested | memtable | ingested | memtable |  tables that the manifest names
//! ```
//! No memtable spans an ingest, so every element lies wholly above or below it by number.

use super::tree::{Levels, TableRun};
use crate::cache::metadata::{MetadataBudget, TableHandle};
use crate::manifests::objects::Objects;
use crate::wal::replay::layers_of;
use siltstone_base::{JobId, Result, Seq, SstDescriptor};
use siltstone_sst::wal::{WalIngest, WalIngestContent};
use std::sync::{Arc, OnceLock};

/// A job, or a large batch, on its way into a version.
#[derive(Debug)]
pub(crate) struct QueuedIngest {
    pub(crate) content: WalIngestContent,
    /// Its sequence numbers: one a layer.
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// Its layers, the oldest first, each at its number.
    pub(crate) layers: Vec<Vec<SstDescriptor>>,
    /// The same as they are read, the newest first.
    runs: Vec<TableRun>,
    /// The tables of the version that installed it: a read that still uses the element keeps the
    /// checkpoint of that version (rule Q3).
    pub(crate) installed: OnceLock<Arc<Levels>>,
}

impl QueuedIngest {
    /// An element of these layers, the oldest first, each at its number from `first` on.
    pub(crate) fn new(
        content: WalIngestContent,
        first: Seq,
        layers: Vec<Vec<SstDescriptor>>,
        budget: &Arc<MetadataBudget>,
    ) -> Arc<QueuedIngest> {
        let open = |table: &SstDescriptor| TableHandle::new(table.clone(), budget);
        let runs =
            layers.iter().rev().map(|tables| TableRun::new(tables.iter().map(open).collect()));
        let runs = runs.collect();
        let last = first.plus((layers.len() as u64).saturating_sub(1));
        let installed = OnceLock::new();
        Arc::new(QueuedIngest { content, first, last, layers, runs, installed })
    }

    /// The queued ingest of a log record, for replay.
    ///
    /// # Errors
    /// As [`layers_of`].
    pub(crate) async fn of_log(
        objects: &Objects,
        record: WalIngest,
        budget: &Arc<MetadataBudget>,
    ) -> Result<Arc<QueuedIngest>> {
        let layers = layers_of(objects, &record).await?;
        Ok(QueuedIngest::new(record.content, record.first_seq, layers, budget))
    }

    /// The job, where it is one.
    pub(crate) fn job(&self) -> Option<JobId> {
        match &self.content {
            WalIngestContent::Job { job, .. } => Some(*job),
            WalIngestContent::Tables(_) => None,
        }
    }

    /// Its layers as they are read, the newest first.
    pub(super) fn runs(&self) -> &[TableRun] {
        &self.runs
    }
}

/// All that are queued, over the tables of a version.
#[derive(Debug)]
pub(crate) struct IngestQueue {
    /// Newest first; at least one.
    pub(crate) elements: Vec<Arc<QueuedIngest>>,
    /// The levels of the manifest.
    pub(crate) below: Arc<Levels>,
}

impl IngestQueue {
    /// Every table that a read may touch, and the queue, where there is one.
    pub(crate) fn over(
        elements: Vec<Arc<QueuedIngest>>,
        below: &Arc<Levels>,
    ) -> (Arc<Levels>, Option<Arc<IngestQueue>>) {
        if elements.is_empty() {
            return (Arc::clone(below), None);
        }
        let queued = elements.iter().flat_map(|one| one.runs.iter());
        let runs: Vec<TableRun> = queued.chain(below.runs.iter()).cloned().collect();
        let l0 = below.l0 + runs.len() - below.runs.len();
        let all = Arc::new(Levels::of_runs(runs, l0));
        (all, Some(Arc::new(IngestQueue { elements, below: Arc::clone(below) })))
    }

    /// The newest number of all.
    pub(super) fn last_seq(&self) -> Seq {
        self.elements.first().map_or(Seq::NONE, |newest| newest.last)
    }
}
