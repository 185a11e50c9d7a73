//! Key spans of tables, and whether they overlap.
//!
//! The span of a table is the keys from its first to its last key, limited to its visible range.
//! Only these bounds are known without reading the table: if two spans overlap, the tables may
//! share a key; if they do not overlap, the tables share no key.

use crate::layer::Layer;
use crate::state::Manifest;
use bytes::Bytes;
use siltstone_base::entry::key_after;
use siltstone_base::{Seq, SstDescriptor, SstId, TablePart};
use std::collections::{BTreeMap, HashSet};

/// The end of a span. `(key, true)` includes the key and `(key, false)` excludes it, so that ends
/// are ordered as tuples.
type End = (Bytes, bool);

/// The keys from `first` to an end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    first: Bytes,
    end: End,
}

impl Span {
    /// The visible keys of a table, as bounded by its descriptor. [`Span::is_empty`] if its visible
    /// range hides all of them.
    #[must_use]
    pub fn of(table: &SstDescriptor) -> Span {
        let first = table.first_visible().clone();
        let last = (table.last_key.clone(), true);
        let end = match &table.visible_end {
            Some(end) => last.min((end.clone(), false)),
            None => last,
        };
        Span { first, end }
    }

    /// From `first` to `last`, both included.
    #[must_use]
    pub fn between(first: Bytes, last: Bytes) -> Span {
        Span { first, end: (last, true) }
    }

    /// The part of the span in `[start, end)` (`None`: no bound); `None` if it is empty.
    #[must_use]
    pub fn within(&self, start: Option<&Bytes>, end: Option<&Bytes>) -> Option<Span> {
        let first = start.map_or(&self.first, |start| start.max(&self.first)).clone();
        let own = self.end.clone();
        let end = end.map_or(own.clone(), |end| own.min((end.clone(), false)));
        let within = Span { first, end };
        (!within.is_empty()).then_some(within)
    }

    /// Whether the span contains no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.reaches(&self.first)
    }

    /// The smallest key.
    #[must_use]
    pub fn first(&self) -> &Bytes {
        &self.first
    }

    /// The key at which the span ends, included or excluded.
    #[must_use]
    pub fn end(&self) -> &Bytes {
        &self.end.0
    }

    /// Whether every key of this span is below every key of `other`.
    #[must_use]
    pub fn is_before(&self, other: &Span) -> bool {
        !self.reaches(&other.first)
    }

    /// The first key after the span.
    pub(crate) fn behind(&self) -> Bytes {
        let (key, included) = &self.end;
        if !included {
            return key.clone();
        }
        key_after(key).into()
    }

    /// Whether the span contains a key at or above `key`.
    fn reaches(&self, key: &Bytes) -> bool {
        *key < self.end.0 || (*key == self.end.0 && self.end.1)
    }

    /// Whether the two spans may share a key.
    #[must_use]
    pub fn meets(&self, other: &Span) -> bool {
        let (left, right) = (self.reaches(&other.first), other.reaches(&self.first));
        left && right && !self.is_empty() && !other.is_empty()
    }

    /// Whether the span contains all of `other`.
    #[must_use]
    pub fn contains(&self, other: &Span) -> bool {
        other.is_empty() || (self.first <= other.first && other.end <= self.end)
    }

    /// Extends the span to `other` and to the keys in between.
    pub fn extend(&mut self, other: &Span) {
        if other.first < self.first {
            self.first = other.first.clone();
        }
        if other.end > self.end {
            self.end = other.end.clone();
        }
    }

    /// The smallest span that contains all of `spans`; `None` if there are none.
    pub fn hull(spans: impl IntoIterator<Item = Span>) -> Option<Span> {
        let mut all = spans.into_iter();
        let mut hull = all.next()?;
        all.for_each(|span| hull.extend(&span));
        Some(hull)
    }
}

/// A union of spans: ascending and disjoint.
#[derive(Clone, Debug, Default)]
pub struct Spans(Vec<Span>);

impl Spans {
    /// The union of the spans of `tables`.
    pub fn of<'a>(tables: impl IntoIterator<Item = &'a SstDescriptor>) -> Spans {
        let mut union = Spans::default();
        union.add(tables);
        union
    }

    /// Adds the spans of `tables`.
    pub fn add<'a>(&mut self, tables: impl IntoIterator<Item = &'a SstDescriptor>) {
        let before = self.0.len();
        self.0.extend(tables.into_iter().map(Span::of).filter(|span| !span.is_empty()));
        if self.0.len() == before {
            return;
        }
        self.0.sort_unstable();
        let mut union: Vec<Span> = Vec::with_capacity(self.0.len());
        for span in self.0.drain(..) {
            match union.last_mut() {
                Some(open) if open.meets(&span) => open.extend(&span),
                _ => union.push(span),
            }
        }
        self.0 = union;
    }

    /// Whether `span` may share a key with one of these spans.
    #[must_use]
    pub fn meets(&self, span: &Span) -> bool {
        let place = self.0.partition_point(|each| !each.reaches(&span.first));
        self.0.get(place).is_some_and(|each| each.meets(span))
    }

    /// Whether `table` may share a key with one of these spans.
    #[must_use]
    pub fn meets_table(&self, table: &SstDescriptor) -> bool {
        self.meets(&Span::of(table))
    }

    /// The spans, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &Span> {
        self.0.iter()
    }
}

