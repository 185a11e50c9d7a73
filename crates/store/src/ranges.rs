//! Joins adjacent byte ranges into fewer requests, and splits the answers again. Pure.

use crate::span;
use bytes::Bytes;
use siltstone_base::{Error, Result};
use std::ops::Range;

/// Ranges that one request fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The range to request: from the start of the first member to the furthest end.
    pub range: Range<u64>,
    /// Indexes of the given ranges that it covers.
    pub members: Range<usize>,
}

impl Group {
    /// The bytes of one member, a slice of `fetched`, the bytes of [`Group::range`], without a
    /// copy.
    ///
    /// # Errors
    /// Corruption if `fetched` is too short.
    pub fn slice(&self, fetched: &Bytes, member: &Range<u64>) -> Result<Bytes> {
        let start = member.start.checked_sub(self.range.start);
        let end = member.end.checked_sub(self.range.start);
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= fetched.len() as u64 => {
                Ok(fetched.slice(start as usize..end as usize))
            }
            _ => Err(Error::corruption("a read returned fewer bytes than requested")
                .with("range", span(member))
                .with("bytes", fetched.len())),
        }
    }
}

/// Groups `ranges`, which are sorted by their starts. A range joins the previous group if at most
/// `gap` unwanted bytes lie in between. Overlapping ranges join. A range that begins before its
/// group (out of order) begins a group of its own.
#[must_use]
pub fn coalesce(ranges: &[Range<u64>], gap: u64) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (position, range) in ranges.iter().enumerate() {
        if let Some(group) = groups.last_mut()
            && range.start >= group.range.start
            && range.start <= group.range.end.saturating_add(gap)
        {
            group.range.end = group.range.end.max(range.end);
            group.members.end = position + 1;
            continue;
        }
        groups.push(Group { range: range.clone(), members: position..position + 1 });
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(range: Range<u64>, members: Range<usize>) -> Group {
        Group { range, members }
    }

    #[test]
    fn neighbours_join_up_to_the_gap() {
        let ranges = [0..10, 10..20, 25..30, 36..40];
        assert_eq!(coalesce(&ranges, 5), [group(0..30, 0..3), group(36..40, 3..4)]);
        assert_eq!(coalesce(&ranges, 6), [group(0..40, 0..4)]);
        assert_eq!(coalesce(&ranges, 0).len(), 3);
        assert!(coalesce(&[], 5).is_empty());
    }

    #[test]
    fn a_contained_range_does_not_shrink_its_group() {
        let ranges = [0..100, 10..20, 100..110];
        assert_eq!(coalesce(&ranges, 0), [group(0..110, 0..3)]);
    }

    #[test]
    fn a_range_out_of_order_stands_alone() {
        let ranges = [50..60, 0..10, 10..20];
        assert_eq!(coalesce(&ranges, 100), [group(50..60, 0..1), group(0..20, 1..3)]);
    }

    #[test]
    fn the_end_of_numbers_does_not_overflow() {
        let ranges = [0..u64::MAX, u64::MAX - 1..u64::MAX];
        assert_eq!(coalesce(&ranges, u64::MAX).len(), 1);
    }

    #[test]
    fn every_member_is_cut_out_whole_or_refused() {
        let object = Bytes::from((0u8..=255).collect::<Vec<_>>());
        let ranges = [3..9, 12..20, 200..256];
        for group in coalesce(&ranges, 4) {
            let fetched = object.slice(group.range.start as usize..group.range.end as usize);
            let short = fetched.slice(..fetched.len() - 1);
            for member in &ranges[group.members.clone()] {
                let wanted = object.slice(member.start as usize..member.end as usize);
                assert_eq!(group.slice(&fetched, member).unwrap(), wanted);
            }
            let last = &ranges[group.members.end - 1];
            assert!(group.slice(&short, last).is_err());
            assert!(group.slice(&fetched, &(0..2)).is_err());
        }
    }
}
