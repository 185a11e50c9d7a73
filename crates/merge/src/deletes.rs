//! Range deletes in a flush or compaction: the entries that they hide, and which of them are kept.

use siltstone_base::{Cover, RangeDelete, Seq};

/// The range deletes of all inputs, by stripe. A range delete hides older entries in its own stripe
/// only: a reader of an older stripe may still read entries that are older than the stripe.
#[derive(Debug, Default)]
pub(crate) struct Deletes {
    /// By stripe, ascending.
    stripes: Vec<(u64, Cover)>,
}

impl Deletes {
    pub(crate) fn new(all: Vec<RangeDelete>, stripe_of: impl Fn(Seq) -> u64) -> Deletes {
        let mut all: Vec<_> = all.into_iter().map(|one| (stripe_of(one.seq), one)).collect();
        all.sort_by_key(|(stripe, _)| *stripe);
        let of_stripe = |chunk: &[(u64, RangeDelete)]| {
            let stripe = chunk.first().map_or(0, |(stripe, _)| *stripe);
            (stripe, Cover::of(chunk.iter().map(|(_, one)| one.clone()).collect()))
        };
        Deletes { stripes: all.chunk_by(|a, b| a.0 == b.0).map(of_stripe).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stripes.is_empty()
    }

    /// Whether an entry of `stripe` is hidden from every reader.
    pub(crate) fn hide(&self, key: &[u8], seq: Seq, stripe: u64) -> bool {
        let found = self.stripes.binary_search_by_key(&stripe, |(stripe, _)| *stripe);
        let cover = found.ok().and_then(|at| self.stripes.get(at)).map(|(_, cover)| cover);
        cover.is_some_and(|cover| seq < cover.at(key, Seq::MAX))
    }

    /// The range deletes to keep, in no particular order: the newest of each stripe over every key.
    /// At the bottom those of the lowest stripe are dropped: the entries that they hid are gone,
    /// and no older data exists.
    pub(crate) fn kept(&self, bottom: bool) -> Vec<RangeDelete> {
        let stays = |(stripe, _): &&(u64, Cover)| !(bottom && *stripe == 0);
        let spans = self.stripes.iter().filter(stays).flat_map(|(_, cover)| cover.spans());
        spans.cloned().collect()
    }
}
