//! The versions of a key in one memtable, offered to a look-up in one pass.
//!
//! A key may have hundreds of thousands of operands here: a counter is merged, and merged again.
//! Each pass folds the operands that it walked into one, where the operator can, and leaves that
//! one in the memtable for the next pass. Values and expired operands end a run of such operands:
//! what they mean depends on the reader.

use super::Pin;
use super::value::Value;
use siltstone_base::{Entry, Kind, Result, Seq};
use siltstone_memtable::{MemVersion, Memtable, OperandFold, Versions};
use siltstone_merge::{LookupStep, Resolve};

/// Operands that are walked before they are folded into one. Below it a walk costs less than what
/// keeps the fold.
const RUN: usize = 128;
/// Versions that a look-up offers before it asks for another turn: some 100 µs.
const VERSIONS_AT_ONCE: usize = 2048;

/// How a memtable decides a look-up.
pub(super) enum MemtableAnswer {
    Value(Value),
    Absent,
    Folded,
    /// Its versions are all offered; older ones may lie elsewhere.
    NeedOlder,
    /// It has more versions than a caller can wait for who holds a lock meanwhile.
    NeedTurn,
}

/// Operands next to each other, all of them offered.
struct OperandRun<'m> {
    newest: MemVersion<'m>,
    oldest: MemVersion<'m>,
    /// Operands that the look-up had before it.
    before: usize,
}

/// Offers the versions of `key` at or below `seq`, and above what is in tables, newest first.
///
/// # Errors
/// Those of [`Resolve::push`].
pub(super) fn offer(
    (memtable, pin): (&Memtable, &Pin),
    (key, hash, seq): (&[u8], u64, Seq),
    resolve: &mut Resolve<'_>,
    is_patient: bool,
) -> Result<MemtableAnswer> {
    let flushed = pin.tree.flushed_seq;
    let mut versions = memtable.versions(key, hash, seq);
    let mut run: Option<OperandRun<'_>> = None;
    let mut fold: Option<Option<OperandFold>> = None;
    let mut offered = 0;
    while let Some(version) = versions.next() {
        let entry = version.entry();
        if entry.seq <= flushed {
            break;
        }
        if entry.kind != Kind::Merge || entry.expires_at.is_some() || resolve.is_deleted_below() {
            keep_fold(run.take(), &versions, resolve);
            match resolve.push(entry)? {
                LookupStep::Value => {
                    return Ok(MemtableAnswer::Value(Value::of_memtable(version.shared())));
                }
                LookupStep::Absent => return Ok(MemtableAnswer::Absent),
                LookupStep::Folded => return Ok(MemtableAnswer::Folded),
                LookupStep::NeedOlder => {}
            }
        } else {
            let before = resolve.operands();
            let fold = fold.get_or_insert_with(|| versions.kept_fold(flushed)).as_ref();
            let oldest = match fold.filter(|fold| version.begins(fold)) {
                Some(fold) => {
                    resolve.push(Entry { value: fold.operand(), ..entry })?;
                    versions.skip_fold(fold)
                }
                None => {
                    resolve.push(entry)?;
                    version
                }
            };
            match &mut run {
                Some(run) => run.oldest = oldest,
                None => run = Some(OperandRun { newest: version, oldest, before }),
            }
        }
        offered += 1;
        if offered >= VERSIONS_AT_ONCE && !is_patient {
            return Ok(MemtableAnswer::NeedTurn);
        }
    }
    keep_fold(run, &versions, resolve);
    Ok(MemtableAnswer::NeedOlder)
}

/// Folds the operands of a long run into one, for this look-up and for the next.
fn keep_fold<'m>(run: Option<OperandRun<'m>>, versions: &Versions<'m>, resolve: &mut Resolve<'_>) {
    let Some(run) = run.filter(|run| resolve.operands() - run.before >= RUN) else { return };
    if let Some(operand) = resolve.fold_older_operands(run.before) {
        versions.note_fold(&run.newest, &run.oldest, operand);
    }
}
