//! The steps of a plan: tables that are dropped unread, tables that are moved, and key ranges to
//! merge. They are fixed when the job starts, so that the executor makes no decisions of its own.

use super::plan::Plan;
use super::split::{Anchor, split_points};
use super::valid::{Input, PlanRefusal, Running, validate};
use crate::edit::FinishCompaction;
use crate::layer::Layer;
use crate::span::{Span, Spans};
use crate::state::Manifest;
use bytes::Bytes;
use siltstone_base::entry::key_after;
use siltstone_base::limits::MAX_KEY_BYTES;
use siltstone_base::{
    Cover, Epoch, JobId, ManifestId, SstDescriptor, SstId, TablePart, UnixMillis,
};
use std::collections::{HashMap, HashSet};

/// The facts that decide which tables need not be read, fixed when a job starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Entries that expire at or before this time have expired. Never later than the time of any
    /// later reader.
    pub now: UnixMillis,
    /// Keys below this one are no longer retained; `None`: all keys are retained.
    pub keep_from: Option<Bytes>,
    /// Range deletes in the tables that every possible reader sees.
    pub deleted: Cover,
}

impl Facts {
    /// Whether range deletes hide the whole table from every reader: they are newer than the table
    /// and cover its visible range without a gap.
    fn deletes(&self, table: &SstDescriptor) -> bool {
        let newest = table.seq_override.unwrap_or(table.max_seq);
        let mut covered_to: &[u8] = table.first_visible();
        for span in self.deleted.spans() {
            if span.end.as_ref() <= covered_to {
                continue;
            }
            if *span.start > *covered_to || span.seq <= newest {
                return false;
            }
            covered_to = &span.end;
            if table.ends_below(covered_to) {
                return true;
            }
        }
        false
    }
}

/// The target sizes of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSizing {
    /// Size in bytes at which an output table ends.
    pub target_sst_bytes: u64,
    /// Size in bytes below which a table is merged with its neighbours rather than moved. Otherwise
    /// small flushes in key order would leave small tables for ever.
    pub min_move_bytes: u64,
}

impl Default for TableSizing {
    fn default() -> TableSizing {
        TableSizing { target_sst_bytes: 256 << 20, min_move_bytes: 8 << 20 }
    }
}

/// A table at the bottom is read rather than moved if at least one in this many of its entries is a
/// tombstone.
const TOMBSTONES_WORTH_READING: u64 = 4;

/// A key range whose tables are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The first key.
    pub start: Bytes,
    /// The range ends before this key; `None`: no bound.
    pub end: Option<Bytes>,
    /// The tables: newest layer first, and in key order within a layer.
    pub tables: Vec<SstDescriptor>,
    /// No layer below the destination may hold a key of these tables, now or later.
    pub bottom: bool,
}

impl Group {
    /// Total bytes of its tables.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.object_bytes).sum()
    }

    fn has_range_deletes(&self) -> bool {
        self.tables.iter().any(|table| table.range_deletes.is_some())
    }

    /// The tables of the group that may hold a key of `[start, end)`.
    pub fn tables_in<'a>(
        &'a self,
        start: &'a [u8],
        end: Option<&'a [u8]>,
    ) -> impl Iterator<Item = &'a SstDescriptor> {
        self.tables.iter().filter(move |table| table.overlaps(Some(start), end))
    }
}

/// One part of a job: keys from `start` on, before `end`. Parts are merged independently.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// The first key.
    pub start: Bytes,
    /// The range ends before this key; `None`: no bound.
    pub end: Option<Bytes>,
    /// As [`Group::bottom`].
    pub bottom: bool,
}

/// The steps of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The destination run.
    pub destination: u32,
    /// The tables that it takes, newest layer first, without tables that stay where they are.
    pub inputs: Vec<Input>,
    /// Tables that are dropped unread.
    pub drops: Vec<SstId>,
    /// Tables that are moved to the destination unchanged.
    pub moves: Vec<SstDescriptor>,
    /// Key ranges to merge, in key order. They contain all other input tables.
    pub groups: Vec<Group>,
    /// As [`Plan::cut_prefix_bytes`].
    pub cut_prefix_bytes: u16,
}

