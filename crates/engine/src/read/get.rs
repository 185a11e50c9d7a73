//! Point look-ups: a synchronous walk over what memory has, which names what it lacks.

use super::Pin;
use super::answer::Answer;
use super::mem_versions::{MemtableAnswer, offer};
use super::missing::KEPT_TABLES_BYTES;
use super::queue::QueuedIngest;
use super::value::{KeyEntry, LastingEntry, Value};
use crate::cache::fetch::{CacheFill, ReadContext};
use crate::cache::filters::RUNS_AT_ONCE;
use crate::cache::metadata::{OpenTable, TableHandle};
use futures::future::try_join_all;
use siltstone_base::entry::check_key;
use siltstone_base::{BlockAddr, Result, Seq, SstId, TablePart};
use siltstone_bloom::{Marks, key_hash};
use siltstone_memtable::Memtable;
use siltstone_merge::{LookupStep, Resolve};
use siltstone_sst::Block;
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::Arc;

/// The result of a walk.
pub(crate) enum Lookup {
    /// The answer.
    Done(Option<Value>),
    /// The parts that must be fetched before the walk can answer.
    Lacking(Vec<MissingPart>),
}

/// Something that is not in memory.
pub(crate) enum MissingPart {
    Metadata(Arc<TableHandle>),
    Block(Arc<OpenTable>, u32),
    /// Nothing but time: the caller may hold a lock that others wait for.
    Turn,
}

/// The parts that were fetched for this read; the caches may have evicted them meanwhile.
#[derive(Default)]
pub(crate) struct FetchedParts {
    tables: BTreeMap<TablePart, Arc<OpenTable>>,
    blocks: BTreeMap<BlockAddr, Arc<Block>>,
    /// Whether a look-up may run to its end: no caller holds a lock meanwhile.
    is_patient: bool,
}

/// The parts of the first walk: none.
static NOTHING_FETCHED: FetchedParts =
    FetchedParts { tables: BTreeMap::new(), blocks: BTreeMap::new(), is_patient: false };

impl FetchedParts {
    fn table(&self, handle: &TableHandle) -> Option<Arc<OpenTable>> {
        if self.tables.is_empty() {
            return handle.table();
        }
        self.tables.get(&handle.descriptor.part()).cloned().or_else(|| handle.table())
    }

    fn block(&self, context: &ReadContext, table: &OpenTable, block: u32) -> Option<Arc<Block>> {
        if !self.blocks.is_empty() {
            let addr = BlockAddr { sst: table.descriptor().id, block };
            if let Some(held) = self.blocks.get(&addr) {
                return Some(Arc::clone(held));
            }
        }
        context.block(table, block)
    }

    /// Its size in memory.
    pub(super) fn bytes(&self) -> usize {
        let blocks = self.blocks.values().map(|block| block.memory_bytes());
        blocks.sum::<usize>() + self.table_bytes()
    }

    fn table_bytes(&self) -> usize {
        self.tables.values().map(|table| table.memory_bytes()).sum()
    }

    /// The keys that it was fetched for are answered: lets go of its blocks, and of its tables
    /// where they take more than may be kept.
    pub(super) fn end_wave(&mut self) {
        self.blocks.clear();
        if self.table_bytes() > KEPT_TABLES_BYTES {
            self.tables.clear();
        }
    }

    /// Fetches everything lacking, in one wave; blocks of one table in as few requests as their
    /// distance allows.
    pub(crate) async fn fetch(
        &mut self,
        context: &ReadContext,
        lacking: Vec<MissingPart>,
    ) -> Result<()> {
        self.is_patient = true;
        let mut handles = BTreeMap::new();
        let mut wanted: BTreeMap<SstId, (Arc<OpenTable>, BTreeSet<u32>)> = BTreeMap::new();
        for lack in lacking {
            match lack {
                MissingPart::Metadata(handle) => {
                    handles.insert(handle.descriptor.part(), handle);
                }
                MissingPart::Turn => {}
                MissingPart::Block(table, block) => {
                    let id = table.descriptor().id;
                    wanted.entry(id).or_insert_with(|| (table, BTreeSet::new())).1.insert(block);
                }
            }
        }
        let tables = try_join_all(handles.values().map(|handle| context.table(handle)));
        let blocks = try_join_all(wanted.into_values().map(|(table, blocks)| async move {
            let blocks: Vec<u32> = blocks.into_iter().collect();
            context.blocks(&table.table, &blocks, CacheFill::Keep).await
        }));
        let (tables, blocks) = futures::future::try_join(tables, blocks).await?;
        self.tables.extend(tables.into_iter().map(|table| (table.descriptor().part(), table)));
        self.blocks.extend(blocks.into_iter().flatten());
        Ok(())
    }
}

