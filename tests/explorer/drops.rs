//! Each rule left out in turn, with the smallest known configuration that shows its purpose.

use crate::actor::Actor;
use crate::collector::Collector;
use crate::compactor::Compactor;
use crate::configs::crowds::{B_FENCES, FREED};
use crate::configs::{
    CLOSED, LATE, NONE, TO_CLAIM, TO_CLOSE, TO_DURABLE, TO_FLUSH, TO_LAG, TO_OPEN, TO_SEND,
    lagging, looking, plan, scanning, writer,
};
use crate::jobs::{Shape, WHOLE};
use crate::leaser::Leaser;
use crate::model::{Config, Go};
use crate::pinner::Pinner;
use crate::reader::Reader;
use crate::unit::Unit;
use crate::worker::Worker;
use crate::world::{Faults, Tags};
use crate::writer::{Plan, Writer};
use siltstone_manifest::{Rule, Rules};

/// The proof that a rule is needed.
pub(crate) struct Drop {
    /// The rule.
    pub(crate) rule: Rule,
    /// Rules for which this one is a second line: its effect shows only if they are dropped too.
    pub(crate) behind: &'static [Rule],
    /// Processes; a reader learns its rules from the set.
    actors: fn(Rules) -> Vec<Actor>,
    faults: Faults,
    prelude: &'static [Go],
}

impl Drop {
    fn new(rule: Rule, actors: fn(Rules) -> Vec<Actor>) -> Drop {
        Drop { rule, behind: &[], actors, faults: NONE, prelude: &[] }
    }

    fn behind(self, behind: &'static [Rule]) -> Drop {
        Drop { behind, ..self }
    }

    fn with(self, faults: Faults) -> Drop {
        Drop { faults, ..self }
    }

    fn after(self, prelude: &'static [Go]) -> Drop {
        Drop { prelude, ..self }
    }

    /// The configuration without the rule.
    pub(crate) fn config(&self) -> Config {
        self.without(std::iter::once(&self.rule).chain(self.behind))
    }

    /// The configuration with the rule, and without the rules that hide its effect.
    pub(crate) fn control(&self) -> Config {
        self.without(self.behind.iter())
    }

    fn without<'a>(&self, dropped: impl Iterator<Item = &'a Rule>) -> Config {
        // A collector that also frees the manifest before the newest shows each failure a commit
        // earlier.
        let all = Rules::ALL.without(Rule::KeepManifestBefore);
        let rules = dropped.fold(all, |rules, rule| rules.without(*rule));
        Config {
            name: "",
            rules,
            actors: (self.actors)(rules),
            faults: self.faults,
            tags: Tags::None,
            prelude: self.prelude,
        }
    }
}

const CRASH: Faults = Faults { crashes: 1, ..NONE };
const DESTROYED: Faults = Faults { destroyed: 1, ..NONE };
const WIPED: Faults = Faults { wiped: 1, ..NONE };
const LOST: Faults = Faults { unanswered: 1, ..NONE };

/// A writer of the simplest kind: one record at a time, no close.
fn plain(width: u64, records: usize, flush_at: &[usize]) -> Actor {
    writer(width, records, flush_at, false)
}

/// One for each rule.
pub(crate) fn all() -> Vec<Drop> {
    let mut all = fencing();
    all.extend(kept_fences());
    all.extend(holes());
    all.extend(acknowledging());
    all.extend(manifests());
    all.extend(collecting());
    all.extend(jobs());
    all.extend(reading());
    all.extend(leasing());
    all
}

/// A process looks while the manifest that it has listed is freed, and a sleeper takes its slot.
/// The tags show that the object that it reads is another one.
pub(crate) fn listed_and_freed(tags: Tags) -> Config {
    let others = [plain(1, 0, &[]), Pinner::actor(false), Collector::actor(1)];
    let actors = std::iter::once(looking(0, &[], 1)).chain(others).collect();
    let prelude = &[Go::Steps(0, TO_OPEN), Go::Steps(1, 1), Go::Steps(2, 8)];
    let rules = Rules::ALL.without(Rule::KeepManifestBefore);
    Config { name: "", rules, actors, faults: NONE, tags, prelude }
}