/// The newest table that stays, lies between a table of `going` and `destination`, and may share a
/// key with it. The destination itself is included.
///
/// Walks from the newest layer down. At each layer it keeps the union of the tables that leave this
/// layer and the layers above: their rows pass through the layers below.
pub(crate) fn first_passed(
    state: &Manifest,
    going: &HashSet<TablePart>,
    destination: Layer,
) -> Option<(Layer, SstId)> {
    let mut sinking = Spans::default();
    for (layer, tables) in state.layers().filter(|(layer, _)| *layer >= destination) {
        let (go, stay): (Vec<_>, Vec<_>) =
            tables.iter().partition(|table| going.contains(&table.part()));
        if let Some(table) = stay.iter().find(|table| sinking.meets_table(table)) {
            return Some((layer, table.id));
        }
        sinking.add(go);
    }
    None
}

/// Whether the sequence numbers of every layer are above those of older layers wherever the two may
/// share a key. Layers come oldest first, each with disjoint tables; `numbers` returns the smallest
/// and the largest sequence number of a table.
pub(crate) fn layers_descend<'a>(
    layers: impl Iterator<Item = &'a [SstDescriptor]>,
    numbers: fn(&SstDescriptor) -> (Seq, Seq),
) -> bool {
    // Maps the start of a key range to its end and the largest sequence number so far.
    let mut heights: BTreeMap<Bytes, (Bytes, Seq)> = BTreeMap::new();
    for table in layers.flatten() {
        let span = Span::of(table);
        if span.is_empty() {
            continue;
        }
        let (lowest, highest) = numbers(table);
        let (first, end) = (span.first.clone(), span.behind());
        let below = heights.range(..end.clone()).rev();
        let met: Vec<_> = below
            .take_while(|(_, (until, _))| *until > first)
            .map(|(start, (until, height))| (start.clone(), until.clone(), *height))
            .collect();
        for (start, until, height) in met {
            if height >= lowest {
                return false;
            }
            heights.remove(&start);
            if start < first {
                heights.insert(start, (first.clone(), height));
            }
            if until > end {
                heights.insert(end.clone(), (until, height));
            }
        }
        heights.insert(first, (end, highest));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::table;
    use siltstone_base::SstId;

    fn seen(first: &[u8], last: &[u8], visible: [Option<&'static [u8]>; 2]) -> SstDescriptor {
        let [start, end] = visible.map(|key| key.map(Bytes::from_static));
        SstDescriptor {
            visible_start: start,
            visible_end: end,
            ..table(SstId(1), first, last, 1, 1)
        }
    }

    #[test]
    fn ends_are_inclusive_unless_the_visible_range_cuts_them() {
        let left = Span::of(&seen(b"a", b"m", [None, None]));
        let cut = Span::of(&seen(b"a", b"z", [None, Some(b"m")]));
        let right = Span::of(&seen(b"m", b"z", [None, None]));
        assert!(left.meets(&right) && right.meets(&left));
        assert!(!cut.meets(&right) && !right.meets(&cut));
    }

    #[test]
    fn a_table_is_in_a_range_by_its_visible_keys() {
        let whole = Span::between(Bytes::from_static(b"d"), Bytes::from_static(b"m"));
        let keys = [None, Some(b"a"), Some(b"d"), Some(b"g"), Some(b"m"), Some(b"n")];
        let keys = keys.map(|key| key.map(|key: &[u8; 1]| Bytes::from_static(key)));
        for start in &keys {
            for end in &keys {
                let cut = SstDescriptor {
                    visible_start: start.clone(),
                    visible_end: end.clone(),
                    ..table(SstId(1), b"d", b"m", 1, 1)
                };
                let shown = Some(Span::of(&cut)).filter(|span| !span.is_empty());
                assert_eq!(whole.within(start.as_ref(), end.as_ref()), shown);
            }
        }
    }

    #[test]
    fn nothing_visible_meets_nothing() {
        let hidden = Span::of(&seen(b"a", b"c", [Some(b"x"), None]));
        assert!(hidden.is_empty());
        assert!(!hidden.meets(&Span::of(&seen(b"a", b"z", [None, None]))));
        let empty = seen(b"a", b"c", [None, Some(b"a")]);
        assert!(Spans::of([&empty]).0.is_empty());
    }

    #[test]
    fn a_union_meets_what_its_members_meet() {
        let members = [
            seen(b"a", b"c", [None, None]),
            seen(b"c", b"f", [None, None]),
            seen(b"p", b"z", [None, Some(b"r")]),
        ];
        let union = Spans::of(&members);
        assert_eq!(union.0.len(), 2);
        for first in b'a'..=b'z' {
            for last in first..=b'z' {
                let asked = Span::of(&seen(&[first], &[last], [None, None]));
                let expected = members.iter().any(|each| Span::of(each).meets(&asked));
                assert_eq!(union.meets(&asked), expected, "{asked:?}");
            }
        }
    }
}
