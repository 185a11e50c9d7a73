//! The composition of a clone: tables of other databases, cut to a range of keys and combined
//! (rules K6 and K7, RFC 0031). All functions are pure; the creator of the clone pins the tables,
//! copies the rows of logs, and commits.
//!
//! ```text
//! state ─ project ─► Composition ─ located ─► numbered ─ topped ─► with rows of its log ┐
//! state ─ project ─► …                                                                 ├─ unite ─►
//! ```

use crate::span::Span;
use crate::state::{L0Entry, Manifest, Settings, SortedRun};
use bytes::Bytes;
use siltstone_base::sst::SstLocation;
use siltstone_base::{DatabaseId, Error, JobId, Result, Seq, SstDescriptor, SstId, UnixMillis};
use std::collections::{HashMap, HashSet};
use std::iter::repeat_with;

/// The keys from `start` on, before `end`; `None`: no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VisibleRange {
    /// The first key.
    pub start: Option<Bytes>,
    /// The range ends before this key.
    pub end: Option<Bytes>,
}

impl VisibleRange {
    /// Whether it contains all keys.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.start.is_none() && self.end.is_none()
    }

    /// Checks that the range contains a key.
    ///
    /// # Errors
    /// Invalid if its start is not below its end.
    pub fn check(&self) -> Result<()> {
        match (&self.start, &self.end) {
            (Some(start), Some(end)) if start >= end => {
                Err(Error::invalid("a range of keys needs a start below its end")
                    .with("start", start.escape_ascii())
                    .with("end", end.escape_ascii()))
            }
            _ => Ok(()),
        }
    }

    /// The part of the table that is visible through the range; `None` if no part is. A bound that
    /// hides nothing more is not recorded: a table that lies entirely in the range stays unchanged.
    #[must_use]
    pub fn cut(&self, table: &SstDescriptor) -> Option<SstDescriptor> {
        let start = self.start.as_ref().filter(|start| *start > table.first_visible());
        let end = self.end.as_ref().filter(|end| !table.ends_below(end));
        let mut cut = table.clone();
        if let Some(start) = start {
            cut.visible_start = Some(start.clone());
        }
        if let Some(end) = end {
            cut.visible_end = Some(end.clone());
        }
        (!Span::of(&cut).is_empty()).then_some(cut)
    }

    fn cut_all(&self, tables: &[SstDescriptor]) -> Vec<SstDescriptor> {
        tables.iter().filter_map(|table| self.cut(table)).collect()
    }
}

/// The tables of a state, with their orders and sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composition {
    /// L0, newest first.
    pub l0: Vec<L0Entry>,
    /// The largest L0 order ever assigned.
    pub last_l0_order: u64,
    /// Sorted runs, newest first.
    pub runs: Vec<SortedRun>,
    /// Every sequence number of its history up to this one was used.
    pub flushed_seq: Seq,
    /// The oldest sequence number at which a reader may read.
    pub floor: Seq,
    /// The latest commit time of an entry in its tables.
    pub commit_time: UnixMillis,
}

/// The part of `state` that is visible through `range` (rule K7). With all keys: the whole state,
/// unchanged.
#[must_use]
pub fn project(state: &Manifest, range: &VisibleRange) -> Composition {
    let whole = Composition {
        l0: state.l0.clone(),
        last_l0_order: state.last_l0_order,
        runs: state.runs.clone(),
        flushed_seq: state.flushed_seq,
        floor: state.floor,
        commit_time: state.commit_time,
    };
    whole.cut(range)
}

impl Composition {
    /// The part of it that is visible through `range`. A visible range never becomes wider.
    #[must_use]
    pub fn cut(mut self, range: &VisibleRange) -> Composition {
        if range.is_all() {
            return self;
        }
        self.l0.iter_mut().for_each(|entry| entry.tables = range.cut_all(&entry.tables));
        self.runs.iter_mut().for_each(|run| run.tables = range.cut_all(&run.tables));
        self.l0.retain(|entry| !entry.tables.is_empty());
        self.runs.retain(|run| !run.tables.is_empty());
        self
    }

    /// Every table, L0 newest first, then the runs.
    pub fn tables(&self) -> impl Iterator<Item = &SstDescriptor> {
        let l0 = self.l0.iter().flat_map(|entry| &entry.tables);
        l0.chain(self.runs.iter().flat_map(|run| &run.tables))
    }

    fn tables_mut(&mut self) -> impl Iterator<Item = &mut SstDescriptor> {
        let l0 = self.l0.iter_mut().flat_map(|entry| &mut entry.tables);
        l0.chain(self.runs.iter_mut().flat_map(|run| &mut run.tables))
    }

