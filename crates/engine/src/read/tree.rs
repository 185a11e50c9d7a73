//! The tree as one moment sees it: memtables, then tables, newest first. Immutable; a change makes
//! a new one, and a read of the old one keeps all of it alive.

use super::Pin;
use super::dead_spans::DeadSpans;
use super::queue::{IngestQueue, QueuedIngest};
use crate::cache::filters::KeyFilters;
use crate::cache::metadata::{MetadataBudget, TableHandle};
use siltstone_base::{Result, Seq, SstDescriptor, TablePart};
use siltstone_manifest::Manifest;
use siltstone_memtable::Memtable;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::Notify;

/// Everything a read may touch.
#[derive(Clone)]
pub(crate) struct Tree {
    /// Takes the writes.
    pub(crate) active: Arc<Memtable>,
    /// Full and waiting to be flushed, newest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    /// The levels of the manifest, and above them the queued ingests.
    pub(crate) levels: Arc<Levels>,
    /// Ingests between the memtables; `None` mostly.
    pub(crate) queue: Option<Arc<IngestQueue>>,
    /// Memtable entries up to here are in the levels too, and are passed over in the memtables: a
    /// reader's may reach below what has been flushed meanwhile. `NONE` for a writer, whose
    /// memtables go the moment their tables come.
    pub(crate) flushed_seq: Seq,
    /// The transaction that has the active memtable as its own, if it is not shared.
    pub(crate) own: Option<Arc<OwnView>>,
}

/// The view of a transaction with own writes. They are the active memtable of its tree, and have
/// numbers above those that it reads of the others.
#[derive(Debug)]
pub(crate) struct OwnView {
    /// The moment at which the transaction reads. Entries above it are passed over in the frozen
    /// memtables.
    base: Seq,
    /// Parts without a value in this view.
    dead: DeadSpans,
}

impl Tree {
    /// Memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.frozen.iter())
    }

    /// The same, each with the newest number that a view at `seq` sees of it.
    pub(crate) fn memtables_at(&self, seq: Seq) -> impl Iterator<Item = (&Arc<Memtable>, Seq)> {
        let frozen = self.own.as_ref().map_or(seq, |own| seq.min(own.base));
        let older = self.frozen.iter().map(move |memtable| (memtable, frozen));
        std::iter::once((&self.active, seq)).chain(older)
    }

    /// The memtables with entries that later views of the same tables see: a transaction reads all
    /// but its own writes at one moment.
    pub(super) fn growing_memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.memtables().take(if self.own.is_some() { 1 } else { usize::MAX })
    }

    /// The known parts without a value: of the transaction to which this tree belongs, or of the
    /// tables.
    pub(super) fn dead(&self) -> &DeadSpans {
        self.own.as_ref().map_or(&self.levels.dead, |own| &own.dead)
    }

    /// The tree of `base`, a view that is shared, as it was then, under the writes of a
    /// transaction.
    pub(crate) fn under(base: &Pin, own: Arc<Memtable>) -> Tree {
        let (tree, seq) = (&base.tree, base.seq);
        let frozen = tree.memtables().cloned().collect();
        let (mut levels, mut queue) = (Arc::clone(&tree.levels), tree.queue.clone());
        if let Some(all) = tree.queue.as_deref().filter(|all| all.last_seq() > seq) {
            // Ingests of after the moment have numbers among those of the own writes.
            let known = all.elements.iter().filter(|one| one.last <= seq).cloned().collect();
            (levels, queue) = IngestQueue::over(known, &all.below);
        }
        let flushed_seq = tree.flushed_seq;
        let view = Arc::new(OwnView { base: seq, dead: DeadSpans::of_own(base) });
        Tree { active: own, frozen, levels, queue, flushed_seq, own: Some(view) }
    }

    /// The tables that the manifest names, without what is queued.
    pub(crate) fn below(&self) -> &Arc<Levels> {
        self.queue.as_ref().map_or(&self.levels, |queue| &queue.below)
    }

    /// Queued ingests, newest first.
    pub(crate) fn queued(&self) -> &[Arc<QueuedIngest>] {
        self.queue.as_ref().map_or(&[], |queue| &queue.elements)
    }

    /// A key at or above every one that is there, and whether it may be there itself; `None` where
    /// none is.
    pub(crate) fn greatest_key(&self) -> Option<(Vec<u8>, bool)> {
        let last = self.levels.runs.iter().filter_map(|run| run.tables.last());
        let tables = last.map(|table| {
            let last = table.descriptor.last_visible();
            (last.to_vec(), table.descriptor.covers(last))
        });
        let memtables = self.memtables().filter_map(|memtable| memtable.greatest_key());
        tables.chain(memtables.map(|key| (key, true))).max()
    }
}

