//! SlotsGuard-ups of many keys side by side, for the plain cases that most are.
//!
//! A look-up is a chain of loads, each from an address that the one before gave, and most of them
//! wait for memory:
//!
//! ```text
//! memtable   slot of the index -> record -> buffer -> bytes
//! table      line of the filter -> slot of the block -> block -> key -> value
//! ```
//! Where there are many runs, the filters of several are asked before any table is: most say no,
//! and most keys then have one table left.
//!
//! One key after the other, every wait is paid in full. Here all keys of a probe make one step of
//! the chain before any makes the next: a dozen loads then wait together, for hardly longer than
//! one. Between the loads of a step stands no locked instruction, which would wait for all of them
//! first.
//!
//! A key is decided here when what decides it is a plain value in a memtable, or lies in blocks in
//! memory that hold plain values alone, all of them visible; or when no filter knows it. Whatever
//! else turns up (tombstones, operands, expiry, older versions, anything that is not in memory)
//! leaves the key to [`lookup`](super::get::lookup), which knows all of that.

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

/// Keys of a probe. Each needs some ten lines of 64 bytes, and all of them are to stay in the
/// 32 KiB of a first-level cache until they are used.
pub(super) const PROBE_KEYS: usize = 32;
/// Lines of filters that are loaded before the first is looked at: half of that cache.
const LINES: usize = 256;

/// So few runs are asked one after the other: each answers many of the keys, which the next one
/// need not be asked for then.
const FEW_RUNS: usize = 4;

/// One key of a probe.
#[derive(Clone, Copy)]
pub(super) struct ProbeKey<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
}

/// What a probe found out about a key.
pub(super) enum ProbeAnswer {
    /// Nothing yet, as far as the probe has come; at its end: the key has no value.
    Nothing,
    /// Its value.
    Value(Value),
    /// It takes more than a probe can do.
    Hard,
}

/// A table that may hold a key.
struct TableProbe {
    key: usize,
    run: usize,
    /// Its number among all tables.
    table: usize,
    /// Whether its filter was asked and said yes.
    known: bool,
}

/// A block that a key is looked for in.
struct BlockProbe {
    key: usize,
    /// Place in [`BatchProbe::tables`].
    table: usize,
    block: u32,
}

/// Memory that is kept from probe to probe.
#[derive(Default)]
pub(super) struct BatchProbe {
    /// For each key and each table that bounds allow: by key, newest table first.
    asked: Vec<TableProbe>,
    /// Open tables, by their numbers. They are kept, some of them: most probes ask the same.
    tables: Vec<(usize, Arc<OpenTable>)>,
    /// Where in `tables` each run's last one stands. Keys ascend, so a table's follow each other.
    last_of_run: Vec<usize>,
    visits: Vec<BlockProbe>,
    blocks: Vec<(usize, Arc<Block>)>,
}

impl BatchProbe {
    /// Looks `keys` up, which ascend; one answer a key. All probes of one `BatchProbe` have one
    /// pin.
    pub(super) fn look_up(
        &mut self,
        cache: &BlockCache,
        pin: &Pin,
        keys: &[ProbeKey<'_>],
        answers: &mut Vec<ProbeAnswer>,
    ) {
        answers.clear();
        if pin.tree.queue.is_some() {
            // Between the memtables lie tables: each key goes its way alone.
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
            // Long runs: those before are not asked again.
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

    /// Which tables of `runs` may hold the keys that have no answer yet.
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

    /// The newest table that each key has left: which block of it is to be found.
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

    /// The blocks that the tables' indexes send the keys to.
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

    /// What the blocks say.
    fn in_blocks(&mut self, seq: Seq, keys: &[ProbeKey<'_>], answers: &mut [ProbeAnswer]) {
        let key_of = |at: usize| keys.get(at).map_or(&[][..], |wanted| wanted.key);
        black_box(self.blocks.iter().fold(0, |sum, (_, block)| sum ^ block.prefetch_head()));
        // The arithmetic first and then the loads: so little stands between two of them that the
        // processor looks ahead over most of a probe.
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

/// What a block says of a key to a view at `seq`.
fn in_block(block: Arc<Block>, key: &[u8], seq: Seq) -> ProbeAnswer {
    if !block.is_plain(seq) {
        return ProbeAnswer::Hard;
    }
    let position = block.lower_bound(key, Seq::MAX);
    if position >= block.len() {
        // It may begin in the block after.
        return ProbeAnswer::Hard;
    }
    if !block.is_key(position, key) {
        return ProbeAnswer::Nothing;
    }
    let range = block.value_range(position);
    ProbeAnswer::Value(Value::of_block(block, range))
}

/// What a memtable says, of what in it is above `flushed` and at or below `seq`.
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

/// Prefetches the values: they are copied out next.
fn prefetch_values(answers: &[ProbeAnswer]) {
    let mut values = [&[][..]; PROBE_KEYS];
    for (value, answer) in values.iter_mut().zip(answers) {
        if let ProbeAnswer::Value(found) = answer {
            *value = found;
        }
    }
    black_box(values.iter().fold(0, |sum, value| sum ^ prefetch(value)));
}
