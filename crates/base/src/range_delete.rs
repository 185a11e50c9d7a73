//! Range deletes: a single entry that deletes every key of a range (RFC 0023).

use crate::entry::check_key;
use crate::error::{Error, Result};
use crate::id::Seq;
use bytes::Bytes;

/// Every key of `[start, end)` has no value from `seq` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeDelete {
    /// First key that is deleted.
    pub start: Bytes,
    /// The first key that is not deleted.
    pub end: Bytes,
    /// Position in the history.
    pub seq: Seq,
}

/// Checks the bounds of a range delete.
///
/// # Errors
/// Invalid if `start` or `end` is not a valid key, or `start` is not below `end`.
pub fn check_range(start: &[u8], end: &[u8]) -> Result<()> {
    check_key(start)?;
    check_key(end)?;
    if start < end {
        return Ok(());
    }
    Err(Error::invalid("a range delete needs a start below its end: it deletes [start, end)"))
}

impl RangeDelete {
    /// A range delete with its own bytes.
    #[must_use]
    pub fn new(start: &[u8], end: &[u8], seq: Seq) -> RangeDelete {
        let (start, end) = (Bytes::copy_from_slice(start), Bytes::copy_from_slice(end));
        RangeDelete { start, end, seq }
    }

    /// Whether it deletes `key`.
    #[must_use]
    pub fn covers(&self, key: &[u8]) -> bool {
        self.start.as_ref() <= key && key < self.end.as_ref()
    }

    /// The least nameable key at or above all deleted ones: below an end `x 00` the largest key is
    /// `x`; below other ends there is no largest key, and the result is the end itself.
    #[must_use]
    pub fn last_key(&self) -> Bytes {
        match self.end.split_last() {
            Some((0, rest)) => self.end.slice(..rest.len()),
            _ => self.end.clone(),
        }
    }

    /// The part of it in `[start, end)` (`None`: no bound); `None` if that is empty.
    #[must_use]
    pub fn within(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Option<RangeDelete> {
        let from = match start {
            Some(start) if *self.start < *start => Bytes::copy_from_slice(start),
            _ => self.start.clone(),
        };
        let to = match end {
            Some(end) if *end < *self.end => Bytes::copy_from_slice(end),
            _ => self.end.clone(),
        };
        (from < to).then_some(RangeDelete { start: from, end: to, seq: self.seq })
    }
}

/// Range deletes in the form for searches: disjoint ascending spans, each with the newest range
/// delete over it, and the original list. n range deletes make at most 2n - 1 spans.
///
/// ```text
/// range deletes   7:     [b------f)
///                 5: [a------d)         9: [h--k)
/// spans              [a 5)[b  7 f)         [h 9 k)
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    spans: Vec<RangeDelete>,
    /// Newest first.
    list: Vec<RangeDelete>,
    /// For readers that do not see the newest range deletes.
    index: RangeIndex,
}

impl Cover {
    /// The cover of the range deletes in `list`, in any order.
    #[must_use]
    pub fn of(mut list: Vec<RangeDelete>) -> Cover {
        list.sort_unstable_by(|a, b| b.seq.cmp(&a.seq).then_with(|| a.start.cmp(&b.start)));
        list.dedup();
        let spans = match list.as_slice() {
            [one] => vec![one.clone()],
            list => paint(list),
        };
        let index = RangeIndex::of(&list);
        Cover { spans, list, index }
    }

    /// Whether nothing is deleted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The range deletes, newest first.
    #[must_use]
    pub fn list(&self) -> &[RangeDelete] {
        &self.list
    }

    /// The spans: disjoint, ascending, each with the newest range delete over it.
    #[must_use]
    pub fn spans(&self) -> &[RangeDelete] {
        &self.spans
    }

    /// The part of it in `[start, end)` (`None`: no bound).
    #[must_use]
    pub fn within(self, start: Option<&[u8]>, end: Option<&[u8]>) -> Cover {
        if start.is_none() && end.is_none() {
            return self;
        }
        Cover::of(self.list.iter().filter_map(|one| one.within(start, end)).collect())
    }

    /// Approximate bytes of memory that it uses.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let one =
            |range: &RangeDelete| size_of::<RangeDelete>() + range.start.len() + range.end.len();
        let list = self.list.iter().map(one).sum::<usize>();
        self.spans.len() * size_of::<RangeDelete>() + list + self.index.memory_bytes()
    }

    /// The newest range delete at or below `seq` that deletes `key`; [`Seq::NONE`] for none.
    #[must_use]
    pub fn at(&self, key: &[u8], seq: Seq) -> Seq {
        let span = self.spans.partition_point(|span| span.end.as_ref() <= key);
        let Some(span) = self.spans.get(span).filter(|span| span.covers(key)) else {
            return Seq::NONE;
        };
        if span.seq <= seq {
            return span.seq;
        }
        // A newer range delete is over the one that the reader sees.
        let mut newest = Seq::NONE;
        self.index.holding(&self.list, key, &mut |one| {
            if one.seq <= seq {
                newest = newest.max(one.seq);
            }
        });
        newest
    }
}

