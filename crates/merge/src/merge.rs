//! Merges many cursors with a tournament tree of losers (Knuth, The Art of Computer Programming,
//! volume 3, section 5.4.1).
//!
//! ```text
//!            tree[0] = winner            leaf of source i is node k + i;
//!               tree[1]                  its parent is (k + i) / 2;
//!            /          \                an inner node holds the loser
//!        tree[2]      tree[3]            of the match played there
//!        /    \       /    \
//!      s0     s1    s2     s3            (k = 4)
//! ```
//! A move plays one match per level, against the losers on the path of the winner. One source needs
//! no match and two need one, so neither is a special case. The tree stores eight bytes of each
//! key, the first ones after the common prefix of all keys, as a *rank*: most matches compare two
//! numbers and read no block. The result of a match is not predictable, so matches are played
//! without a branch.

mod plain;

use crate::stretches::{Plain, Stretches};
use siltstone_base::prefix::head;
use siltstone_base::{BlockAddr, Cursor, Entry, Error, Result, Seq, Step};
use std::cmp::Ordering;

/// The direction of a merge. Fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Keys ascending; of one key the newest version first.
    Forward,
    /// The exact reverse: keys descending; of one key the *oldest* version first.
    Backward,
}

/// The state of a source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SourcePosition {
    /// The current seek has not placed it yet.
    Unplaced,
    /// On an entry.
    On,
    /// It has no more entries.
    Done,
}

/// A source with its rank: a lower rank comes first. Equal ranks do not decide.
#[derive(Clone, Copy)]
struct RankedSource {
    /// Eight bytes of the key (big-endian, short keys padded with zeros) after the prefix that all
    /// keys share; their complement in a backward merge; the highest value at the end of a source.
    rank: u64,
    source: usize,
}

impl RankedSource {
    /// Orders two sources by rank. The masks prevent the compiler from making a branch of it.
    #[inline]
    fn settle(&mut self, other: &mut RankedSource) {
        let swap = u64::from(other.rank < self.rank).wrapping_neg();
        let rank = (self.rank ^ other.rank) & swap;
        let source = (self.source ^ other.source) & swap as usize;
        self.rank ^= rank;
        other.rank ^= rank;
        self.source ^= source;
        other.source ^= source;
    }
}

/// No source, while the tree is built.
const NO_SOURCE: usize = usize::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Nowhere,
    /// A seek waits for blocks.
    Seeking,
    Standing,
    /// The winner's move waits for a block.
    Moving,
}

/// The entries of all sources in one order.
///
/// The caller guarantees that no two sources contain the same (key, sequence number). If two do
/// nevertheless, the entry of the earlier, newer source counts as the newer one.
pub struct Merge<C> {
    sources: Vec<C>,
    stands: Vec<SourcePosition>,
    /// See the module documentation. Empty while there is no source.
    tree: Vec<RankedSource>,
    /// Number of first bytes that all keys have in common.
    shared: usize,
    /// Whether all matches were played since the sources were last moved together: until then only
    /// the winner is in the tree.
    played: bool,
    direction: Direction,
    /// Whether an earlier source has the newer versions of a key.
    newest_first: bool,
    state: State,
    needed: Vec<BlockAddr>,
}

impl<C: Cursor> Merge<C> {
    /// Over `sources` without a position.
    #[must_use]
    pub fn new(sources: Vec<C>, direction: Direction) -> Self {
        let count = sources.len();
        Merge {
            sources,
            stands: vec![SourcePosition::Unplaced; count],
            tree: vec![RankedSource { rank: 0, source: 0 }; count],
            shared: 0,
            played: false,
            direction,
            newest_first: false,
            state: State::Nowhere,
            needed: Vec::new(),
        }
    }

    /// The same merge, for sources whose keys all have their first `bytes` bytes in common: keys
    /// are compared after these bytes first. Called before the first move.
    #[must_use]
    pub fn sharing(mut self, bytes: usize) -> Self {
        self.shared = bytes;
        self
    }

    /// The same merge, for sources of which an earlier one has the newer versions of every key that
    /// both have. Then stretches of plain entries go on over such keys (`merge/plain.rs`). It does
    /// not hold for a memtable before ingests that came after it.
    #[must_use]
    pub fn newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    /// The direction of the merge.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// All blocks that the pending move needs. A seek asks all its sources before it returns
    /// `NeedBlock`, so that their first blocks can be fetched in one wave.
    #[must_use]
    pub fn needed(&self) -> &[BlockAddr] {
        &self.needed
    }

