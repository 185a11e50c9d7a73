//! The explored configurations, as data.

pub(crate) mod crowds;

use crate::actor::Actor;
use crate::collector::Collector;
use crate::compactor::Compactor;
use crate::jobs::Shape;
use crate::leaser::Leaser;
use crate::model::{Config, Go};
use crate::pinner::Pinner;
use crate::reader::Reader;
use crate::unit::Unit;
use crate::worker::Worker;
use crate::world::{Faults, Tags};
use crate::writer::{Plan, Writer};
use siltstone_manifest::Rules;

/// Whether a configuration runs with every test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Seconds.
    Small,
    /// Minutes.
    Large,
}

/// No faults.
pub(crate) const NONE: Faults =
    Faults { crashes: 0, unanswered: 0, retried: 0, late: 0, refused: 0, destroyed: 0, wiped: 0 };
/// One request lands late, or never.
pub(crate) const LATE: Faults = Faults { late: 1, ..NONE };

/// A plan: append `records`, flush when `flush_at` of its own are durable, and close.
pub(crate) fn plan(width: u64, records: usize, flush_at: &[usize], close: bool) -> Plan {
    let flush_at = flush_at.to_vec();
    Plan {
        width,
        records,
        flush_at,
        behind: 0,
        looks: 0,
        close,
        careless: false,
        beside: false,
        scans: false,
    }
}

/// The same processes, whose writers send requests beside each other while they open.
fn beside(actors: Vec<Actor>) -> Vec<Actor> {
    let sending = |actor| match actor {
        Actor::Writer(writer) => Actor::Writer(writer.sending_beside()),
        other => other,
    };
    actors.into_iter().map(sending).collect()
}

/// A writer with such a plan.
pub(crate) fn writer(width: u64, records: usize, flush_at: &[usize], close: bool) -> Actor {
    Writer::actor(plan(width, records, flush_at, close))
}

/// A writer whose flush comes at its second durable record and leaves that record in the WAL; the
/// manifest knows of it.
pub(crate) fn lagging(records: usize, close: bool) -> Actor {
    Writer::actor(Plan { behind: 1, ..plan(2, records, &[2], close) })
}

/// A writer, one record at a time, that looks for a newer manifest (rule F7).
pub(crate) fn looking(records: usize, flush_at: &[usize], looks: u8) -> Actor {
    Writer::actor(Plan { looks, ..plan(1, records, flush_at, false) })
}

/// A writer, one record at a time, whose scans continue on the tables that it replaces.
pub(crate) fn scanning(records: usize, flush_at: &[usize]) -> Actor {
    Writer::actor(Plan { scans: true, ..plan(1, records, flush_at, false) })
}

/// Every configuration.
pub(crate) fn all() -> Vec<(Config, Size)> {
    let small = small().into_iter().chain(small_tagged()).chain(small_jobs());
    let small = small.chain(small_leases()).chain(crowds::small());
    let small = small.map(|config| (config, Size::Small));
    small.chain(large().into_iter().map(|config| (config, Size::Large))).collect()
}

fn config(name: &'static str, actors: Vec<Actor>, faults: Faults) -> Config {
    Config { name, rules: Rules::ALL, actors, faults, tags: Tags::None, prelude: &[] }
}

fn small() -> Vec<Config> {
    let plain = |width, records, flush_at| writer(width, records, flush_at, false);
    let reader = |polls| Reader::actor(polls, Rules::ALL);
    vec![
        config(
            "2 writers, one lost answer, one late create",
            beside(vec![plain(2, 2, &[]), plain(2, 1, &[])]),
            Faults { late: 1, unanswered: 1, retried: 1, ..NONE },
        ),
        config(
            "3 writers of different widths, one crash",
            beside(vec![plain(2, 2, &[]), plain(1, 1, &[]), plain(2, 1, &[])]),
            Faults { crashes: 1, ..NONE },
        ),
        config(
            "2 writers, flush, close, collector",
            beside(vec![writer(1, 1, &[1], true), plain(1, 1, &[1]), Collector::actor(1)]),
            NONE,
        ),
        config(
            "writer, following reader, collector",
            vec![writer(2, 2, &[1], true), reader(2), Collector::actor(1)],
            NONE,
        ),
        after(
            LAGS,
            config(
                "2 writers, late flush, following reader, collector",
                vec![lagging(2, false), plain(1, 0, &[0]), reader(1), Collector::actor(1)],
                NONE,
            ),
        ),
        config(
            "2 writers, late flush, reader, an outsider",
            vec![lagging(2, false), plain(1, 1, &[]), reader(1)],
            Faults { destroyed: 1, ..NONE },
        ),
        config(
            "writer, reader with checkpoint, an outsider",
            vec![plain(1, 1, &[]), Pinner::actor(true), Collector::actor(1)],
            Faults { destroyed: 1, ..NONE },
        ),
        config(
            "2 writers, flush, reader, deleted under them",
            vec![writer(1, 1, &[1], true), plain(1, 1, &[1]), reader(1)],
            Faults { wiped: 1, ..NONE },
        ),
        config(
            "writer that looks, second writer, collector",
            vec![looking(1, &[1], 1), plain(1, 0, &[0]), Collector::actor(1)],
            NONE,
        ),
        config(
            "writer, reader with checkpoint, collector",
            vec![plain(1, 1, &[1]), Pinner::actor(true), Collector::actor(1)],
            NONE,
        ),
        config(
            "writer with scans, compactor, collector",
            vec![scanning(1, &[1]), Compactor::actor(), Collector::actor(2)],
            NONE,
        ),
    ]
}

