//! The leases under which a reader reads (rules L1 to L9; RFC 0028, RFC 0048).
//!
//! A reader reads *versions*: the tables of one manifest each. New reads use its newest version;
//! older versions stay as long as a scan uses them. Every version is covered by a lease, which
//! readers share: a reader joins an existing lease, or commits one for all readers.
//!
//! ```text
//! a newer state ─► covered, for half a lifetime? ──yes──► read it, nothing is written
//!                        │ no
//!                        ├─ asked for ──────────────────► commit "cover the newest", read it
//!                        ├─ rows are missing between ───► wait a little, look again; then commit
//!                        └─ none is missing ────────────► wait long: the known tables suffice
//! ```
//! A commit covers the newest version and all later ones by a short since-lease. A point lease
//! covers a single version: for a scan that lasts longer than the since-lease under which it began,
//! and for an idle database, for a time that grows with the time it has been idle.
//!
//! This is not a step function: it says what the next commit contains, and is told the result. It
//! uses two clocks: `now` of the reader, which continues while the machine is suspended and decides
//! when to act, and `wall`, which is written to the manifest and is not used for any other
//! decision.

use crate::edit::CoverVersions;
use crate::features::SINCE_LEASES;
use crate::rules::{Rule, Rules};
use crate::state::{Cover, LeasedVersion, MOST_LEASED, Manifest};
use siltstone_base::{AttemptId, ManifestId, UnixMillis};
use std::sync::Arc;
use std::time::Duration;

/// Number of steps of a lifetime: expiries are rounded up to a step, so that readers that ask at
/// about the same time ask for the same expiry. A renewal waits for up to one step.
const STEPS: u32 = 8;
/// A reader that lacks no row switches to newer tables after this fraction of a lifetime at the
/// latest.
const LATEST: u32 = 16;
/// An idle database is covered for this many times the time it has been idle.
const TIMES_AT_REST: u32 = 4;

/// The lifetimes of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lifetimes {
    /// Lifetime of since-leases; `None`: they are not used.
    pub since: Option<Duration>,
    /// Maximum lifetime of point leases.
    pub point: Duration,
}

impl Lifetimes {
    /// For readers that use only point leases.
    #[must_use]
    pub fn points(point: Duration) -> Lifetimes {
        Lifetimes { since: None, point }
    }
}

/// A point in time, by the clocks of a reader.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The reader's own clock, which continues while the machine is suspended.
    pub now: Duration,
    /// The wall clock.
    pub wall: UnixMillis,
    /// A fresh random number from 0 to 1, which shortens pauses so that readers are not
    /// synchronised.
    pub share: f64,
}

/// Why newer tables are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A caller waits for them, or memory must be freed.
    Now,
    /// Rows between the state of the reader and the newer tables are missing; it may wait for this
    /// long.
    Soon(Duration),
    /// The reader has every row of the newer tables.
    Sometime,
}

/// The versions that a reader reads, with their leases.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leases {
    lifetimes: Lifetimes,
    rules: Rules,
    /// Oldest first.
    held: Vec<HeldVersion>,
    /// The version that new reads use; `None` before the first, and once it was revoked.
    current: Option<ManifestId>,
    /// The newest state that it has learned of, and when.
    looked: Option<(Arc<Manifest>, Duration)>,
    /// When it commits a lease of its own on newer tables, if there are any.
    waits_until: Option<Duration>,
}

/// A version that is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HeldVersion {
    /// The key of the version for reads: the version that was leased when it was taken up.
    key: ManifestId,
    /// The version that its lease names; under a since-lease, the newest version met with the same
    /// tables.
    leased: LeasedVersion,
    /// The newest state met with its tables.
    state: Arc<Manifest>,
    /// When it was taken up, by the reader's own clock.
    taken: Duration,
    /// The expiry of its lease.
    until: UnixMillis,
    /// When the lease must be renewed.
    due: Duration,
}

/// A lease edit that is about to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeasedEdit {
    /// The edit.
    pub edit: CoverVersions,
    /// When it was made, by the reader's own clock.
    sent: Duration,
}

