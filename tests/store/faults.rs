//! The failing store: each fault has exactly its effect, and is recorded.

use bytes::Bytes;
use siltstone::store::PutAnswer;
use siltstone_base::name::prefix;
use siltstone_base::{ErrorKind, ObjectName, SstId, WalId};
use siltstone_tests::faults::{Bucket, CrashPoint, Fault, FaultPlan};
use siltstone_tests::sim::{ProcessId, Sim, Stopped};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

struct World {
    sim: Sim,
    bucket: Arc<Bucket>,
    client: ProcessId,
}

/// A world in which one fault always occurs.
fn world(fault: Option<Fault>) -> World {
    let sim = Sim::new(9);
    let plan = fault.map_or(FaultPlan::none(), |fault| FaultPlan::none().with(fault, 1000));
    let bucket = Bucket::new(&sim, plan);
    let client = sim.process("client", 0);
    World { sim, bucket, client }
}

impl World {
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.sim.block_on(self.client, work).unwrap()
    }

    fn put(&self, id: u64, body: &'static str) -> PutAnswer {
        let store = self.bucket.store(self.client);
        self.run(async move { store.put_if_absent(wal(id), body.into()).await })
    }

    fn get(&self, name: ObjectName) -> siltstone::Result<Option<Bytes>> {
        let store = self.bucket.store(self.client);
        self.run(async move { store.get(name, None).await })
    }

    fn delete(&self, name: ObjectName) -> siltstone::Result<()> {
        let store = self.bucket.store(self.client);
        self.run(async move { store.delete(name).await })
    }

    fn list(&self) -> siltstone::Result<usize> {
        let store = self.bucket.store(self.client);
        self.run(async move { store.list(prefix::WAL, None).await.map(|listed| listed.len()) })
    }

    fn upload(&self, name: ObjectName) -> siltstone::Result<()> {
        let store = self.bucket.store(self.client);
        self.run(async move {
            let mut upload = store.upload(name).await?;
            upload.write("table".into()).await?;
            upload.finish().await
        })
    }

    fn stands(&self, name: ObjectName) -> bool {
        self.bucket.objects().iter().any(|(found, _)| *found == name)
    }

    fn struck(&self, fault: Fault) -> u64 {
        self.bucket.injected().get(&fault).copied().unwrap_or(0)
    }
}

fn wal(id: u64) -> ObjectName {
    ObjectName::Wal(WalId(id))
}

const TABLE: ObjectName = ObjectName::Compacted(SstId(1));
const LONGEST_DELAY: Duration = Duration::from_secs(301);

#[test]
fn creates_fail_in_five_ways() {
    // The fault; the answer; whether the object exists immediately; whether later.
    let cases = [
        (Fault::PutLostOnTheWay, "ambiguous", false, false),
        (Fault::PutAnswerLost, "ambiguous", true, true),
        (Fault::PutLandsLate, "ambiguous", false, true),
        (Fault::PutFalseExists, "exists", false, false),
        (Fault::PutResent, "exists", true, true),
    ];
    for (fault, expected, at_once, later) in cases {
        let world = world(Some(fault));
        let answer = match world.put(1, "x") {
            PutAnswer::Ambiguous(_) => "ambiguous",
            PutAnswer::Exists => "exists",
            _ => "other",
        };
        assert_eq!(answer, expected, "{fault:?}");
        assert_eq!(world.stands(wal(1)), at_once, "{fault:?}");
        world.sim.run_for(LONGEST_DELAY).unwrap();
        assert_eq!(world.stands(wal(1)), later, "{fault:?}");
        assert_eq!(world.struck(fault), 1, "{fault:?}");
        assert_eq!(world.bucket.under_way(), 0);
    }
}

#[test]
fn a_late_create_lands_after_its_sender_is_dead_and_loses_to_who_came_before() {
    let world = world(Some(Fault::PutLandsLate));
    world.put(1, "late");
    world.put(2, "late");
    world.sim.kill(world.client);
    world.bucket.heal();
    let second = world.sim.process("second", 0);
    let store = world.bucket.store(second);
    let answer = world
        .sim
        .block_on(second, async move { store.put_if_absent(wal(1), "early".into()).await });
    assert!(matches!(answer, Ok(PutAnswer::Created)));
    assert_eq!(world.bucket.under_way(), 2);
    world.sim.run_for(LONGEST_DELAY).unwrap();
    let objects = world.bucket.objects();
    assert_eq!(objects, [(wal(1), "early".into()), (wal(2), "late".into())]);
}

#[test]
fn reads_fail_are_short_or_flipped_and_then_right() {
    for fault in [Fault::GetError, Fault::GetShort] {
        let world = world(Some(fault));
        world.bucket.insert(wal(1), "body".into());
        assert_eq!(world.get(wal(1)).unwrap_err().kind(), ErrorKind::Unavailable, "{fault:?}");
        assert_eq!(world.struck(fault), 1);
    }
    let world = world(Some(Fault::GetFlippedBit));
    world.bucket.insert(wal(1), "body".into());
    for _ in 0..3 {
        let flipped = world.get(wal(1)).unwrap().unwrap();
        let bits: u32 = flipped.iter().zip(b"body").map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!((flipped.len(), bits), (4, 1));
        for _ in 0..5 {
            assert_eq!(world.get(wal(1)).unwrap().as_deref(), Some(&b"body"[..]));
        }
        world.sim.run_for(Duration::from_secs(60)).unwrap();
    }
    assert_eq!(world.struck(Fault::GetFlippedBit), 3);
}

