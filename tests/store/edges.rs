//! The failing store at its limits: links, time limits, refusals, full disks, pages, panics.

use bytes::Bytes;
use siltstone::store::{PutAnswer, Store};
use siltstone_base::name::prefix;
use siltstone_base::{ErrorKind, ObjectName, SstId, WalId};
use siltstone_tests::faults::{Bucket, Fault, FaultPlan, Link, is_for_good};
use siltstone_tests::sim::{ProcessId, Sim};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

struct World {
    sim: Sim,
    bucket: Arc<Bucket>,
    client: ProcessId,
}

fn world(plan: FaultPlan) -> World {
    let sim = Sim::new(9);
    let bucket = Bucket::new(&sim, plan);
    let client = sim.process("client", 0);
    World { sim, bucket, client }
}

fn always(fault: Fault) -> World {
    world(FaultPlan::none().with(fault, 1000))
}

impl World {
    fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        work: impl FnOnce(Arc<dyn Store>) -> F,
    ) -> T {
        self.sim.block_on(self.client, work(self.bucket.store(self.client))).unwrap()
    }

    fn put(&self, id: u64, bytes: usize) -> PutAnswer {
        self.run(|store| async move { store.put_if_absent(wal(id), body(bytes)).await })
    }

    fn list(&self) -> siltstone::Result<Vec<ObjectName>> {
        self.run(|store| async move {
            let listed = store.list(prefix::WAL, None).await?;
            Ok(listed.into_iter().map(|one| one.name).collect())
        })
    }

    fn struck(&self, fault: Fault) -> u64 {
        self.bucket.injected().get(&fault).copied().unwrap_or(0)
    }
}

fn wal(id: u64) -> ObjectName {
    ObjectName::Wal(WalId(id))
}

fn body(bytes: usize) -> Bytes {
    vec![b'x'; bytes].into()
}

#[test]
fn a_body_takes_its_time_and_too_long_a_one_is_cut_off() {
    let limit = Duration::from_secs(5);
    let link = Link { bytes_per_second: 1000, limit, limit_bytes_per_second: None };
    let mut plan = FaultPlan::none();
    plan.link = Some(link);
    let world = world(plan);
    assert!(matches!(world.put(1, 4000), PutAnswer::Created));
    let before = world.sim.elapsed();
    assert!((4..5).contains(&before.as_secs()), "{before:?}");
    assert!(matches!(world.put(2, 60_000), PutAnswer::Ambiguous(_)));
    assert_eq!(world.sim.elapsed() - before, limit);
    assert_eq!((world.struck(Fault::SlowLink), world.struck(Fault::CutOff)), (2, 1));
    // Reads too, and the link stays when the faults end.
    world.bucket.heal();
    world.bucket.insert(wal(3), body(6000));
    let read = world.run(|store| async move { store.get(wal(3), None).await });
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Unavailable);
    world.bucket.insert(wal(4), body(2000));
    let read = world.run(|store| async move { store.get(wal(4), None).await });
    assert_eq!(read.unwrap().map(|bytes| bytes.len()), Some(2000));
}

#[test]
fn an_interrupted_create_may_land_or_not() {
    let limit = Duration::from_secs(1);
    let mut plan = FaultPlan::none();
    plan.link = Some(Link { bytes_per_second: 1000, limit, limit_bytes_per_second: None });
    let world = world(plan);
    for id in 1..=40 {
        assert!(matches!(world.put(id, 2000), PutAnswer::Ambiguous(_)));
    }
    world.sim.run_for(Duration::from_secs(300)).unwrap();
    let landed = world.bucket.objects().len();
    assert!((5..35).contains(&landed), "{landed} of 40");
    assert_eq!(world.bucket.under_way(), 0);
}

