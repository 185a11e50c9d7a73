//! Which sequence numbers belong to the history of a state (RFC 0041, rule W6).
//!
//! ```text
//! first    1 … 40 … 60 ~~~ 100                     ~ undone
//! T1                └─ cut 60 ── 101 … 110 ~~~ 120
//! T2          └─ cut 40 ──────────────────────────── 121 ~~~ 130
//! T3                                 └─ cut 110 ────────────────── 131 …
//! ```
//! Sequence numbers are never reused, so each belongs to one history. `timelines` lists the
//! histories that lead to the state: here T1 and T3. The numbers 61 to 100 and 111 to 130 do not
//! belong to it.

use super::{Manifest, Timeline};
use siltstone_base::{Error, ErrorKind, ManifestId, Seq, TimelineId};

/// Data that a reader has seen was undone by a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HistoryUndone {
    /// The last sequence number seen that is still part of the history. `None` if it is unknown: a
    /// restore went to a state before the history began, or to another history.
    pub remains: Option<Seq>,
    /// The manifest of the restore.
    pub at: ManifestId,
}

impl Timeline {
    /// Whether a history that continues from this timeline lacks sequence number `seq`.
    #[must_use]
    pub fn lacks(&self, seq: Seq) -> bool {
        self.cut < seq && seq < self.begins
    }

    /// Whether the numbers after `seq` belong to this history or a later one.
    fn has_begun(&self, seq: Seq) -> bool {
        self.begins <= seq.next()
    }
}

impl Manifest {
    /// The history that continues after `seq`; `None`: the first one.
    #[must_use]
    pub fn history_behind(&self, seq: Seq) -> Option<TimelineId> {
        self.timelines.iter().rev().find(|one| one.has_begun(seq)).map(|one| one.id)
    }

    /// Whether data was undone that a reader has seen, if it has seen everything up to `seq` of the
    /// history `timeline`; `None`: nothing was undone.
    #[must_use]
    pub fn undone(&self, timeline: Option<TimelineId>, seq: Seq) -> Option<HistoryUndone> {
        let later = match timeline {
            None => self.timelines.as_slice(),
            Some(id) => {
                let Some(at) = self.timelines.iter().position(|one| one.id == id) else {
                    return Some(HistoryUndone { remains: None, at: self.restored_at() });
                };
                self.timelines.get(at + 1..).unwrap_or_default()
            }
        };
        let by = later.iter().find(|one| one.lacks(seq))?;
        Some(HistoryUndone { remains: Some(by.cut), at: by.manifest_id })
    }
}

/// Whether no number of the history lies between `seq` and `next`.
#[must_use]
pub fn follow_each_other(timelines: &[Timeline], mut seq: Seq, next: Seq) -> bool {
    while seq.next() < next {
        let Some(gap) = timelines.iter().find(|one| one.lacks(seq.next())) else { return false };
        seq = gap.begins.minus(1);
    }
    true
}

/// Whether a reader at `seq` in the history that `old` leads to is also in the history that `new`
/// leads to.
pub(crate) fn goes_on(old: &[Timeline], new: &[Timeline], seq: Seq) -> bool {
    let shared = old.iter().zip(new).take_while(|(left, right)| left.id == right.id).count();
    let mut own = old.iter().filter(|one| one.has_begun(seq)).count();
    // A timeline that skipped no number does not affect a reader at its cut.
    let is_gapless = |one: &Timeline| one.cut == seq && one.begins == seq.next();
    while own > shared && old.get(own - 1).is_some_and(is_gapless) {
        own -= 1;
    }
    own <= shared && !new.iter().skip(own).any(|one| one.lacks(seq))
}

