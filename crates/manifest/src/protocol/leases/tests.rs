use super::*;
use crate::edit::{Edit, FlushL0};
use crate::testing::{manifest, table};
use proptest::prelude::*;
use siltstone_base::{Epoch, SstId};

const LIFETIME: Duration = Duration::from_secs(80);
/// An eighth of it.
const STEP: Duration = Duration::from_secs(10);
const HOUR: u64 = 3600;

/// The given number of seconds after the beginning, by clocks that agree.
fn at(seconds: u64) -> Moment {
    moment(seconds, HOUR + seconds)
}

fn moment(now: u64, wall: u64) -> Moment {
    Moment { now: Duration::from_secs(now), wall: UnixMillis(wall * 1000), share: 0.0 }
}

struct World(Arc<Manifest>);

impl World {
    fn new() -> World {
        World(Arc::new(Manifest { leases: Vec::new(), ..manifest() }))
    }

    /// A database that has since-leases.
    fn with_since() -> World {
        let mut state = Manifest { leases: Vec::new(), ..manifest() };
        state.features.name_for_committers(SINCE_LEASES, "0.1.0");
        World(Arc::new(state))
    }

    /// Whether a present lease covers everything that `reader` reads.
    fn covers(&self, reader: &Leases) -> bool {
        reader.versions().all(|(_, state)| self.0.cover_of(state, Rules::ALL).is_some())
    }

    fn commit(&mut self, edit: &Edit) {
        self.0 = Arc::new(edit.apply(&self.0).unwrap().written_as(AttemptId(9)));
    }

    fn flush(&mut self) {
        let seq = self.0.flushed_seq.next();
        let name = SstId(1000 + u128::from(seq.0));
        self.commit(&Edit::ReserveNames { epoch: Epoch(2), names: vec![name] });
        let flush = FlushL0 {
            layers: vec![vec![table(name, b"a", b"z", seq.0, seq.0)]],
            flushed_seq: seq,
            ..FlushL0::nothing(Epoch(2), &self.0)
        };
        self.commit(&Edit::FlushL0(flush));
    }

    fn revoke(&mut self, seconds: u64) {
        let now = UnixMillis((HOUR + seconds) * 1000);
        self.commit(&Edit::RevokeExpired { ids: vec![], now });
    }

    /// As a driver does: looks, and commits if necessary. Returns whether it committed.
    fn turn(&mut self, reader: &mut Leases, want: Want, at: Moment) -> bool {
        reader.learn(&self.0, at);
        let newest = reader.commits(&self.0, want, at);
        if !newest && !reader.is_due(at.now) {
            return false;
        }
        let covering = reader.cover(newest, at);
        let before = self.0.id;
        let edit = Edit::CoverVersions(covering.edit.clone());
        if !edit.in_effect(&self.0) {
            self.commit(&edit);
        }
        reader.committed(&covering, &self.0, at);
        self.0.id != before
    }
}

fn reader() -> Leases {
    Leases::new(Lifetimes::points(LIFETIME), Rules::ALL)
}

const SINCE: Duration = Duration::from_secs(20);

/// A reader of a database with since-leases of 20 s; point leases last for at most 600 s.
fn since() -> Leases {
    let lifetimes = Lifetimes { since: Some(SINCE), point: Duration::from_secs(600) };
    Leases::new(lifetimes, Rules::ALL)
}

fn version(reader: &Leases) -> u64 {
    reader.newest().map_or(0, |(version, _)| version.get())
}

#[test]
fn the_first_commits_and_all_others_join_by_reading() {
    let mut world = World::new();
    let mut first = reader();
    assert!(world.turn(&mut first, Want::Now, at(0)));
    for n in 1..100 {
        let mut next = reader();
        assert!(!world.turn(&mut next, Want::Now, at(n % 30)));
        assert_eq!(version(&next), version(&first));
    }
    // Less than half of its lifetime is left.
    assert!(world.turn(&mut reader(), Want::Now, at(60)));
}

/// L2: a lease on older tables does not count.
#[test]
fn an_older_lease_is_not_joined() {
    let mut world = World::new();
    world.turn(&mut reader(), Want::Now, at(0));
    world.flush();
    let mut second = reader();
    second.learn(&world.0, at(1));
    assert_eq!(version(&second), 0);
    assert!(world.turn(&mut second, Want::Now, at(1)));
    assert_eq!(version(&second), world.0.id.get());
}

