//! Finds the end of the run of manifests that begins above the boundary (rule E1): its last number
//! is the newest manifest.
//!
//! ```text
//! listed: ids, boundary ─► none follows it ─► read what begins a run, the last first ─┐
//!                     └─► the first manifest ─► read it: it says what follows ────────┤
//!                     └─► any other ──────────────────────────────────────────────────┤
//!              end ◄─ nothing there ─ ask for the number after, which a listing may lack
//! ```

use crate::state::Manifest;
use siltstone_base::ManifestId;

/// Finds the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndOfRun {
    /// The ids in the listing, ascending.
    ids: Vec<ManifestId>,
    boundary: ManifestId,
    phase: RunPhase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RunPhase {
    /// The possible first manifests of the count; the last one is being read.
    Begins(Vec<ManifestId>),
    /// Reads the first manifest for the number that follows it.
    First,
    /// Asks whether the number after the end exists.
    Beyond {
        end: ManifestId,
        next: ManifestId,
    },
    Done(Option<ManifestId>),
}

/// The next step of [`EndOfRun`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunAction {
    /// Read this manifest.
    Read(ManifestId),
    /// Ask whether this manifest exists.
    Ask(ManifestId),
    /// The run ends here; at the boundary if there is no run. `None` if the first manifest, which
    /// contains the number that follows it, was freed since it was listed; a boundary then shows
    /// that.
    Done(Option<ManifestId>),
}

impl EndOfRun {
    /// For the ids, ascending, and the boundary of a listing.
    #[must_use]
    pub fn new(ids: Vec<ManifestId>, boundary: ManifestId) -> EndOfRun {
        let end = run_end(&ids, boundary);
        let mut run = EndOfRun { ids, boundary, phase: RunPhase::First };
        if end == boundary {
            // A boundary, and perhaps manifests, of an earlier database at this location: the
            // numbers of this one begin above them.
            run.ask_begins(run_starts(&run.ids, boundary));
        } else {
            run.ends_at(end);
        }
        run
    }

    /// The next step.
    #[must_use]
    pub fn action(&self) -> RunAction {
        match &self.phase {
            RunPhase::Begins(starts) => RunAction::Read(starts.last().copied().unwrap_or_default()),
            RunPhase::First => RunAction::Read(ManifestId::FIRST),
            RunPhase::Beyond { next, .. } => RunAction::Ask(*next),
            RunPhase::Done(end) => RunAction::Done(*end),
        }
    }

    /// The manifests that the actions read if the listing is complete, and the one at the end. A
    /// driver may read them at once, and answer the actions from them.
    #[must_use]
    pub fn probable_reads(&self) -> Vec<ManifestId> {
        let last = self.ids.last().copied().unwrap_or_default();
        match &self.phase {
            RunPhase::First if last > ManifestId::FIRST => {
                vec![ManifestId::FIRST, last, last.next()]
            }
            RunPhase::First => vec![ManifestId::FIRST],
            RunPhase::Begins(starts) => starts.last().copied().into_iter().collect(),
            RunPhase::Beyond { end, next } => vec![*end, *next],
            RunPhase::Done(_) => Vec::new(),
        }
    }

    /// The answer to [`RunAction::Read`].
    pub fn on_read(&mut self, read: Option<&Manifest>) {
        match &mut self.phase {
            RunPhase::Begins(starts) => {
                let start = starts.pop().unwrap_or_default();
                if read.is_some_and(Manifest::begins_the_count) {
                    self.ends_at(run_end(&self.ids, start));
                } else {
                    let starts = std::mem::take(starts);
                    self.ask_begins(starts);
                }
            }
            RunPhase::First => match read {
                Some(first) => self.goes_on(ManifestId::FIRST, first.next_id()),
                None => self.phase = RunPhase::Done(None),
            },
            RunPhase::Beyond { .. } | RunPhase::Done(_) => {}
        }
    }

    /// The answer to [`RunAction::Ask`].
    pub fn on_asked(&mut self, is_there: bool) {
        match self.phase {
            RunPhase::Beyond { next, .. } if is_there => self.ends_at(run_end(&self.ids, next)),
            RunPhase::Beyond { end, .. } => self.phase = RunPhase::Done(Some(end)),
            RunPhase::Begins(_) | RunPhase::First | RunPhase::Done(_) => {}
        }
    }

