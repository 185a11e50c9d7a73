//! The reference: an ordered map that remembers every version. Slow, short, and obviously correct.

use siltstone_base::{BatchOps, Kind, MergeOperator, Result, Seq, UnixMillis};
use std::collections::BTreeMap;
use std::ops::Bound;

/// One write to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    seq: Seq,
    kind: Kind,
    expires_at: Option<UnixMillis>,
    value: Vec<u8>,
}

/// Every version of every key, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    keys: BTreeMap<Vec<u8>, Vec<Version>>,
    last: Seq,
}

/// The view of a model: everything up to a number, at a time, folded by an operator.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The newest visible write.
    pub seq: Seq,
    /// Entries that have expired by then are invisible.
    pub now: UnixMillis,
    /// For keys that have operands.
    pub operator: Option<&'a dyn MergeOperator>,
}

impl View<'static> {
    /// Everything up to `seq`, nothing expired, no operator.
    #[must_use]
    pub fn at(seq: Seq) -> Self {
        View { seq, now: UnixMillis(0), operator: None }
    }
}

impl Model {
    /// Applies an encoded batch whose first operation has number `first`. Returns the last number.
    ///
    /// # Errors
    /// Corruption if the bytes are not a batch.
    pub fn apply(&mut self, first: Seq, batch: &[u8]) -> Result<Seq> {
        let mut seq = first;
        for op in BatchOps::new(batch) {
            let op = op?;
            if op.kind == Kind::RangeDelete {
                self.delete_range(op.key, op.value, seq);
                self.last = seq;
                seq = seq.next();
                continue;
            }
            let version =
                Version { seq, kind: op.kind, expires_at: op.expires_at, value: op.value.to_vec() };
            self.keys.entry(op.key.to_vec()).or_default().push(version);
            self.last = seq;
            seq = seq.next();
        }
        Ok(self.last)
    }

    /// As [`Model::apply`], with one number for all operations, as in an ingest job.
    ///
    /// # Errors
    /// Corruption if the bytes are not a batch.
    pub fn apply_at(&mut self, seq: Seq, batch: &[u8]) -> Result<()> {
        for op in BatchOps::new(batch) {
            let op = op?;
            if op.kind == Kind::RangeDelete {
                self.delete_range(op.key, op.value, seq);
                continue;
            }
            let version =
                Version { seq, kind: op.kind, expires_at: op.expires_at, value: op.value.to_vec() };
            self.keys.entry(op.key.to_vec()).or_default().push(version);
        }
        self.last = seq;
        Ok(())
    }

    /// Adds a tombstone for every existing key of the range: other keys have nothing to hide.
    fn delete_range(&mut self, start: &[u8], end: &[u8], seq: Seq) {
        let range = (Bound::Included(start), Bound::Excluded(end));
        for (_, versions) in self.keys.range_mut::<[u8], _>(range) {
            let value = Vec::new();
            versions.push(Version { seq, kind: Kind::Delete, expires_at: None, value });
        }
    }

    /// The newest number.
    #[must_use]
    pub fn last(&self) -> Seq {
        self.last
    }

