//! Edits of the holds by which change feed consumers retain the log (RFC 0041, rules W3 to W5).
//!
//! ```text
//! log     … 4   5   6   7   8   9 …          hold "a": from 6, seen up to 41
//!               └ replay point at 9            keeps 6, 7 and 8, and tables of ingests from 42 on
//! ```
//! A hold begins at a position after which everything is certainly present, and only moves forward.

use super::{Conflict, NewCheckpoint, Refusal};
use crate::features::FEED;
use crate::naming::is_name;
use crate::rules::{Rule, Rules};
use crate::state::{
    FedIngest, FedSource, HistoryUndone, Hold, LogPlace, Manifest, Timeline, goes_on,
};
use siltstone_base::{JobId, Seq, SstId, TimelineId, UnixMillis, WalId};
use std::fmt;

/// Maximum number of consumers: about 100 bytes each in every manifest.
const MOST_HOLDS: usize = 256;
/// The version of Siltstone that introduced holds.
const SINCE: &str = "0.1.0";

/// One change of a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HoldEdit {
    /// A consumer begins, or continues under the same name.
    Take(Box<TakeHold>),
    /// A consumer has seen more, or refreshes its hold. Progress only grows.
    Advance(AdvanceHold),
    /// A command removes the consumer with that name.
    Release {
        /// Its name.
        name: String,
    },
    /// Removes holds that retain more of the log than their limit, if they have not moved since.
    Revoke(Vec<HoldExcess>),
}

/// Takes a hold. A previous consumer with the name is overtaken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TakeHold {
    /// The consumer's name.
    pub name: String,
    /// Its generation: above that of the previous consumer with the name, and unique.
    pub generation: u64,
    /// The position at which it begins.
    pub from: HoldFrom,
    /// The history of a given position; `None`: the first.
    pub timeline: Option<TimelineId>,
    /// When it may be revoked; `None`: never.
    pub expires_at: Option<UnixMillis>,
    /// Bytes of log above which it may be revoked; `None`: no limit.
    pub most_bytes: Option<u64>,
    /// A checkpoint of the state that the commit creates, from which the feed then continues.
    pub checkpoint: Option<NewCheckpoint>,
    /// The position at which the consumer begins, if that is before `from`, in log that nothing
    /// retains. [`HoldFrom::Kept`] keeps that of the present hold.
    pub unretained: Option<LogPlace>,
}

/// The position at which a hold begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldFrom {
    /// The position of the present hold with this name.
    Kept,
    /// The position to which the consumer has walked, or the replay point if that is later (rule
    /// W3).
    Walked(LogPlace),
    /// This position; refused if data after it may be gone.
    At(LogPlace),
}

/// The progress of a consumer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AdvanceHold {
    /// Its name.
    pub name: String,
    /// Its generation.
    pub generation: u64,
    /// The position that it has seen.
    pub to: LogPlace,
    /// The history of that position; `None`: the first.
    pub timeline: Option<TimelineId>,
    /// The new expiry; `None`: never.
    pub expires_at: Option<UnixMillis>,
}

/// A hold that retains more than its limit, as it was when that was found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldExcess {
    /// Its name.
    pub name: String,
    /// Its generation.
    pub generation: u64,
    /// Its position.
    pub wal_from: WalId,
}

/// The reason why an edit of a hold does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldConflict {
    /// There is no hold with that name.
    Gone,
    /// A newer consumer with that name has begun.
    Overtaken,
    /// A restore has undone data before the position.
    Undone(HistoryUndone),
    /// Data after the position may be gone.
    Passed {
        /// The first position that is certain.
        oldest: LogPlace,
    },
}

impl Hold {
    /// The position up to which the consumer has acknowledged, and at which it continues.
    #[must_use]
    pub fn acknowledged(&self) -> LogPlace {
        self.unretained.unwrap_or(self.place())
    }

    /// The position of the hold: everything after it is retained.
    #[must_use]
    pub fn place(&self) -> LogPlace {
        LogPlace { seq: self.seq, wal: self.wal_from }
    }

    /// Whether it has expired at `now` and may be revoked.
    #[must_use]
    pub fn expired_at(&self, now: UnixMillis) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

impl Manifest {
    /// The hold with that name.
    #[must_use]
    pub fn hold(&self, name: &str) -> Option<&Hold> {
        self.holds.iter().find(|one| one.name == name)
    }

    /// Whether a consumer of this name may take a hold. Expired holds count until they are revoked.
    #[must_use]
    pub fn has_room_for_hold(&self, name: &str) -> bool {
        self.holds.len() < MOST_HOLDS || self.hold(name).is_some()
    }

    /// Checks that the hold `name` is still the one of `generation`.
    ///
    /// # Errors
    /// Gone if there is no such hold; Overtaken if a newer consumer took it.
    pub fn check_hold(&self, name: &str, generation: u64) -> Result<(), Refusal> {
        let hold = self.hold(name).ok_or(HoldConflict::Gone)?;
        match hold.generation == generation {
            true => Ok(()),
            false => Err(HoldConflict::Overtaken.into()),
        }
    }