impl Work {
    /// The steps of `plan` on `state`, beside the jobs `running`.
    ///
    /// # Errors
    /// The reason why the plan may not run.
    pub fn of(
        state: &Manifest,
        running: &[Running],
        plan: &Plan,
        facts: &Facts,
        shaping: TableSizing,
    ) -> Result<Work, PlanRefusal> {
        let inputs = validate(state, running, plan)?;
        let tables = || inputs.iter().flat_map(|input| &input.tables);
        let going: HashSet<TablePart> = tables().map(SstDescriptor::part).collect();
        // Records name dropped and moved tables by id alone (rule K6).
        let repeated = repeated(tables());
        let may_go =
            |table: &SstDescriptor| going.contains(&table.part()) && !repeated.contains(&table.id);
        let drops = droppable(state, may_go, facts);
        let mut work = Work {
            destination: plan.destination,
            inputs,
            drops: Vec::new(),
            moves: Vec::new(),
            groups: Vec::new(),
            cut_prefix_bytes: plan.cut_prefix_bytes,
        };
        work.sort_out(
            state,
            &going,
            &drops,
            &GroupPolicy { plan, facts, shaping, repeated, bottomless: state.behind.is_some() },
        );
        work.leave_out_what_stays(&drops);
        work.drops.extend(drops.into_iter().map(|part| part.id));
        work.drops.sort_unstable();
        Ok(work)
    }

    /// Whether only a commit is left to do, so that no record is needed.
    #[must_use]
    pub fn is_metadata_only(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether the plan would have no effect. Such a job is not started.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Bytes that the job reads.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.groups.iter().map(Group::bytes).sum()
    }

    /// The job as it restricts other plans.
    #[must_use]
    pub fn running(&self, job: JobId) -> Running {
        let names = |input: &Input| ids_of(&input.tables);
        let inputs = self.inputs.iter().map(|input| (input.layer, names(input))).collect();
        Running { job, inputs, destination: self.destination }
    }

    /// Splits the groups into at most `parts` ranges in total, or one range per group if there are
    /// more groups; no range has less than `least_bytes`. `anchors` are keys inside the tables,
    /// ascending, with the bytes from each to the next; without anchors the bounds of the tables
    /// are used.
    #[must_use]
    pub fn ranges(&self, anchors: &[Anchor], parts: usize, least_bytes: u64) -> Vec<KeyRange> {
        let total = self.read_bytes().max(1);
        let mut ranges = Vec::new();
        for group in &self.groups {
            // Parts are proportional to bytes, rounded up: a job with one group gets all of them.
            let share = u128::from(group.bytes()) * parts as u128;
            let share = usize::try_from(share.div_ceil(u128::from(total))).unwrap_or(parts);
            let within = |anchor: &&Anchor| {
                anchor.key >= group.start && group.end.as_ref().is_none_or(|end| anchor.key < *end)
            };
            let own: Vec<Anchor> = anchors.iter().filter(within).cloned().collect();
            let points = match own.is_empty() {
                false => split_points(&own, share, least_bytes),
                true => split_points(&Anchor::of_tables(&group.tables), share, least_bytes),
            };
            let points = match group.has_range_deletes() {
                true => behind(points, group.end.as_ref()),
                false => points,
            };
            let starts = std::iter::once(group.start.clone()).chain(points.iter().cloned());
            let ends = points.iter().cloned().map(Some).chain([group.end.clone()]);
            let bottom = group.bottom;
            ranges.extend(starts.zip(ends).map(|(start, end)| KeyRange { start, end, bottom }));
        }
        ranges
    }

    /// The commit that ends `job`, which was planned on the given manifest, with the `outputs` of
    /// all ranges.
    #[must_use]
    pub fn finish(
        &self,
        epoch: Epoch,
        job: (JobId, ManifestId),
        outputs: Vec<SstDescriptor>,
        retire: Vec<JobId>,
    ) -> FinishCompaction {
        let remove = self.inputs.iter().flat_map(|input| &input.tables).map(SstDescriptor::part);
        let mut add = self.moves.clone();
        add.extend(outputs);
        add.sort_by(|left, right| left.first_visible().cmp(right.first_visible()));
        let (destination, (job, planned_on)) = (self.destination, job);
        let remove = remove.collect();
        FinishCompaction { epoch, job, planned_on, remove, add, destination, retire }
    }