/// `get` of one key.
pub(crate) fn get(context: &ReadContext, pin: Pin, key: &[u8]) -> Result<Answer<Option<Value>>> {
    check_key(key)?;
    let sampled = context.asked.gets.count().then(|| context.env.clock.monotonic());
    let hash = key_hash(key);
    let lacking = match lookup(context, &pin, key, hash, &NOTHING_FETCHED)? {
        Lookup::Done(value) => {
            if let Some(began) = sampled {
                context.note(&context.asked.cached_gets, began);
            }
            return Ok(Answer::Ready(value));
        }
        Lookup::Lacking(lacking) => lacking,
    };
    let (context, key) = (context.clone(), key.to_vec());
    let began = context.env.clock.monotonic();
    Ok(Answer::Pending(Box::pin(async move {
        let rounds = rounds(&context, &pin, &key, hash, lacking);
        let found = context.deadline(context.deadline, "get", rounds).await;
        context.note(&context.asked.fetched_gets, began);
        found
    })))
}

async fn rounds(
    context: &ReadContext,
    pin: &Pin,
    key: &[u8],
    hash: u64,
    mut lacking: Vec<MissingPart>,
) -> Result<Option<Value>> {
    let mut fetched = FetchedParts::default();
    loop {
        fetched.fetch(context, lacking).await?;
        match lookup(context, pin, key, hash, &fetched)? {
            Lookup::Done(value) => return Ok(value),
            Lookup::Lacking(more) => lacking = more,
        }
    }
}

/// `get` of one key, with what is known of the value beside it.
pub(crate) fn get_entry(
    context: &ReadContext,
    pin: Pin,
    key: &[u8],
) -> Result<Answer<Option<KeyEntry>>> {
    check_key(key)?;
    context.asked.gets.add(1);
    let lacking = match look_up_entry(context, &pin, key, &NOTHING_FETCHED)? {
        EntryLookup::Done(found) => return Ok(Answer::Ready(found.map(|found| found.entry))),
        EntryLookup::Lacking(lacking) => lacking,
    };
    let rounds = entry_rounds(context, pin, key, lacking);
    Ok(Answer::Pending(Box::pin(async move { Ok(rounds.await?.map(|found| found.entry)) })))
}

/// `get` of one key, with the time until which the value stays the same.
pub(crate) fn get_lasting(
    context: &ReadContext,
    pin: Pin,
    key: &[u8],
) -> Result<Answer<Option<LastingEntry>>> {
    check_key(key)?;
    context.asked.gets.add(1);
    Ok(match look_up_entry(context, &pin, key, &NOTHING_FETCHED)? {
        EntryLookup::Done(found) => Answer::Ready(found),
        EntryLookup::Lacking(lacking) => {
            Answer::Pending(Box::pin(entry_rounds(context, pin, key, lacking)))
        }
    })
}

/// Fetches what an entry lacks until it is found.
fn entry_rounds(
    context: &ReadContext,
    pin: Pin,
    key: &[u8],
    mut lacking: Vec<MissingPart>,
) -> impl Future<Output = Result<Option<LastingEntry>>> + Send + 'static {
    let (context, key) = (context.clone(), key.to_vec());
    async move {
        let rounds = async {
            let mut fetched = FetchedParts::default();
            loop {
                fetched.fetch(&context, lacking).await?;
                match look_up_entry(&context, &pin, &key, &fetched)? {
                    EntryLookup::Done(entry) => return Ok(entry),
                    EntryLookup::Lacking(more) => lacking = more,
                }
            }
        };
        context.deadline(context.deadline, "get entry", rounds).await
    }
}

/// The result of a walk for an entry.
enum EntryLookup {
    Done(Option<LastingEntry>),
    Lacking(Vec<MissingPart>),
}

fn look_up_entry(
    context: &ReadContext,
    pin: &Pin,
    key: &[u8],
    fetched: &FetchedParts,
) -> Result<EntryLookup> {
    let view = pin.view(context);
    let mut resolve = Resolve::new(key, &view).noting_newest();
    let found = walk(context, pin, (key, key_hash(key)), fetched, &mut resolve)?;
    let newest = resolve.newest();
    Ok(match found {
        Lookup::Lacking(lacking) => EntryLookup::Lacking(lacking),
        Lookup::Done(value) => EntryLookup::Done(value.map(|value| LastingEntry {
            entry: KeyEntry {
                value,
                expires_at: newest.and_then(|newest| newest.expires_at),
                seq: newest.map(|newest| newest.seq).filter(|seq| !seq.is_none()),
            },
            lasts_until: newest.and_then(|newest| newest.lasts_until),
        })),
    })
}