/// The spans of `list`, which is ordered newest first: each range delete takes the parts that no
/// newer one has taken.
fn paint(list: &[RangeDelete]) -> Vec<RangeDelete> {
    let mut edges: Vec<&Bytes> = list.iter().flat_map(|one| [&one.start, &one.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    let place = |edge: &Bytes| edges.partition_point(|other| *other < edge);
    // Stretch n is between edges n and n + 1. `next[n]` is where to look for the first free stretch
    // at or after n. Each walk shortens it, so that no stretch is walked over often.
    let mut next: Vec<usize> = (0..=edges.len()).collect();
    let mut painted: Vec<Option<usize>> = vec![None; edges.len()];
    for (by, one) in list.iter().enumerate() {
        let (from, to) = (place(&one.start), place(&one.end));
        let mut at = unpainted(&mut next, from);
        while at < to {
            if let (Some(stretch), Some(beyond)) = (painted.get_mut(at), next.get_mut(at)) {
                *stretch = Some(by);
                *beyond = at + 1;
            }
            at = unpainted(&mut next, at + 1);
        }
    }
    let mut spans: Vec<RangeDelete> = Vec::new();
    let mut before = None;
    for ((stretch, start), end) in painted.iter().zip(&edges).zip(edges.iter().skip(1)) {
        match (stretch, spans.last_mut()) {
            (Some(_), Some(last)) if *stretch == before => last.end = (*end).clone(),
            (Some(by), _) => {
                let seq = list.get(*by).map_or(Seq::NONE, |one| one.seq);
                spans.push(RangeDelete { start: (*start).clone(), end: (*end).clone(), seq });
            }
            (None, _) => {}
        }
        before = *stretch;
    }
    spans
}

/// The first free stretch at or after `from`.
fn unpainted(next: &mut [usize], from: usize) -> usize {
    let beyond = |next: &[usize], at: usize| next.get(at).copied().unwrap_or(at);
    let mut found = from;
    while beyond(next, found) != found {
        found = beyond(next, found);
    }
    let mut at = from;
    while at != found {
        let onward = beyond(next, at);
        if let Some(place) = next.get_mut(at) {
            *place = found;
        }
        at = onward;
    }
    found
}

/// Finds the ranges that contain a key, in time proportional to their number plus a logarithm.
///
/// A static interval tree: the ranges by their start, as a balanced tree in an array, and for each
/// subtree the range in it that ends last (Cormen and others, Introduction to Algorithms, "Interval
/// trees"). A subtree that ends at or below the key is skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RangeIndex {
    /// Positions in the list, by start.
    by_start: Vec<u32>,
    /// For the subtree whose root has the same position: the position in the list of the range that
    /// ends last.
    ends_last: Vec<u32>,
}

impl RangeIndex {
    /// Over `list`, which has fewer than 2^32 ranges.
    fn of(list: &[RangeDelete]) -> RangeIndex {
        let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
        let mut by_start: Vec<u32> = (0..count).collect();
        by_start.sort_by_key(|at| list.get(*at as usize).map(|one| &one.start));
        let mut ends_last = by_start.clone();
        let (low, high) = (0, by_start.len());
        fill(list, &by_start, &mut ends_last, low, high);
        RangeIndex { by_start, ends_last }
    }

    /// Calls `found` with every range of `list`, its original list, that contains `key`.
    fn holding<'l>(
        &self,
        list: &'l [RangeDelete],
        key: &[u8],
        found: &mut impl FnMut(&'l RangeDelete),
    ) {
        self.visit(list, key, (0, self.by_start.len()), found);
    }

    fn visit<'l>(
        &self,
        list: &'l [RangeDelete],
        key: &[u8],
        (low, high): (usize, usize),
        found: &mut impl FnMut(&'l RangeDelete),
    ) {
        let middle = low + (high - low) / 2;
        let at = |places: &[u32]| places.get(middle).and_then(|place| list.get(*place as usize));
        let (Some(root), Some(last)) = (at(&self.by_start), at(&self.ends_last)) else { return };
        if low == high || last.end.as_ref() <= key {
            return;
        }
        self.visit(list, key, (low, middle), found);
        if root.start.as_ref() <= key {
            if root.covers(key) {
                found(root);
            }
            self.visit(list, key, (middle + 1, high), found);
        }
    }

    /// Bytes of memory that it uses.
    fn memory_bytes(&self) -> usize {
        (self.by_start.len() + self.ends_last.len()) * size_of::<u32>()
    }
}

/// Fills `ends_last` for the subtree of `low..high`; returns the subtree's own entry.
fn fill(
    list: &[RangeDelete],
    by_start: &[u32],
    ends_last: &mut [u32],
    low: usize,
    high: usize,
) -> Option<u32> {
    if low >= high {
        return None;
    }
    let middle = low + (high - low) / 2;
    let own = by_start.get(middle).copied();
    let left = fill(list, by_start, ends_last, low, middle);
    let right = fill(list, by_start, ends_last, middle + 1, high);
    let end = |at: &u32| list.get(*at as usize).map(|one| &one.end);
    let last = [own, left, right].into_iter().flatten().max_by_key(end);
    if let (Some(last), Some(place)) = (last, ends_last.get_mut(middle)) {
        *place = last;
    }
    last
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test stops at what it did not expect")]
mod tests {
    use super::*;

    fn range(start: &[u8], end: &[u8], seq: u64) -> RangeDelete {
        RangeDelete::new(start, end, Seq(seq))
    }

    #[test]
    fn the_picture_holds() {
        let cover =
            Cover::of(vec![range(b"a", b"d", 5), range(b"h", b"k", 9), range(b"b", b"f", 7)]);
        let spans = [range(b"a", b"b", 5), range(b"b", b"f", 7), range(b"h", b"k", 9)];
        assert_eq!(cover.spans(), spans);
        assert_eq!(cover.at(b"c", Seq::MAX), Seq(7));
        assert_eq!(cover.at(b"c", Seq(6)), Seq(5));
        assert_eq!(cover.at(b"c", Seq(4)), Seq::NONE);
        assert_eq!(cover.at(b"f", Seq::MAX), Seq::NONE);
        assert_eq!(cover.at(b"k", Seq::MAX), Seq::NONE);
    }

    /// Pseudo-random numbers, the same in each run.
    fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        }
    }

    #[test]
    fn any_cover_is_the_plain_rule() {
        for seed in 0..300 {
            let mut next = numbers(seed);
            let count = next(12);
            let list: Vec<_> = (1..=count)
                .map(|seq| {
                    let start = next(20) as u8 + 1;
                    let end = start + 1 + next(9) as u8;
                    range(&[start], &[end], seq)
                })
                .collect();
            let cover = Cover::of(list.clone());
            assert!(cover.spans().len() <= (2 * list.len()).saturating_sub(1));
            assert!(cover.spans().windows(2).all(|pair| pair[0].end <= pair[1].start));
            for key in 0..32u8 {
                for seq in 0..=count + 1 {
                    let covering =
                        list.iter().filter(|one| one.seq <= Seq(seq) && one.covers(&[key]));
                    let newest = covering.map(|one| one.seq).max().unwrap_or(Seq::NONE);
                    assert_eq!(cover.at(&[key], Seq(seq)), newest, "key {key} at {seq}");
                }
            }
        }
    }

    #[test]
    fn bounds_are_checked_and_cut() {
        assert!(check_range(b"a", b"b").is_ok());
        assert!(check_range(b"b", b"b").is_err());
        assert!(check_range(b"c", b"b").is_err());
        assert!(check_range(b"", b"b").is_err());
        let one = range(b"b", b"f", 3);
        assert_eq!(one.within(None, None), Some(one.clone()));
        assert_eq!(one.within(Some(b"c"), Some(b"d")), Some(range(b"c", b"d", 3)));
        assert_eq!(one.within(Some(b"a"), Some(b"z")), Some(one.clone()));
        assert_eq!(one.within(Some(b"f"), None), None);
        assert_eq!(one.within(None, Some(b"b")), None);
    }

    #[test]
    fn the_last_key_is_named_where_there_is_one() {
        assert_eq!(range(b"a", b"c\0", 1).last_key().as_ref(), b"c");
        assert_eq!(range(b"a", b"c", 1).last_key().as_ref(), b"c");
        assert_eq!(range(b"a", b"a\0", 1).last_key().as_ref(), b"a");
    }

    #[test]
    fn every_range_that_holds_a_key_is_found_and_no_other() {
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for count in [0, 1, 2, 3, 7, 64, 100] {
            let list: Vec<RangeDelete> = (0..count)
                .map(|seq| {
                    let start = next(200) as u8;
                    let end = start + 1 + next(50) as u8;
                    RangeDelete::new(&[start], &[end], Seq(seq))
                })
                .collect();
            let index = RangeIndex::of(&list);
            for key in 0..=255u8 {
                let mut found = Vec::new();
                index.holding(&list, &[key], &mut |one| found.push(one.seq));
                found.sort_unstable();
                let all = list.iter().filter(|one| one.covers(&[key])).map(|one| one.seq);
                assert_eq!(found, all.collect::<Vec<_>>());
            }
        }
    }
}
