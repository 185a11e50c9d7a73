//! Splitting a key range into parts of approximately equal size.

use bytes::Bytes;
use siltstone_base::SstDescriptor;
use std::collections::BTreeMap;

/// A key, and the bytes of input from it to the next anchor. The index of a table has one per
/// block; one in a few hundred is enough.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Anchor {
    /// The key.
    pub key: Bytes,
    /// Bytes of input up to the next anchor, of all tables together.
    pub bytes: u64,
}

impl Anchor {
    /// Anchors from the bounds of tables: all bytes of a table count at its first visible key.
    #[must_use]
    pub fn of_tables(tables: &[SstDescriptor]) -> Vec<Anchor> {
        Anchor::sum(
            tables.iter().map(|table| Anchor {
                key: table.first_visible().clone(),
                bytes: table.object_bytes,
            }),
        )
    }

    /// The anchors of several tables as one ascending list, each key once.
    #[must_use]
    pub fn sum(anchors: impl IntoIterator<Item = Anchor>) -> Vec<Anchor> {
        let mut by_key: BTreeMap<Bytes, u64> = BTreeMap::new();
        for anchor in anchors {
            let bytes = by_key.entry(anchor.key).or_default();
            *bytes = bytes.saturating_add(anchor.bytes);
        }
        by_key.into_iter().map(|(key, bytes)| Anchor { key, bytes }).collect()
    }
}

/// The keys at which to split, ascending and each strictly above the first anchor: at most `parts`
/// parts, and no part except the last has less than `least_bytes`.
#[must_use]
pub fn split_points(anchors: &[Anchor], parts: usize, least_bytes: u64) -> Vec<Bytes> {
    let total: u64 = anchors.iter().fold(0, |sum, anchor| sum.saturating_add(anchor.bytes));
    let wanted = total.div_ceil(parts.max(1) as u64).max(least_bytes).max(1);
    let mut points = Vec::new();
    let (mut part, mut left) = (0u64, total);
    for anchor in anchors {
        // The rest must also be large enough for a part.
        if part >= wanted && left >= least_bytes && points.len() + 1 < parts {
            points.push(anchor.key.clone());
            part = 0;
        }
        part = part.saturating_add(anchor.bytes);
        left = left.saturating_sub(anchor.bytes);
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn anchors(sizes: &[u64]) -> Vec<Anchor> {
        let anchor = |(at, bytes): (usize, &u64)| Anchor {
            key: Bytes::copy_from_slice(&(at as u32).to_be_bytes()),
            bytes: *bytes,
        };
        sizes.iter().enumerate().map(anchor).collect()
    }

    /// The bytes of each part.
    fn parts(anchors: &[Anchor], points: &[Bytes]) -> Vec<u64> {
        let mut sums = vec![0; points.len() + 1];
        for anchor in anchors {
            sums[points.partition_point(|point| *point <= anchor.key)] += anchor.bytes;
        }
        sums
    }

    #[test]
    fn even_anchors_give_even_parts() {
        let anchors = anchors(&[10; 100]);
        assert_eq!(parts(&anchors, &split_points(&anchors, 4, 1)), vec![250; 4]);
        assert!(split_points(&anchors, 1, 1).is_empty());
        assert!(split_points(&anchors, 4, 600).is_empty());
        assert!(split_points(&[], 4, 1).is_empty());
    }

    #[test]
    fn anchors_of_several_tables_add_up() {
        let both = Anchor::sum([anchors(&[1, 2]), anchors(&[4, 8, 16])].concat());
        let sums: Vec<u64> = both.iter().map(|anchor| anchor.bytes).collect();
        assert_eq!(sums, vec![5, 10, 16]);
    }

    proptest! {
        /// No more parts than asked for, none too small, none larger than its share by more than
        /// one anchor.
        #[test]
        fn parts_are_bounded(
            sizes in prop::collection::vec(0u64..100, 0..60),
            wanted in 1usize..9,
            least in 0u64..300,
        ) {
            let anchors = anchors(&sizes);
            let points = split_points(&anchors, wanted, least);
            prop_assert!(points.is_sorted_by(|left, right| left < right));
            let parts = parts(&anchors, &points);
            prop_assert!(parts.len() <= wanted);
            let total: u64 = sizes.iter().sum();
            let share = total.div_ceil(wanted as u64).max(least).max(1);
            prop_assert!(parts.len() == 1 || parts.iter().all(|part| *part >= least));
            prop_assert!(parts.iter().rev().skip(1).all(|part| *part < share + 100));
        }
    }
}