    /// To the next entry in the merge's direction.
    ///
    /// # Errors
    /// A source's errors; Internal if the merge has no position. After an error it has none.
    pub fn advance(&mut self) -> Result<Step> {
        let direction = self.direction;
        self.move_winner(|source| match direction {
            Direction::Forward => source.next(),
            Direction::Backward => source.prev(),
        })
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "tree[0] is a source while the merge stands")]
    fn move_winner(&mut self, to: impl FnOnce(&mut C) -> Result<Step>) -> Result<Step> {
        if !matches!(self.state, State::Standing | State::Moving) {
            return Err(Error::internal("a merge was moved from nowhere"));
        }
        self.state = State::Nowhere;
        self.needed.clear();
        let winner = self.tree[0].source;
        let step = to(&mut self.sources[winner])?;
        if let Step::NeedBlock(block) = step {
            self.needed.push(block);
            self.state = State::Moving;
            return Ok(step);
        }
        let rank = self.rank_of(winner, step)?;
        if self.played {
            self.replay(RankedSource { rank, source: winner });
        } else {
            self.build()?;
        }
        Ok(self.stand())
    }

    /// Places every source with `place` and builds the tree.
    fn place(
        &mut self,
        direction: Direction,
        mut place: impl FnMut(&mut C) -> Result<Step>,
    ) -> Result<Step> {
        if direction != self.direction {
            return Err(Error::internal("a merge moves in one direction only"));
        }
        if self.state != State::Seeking {
            self.stands.fill(SourcePosition::Unplaced);
        }
        self.state = State::Nowhere;
        self.needed.clear();
        for (source, stand) in self.sources.iter_mut().zip(&mut self.stands) {
            if *stand != SourcePosition::Unplaced {
                continue;
            }
            match place(source)? {
                Step::NeedBlock(block) => self.needed.push(block),
                Step::Ready => *stand = SourcePosition::On,
                Step::End => *stand = SourcePosition::Done,
            }
        }
        if let Some(first) = self.needed.first() {
            self.state = State::Seeking;
            return Ok(Step::NeedBlock(*first));
        }
        self.build()?;
        Ok(self.stand())
    }

    /// Ready if the winner has an entry.
    fn stand(&mut self) -> Step {
        let winner = self.tree.first().and_then(|winner| self.stands.get(winner.source));
        if winner == Some(&SourcePosition::On) {
            self.state = State::Standing;
            Step::Ready
        } else {
            self.state = State::Nowhere;
            Step::End
        }
    }

    /// The source with the first entry.
    #[inline]
    fn winner(&self) -> Option<&C> {
        self.tree.first().and_then(|winner| self.sources.get(winner.source))
    }

    /// Records the state of `source` after a move that returned `step`; returns its rank.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "callers name sources, which are below k")]
    fn rank_of(&mut self, source: usize, step: Step) -> Result<u64> {
        if step == Step::End {
            self.stands[source] = SourcePosition::Done;
            return Ok(u64::MAX);
        }
        let key = self.sources[source]
            .user_key()
            .ok_or_else(|| Error::internal("a cursor is ready and has no entry"))?;
        let head = head(key.get(self.shared..).unwrap_or_default());
        Ok(match self.direction {
            Direction::Forward => head,
            Direction::Backward => !head,
        })
    }

    /// Plays every match: each source goes up from its leaf. At the first empty node it waits; at a
    /// node with a waiting source the first of both continues. The last source finds all nodes
    /// taken, and the winner goes to the top.
    ///
    /// Not inlined, so that it is outside of the loop of callers that move entry by entry, such as
    /// a compaction.
    #[cold]
    #[inline(never)]
    #[expect(clippy::indexing_slicing, reason = "inner nodes and sources are below k")]
    fn build(&mut self) -> Result<()> {
        let count = self.sources.len();
        self.tree.fill(RankedSource { rank: 0, source: NO_SOURCE });
        'sources: for source in 0..count {
            let step =
                if self.stands[source] == SourcePosition::On { Step::Ready } else { Step::End };
            let rank = self.rank_of(source, step)?;
            let mut winner = RankedSource { rank, source };
            let mut node = (count + source) / 2;
            while node > 0 {
                let mut met = self.tree[node];
                if met.source == NO_SOURCE {
                    self.tree[node] = winner;
                    continue 'sources;
                }
                self.play(&mut winner, &mut met);
                self.tree[node] = met;
                node /= 2;
            }
            self.tree[0] = winner;
        }
        self.played = true;
        Ok(())
    }

    /// Plays a source whose rank has changed up to the top.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "inner nodes are below k")]
    fn replay(&mut self, mut winner: RankedSource) {
        let mut node = (self.sources.len() + winner.source) / 2;
        while node > 0 {
            let mut loser = self.tree[node];
            self.play(&mut winner, &mut loser);
            self.tree[node] = loser;
            node /= 2;
        }
        self.tree[0] = winner;
    }

    /// Makes the one that comes first the `winner`, and the other the `loser`.
    #[inline]
    fn play(&self, winner: &mut RankedSource, loser: &mut RankedSource) {
        if winner.rank == loser.rank {
            if self.beats(loser.source, winner.source) {
                std::mem::swap(winner, loser);
            }
            return;
        }
        winner.settle(loser);
    }

    /// Whether source `a` comes before source `b` if their ranks are equal. Sources at their end
    /// come last.
    #[cold]
    #[expect(clippy::indexing_slicing, reason = "callers name sources, which are below k")]
    fn beats(&self, a: usize, b: usize) -> bool {
        match (self.stands[a], self.stands[b]) {
            (SourcePosition::On, SourcePosition::On) => {}
            (SourcePosition::On, _) => return true,
            _ => return false,
        }
        let (a_key, b_key) = (self.sources[a].key(), self.sources[b].key());
        let keys = a_key.map(|(key, _)| key).cmp(&b_key.map(|(key, _)| key));
        let seqs = b_key.map(|(_, seq)| seq).cmp(&a_key.map(|(_, seq)| seq));
        let order = keys.then(seqs).then_with(|| a.cmp(&b));
        match self.direction {
            Direction::Forward => order == Ordering::Less,
            Direction::Backward => order == Ordering::Greater,
        }
    }
}