impl LeasedEdit {
    /// Whether there is nothing to commit, because every due version is leased for longer than
    /// requested.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.covers_newest() && self.edit.versions.is_empty()
    }

    /// Whether it covers the newest tables.
    #[must_use]
    pub fn covers_newest(&self) -> bool {
        self.edit.newest || self.edit.since.is_some()
    }
}

impl Leases {
    /// A reader that reads nothing yet and requests leases with `lifetimes`.
    #[must_use]
    pub fn new(lifetimes: Lifetimes, rules: Rules) -> Leases {
        let (held, current, looked, waits_until) = (Vec::new(), None, None, None);
        Leases { lifetimes, rules, held, current, looked, waits_until }
    }

    /// The version that new reads use: the leased version, and the newest state met with its
    /// tables. `None` before the first, and once it was revoked.
    #[must_use]
    pub fn newest(&self) -> Option<(ManifestId, &Arc<Manifest>)> {
        let current = self.current?;
        let held = self.held.iter().find(|held| held.key == current)?;
        Some((current, &held.state))
    }

    /// Every version that is read: the leased version, with a state that has its tables.
    pub fn versions(&self) -> impl Iterator<Item = (ManifestId, &Arc<Manifest>)> {
        self.held.iter().map(|held| (held.key, &held.state))
    }

    /// Whether `state` has other tables than new reads use.
    #[must_use]
    pub fn is_behind(&self, state: &Manifest) -> bool {
        self.newest().is_none_or(|(_, newest)| state.tables_since > newest.id)
    }

    /// Learns a proven state: forgets revoked versions, notes renewals by other readers, and takes
    /// up newer tables if a lease with half a lifetime left covers them (rule L2). Returns whether
    /// new reads use another version now, or none.
    pub fn learn(&mut self, state: &Arc<Manifest>, at: Moment) -> bool {
        if self.looked.as_ref().is_some_and(|(seen, _)| seen.id > state.id) {
            return false;
        }
        let before = self.looked.replace((Arc::clone(state), at.now)).map(|(_, when)| when);
        let had = self.current;
        let mut held = std::mem::take(&mut self.held);
        if let Some(current) = held.iter_mut().find(|one| Some(one.key) == had)
            && state.tables_since <= current.state.id
        {
            current.state = Arc::clone(state);
        }
        held.retain_mut(|held| self.note(held, state, before, at));
        self.held = held;
        let stays = |key: &ManifestId| self.held.iter().any(|one| one.key == *key);
        self.current = self.current.filter(stays);
        if self.is_behind(state) {
            self.join(state, self.enough(at.wall), None, at);
        }
        self.current != had
    }

    /// Whether the version of `held` is still leased; if the lease was extended, its renewal time
    /// is computed again.
    fn note(
        &self,
        held: &mut HeldVersion,
        state: &Manifest,
        unseen: Option<Duration>,
        at: Moment,
    ) -> bool {
        let Some(cover) = state.cover_of(&held.state, self.rules) else {
            return !self.rules.has(Rule::PinWhatIsRead);
        };
        held.leased = cover.version;
        if cover.until > held.until {
            held.until = cover.until;
            held.due = self.due(cover, unseen, at);
        }
        true
    }

    /// Whether this reader must commit a lease on the newer tables of `state`, because no reader
    /// has covered them.
    pub fn commits(&mut self, state: &Manifest, want: Want, at: Moment) -> bool {
        if !self.is_behind(state) {
            self.waits_until = None;
            return false;
        }
        // At least half of the pause: otherwise, of a thousand readers, many would commit first.
        let part = |pause: Duration| pause.mul_f64(f64::midpoint(1.0, at.share.clamp(0.0, 1.0)));
        let pause = match want {
            Want::Now => return true,
            Want::Soon(most) => most.mul_f64(at.share.clamp(0.0, 1.0)),
            Want::Sometime => part(self.lifetimes.point / LATEST),
        };
        // Drawn once; a gap of rows that opens meanwhile shortens it.
        let until = self.waits_until.unwrap_or(Duration::MAX).min(at.now.saturating_add(pause));
        self.waits_until = Some(until);
        at.now >= until
    }