    fn ask_begins(&mut self, starts: Vec<ManifestId>) {
        if starts.is_empty() {
            self.ends_at(self.boundary);
        } else {
            self.phase = RunPhase::Begins(starts);
        }
    }

    /// The end as far as it is known.
    fn ends_at(&mut self, end: ManifestId) {
        if end == ManifestId::FIRST && self.boundary < end {
            self.phase = RunPhase::First;
        } else {
            self.goes_on(end, end.next());
        }
    }

    fn goes_on(&mut self, end: ManifestId, next: ManifestId) {
        if self.ids.contains(&next) {
            self.ends_at(run_end(&self.ids, next));
        } else {
            self.phase = RunPhase::Beyond { end, next };
        }
    }
}

/// The ids above `from` in `ids`, ascending, that do not directly follow another one.
fn run_starts(ids: &[ManifestId], from: ManifestId) -> Vec<ManifestId> {
    let (mut before, mut starts) = (from, Vec::new());
    for id in ids.iter().copied().skip_while(|id| *id <= from) {
        if id != before.next() {
            starts.push(id);
        }
        before = id;
    }
    starts
}

/// The end of the run of consecutive numbers directly after `from` in `ids`, ascending; `from` if
/// there is none.
pub(super) fn run_end(ids: &[ManifestId], from: ManifestId) -> ManifestId {
    let above = ids.iter().copied().skip_while(|id| *id <= from);
    above.fold(from, |end, id| if id == end.next() { id } else { end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::empty;
    use siltstone_base::DatabaseId;
    use siltstone_base::id::NUMBERS_A_MILLI;

    const COUNTS_FROM: u64 = 7 * NUMBERS_A_MILLI;

    /// The end for a listing of `listed`, if the objects `there` exist, all of a database that
    /// counts from there; and the number of reads and queries.
    fn end(listed: &[u64], boundary: u64, there: &[u64]) -> (Option<u64>, usize) {
        let database = DatabaseId::counting_from(COUNTS_FROM, 1);
        let settings = empty().settings;
        let ids = listed.iter().copied().map(ManifestId).collect();
        let (mut run, mut requests) = (EndOfRun::new(ids, ManifestId(boundary)), 0);
        loop {
            match run.action() {
                RunAction::Done(end) => return (end.map(ManifestId::get), requests),
                RunAction::Ask(id) => run.on_asked(there.contains(&id.get())),
                RunAction::Read(id) => {
                    let first = Manifest::new_database(database, settings.clone());
                    let read = Manifest { id, ..first };
                    run.on_read(there.contains(&id.get()).then_some(&read));
                }
            }
            requests += 1;
        }
    }

    #[test]
    fn it_ends_where_nothing_follows() {
        let n = COUNTS_FROM;
        assert_eq!(end(&[], 0, &[]), (Some(0), 1));
        assert_eq!(end(&[n, n + 1], n - 1, &[n, n + 1]), (Some(n + 1), 1));
        assert_eq!(end(&[n, n + 1, n + 3], n - 1, &[]), (Some(n + 1), 1), "3 stands apart");
        assert_eq!(end(&[n], n - 1, &[n, n + 1, n + 2]), (Some(n + 2), 3), "stale");
    }

    #[test]
    fn the_first_says_what_follows() {
        let n = COUNTS_FROM;
        assert_eq!(end(&[1], 0, &[1]), (Some(1), 2));
        assert_eq!(end(&[1, n, n + 1], 0, &[1, n, n + 1]), (Some(n + 1), 2));
        assert_eq!(end(&[1], 0, &[1, n, n + 1]), (Some(n + 1), 4), "stale");
        assert_eq!(end(&[1, n], 0, &[n]), (None, 1), "freed meanwhile");
        assert_eq!(end(&[1, 2], 1, &[]), (Some(2), 1), "freed long ago");
    }

    /// Objects of an older database, including its boundary, do not hide a newer one.
    #[test]
    fn a_count_that_begins_beyond_what_is_left_is_found() {
        let n = COUNTS_FROM;
        assert_eq!(end(&[9, n, n + 1], 5, &[9, n, n + 1]), (Some(n + 1), 2));
        assert_eq!(end(&[9, 12], 5, &[9, 12]), (Some(5), 3));
    }
}
