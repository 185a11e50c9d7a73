//! Rows of a WAL object back into a memtable; for a writer that opens and for readers that follow.

use siltstone_base::batch::joined;
use siltstone_base::{Error, ObjectName, Result, Seq, WalId};
use siltstone_memtable::Memtable;
use siltstone_sst::wal::{WalObject, WalRecord};

/// Inserts the batches of `body` that end above `flushed`, the last sequence number in tables (rule
/// N4), and answers the last sequence number of them; `None` when there is none. They must go on
/// where what came before ended, at `before`: from object to object as within one.
///
/// They go in as one: their sequence numbers follow each other, and a batch's operations stand side
/// by side, so several batches in a row read as one. One large insertion is sorted at once, where
/// many small ones would each search for their place.
pub(crate) fn insert_rows(
    memtable: &Memtable,
    body: &WalObject,
    flushed: Seq,
    before: Seq,
) -> Result<Option<Seq>> {
    let (mut first, mut last) = (None, None);
    let mut batches = Vec::new();
    for record in body.records() {
        let WalRecord::Batch { first_seq, ops, bytes } = record? else {
            return Err(unknown_record(body.id));
        };
        let end = first_seq.plus(u64::from(ops).saturating_sub(1));
        if end > flushed {
            if first.is_none() && first_seq != before.next() {
                return Err(does_not_follow(body.id, before, first_seq));
            }
            first.get_or_insert(first_seq);
            last = Some(end);
            batches.push(bytes);
        }
    }
    if let Some(first) = first {
        memtable.insert_batch(first, &joined(&batches))?;
    }
    Ok(last)
}

/// Such an object was never written where it stands: repeated, moved, or made by somebody else.
fn does_not_follow(id: WalId, before: Seq, found: Seq) -> Error {
    Error::corruption("the sequence numbers of a WAL object do not follow those before it")
        .with("object", ObjectName::Wal(id))
        .with("expected", before.next())
        .with("found", found)
}

/// A kind of record that a newer version writes; the codec refuses those it does not know.
fn unknown_record(id: WalId) -> Error {
    Error::unsupported("the WAL holds a record that this version can not replay; upgrade")
        .with("wal id", id)
}