/// The tables: entries of L0, then sorted runs, newest first.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    pub(crate) runs: Vec<TableRun>,
    /// The number of runs that are entries of L0.
    pub(crate) l0: usize,
    /// Filters that exclude most keys from most of the runs.
    pub(crate) filters: Arc<KeyFilters>,
    /// The number of layers of jobs that were ingested behind (`Manifest::behind`).
    pub(crate) behind: Option<u64>,
    /// The newest sequence number of an entry.
    pub(super) newest: Seq,
    /// The number of entries in all tables.
    pub(super) entries: u64,
    /// Parts without a value, as far as scans have found them.
    pub(super) dead: DeadSpans,
    /// Tells the writer when the last reader of these tables is gone.
    _last_reader: LastReader,
}

/// Notifies when it is dropped.
#[derive(Debug, Default)]
struct LastReader(Option<Arc<Notify>>);

impl Drop for LastReader {
    fn drop(&mut self) {
        if let Some(notify) = &self.0 {
            notify.notify_one();
        }
    }
}

/// Disjoint tables in key order: an L0 entry or a sorted run.
#[derive(Clone, Debug)]
pub(crate) struct TableRun {
    pub(crate) tables: Vec<Arc<TableHandle>>,
    /// The numbers of the tables that have range deletes, ascending.
    with_range_deletes: Vec<usize>,
    /// The newest sequence number of an entry.
    pub(crate) newest: Seq,
}

impl TableRun {
    pub(crate) fn new(tables: Vec<Arc<TableHandle>>) -> TableRun {
        let deletes = |at: &usize| {
            tables.get(*at).is_some_and(|table| table.descriptor.range_deletes.is_some())
        };
        let with_range_deletes = (0..tables.len()).filter(deletes).collect();
        let newest = tables.iter().map(|table| table.newest()).max().unwrap_or(Seq::NONE);
        TableRun { tables, with_range_deletes, newest }
    }

    /// Those of the tables number `within` that have range deletes, ascending.
    pub(crate) fn with_range_deletes(&self, within: &Range<usize>) -> &[usize] {
        let from = self.with_range_deletes.partition_point(|at| *at < within.start);
        let to = self.with_range_deletes.partition_point(|at| *at < within.end);
        self.with_range_deletes.get(from..to).unwrap_or_default()
    }