    /// Sorts the inputs that are not dropped into moves and groups.
    fn sort_out(
        &mut self,
        state: &Manifest,
        going: &HashSet<TablePart>,
        drops: &HashSet<TablePart>,
        judge: &GroupPolicy<'_>,
    ) {
        let destination = Layer::Run(self.destination);
        let staying = |layer: Layer| {
            let tables = state.layers().filter(move |(each, _)| *each == layer);
            tables.flat_map(|(_, tables)| tables).filter(|table| !going.contains(&table.part()))
        };
        let older = state.layers().map(|(layer, _)| layer).filter(|layer| *layer < destination);
        let below = Spans::of(older.flat_map(staying));
        let kept = self.inputs.iter().flat_map(|input| &input.tables);
        let kept: Vec<&SstDescriptor> =
            kept.filter(|table| !drops.contains(&table.part())).collect();
        let separators = staying(destination).map(Span::of);
        let mut pieces = pieces(&kept, separators.collect(), &below, judge);
        join_small(&mut pieces, usize::from(judge.plan.cut_prefix_bytes));
        let starts: Vec<Bytes> = pieces.iter().map(|piece| piece.span.first().clone()).collect();
        for (at, piece) in pieces.into_iter().enumerate() {
            match piece.fate {
                GroupDecision::Stays => {}
                GroupDecision::Moves | GroupDecision::Small => self.moves.extend(piece.tables),
                GroupDecision::Merges => self.groups.push(Group {
                    start: piece.span.first().clone(),
                    end: starts.get(at + 1).cloned(),
                    tables: piece.tables,
                    bottom: piece.bottom,
                }),
            }
        }
        // Tables of a piece are in key order; the merge needs the newest layer first.
        let layers = self.inputs.iter().enumerate();
        let age: HashMap<TablePart, usize> = layers
            .flat_map(|(at, input)| input.tables.iter().map(move |table| (table.part(), at)))
            .collect();
        for group in &mut self.groups {
            group.tables.sort_by_key(|table| age.get(&table.part()).copied());
        }
    }

    /// Removes tables that would be moved to the layer in which they already are. A table stays in
    /// the list if it shares keys with a table that is dropped above it: the commit cannot see that
    /// no row of the dropped table sinks, and would be refused for ever.
    fn leave_out_what_stays(&mut self, drops: &HashSet<TablePart>) {
        let inputs = self.inputs.iter().flat_map(|input| &input.tables);
        let dropped = Spans::of(inputs.filter(|table| drops.contains(&table.part())));
        let destination = Layer::Run(self.destination);
        let there = self.inputs.iter().filter(|input| input.layer == destination);
        let there: HashSet<TablePart> =
            there.flat_map(|one| &one.tables).map(SstDescriptor::part).collect();
        let stays = self.moves.iter().filter(|table| !dropped.meets_table(table));
        let stays: HashSet<TablePart> = stays.map(SstDescriptor::part).collect();
        let stays: HashSet<TablePart> = stays.intersection(&there).cloned().collect();
        self.moves.retain(|table| !stays.contains(&table.part()));
        for input in &mut self.inputs {
            input.tables.retain(|table| !stays.contains(&table.part()));
        }
        self.inputs.retain(|input| !input.tables.is_empty());
    }
}