#[test]
fn listings_fail_or_lack_the_newest_for_a_while() {
    let failing = world(Some(Fault::ListError));
    assert_eq!(failing.list().unwrap_err().kind(), ErrorKind::Unavailable);
    let stale = world(Some(Fault::ListStale));
    stale.put(1, "old");
    stale.sim.run_for(Duration::from_secs(6)).unwrap();
    stale.put(2, "new");
    assert_eq!(stale.list().unwrap(), 1);
    stale.sim.run_for(Duration::from_secs(6)).unwrap();
    assert_eq!(stale.list().unwrap(), 2);
}

#[test]
fn deletes_and_uploads_fail_before_or_after_the_fact_or_land_late() {
    let cases = [
        (Fault::DeleteLost, false, false),
        (Fault::DeleteAnswerLost, true, true),
        (Fault::DeleteLate, false, true),
        (Fault::UploadPartError, false, false),
        (Fault::UploadLost, false, false),
        (Fault::UploadAnswerLost, true, true),
        (Fault::UploadLate, false, true),
    ];
    for (fault, at_once, later) in cases {
        let world = world(Some(fault));
        let deletes =
            matches!(fault, Fault::DeleteLost | Fault::DeleteAnswerLost | Fault::DeleteLate);
        if deletes {
            world.bucket.insert(TABLE, "table".into());
        }
        let answer = if deletes { world.delete(TABLE) } else { world.upload(TABLE) };
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable, "{fault:?}");
        assert_eq!(world.stands(TABLE) != deletes, at_once, "{fault:?}");
        world.sim.run_for(LONGEST_DELAY).unwrap();
        assert_eq!(world.stands(TABLE) != deletes, later, "{fault:?}");
        assert_eq!(world.struck(fault), 1, "{fault:?}");
    }
}

#[test]
fn brown_outs_hit_everything_and_end() {
    let world = world(Some(Fault::BrownOut));
    for _ in 0..3 {
        assert!(matches!(world.put(1, "x"), PutAnswer::Ambiguous(_)));
        assert!(world.get(wal(1)).is_err());
        assert!(world.list().is_err());
        assert!(world.delete(wal(1)).is_err());
        assert!(world.upload(TABLE).is_err());
    }
    assert!(world.struck(Fault::BrownOut) >= 1);
    world.bucket.heal();
    assert!(matches!(world.put(1, "x"), PutAnswer::Created));
    world.bucket.break_for(Duration::from_secs(5));
    assert!(world.get(wal(1)).is_err());
    world.sim.run_for(Duration::from_secs(5)).unwrap();
    assert!(world.get(wal(1)).unwrap().is_some());
}

#[test]
fn revoked_credentials_are_denied_until_they_are_back() {
    let world = world(None);
    world.bucket.set_denied(true);
    let answer = world.put(1, "x");
    assert!(matches!(&answer, PutAnswer::Refused(e) if e.kind() == ErrorKind::Denied));
    assert_eq!(world.get(wal(1)).unwrap_err().kind(), ErrorKind::Denied);
    world.bucket.set_denied(false);
    assert!(matches!(world.put(1, "x"), PutAnswer::Created));
}

#[test]
fn a_stall_takes_seconds() {
    let world = world(Some(Fault::Stall));
    world.put(1, "x");
    assert!(world.sim.elapsed() >= Duration::from_secs(1), "{:?}", world.sim.elapsed());
}

#[test]
fn every_operation_can_be_the_last() {
    // Creates 1, 2, 3: the process dies in its second request.
    let crashed = |point| {
        let world = world(None);
        world.bucket.crash_at(world.client, 2, point);
        let store = world.bucket.store(world.client);
        let ended = world.sim.block_on(world.client, async move {
            for id in 1..=3 {
                store.put_if_absent(wal(id), "x".into()).await;
            }
        });
        assert_eq!(ended, Err(Stopped::Killed), "{point:?}");
        assert_eq!(world.bucket.operations(world.client), 2, "{point:?}");
        world.sim.run_for(Duration::from_secs(1)).unwrap();
        world.bucket.objects().len()
    };
    assert_eq!(crashed(CrashPoint::Before), 1);
    assert_eq!(crashed(CrashPoint::AnswerLost), 2);
    assert_eq!(crashed(CrashPoint::After), 2);
}

#[test]
fn a_create_on_its_way_lands_though_its_process_dies() {
    let world = world(None);
    let store = world.bucket.store(world.client);
    world.sim.spawn(world.client, "put", async move {
        store.put_if_absent(wal(1), "x".into()).await;
    });
    // Until the request was sent, and no further.
    while world.bucket.operations(world.client) == 0 {
        world.sim.run_for(Duration::from_micros(1)).unwrap();
    }
    world.sim.kill(world.client);
    assert!(!world.stands(wal(1)));
    world.sim.run_for(Duration::from_secs(1)).unwrap();
    assert!(world.stands(wal(1)));
}
