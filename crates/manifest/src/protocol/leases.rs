//! Under which leases a reader reads (rules L1 to L5; RFC 0028).
//!
//! A reader reads *versions*: tables of one manifest each. The newest that it has is what it gives
//! to new reads; older ones live on while a scan is on them. Every version is covered by a lease,
//! which readers share: whoever finds one joins it, whoever does not commits one for all.
//!
//! ```text
//! a newer state ─► covered, for half a lifetime? ──yes──► read it, nothing is written
//!                        │ no
//!                        ├─ asked for ──────────────────► commit "cover the newest", read it
//!                        ├─ rows are missing between ───► wait a little, look again; then commit
//!                        └─ none is missing ────────────► wait long: the tables at hand will do
//! ```
//! Not a machine of its own: it says what the next commit carries, and is told what came of it.
//! Times are of two clocks: `now` of the reader's own, which runs on while the machine sleeps and
//! says when to act; `wall`, which says what is written, and is believed in nothing else.

use crate::edit::CoverVersions;
use crate::rules::{Rule, Rules};
use crate::state::{LeasedVersion, Manifest};
use siltstone_base::{AttemptId, ManifestId, UnixMillis};
use std::sync::Arc;
use std::time::Duration;

/// A lifetime has so many steps: expiries are rounded up to one, so that those who ask at about the
/// same time ask for the same. Who renews waits for up to one.
const STEPS: u32 = 8;
/// A reader that lacks no row takes newer tables up after this part of a lifetime, at the latest.
const LATEST: u32 = 16;

/// A moment, by a reader's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// By its own, which no suspension stops.
    pub now: Duration,
    /// By the wall.
    pub wall: UnixMillis,
    /// From 0 to 1, drawn afresh: how much of a pause is made, so that readers are not in step.
    pub share: f64,
}

/// Why newer tables are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Somebody waits for them, or memory does.
    Now,
    /// Rows lie between what the reader has and what they hold; it may wait for so long.
    Soon(Duration),
    /// The reader has every row that they hold.
    Sometime,
}

/// What a reader reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leases {
    lifetime: Duration,
    rules: Rules,
    /// Oldest first.
    held: Vec<HeldVersion>,
    /// The one of them that new reads use; `None` before the first, and once it was revoked.
    current: Option<ManifestId>,
    /// The newest state that it was told of, and when.
    looked: Option<(ManifestId, Duration)>,
    /// When newer tables are taken up by a commit of its own, once there are some.
    waits_until: Option<Duration>,
}

/// A version that is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HeldVersion {
    leased: LeasedVersion,
    /// A state with its tables: the newest that was met.
    state: Arc<Manifest>,
    /// When its lease ends.
    until: UnixMillis,
    /// When it is to be renewed.
    due: Duration,
}

/// An edit that is about to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Covering {
    /// The edit.
    pub edit: CoverVersions,
    /// When it was made, by the reader's own clock.
    sent: Duration,
}

impl Covering {
    /// Whether there is nothing to commit: what is due is leased for longer than is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.edit.newest && self.edit.versions.is_empty()
    }
}

impl Leases {
    /// A reader that reads nothing yet and asks for leases of `lifetime`.
    #[must_use]
    pub fn new(lifetime: Duration, rules: Rules) -> Leases {
        let (held, current, looked, waits_until) = (Vec::new(), None, None, None);
        Leases { lifetime, rules, held, current, looked, waits_until }
    }

    /// What new reads use: the leased version, and the newest state that was met with its tables.
    /// `None` before the first, and once it was revoked.
    #[must_use]
    pub fn newest(&self) -> Option<(ManifestId, &Arc<Manifest>)> {
        let current = self.current?;
        let held = self.held.iter().find(|held| held.leased.manifest_id == current)?;
        Some((current, &held.state))
    }

    /// Every version that is read, as it is leased, with a state that has its tables.
    pub fn versions(&self) -> impl Iterator<Item = (ManifestId, &Arc<Manifest>)> {
        self.held.iter().map(|held| (held.leased.manifest_id, &held.state))
    }