/// The tables among `candidates` that can be dropped unread: every reader sees none of their
/// entries, and no table below that stays may hold their keys, so no older entry becomes visible.
/// Either all entries of the table have expired, or it contains only tombstones, or all its keys
/// are below the retained keys. A table hidden by a range delete can always be dropped: the
/// same range delete hides older entries below it, and stays where it is until nothing older is
/// left. If older rows may still arrive (rule P6), expired entries and
/// tombstones are kept.
#[must_use]
pub fn droppable(
    state: &Manifest,
    candidates: impl Fn(&SstDescriptor) -> bool,
    facts: &Facts,
) -> HashSet<TablePart> {
    let mut below = Spans::default();
    let mut going = HashSet::new();
    let bottomless = state.behind.is_some();
    let is_gone = |table: &SstDescriptor| is_gone(table, facts, bottomless);
    let may_go = |table: &SstDescriptor| is_gone(table) || facts.deletes(table);
    if !state.tables().any(|table| candidates(table) && may_go(table)) {
        return going;
    }
    let layers: Vec<_> = state.layers().collect();
    for (_, tables) in layers.into_iter().rev() {
        let (go, stay): (Vec<_>, Vec<_>) = tables.iter().partition(|table| {
            candidates(table)
                && (facts.deletes(table) || (is_gone(table) && !below.meets_table(table)))
        });
        going.extend(go.into_iter().map(SstDescriptor::part));
        below.add(stay);
    }
    going
}

fn is_gone(table: &SstDescriptor, facts: &Facts, bottomless: bool) -> bool {
    let expired = table.max_expiry.is_some_and(|at| at <= facts.now);
    let hides_only = table.tombstones == table.entries;
    let below = facts.keep_from.as_ref().is_some_and(|from| table.ends_below(from));
    (((expired || hides_only) && !bottomless) || below) && table.range_deletes.is_none()
}

/// The rules for grouping input tables.
struct GroupPolicy<'a> {
    plan: &'a Plan,
    facts: &'a Facts,
    shaping: TableSizing,
    /// Tables with more than one part among the inputs.
    repeated: HashSet<SstId>,
    /// Whether older rows may still come (rule P6).
    bottomless: bool,
}

impl GroupPolicy<'_> {
    /// Whether reading a table that shares keys with no other input frees enough space.
    fn worth_reading(&self, table: &SstDescriptor, bottom: bool) -> bool {
        let expired = table.min_expiry.is_some_and(|at| at <= self.facts.now);
        let garbage = table.tombstones > 0 || table.range_deletes.is_some() || expired;
        let tombstones = table.tombstones.saturating_mul(TOMBSTONES_WORTH_READING);
        let much = tombstones >= table.entries || table.range_deletes.is_some();
        let hides = table.is_cut() && self.plan.thorough;
        let worth = hides || (bottom && garbage && (self.plan.thorough || much));
        self.repeated.contains(&table.id) || self.spans_a_cut(table) || worth
    }

    /// Whether an output with the keys of the table would have to be split.
    fn spans_a_cut(&self, table: &SstDescriptor) -> bool {
        let bytes = usize::from(self.plan.cut_prefix_bytes);
        // The bounds of range deletes may be wider than the entries: such a table is not split.
        table.range_deletes.is_none()
            && prefix(table.first_visible(), bytes) != prefix(table.last_visible(), bytes)
    }
}

/// The ids of `tables` in a plan or a record, where an id means all parts of a table in its layer.
pub(super) fn ids_of(tables: &[SstDescriptor]) -> Vec<SstId> {
    let mut ids: Vec<SstId> = Vec::with_capacity(tables.len());
    let mut seen = HashSet::with_capacity(tables.len());
    ids.extend(tables.iter().map(|table| table.id).filter(|id| seen.insert(*id)));
    ids
}

/// The ids that occur more than once.
pub(super) fn repeated<'a>(tables: impl Iterator<Item = &'a SstDescriptor>) -> HashSet<SstId> {
    let mut seen = HashSet::new();
    tables.map(|table| table.id).filter(|id| !seen.insert(*id)).collect()
}

/// Corrects the end of `output`, a merge over `inputs` whose last entry has the key `last` and
/// whose range deletes end at `deleted_to`. If a range delete was cut at the end of a visible
/// range, it ends at a key that it does not delete and that may belong to the next table. The table
/// cannot name a smaller key as its last one. So the output gets the same visible end as that
/// input.
#[must_use]
pub fn seen_output<'a>(
    output: SstDescriptor,
    last: &[u8],
    deleted_to: Option<&Bytes>,
    inputs: impl IntoIterator<Item = &'a SstDescriptor>,
) -> SstDescriptor {
    // A range delete that ends after the last key deletes that key, so the bounds are exact.
    if *last >= *output.last_key || deleted_to != Some(&output.last_key) {
        return output;
    }
    let mut ends = inputs.into_iter().filter_map(|table| table.visible_end.as_ref());
    let visible_end = ends.find(|end| **end == output.last_key).cloned();
    SstDescriptor { visible_end, ..output }
}