    /// Removes every write above `seq`, as a crash may do with writes that are not durable.
    pub fn keep_prefix(&mut self, seq: Seq) {
        for versions in self.keys.values_mut() {
            versions.retain(|version| version.seq <= seq);
        }
        self.last = self.last.min(seq);
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Errors of the operator.
    pub fn get(&self, key: &[u8], view: View<'_>) -> Result<Option<Vec<u8>>> {
        match self.keys.get(key) {
            Some(versions) => value_of(key, versions, view),
            None => Ok(None),
        }
    }

    /// Every key from `start` (included) to `end` (not included) that has a value, in order.
    ///
    /// # Errors
    /// Errors of the operator.
    pub fn scan(
        &self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        reverse: bool,
        view: View<'_>,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        if let (Some(start), Some(end)) = (start, end)
            && start >= end
        {
            return Ok(vec![]);
        }
        let start = start.map_or(Bound::Unbounded, Bound::Included);
        let end = end.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rows = Vec::new();
        for (key, versions) in self.keys.range::<[u8], _>((start, end)) {
            if let Some(value) = value_of(key, versions, view)? {
                rows.push((key.clone(), value));
            }
        }
        if reverse {
            rows.reverse();
        }
        Ok(rows)
    }
}

/// Newest first: operands are collected until a value or a tombstone is found. Expired entries
/// count as tombstones.
fn value_of(key: &[u8], versions: &[Version], view: View<'_>) -> Result<Option<Vec<u8>>> {
    let mut operands: Vec<&[u8]> = Vec::new();
    let mut base = None;
    for version in versions.iter().rev().filter(|version| version.seq <= view.seq) {
        let expired = version.expires_at.is_some_and(|at| at <= view.now);
        match version.kind {
            Kind::Merge if !expired => operands.push(&version.value),
            Kind::Put if !expired => {
                base = Some(version.value.as_slice());
                break;
            }
            _ => break,
        }
    }
    operands.reverse();
    match view.operator {
        Some(operator) if !operands.is_empty() => operator.fold(key, base, &operands).map(Some),
        _ => Ok(base.map(<[u8]>::to_vec)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_base::Batch;

    struct Append;

    impl MergeOperator for Append {
        fn name(&self) -> &str {
            "append"
        }
        fn fold(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
            Ok([base.unwrap_or(b"-"), &operands.concat()].concat())
        }
    }

    fn history() -> Model {
        let mut model = Model::default();
        let mut batch = Batch::new();
        batch.put(b"a", b"1", None).unwrap();
        batch.put(b"b", b"2", Some(UnixMillis(50))).unwrap();
        assert_eq!(model.apply(Seq(1), batch.as_bytes()).unwrap(), Seq(2));
        let mut batch = Batch::new();
        batch.delete(b"a").unwrap();
        batch.merge(b"c", b"x", None).unwrap();
        batch.merge(b"c", b"y", None).unwrap();
        batch.merge(b"b", b"z", None).unwrap();
        assert_eq!(model.apply(Seq(3), batch.as_bytes()).unwrap(), Seq(6));
        model
    }

    #[test]
    fn reads_at_every_number() {
        let model = history();
        let view = |seq, now| View { seq: Seq(seq), now: UnixMillis(now), operator: Some(&Append) };
        assert_eq!(model.get(b"a", view(0, 0)).unwrap(), None);
        assert_eq!(model.get(b"a", view(2, 0)).unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(model.get(b"a", view(3, 0)).unwrap(), None);
        assert_eq!(model.get(b"c", view(4, 0)).unwrap().as_deref(), Some(&b"-x"[..]));
        assert_eq!(model.get(b"b", view(6, 49)).unwrap().as_deref(), Some(&b"2z"[..]));
        assert_eq!(model.get(b"b", view(2, 50)).unwrap(), None);
        // The operand outlives the value below it.
        assert_eq!(model.get(b"b", view(6, 50)).unwrap().as_deref(), Some(&b"-z"[..]));
    }

    #[test]
    fn scans_in_both_directions_within_bounds() {
        let model = history();
        let keys = |start, end, reverse, seq| {
            let rows = model.scan(start, end, reverse, View::at(Seq(seq))).unwrap();
            rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>().concat()
        };
        assert_eq!(keys(None, None, false, 2), b"ab");
        assert_eq!(keys(None, None, true, 2), b"ba");
        assert_eq!(keys(Some(b"b"), None, false, 2), b"b");
        assert_eq!(keys(None, Some(b"b"), false, 2), b"a");
        assert_eq!(keys(Some(b"b"), Some(b"a"), false, 2), b"");
        assert_eq!(keys(None, None, false, 3), b"b");
    }

    #[test]
    fn a_range_delete_deletes_what_was_there() {
        let mut model = history();
        let mut batch = Batch::new();
        batch.delete_range(b"b", b"c").unwrap();
        batch.merge(b"b", b"w", None).unwrap();
        assert_eq!(model.apply(Seq(7), batch.as_bytes()).unwrap(), Seq(8));
        let view = |seq| View { seq: Seq(seq), now: UnixMillis(0), operator: Some(&Append) };
        assert_eq!(model.get(b"b", view(6)).unwrap().as_deref(), Some(&b"2z"[..]));
        assert_eq!(model.get(b"b", view(7)).unwrap(), None);
        assert_eq!(model.get(b"b", view(8)).unwrap().as_deref(), Some(&b"-w"[..]));
        assert_eq!(model.get(b"c", view(8)).unwrap().as_deref(), Some(&b"-xy"[..]));
    }

    #[test]
    fn a_crash_keeps_a_prefix() {
        let mut model = history();
        model.keep_prefix(Seq(2));
        assert_eq!(model.last(), Seq(2));
        assert_eq!(model.get(b"a", View::at(Seq::MAX)).unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(model.get(b"c", View::at(Seq::MAX)).unwrap(), None);
    }
}