/// Forward, `prev` returns Internal, and so do `next` backward and the seeks of the other direction
/// (`seek_last` and `seek_before` forward, `seek_first` and `seek` backward).
impl<C: Cursor> Cursor for Merge<C> {
    fn seek_first(&mut self) -> Result<Step> {
        self.place(Direction::Forward, C::seek_first)
    }

    fn seek_last(&mut self) -> Result<Step> {
        self.place(Direction::Backward, C::seek_last)
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.place(Direction::Forward, |source| source.seek(key, seq))
    }

    fn seek_before(&mut self, key: &[u8], seq: Seq) -> Result<Step> {
        self.place(Direction::Backward, |source| source.seek_before(key, seq))
    }

    fn next(&mut self) -> Result<Step> {
        if self.direction == Direction::Backward {
            return Err(Error::internal("a backward merge has no next"));
        }
        self.advance()
    }

    fn next_key(&mut self) -> Result<Step> {
        if self.direction == Direction::Backward {
            return self.next();
        }
        self.move_winner(C::next_key)
    }

    fn prev(&mut self) -> Result<Step> {
        if self.direction == Direction::Forward {
            return Err(Error::internal("a forward merge has no prev"));
        }
        self.advance()
    }

    #[inline(always)]
    fn entry(&self) -> Option<Entry<'_>> {
        if self.state != State::Standing {
            return None;
        }
        self.winner().and_then(C::entry)
    }

    #[inline(always)]
    fn key(&self) -> Option<(&[u8], Seq)> {
        if self.state != State::Standing {
            return None;
        }
        self.winner().and_then(C::key)
    }

    #[inline(always)]
    fn user_key(&self) -> Option<&[u8]> {
        if self.state != State::Standing {
            return None;
        }
        self.winner().and_then(C::user_key)
    }
}

impl<C: Cursor> Stretches for Merge<C> {
    #[inline]
    fn each_plain(
        &mut self,
        seq: Seq,
        end: Option<&[u8]>,
        take: &mut impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<Plain> {
        self.take_plain(seq, end, take)
    }
}
