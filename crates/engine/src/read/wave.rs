//! Look-ups of many keys side by side, for the plain cases that most are.
//!
//! A look-up is a chain of loads, each from an address that the one before gave, and most of them
//! wait for memory:
//!
//! ```text
//! memtable   slot of the index -> record -> buffer -> bytes
//! table      line of the filter -> slot of the block -> block -> key -> value
//! ```
//! One key after the other, every wait is paid in full. Here all keys of a wave make one step of
//! the chain before any makes the next: a dozen loads then wait together, for hardly longer than
//! one. Between the loads of a step stands no locked instruction, which would wait for all of them
//! first.
//!
//! A key is decided here when what decides it is a plain value in a memtable, or lies in blocks in
//! memory that hold plain values alone, all of them visible; or when no filter knows it. Whatever
//! else turns up (tombstones, operands, expiry, older versions, anything that is not in memory)
//! leaves the key to [`lookup`](super::get::lookup), which knows all of that.

use super::Pin;
use super::get::newest_seq;
use crate::cache::{BlockCache, OpenTable};
use crate::slots::Look;
use crate::tree::TableRun;
use crate::value::Value;
use siltstone_base::{Kind, Seq};
use siltstone_memtable::{Depth, Memtable};
use siltstone_sst::Block;
use std::hint::black_box;
use std::sync::Arc;

/// Keys of a wave. Each needs some ten lines of 64 bytes, and all of them are to stay in the 32 KiB
/// of a first-level cache until they are used.
pub(super) const WAVE: usize = 32;

/// One key of a wave.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
}

/// What a wave found out about a key.
pub(super) enum Found {
    /// Nothing yet, as far as the wave has come; at its end: the key has no value.
    Nothing,
    /// Its value.
    Value(Value),
    /// It takes more than a wave can do.
    Hard,
}

/// A table that may hold a key.
struct Asked {
    key: usize,
    table: usize,
    block: u32,
}

/// Memory that is kept from wave to wave.
#[derive(Default)]
pub(super) struct Wave {
    tables: Vec<Arc<OpenTable>>,
    asked: Vec<Asked>,
    blocks: Vec<(usize, Seq, Arc<Block>)>,
}

