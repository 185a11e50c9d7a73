//! Rows of a WAL object back into a memtable; for a writer that opens and for readers that follow.

use siltstone_base::batch::joined;
use siltstone_base::{Error, Result, Seq, WalId};
use siltstone_memtable::Memtable;
use siltstone_sst::wal::{WalObject, WalRecord};

/// Inserts the batches of `body` that end above `floor` and answers the last sequence number of
/// them; `None` when there is none.
///
/// They go in as one: their sequence numbers follow each other, and a batch's operations stand side
/// by side, so several batches in a row read as one. One large insertion is sorted at once, where
/// many small ones would each search for their place.
pub(crate) fn insert_rows(
    memtable: &Memtable,
    body: &WalObject,
    floor: Seq,
) -> Result<Option<Seq>> {
    let (mut first, mut last) = (None, None);
    let mut batches = Vec::new();
    for record in body.records() {
        let WalRecord::Batch { first_seq, ops, bytes } = record? else {
            return Err(unknown_record(body.id));
        };
        let end = first_seq.plus(u64::from(ops).saturating_sub(1));
        if end > floor {
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

/// A kind of record that a newer version writes; the codec refuses those it does not know.
fn unknown_record(id: WalId) -> Error {
    Error::unsupported("the WAL holds a record that this version can not replay; upgrade")
        .with("wal id", id)
}
