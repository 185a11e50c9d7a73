//! Bytes as programs: what they build must read as a model of it does.

use crate::samples::{OBJECT, Owned, envelope};
use bytes::Bytes;
use siltstone_base::{
    Batch, BlockAddr, Cursor, Entry, Kind, MergeOperator, ObjectKind, Result, Seq, Step,
    UnixMillis, compare_internal,
};
use siltstone_bloom::key_hash;
use siltstone_memtable::{MemCursor, Memtable};
use siltstone_merge::{Direction, Merge, ReadView, Retain, Retention, Visible};
use siltstone_sst::{Block, BlockSource, Codec, Table, TableBuilder, TableCursor, TableOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Takes a script apart; zeros where it has ended.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn ended(&self) -> bool {
        self.0.is_empty()
    }

    /// A key of few: the more operations meet on one, the more there is to get wrong.
    fn key(&mut self) -> Vec<u8> {
        let byte = self.byte();
        let long = [b'k'; 9];
        let stem = if byte & 0x80 == 0 { &long[..0] } else { &long[..] };
        [stem, &[byte & 7], self.take(usize::from(byte >> 3 & 1))].concat()
    }

    fn options(&mut self) -> TableOptions {
        let codec = [Codec::None, Codec::Lz4, Codec::Zstd];
        TableOptions {
            block_bytes: 1 + usize::from(self.byte()) * 2,
            codec: codec.get(usize::from(self.byte() % 3)).copied().unwrap_or_default(),
            filter_bits_per_key: u32::from(self.byte() % 16),
        }
    }
}

/// A table with all of its blocks in memory.
struct Whole {
    table: Arc<Table>,
    blocks: Vec<Arc<Block>>,
}

impl BlockSource for Whole {
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        self.blocks.get(addr.block as usize).cloned()
    }
}

fn whole(bytes: &Bytes, descriptor: siltstone_base::SstDescriptor) -> Result<Whole> {
    let range = Table::tail_range(&descriptor);
    let tail = bytes.slice(range.start as usize..range.end as usize);
    let table = Arc::new(Table::open(descriptor, tail)?);
    let blocks = (0..table.block_count()).map(|number| {
        let range = table.block_range(number).unwrap_or_default();
        let part = bytes.slice(range.start as usize..range.end as usize);
        table.decode_block(number, part).map(Arc::new)
    });
    let blocks = blocks.collect::<Result<Vec<_>>>()?;
    Ok(Whole { table, blocks })
}

/// Builds a table of the script's entries and moves over it in every way.
///
/// # Panics
/// When it reads otherwise than the sorted list of the entries.
pub fn table(data: &[u8]) {
    let mut script = Script(data);
    let options = script.options();
    let mut entries: Vec<Owned> = Vec::new();
    while !script.ended() {
        let key = script.key();
        let shape = script.byte();
        let kind = match shape % 5 {
            0 => Kind::Delete,
            1 => Kind::Merge,
            _ => Kind::Put,
        };
        let seq = Seq(u64::from(script.byte()) << (shape >> 5));
        let expires_at = (shape & 16 != 0).then(|| UnixMillis(u64::from(script.byte()) << 20));
        let most = if kind == Kind::Delete { 0 } else { usize::from(shape) };
        entries.push(Owned { key, seq, kind, expires_at, value: script.take(most).to_vec() });
    }
    entries.sort_by(|a, b| compare_internal(&a.key, a.seq, &b.key, b.seq));
    entries.dedup_by(|a, b| (&a.key, a.seq) == (&b.key, b.seq));
    if entries.is_empty() {
        return;
    }
    sound(compare_table(options, &entries));
}

/// An undamaged input must not be refused.
#[expect(clippy::panic, reason = "a broken promise is a panic, which a fuzzer and a test report")]
fn sound<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error:?}"))
}