/// Walks memtables and tables, newest first, with what memory and `fetched` have. `hash` is the
/// key's ([`key_hash`]).
pub(crate) fn lookup(
    context: &ReadContext,
    pin: &Pin,
    key: &[u8],
    hash: u64,
    fetched: &FetchedParts,
) -> Result<Lookup> {
    let view = pin.view(context);
    walk(context, pin, (key, hash), fetched, &mut Resolve::new(key, &view))
}

/// As [`lookup`], through `resolve`, which may note more than the value.
fn walk(
    context: &ReadContext,
    pin: &Pin,
    (key, hash): (&[u8], u64),
    fetched: &FetchedParts,
    resolve: &mut Resolve<'_>,
) -> Result<Lookup> {
    let mut queued = pin.tree.queued();
    for (memtable, seq) in pin.tree.memtables_at(pin.seq) {
        if let [_, ..] = queued {
            let newer = newer_than(&mut queued, memtable);
            if let Some(found) = in_queue(newer, (context, pin), (key, hash), fetched, resolve)? {
                return Ok(found);
            }
        }
        if memtable.has_range_deletes() {
            delete_in_memtable(memtable, (pin, seq), key, resolve);
        }
        match offer((memtable, pin), (key, hash, seq), resolve, fetched.is_patient)? {
            MemtableAnswer::Value(value) => return Ok(Lookup::Done(Some(value))),
            MemtableAnswer::Absent => return Ok(Lookup::Done(None)),
            MemtableAnswer::Folded => return folded(resolve),
            MemtableAnswer::NeedTurn => return Ok(Lookup::Lacking(vec![MissingPart::Turn])),
            MemtableAnswer::NeedOlder => {}
        }
        if resolve.is_deleted_below() {
            return folded(resolve);
        }
    }
    if let Some(found) = in_queue(queued, (context, pin), (key, hash), fetched, resolve)? {
        return Ok(found);
    }
    in_tables(
        TableWalk { context, fetched, key, seq: pin.seq, hash, lacking: vec![] },
        pin,
        resolve,
    )
}

/// Takes those off the front that are newer than `memtable`.
fn newer_than<'q>(
    queued: &mut &'q [Arc<QueuedIngest>],
    memtable: &Memtable,
) -> &'q [Arc<QueuedIngest>] {
    let newer =
        memtable.last_seq().map_or(0, |last| queued.partition_point(|one| last < one.first));
    let (newer, rest) = queued.split_at(newer);
    *queued = rest;
    newer
}

/// Goes on with ingests of the queue, newest first; `None` where none of them decides.
fn in_queue(
    queued: &[Arc<QueuedIngest>],
    (context, pin): (&ReadContext, &Pin),
    (key, hash): (&[u8], u64),
    fetched: &FetchedParts,
    resolve: &mut Resolve<'_>,
) -> Result<Option<Lookup>> {
    let mut tables = TableWalk { context, fetched, key, seq: pin.seq, hash, lacking: vec![] };
    for run in queued.iter().flat_map(|one| one.runs()) {
        let at = run.tables.partition_point(|table| table.descriptor.ends_below(key));
        let Some(handle) = run.tables.get(at).filter(|table| table.descriptor.covers(key)) else {
            continue;
        };
        match tables.visit(handle, false, resolve)? {
            Some(KeyDecision::Value(value)) => return Ok(Some(Lookup::Done(Some(value)))),
            Some(KeyDecision::Absent) => return Ok(Some(Lookup::Done(None))),
            Some(KeyDecision::Folded) => return folded(resolve).map(Some),
            // Older entries may be read only once this one is known.
            None if !tables.lacking.is_empty() => {
                return Ok(Some(Lookup::Lacking(tables.lacking)));
            }
            None if resolve.is_deleted_below() => return folded(resolve).map(Some),
            None => {}
        }
    }
    Ok(None)
}

/// Goes on with the tables that the filters let the key into.
fn in_tables(mut tables: TableWalk<'_>, pin: &Pin, resolve: &mut Resolve<'_>) -> Result<Lookup> {
    let filters = &*pin.tree.below().filters;
    let mut marks = Marks::new(tables.hash);
    let Some(sought) = filters.bounds().seek(tables.key) else { return folded(resolve) };
    'older: for from in (0..filters.bounds().runs()).step_by(RUNS_AT_ONCE) {
        for (at, known) in filters.ask(from, &sought, &mut marks).tables() {
            let Some(handle) = filters.table(at) else { continue };
            match tables.visit(handle, known, resolve)? {
                Some(KeyDecision::Value(value)) => return Ok(Lookup::Done(Some(value))),
                Some(KeyDecision::Absent) => return Ok(Lookup::Done(None)),
                Some(KeyDecision::Folded) => return folded(resolve),
                None if resolve.is_deleted_below() => break 'older,
                None => {}
            }
        }
    }
    if !tables.lacking.is_empty() {
        return Ok(Lookup::Lacking(tables.lacking));
    }
    folded(resolve)
}