    /// Whether `state` has other tables than new reads use.
    #[must_use]
    pub fn is_behind(&self, state: &Manifest) -> bool {
        self.newest().is_none_or(|(_, newest)| state.tables_since > newest.id)
    }

    /// A proven state. Forgets what was revoked, takes note of what others renewed, and takes newer
    /// tables up where a lease with half a lifetime left covers them (rule L2). Whether what new
    /// reads use is another version now, or none.
    pub fn learn(&mut self, state: &Arc<Manifest>, at: Moment) -> bool {
        let before = self.looked;
        if before.is_some_and(|(seen, _)| seen > state.id) {
            return false;
        }
        self.looked = Some((state.id, at.now));
        let had = self.current;
        let mut held = std::mem::take(&mut self.held);
        held.retain_mut(|held| self.note(held, state, before.map(|(_, when)| when), at));
        self.held = held;
        let stays = |id: &ManifestId| self.held.iter().any(|one| one.leased.manifest_id == *id);
        self.current = self.current.filter(stays);
        if self.is_behind(state) {
            self.join(state, self.enough(at.wall), None, at);
        } else if let Some(held) =
            self.held.iter_mut().find(|one| Some(one.leased.manifest_id) == had)
        {
            held.state = Arc::clone(state);
        }
        self.current != had
    }

    /// Whether what `held` is of is still leased; if longer than before, its time is counted anew.
    fn note(
        &self,
        held: &mut HeldVersion,
        state: &Manifest,
        unseen: Option<Duration>,
        at: Moment,
    ) -> bool {
        let Some(lease) = state.lease_of(held.leased.manifest_id) else {
            return !self.rules.has(Rule::PinWhatIsRead);
        };
        if lease.expires_at > held.until {
            held.until = lease.expires_at;
            held.due = self.due(lease.expires_at, unseen, at);
        }
        true
    }

    /// Whether a commit of one's own is to take up the newer tables of `state`: what nobody has
    /// covered yet.
    pub fn commits(&mut self, state: &Manifest, want: Want, at: Moment) -> bool {
        if !self.is_behind(state) {
            self.waits_until = None;
            return false;
        }
        // Half of it at least, or of a thousand readers many would be first.
        let part = |pause: Duration| pause.mul_f64(f64::midpoint(1.0, at.share.clamp(0.0, 1.0)));
        let pause = match want {
            Want::Now => return true,
            Want::Soon(most) => most.mul_f64(at.share.clamp(0.0, 1.0)),
            Want::Sometime => part(self.lifetime / LATEST),
        };
        // Drawn once; a gap that opens meanwhile shortens it.
        let until = self.waits_until.unwrap_or(Duration::MAX).min(at.now.saturating_add(pause));
        self.waits_until = Some(until);
        at.now >= until
    }

    /// The moment by which something is to be done, if nothing else happens.
    #[must_use]
    pub fn next_moment(&self) -> Option<Duration> {
        self.held.iter().map(|held| held.due).chain(self.waits_until).min()
    }

    /// Whether something that is read is to be renewed.
    #[must_use]
    pub fn is_due(&self, now: Duration) -> bool {
        self.held.iter().any(|held| held.due <= now)
    }

    /// The next commit: covers the newest tables, where they are to be taken up, and whatever is
    /// read and due, or has less than half a lifetime left. It is in effect only where that lasts
    /// longer than before.
    #[must_use]
    pub fn cover(&self, newest: bool, at: Moment) -> Covering {
        let (enough, until) = (self.enough(at.wall), self.until(at.wall));
        let old = |held: &&HeldVersion| held.until < enough || held.due <= at.now;
        let old = self.held.iter().filter(old).filter(|held| held.until < until);
        let enough = old
            .clone()
            .fold(enough, |enough, held| enough.max(UnixMillis(held.until.0.saturating_add(1))));
        let versions = old.map(|held| held.leased.manifest_id).collect();
        Covering { edit: CoverVersions { newest, versions, enough, until }, sent: at.now }
    }