#[test]
fn one_of_many_renews_at_half_life() {
    let mut world = World::new();
    let mut fleet: Vec<Leases> = (0..50).map(|_| reader()).collect();
    let mut commits = 0;
    for second in 0..400u64 {
        for (n, reader) in fleet.iter_mut().enumerate() {
            // Each reader looks at its own second of ten.
            if second == 0 || second % 10 == n as u64 % 10 {
                let at = Moment { share: n as f64 / 50.0, ..at(second) };
                commits += u64::from(world.turn(reader, Want::Now, at));
            }
        }
        if second % 7 == 0 {
            world.revoke(second);
        }
        assert!(fleet.iter().all(|reader| reader.newest().is_some()));
        assert_eq!(world.0.leases.len(), 1);
    }
    // One at the beginning, and one per half lifetime.
    assert!((8..=11).contains(&commits), "{commits}");
}

/// L4: a reader that leaves ends no lease; a scan is covered for as long as it lasts.
#[test]
fn a_scan_is_covered_for_as_long_as_it_lasts() {
    let mut world = World::new();
    let (mut leaves, mut scans) = (reader(), reader());
    world.turn(&mut leaves, Want::Now, at(0));
    world.turn(&mut scans, Want::Now, at(0));
    drop(leaves);
    let old = scans.newest().unwrap().0;
    for second in (5..2000).step_by(5) {
        if second % 100 == 0 {
            world.flush();
        }
        world.turn(&mut scans, Want::Now, at(second));
        world.revoke(second);
        scans.forget_unread(|version| version == old);
        assert!(world.0.lease_of(old).is_some(), "at {second}");
        assert!(world.0.leases.len() <= 3);
    }
    scans.forget_unread(|_| false);
    for second in (2000..2200).step_by(5) {
        world.turn(&mut scans, Want::Now, at(second));
        world.revoke(second);
    }
    assert!(world.0.lease_of(old).is_none());
    assert_eq!(world.0.leases.len(), 1);
}

/// L5: by the wall clock alone a suspended machine would continue to read for an hour.
#[test]
fn a_look_tells_of_a_revoked_lease() {
    let mut world = World::new();
    let mut slept = reader();
    world.turn(&mut slept, Want::Now, at(0));
    let old = slept.newest().unwrap().0;
    world.flush();
    world.revoke(HOUR);
    assert!(!slept.is_corrupt(old, &world.0));
    assert!(slept.learn(&world.0, at(HOUR)));
    assert_eq!(slept.newest(), None);
    assert!(world.turn(&mut slept, Want::Now, at(HOUR)));
    assert!(slept.is_corrupt(slept.newest().unwrap().0, &world.0));
}

#[test]
fn half_life_counts_from_what_was_seen_and_from_the_sending() {
    let mut world = World::new();
    let (mut mine, mut theirs) = (reader(), reader());
    world.turn(&mut mine, Want::Now, at(0));
    assert_eq!(mine.next_moment(), Some(LIFETIME / 2));
    world.turn(&mut theirs, Want::Now, at(39));
    // Another reader renews at 45; a look at 42 did not show it, one at 48 does.
    mine.learn(&world.0, at(42));
    world.turn(&mut theirs, Want::Now, at(45));
    mine.learn(&world.0, at(48));
    assert_eq!(mine.next_moment(), Some(Duration::from_secs(42) + LIFETIME / 2));
    // A wall clock that is an hour behind sees an hour more; half of a lifetime is the maximum.
    let mut behind = reader();
    behind.learn(&world.0, moment(50, 50));
    assert_eq!(behind.next_moment(), Some(Duration::from_secs(50) + LIFETIME / 2));
}

/// L3: a reader that lacks no row waits for another reader to commit, for a part of a lifetime.
#[test]
fn a_reader_that_lacks_no_row_waits_for_others() {
    let mut world = World::new();
    let (mut patient, mut first) = (reader(), reader());
    world.turn(&mut patient, Want::Now, at(0));
    world.flush();
    assert!(!world.turn(&mut patient, Want::Sometime, at(1)));
    assert!(patient.is_behind(&world.0));
    assert!(!world.turn(&mut patient, Want::Sometime, at(2)));
    assert!(world.turn(&mut patient, Want::Sometime, at(4)), "a sixteenth of 80 s, or half of it");
    world.flush();
    let soon = Moment { share: 0.5, ..at(10) };
    assert!(!world.turn(&mut patient, Want::Soon(Duration::from_secs(2)), soon));
    assert!(!world.turn(&mut patient, Want::Sometime, Moment { share: 1.0, ..at(10) }));
    assert_eq!(patient.next_moment(), Some(Duration::from_secs(11)));
    world.turn(&mut first, Want::Now, at(10));
    let before = world.0.id;
    world.turn(&mut patient, Want::Sometime, at(11));
    assert_eq!((version(&patient), world.0.id), (version(&first), before));
}

