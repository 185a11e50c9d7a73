//! Shared by the tests of this crate: owned entries, tables in memory, and the model of a table.
#![allow(missing_docs, dead_code, unreachable_pub, reason = "shared by tests, each using a part")]

use bytes::Bytes;
use siltstone_base::{
    AttemptId, BlockAddr, Cursor, DatabaseId, Entry, Envelope, Kind, ObjectId, ObjectKind, Result,
    Seq, SstDescriptor, Step, UnixMillis, compare_internal,
};
use siltstone_sst::{Block, BlockSource, Table, TableBuilder, TableCursor, TableOptions};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub key: Vec<u8>,
    pub seq: Seq,
    pub kind: Kind,
    pub expires_at: Option<UnixMillis>,
    pub value: Vec<u8>,
}

impl Owned {
    pub fn put(key: &[u8], seq: u64, value: &[u8]) -> Owned {
        let (key, value) = (key.to_vec(), value.to_vec());
        Owned { key, seq: Seq(seq), kind: Kind::Put, expires_at: None, value }
    }

    pub fn of(entry: &Entry<'_>) -> Owned {
        Owned {
            key: entry.key.to_vec(),
            seq: entry.seq,
            kind: entry.kind,
            expires_at: entry.expires_at,
            value: entry.value.to_vec(),
        }
    }

    pub fn entry(&self) -> Entry<'_> {
        Entry {
            key: &self.key,
            seq: self.seq,
            kind: self.kind,
            expires_at: self.expires_at,
            value: &self.value,
        }
    }
}

pub fn sort(entries: &mut Vec<Owned>) {
    entries.sort_by(|a, b| compare_internal(&a.key, a.seq, &b.key, b.seq));
    entries.dedup_by(|a, b| (&a.key, a.seq) == (&b.key, b.seq));
}

pub fn envelope(object: u128) -> Envelope {
    Envelope::new(ObjectKind::Table, DatabaseId(0xdb), ObjectId(object), AttemptId(0xa7))
}

/// The seal of `bytes` at a location, as in FORMAT.md.
pub fn seal(object: u128, offset: u64, bytes: &[u8]) -> [u8; 4] {
    let crc = siltstone_base::checksum::bound(ObjectId(object), offset, bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Builds a table, and takes chunks of at least `chunk` bytes on the way.
pub fn build(
    options: TableOptions,
    object: u128,
    chunk: usize,
    entries: &[Owned],
) -> (Vec<u8>, SstDescriptor) {
    let mut builder = TableBuilder::new(options, envelope(object));
    let mut bytes = Vec::new();
    for entry in entries {
        builder.add(&entry.entry()).unwrap();
        if let Some(finished) = builder.take_chunk(chunk) {
            bytes.extend_from_slice(&finished);
        }
    }
    assert_eq!(builder.entries(), entries.len() as u64);
    let (rest, descriptor) = builder.finish().unwrap();
    bytes.extend_from_slice(&rest);
    assert_eq!(descriptor.object_bytes, bytes.len() as u64);
    assert_eq!(descriptor.checksum, siltstone_base::checksum::crc32c(&bytes));
    (bytes, descriptor)
}

pub fn slice(bytes: &[u8], range: Range<u64>) -> Bytes {
    let range = range.start as usize..range.end as usize;
    Bytes::copy_from_slice(bytes.get(range).unwrap_or_default())
}

pub fn open(bytes: &[u8], descriptor: &SstDescriptor) -> Result<Table> {
    Table::open(descriptor.clone(), slice(bytes, Table::tail_range(descriptor)))
}

pub fn block(bytes: &[u8], table: &Table, number: u32) -> Result<Block> {
    table.decode_block(number, slice(bytes, table.block_range(number).unwrap()))
}

/// Every entry of every block, in order.
pub fn read_all(bytes: &[u8], table: &Table) -> Result<Vec<Owned>> {
    let mut entries = Vec::new();
    for number in 0..table.block_count() {
        let block = block(bytes, table, number)?;
        for position in 0..block.len() {
            entries.push(Owned::of(&block.entry(position).unwrap()));
        }
        assert!(block.entry(block.len()).is_none());
    }
    Ok(entries)
}

/// The steps of a point read: filter, one block, lower bound.
pub fn get(bytes: &[u8], table: &Table, key: &[u8], seq: Seq) -> Option<Owned> {
    if !table.may_contain(siltstone_bloom::key_hash(key)) {
        return None;
    }
    let block = block(bytes, table, table.find_block(key, seq)?).unwrap();
    let position = block.lower_bound(key, seq);
    let entry = block.entry(position).filter(|entry| entry.key == key)?;
    let range = block.value_range(position);
    assert_eq!(block.bytes().get(range), Some(entry.value));
    Some(Owned::of(&entry))
}

/// A source that has a block only at the second request, and then remembers only that one.
pub struct Forgetful {
    pub bytes: Vec<u8>,
    pub table: Arc<Table>,
    pub asked: Cell<u32>,
    fetched: RefCell<BTreeMap<BlockAddr, Arc<Block>>>,
}

impl Forgetful {
    pub fn new(bytes: Vec<u8>, table: Arc<Table>) -> Forgetful {
        Forgetful { bytes, table, asked: Cell::new(0), fetched: RefCell::default() }
    }

    pub fn fetch(&self, addr: BlockAddr) {
        assert_eq!(addr.sst, self.table.descriptor().id);
        let block = Arc::new(block(&self.bytes, &self.table, addr.block).unwrap());
        self.asked.set(self.asked.get() + 1);
        let mut fetched = self.fetched.borrow_mut();
        fetched.clear();
        fetched.insert(addr, block);
    }
}

impl BlockSource for Forgetful {
    fn block(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        self.fetched.borrow().get(&addr).cloned()
    }
}

/// Drives one move to its end; a cursor must be pending in between.
pub fn drive(
    cursor: &mut TableCursor<&Forgetful>,
    source: &Forgetful,
    mut step: impl FnMut(&mut TableCursor<&Forgetful>) -> Result<Step>,
) -> Option<Owned> {
    // A move touches at most two blocks.
    for _ in 0..3 {
        match step(cursor).unwrap() {
            Step::Ready => return Some(Owned::of(&cursor.entry().unwrap())),
            Step::End => {
                assert!(cursor.entry().is_none());
                return None;
            }
            Step::NeedBlock(addr) => {
                assert!(cursor.entry().is_none(), "a pending cursor stands nowhere");
                source.fetch(addr);
            }
        }
    }
    panic!("a move does not end");
}
