//! The versions of one key, newest first, in one pass; and operands of it that were folded before.
//!
//! ```text
//! newest record -> older -> older -> … -> older      one link a version
//!        |___________________|                       a fold: these operands as one
//! ```
//! A read of a key with many merge operands walks all of them once. It then leaves the folded
//! operand here ([`Versions::note_fold`]), so that the next read walks only what came since. A fold
//! covers operands of this memtable alone, which never change, so it never becomes wrong.

use crate::log::NONE;
use crate::table::{MemEntry, Memtable};
use siltstone_base::{Entry, Seq};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, PoisonError, RwLock};

/// A longer operand is not kept: what folds take stays a small part of what they fold, since only
/// hundreds of operands are folded, of some 80 bytes each at least.
const MAX_FOLD_BYTES: usize = 4096;

/// Operands of one key, next to each other, as one operand.
#[derive(Clone)]
pub struct OperandFold {
    /// The newest and the oldest operand of it.
    newest: u32,
    oldest: u32,
    operand: Arc<[u8]>,
}

impl OperandFold {
    /// The one operand.
    #[must_use]
    pub fn operand(&self) -> &[u8] {
        &self.operand
    }

    /// Whether it begins at `version`.
    #[must_use]
    pub fn begins_at(&self, version: &MemVersion<'_>) -> bool {
        self.newest == version.number
    }
}

/// The newest fold of each key that has one.
#[derive(Default)]
pub(crate) struct Folds {
    /// Whether there is any: what every walk over operands asks first.
    any: AtomicBool,
    by_key: RwLock<HashMap<Box<[u8]>, OperandFold>>,
}

impl Folds {
    fn of(&self, key: &[u8]) -> Option<OperandFold> {
        if !self.any.load(Acquire) {
            return None;
        }
        // Whole at every moment: an insertion that panicked is in or not.
        self.by_key.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn keep(&self, key: &[u8], fold: OperandFold) {
        let mut folds = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        let before = folds.get(key).map_or(NONE, |before| before.newest);
        // Two readers may come with folds of their own: the one that goes further up stays.
        if before < fold.newest {
            folds.insert(key.into(), fold);
            self.any.store(true, Release);
        }
    }
}

/// The versions of one key at or below a sequence number, from the newest on.
pub struct Versions<'m> {
    memtable: &'m Memtable,
    key: &'m [u8],
    next: u32,
}

impl<'m> Versions<'m> {
    pub(crate) fn new(memtable: &'m Memtable, key: &'m [u8], next: u32) -> Self {
        Versions { memtable, key, next }
    }

    /// What operands of the key were folded into before, where all of them are above `above`.
    #[must_use]
    pub fn kept_fold(&self, above: Seq) -> Option<OperandFold> {
        let fold = self.memtable.folds().of(self.key)?;
        (self.memtable.log().record(fold.oldest).seq() > above).then_some(fold)
    }

    /// Goes on behind the operands of `fold`: the oldest of them.
    pub fn skip_fold(&mut self, fold: &OperandFold) -> MemVersion<'m> {
        self.next = self.memtable.older(self.key, fold.oldest);
        MemVersion { memtable: self.memtable, number: fold.oldest }
    }

    /// Keeps `operand`, which all versions from `newest` down to `oldest` come to. All of them must
    /// be operands without an expiry.
    pub fn note_fold(&self, newest: &MemVersion<'m>, oldest: &MemVersion<'m>, operand: &[u8]) {
        if operand.len() > MAX_FOLD_BYTES {
            return;
        }
        let (newest, oldest) = (newest.number, oldest.number);
        let fold = OperandFold { newest, oldest, operand: operand.into() };
        self.memtable.folds().keep(self.key, fold);
    }
}

impl<'m> Iterator for Versions<'m> {
    type Item = MemVersion<'m>;

    fn next(&mut self) -> Option<MemVersion<'m>> {
        if self.next == NONE {
            return None;
        }
        let version = MemVersion { memtable: self.memtable, number: self.next };
        self.next = self.memtable.older(self.key, self.next);
        Some(version)
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

    /// The entry with a share of its buffer.
    #[must_use]
    pub fn shared(&self) -> MemEntry {
        self.memtable.shared(self.memtable.log().record(self.number).place())
    }
}