impl Wave {
    /// Looks `keys` up, which ascend; one answer a key.
    pub(super) fn look_up(
        &mut self,
        cache: &BlockCache,
        pin: &Pin,
        keys: &[Wanted<'_>],
        answers: &mut Vec<Found>,
    ) {
        answers.clear();
        answers.extend(keys.iter().map(|_| Found::Nothing));
        for memtable in pin.tree.memtables().filter(|memtable| !memtable.is_empty()) {
            in_memtable(memtable, pin, keys, answers);
        }
        for run in &pin.tree.levels.runs {
            if run.has_range_deletes {
                hard_where_deleted(run, pin.seq, keys, answers);
            }
            self.in_run(cache, run, pin.seq, keys, answers);
        }
        touch_values(answers);
    }

    fn in_run(
        &mut self,
        cache: &BlockCache,
        run: &TableRun,
        seq: Seq,
        keys: &[Wanted<'_>],
        answers: &mut [Found],
    ) {
        self.choose_tables(run, keys, answers);
        self.find_blocks(cache, keys, seq, answers);
        let key_of = |at: usize| keys.get(at).map_or(&[][..], |wanted| wanted.key);
        let near = self.blocks.iter().fold(0, |sum, (at, _, block)| sum ^ block.touch(key_of(*at)));
        black_box(near);
        for (at, newest, block) in self.blocks.drain(..) {
            if let Some(answer) = answers.get_mut(at) {
                *answer = in_block(block, key_of(at), newest <= seq);
            }
        }
    }

    /// The tables of `run` whose bounds allow a key that has no answer yet. Keys ascend, so one
    /// table's follow each other.
    fn choose_tables(&mut self, run: &TableRun, keys: &[Wanted<'_>], answers: &mut [Found]) {
        self.tables.clear();
        self.asked.clear();
        let mut last = None;
        for (at, (wanted, answer)) in keys.iter().zip(answers).enumerate() {
            if !matches!(answer, Found::Nothing) {
                continue;
            }
            let Some(handle) = run.candidate(wanted.key) else { continue };
            if !last.is_some_and(|last| Arc::ptr_eq(last, handle)) {
                let Some(table) = handle.table() else {
                    *answer = Found::Hard;
                    continue;
                };
                self.tables.push(table);
                last = Some(handle);
            }
            self.asked.push(Asked { key: at, table: self.tables.len() - 1, block: 0 });
        }
    }

    /// The blocks that the filters send the keys to.
    fn find_blocks(
        &mut self,
        cache: &BlockCache,
        keys: &[Wanted<'_>],
        seq: Seq,
        answers: &mut [Found],
    ) {
        let Wave { tables, asked, blocks } = self;
        let both = |asked: &Asked| tables.get(asked.table).zip(keys.get(asked.key));
        black_box(
            asked
                .iter()
                .filter_map(both)
                .fold(0, |sum, (table, wanted)| sum ^ table.touch_filter(wanted.hash)),
        );
        let looks: Vec<Look<'_>> = tables.iter().map(|table| table.slots.look()).collect();
        let mut sum = 0;
        asked.retain_mut(|asked| {
            let found = both(asked).filter(|(table, wanted)| table.may_contain(wanted.hash));
            let block = found.and_then(|(table, wanted)| table.find_block(wanted.key, seq));
            asked.block = block.unwrap_or_default();
            let slot = looks.get(asked.table).map_or(0, |look| look.touch(asked.block));
            sum ^= slot;
            block.is_some()
        });
        sum ^= asked.iter().fold(0, |sum, asked| {
            sum ^ looks.get(asked.table).map_or(0, |look| look.holders(asked.block))
        });
        black_box(sum);
        for asked in asked {
            let block = looks.get(asked.table).and_then(|look| look.block(asked.block));
            match (block, tables.get(asked.table), answers.get_mut(asked.key)) {
                (Some(block), Some(table), _) => {
                    blocks.push((asked.key, newest_seq(table), block));
                    cache.used(table, asked.block);
                }
                (_, _, Some(answer)) => *answer = Found::Hard,
                (_, _, None) => {}
            }
        }
    }
}

/// What a block says of a key. `sees_all`: none of its entries is newer than the view.
fn in_block(block: Arc<Block>, key: &[u8], sees_all: bool) -> Found {
    if !sees_all || block.sole_kind() != Some(Kind::Put) {
        return Found::Hard;
    }
    let position = block.lower_bound(key, Seq::MAX);
    if position >= block.len() {
        // It may begin in the block after.
        return Found::Hard;
    }
    if !block.is_key(position, key) {
        return Found::Nothing;
    }
    let range = block.value_range(position);
    Found::Value(Value::of_block(block, range))
}

fn in_memtable(memtable: &Memtable, pin: &Pin, keys: &[Wanted<'_>], answers: &mut [Found]) {
    if memtable.has_range_deletes() {
        for (wanted, answer) in keys.iter().zip(answers.iter_mut()) {
            let open = matches!(answer, Found::Nothing);
            if open && !memtable.deleted_at(wanted.key, pin.seq).is_none() {
                *answer = Found::Hard;
            }
        }
    }
    for depth in Depth::ALL {
        black_box(keys.iter().fold(0, |sum, key| sum ^ memtable.touch(key.hash, depth)));
    }
    for (wanted, answer) in keys.iter().zip(answers) {
        if !matches!(answer, Found::Nothing) {
            continue;
        }
        let Some(found) = memtable.get_hashed(wanted.key, wanted.hash, pin.seq) else { continue };
        let entry = found.entry();
        let plain = entry.kind == Kind::Put && entry.expires_at.is_none();
        *answer = if plain && entry.seq > pin.tree.flushed_seq {
            Found::Value(Value::of_memtable(found))
        } else {
            Found::Hard
        };
    }
}

/// Leaves keys that a range delete of `run` may delete to the look-up that knows of them.
#[cold]
fn hard_where_deleted(run: &TableRun, seq: Seq, keys: &[Wanted<'_>], answers: &mut [Found]) {
    for (wanted, answer) in keys.iter().zip(answers) {
        let Some(handle) = run.candidate(wanted.key) else { continue };
        if !matches!(answer, Found::Nothing) || handle.descriptor.range_deletes.is_none() {
            continue;
        }
        let deleted =
            handle.table().is_none_or(|table| !table.range_deletes().at(wanted.key, seq).is_none());
        if deleted {
            *answer = Found::Hard;
        }
    }
}

/// Brings the ends of values near: they are copied out next.
fn touch_values(answers: &[Found]) {
    black_box(answers.iter().fold(0, |sum, answer| match answer {
        Found::Value(value) => {
            sum ^ value.first().copied().unwrap_or(0) ^ value.last().copied().unwrap_or(0)
        }
        Found::Nothing | Found::Hard => sum,
    }));
}