/// Another reader requests a longer lease: there is nothing to renew.
#[test]
fn a_longer_lease_is_left_alone() {
    let mut world = World::new();
    let mut long = Leases::new(Lifetimes::points(LIFETIME * 100), Rules::ALL);
    world.turn(&mut long, Want::Now, at(0));
    let mut short = reader();
    let commits = (0..600).filter(|second| world.turn(&mut short, Want::Now, at(*second))).count();
    assert_eq!(commits, 0);
}

#[test]
fn expiries_are_rounded_up_to_an_eighth() {
    let mut world = World::new();
    world.turn(&mut reader(), Want::Now, at(3));
    let until = world.0.leases[0].expires_at;
    let step = u64::try_from(STEP.as_millis()).unwrap();
    assert_eq!(until.0 % step, 0);
    assert!((83_000..93_000).contains(&(until.0 - HOUR * 1000)), "{until:?}");
}

/// 100 changes of tables a second for ten minutes, and 20 readers: at most one commit per half
/// lifetime, few records, and never a reader without a lease.
#[test]
fn readers_beside_a_busy_writer_commit_once_each_half_life() {
    let mut world = World::with_since();
    let mut fleet: Vec<Leases> = (0..20).map(|_| since()).collect();
    let (mut commits, mut most) = (0, 0);
    for second in 0..600u64 {
        for tick in 0..100 {
            // Flushed tables are compacted immediately, so that the tree stays small.
            let mut next = Manifest::clone(&world.0);
            (next.id, next.tables_since) = (next.id.next(), next.id.next());
            world.0 = Arc::new(next);
            let who = tick % fleet.len();
            let at = Moment { share: who as f64 / 20.0, ..at(second) };
            commits += usize::from(world.turn(&mut fleet[who], Want::Soon(SINCE / 20), at));
            assert!(world.covers(&fleet[who]));
            fleet[who].forget_unread(|_| false);
        }
        if second % 7 == 0 {
            world.revoke(second);
        }
        most = most.max(world.0.since_leases.len() + world.0.leases.len());
        let kept = world.0.kept_from().unwrap().get();
        assert!(second < 40 || world.0.id.get() - kept < 100 * 40, "at {second}");
    }
    assert!(commits <= 61, "{commits} commits");
    assert!(most <= 6, "{most} records");
}

/// A scan that outlasts a since-lease keeps its own version, and nothing else.
#[test]
fn a_long_scan_goes_on_under_a_point_lease() {
    let mut world = World::with_since();
    let mut reader = since();
    world.turn(&mut reader, Want::Now, at(0));
    let old = reader.newest().unwrap().0;
    for second in 1..2000 {
        if second % 3 == 0 {
            world.flush();
        }
        world.turn(&mut reader, Want::Soon(SINCE / 20), at(second));
        world.revoke(second);
        reader.forget_unread(|version| version == old);
        assert!(world.covers(&reader), "at {second}");
        // The version that it leaves while it renews counts as read.
        assert!(world.0.leased_versions() <= 2, "at {second}");
        if second > 40 {
            assert!(world.0.id.get() - world.0.kept_from().unwrap().get() < 60, "at {second}");
        }
    }
    assert!(reader.versions().any(|(version, _)| version == old));
    reader.forget_unread(|_| false);
    for second in 2000..2100 {
        world.flush();
        world.turn(&mut reader, Want::Soon(SINCE / 20), at(second));
        world.revoke(second);
        reader.forget_unread(|_| false);
    }
    assert!(world.0.leased_versions() <= 2 && world.0.lease_of(old).is_none());
}

/// An idle database: its readers commit a few times, then once in five minutes.
#[test]
fn at_rest_a_point_lease_lasts_longer_and_longer() {
    let mut world = World::with_since();
    let mut fleet: Vec<Leases> = (0..30).map(|_| since()).collect();
    let mut commits = Vec::new();
    for second in 0..7200u64 {
        for (n, reader) in fleet.iter_mut().enumerate() {
            if second == 0 || second % 10 == n as u64 % 10 {
                let at = Moment { share: n as f64 / 30.0, ..at(second) };
                if world.turn(reader, Want::Sometime, at) {
                    commits.push(second);
                }
                assert!(world.covers(reader));
            }
        }
        if second % 60 == 0 {
            world.revoke(second);
        }
    }
    assert!(commits.len() <= 40, "{commits:?}");
    let late = commits.iter().filter(|second| **second >= 3600).count();
    assert!(late <= 14, "{commits:?}");
    // The first change of tables is covered by a since-lease again.
    world.flush();
    assert!(world.turn(&mut fleet[0], Want::Now, at(7200)));
    assert_eq!(world.0.since_leases.len(), 1);
    assert!(!world.turn(&mut fleet[1], Want::Now, at(7200)));
}