fn compare_table(options: TableOptions, entries: &[Owned]) -> Result<()> {
    let mut builder = TableBuilder::new(options, envelope(ObjectKind::Table, OBJECT));
    for entry in entries {
        builder.add(&entry.entry())?;
    }
    let (bytes, descriptor) = builder.finish()?;
    let whole = Arc::new(whole(&bytes, descriptor)?);
    let table = Arc::clone(&whole.table);
    let mut cursor = TableCursor::new(Arc::clone(&table), whole);
    let at = |cursor: &TableCursor<Arc<Whole>>| cursor.entry().map(|entry| Owned::of(&entry));
    let _ = cursor.seek_first()?;
    for entry in entries {
        assert_eq!(at(&cursor).as_ref(), Some(entry), "forwards");
        let _ = cursor.next()?;
    }
    assert_eq!(at(&cursor), None);
    let _ = cursor.seek_last()?;
    for entry in entries.iter().rev() {
        assert_eq!(at(&cursor).as_ref(), Some(entry), "backwards");
        let _ = cursor.prev()?;
    }
    assert_eq!(at(&cursor), None);
    for entry in entries {
        assert!(table.may_contain(key_hash(&entry.key)));
        for seq in [entry.seq.minus(1), entry.seq, entry.seq.next(), Seq(0), Seq::MAX] {
            let split = entries.partition_point(|other| {
                compare_internal(&other.key, other.seq, &entry.key, seq).is_lt()
            });
            let _ = cursor.seek(&entry.key, seq)?;
            assert_eq!(at(&cursor).as_ref(), entries.get(split), "seek {seq}");
            let _ = cursor.seek_before(&entry.key, seq)?;
            let before = split.checked_sub(1).and_then(|split| entries.get(split));
            assert_eq!(at(&cursor).as_ref(), before, "seek before {seq}");
        }
    }
    Ok(())
}

/// A memtable or a table.
enum Layer {
    Memory(Arc<Memtable>),
    Table(Arc<Whole>),
}

impl Layer {
    fn source(&self) -> Source {
        match self {
            Layer::Memory(memtable) => Source::Memory(memtable.cursor()),
            Layer::Table(whole) => {
                let table = Arc::clone(&whole.table);
                Source::Table(Box::new(TableCursor::new(table, Arc::clone(whole))))
            }
        }
    }
}

/// A cursor over one of them.
enum Source {
    Memory(MemCursor),
    Table(Box<TableCursor<Arc<Whole>>>),
}

/// Hands a move on.
macro_rules! hand_on {
    ($($name:ident($($argument:ident: $kind:ty),*);)+) => {
        $(fn $name(&mut self, $($argument: $kind),*) -> Result<Step> {
            match self {
                Source::Memory(cursor) => cursor.$name($($argument),*),
                Source::Table(cursor) => cursor.$name($($argument),*),
            }
        })+
    };
}

impl Cursor for Source {
    hand_on! {
        seek_first();
        seek_last();
        seek(key: &[u8], seq: Seq);
        seek_before(key: &[u8], seq: Seq);
        next();
        prev();
    }

    fn entry(&self) -> Option<Entry<'_>> {
        match self {
            Source::Memory(cursor) => cursor.entry(),
            Source::Table(cursor) => cursor.entry(),
        }
    }
}

/// Appends operands to what there is.
struct Append;

impl MergeOperator for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    fn fold(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        Ok([base.unwrap_or(b"-"), &operands.concat()].concat())
    }

    fn fold_operands(&self, _: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Ok(Some(operands.concat()))
    }
}

/// The moment of every read; entries expire before or after.
const NOW: UnixMillis = UnixMillis(1_000);

/// One write to a key.
struct Write {
    kind: Kind,
    expires_at: Option<UnixMillis>,
    value: Vec<u8>,
}