    /// The locations of its tables, as named by the state that it came from: exactly these must be
    /// pinned.
    #[must_use]
    pub fn places(&self) -> HashSet<SstLocation> {
        self.tables().map(|table| table.location).collect()
    }

    /// The same tables for another database: `number_of` returns the number of the ancestor entry
    /// there for a location.
    ///
    /// # Errors
    /// Internal if a location has no number.
    pub fn located(mut self, number_of: impl Fn(SstLocation) -> Option<u32>) -> Result<Self> {
        for table in self.tables_mut() {
            let number = number_of(table.location).ok_or_else(|| {
                Error::internal("a table of a clone lies nowhere").with("table", table.id)
            })?;
            table.location = SstLocation::Ancestor(number);
        }
        Ok(self)
    }

    /// The same with a newest layer of disjoint `tables`, in ascending key order, which contain the
    /// newer entries up to `flushed_seq` (rule K2).
    #[must_use]
    pub fn topped(mut self, tables: Vec<SstDescriptor>, flushed_seq: Seq) -> Composition {
        self.flushed_seq = self.flushed_seq.max(flushed_seq);
        if !tables.is_empty() {
            self.last_l0_order = self.last_l0_order.saturating_add(1);
            self.l0.insert(0, L0Entry { order: self.last_l0_order, tables });
        }
        self
    }

    /// The smallest range that contains everything visible; `None` if nothing is visible.
    #[must_use]
    pub fn hull(&self) -> Option<Span> {
        Span::hull(self.tables().map(Span::of).filter(|span| !span.is_empty()))
    }

    /// Makes these tables the tables of `next`.
    pub fn fill(self, next: &mut Manifest) {
        next.l0 = self.l0;
        next.last_l0_order = self.last_l0_order;
        next.l0_last_compacted = None;
        next.runs = self.runs;
        next.flushed_seq = self.flushed_seq;
        next.floor = self.floor;
        next.commit_time = self.commit_time;
        next.tables_since = next.id;
    }
}

/// One of the databases to be combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name in errors: its location.
    pub name: String,
    /// Its tables, with the names that the new database uses.
    pub tables: Composition,
}

/// Combines databases with disjoint key ranges (rule K6). No two parts share a key, so sequence
/// numbers of two parts are never compared, and all of them stay. `database_of` returns the
/// identity of the database at a location.
///
/// # Errors
/// Invalid if two ranges overlap, with both parts and the keys; Corruption if two different tables
/// have the same name.
/// stands for two tables.
pub fn unite(
    parts: Vec<Part>,
    database_of: impl Fn(SstLocation) -> Option<DatabaseId>,
) -> Result<Composition> {
    let mut spanned: Vec<(Option<Span>, Part)> =
        parts.into_iter().map(|part| (part.tables.hull(), part)).collect();
    // Parts without visible tables come first.
    spanned.sort_by(|left, right| left.0.cmp(&right.0));
    check_apart(spanned.iter().map(|(hull, part)| (hull.clone(), part.name.as_str())).collect())?;
    let mut parts: Vec<Composition> = spanned.into_iter().map(|(_, part)| part.tables).collect();
    if let [_] = parts.as_slice() {
        return Ok(parts.pop().unwrap_or_default());
    }
    let mut united = side_by_side(parts);
    one_place_each(&mut united, database_of)?;
    Ok(united)
}

/// Checks that databases with these hulls, each with the name of its database, share no key.
///
/// # Errors
/// Invalid, with the names of two databases that overlap, and the keys.
pub(crate) fn check_apart(mut hulls: Vec<(Option<Span>, &str)>) -> Result<()> {
    hulls.sort();
    for ((left, one), (right, other)) in hulls.iter().zip(hulls.iter().skip(1)) {
        if let (Some(left), Some(right)) = (left, right)
            && !left.is_before(right)
        {
            return Err(meet((left, one), (right, other)));
        }
    }
    Ok(())
}

fn meet((left, one): (&Span, &str), (right, other): (&Span, &str)) -> Error {
    Error::invalid(
        "the databases overlap, so it is unknown which value of a key is newer; cut them to \
         ranges that do not overlap",
    )
    .with("one", one)
    .with("has keys to", left.end().escape_ascii())
    .with("other", other)
    .with("has keys from", right.first().escape_ascii())
}

