//! Lookups of many keys at once, for keys that are decided by plain values in memory.
//!
//! A lookup is a chain of dependent loads: each load takes its address from the load before it, and
//! most of them wait for memory:
//!
//! ```text
//! memtable   slot of the index -> record -> buffer -> bytes
//! table      line of the filter -> slot of the block -> block -> key -> value
//! ```
//! If there are many runs, the probe checks the filters of several runs before it opens a table.
//! Most filters answer no, so most keys have one table left.
//!
//! A lookup of one key after the other pays every wait in full. A probe executes one step of the
//! chain for all its keys before the next step: a dozen loads then wait at the same time, for
//! hardly longer than a single load. No locked instruction may stand between the loads of a step,
//! because it waits for all loads before it.
//!
//! A probe decides a key in three cases: a memtable has a plain value for it; the blocks that may
//! hold it are in memory and hold only visible plain values; or no filter contains it. A probe must
//! never decide any other key. Tombstones, operands, expiry times, older versions, and blocks that
//! are not in memory leave the key to [`lookup`](super::get::lookup).

use super::Pin;
use super::value::Value;
use crate::cache::blocks::BlockCache;
use crate::cache::filters::{FilterAnswer, KeyFilters};
use crate::cache::metadata::OpenTable;
use crate::cache::slots::SlotsGuard;
use siltstone_base::Seq;
use siltstone_base::prefetch::prefetch;
use siltstone_bloom::Marks;
use siltstone_memtable::Memtable;
use siltstone_sst::Block;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

/// Number of keys of a probe. Each key needs some ten cache lines of 64 bytes. The lines of all
/// keys must fit into a first-level cache of 32 KiB until they are used.
pub(super) const PROBE_KEYS: usize = 32;
/// Number of filter lines that are loaded before the first is evaluated: half of that cache.
const LINES: usize = 256;

/// Up to this number of runs, the runs are probed one after the other: each run decides many keys,
/// which are not looked up in the next run.
const FEW_RUNS: usize = 4;

/// One key of a probe.
#[derive(Clone, Copy)]
pub(super) struct ProbeKey<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
}

/// The result of a probe for one key.
pub(super) enum ProbeAnswer {
    /// During a probe: not decided yet. After a probe: the key has no value.
    Nothing,
    /// Its value.
    Value(Value),
    /// The probe cannot decide the key.
    Hard,
}

/// A table that may contain a key.
struct TableProbe {
    key: usize,
    run: usize,
    /// The table's number among all tables.
    table: usize,
    /// Whether the table's filter was checked and contains the key.
    known: bool,
}

/// A block in which a key is looked up.
struct BlockProbe {
    key: usize,
    /// Index in [`BatchProbe::tables`].
    table: usize,
    block: u32,
}

/// Executes probes, and reuses its buffers from one probe to the next.
#[derive(Default)]
pub(super) struct BatchProbe {
    /// One entry for each key and each table whose key range contains the key, ordered by key, and
    /// for one key from the newest table to the oldest.
    asked: Vec<TableProbe>,
    /// Open tables with their numbers. Some stay from probe to probe, since most probes use the
    /// same tables.
    tables: Vec<(usize, Arc<OpenTable>)>,
    /// For each run, the index in `tables` of the table that was used last. Keys ascend, so the
    /// keys of one table are adjacent.
    last_of_run: Vec<usize>,
    visits: Vec<BlockProbe>,
    blocks: Vec<(usize, Arc<Block>)>,
}