/// Every write to every key, oldest first.
type Model = BTreeMap<Vec<u8>, Vec<Write>>;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The rows of the model in `[start, end)`. An expired row counts as a tombstone.
fn visible(model: &Model, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<Rows> {
    let mut rows = Rows::new();
    for (key, writes) in model {
        let below = start.is_some_and(|start| key.as_slice() < start);
        if below || end.is_some_and(|end| key.as_slice() >= end) {
            continue;
        }
        let (mut base, mut operands) = (None, Vec::new());
        for write in writes {
            let expired = write.expires_at.is_some_and(|at| at <= NOW);
            match write.kind {
                Kind::Merge if !expired => operands.push(write.value.as_slice()),
                kind => {
                    operands.clear();
                    let stays = kind == Kind::Put && !expired;
                    base = stays.then_some(write.value.as_slice());
                }
            }
        }
        if !operands.is_empty() {
            rows.push((key.clone(), Append.fold(key, base, &operands)?));
        } else if let Some(value) = base {
            rows.push((key.clone(), value.to_vec()));
        }
    }
    Ok(rows)
}

/// Writes the script's batches into memtables, flushes some of them into tables, and scans all of
/// it both ways.
///
/// # Panics
/// When a scan differs from the model's.
pub fn merge(data: &[u8]) {
    let mut script = Script(data);
    let (mut model, mut seq, mut layers) = (Model::new(), Seq(1), Vec::new());
    while !script.ended() && layers.len() < 12 {
        let options = script.options();
        let flushed = (script.byte() & 1 == 0).then_some(options);
        layers.splice(..0, sound(layer(&mut script, &mut model, &mut seq, flushed)));
    }
    let [low, high] = [script.key(), script.key()];
    let ranges = [(None, None), (Some(low.clone()), None), (Some(low), Some(high))];
    for (start, end) in ranges {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut expected = sound(visible(&model, start.as_deref(), end.as_deref()));
            if direction == Direction::Backward {
                expected.reverse();
            }
            let operator: Arc<dyn MergeOperator> = Arc::new(Append);
            let operator = Some(operator);
            let read = ReadView { seq: Seq::MAX, now: NOW, operator, recorded_operator: None };
            let merged = Merge::new(layers.iter().map(Layer::source).collect(), direction);
            let rows = Visible::new(merged, read, direction, start.clone(), end.clone());
            assert_eq!(sound(scan(rows)), expected, "{direction:?} {start:?} {end:?}");
        }
    }
}

fn scan(mut visible: Visible<Merge<Source>>) -> Result<Rows> {
    let mut rows = Vec::new();
    while visible.advance()? == Step::Ready {
        rows.extend(visible.item().map(|(key, value)| (key.to_vec(), value.to_vec())));
    }
    Ok(rows)
}

/// One memtable of a few batches; flushed where it is said how.
fn layer(
    script: &mut Script<'_>,
    model: &mut Model,
    seq: &mut Seq,
    flushed: Option<TableOptions>,
) -> Result<Option<Layer>> {
    let memtable = Arc::new(Memtable::new());
    for _ in 0..1 + script.byte() % 3 {
        let mut batch = Batch::new();
        for _ in 0..1 + script.byte() % 6 {
            let (key, shape) = (script.key(), script.byte());
            let expires = [None, None, Some(UnixMillis(999)), Some(UnixMillis(1_001))];
            let expires_at = expires.get(usize::from(shape >> 6)).copied().flatten();
            let value = script.take(usize::from(shape >> 2 & 7));
            let (kind, value, expires_at) = match shape & 3 {
                0 => (Kind::Delete, &[][..], None),
                1 => (Kind::Merge, value, expires_at),
                _ => (Kind::Put, value, expires_at),
            };
            batch.push(kind, &key, value, expires_at)?;
            let write = Write { kind, expires_at, value: value.to_vec() };
            model.entry(key).or_default().push(write);
        }
        memtable.insert_batch(*seq, &Arc::from(batch.as_bytes()))?;
        *seq = seq.plus(u64::from(batch.ops()));
    }
    let Some(options) = flushed else { return Ok(Some(Layer::Memory(memtable))) };
    let retention =
        Retention { now: NOW, operator: Some(Arc::new(Append)), ..Retention::default() };
    let mut rows = Retain::new(memtable.cursor(), retention);
    let mut builder = TableBuilder::new(options, envelope(ObjectKind::Table, OBJECT));
    while rows.advance()? == Step::Ready {
        if let Some(entry) = rows.entry() {
            builder.add(&entry)?;
        }
    }
    if builder.entries() == 0 {
        return Ok(None);
    }
    let (bytes, descriptor) = builder.finish()?;
    Ok(Some(Layer::Table(Arc::new(whole(&bytes, descriptor)?))))
}