/// The first `bytes` bytes of a key, or all of a shorter one.
pub(crate) fn prefix(key: &[u8], bytes: usize) -> &[u8] {
    key.get(..bytes).unwrap_or(key)
}

/// The keys directly after `points`: a range delete that is cut there ends at the point itself,
/// which the table can name, so that two outputs never share a key.
fn behind(points: Vec<Bytes>, end: Option<&Bytes>) -> Vec<Bytes> {
    let short = points.into_iter().filter(|point| point.len() < MAX_KEY_BYTES);
    let behind = short.map(|point| Bytes::from(key_after(&point)));
    behind.filter(|point| end.is_none_or(|end| point < end)).collect()
}

/// The treatment of a group of tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupDecision {
    /// It is not an input: a table of the destination that separates the tables before and after
    /// it.
    Stays,
    Moves,
    /// A single table that could be moved but is so small that merging it with its neighbours is
    /// better.
    Small,
    Merges,
}

/// Tables whose spans overlap, directly or through other tables.
struct TableGroup {
    span: Span,
    tables: Vec<SstDescriptor>,
    bottom: bool,
    fate: GroupDecision,
}

/// The inputs in pieces that share no keys, with the separators between them, by key.
fn pieces(
    inputs: &[&SstDescriptor],
    separators: Vec<Span>,
    below: &Spans,
    judge: &GroupPolicy<'_>,
) -> Vec<TableGroup> {
    let spanned = inputs.iter().map(|table| (Span::of(table), Some(*table)));
    let mut all: Vec<(Span, Option<&SstDescriptor>)> =
        spanned.chain(separators.into_iter().map(|span| (span, None))).collect();
    all.sort_by(|left, right| left.0.cmp(&right.0));
    let mut pieces: Vec<TableGroup> = Vec::new();
    for (span, table) in all {
        let bottom = !judge.bottomless && !below.meets(&span);
        let Some(table) = table else {
            pieces.push(TableGroup {
                span,
                tables: Vec::new(),
                bottom,
                fate: GroupDecision::Stays,
            });
            continue;
        };
        match pieces.last_mut() {
            Some(open) if open.fate != GroupDecision::Stays && open.span.meets(&span) => {
                open.span.extend(&span);
                open.tables.push(table.clone());
                open.bottom &= bottom;
                open.fate = GroupDecision::Merges;
            }
            _ => {
                let small = table.object_bytes < judge.shaping.min_move_bytes;
                let fate = match (judge.worth_reading(table, bottom), small) {
                    (true, _) => GroupDecision::Merges,
                    (false, true) => GroupDecision::Small,
                    (false, false) => GroupDecision::Moves,
                };
                pieces.push(TableGroup { span, tables: vec![table.clone()], bottom, fate });
            }
        }
    }
    pieces
}

/// Joins neighbours that are merged or small, unless an output would have to end between them. A
/// small table without such a neighbour stays small.
fn join_small(pieces: &mut Vec<TableGroup>, cut_prefix_bytes: usize) {
    let mut joined: Vec<TableGroup> = Vec::with_capacity(pieces.len());
    for piece in pieces.drain(..) {
        let joins =
            |fate: GroupDecision| matches!(fate, GroupDecision::Small | GroupDecision::Merges);
        match joined.last_mut() {
            Some(open)
                if joins(open.fate)
                    && joins(piece.fate)
                    && prefix(open.span.end(), cut_prefix_bytes)
                        == prefix(piece.span.first(), cut_prefix_bytes) =>
            {
                open.span.extend(&piece.span);
                open.tables.extend(piece.tables);
                open.bottom &= piece.bottom;
                open.fate = GroupDecision::Merges;
            }
            _ => joined.push(piece),
        }
    }
    *pieces = joined;
}

#[cfg(test)]
mod tests;