    /// The tables that overlap `[start, end)`, which lie side by side.
    pub(crate) fn overlapping(
        &self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> &[Arc<TableHandle>] {
        self.tables.get(self.span(start, end)).unwrap_or_default()
    }

    /// The numbers of the tables that overlap `[start, end)`.
    pub(crate) fn span(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Range<usize> {
        let before =
            |start: &[u8]| self.tables.partition_point(|table| table.descriptor.ends_below(start));
        let below = |end: &[u8]| {
            self.tables.partition_point(|table| table.descriptor.first_visible().as_ref() < end)
        };
        let from = start.map_or(0, before);
        let to = end.map_or(self.tables.len(), below);
        from..to.max(from)
    }
}

impl Levels {
    /// One table alone.
    pub(crate) fn of_table(handle: Arc<TableHandle>) -> Levels {
        Levels::of_runs(vec![TableRun::new(vec![handle])], 0)
    }

    pub(super) fn of_runs(runs: Vec<TableRun>, l0: usize) -> Levels {
        let filters = KeyFilters::new(runs.iter().map(|run| run.tables.as_slice()));
        let newest = runs.iter().map(|run| run.newest).max().unwrap_or(Seq::NONE);
        let tables = runs.iter().flat_map(|run| &run.tables);
        let entries = tables.map(|table| table.descriptor.entries).sum();
        Levels { runs, l0, filters, newest, entries, ..Levels::default() }
    }

    /// The same, and `notify` hears when the last reader of them is gone.
    pub(crate) fn noticed_by(self, notify: &Arc<Notify>) -> Levels {
        Levels { _last_reader: LastReader(Some(Arc::clone(notify))), ..self }
    }

    /// The tables that `manifest` names; handles of `previous` are kept, so that their metadata
    /// stays in memory, where all is equal that is said of them: another visible range makes other
    /// bounds, cursors and range deletes of the same object (rule P4).
    ///
    /// # Errors
    /// Unsupported for what this version can not read yet, by name.
    pub(crate) fn of_manifest(
        manifest: &Manifest,
        previous: &Levels,
        budget: &Arc<MetadataBudget>,
    ) -> Result<Levels> {
        let known: HashMap<TablePart, &Arc<TableHandle>> =
            previous.handles().map(|handle| (handle.descriptor.part(), handle)).collect();
        let open = |descriptor: &SstDescriptor| -> Result<Arc<TableHandle>> {
            let same = known.get(&descriptor.part());
            Ok(match same.filter(|handle| handle.descriptor == *descriptor) {
                Some(handle) => Arc::clone(handle),
                None => TableHandle::new(descriptor.clone(), budget),
            })
        };
        let l0 = manifest.l0.iter().map(|entry| &entry.tables);
        let runs = l0
            .chain(manifest.runs.iter().map(|run| &run.tables))
            .map(|tables| {
                let tables = tables.iter().map(open).collect::<Result<_>>()?;
                Ok(TableRun::new(tables))
            })
            .collect::<Result<_>>()?;
        let levels = Levels::of_runs(runs, manifest.l0.len());
        Ok(Levels { behind: manifest.behind, ..levels })
    }

    pub(crate) fn handles(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.runs.iter().flat_map(|run| run.tables.iter())
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test stops at the unexpected")]
mod tests {
    use super::*;
    use crate::cache::metadata::testing::descriptor;
    use bytes::Bytes;
    use siltstone_base::DatabaseId;
    use siltstone_manifest::{Settings, SortedRun};

    fn part(start: Option<&'static [u8]>, end: Option<&'static [u8]>) -> SstDescriptor {
        SstDescriptor {
            visible_start: start.map(Bytes::from_static),
            visible_end: end.map(Bytes::from_static),
            ..descriptor(b"a", b"z")
        }
    }

    fn levels(tables: &[SstDescriptor], previous: &Levels) -> Levels {
        let mut manifest = Manifest::new_database(DatabaseId(1), Settings::default());
        manifest.runs = vec![SortedRun { id: 0, tables: tables.to_vec() }];
        let budget = MetadataBudget::new(usize::MAX);
        Levels::of_manifest(&manifest, previous, &budget).unwrap()
    }

    /// P4: an open table has bounds, and cut range deletes, by all that its descriptor says.
    #[test]
    fn a_handle_is_kept_only_where_all_is_equal() {
        let parts = [part(None, Some(b"h")), part(Some(b"h"), None)];
        let before = levels(&parts, &Levels::default());
        let kept = |tables: &[SstDescriptor]| -> Vec<bool> {
            let after = levels(tables, &before);
            let known: Vec<_> = before.handles().collect();
            after.handles().map(|one| known.iter().any(|old| Arc::ptr_eq(old, one))).collect()
        };
        assert_eq!(kept(&parts), [true, true]);
        assert_eq!(kept(&[part(None, Some(b"g")), part(Some(b"h"), None)]), [false, true]);
        let moved = SstDescriptor { seq_override: Some(Seq(1)), ..part(Some(b"h"), None) };
        assert_eq!(kept(&[moved]), [false]);
        assert_eq!(kept(&[part(None, None)]), [false]);
    }

    #[test]
    fn the_tables_with_range_deletes_are_known_by_number() {
        let deletes = |start, end, number: u64| SstDescriptor {
            range_deletes: number.is_multiple_of(2).then_some((40, 10)),
            max_seq: Seq(number),
            ..part(start, end)
        };
        let tables = [
            deletes(None, Some(b"h"), 2),
            deletes(Some(b"h"), Some(b"p"), 3),
            deletes(Some(b"p"), None, 4),
        ];
        let all = levels(&tables, &Levels::default());
        let run = &all.runs[0];
        assert_eq!(run.newest, Seq(4));
        assert_eq!(run.span(Some(b"h"), None), 1..3);
        assert_eq!(run.with_range_deletes(&(0..3)), [0, 2]);
        assert_eq!(run.with_range_deletes(&(1..3)), [2]);
        assert_eq!(run.with_range_deletes(&(1..2)), [0; 0]);
    }

    #[test]
    fn parts_of_one_table_overlap_what_they_show() {
        let all = levels(
            &[part(None, Some(b"h")), part(Some(b"h"), Some(b"p")), part(Some(b"r"), None)],
            &Levels::default(),
        );
        let starts = |start: &'static str, end: &'static str| -> Vec<Option<Bytes>> {
            let bound = |key: &'static str| (!key.is_empty()).then_some(key.as_bytes());
            let tables = all.runs[0].overlapping(bound(start), bound(end));
            tables.iter().map(|table| table.descriptor.visible_start.clone()).collect()
        };
        let [h, r] = ["h", "r"].map(|key| Some(Bytes::from_static(key.as_bytes())));
        assert_eq!(starts("", ""), [None, h.clone(), r.clone()]);
        assert_eq!(starts("h", ""), [h.clone(), r.clone()]);
        assert_eq!(starts("b", "h"), [None]);
        assert_eq!(starts("g", "h\0"), [None, h]);
        assert_eq!(starts("p", "r"), []);
        assert_eq!(starts("p", "s"), [r]);
    }
}
