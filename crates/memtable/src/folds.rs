//! Operands of one key that a read has folded into one, for the next read.
//!
//! A fold covers only operands of this memtable, which never change, so it never becomes wrong.

use crate::log::NONE;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, PoisonError, RwLock};

/// A longer operand is not kept. Only hundreds of operands are folded, each of at least about 80
/// bytes, so folds stay small compared with the folded operands.
const MAX_FOLD_BYTES: usize = 4096;

/// Consecutive operands of one key, folded into one operand.
#[derive(Clone)]
pub struct OperandFold {
    /// The newest and the oldest operand in it.
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

    /// The record of the newest operand.
    pub(crate) fn newest(&self) -> u32 {
        self.newest
    }

    /// The record of the oldest operand.
    pub(crate) fn oldest(&self) -> u32 {
        self.oldest
    }
}

/// The newest fold of each key that has one.
#[derive(Default)]
pub(crate) struct Folds {
    /// Whether there is any fold; every walk over operands checks this first.
    any: AtomicBool,
    by_key: RwLock<HashMap<Box<[u8]>, OperandFold>>,
}

impl Folds {
    /// The fold of `key`.
    pub(crate) fn of(&self, key: &[u8]) -> Option<OperandFold> {
        if !self.any.load(Acquire) {
            return None;
        }
        // An insertion that panicked is either complete or absent.
        self.by_key.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Keeps `operand` for the records of `key` from `newest` down to `oldest`.
    pub(crate) fn keep(&self, key: &[u8], (newest, oldest): (u32, u32), operand: &[u8]) {
        if operand.len() > MAX_FOLD_BYTES {
            return;
        }
        let fold = OperandFold { newest, oldest, operand: operand.into() };
        let mut folds = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        let before = folds.get(key).map_or(NONE, |before| before.newest);
        // Two readers may each provide a fold: the one that reaches further up is kept.
        if before < fold.newest {
            folds.insert(key.into(), fold);
            self.any.store(true, Release);
        }
    }
}
