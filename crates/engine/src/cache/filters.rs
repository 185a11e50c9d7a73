//! What keeps most keys from most tables: bounds, then filters, of many runs side by side.
//!
//! ```text
//! bounds   run ─► the one table of it that may hold the key      numbers in a row
//! filters    table ─► where its filter's blocks lie, how many      one entry of an array
//! filter   ─► one line of 64 bytes                               waits for memory
//! ```
//! A key that is in one table of fourteen, or in none, is told no by the others, and each no is a
//! line that lies in no cache. So all of those lines are loaded before the first is looked at: they
//! wait together. Nothing else stands on the way: no lock, no count and no pointer a table.
//!
//! A filter holds a share of the filter that the table's metadata holds. The budget for metadata
//! takes both back at once ([`MetadataBudget`]).

use super::bounds::{Bounds, PreparedKey};
use super::metadata::{MetadataBudget, TableHandle};
use parking_lot::{RwLock, RwLockReadGuard};
use siltstone_bloom::{Bloom, Marks};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Runs that are asked at once: a wave of so many lines is in flight together, and a bit each
/// fits a register.
pub(crate) const RUNS_AT_ONCE: usize = 32;

/// The filters of a tree's tables.
#[derive(Debug, Default)]
pub(crate) struct KeyFilters {
    bounds: Bounds,
    filters: RwLock<Box<[KeyFilter]>>,
    /// Tells how late it is for those that choose what was unused for longest.
    budget: Option<Arc<MetadataBudget>>,
}

/// What is known of one table.
#[derive(Debug, Default)]
struct KeyFilter {
    filter: FilterState,
    /// The budget's tick when it was asked last.
    used: AtomicU64,
}

#[derive(Debug, Default)]
enum FilterState {
    /// The metadata was not in memory when it was looked for last.
    #[default]
    Nothing,
    /// The table must be read in spite of its filter, because it has range deletes.
    Asks,
    Filter(Bloom),
}

/// The tables of some runs that are to be asked for a key.
pub(crate) struct KeyCandidates {
    /// Bit n: table n of these.
    left: u32,
    /// Bit n: that the filter of table n let the key in.
    known: u32,
    /// The runs' candidates.
    tables: [usize; RUNS_AT_ONCE],
}

impl KeyCandidates {
    /// By their numbers among all tables, newest first; and whether the table has no range deletes
    /// and its filter let the key in, or is to be asked once it is in memory.
    #[inline]
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, bool)> {
        let mut left = self.left;
        std::iter::from_fn(move || {
            // 32 where none is left, which is no place.
            let next = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            let at = *self.tables.get(next as usize)?;
            Some((at, self.known & (1 << next) != 0))
        })
    }
}