/// Processes whose looks are proven by tags.
fn small_tagged() -> Vec<Config> {
    let looks = config(
        "writer that looks, second writer, collector, tags",
        vec![looking(1, &[1], 1), writer(1, 0, &[0], false), Collector::actor(1)],
        NONE,
    );
    let follows = config(
        "writer, following reader, collector, tags",
        vec![writer(1, 1, &[1], true), Reader::actor(1, Rules::ALL), Collector::actor(1)],
        LATE,
    );
    vec![tagged(looks), tagged(follows)]
}

/// Readers that share leases.
fn small_leases() -> Vec<Config> {
    let leaser = |takes, renews| Leaser::actor(Rules::ALL, takes, renews);
    let shares = config(
        "2 readers sharing a lease, collector",
        vec![writer(1, 1, &[1], true), leaser(0, true), leaser(0, false), Collector::actor(1)],
        NONE,
    );
    let leaser = |takes, renews| Leaser::since(Rules::ALL, takes, renews);
    let since = config(
        "2 readers under a since-lease, collector",
        vec![writer(1, 1, &[1], true), leaser(0, true), leaser(0, false), Collector::actor(1)],
        NONE,
    );
    let lasting = config(
        "reader under a lasting since-lease, compactor, collector",
        vec![
            writer(1, 1, &[1], true),
            Leaser::lasting(Rules::ALL, 1),
            Compactor::actor(),
            Collector::actor(1),
        ],
        NONE,
    );
    vec![after(CLOSED, shares), after(CLOSED, since), after(CLOSED, lasting)]
}

/// Jobs of two coordinators, or of one and a worker; their beginning is explored in large runs.
fn small_jobs() -> Vec<Config> {
    let plain = || writer(1, 1, &[1], false);
    let two = config(
        "writer, 2 compactors, collector",
        vec![plain(), Compactor::actor(), Compactor::actor(), Collector::actor(1)],
        NONE,
    );
    let team = config(
        "writer, coordinator, worker, collector",
        vec![plain(), Compactor::of(CUT, 1, 1), Worker::actor(1), Collector::actor(1)],
        NONE,
    );
    let units = config(
        "writer, driver, 2 units, collector",
        vec![plain(), Compactor::driving(CUT), Unit::actor(1), Unit::actor(1), Collector::actor(1)],
        NONE,
    );
    vec![after(CLAIMED, two), after(STARTED, team), after(STARTED, units)]
}

/// Longer stories. Some begin with steps that always happen: the first writer opens, its record is
/// sent, durable, in a table.
fn large() -> Vec<Config> {
    let mut all = large_writers();
    all.extend(large_collectors());
    all.extend(large_jobs());
    all.extend(crowds::large());
    all
}

/// The configuration, in a store whose tags show that an object was listed before.
fn tagged(config: Config) -> Config {
    Config { tags: Tags::Exact, ..config }
}

/// The configuration, with these steps before the search begins.
fn after(prelude: &'static [Go], config: Config) -> Config {
    Config { prelude, ..config }
}

/// Steps of a writer until it has claimed: it starts, creates its claim, checks the slot.
pub(crate) const TO_CLAIM: usize = 3;
/// Until it has opened on an empty log: it reads the first id, lists the later ones, looks, creates
/// its fence, confirms.
pub(crate) const TO_OPEN: usize = TO_CLAIM + 5;
/// Until its first record is in flight.
pub(crate) const TO_SEND: usize = TO_OPEN + 1;
/// Until that record is durable.
pub(crate) const TO_DURABLE: usize = TO_SEND + 1;
/// Until it is in a table: the table is uploaded, the commit created, its slot checked.
pub(crate) const TO_FLUSH: usize = TO_DURABLE + 3;
/// Until two records are durable and the first of them is in a table.
pub(crate) const TO_LAG: usize = TO_FLUSH + 2;

