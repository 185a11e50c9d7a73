//! Range deletes without an end (RFC 0026). An entry ends before a key, and there is no key after
//! the greatest possible one. So a batch encodes such a deletion as two operations, which are exact
//! for every possible key; code that knows the greatest existing key uses a single one.

use crate::batch::{Batch, BatchOp, BatchOps};
use crate::entry::{Kind, key_after};
use crate::error::Result;
use crate::limits::MAX_KEY_BYTES;

/// The smallest key.
pub const LEAST_KEY: &[u8] = &[0];
/// The greatest key.
pub static GREATEST_KEY: [u8; MAX_KEY_BYTES] = [u8::MAX; MAX_KEY_BYTES];

impl Batch {
    /// Deletes every key from `start` on. It counts as two operations of together 128 KiB, which
    /// [`Batch::ended`] shortens before they are written.
    ///
    /// # Errors
    /// Invalid if `start` is not a valid key.
    pub fn delete_from(&mut self, start: &[u8]) -> Result<()> {
        if start != GREATEST_KEY {
            self.delete_range(start, &GREATEST_KEY)?;
        }
        self.open_ends += 1;
        self.delete(&GREATEST_KEY)
    }

    /// Whether [`Batch::ended`] may shorten it.
    #[must_use]
    pub fn has_open_ends(&self) -> bool {
        self.open_ends > 0
    }

    /// The batch with the same effect if no key written before it is above `greatest` (`None`:
    /// nothing was written). A range to the last key then ends directly after the greatest key, so
    /// the bounds in a table end there too, and no key of 64 KiB is stored.
    ///
    /// # Errors
    /// None for a batch; Corruption for other bytes.
    pub fn ended(&self, greatest: Option<&[u8]>) -> Result<Batch> {
        self.ended_at(greatest.map(|key| (key, true)))
    }

    /// As [`Batch::ended`], if the written keys reach up to a key, including it (`true`) or not.
    ///
    /// # Errors
    /// As [`Batch::ended`].
    pub fn ended_at(&self, greatest: Option<(&[u8], bool)>) -> Result<Batch> {
        let mut ended = Batch::with_capacity(self.as_bytes().len());
        let mut greatest = greatest.map(|(key, included)| (key.to_vec(), included));
        let mut ops = BatchOps::new(self.as_bytes()).peekable();
        while let Some(op) = ops.next() {
            let op = op?;
            if goes_on(&op)
                && ops.next_if(|next| matches!(next, Ok(next) if is_last(next))).is_some()
            {
                // There is nothing to delete above the greatest key.
                match &greatest {
                    Some((key, false)) if op.key < key.as_slice() => {
                        ended.delete_range(op.key, key)?;
                    }
                    Some((key, true)) if op.key <= key.as_slice() => match key.len() {
                        MAX_KEY_BYTES => ended.delete_from(op.key)?,
                        _ => ended.delete_range(op.key, &key_after(key))?,
                    },
                    _ => {}
                }
                continue;
            }
            let is_above = |(key, included): &(Vec<u8>, bool)| {
                key.as_slice() < op.key || (!included && key == op.key)
            };
            if op.kind != Kind::RangeDelete && greatest.as_ref().is_none_or(is_above) {
                greatest = Some((op.key.to_vec(), true));
            }
            ended.push(op.kind, op.key, op.value, op.expires_at)?;
        }
        Ok(ended)
    }
}

/// Whether it ends before the greatest key.
fn goes_on(op: &BatchOp<'_>) -> bool {
    op.kind == Kind::RangeDelete && op.value == GREATEST_KEY
}

/// Whether it deletes the greatest key.
fn is_last(op: &BatchOp<'_>) -> bool {
    op.kind == Kind::Delete && op.key == GREATEST_KEY
}

#[cfg(test)]
mod tests {
    use super::*;

    type Said = (Kind, Vec<u8>, Vec<u8>);

