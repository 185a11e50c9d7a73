//! More processes at a time, wider windows, and more faults.

use super::{FLUSHED, LATE, NONE, OPEN, SENT, TO_CLAIM, TO_FLUSH, TO_OPEN, TO_SEND};
use super::{after, config, looking, scanning, writer};
use crate::actor::Actor;
use crate::collector::Collector;
use crate::compactor::Compactor;
use crate::model::{Config, Go};
use crate::pinner::Pinner;
use crate::reader::Reader;
use crate::world::Faults;
use siltstone_manifest::Rules;

/// An answer "exists" for the creator of the object, and a lost answer.
const REPEATED: Faults = Faults { retried: 1, unanswered: 1, ..NONE };

fn plain(width: u64, records: usize, flush_at: &[usize]) -> Actor {
    writer(width, records, flush_at, false)
}

/// A writer, one record at a time, that closes.
fn closing(records: usize, flush_at: &[usize]) -> Actor {
    writer(1, records, flush_at, true)
}

fn follows(polls: u8) -> Actor {
    Reader::actor(polls, Rules::ALL)
}

fn refreshes(polls: u8) -> Actor {
    Reader::refreshing(polls, Rules::ALL)
}

fn gc() -> Actor {
    Collector::actor(1)
}

/// A has a record in flight; B found its id free, and is about to create its fence there.
pub(crate) const B_FENCES: &[Go] = &[Go::Steps(0, TO_SEND), Go::Steps(1, TO_CLAIM + 3)];
/// A's record is in a table, B has claimed.
const B_CLAIMED: &[Go] = &[Go::Steps(0, TO_FLUSH), Go::Steps(1, TO_CLAIM)];
/// A's flush and B's claim are about to take the same number; C and D have claimed, and the
/// collector has freed all manifests but D's, including that number.
pub(crate) const FREED: &[Go] = &[
    Go::Steps(0, TO_OPEN),
    Go::Steps(4, 5),
    Go::Steps(1, 1),
    Go::Steps(2, TO_CLAIM),
    Go::Steps(3, TO_CLAIM),
    Go::Round(5),
];
/// A's record is in a table, and a compactor has claimed its epoch.
const COMPACTS: &[Go] = &[Go::Steps(0, TO_FLUSH), Go::Steps(2, 3)];
/// The same; its output is uploaded, a collector has listed the objects, B has claimed.
const COMPACTING: &[Go] =
    &[Go::Steps(0, TO_FLUSH), Go::Steps(2, 12), Go::Steps(3, 5), Go::Steps(1, TO_CLAIM)];

/// Seconds each.
pub(super) fn small() -> Vec<Config> {
    vec![
        config(
            "2 writers of widths 3 and 1, one late create",
            vec![plain(3, 3, &[]), plain(1, 1, &[])],
            LATE,
        ),
        config(
            "3 writers of widths 3, 1 and 2",
            vec![plain(3, 3, &[]), plain(1, 1, &[]), plain(2, 1, &[])],
            NONE,
        ),
        after(
            B_FENCES,
            config(
                "3 writers, flush, collector, one late create",
                vec![plain(1, 1, &[]), plain(1, 0, &[0]), plain(1, 0, &[]), gc()],
                LATE,
            ),
        ),
        after(
            B_FENCES,
            config(
                "2 writers, refreshing reader, collector, late",
                vec![plain(1, 1, &[]), plain(1, 0, &[0]), refreshes(1), gc()],
                LATE,
            ),
        ),
        after(
            B_CLAIMED,
            config(
                "3 writers that close, flush, collector",
                vec![closing(1, &[1]), closing(0, &[]), closing(0, &[0]), gc()],
                NONE,
            ),
        ),
        after(
            COMPACTING,
            config(
                "2 writers, compactor, 2 collectors",
                vec![plain(1, 1, &[1]), plain(1, 0, &[]), Compactor::actor(), gc(), gc()],
                NONE,
            ),
        ),
        after(
            FREED,
            config(
                "4 writers, a claim into a freed slot, reader",
                vec![
                    plain(1, 0, &[]),
                    plain(1, 0, &[]),
                    plain(1, 0, &[]),
                    plain(1, 1, &[]),
                    follows(1),
                    gc(),
                ],
                NONE,
            ),
        ),
    ]
}

/// Minutes each.
pub(super) fn large() -> Vec<Config> {
    let mut all = widths();
    all.extend(three_writers());
    all.extend(readers());
    all.extend(closes());
    all.extend(collectors());
    all.extend(freed_slots());
    all
}