/// Tells `resolve` of the memtable's range delete over the key. One that is in tables too is passed
/// over, as entries are: in tables what is newer than it may have the number 0 by now.
#[cold]
fn delete_in_memtable(
    memtable: &Memtable,
    (pin, seq): (&Pin, Seq),
    key: &[u8],
    resolve: &mut Resolve<'_>,
) {
    let deleted = memtable.deleted_at(key, seq);
    if deleted > pin.tree.flushed_seq {
        resolve.delete_older_than(deleted);
    }
}

/// The answer where operands had a say, or nothing was found at all.
fn folded(resolve: &mut Resolve<'_>) -> Result<Lookup> {
    Ok(Lookup::Done(resolve.finish()?.map(|value| Value::of_bytes(&value))))
}

/// How a table decides a look-up.
enum KeyDecision {
    Value(Value),
    Absent,
    Folded,
}

/// The part of the walk that may lack something. Once it does, the remaining tables are visited
/// only to name what else will be needed.
struct TableWalk<'a> {
    context: &'a ReadContext,
    fetched: &'a FetchedParts,
    key: &'a [u8],
    seq: Seq,
    hash: u64,
    lacking: Vec<MissingPart>,
}

impl TableWalk<'_> {
    /// `Some` when this table decides the look-up. `known`: it has no range deletes, and its filter
    /// was asked and let the key in.
    fn visit(
        &mut self,
        handle: &Arc<TableHandle>,
        known: bool,
        resolve: &mut Resolve<'_>,
    ) -> Result<Option<KeyDecision>> {
        let Some(table) = self.fetched.table(handle) else {
            self.lacking.push(MissingPart::Metadata(Arc::clone(handle)));
            return Ok(None);
        };
        if !known {
            if !table.range_deletes().is_empty() {
                resolve.delete_older_than(table.range_deletes().at(self.key, self.seq));
            }
            if !table.may_contain(self.hash) {
                return Ok(None);
            }
        }
        let mut seq = self.seq;
        let mut visited = None;
        while let Some(block) = table.find_block(self.key, seq).filter(|b| Some(*b) != visited) {
            let Some(data) = self.fetched.block(self.context, &table, block) else {
                self.lacking.push(MissingPart::Block(table, block));
                return Ok(None);
            };
            if !self.lacking.is_empty() {
                return Ok(None);
            }
            match self.versions(&data, seq, resolve)? {
                Versions::Decided(decided) => return Ok(Some(decided)),
                Versions::Ended => return Ok(None),
                Versions::Beyond(older) => seq = older,
            }
            visited = Some(block);
        }
        Ok(None)
    }

    /// Offers the versions of the key in one block, newest first.
    fn versions(
        &self,
        block: &Arc<Block>,
        seq: Seq,
        resolve: &mut Resolve<'_>,
    ) -> Result<Versions> {
        // The usual case, plain values that are all visible, is decided by keys alone: sequence
        // numbers and kinds lie elsewhere in the block, each a line to wait for.
        if block.is_plain(seq) && resolve.takes_value() {
            black_box(block.prefetch(self.key));
            let position = block.lower_bound(self.key, Seq::MAX);
            if block.is_key(position, self.key) {
                let value = Value::of_block(Arc::clone(block), block.value_range(position));
                return Ok(Versions::Decided(KeyDecision::Value(value)));
            }
            let ended = position < block.len();
            return Ok(if ended { Versions::Ended } else { Versions::Beyond(seq) });
        }
        let mut position = block.lower_bound(self.key, seq);
        let mut older = seq;
        while let Some(entry) = block.entry(position) {
            if entry.key != self.key {
                return Ok(Versions::Ended);
            }
            match resolve.push(entry)? {
                LookupStep::Value => {
                    let range = block.value_range(position);
                    let value = Value::of_block(Arc::clone(block), range);
                    return Ok(Versions::Decided(KeyDecision::Value(value)));
                }
                LookupStep::Absent => return Ok(Versions::Decided(KeyDecision::Absent)),
                LookupStep::Folded => return Ok(Versions::Decided(KeyDecision::Folded)),
                LookupStep::NeedOlder => older = entry.seq.minus(1),
            }
            position += 1;
        }
        // The block ended inside the key's versions, or before its first.
        Ok(if older.is_none() { Versions::Ended } else { Versions::Beyond(older) })
    }
}

enum Versions {
    Decided(KeyDecision),
    /// The key has no more versions in this table.
    Ended,
    /// Versions from here on down may follow in the next block.
    Beyond(Seq),
}