#[test]
fn one_verb_is_denied_while_the_others_work() {
    let denied = |error: Option<siltstone::Error>| {
        error.is_some_and(|error| error.kind() == ErrorKind::Denied)
    };
    for fault in [Fault::PutDenied, Fault::ListDenied, Fault::DeleteDenied] {
        let world = always(fault);
        let put = match world.put(1, 1) {
            PutAnswer::Refused(error) => Some(error),
            _ => None,
        };
        let deleted = world.run(|store| async move { store.delete(wal(1)).await });
        let found = [denied(put), denied(world.list().err()), denied(deleted.err())];
        let wanted = [Fault::PutDenied, Fault::ListDenied, Fault::DeleteDenied];
        assert_eq!(found, wanted.map(|one| one == fault), "{fault:?}");
        let read = world.run(|store| async move { store.get(wal(1), None).await });
        assert!(read.is_ok());
        world.bucket.heal();
        assert!(world.list().is_ok());
    }
}

#[test]
fn a_refusal_for_good_is_known_wherever_it_comes_out() {
    let world = always(Fault::RefusedForGood);
    let error = world.list().unwrap_err();
    assert!(is_for_good(&error) && !error.kind().is_transient());
    let told = siltstone::Error::internal("the end").caused_by(error);
    assert!(is_for_good(&told));
    assert!(matches!(world.put(1, 1), PutAnswer::Refused(error) if is_for_good(&error)));
    assert!(world.bucket.wal_refused_at(world.client).is_some());
    world.bucket.heal();
    assert!(matches!(world.put(1, 1), PutAnswer::Created));
}

#[test]
fn a_full_disk_takes_what_fits_until_there_is_room() {
    let mut plan = FaultPlan::none().with(Fault::DiskFull, 1000);
    plan.refusal = (Duration::from_secs(1000), Duration::from_secs(1000));
    plan.spare_bytes = 100;
    let world = world(plan);
    for id in 1..=3 {
        world.bucket.insert(wal(id), body(1000));
    }
    let PutAnswer::Refused(error) = world.put(4, 200) else { panic!("it does not fit") };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no space left"), "{error}");
    // Parts of uploads take space, and release it when they are dropped.
    let sent = world.run(|store| async move {
        let mut upload = store.upload(ObjectName::Compacted(SstId(1))).await?;
        upload.write(body(2000)).await
    });
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::Unavailable);
    world.run(|store| async move { store.delete(wal(1)).await }).unwrap();
    assert!(matches!(world.put(4, 200), PutAnswer::Created));
    assert_eq!(world.struck(Fault::DiskFull), 2);
}

#[test]
fn a_listing_in_pages_is_no_snapshot() {
    let mut plan = FaultPlan::none().with(Fault::ListInPages, 1000);
    plan.page_names = 2;
    plan.latency = (Duration::from_millis(100), Duration::from_millis(100));
    let world = world(plan);
    for id in 1..=6 {
        world.bucket.insert(wal(id), body(1));
    }
    assert_eq!(world.list().unwrap(), (1..=6).map(wal).collect::<Vec<_>>());
    assert_eq!(world.struck(Fault::ListInPages), 2);
    // The first page is read after 100 ms, the second 200 ms later.
    let (bucket, sim) = (Arc::clone(&world.bucket), (*world.sim).clone());
    world.sim.spawn(ProcessId::NETWORK, "meanwhile", async move {
        sim.sleep(Duration::from_millis(200)).await;
        bucket.remove(wal(1));
        bucket.remove(wal(5));
        bucket.insert(wal(7), body(1));
    });
    let expected: Vec<_> = [1, 2, 3, 4, 6, 7].map(wal).into();
    assert_eq!(world.list().unwrap(), expected);
}

#[test]
fn a_planned_panic_takes_its_task_alone() {
    let world = always(Fault::TaskPanic);
    let env = world.sim.env(world.client, world.bucket.store(world.client));
    // Not in a task of the test itself.
    assert!(world.list().unwrap().is_empty());
    let store = Arc::clone(&env.store);
    env.spawn.spawn("wal", Box::pin(async move { drop(store.list(prefix::WAL, None).await) }));
    world.sim.run_for(Duration::from_secs(1)).unwrap();
    let panics = world.sim.panics(world.client);
    assert_eq!(panics.len(), 1);
    assert_eq!(panics.first().map(|panic| panic.task), Some("wal"));
    assert!(world.list().unwrap().is_empty());
}