fn fencing() -> Vec<Drop> {
    let appenders = |_: Rules| vec![plain(2, 2, &[]), plain(2, 1, &[])];
    // A's first record hangs; B finds its id free. The record lands, C recovers it and puts it into
    // a table, its id is freed, and B's fence takes it.
    let overtaken: fn(Rules) -> Vec<Actor> =
        |_| vec![plain(2, 1, &[]), plain(2, 1, &[]), plain(2, 0, &[0]), Collector::actor(1)];
    const A_SENT: &[Go] = &[Go::Steps(0, TO_SEND), Go::Steps(1, TO_CLAIM + 4)];
    vec![
        Drop::new(Rule::StopAtNewerEpoch, |_| vec![plain(1, 1, &[]), plain(1, 1, &[])])
            .behind(&[Rule::LookBeforeFence]),
        Drop::new(Rule::JumpOverOlderFence, appenders),
        Drop::new(Rule::ReplayPointOutsideGap, |_| {
            vec![plain(2, 1, &[]), plain(2, 1, &[0]), plain(2, 1, &[])]
        }),
        Drop::new(Rule::SkipTheWindow, appenders),
        Drop::new(Rule::WidestWindow, |_| vec![plain(2, 2, &[]), plain(1, 1, &[])]),
        Drop::new(Rule::LookBeforeFence, |_| {
            let idle = || plain(2, 0, &[]);
            vec![plain(2, 1, &[]), idle(), idle(), idle(), plain(2, 2, &[0]), Collector::actor(1)]
        })
        .after(&[
            Go::Steps(0, TO_OPEN),
            Go::Steps(1, TO_CLAIM + 3),
            Go::Steps(2, TO_CLAIM + 1),
            Go::Steps(3, TO_CLAIM + 1),
            Go::Steps(0, 1),
            Go::Steps(4, TO_OPEN + 1),
        ]),
        Drop::new(Rule::Confirm, overtaken)
            .after(&[Go::Steps(0, TO_OPEN), Go::Steps(1, TO_CLAIM + 4)]),
        Drop::new(Rule::ConfirmByList, overtaken).after(A_SENT),
    ]
}

fn kept_fences() -> Vec<Drop> {
    vec![
        Drop::new(Rule::KeepFencesMet, |_| {
            vec![plain(1, 1, &[]), plain(1, 0, &[]), plain(1, 1, &[1]), Collector::actor(1)]
        })
        .after(&[Go::Steps(0, TO_SEND), Go::Steps(1, TO_OPEN + 2)]),
        Drop::new(Rule::KeepOwnFence, |_| {
            vec![plain(1, 1, &[]), plain(1, 1, &[1]), Collector::actor(1)]
        }),
        Drop::new(Rule::CleanCloseWaivesOnlyOwn, |_| {
            let closes = writer(1, 0, &[], true);
            vec![plain(1, 1, &[]), closes, plain(1, 1, &[1]), Collector::actor(1)]
        })
        .after(&[Go::Steps(0, TO_SEND), Go::Steps(1, TO_OPEN + 5)]),
        Drop::new(Rule::CloseAfterConfirm, |_| {
            let closes = writer(1, 0, &[], true);
            vec![plain(1, 1, &[]), closes, plain(1, 1, &[1]), Collector::actor(1)]
        })
        .after(&[Go::Steps(0, TO_SEND), Go::Steps(1, TO_CLAIM)]),
    ]
}

fn holes() -> Vec<Drop> {
    // B has claimed, or the reader has begun, while A's second record is in no table; C puts it
    // into one, and the collector frees its id.
    const FLUSHED: usize = TO_CLAIM + 9;
    vec![
        Drop::new(Rule::HoleIsNoEnd, |_| vec![lagging(2, false), plain(1, 0, &[])]).with(DESTROYED),
        Drop::new(Rule::HoleIsNoEnd, |rules| vec![lagging(2, true), Reader::actor(0, rules)])
            .with(DESTROYED),
        Drop::new(Rule::ProveHoles, |_| {
            vec![lagging(2, false), plain(1, 0, &[]), plain(1, 0, &[0]), Collector::actor(1)]
        })
        .after(&[Go::Steps(0, TO_LAG), Go::Steps(1, TO_CLAIM), Go::Steps(2, FLUSHED)]),
        Drop::new(Rule::ProveHoles, |rules| {
            let others = [plain(1, 0, &[0]), Reader::actor(1, rules), Collector::actor(1)];
            std::iter::once(lagging(2, false)).chain(others).collect()
        })
        .after(&[Go::Steps(0, TO_LAG), Go::Steps(2, 3), Go::Steps(1, FLUSHED)]),
        // A's first record is acknowledged, and no manifest records it: A does not close.
        Drop::new(Rule::LaterProvesHole, |_| vec![plain(1, 2, &[]), plain(1, 0, &[])])
            .with(DESTROYED),
        Drop::new(Rule::LaterProvesHole, |rules| vec![plain(1, 2, &[]), Reader::actor(0, rules)])
            .with(Faults { destroyed: 1, ..CRASH }),
        Drop::new(Rule::ProofByWatermark, |_| vec![plain(2, 2, &[]), plain(2, 0, &[])]),
        Drop::new(Rule::ReadAgainBeforeHole, |_| vec![plain(1, 2, &[]), plain(1, 0, &[])]),
        Drop::new(Rule::JudgeHolesByTheClaim, |_| {
            vec![plain(1, 1, &[]), plain(1, 0, &[]), Pinner::actor(false)]
        }),
    ]
}