    /// The time of the next action, if nothing else happens.
    #[must_use]
    pub fn next_moment(&self) -> Option<Duration> {
        self.held.iter().map(|held| held.due).chain(self.waits_until).min()
    }

    /// Whether a version that is read must be renewed.
    #[must_use]
    pub fn is_due(&self, now: Duration) -> bool {
        self.held.iter().any(|held| held.due <= now)
    }

    /// The next commit. It covers the newest tables, if they are to be taken up, and every version
    /// that is read and is due or has less than half a lifetime left. It is in effect only if the
    /// leases last longer than before.
    #[must_use]
    pub fn cover(&self, newest: bool, at: Moment) -> LeasedEdit {
        let since = self.since();
        // Under a since-lease, covering newer tables costs nothing more.
        let behind = self.looked.as_ref().is_some_and(|(state, _)| self.is_behind(state));
        let newest = newest || (behind && since.is_some());
        let rested = self.rested(at.now);
        // An idle version is covered for long by a point lease; otherwise the newest and later ones
        // are.
        let by_since =
            since.filter(|life| newest || rested.is_none_or(|rested| rested < *life / 2));
        let point = match (since, rested) {
            (None, _) => self.lifetimes.point,
            (Some(life), Some(rested)) if !newest => {
                rested.saturating_mul(TIMES_AT_REST).min(self.lifetimes.point).max(life)
            }
            (Some(life), _) => life,
        };
        let (enough, until) = (self.enough(at.wall), self.until(at.wall, point));
        let mut edit = CoverVersions { since: None, newest, versions: Vec::new(), enough, until };
        if let Some(life) = since.filter(|_| newest) {
            (edit.newest, edit.since) = (false, Some(self.until(at.wall, life)));
        }
        for held in &self.held {
            if held.until >= enough && held.due > at.now {
                continue;
            }
            let is_newest = Some(held.key) == self.current && !newest;
            match by_since {
                Some(life) if is_newest => {
                    let until = self.until(at.wall, life);
                    if held.until < until {
                        edit.since = Some(until);
                        edit.enough = edit.enough.max(after(held.until));
                    }
                }
                _ if held.until < until => {
                    edit.versions.push(held.leased);
                    edit.enough = edit.enough.max(after(held.until));
                }
                _ => {}
            }
        }
        LeasedEdit { edit, sent: at.now }
    }

    /// The edit `covering` is in effect in `state`, the newest known state.
    pub fn committed(&mut self, covering: &LeasedEdit, state: &Arc<Manifest>, at: Moment) {
        self.learn(state, at);
        if covering.covers_newest() && self.is_behind(state) {
            self.join(state, covering.edit.enough, Some(covering.sent), at);
        }
        let (current, shortest, pause) = (self.current, self.shortest(), self.pause(at.share));
        for held in &mut self.held {
            let newest = covering.covers_newest() && current == Some(held.key);
            let asked = match newest {
                true => covering.edit.since.or(Some(covering.edit.until)),
                false => Some(covering.edit.until)
                    .filter(|_| covering.edit.versions.contains(&held.leased)),
            };
            if let Some(until) = asked.filter(|until| held.until >= *until) {
                let life = Duration::from_millis(until.0.saturating_sub(at.wall.0));
                held.due = covering.sent.saturating_add(life / 2).saturating_add(pause);
            } else if held.due <= at.now {
                // A reader that requests a longer lifetime keeps it.
                held.due = at.now.saturating_add(shortest / 2);
            }
        }
    }

    /// Forgets every version, except the newest, that is no longer read.
    pub fn forget_unread(&mut self, is_read: impl Fn(ManifestId) -> bool) {
        let current = self.current;
        self.held.retain(|held| Some(held.key) == current || is_read(held.key));
    }

    /// A table of `version` is missing: whether this is a corruption, judged by the later state
    /// `looked` (rule L5). If it is not, the lease was revoked and the table was collected
    /// correctly.
    #[must_use]
    pub fn is_corrupt(&self, version: ManifestId, looked: &Manifest) -> bool {
        let held = self.held.iter().find(|held| held.key == version);
        if !self.rules.has(Rule::LookBeforeCorruption) {
            return held.is_some();
        }
        held.is_some_and(|held| self.is_covered(&held.state, looked))
    }