/// A reader that slept for two lifetimes learns of it, and continues from the newest state.
#[test]
fn a_since_lease_that_was_dropped_does_not_come_back() {
    let mut world = World::with_since();
    let mut slept = since();
    world.turn(&mut slept, Want::Now, at(0));
    let old = slept.newest().unwrap().0;
    world.flush();
    world.revoke(60);
    assert!(!slept.is_corrupt(old, &world.0));
    let covering = slept.cover(false, at(60));
    world.commit(&Edit::CoverVersions(covering.edit.clone()));
    slept.committed(&covering, &world.0, at(60));
    assert_eq!((slept.newest(), slept.versions().count()), (None, 0));
    assert_eq!((world.0.kept_from(), world.0.leased_versions()), (None, 0));
    assert!(world.turn(&mut slept, Want::Now, at(60)));
    assert!(world.0.kept_from().unwrap() > old && world.covers(&slept));
}

/// Without the feature a reader uses point leases, which older versions know.
#[test]
fn a_database_without_since_leases_gets_none() {
    let mut world = World::new();
    let mut reader = since();
    assert!(world.turn(&mut reader, Want::Now, at(0)));
    assert_eq!((world.0.since_leases.len(), world.0.leased_versions()), (0, 1));
}

/// One step of a story.
#[derive(Clone, Copy, Debug)]
enum StoryStep {
    Flush,
    Revoke,
    EndScans,
    Turn(Want),
}

/// The reader, the step, the seconds before it, and the reader's share of a pause.
type Story = Vec<(usize, StoryStep, u64, u8)>;

/// Steps with these weights: flush, revocation, end of scans, an urgent turn, a patient turn.
fn any_story(
    weights: [u32; 5],
    pauses: std::ops::Range<u64>,
    most: usize,
) -> impl Strategy<Value = Story> {
    let [flush, revoke, end, now, sometime] = weights;
    let step = prop_oneof![
        flush => Just(StoryStep::Flush),
        revoke => Just(StoryStep::Revoke),
        end => Just(StoryStep::EndScans),
        now => Just(StoryStep::Turn(Want::Now)),
        sometime => Just(StoryStep::Turn(Want::Sometime)),
    ];
    prop::collection::vec((0..4usize, step, pauses, 0..100u8), 1..most)
}

/// Four readers live through `story`. A reader that acted within three eighths of `life` without an
/// error is covered: it renews at half of the lifetime, at most an eighth later.
fn check_story(
    mut world: World,
    reader: fn() -> Leases,
    life: Duration,
    story: Story,
    is_covered: impl Fn(&World, &Leases) -> bool,
) -> Result<(), TestCaseError> {
    let mut fleet: Vec<Leases> = (0..4).map(|_| reader()).collect();
    let mut acted = [0; 4];
    let mut second = 0;
    for (who, step, pause, share) in story {
        second += pause;
        match step {
            StoryStep::Flush => world.flush(),
            StoryStep::Revoke => world.revoke(second),
            StoryStep::EndScans => fleet[who].forget_unread(|_| false),
            StoryStep::Turn(want) => {
                let at = Moment { share: f64::from(share) / 100.0, ..at(second) };
                world.turn(&mut fleet[who], want, at);
                acted[who] = second;
            }
        }
        prop_assert!(world.0.leases.len() <= crate::state::MOST_LEASES);
        prop_assert!(world.0.since_leases.len() <= crate::state::MOST_SINCE_LEASES);
        for (reader, acted) in fleet.iter().zip(acted) {
            if second <= acted + life.as_secs() * 3 / 8 {
                prop_assert!(is_covered(&world, reader), "at {second}");
            }
        }
    }
    Ok(())
}

proptest! {
    /// Readers that look, scan, end scans and sleep, beside flushes and revocations at any moment.
    #[test]
    fn every_read_version_is_covered(story in any_story([1, 1, 1, 1, 2], 0..5, 200)) {
        let leased = |world: &World, reader: &Leases| {
            reader.versions().all(|(version, _)| world.0.lease_of(version).is_some())
        };
        check_story(World::new(), reader, LIFETIME, story, leased)?;
    }

    /// The same under since-leases, with scans that continue.
    #[test]
    fn every_read_version_has_a_since_lease(story in any_story([2, 1, 1, 3, 1], 0..4, 300)) {
        check_story(World::with_since(), since, SINCE, story, World::covers)?;
    }
}