fn acknowledging() -> Vec<Drop> {
    vec![
        Drop::new(Rule::AcknowledgeInOrder, |_| vec![plain(2, 2, &[]), plain(2, 1, &[])]),
        Drop::new(Rule::WindowOverPrefix, |_| {
            vec![plain(2, 4, &[]), plain(2, 1, &[]), plain(2, 1, &[])]
        }),
        Drop::new(Rule::CheckWalConflict, |_| {
            vec![plain(1, 1, &[]), plain(1, 0, &[]), plain(1, 0, &[0]), Collector::actor(1)]
        })
        .with(LOST)
        .after(&[Go::Steps(0, TO_SEND), Go::Steps(1, TO_CLAIM + 4)]),
        Drop::new(Rule::ConfirmHits, |rules| {
            let writers = [plain(2, 3, &[]), plain(2, 0, &[]), plain(2, 0, &[0])];
            let mut actors = Vec::from(writers);
            actors.extend([Reader::actor(1, rules), Collector::actor(1)]);
            actors
        })
        .after(&[
            Go::Steps(0, TO_OPEN),
            Go::Steps(3, 5),
            Go::Steps(0, 2),
            Go::Steps(1, TO_CLAIM + 4),
            Go::Steps(0, 2),
            Go::Steps(2, TO_CLAIM + 7),
        ])
        .behind(&[Rule::LookUpNewerEpochs]),
        Drop::new(Rule::ListSometimes, |rules| {
            let closes = writer(1, 1, &[1], true);
            vec![closes, Reader::actor(0, rules), Collector::actor(1)]
        }),
        // The same for an explicit refresh, which may not defer it to a later poll.
        Drop::new(Rule::ListSometimes, |rules| {
            let closes = writer(1, 1, &[1], true);
            vec![closes, Reader::refreshing(1, rules), Collector::actor(1)]
        }),
        Drop::new(Rule::ConfirmHits, |rules| {
            let others = [plain(1, 0, &[0]), Reader::refreshing(1, rules), Collector::actor(1)];
            std::iter::once(plain(1, 1, &[])).chain(others).collect()
        })
        .behind(&[Rule::LookUpNewerEpochs])
        .with(LATE)
        .after(B_FENCES),
    ]
}