    /// `covering` is in effect in `state`, the newest that is known.
    pub fn committed(&mut self, covering: &Covering, state: &Arc<Manifest>, at: Moment) {
        self.learn(state, at);
        if covering.edit.newest && self.is_behind(state) {
            self.join(state, covering.edit.enough, Some(covering.sent), at);
        }
        let (current, half) = (self.current, self.lifetime / 2);
        let pause = self.pause(at.share);
        for held in &mut self.held {
            let version = held.leased.manifest_id;
            let newest = covering.edit.newest && current == Some(version);
            let asked = newest || covering.edit.versions.contains(&version);
            if asked && held.until >= covering.edit.until {
                held.due = covering.sent.saturating_add(half).saturating_add(pause);
            } else if held.due <= at.now {
                // Somebody who asks for a longer lifetime keeps it.
                held.due = at.now.saturating_add(half);
            }
        }
    }

    /// Forgets every version but the newest that nobody reads any more.
    pub fn forget_unread(&mut self, is_read: impl Fn(ManifestId) -> bool) {
        let current = self.current;
        self.held.retain(|held| {
            let version = held.leased.manifest_id;
            Some(version) == current || is_read(version)
        });
    }

    /// A table of `version` is missing: whether that is a corruption, by what was looked at since
    /// (rule L5). Else its lease was revoked, and it was collected rightly.
    #[must_use]
    pub fn is_corrupt(&self, version: ManifestId, looked: &Manifest) -> bool {
        if !self.rules.has(Rule::LookBeforeCorruption) {
            return self.versions().any(|(held, _)| held == version);
        }
        looked.lease_of(version).is_some()
    }

    /// Reads the tables of `state` if they are leased until `enough`.
    fn join(
        &mut self,
        state: &Arc<Manifest>,
        enough: UnixMillis,
        sent: Option<Duration>,
        at: Moment,
    ) {
        let leased = state.leased_newest_with(self.rules).filter(|(_, until)| *until >= enough);
        let unpinned = sent.is_some() && !self.rules.has(Rule::PinWhatIsRead);
        let nobody = || {
            let none = LeasedVersion { manifest_id: state.id, manifest_attempt: AttemptId::NONE };
            unpinned.then_some((none, enough))
        };
        let Some((leased, until)) = leased.or_else(nobody) else { return };
        let due = self.due(until, sent, at);
        self.held.retain(|held| held.leased.manifest_id != leased.manifest_id);
        self.held.push(HeldVersion { leased, state: Arc::clone(state), until, due });
        self.current = Some(leased.manifest_id);
        self.waits_until = None;
    }

    /// When what is leased until `until` is to be renewed: half a lifetime after it was certainly
    /// not yet there, or when the wall clock leaves it half a lifetime, whatever comes first; and a
    /// little later, so that of many one does it.
    fn due(&self, until: UnixMillis, unseen: Option<Duration>, at: Moment) -> Duration {
        let half = self.lifetime / 2;
        let left = Duration::from_millis(until.0.saturating_sub(at.wall.0));
        let by_wall = at.now.saturating_add(left.saturating_sub(half).min(half));
        let by_sight = unseen.map_or(Duration::MAX, |unseen| unseen.saturating_add(half));
        by_wall.min(by_sight).saturating_add(self.pause(at.share))
    }

    fn pause(&self, share: f64) -> Duration {
        (self.lifetime / STEPS).mul_f64(share.clamp(0.0, 1.0))
    }

    /// Until when something is to be covered that is worth joining.
    fn enough(&self, wall: UnixMillis) -> UnixMillis {
        UnixMillis(wall.0.saturating_add(millis(self.lifetime / 2)))
    }

    /// Until when is asked for.
    fn until(&self, wall: UnixMillis) -> UnixMillis {
        let step = millis(self.lifetime / STEPS).max(1);
        let until = wall.0.saturating_add(millis(self.lifetime));
        UnixMillis(until.div_ceil(step).saturating_mul(step))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