    /// Whether everything in the log after `place` is kept for certain: by the writer or a hold.
    #[must_use]
    pub fn keeps_all_after(&self, place: LogPlace) -> bool {
        let own = LogPlace { seq: self.flushed_seq, wal: self.replay_from };
        let mut others = self.holds.iter().map(Hold::place);
        is_behind(place, own) || others.any(|other| is_behind(place, other))
    }

    /// The first position in the log after which everything is kept.
    #[must_use]
    pub fn oldest_certain(&self) -> LogPlace {
        let own = LogPlace { seq: self.flushed_seq, wal: self.replay_from };
        self.holds.iter().map(Hold::place).fold(own, |oldest, one| match is_behind(oldest, one) {
            true => one,
            false => oldest,
        })
    }
}

/// Whether everything after `place` is also after `other`.
fn is_behind(place: LogPlace, other: LogPlace) -> bool {
    other.wal <= place.wal && other.seq <= place.seq
}

impl HoldEdit {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        match self {
            HoldEdit::Take(take) => take.apply(next, rules),
            HoldEdit::Advance(advance) => advance.apply(next, rules),
            HoldEdit::Release { name } => {
                next.holds.retain(|one| one.name != *name);
                let_go(next, None, rules);
                Ok(())
            }
            HoldEdit::Revoke(overdrawn) => {
                next.holds.retain(|one| !overdrawn.iter().any(|each| each.is(one)));
                let_go(next, None, rules);
                Ok(())
            }
        }
    }

    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        match self {
            HoldEdit::Take(take) => {
                state.hold(&take.name).is_some_and(|one| one.generation == take.generation)
                    && take.checkpoint.as_ref().is_none_or(|new| state.checkpoint(new.id).is_some())
            }
            HoldEdit::Advance(advance) => {
                state.hold(&advance.name).is_some_and(|one| advance.is_seen_in(one))
            }
            HoldEdit::Release { name } => state.hold(name).is_none(),
            HoldEdit::Revoke(overdrawn) => {
                !state.holds.iter().any(|one| overdrawn.iter().any(|each| each.is(one)))
            }
        }
    }
}

impl HoldExcess {
    fn is(&self, hold: &Hold) -> bool {
        self.name == hold.name
            && self.generation == hold.generation
            && self.wal_from == hold.wal_from
    }
}

impl TakeHold {
    fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        if !is_name(&self.name) {
            return Err(Refusal::Invalid(
                "a consumer's name has 1 to 255 bytes, no control characters, and does not read \
                 as an id",
            ));
        }
        let own = next.hold(&self.name).cloned();
        if own.as_ref().is_some_and(|one| one.generation >= self.generation) {
            return Err(HoldConflict::Overtaken.into());
        }
        if !next.has_room_for_hold(&self.name) {
            return Err(Refusal::Invalid(
                "256 consumers hold the log; forget some that are not needed any more",
            ));
        }
        let place = self.place(next, own.as_ref(), rules)?;
        if let Some(new) = &self.checkpoint {
            new.apply(next)?;
        }
        next.features.name_for_committers(FEED, SINCE);
        next.holds.retain(|one| one.name != self.name);
        next.holds.push(Hold {
            name: self.name.clone(),
            generation: self.generation,
            wal_from: place.wal,
            seq: place.seq,
            expires_at: self.expires_at,
            most_bytes: self.most_bytes,
            unretained: match self.from {
                HoldFrom::Kept => own.and_then(|own| own.unretained),
                _ => self.unretained,
            },
        });
        let_go(next, Some(place.seq), rules);
        Ok(())
    }

    /// The position at which the hold begins: the state on which this is committed keeps everything
    /// after it.
    fn place(
        &self,
        state: &Manifest,
        own: Option<&Hold>,
        rules: Rules,
    ) -> Result<LogPlace, Refusal> {
        match self.from {
            HoldFrom::Kept => own.map(Hold::place).ok_or_else(|| HoldConflict::Gone.into()),
            HoldFrom::Walked(place) | HoldFrom::At(place) if !rules.has(Rule::HoldWhatIsThere) => {
                Ok(place)
            }
            HoldFrom::Walked(place) => Ok(LogPlace {
                seq: place.seq.max(state.flushed_seq),
                wal: place.wal.max(state.replay_from),
            }),
            HoldFrom::At(place) => {
                check_history(state, self.timeline, place.seq, rules)?;
                if state.keeps_all_after(place) {
                    return Ok(place);
                }
                Err(HoldConflict::Passed { oldest: state.oldest_certain() }.into())
            }
        }
    }
}

impl AdvanceHold {
    fn is_seen_in(&self, hold: &Hold) -> bool {
        let lasts = match (hold.expires_at, self.expires_at) {
            (Some(until), Some(wanted)) => until >= wanted,
            (until, _) => until.is_none(),
        };
        hold.generation == self.generation && hold.acknowledged().seq >= self.to.seq && lasts
    }

    fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        let by_generation = rules.has(Rule::HoldByGeneration);
        let undone = check_history(next, self.timeline, self.to.seq, rules);
        let mut holds = next.holds.iter_mut();
        let Some(hold) = holds.find(|one| one.name == self.name) else {
            return Err(HoldConflict::Gone.into());
        };
        if hold.generation != self.generation && by_generation {
            return Err(HoldConflict::Overtaken.into());
        }
        undone?;
        // Up to the hold's own number nothing is left that it does not retain.
        hold.unretained = hold.unretained.filter(|_| self.to.seq < hold.seq).map(|before| {
            LogPlace { seq: before.seq.max(self.to.seq), wal: before.wal.max(self.to.wal) }
        });
        hold.seq = hold.seq.max(self.to.seq);
        hold.wal_from = hold.wal_from.max(self.to.wal);
        hold.expires_at = match (hold.expires_at, self.expires_at) {
            (Some(until), Some(wanted)) => Some(until.max(wanted)),
            _ => None,
        };
        let seen = hold.seq;
        let_go(next, Some(seen), rules);
        Ok(())
    }
}

/// If an ingest is installed while a consumer holds the log, its original tables stay until all
/// holds have passed it (rule W4).
pub(super) fn keep_ingest(next: &mut Manifest, job: JobId, seq: Seq, rules: Rules) {
    keep(next, [FedIngest { seq, source: FedSource::Job(job) }], rules);
}

/// The same for the tables of a large batch.
pub(super) fn keep_tables(next: &mut Manifest, names: &[SstId], seq: Seq, rules: Rules) {
    let kept = names.iter().map(|name| FedIngest { seq, source: FedSource::Table(*name) });
    keep(next, kept, rules);
}

/// A restored ingest may be kept already.
fn keep(next: &mut Manifest, kept: impl IntoIterator<Item = FedIngest>, rules: Rules) {
    for one in kept {
        let behind = next.holds.iter().any(|hold| hold.seq < one.seq);
        if rules.has(Rule::FeedKeepsIngests) && behind && !next.fed.contains(&one) {
            next.fed.push(one);
        }
    }
}

/// Drops the holds that have expired at `now`: a refresh that was committed first takes precedence
/// (rule G3).
pub(super) fn revoke(next: &mut Manifest, now: UnixMillis, rules: Rules) {
    let before = next.holds.len();
    next.holds.retain(|hold| !hold.expired_at(now));
    if next.holds.len() < before {
        let_go(next, None, rules);
    }
}

/// If a consumer has seen more of the history `left` than a restore keeps, its hold ends (rule W6):
/// data that it has passed on is undone, and once the numbers are used again, a number alone does
/// not show this.
pub(super) fn end_undone(next: &mut Manifest, left: &[Timeline], cut: Seq, rules: Rules) {
    let by_history = rules.has(Rule::HoldInHistory);
    let Manifest { holds, timelines, .. } = next;
    holds.retain(|hold| match by_history {
        true => goes_on(left, timelines, hold.seq),
        false => hold.seq <= cut,
    });
    let_go(next, None, rules);
}

/// Checks that everything up to `seq` of that history is part of `state`.
fn check_history(
    state: &Manifest,
    timeline: Option<TimelineId>,
    seq: Seq,
    rules: Rules,
) -> Result<(), HoldConflict> {
    match state.undone(timeline, seq) {
        Some(undone) if rules.has(Rule::HoldInHistory) => Err(HoldConflict::Undone(undone)),
        _ => Ok(()),
    }
}

/// Releases the ingests that every hold has passed. Without the rule: those that the moved hold has
/// passed.
fn let_go(next: &mut Manifest, moved: Option<Seq>, rules: Rules) {
    let lowest = next.holds.iter().map(|hold| hold.seq).min();
    let passed = match moved {
        Some(moved) if !rules.has(Rule::FedUntilAllPassed) => moved,
        _ => lowest.unwrap_or(Seq::MAX),
    };
    next.fed.retain(|one| one.seq > passed);
}

impl From<HoldConflict> for Refusal {
    fn from(conflict: HoldConflict) -> Refusal {
        Refusal::Conflict(Conflict::Hold(conflict))
    }
}

impl fmt::Display for HoldConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldConflict::Gone => f.write_str(
                "no consumer of that name holds the log, or none any more: it was given up, was \
                 silent for longer than its lifetime, kept more bytes of the log than it may, or \
                 had seen what a restore undid; begin anew, from a snapshot where nothing may be \
                 missed",
            ),
            HoldConflict::Overtaken => f.write_str(
                "another consumer has begun under the same name and goes on from here; this one \
                 is over",
            ),
            HoldConflict::Undone(_) => f.write_str("a restore has undone what was read"),
            HoldConflict::Passed { .. } => f.write_str(
                "what came after that place is not kept for certain any more; begin at the oldest \
                 place that is, or from a snapshot",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