/// Until a writer that closes has closed: the commit created, its slot checked.
pub(crate) const TO_CLOSE: usize = TO_FLUSH + 3;

/// A writer has closed, and retains nothing.
pub(crate) const CLOSED: &[Go] = &[Go::Steps(0, TO_CLOSE)];
const OPEN: &[Go] = &[Go::Steps(0, TO_OPEN)];
const SENT: &[Go] = &[Go::Steps(0, TO_SEND)];
const DURABLE: &[Go] = &[Go::Steps(0, TO_DURABLE)];
/// The manifest knows of a record that is in no table.
const LAGS: &[Go] = &[Go::Steps(0, TO_LAG)];
const FLUSHED: &[Go] = &[Go::Steps(0, TO_FLUSH)];

fn large_writers() -> Vec<Config> {
    let gc = || Collector::actor(1);
    let plain = |width, records, flush_at| writer(width, records, flush_at, false);
    let every = Faults { crashes: 1, unanswered: 1, retried: 1, late: 1, refused: 1, ..NONE };
    let three = config(
        "3 writers, flush, collector",
        vec![plain(1, 1, &[]), plain(1, 1, &[1]), plain(1, 1, &[]), Collector::actor(1)],
        NONE,
    );
    let faults = config(
        "2 writers, flush, collector, every fault once",
        vec![plain(1, 1, &[]), plain(2, 1, &[0]), Collector::actor(1)],
        every,
    );
    let four = config(
        "4 writers, one late create",
        vec![plain(2, 2, &[]), plain(1, 1, &[]), plain(1, 0, &[]), plain(2, 1, &[])],
        Faults { late: 1, ..NONE },
    );
    let lags = config(
        "2 writers, late flush, reader, collector, from the start",
        vec![lagging(2, false), plain(1, 0, &[0]), Reader::actor(1, Rules::ALL), gc()],
        NONE,
    );
    let pinned = config(
        "2 writers, late flush, checkpoint, collector",
        vec![lagging(2, false), plain(1, 1, &[]), Pinner::actor(false), gc()],
        Faults { late: 1, ..NONE },
    );
    let outsider = config(
        "3 writers, late flush, reader, an outsider",
        vec![lagging(3, false), plain(1, 1, &[0]), plain(1, 0, &[]), Reader::actor(2, Rules::ALL)],
        Faults { destroyed: 1, crashes: 1, ..NONE },
    );
    let looks = config(
        "writer that looks, second writer, checkpoint, collector",
        vec![looking(2, &[1], 2), plain(1, 0, &[0]), Pinner::actor(false), gc()],
        Faults { late: 1, ..NONE },
    );
    let all = [three, after(SENT, faults), after(SENT, four), lags, after(LAGS, pinned), outsider];
    all.into_iter().chain([after(OPEN, looks)]).collect()
}

/// A compactor has claimed its epoch; it has started a job.
const CLAIMED: &[Go] = &[Go::Steps(0, TO_FLUSH), Go::Steps(1, 3)];
const STARTED: &[Go] = &[Go::Steps(0, TO_FLUSH), Go::Steps(1, 10)];
/// Two ranges of one table each; one range of two tables.
const CUT: Shape = Shape { ranges: 2, tables: 1 };
const LONG: Shape = Shape { ranges: 1, tables: 2 };