fn manifests() -> Vec<Drop> {
    // A runs; B's claim of the next number is about to be sent; a reader's checkpoint takes that
    // number, and the collector revokes it and frees it.
    let looks: fn(Rules) -> Vec<Actor> = |_| {
        let others = [plain(1, 0, &[]), Pinner::actor(false), Collector::actor(1)];
        std::iter::once(looking(0, &[], 1)).chain(others).collect()
    };
    const CLAIMS: &[Go] = &[Go::Steps(0, TO_OPEN), Go::Steps(1, 1), Go::Steps(2, 9)];
    vec![
        Drop::new(Rule::LookAtHits, looks).after(CLAIMS),
        // A reader that hits the claim of a sleeper among four writers.
        Drop::new(Rule::LookAtHits, |rules| {
            let mut actors: Vec<Actor> = (0..4).map(|_| plain(1, 0, &[])).collect();
            actors.extend([Reader::actor(1, rules), Collector::actor(1)]);
            actors
        })
        .after(FREED),
        Drop::new(Rule::VerifyBeforeBelieving, looks).after(CLAIMS),
        Drop::new(Rule::CheckSlot, |_| {
            vec![plain(1, 1, &[1]), Pinner::actor(false), Collector::actor(1)]
        }),
        Drop::new(Rule::VerifyBeforeBelieving, |_| {
            vec![plain(1, 1, &[1]), Pinner::actor(false), Collector::actor(1)]
        })
        .with(LATE)
        .after(&[Go::Steps(1, 4), Go::Steps(0, TO_DURABLE)]),
        Drop::new(Rule::PredecessorStands, |_| vec![plain(1, 1, &[1])]).with(WIPED),
        Drop::new(Rule::SettleByReservation, |_| {
            vec![plain(1, 1, &[1]), Compactor::actor(), Collector::actor(1)]
        })
        .with(LOST),
        Drop::new(Rule::BoundaryFirst, |_| {
            vec![plain(1, 1, &[1]), Pinner::actor(false), Collector::actor(1)]
        }),
        Drop::new(Rule::PlanOnNewest, |_| {
            vec![plain(1, 1, &[1]), Compactor::actor(), Collector::actor(1)]
        }),
        Drop::new(Rule::CheckReservation, |_| vec![careless(), Collector::actor(1)]),
        Drop::new(Rule::TakeoverVoidsNames, |_| vec![plain(1, 1, &[1]), plain(1, 0, &[0])]),
    ]
}

fn collecting() -> Vec<Drop> {
    vec![
        // A writer that closed: no checkpoint of its own keeps the tables that it flushed.
        Drop::new(Rule::ManifestsKeepTables, |_| {
            vec![writer(1, 1, &[1], true), Compactor::actor(), Collector::actor(1)]
        }),
        Drop::new(Rule::CollectorOrder, |_| vec![plain(1, 1, &[1]), Collector::actor(1)]),
        Drop::new(Rule::CollectorVerifies, |_| {
            let collectors = [Collector::actor(1), Collector::actor(1)];
            let mut actors = vec![plain(1, 2, &[1, 2]), Pinner::actor(false)];
            actors.extend(collectors);
            actors
        })
        .behind(&[Rule::VerifyBeforeBelieving])
        .with(CRASH)
        .after(&[Go::Steps(0, TO_OPEN), Go::Steps(1, 7), Go::Crash(1), Go::Steps(0, 5)]),
        Drop::new(Rule::RevokeFirst, |_| {
            vec![plain(1, 1, &[1]), Pinner::actor(true), Collector::actor(1)]
        }),
        Drop::new(Rule::HonourReservations, |_| vec![plain(1, 1, &[1]), Collector::actor(1)]),
        Drop::new(Rule::HonourCheckpoints, |_| {
            vec![plain(1, 1, &[1]), Pinner::actor(true), Collector::actor(1)]
        }),
    ]
}

/// The rules of the record of jobs. A's record is in a table when these begin.
fn jobs() -> Vec<Drop> {
    const FLUSHED: &[Go] = &[Go::Steps(0, TO_FLUSH)];
    let two: fn(Rules) -> Vec<Actor> =
        |_| vec![plain(1, 1, &[1]), Compactor::actor(), Compactor::actor(), Collector::actor(1)];
    // The coordinator leaves its only range to two workers.
    let stalled: fn(Rules) -> Vec<Actor> = |_| {
        let coordinator = Compactor::of(WHOLE, 0, 0);
        let workers = [Worker::actor(1), Worker::actor(1)];
        let all = [plain(1, 1, &[1]), coordinator].into_iter().chain(workers);
        all.chain([Collector::actor(1)]).collect()
    };
    vec![
        Drop::new(Rule::ClaimBeforeJobs, |_| {
            let compactors = || Compactor::actor();
            let mut actors = vec![plain(1, 1, &[1])];
            actors.extend([compactors(), compactors(), compactors(), Collector::actor(1)]);
            actors
        })
        .with(CRASH)
        .after(&[Go::Steps(0, TO_FLUSH), Go::Steps(1, 8), Go::Crash(1)]),
        Drop::new(Rule::HonourJobs, |_| {
            vec![plain(1, 1, &[1]), Compactor::actor(), Collector::actor(1)]
        })
        .after(FLUSHED),
        Drop::new(Rule::HonourUnits, |_| {
            let driver = Compactor::driving(WHOLE);
            vec![plain(1, 1, &[1]), driver, Unit::actor(1), Collector::actor(1)]
        })
        .after(FLUSHED),
        // Two copies of one task; the other range keeps the job open.
        Drop::new(Rule::UnitsAsTheyStand, |_| {
            let driver = Compactor::driving(Shape { ranges: 2, tables: 1 });
            vec![plain(1, 1, &[1]), driver, Unit::actor(1), Unit::actor(1)]
        })
        .after(FLUSHED),
        // The result of the older driver's unit is recorded while the newer driver continues.
        Drop::new(Rule::RecordByEpoch, |_| {
            let driver = || Compactor::driving(WHOLE);
            vec![plain(1, 1, &[1]), driver(), Unit::actor(1), driver(), Collector::actor(1)]
        })
        .after(FLUSHED),
        Drop::new(Rule::FinishByEpoch, two).after(FLUSHED),
        Drop::new(Rule::RecordByEpoch, two).after(FLUSHED),
        Drop::new(Rule::CheckRecordSlot, two).after(FLUSHED),
        Drop::new(Rule::ProgressByClaim, stalled)
            .behind(&[Rule::RecordReserved])
            .after(&[Go::Steps(0, TO_FLUSH), Go::Steps(1, 10)]),
        Drop::new(Rule::RecordReserved, stalled)
            .behind(&[Rule::ProgressByClaim])
            .after(&[Go::Steps(0, TO_FLUSH), Go::Steps(1, 10)]),
    ]
}