impl KeyFilters {
    /// Of the tables of these runs, newest first.
    pub(crate) fn new<'a>(runs: impl Iterator<Item = &'a [Arc<TableHandle>]>) -> Arc<Self> {
        let bounds = Bounds::new(runs);
        let tables = bounds.tables();
        let budget = tables.first().map(|table| Arc::clone(table.budget()));
        let filters = RwLock::new(tables.iter().map(|_| KeyFilter::default()).collect());
        let filters = Arc::new(KeyFilters { filters, budget, bounds });
        if let Some(budget) = &filters.budget {
            budget.shares_with(&filters);
        }
        filters
    }

    /// The bounds of the tables.
    #[inline]
    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// One of the tables.
    #[inline]
    pub(crate) fn table(&self, at: usize) -> Option<&Arc<TableHandle>> {
        self.bounds.tables().get(at)
    }

    /// Asks the runs from `from` on, [`RUNS_AT_ONCE`] at most: of those whose bounds allow the key,
    /// the ones whose filter may know it, or is not in memory, or that have range deletes.
    pub(crate) fn ask(
        &self,
        from: usize,
        sought: &PreparedKey<'_>,
        marks: &mut Marks,
    ) -> KeyCandidates {
        let mut asked = KeyCandidates { left: 0, known: 0, tables: [0; RUNS_AT_ONCE] };
        let runs = from..self.bounds.runs().min(from + RUNS_AT_ONCE);
        let candidates = runs.filter_map(|run| self.bounds.candidate(run, sought));
        let mut count = 0;
        for (at, place) in candidates.zip(&mut asked.tables) {
            *place = at;
            asked.left |= 1 << count;
            count += 1;
        }
        let candidates = asked.tables.get(..count).unwrap_or_default();
        let look = self.look();
        look.prefetch(candidates.iter().map(|at| (*at, marks.hash())));
        let mut unknown = false;
        for (n, at) in candidates.iter().enumerate() {
            match look.says(*at, |filter| filter.may_contain_marked(marks)) {
                FilterAnswer::No => asked.left &= !(1 << n),
                FilterAnswer::Perhaps => asked.known |= 1 << n,
                FilterAnswer::Asks => {}
                FilterAnswer::Nothing => unknown = true,
            }
        }
        if unknown {
            drop(look);
            self.fill(asked.tables().map(|(at, _)| at));
        }
        asked
    }

    /// All filters, for as long as they are looked at. Hold it briefly: filling a filter waits.
    pub(crate) fn look(&self) -> FiltersGuard<'_> {
        let tick = self.budget.as_ref().map_or(0, |budget| budget.tick());
        FiltersGuard { filters: self.filters.read_recursive(), tick }
    }

    /// Takes up the filters of those `tables` whose metadata came into memory meanwhile.
    #[cold]
    pub(crate) fn fill(&self, tables: impl Iterator<Item = usize>) {
        let mut filters = self.filters.write();
        for at in tables {
            // Under the lock: what the budget lets go of after this, it takes from the filter too.
            let open = self.table(at).and_then(|handle| handle.table());
            let (Some(row), Some(open)) = (filters.get_mut(at), open) else { continue };
            row.filter = if open.range_deletes().is_empty() {
                FilterState::Filter(open.filter().clone())
            } else {
                FilterState::Asks
            };
        }
    }

    /// Tells the tables when they were used last.
    pub(crate) fn report_use(&self) {
        for (row, handle) in self.filters.read().iter().zip(self.bounds.tables()) {
            handle.used_at(row.used.load(Relaxed));
        }
    }

    /// Lets go of the filter of a table.
    pub(crate) fn forget(&self, handle: &Arc<TableHandle>) {
        let at = self.bounds.tables().iter().position(|table| Arc::ptr_eq(table, handle));
        let mut filters = self.filters.write();
        if let Some(row) = at.and_then(|at| filters.get_mut(at)) {
            row.filter = FilterState::Nothing;
        }
    }
}

/// What a filter says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterAnswer {
    /// It is not in the table.
    No,
    /// It may be in the table.
    Perhaps,
    /// The table has range deletes: it is to be asked, its filter then.
    Asks,
    /// The filter knows nothing: fill it.
    Nothing,
}

/// All filters of a tree.
pub(crate) struct FiltersGuard<'a> {
    filters: RwLockReadGuard<'a, Box<[KeyFilter]>>,
    tick: u64,
}

impl FiltersGuard<'_> {
    /// Loads what [`FiltersGuard::says`] will look at for each of these tables and hashes: in a
    /// loop of its own, and a short one, since loads wait together as far as the processor looks
    /// ahead, which is some two hundred instructions.
    #[inline]
    pub(crate) fn prefetch(&self, asked: impl Iterator<Item = (usize, u64)>) {
        let line =
            |(table, hash): (usize, u64)| match self.filters.get(table).map(|row| &row.filter) {
                Some(FilterState::Filter(filter)) => filter.prefetch(hash),
                _ => 0,
            };
        // Nothing comes of the sum; without it the compiler would leave the loads out.
        black_box(asked.fold(0, |sum, one| sum ^ line(one)));
    }

    /// What the filter of a table says; `knows` asks its filter.
    #[inline]
    pub(crate) fn says(&self, table: usize, knows: impl FnOnce(&Bloom) -> bool) -> FilterAnswer {
        let Some(row) = self.filters.get(table) else { return FilterAnswer::Nothing };
        // Written once a tick only: a line that every reader writes is one that all wait for.
        if row.used.load(Relaxed) != self.tick {
            row.used.store(self.tick, Relaxed);
        }
        match &row.filter {
            FilterState::Filter(filter) if knows(filter) => FilterAnswer::Perhaps,
            FilterState::Filter(_) => FilterAnswer::No,
            FilterState::Asks => FilterAnswer::Asks,
            FilterState::Nothing => FilterAnswer::Nothing,
        }
    }
}

#[cfg(test)]
mod tests;
