//! Compares the window with a list of all commits.

use super::*;
use crate::writer::transaction::footprint::KeySpan;
use proptest::collection::vec;
use proptest::prelude::*;

/// An operation on a window.
#[derive(Clone, Debug)]
enum Event {
    Commit(Vec<(u8, Option<u8>)>),
    Begin,
    /// One of the open transactions ends.
    End(usize),
    /// One of the open transactions validates a key and a range.
    Check(usize, u8, (u8, u8)),
    /// The same in two steps, the first outside of the lock.
    CheckInSteps(usize, u8, (u8, u8)),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let letter = || 0u8..12;
    let touched = (letter(), prop::option::weighted(0.2, letter()));
    let one = prop_oneof![
        6 => vec(touched, 1..5).prop_map(Event::Commit),
        2 => Just(Event::Begin),
        1 => any::<usize>().prop_map(Event::End),
        3 => (any::<usize>(), letter(), (letter(), letter()))
            .prop_map(|(one, key, range)| Event::Check(one, key, range)),
        3 => (any::<usize>(), letter(), (letter(), letter()))
            .prop_map(|(one, key, range)| Event::CheckInSteps(one, key, range)),
    ];
    vec(one, 1..60)
}

/// Long keys, so that a few commits fill a chunk.
fn key(letter: u8) -> Vec<u8> {
    let mut key = vec![b'k'; 10_000];
    key.push(letter);
    key
}

fn footprint(one: u8, (from, to): (u8, u8)) -> Footprint {
    let range = KeySpan { start: key(from), end: Some(key(to)) };
    Footprint::new(&[key(one)].into_iter().collect(), vec![range])
}

/// A window, and all commits.
struct World {
    window: CommitWindow,
    all: Vec<(Seq, u8, Option<u8>)>,
    open: Vec<Seq>,
    newest: Seq,
}

impl World {
    fn new(most_bytes: usize) -> World {
        World { window: CommitWindow::new(most_bytes), all: vec![], open: vec![], newest: Seq(7) }
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Commit(touched) => {
                self.newest = self.newest.plus(touched.len() as u64);
                for (one, end) in touched {
                    let end = end.filter(|end| end > one);
                    self.all.push((self.newest, *one, end));
                    if self.window.is_on() {
                        let (start, end) = (key(*one), end.map(key));
                        let touched = match &end {
                            Some(end) => CommitFootprint::Span(&start, end),
                            None => CommitFootprint::Key(&start),
                        };
                        self.window.note(self.newest, touched);
                    }
                }
            }
            Event::Begin => {
                self.window.register(self.newest);
                self.open.push(self.newest);
            }
            Event::End(one) if !self.open.is_empty() => {
                let seq = self.open.swap_remove(one % self.open.len());
                self.window.release(seq);
            }
            Event::Check(one, at, range) if !self.open.is_empty() => {
                let seq = self.open[one % self.open.len()];
                let checked = self.window.check(seq, &footprint(*at, *range)).is_ok();
                self.judge(seq, (*at, *range), checked);
            }
            Event::CheckInSteps(one, at, range) if !self.open.is_empty() => {
                let seq = self.open[one % self.open.len()];
                let footprint = footprint(*at, *range);
                let above = self.window.above(seq);
                let checked = above.is_ok_and(|stretch| match stretch {
                    Some(stretch) if stretch.clash(seq, &footprint).is_some() => false,
                    Some(stretch) => {
                        assert_eq!(stretch.until, self.newest.max(seq));
                        self.window.check(stretch.until, &footprint).is_ok()
                    }
                    None => self.window.check(seq, &footprint).is_ok(),
                });
                self.judge(seq, (*at, *range), checked);
            }
            _ => {}
        }
        assert_eq!(self.window.is_on(), !self.open.is_empty());
        assert!(self.window.is_on() || self.window.is_empty());
        assert!(self.window.bytes <= self.window.most_bytes.max(CHUNK_BYTES + 2 * 65_535 + 16));
    }

    /// The window accepts only what the list accepts, and refuses nothing else unless it has
    /// dropped commits.
    fn judge(&self, seq: Seq, (at, (from, to)): (u8, (u8, u8)), checked: bool) {
        let minds = |one: u8, end: Option<u8>| match end {
            None => one == at || (from <= one && one < to),
            Some(end) => (one <= at && at < end) || (from.max(one) < to.min(end)),
        };
        let overtaken = self.all.iter().any(|(of, one, end)| *of > seq && minds(*one, *end));
        let forgotten = seq < self.window.floor;
        assert_eq!(checked, !overtaken && !forgotten, "{seq:?}, floor {:?}", self.window.floor);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_window_says_what_the_list_says(events in events()) {
        let mut world = World::new(usize::MAX);
        for event in &events {
            world.apply(event);
            assert!(world.open.iter().all(|seq| *seq >= world.window.floor));
        }
    }

    #[test]
    fn a_small_one_forgets_and_says_so(events in events()) {
        let mut world = World::new(100_000);
        events.iter().for_each(|event| world.apply(event));
    }
}

#[test]
fn without_an_open_transaction_nothing_is_held() {
    let mut window = CommitWindow::new(1 << 20);
    assert!(!window.is_on());
    window.register(Seq(5));
    window.register(Seq(5));
    for seq in 6..100 {
        window.note(Seq(seq), CommitFootprint::Key(&key(1)));
    }
    window.release(Seq(5));
    assert!(window.is_on() && !window.is_empty());
    window.release(Seq(5));
    assert!(!window.is_on() && window.is_empty());
    // Later commits do not need the earlier ones.
    window.register(Seq(99));
    assert!(window.check(Seq(99), &footprint(1, (0, 12))).is_ok());
}

#[test]
fn unneeded_commits_are_dropped() {
    let mut window = CommitWindow::new(usize::MAX);
    window.register(Seq(5));
    for seq in 6..100 {
        window.note(Seq(seq), CommitFootprint::Key(&key(1)));
    }
    let all = window.bytes;
    window.register(Seq(99));
    window.release(Seq(5));
    // All but the open chunk.
    assert!(window.bytes < CHUNK_BYTES && all > 900_000, "{} of {all}", window.bytes);
}

#[test]
fn over_its_bytes_the_oldest_go_and_their_transactions_are_told() {
    let mut window = CommitWindow::new(CHUNK_BYTES * 3);
    window.register(Seq(5));
    window.register(Seq(50));
    for seq in 51..100 {
        window.note(Seq(seq), CommitFootprint::Key(&key(1)));
    }
    let error = window.check(Seq(5), &Footprint::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("transaction_window_bytes"), "{error}");
    // The window answers nothing about a key that no open transaction depends on.
    assert!(error.context().iter().all(|(name, _)| *name != "key"));
    // It still reports conflicts with the commits that it has.
    assert!(window.check(Seq(98), &footprint(1, (3, 3))).is_err());
    assert!(window.check(Seq(98), &footprint(2, (3, 3))).is_ok());
    assert!(window.above(Seq(5)).is_err());
}
