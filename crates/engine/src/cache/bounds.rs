//! Which table of each run can hold a key, from numbers that lie side by side.
//!
//! ```text
//! table        0        1   2        3        4
//! runs         [0, 1)   [1, 4)                [4, 5)     tables of a run ascend and are disjoint
//! firsts       u64      u64 u64      u64      u64        where the table begins and ends: eight
//! lasts        u64      u64 u64      u64      u64        bytes after the common prefix
//! ```
//! A look-up asks one table of each of some dozen runs and is told no by most. Descriptors lie one
//! by one in memory, and keys behind pointers in them: each would be a load that waits for the one
//! before it. Eight bytes decide nearly always; where they are equal the keys do.

use super::metadata::TableHandle;
use siltstone_base::SstDescriptor;
use siltstone_base::prefix::{head, shared_prefix};
use std::sync::Arc;

/// The bounds of all tables of a tree.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    /// The common prefix of all bounds. A key without it is in no table.
    shared: Box<[u8]>,
    /// The positions of each run among the tables.
    runs: Box<[(usize, usize)]>,
    firsts: Box<[u64]>,
    lasts: Box<[u64]>,
    tables: Box<[Arc<TableHandle>]>,
}

/// A key, made ready to be compared with bounds.
pub(crate) struct PreparedKey<'a> {
    key: &'a [u8],
    /// Its eight bytes after the common prefix of all bounds.
    head: u64,
}

impl Bounds {
    /// The bounds of these runs, which come newest first.
    pub(crate) fn new<'a>(tables_of_runs: impl Iterator<Item = &'a [Arc<TableHandle>]>) -> Self {
        let mut tables: Vec<Arc<TableHandle>> = Vec::new();
        let mut runs = Vec::new();
        for of_run in tables_of_runs {
            let start = tables.len();
            tables.extend(of_run.iter().cloned());
            runs.push((start, tables.len()));
        }
        let ends: Vec<_> = tables.iter().map(|table| visible(&table.descriptor)).collect();
        let any = ends.first().map_or(&[][..], |(first, _)| first);
        let shared = ends.iter().fold(any, |shared, (first, last)| {
            let common = shared_prefix(shared, first).min(shared_prefix(shared, last));
            shared.get(..common).unwrap_or_default()
        });
        let head_of = |key: &[u8]| head(key.get(shared.len()..).unwrap_or_default());
        Bounds {
            firsts: ends.iter().map(|(first, _)| head_of(first)).collect(),
            lasts: ends.iter().map(|(_, last)| head_of(last)).collect(),
            shared: shared.into(),
            runs: runs.into(),
            tables: tables.into(),
        }
    }

    /// The number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The tables of all runs, in one list.
    pub(crate) fn tables(&self) -> &[Arc<TableHandle>] {
        &self.tables
    }

    /// Makes `key` ready; `None` when no table can hold it.
    #[inline]
    pub(crate) fn seek<'k>(&self, key: &'k [u8]) -> Option<PreparedKey<'k>> {
        Some(PreparedKey { key, head: head(key.strip_prefix(&*self.shared)?) })
    }

    /// The one table of a run that may hold the key, by its number among all tables.
    #[inline]
    pub(crate) fn candidate(&self, run: usize, sought: &PreparedKey<'_>) -> Option<usize> {
        let (start, end) = *self.runs.get(run)?;
        let mut at = start;
        if end - start > 1 {
            let lasts = self.lasts.get(start..end)?;
            at += lasts.partition_point(|last| *last < sought.head);
        }
        if at >= end {
            return None;
        }
        let (first, last) = (*self.firsts.get(at)?, *self.lasts.get(at)?);
        if first < sought.head && sought.head < last {
            return Some(at);
        }
        if sought.head < first || last < sought.head {
            return None;
        }
        self.tied(at, end, sought)
    }

    /// The candidate from table `at` on, the first whose last eight bytes are not below the key's,
    /// where eight bytes do not tell.
    #[cold]
    fn tied(&self, at: usize, end: usize, sought: &PreparedKey<'_>) -> Option<usize> {
        let key = sought.key;
        let ties = self.lasts.get(at..end)?.partition_point(|last| *last <= sought.head);
        let tables = self.tables.get(at..at + ties)?;
        let at = at + tables.partition_point(|table| table.descriptor.ends_below(key));
        (at < end && self.tables.get(at)?.descriptor.covers(key)).then_some(at)
    }
}

/// The first key and the last that can be seen of a table, or somewhat beyond them. They ascend
/// over the tables of a run.
fn visible(descriptor: &SstDescriptor) -> (&[u8], &[u8]) {
    let (first, last) = (&**descriptor.first_visible(), &**descriptor.last_visible());
    (first, last.max(first))
}

#[cfg(test)]
mod tests;
