//! The versions of one key, newest first, in one pass; and folded operands of the key.
//!
//! ```text
//! newest record -> older -> older -> … -> older      one link a version
//!        |___________________|                       a fold: these operands as one
//! ```
//! The first read of a key with many merge operands walks all of them. It stores the folded operand
//! here ([`Versions::note_fold`]), so that the next read walks only newer operands.

use crate::folds::OperandFold;
use crate::log::NONE;
use crate::table::{MemEntry, Memtable};
use siltstone_base::{Entry, Seq};

impl Memtable {
    /// The versions of `key` with a sequence number of at most `seq`, newest first; `hash` as for
    /// [`Memtable::get_hashed`]. All of them are read in one pass.
    #[must_use]
    pub fn versions<'m>(&'m self, key: &'m [u8], hash: u64, seq: Seq) -> Versions<'m> {
        Versions { memtable: self, key, next: NextVersion::At(self.newest_record(key, hash, seq)) }
    }
}

/// The versions of one key at or below a sequence number, from the newest on.
pub struct Versions<'m> {
    memtable: &'m Memtable,
    key: &'m [u8],
    next: NextVersion,
}

/// The next version. Most look-ups end at the newest one and never ask for the one before it.
#[derive(Clone, Copy)]
enum NextVersion {
    /// This record, or [`NONE`].
    At(u32),
    /// The one before this record.
    Before(u32),
}

impl<'m> Versions<'m> {
    /// The stored fold of the key's operands, if all of them are above `above`.
    #[must_use]
    pub fn kept_fold(&self, above: Seq) -> Option<OperandFold> {
        let fold = self.memtable.folds().of(self.key)?;
        (self.memtable.log().record(fold.oldest()).seq() > above).then_some(fold)
    }

    /// Continues after the operands of `fold`; returns the oldest of them.
    pub fn skip_fold(&mut self, fold: &OperandFold) -> MemVersion<'m> {
        self.next = NextVersion::Before(fold.oldest());
        MemVersion { memtable: self.memtable, number: fold.oldest() }
    }

    /// Stores `operand`, the fold of all versions from `newest` down to `oldest`. All of them must
    /// be operands without an expiry.
    pub fn note_fold(&self, newest: &MemVersion<'m>, oldest: &MemVersion<'m>, operand: &[u8]) {
        self.memtable.folds().keep(self.key, (newest.number, oldest.number), operand);
    }
}

impl<'m> Iterator for Versions<'m> {
    type Item = MemVersion<'m>;

    fn next(&mut self) -> Option<MemVersion<'m>> {
        let number = match self.next {
            NextVersion::At(number) => number,
            NextVersion::Before(newer) => self.memtable.older(self.key, newer),
        };
        let is_over = number == NONE;
        self.next = if is_over { NextVersion::At(NONE) } else { NextVersion::Before(number) };
        (!is_over).then_some(MemVersion { memtable: self.memtable, number })
    }
}

/// One version of a key.
#[derive(Clone, Copy)]
pub struct MemVersion<'m> {
    memtable: &'m Memtable,
    number: u32,
}

impl<'m> MemVersion<'m> {
    /// The entry.
    #[must_use]
    pub fn entry(&self) -> Entry<'m> {
        self.memtable.log().entry(self.number)
    }

    /// Whether `fold` begins here.
    #[must_use]
    pub fn begins(&self, fold: &OperandFold) -> bool {
        self.number == fold.newest()
    }

    /// The entry, with a share of its buffer.
    #[must_use]
    pub fn shared(&self) -> MemEntry {
        self.memtable.shared(self.memtable.log().record(self.number).place())
    }
}