impl From<HistoryUndone> for Error {
    fn from(undone: HistoryUndone) -> Error {
        let error = Error::new(
            ErrorKind::Expired,
            "the database was restored to before this place of the feed, and what was read \
             beyond the cut is undone: take that back, and begin anew, from a snapshot or at \
             the newest place",
        );
        let error = match undone.remains {
            Some(cut) => error.with("last sequence number that remains", cut),
            None => error,
        };
        error.with("restored at", undone.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_base::{DatabaseId, UnixMillis};

    fn timeline(id: u128, cut: u64, begins: u64) -> Timeline {
        Timeline {
            id: TimelineId(id),
            cut: Seq(cut),
            begins: Seq(begins),
            manifest_id: ManifestId(begins),
            began_at: UnixMillis(1),
        }
    }

    /// The states of the drawing above, by their last timelines.
    fn state(timelines: &[Timeline]) -> Manifest {
        let mut state = Manifest::new_database(DatabaseId(9), Default::default());
        state.timelines = timelines.to_vec();
        state
    }

    #[test]
    fn a_place_is_undone_by_what_left_it_out() {
        let state = state(&[timeline(1, 60, 101), timeline(3, 110, 131)]);
        let undone = |timeline: Option<u128>, seq| {
            let undone = state.undone(timeline.map(TimelineId), Seq(seq));
            undone.map(|one| (one.remains.map(Seq::get), one.at.get()))
        };
        assert_eq!([undone(None, 60), undone(None, 61)], [None, Some((Some(60), 101))]);
        assert_eq!(undone(None, 100), Some((Some(60), 101)));
        assert_eq!([undone(Some(1), 100), undone(Some(1), 110)], [None, None]);
        assert_eq!(undone(Some(1), 111), Some((Some(110), 131)));
        assert_eq!([undone(Some(3), 130), undone(Some(3), 140)], [None, None]);
        // The history was left: it is unknown how much of it belonged to earlier histories.
        assert_eq!([undone(Some(2), 120), undone(Some(2), 125)], [Some((None, 131)); 2]);
        let behind = |seq| state.history_behind(Seq(seq)).map(TimelineId::get);
        assert_eq!([behind(60), behind(100)], [None, Some(1)]);
        assert_eq!([behind(110), behind(130)], [Some(1), Some(3)]);
    }

    #[test]
    fn numbers_follow_each_other_over_any_restores() {
        let twice = [timeline(1, 60, 101), timeline(2, 100, 106), timeline(3, 108, 110)];
        let follow = |seq, next| follow_each_other(&twice, Seq(seq), Seq(next));
        assert!(follow(59, 60) && follow(60, 106) && follow(100, 106) && follow(108, 110));
        assert!(!follow(59, 61) && !follow(59, 106) && !follow(106, 110) && !follow(60, 107));
        assert!(follow(60, 101), "the numbers in between are left out");
    }

    /// Two histories share a number if both contain it and nothing before it was left out.
    #[test]
    fn a_timeline_in_both_histories_goes_on() {
        let (first, second) = (timeline(1, 60, 101), timeline(2, 40, 121));
        let third = timeline(3, 110, 131);
        let places = |old: &[Timeline], new: &[Timeline]| {
            let all = [40, 41, 60, 100, 110, 111, 120, 125];
            all.into_iter().filter(|seq| goes_on(old, new, Seq(*seq))).collect::<Vec<_>>()
        };
        assert_eq!(places(&[], &[first]), [40, 41, 60, 110, 111, 120, 125]);
        assert_eq!(places(&[first], &[second]), [40]);
        assert_eq!(places(&[second], &[first, third]), [40, 41, 60, 110]);
        assert_eq!(places(&[first], &[first, third]), [40, 41, 60, 100, 110]);
        // Behind 120 the position is at the beginning of T2, and not at the end of T1.
        let end = timeline(4, 120, 131);
        assert!(!goes_on(&[second], &[first, end], Seq(120)));
        assert!(goes_on(&[first], &[first, end], Seq(120)));
        // Nothing was left out: no reader's position changed.
        let (nothing, again) = (timeline(5, 60, 61), timeline(6, 60, 61));
        assert!(goes_on(&[nothing], &[again], Seq(60)) && !goes_on(&[nothing], &[again], Seq(61)));
    }
}