fn reading() -> Vec<Drop> {
    vec![
        Drop::new(Rule::PinWhatIsRead, |_| {
            vec![plain(1, 1, &[1]), Compactor::actor(), Collector::actor(1)]
        }),
        Drop::new(Rule::ReleaseUnread, |_| {
            vec![scanning(1, &[1]), Compactor::actor(), Collector::actor(1)]
        }),
        Drop::new(Rule::TakeoverRemovesPins, |_| vec![plain(1, 0, &[]), plain(1, 0, &[])]),
    ]
}

/// Steps of a reader until it has leased its version: it starts, looks by three requests, creates
/// its commit, checks the slot.
const TO_LEASE: usize = 6;

/// The rules of leases. The writer has closed when most of these begin: it retains nothing.
fn leasing() -> Vec<Drop> {
    const LEASED: &[Go] = &[Go::Steps(0, TO_CLOSE), Go::Steps(1, TO_LEASE)];
    let alone: fn(Rules) -> Vec<Actor> = |rules| {
        let others = [Leaser::actor(rules, 1, true), Compactor::actor(), Collector::actor(1)];
        std::iter::once(writer(1, 1, &[1], true)).chain(others).collect()
    };
    vec![
        Drop::new(Rule::HonourLeases, alone).after(LEASED),
        Drop::new(Rule::PinWhatIsRead, alone).after(CLOSED),
        Drop::new(Rule::RenewOnlyPresent, alone).after(LEASED),
        Drop::new(Rule::RenewWhatIsRead, alone).after(LEASED),
        Drop::new(Rule::LookBeforeCorruption, alone).after(LEASED),
        // The first state is covered, a second table is added, both are compacted.
        Drop::new(Rule::HonourSince, |rules| {
            let reader = Leaser::lasting(rules, 1);
            let others = [reader, Compactor::actor(), Collector::actor(1)];
            std::iter::once(writer(1, 1, &[1], true)).chain(others).collect()
        })
        .after(LEASED),
        // One reader has leased the first table, and renewed that; the second is added, the writer
        // closes, and another reader has looked.
        Drop::new(Rule::JoinWhatIsRead, |rules| {
            let readers = [Leaser::actor(rules, 0, true), Leaser::actor(rules, 0, false)];
            let mut actors = vec![writer(1, 2, &[1, 2], true)];
            actors.extend(readers);
            actors.extend([Compactor::actor(), Collector::actor(1)]);
            actors
        })
        .after(&[
            Go::Steps(0, TO_FLUSH),
            Go::Steps(1, TO_LEASE + 3),
            Go::Steps(0, 8),
            Go::Steps(2, TO_LEASE - 2),
        ]),
    ]
}

/// A writer that uploads under a name that it never reserved: the commit refuses the table.
fn careless() -> Actor {
    Writer::actor(Plan { careless: true, ..plan(1, 1, &[1], false) })
}