fn widths() -> Vec<Config> {
    vec![
        config(
            "writers of widths 3, 1 and 2, late create and crash",
            vec![plain(3, 3, &[]), plain(1, 1, &[]), plain(2, 1, &[])],
            Faults { crashes: 1, ..LATE },
        ),
        after(
            OPEN,
            config(
                "writers of widths 3, 1 and 2, flush, collector",
                vec![plain(3, 3, &[]), plain(1, 1, &[0]), plain(2, 2, &[]), gc()],
                NONE,
            ),
        ),
        after(
            OPEN,
            config(
                "writers of widths 1, 3 and 3, flush, reader",
                vec![plain(1, 1, &[]), plain(3, 3, &[2]), plain(3, 1, &[]), follows(1)],
                NONE,
            ),
        ),
    ]
}

fn three_writers() -> Vec<Config> {
    let three = || vec![plain(1, 1, &[]), plain(1, 1, &[0]), plain(1, 1, &[]), gc()];
    vec![
        after(SENT, config("3 writers, collector, one late create", three(), LATE)),
        after(SENT, config("3 writers, collector, repeated creates", three(), REPEATED)),
        after(
            SENT,
            config(
                "3 writers of two widths, collector, late and repeated",
                vec![plain(2, 2, &[]), plain(1, 0, &[0]), plain(2, 1, &[]), gc()],
                Faults { retried: 1, ..LATE },
            ),
        ),
    ]
}

fn readers() -> Vec<Config> {
    vec![
        after(
            SENT,
            config(
                "2 writers, following reader, collector, late create",
                vec![plain(2, 2, &[]), plain(1, 1, &[0]), follows(2), gc()],
                LATE,
            ),
        ),
        after(
            SENT,
            config(
                "2 writers, refreshing reader, collector, late create",
                vec![plain(2, 2, &[]), plain(1, 1, &[0]), refreshes(2), gc()],
                LATE,
            ),
        ),
        after(
            OPEN,
            config(
                "writer, refreshing reader, piecemeal collector",
                vec![writer(2, 3, &[1, 3], true), refreshes(2), Collector::piecemeal(2)],
                NONE,
            ),
        ),
    ]
}

fn closes() -> Vec<Config> {
    vec![
        after(
            OPEN,
            config(
                "3 writers that close, flush, collector, from the start",
                vec![closing(1, &[1]), closing(0, &[]), closing(0, &[0]), gc()],
                NONE,
            ),
        ),
        after(
            OPEN,
            config(
                "3 writers that close, collector, one late create",
                vec![closing(1, &[1]), closing(1, &[1]), closing(1, &[1]), gc()],
                LATE,
            ),
        ),
        after(
            SENT,
            config(
                "4 writers, 3 of them close, collector",
                vec![plain(1, 1, &[]), closing(0, &[]), closing(0, &[0]), closing(1, &[0]), gc()],
                NONE,
            ),
        ),
    ]
}

fn collectors() -> Vec<Config> {
    vec![
        after(
            FLUSHED,
            config(
                "2 writers, compactor, 2 collectors, from the start",
                vec![plain(1, 1, &[1]), plain(1, 1, &[1]), Compactor::actor(), gc(), gc()],
                NONE,
            ),
        ),
        after(
            COMPACTS,
            config(
                "2 writers, compactor, 2 collectors, late and crash",
                vec![scanning(1, &[1]), scanning(0, &[0]), Compactor::actor(), gc(), gc()],
                Faults { crashes: 1, ..LATE },
            ),
        ),
        after(
            COMPACTS,
            config(
                "2 writers, compactor, 2 piecemeal collectors",
                vec![
                    plain(1, 1, &[1]),
                    plain(1, 0, &[]),
                    Compactor::actor(),
                    Collector::piecemeal(2),
                    Collector::piecemeal(1),
                ],
                NONE,
            ),
        ),
    ]
}

fn freed_slots() -> Vec<Config> {
    let crowd = |first: Actor, reader: Actor| {
        vec![first, plain(1, 1, &[]), plain(1, 0, &[]), plain(1, 1, &[0]), reader]
    };
    let with = |mut actors: Vec<Actor>, rounds: u8| {
        actors.push(Collector::actor(rounds));
        actors
    };
    vec![
        after(
            FREED,
            config(
                "4 writers, freed slots, following reader",
                with(crowd(plain(1, 1, &[1]), follows(1)), 2),
                NONE,
            ),
        ),
        after(
            FREED,
            config(
                "4 writers, freed slots, reader with checkpoint",
                with(crowd(looking(1, &[1], 1), Pinner::actor(false)), 2),
                NONE,
            ),
        ),
        after(
            FREED,
            config(
                "4 writers, freed slots, reader, late create",
                with(crowd(plain(1, 0, &[]), follows(1)), 1),
                LATE,
            ),
        ),
    ]
}