    fn said(batch: &Batch) -> Vec<Said> {
        let ops = BatchOps::new(batch.as_bytes()).map(Result::unwrap);
        ops.map(|op| (op.kind, op.key.to_vec(), op.value.to_vec())).collect()
    }

    fn whole(start: &[u8]) -> [Said; 2] {
        [
            (Kind::RangeDelete, start.to_vec(), GREATEST_KEY.to_vec()),
            (Kind::Delete, GREATEST_KEY.to_vec(), Vec::new()),
        ]
    }

    #[test]
    fn it_is_said_for_every_key_there_can_be() {
        let mut batch = Batch::new();
        batch.delete_from(b"m").unwrap();
        assert_eq!(said(&batch), whole(b"m"));
        assert!(batch.has_open_ends());
        assert!(batch.delete_from(b"").is_err());
        assert!(batch.delete_from(&[0; MAX_KEY_BYTES + 1]).is_err());
        assert_eq!(batch.ops(), 2);
        batch.clear();
        assert!(!batch.has_open_ends());
        batch.delete_from(&GREATEST_KEY).unwrap();
        assert_eq!(said(&batch), whole(b"m")[1..]);
        assert_eq!(said(&batch.ended(Some(b"z")).unwrap()), whole(b"m")[1..]);
    }

    #[test]
    fn it_ends_right_behind_the_greatest_key() {
        let mut batch = Batch::new();
        batch.delete_from(b"m").unwrap();
        let to = |end: &[u8]| vec![(Kind::RangeDelete, b"m".to_vec(), end.to_vec())];
        let ended = |greatest| said(&batch.ended(greatest).unwrap());
        assert_eq!(ended(Some(b"q")), to(b"q\0"));
        assert_eq!(ended(Some(b"m")), to(b"m\0"));
        assert_eq!(ended(Some(b"l\xff")), []);
        assert_eq!(ended(None), []);
        // No key is between a key of maximum length and the end that would follow it.
        let long = vec![b'm'; MAX_KEY_BYTES];
        assert_eq!(ended(Some(&long)), whole(b"m"));
        assert_eq!(ended(Some(&GREATEST_KEY)), whole(b"m"));
        assert_eq!(ended(Some(&long[1..])), to(&[&long[1..], &[0]].concat()));
    }

    /// The end of a visible range is not a key of the database: it stays unchanged.
    #[test]
    fn it_ends_with_what_is_visible() {
        let mut batch = Batch::new();
        batch.delete_from(b"m").unwrap();
        let to = |end: &[u8]| vec![(Kind::RangeDelete, b"m".to_vec(), end.to_vec())];
        let ended = |end: &'static [u8]| said(&batch.ended_at(Some((end, false))).unwrap());
        assert_eq!(ended(b"q"), to(b"q"));
        assert_eq!(ended(b"m"), []);
        batch.clear();
        batch.put(b"q", b"1", None).unwrap();
        batch.delete_from(b"m").unwrap();
        let ended = said(&batch.ended_at(Some((b"q", false))).unwrap());
        assert_eq!(ended[1..], to(b"q\0"));
    }

    #[test]
    fn earlier_writes_of_the_batch_count_and_later_ones_stay() {
        let mut batch = Batch::new();
        batch.put(b"x", b"1", None).unwrap();
        batch.delete_from(b"m").unwrap();
        batch.merge(b"z", b"2", None).unwrap();
        batch.delete_from(b"n").unwrap();
        let range = |start: &[u8], end: &[u8]| (Kind::RangeDelete, start.to_vec(), end.to_vec());
        assert_eq!(
            said(&batch.ended(Some(b"b")).unwrap()),
            [
                (Kind::Put, b"x".to_vec(), b"1".to_vec()),
                range(b"m", b"x\0"),
                (Kind::Merge, b"z".to_vec(), b"2".to_vec()),
                range(b"n", b"z\0"),
            ]
        );
        assert_eq!(batch.ended(Some(b"b")).unwrap().operands(), 1);
    }
}
