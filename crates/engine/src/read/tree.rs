//! The tree as one moment sees it: memtables, then tables, newest first. Immutable; a change makes
//! a new one, and whoever still reads the old one keeps all of it alive.

use crate::cache::filters::KeyFilters;
use crate::cache::metadata::{MetadataBudget, TableHandle};
use siltstone_base::{Result, Seq, SstDescriptor, SstId};
use siltstone_manifest::Manifest;
use siltstone_memtable::Memtable;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// Everything a read may touch.
#[derive(Clone)]
pub(crate) struct Tree {
    /// Takes the writes.
    pub(crate) active: Arc<Memtable>,
    /// Full and waiting to be flushed, newest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    /// What the manifest names.
    pub(crate) levels: Arc<Levels>,
    /// Memtable entries up to here are in the levels too, and are passed over in the memtables: a
    /// reader's may reach below what has been flushed meanwhile. `NONE` for a writer, whose
    /// memtables go the moment their tables come.
    pub(crate) flushed_seq: Seq,
    /// Entries above it are passed over in the frozen memtables: they came after the moment that a
    /// transaction reads at, whose own writes are the active one and have numbers above it.
    /// `Seq::MAX` otherwise.
    pub(crate) frozen_until: Seq,
}

impl Tree {
    /// Memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.frozen.iter())
    }

    /// The same, each with the newest number that a view at `seq` sees of it.
    pub(crate) fn memtables_at(&self, seq: Seq) -> impl Iterator<Item = (&Arc<Memtable>, Seq)> {
        let frozen = seq.min(self.frozen_until);
        let older = self.frozen.iter().map(move |memtable| (memtable, frozen));
        std::iter::once((&self.active, seq)).chain(older)
    }

    /// This one as it was at `seq`, under what a transaction writes.
    pub(crate) fn under(&self, own: Arc<Memtable>, seq: Seq) -> Tree {
        let frozen = self.memtables().cloned().collect();
        let (levels, flushed_seq) = (Arc::clone(&self.levels), self.flushed_seq);
        Tree { active: own, frozen, levels, flushed_seq, frozen_until: seq }
    }

    /// A key at or above every one that is there; `None` where none is.
    pub(crate) fn greatest_key(&self) -> Option<Vec<u8>> {
        let last = self.levels.runs.iter().filter_map(|run| run.tables.last());
        let tables = last.map(|table| table.descriptor.last_key.to_vec());
        if cfg!(mutation = "open_end_of_tables") {
            return tables.max();
        }
        tables.chain(self.memtables().filter_map(|memtable| memtable.greatest_key())).max()
    }
}

/// The tables: entries of L0, then sorted runs, newest first.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    pub(crate) runs: Vec<TableRun>,
    /// How many of the runs are entries of L0.
    pub(crate) l0: usize,
    /// What keeps most keys from most of them.
    pub(crate) filters: Arc<KeyFilters>,
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
#[derive(Debug)]
pub(crate) struct TableRun {
    pub(crate) tables: Vec<Arc<TableHandle>>,
}

impl TableRun {
    /// The tables that overlap `[start, end)`, which lie side by side.
    pub(crate) fn overlapping(
        &self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> &[Arc<TableHandle>] {
        let before =
            |start| self.tables.partition_point(|table| table.descriptor.last_key.as_ref() < start);
        let below =
            |end| self.tables.partition_point(|table| table.descriptor.first_key.as_ref() < end);
        let from = start.map_or(0, before);
        let to = end.map_or(self.tables.len(), below);
        let mut tables = self.tables.get(from..to).unwrap_or_default();
        // Of the outer ones less may be visible than there is.
        let apart = |table: &TableHandle| {
            let descriptor = &table.descriptor;
            let cut = descriptor.visible_start.is_some() || descriptor.visible_end.is_some();
            cut && !descriptor.overlaps(start, end)
        };
        while let [first, rest @ ..] = tables
            && apart(first)
        {
            tables = rest;
        }
        while let [rest @ .., last] = tables
            && apart(last)
        {
            tables = rest;
        }
        tables
    }
}

impl Levels {
    /// One table alone.
    pub(crate) fn of_table(handle: Arc<TableHandle>) -> Levels {
        Levels::of_runs(vec![TableRun { tables: vec![handle] }], 0)
    }

    fn of_runs(runs: Vec<TableRun>, l0: usize) -> Levels {
        let filters = KeyFilters::new(runs.iter().map(|run| run.tables.as_slice()));
        Levels { runs, l0, filters, ..Levels::default() }
    }

    /// The same, and `notify` hears when the last reader of them is gone.
    pub(crate) fn noticed_by(self, notify: &Arc<Notify>) -> Levels {
        Levels { _last_reader: LastReader(Some(Arc::clone(notify))), ..self }
    }

    /// The tables that `manifest` names; handles of `previous` are kept, so that their metadata
    /// stays in memory.
    ///
    /// # Errors
    /// Unsupported for what this version can not read yet, by name.
    pub(crate) fn of_manifest(
        manifest: &Manifest,
        previous: &Levels,
        budget: &Arc<MetadataBudget>,
    ) -> Result<Levels> {
        let known: HashMap<SstId, &Arc<TableHandle>> =
            previous.handles().map(|handle| (handle.descriptor.id, handle)).collect();
        let open = |descriptor: &SstDescriptor| -> Result<Arc<TableHandle>> {
            Ok(match known.get(&descriptor.id) {
                Some(handle) => Arc::clone(handle),
                None => TableHandle::new(descriptor.clone(), budget),
            })
        };
        let l0 = manifest.l0.iter().map(|entry| &entry.tables);
        let runs = l0
            .chain(manifest.runs.iter().map(|run| &run.tables))
            .map(|tables| {
                let tables = tables.iter().map(open).collect::<Result<_>>()?;
                Ok(TableRun { tables })
            })
            .collect::<Result<_>>()?;
        Ok(Levels::of_runs(runs, manifest.l0.len()))
    }

    pub(crate) fn handles(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.runs.iter().flat_map(|run| run.tables.iter())
    }
}