impl BatchProbe {
    /// Looks up `keys`, which must ascend, and writes one answer for each key. All probes of one
    /// `BatchProbe` must use the same pin.
    pub(super) fn look_up(
        &mut self,
        cache: &BlockCache,
        pin: &Pin,
        keys: &[ProbeKey<'_>],
        answers: &mut Vec<ProbeAnswer>,
    ) {
        answers.clear();
        if pin.tree.queue.is_some() {
            // Queued ingests lie between the memtables in age. A probe does not look at them.
            answers.extend(keys.iter().map(|_| ProbeAnswer::Hard));
            return;
        }
        answers.extend(keys.iter().map(|_| ProbeAnswer::Nothing));
        for (memtable, seq) in pin.tree.memtables_at(pin.seq) {
            if !memtable.is_empty() {
                in_memtable(memtable, (pin.tree.flushed_seq, seq), keys, answers);
            }
        }
        let filters = &*pin.tree.levels.filters;
        let runs = filters.bounds().runs();
        if self.tables.len() > 2 * runs {
            // Keys ascend, so the earlier tables of long runs are not needed again.
            self.tables.clear();
            self.last_of_run.clear();
        }
        self.last_of_run.resize(runs, usize::MAX);
        let at_once = if runs <= FEW_RUNS { 1 } else { (LINES / keys.len().max(1)).max(1) };
        for from in (0..runs).step_by(at_once) {
            self.ask_filters(filters, from..runs.min(from + at_once), keys, answers);
            while !self.asked.is_empty() {
                self.choose_tables(filters, pin.seq, keys, answers);
                self.find_blocks(cache, keys, pin.seq, answers);
                self.in_blocks(pin.seq, keys, answers);
                let open = |asked: &TableProbe| {
                    matches!(answers.get(asked.key), Some(ProbeAnswer::Nothing))
                };
                self.asked.retain(open);
            }
        }
        prefetch_values(answers);
    }

    /// Finds the tables of `runs` that may contain the undecided keys.
    fn ask_filters(
        &mut self,
        filters: &KeyFilters,
        runs: Range<usize>,
        keys: &[ProbeKey<'_>],
        answers: &[ProbeAnswer],
    ) {
        let asked = &mut self.asked;
        asked.clear();
        for (key, (wanted, answer)) in keys.iter().zip(answers).enumerate() {
            let sought = filters.bounds().seek(wanted.key);
            let Some(sought) = sought.filter(|_| matches!(answer, ProbeAnswer::Nothing)) else {
                continue;
            };
            for run in runs.clone() {
                if let Some(table) = filters.bounds().candidate(run, &sought) {
                    asked.push(TableProbe { key, run, table, known: true });
                }
            }
        }
        let look = filters.look();
        let hash_of = |key: usize| keys.get(key).map_or(0, |wanted| wanted.hash);
        look.prefetch(asked.iter().map(|asked| (asked.table, hash_of(asked.key))));
        let alone = runs.len() == 1;
        let mut marks = Marks::new(0);
        let mut unknown = Vec::new();
        asked.retain_mut(|asked| {
            let hash = hash_of(asked.key);
            let says = look.says(asked.table, |filter| {
                if alone {
                    return filter.may_contain(hash);
                }
                if marks.hash() != hash {
                    marks = Marks::new(hash);
                }
                filter.may_contain_marked(&mut marks)
            });
            asked.known = says == FilterAnswer::Perhaps;
            if says == FilterAnswer::Nothing && !unknown.contains(&asked.table) {
                unknown.push(asked.table);
            }
            says != FilterAnswer::No
        });
        drop(look);
        if !unknown.is_empty() {
            filters.fill(unknown.into_iter());
        }
    }

    /// Moves the newest remaining table of each key from `asked` to `visits`, and opens it.
    fn choose_tables(
        &mut self,
        filters: &KeyFilters,
        seq: Seq,
        keys: &[ProbeKey<'_>],
        answers: &mut [ProbeAnswer],
    ) {
        let BatchProbe { asked, tables, last_of_run, visits, .. } = self;
        visits.clear();
        let mut chosen = usize::MAX;
        asked.retain(|asked| {
            if asked.key == chosen {
                return true;
            }
            chosen = asked.key;
            let places = (answers.get_mut(asked.key), last_of_run.get_mut(asked.run));
            let (Some(answer), Some(last)) = places else { return false };
            if tables.get(*last).is_none_or(|(table, _)| *table != asked.table) {
                let Some(table) = filters.table(asked.table).and_then(|handle| handle.table())
                else {
                    *answer = ProbeAnswer::Hard;
                    return false;
                };
                *last = tables.len();
                tables.push((asked.table, table));
            }
            let (Some((_, table)), Some(wanted)) = (tables.get(*last), keys.get(asked.key)) else {
                return false;
            };
            if !asked.known {
                if !table.range_deletes().at(wanted.key, seq).is_none() {
                    *answer = ProbeAnswer::Hard;
                    return false;
                }
                if !table.may_contain(wanted.hash) {
                    return false;
                }
            }
            visits.push(BlockProbe { key: asked.key, table: *last, block: 0 });
            false
        });
    }

    /// Finds the block of each key in the index of its table.
    fn find_blocks(
        &mut self,
        cache: &BlockCache,
        keys: &[ProbeKey<'_>],
        seq: Seq,
        answers: &mut [ProbeAnswer],
    ) {
        let BatchProbe { tables, visits, blocks, .. } = self;
        let looks: Vec<SlotsGuard<'_>> =
            tables.iter().map(|(_, table)| table.slots.look()).collect();
        let mut sum = 0;
        visits.retain_mut(|visit| {
            let both = tables.get(visit.table).zip(keys.get(visit.key));
            let block = both.and_then(|((_, table), wanted)| table.find_block(wanted.key, seq));
            visit.block = block.unwrap_or_default();
            sum ^= looks.get(visit.table).map_or(0, |look| look.prefetch(visit.block));
            block.is_some()
        });
        sum ^= visits.iter().fold(0, |sum, visit| {
            sum ^ looks.get(visit.table).map_or(0, |look| look.holders(visit.block))
        });
        black_box(sum);
        for visit in visits {
            let block = looks.get(visit.table).and_then(|look| look.block(visit.block));
            match (block, tables.get(visit.table), answers.get_mut(visit.key)) {
                (Some(block), Some((_, table)), _) => {
                    blocks.push((visit.key, block));
                    cache.used(table, visit.block);
                }
                (_, _, Some(answer)) => *answer = ProbeAnswer::Hard,
                (_, _, None) => {}
            }
        }
    }

    /// Looks up the keys in their blocks.
    fn in_blocks(&mut self, seq: Seq, keys: &[ProbeKey<'_>], answers: &mut [ProbeAnswer]) {
        let key_of = |at: usize| keys.get(at).map_or(&[][..], |wanted| wanted.key);
        black_box(self.blocks.iter().fold(0, |sum, (_, block)| sum ^ block.prefetch_head()));
        // Compute all addresses before the loads. Few instructions then lie between two loads, and
        // the processor executes most of a probe's loads out of order.
        let mut around = [&[][..]; PROBE_KEYS];
        for (keys, (at, block)) in around.iter_mut().zip(&self.blocks) {
            *keys = block.keys_near(key_of(*at));
        }
        black_box(around.iter().fold(0, |sum, keys| sum ^ prefetch(keys)));
        for (at, block) in self.blocks.drain(..) {
            if let Some(answer) = answers.get_mut(at) {
                *answer = in_block(block, key_of(at), seq);
            }
        }
    }
}

/// The answer of a block for a key, in a view at `seq`.
fn in_block(block: Arc<Block>, key: &[u8], seq: Seq) -> ProbeAnswer {
    if !block.is_plain(seq) {
        return ProbeAnswer::Hard;
    }
    let position = block.lower_bound(key, Seq::MAX);
    if position >= block.len() {
        // The key may begin in the next block.
        return ProbeAnswer::Hard;
    }
    if !block.is_key(position, key) {
        return ProbeAnswer::Nothing;
    }
    let range = block.value_range(position);
    ProbeAnswer::Value(Value::of_block(block, range))
}

/// Looks up the keys in a memtable, among versions above `flushed` and at or below `seq`.
fn in_memtable(
    memtable: &Memtable,
    (flushed, seq): (Seq, Seq),
    keys: &[ProbeKey<'_>],
    answers: &mut [ProbeAnswer],
) {
    if memtable.has_range_deletes() {
        for (wanted, answer) in keys.iter().zip(answers.iter_mut()) {
            let open = matches!(answer, ProbeAnswer::Nothing);
            if open && !memtable.deleted_at(wanted.key, seq).is_none() {
                *answer = ProbeAnswer::Hard;
            }
        }
    }
    let mut hashes = [0; PROBE_KEYS];
    for (hash, wanted) in hashes.iter_mut().zip(keys) {
        *hash = wanted.hash;
    }
    black_box(memtable.prefetch(hashes.get(..keys.len()).unwrap_or_default()));
    for (wanted, answer) in keys.iter().zip(answers) {
        if !matches!(answer, ProbeAnswer::Nothing) {
            continue;
        }
        let Some(found) = memtable.get_hashed(wanted.key, wanted.hash, seq) else { continue };
        let entry = found.entry();
        let plain = entry.kind.is_plain(entry.expires_at.is_some());
        *answer = if plain && entry.seq > flushed {
            ProbeAnswer::Value(Value::of_memtable(found))
        } else {
            ProbeAnswer::Hard
        };
    }
}

/// Prefetches the values, which the caller copies next.
fn prefetch_values(answers: &[ProbeAnswer]) {
    let mut values = [&[][..]; PROBE_KEYS];
    for (value, answer) in values.iter_mut().zip(answers) {
        if let ProbeAnswer::Value(found) = answer {
            *value = found;
        }
    }
    black_box(values.iter().fold(0, |sum, value| sum ^ prefetch(value)));
}