/// The k-th newest layers of L0 of all parts form one layer, and so do the k-th last runs. The
/// result is as deep as the deepest part. Parts are in key order.
fn side_by_side(parts: Vec<Composition>) -> Composition {
    let most = |count: fn(&Composition) -> usize| parts.iter().map(count).max().unwrap_or(0);
    let (layers, runs) = (most(|part| part.l0.len()), most(|part| part.runs.len()));
    let mut l0: Vec<Vec<SstDescriptor>> = repeat_with(Vec::new).take(layers).collect();
    // The last run first.
    let mut sorted: Vec<Vec<SstDescriptor>> = repeat_with(Vec::new).take(runs).collect();
    let mut united = Composition::default();
    for part in parts {
        united.flushed_seq = united.flushed_seq.max(part.flushed_seq);
        united.floor = united.floor.max(part.floor);
        united.commit_time = united.commit_time.max(part.commit_time);
        for (layer, entry) in l0.iter_mut().zip(part.l0) {
            layer.extend(entry.tables);
        }
        for (run, of_part) in sorted.iter_mut().zip(part.runs.into_iter().rev()) {
            run.extend(of_part.tables);
        }
    }
    let orders = 1..=layers as u64;
    united.last_l0_order = layers as u64;
    let entries = orders.rev().zip(l0);
    united.l0 = entries.map(|(order, tables)| L0Entry { order, tables }).collect();
    let runs = (0u32..).zip(sorted).map(|(id, tables)| SortedRun { id, tables });
    united.runs = runs.collect();
    united.runs.reverse();
    united
}

/// If one object is visible through two parts, each part has its own pin in the database that
/// contains it: both parts refer to it by the location of the first one.
fn one_place_each(
    united: &mut Composition,
    database_of: impl Fn(SstLocation) -> Option<DatabaseId>,
) -> Result<()> {
    let mut first: HashMap<SstId, SstDescriptor> = HashMap::new();
    for table in united.tables_mut() {
        let Some(known) = first.get(&table.id) else {
            first.insert(table.id, table.clone());
            continue;
        };
        let object = |table: &SstDescriptor| (database_of(table.location), table.job);
        let same = object(known) == object(table) && known.checksum == table.checksum;
        if !same {
            return Err(
                Error::corruption("two databases have tables of one name").with("table", table.id)
            );
        }
        table.location = known.location;
    }
    Ok(())
}

/// Checks that tables with the same name are the same object, in states that are to be combined.
/// Each state comes with its name for errors and the part that is taken over. A database and its
/// restored backup contain copies under the same names.
///
/// # Errors
/// Invalid, with the names of two states that contain different objects, and the table.
pub(crate) fn check_objects(states: &[(&str, &Manifest, Composition)]) -> Result<()> {
    /// The database that contains it, the job in whose folder it is, and its checksum.
    type TableObject = (DatabaseId, Option<JobId>, u32);
    let mut first: HashMap<SstId, (&str, TableObject)> = HashMap::new();
    for (name, state, tables) in states {
        for table in tables.tables() {
            let database = match table.location {
                SstLocation::Own => state.database,
                SstLocation::Ancestor(number) => {
                    state.ancestor(number).map_or(state.database, |entry| entry.database)
                }
            };
            let object = (database, table.job, table.checksum);
            let (one, known) = *first.entry(table.id).or_insert((name, object));
            if known != object {
                return Err(Error::invalid(
                    "one of the databases holds copies of the other's tables, as a restored \
                     backup does, and one database cannot name both; clone one of them, and \
                     write or load the other's rows into the clone",
                )
                .with("one", one)
                .with("other", name)
                .with("table", table.id));
            }
        }
    }
    Ok(())
}

/// The settings of the combined database, on which each process must agree.
///
/// # Errors
/// Invalid without a database, and if two settings differ, with both names and the setting.
pub fn check_alike<'a>(
    states: impl IntoIterator<Item = (&'a str, &'a Manifest)>,
) -> Result<Settings> {
    let mut states = states.into_iter();
    let (mut one, first) = states.next().ok_or_else(|| Error::invalid("a clone needs a parent"))?;
    let mut settings = first.settings.clone();
    for (other, state) in states {
        let named = |error: Error| error.with("one", one).with("other", other);
        settings.check(&state.settings).map_err(named)?;
        if settings.key_schema != state.settings.key_schema || first.schema != state.schema {
            return Err(named(Error::invalid("the databases have different schemas")));
        }
        // The merge operator of the first database that has one is compared with the others.
        if settings.merge_operator.is_none() && state.settings.merge_operator.is_some() {
            (one, settings.merge_operator) = (other, state.settings.merge_operator.clone());
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests;