    /// Whether `version`, a state up to `newest`, is under a lease in `newest`, as far as this
    /// reader knows.
    #[must_use]
    pub fn is_covered(&self, version: &Manifest, newest: &Manifest) -> bool {
        newest.cover_of(version, self.rules).is_some()
    }

    /// Reads the tables of `state` if they are leased until `enough`.
    fn join(
        &mut self,
        state: &Arc<Manifest>,
        enough: UnixMillis,
        sent: Option<Duration>,
        at: Moment,
    ) {
        let cover = state.cover_of(state, self.rules).filter(|cover| cover.until >= enough);
        let unpinned = sent.is_some() && !self.rules.has(Rule::PinWhatIsRead);
        let unleased = || {
            let version =
                LeasedVersion { manifest_id: state.id, manifest_attempt: AttemptId::NONE };
            unpinned.then_some(Cover { version, until: enough, is_since: false })
        };
        let Some(cover) = cover.or_else(unleased) else { return };
        let (leased, until) = (cover.version, cover.until);
        let (key, due) = (leased.manifest_id, self.due(cover, sent, at));
        self.held.retain(|held| held.key != key);
        let (state, taken) = (Arc::clone(state), at.now);
        self.held.push(HeldVersion { key, leased, state, taken, until, due });
        self.current = Some(key);
        self.waits_until = None;
    }

    /// The lifetime of since-leases, if the database has them.
    fn since(&self) -> Option<Duration> {
        let has = |(state, _): &(Arc<Manifest>, Duration)| state.features.names(SINCE_LEASES);
        self.lifetimes.since.filter(|_| self.looked.as_ref().is_some_and(has))
    }

    fn shortest(&self) -> Duration {
        self.since().unwrap_or(self.lifetimes.point)
    }

    /// For how long the tables that new reads use are unchanged; `None` if there is no room for a
    /// point lease on them, or before the first version.
    fn rested(&self, now: Duration) -> Option<Duration> {
        let current = self.held.iter().find(|held| Some(held.key) == self.current)?;
        let room = current.state.leased_versions() < MOST_LEASED;
        room.then(|| now.saturating_sub(current.taken))
    }

    /// When a version leased until `cover.until` must be renewed: half a lifetime after the last
    /// time at which the lease certainly did not exist, or when the wall clock leaves half a
    /// lifetime, whichever is first; and a little later, so that one of many readers does it. Point
    /// leases of a database with since-leases are renewed according to their remaining time, if
    /// that is longer.
    fn due(&self, cover: Cover, unseen: Option<Duration>, at: Moment) -> Duration {
        let left = Duration::from_millis(cover.until.0.saturating_sub(at.wall.0));
        let half = match self.since() {
            Some(life) if !cover.is_since && left > life * 2 => {
                (left / 2).min(self.lifetimes.point / 2)
            }
            _ => self.shortest() / 2,
        };
        let by_wall = at.now.saturating_add(left.saturating_sub(half).min(half));
        let by_sight = unseen.map_or(Duration::MAX, |unseen| unseen.saturating_add(half));
        by_wall.min(by_sight).saturating_add(self.pause(at.share))
    }

    fn pause(&self, share: f64) -> Duration {
        (self.shortest() / STEPS).mul_f64(share.clamp(0.0, 1.0))
    }

    /// The minimum expiry of a lease that is worth joining.
    fn enough(&self, wall: UnixMillis) -> UnixMillis {
        UnixMillis(wall.0.saturating_add(millis(self.shortest() / 2)))
    }

    /// The expiry to request for a lease with lifetime `life`.
    fn until(&self, wall: UnixMillis, life: Duration) -> UnixMillis {
        let step = millis(life / STEPS).max(1);
        let until = wall.0.saturating_add(millis(life));
        UnixMillis(until.div_ceil(step).saturating_mul(step))
    }
}

/// The time directly after `moment`.
fn after(moment: UnixMillis) -> UnixMillis {
    UnixMillis(moment.0.saturating_add(1))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