/// Jobs of several processes.
fn large_jobs() -> Vec<Config> {
    let two = |records| writer(1, records, &[1, 2], false);
    let gc = || Collector::actor(1);
    let begins = config(
        "writer, coordinator, worker, collector, from the claim",
        vec![two(1), Compactor::of(CUT, 1, 1), Worker::actor(1), gc()],
        NONE,
    );
    let compactors = config(
        "writer, 2 compactors, collector, from the claim",
        vec![two(1), Compactor::actor(), Compactor::actor(), gc()],
        NONE,
    );
    let team = config(
        "writer, coordinator, 2 workers, collector, one crash",
        vec![two(2), Compactor::of(CUT, 1, 1), Worker::actor(1), Worker::actor(1), gc()],
        Faults { crashes: 1, ..NONE },
    );
    let taken_over = config(
        "writer, 2 coordinators, worker, collector",
        vec![two(1), Compactor::of(CUT, 1, 0), Compactor::of(CUT, 1, 1), Worker::actor(1), gc()],
        NONE,
    );
    let resumed = config(
        "writer, 2 coordinators, worker, two tables a range",
        vec![two(1), Compactor::of(LONG, 0, 1), Compactor::of(LONG, 0, 1), Worker::actor(2), gc()],
        NONE,
    );
    let late = config(
        "writer, coordinator, 2 workers, collector, faults",
        vec![two(1), Compactor::of(LONG, 0, 1), Worker::actor(1), Worker::actor(1), gc()],
        Faults { late: 1, unanswered: 1, ..NONE },
    );
    // Progress in flight during a take-over; the older driver receives results, and the newer one
    // records.
    let driving = || Compactor::driving(CUT);
    let driven = config(
        "writer, 2 drivers, 2 units, collector",
        vec![two(1), driving(), Unit::actor(2), Unit::actor(1), driving(), gc()],
        NONE,
    );
    let driven_late = config(
        "writer, 2 drivers, unit, collector, faults",
        vec![two(1), driving(), Unit::actor(2), driving(), gc()],
        Faults { crashes: 1, late: 1, unanswered: 1, ..NONE },
    );
    let all = [begins, compactors, team, taken_over, resumed, late, driven, driven_late];
    all.map(|config| after(FLUSHED, config)).to_vec()
}

fn under_since_leases() -> Config {
    let leaser = |takes, renews| Leaser::since(Rules::ALL, takes, renews);
    config(
        "writer, 2 readers under since-leases, compactor, collector, faults",
        vec![
            writer(1, 2, &[1, 2], true),
            leaser(2, true),
            leaser(1, false),
            Compactor::actor(),
            Collector::actor(2),
        ],
        Faults { late: 1, crashes: 1, ..NONE },
    )
}

fn large_collectors() -> Vec<Config> {
    let plain = |width, records, flush_at| writer(width, records, flush_at, false);
    let reader = Reader::actor(1, Rules::ALL);
    let follows = config(
        "2 writers, following reader, collector",
        vec![plain(2, 3, &[]), plain(1, 1, &[0]), reader, Collector::actor(1)],
        NONE,
    );
    let pinned = config(
        "writer, reader with checkpoint, 2 collectors",
        vec![plain(1, 1, &[1]), Pinner::actor(true), Collector::actor(1), Collector::actor(1)],
        NONE,
    );
    let compacts = config(
        "writer, compactor, checkpoint, collector",
        vec![plain(1, 1, &[1]), Compactor::actor(), Pinner::actor(false), Collector::actor(1)],
        NONE,
    );
    let two_compact = config(
        "writer, 2 compactors, collector, faults",
        vec![plain(1, 1, &[1]), Compactor::actor(), Compactor::actor(), Collector::actor(1)],
        Faults { crashes: 1, late: 1, unanswered: 1, ..NONE },
    );
    let all = config(
        "2 writers, checkpoint, collector, faults",
        vec![plain(1, 1, &[1]), plain(1, 1, &[0]), Pinner::actor(true), Collector::actor(1)],
        Faults { late: 1, retried: 1, ..NONE },
    );
    let scans = config(
        "writer with scans, 2 compactors, collector, faults",
        vec![scanning(2, &[1, 2]), Compactor::actor(), Compactor::actor(), Collector::actor(1)],
        Faults { crashes: 1, late: 1, unanswered: 1, ..NONE },
    );
    let replaces = config(
        "writer, reader replacing, compactor, collector",
        vec![plain(1, 1, &[1]), Pinner::replacing(), Compactor::actor(), Collector::actor(1)],
        NONE,
    );
    let leaser = |takes, renews| Leaser::actor(Rules::ALL, takes, renews);
    let shares = config(
        "writer, 2 readers sharing a lease, compactor, collector, faults",
        vec![
            writer(1, 2, &[1, 2], true),
            leaser(2, true),
            leaser(1, false),
            Compactor::actor(),
            Collector::actor(1),
        ],
        Faults { late: 1, crashes: 1, ..NONE },
    );
    let overtaken = config(
        "2 writers with scans, compactor, collector",
        vec![scanning(1, &[1]), scanning(1, &[0]), Compactor::actor(), Collector::actor(1)],
        NONE,
    );
    vec![
        after(FLUSHED, scans),
        after(FLUSHED, replaces),
        after(FLUSHED, shares),
        after(FLUSHED, under_since_leases()),
        after(FLUSHED, overtaken),
        after(SENT, follows),
        after(DURABLE, pinned),
        compacts,
        after(FLUSHED, two_compact),
        after(OPEN, all),
    ]
}
