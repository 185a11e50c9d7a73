//! Every order of the requests of two processes, with a crash of one of them at every point. A
//! request of a crashed process may still arrive, at any later time or never.
//!
//! A run is a sequence of choices: which waiting request takes effect next, or which process
//! crashes. Runs are repeated from the start, with each choice in turn (stateless model checking).
//! A run that loses or changes an acknowledged object breaks one of the rules T1, T2, T3 and T4.

use bytes::Bytes;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::task::noop_waker_ref;
use parking_lot::Mutex;
use siltstone::env::{Clock, Effects, Random, Spawn};
use siltstone::store::two_phase::TwoPhaseStore;
use siltstone::store::two_phase::memory::MemoryRecords;
use siltstone::store::two_phase::records::{InsertOutcome, Record, RecordStore};
use siltstone::store::{Listed, PutAnswer, Store, Upload, lies_under};
use siltstone_base::name::prefix;
use siltstone_base::{Error, ManifestId, ObjectName, Result, UnixMillis};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
type Waiting = (usize, Box<dyn FnOnce(&World) + Send>);

const NAME: ObjectName = ObjectName::Manifest(ManifestId(7));

/// The state that all processes share.
#[derive(Default)]
struct World {
    objects: Mutex<BTreeMap<ObjectName, Bytes>>,
    records: MemoryRecords,
    waiting: Mutex<Vec<Waiting>>,
    tasks: Mutex<Vec<(usize, Task)>>,
    random: AtomicU64,
    /// Requests take effect when they are sent: before and after the part that is explored.
    is_calm: Mutex<bool>,
    broken: Mutex<Vec<String>>,
}

impl World {
    /// Sends a request, which takes effect when it is chosen.
    fn send<T: Send + 'static>(
        self: &Arc<Self>,
        process: usize,
        request: impl FnOnce(&World) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let (answer, answered) = oneshot::channel();
        let request: Box<dyn FnOnce(&World) + Send> =
            Box::new(move |world: &World| drop(answer.send(request(world))));
        if *self.is_calm.lock() {
            request(self);
        } else {
            self.waiting.lock().push((process, request));
        }
        async move { answered.await.map_err(|_| Error::unavailable("never answered")) }.boxed()
    }

    fn put(&self, name: ObjectName, bytes: Bytes) {
        let old = self.objects.lock().insert(name, bytes.clone());
        if old.is_some_and(|old| old != bytes) {
            self.broken.lock().push(format!("{name} was overwritten"));
        }
    }
}

/// The effects of one process.
struct Here {
    world: Arc<World>,
    process: usize,
}

impl Clock for Here {
    fn now(&self) -> UnixMillis {
        UnixMillis(0)
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        futures::future::ready(()).boxed()
    }
}

impl Random for Here {
    fn next_u64(&self) -> u64 {
        self.world.random.fetch_add(1, Ordering::Relaxed)
    }
}

impl Spawn for Here {
    fn spawn(&self, _: &'static str, task: BoxFuture<'static, ()>) {
        self.world.tasks.lock().push((self.process, task));
    }
    fn spawn_blocking(&self, _: &'static str, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

/// The object store as one process sees it. Creates are not conditional.
struct Objects {
    world: Arc<World>,
    process: usize,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects")
    }
}

struct Sending {
    world: Arc<World>,
    process: usize,
    name: ObjectName,
    bytes: Bytes,
}

impl Upload for Sending {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        self.bytes = chunk;
        futures::future::ready(Ok(())).boxed()
    }
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let (name, bytes) = (self.name, self.bytes);
        self.world.send(self.process, move |world| world.put(name, bytes))
    }
    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        futures::future::ready(Ok(())).boxed()
    }
}

impl Store for Objects {
    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.world.send(self.process, move |world| {
            let found = world.objects.lock().get(&name).cloned();
            match range {
                Some(range) => {
                    found.map(|bytes| bytes.slice(range.start as usize..range.end as usize))
                }
                None => found,
            }
        })
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        // As a server that ignores the condition.
        let put = self.world.send(self.process, move |world| world.put(name, bytes));
        async move { put.await.map_or_else(PutAnswer::Ambiguous, |()| PutAnswer::Created) }.boxed()
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let (world, process) = (Arc::clone(&self.world), self.process);
        let upload: Box<dyn Upload> =
            Box::new(Sending { world, process, name, bytes: Bytes::new() });
        futures::future::ready(Ok(upload)).boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        _: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        self.world.send(self.process, move |world| {
            let objects = world.objects.lock();
            let listed = objects.iter().filter(|(name, _)| lies_under(**name, prefix));
            listed
                .map(|(name, bytes)| Listed {
                    name: *name,
                    bytes: bytes.len() as u64,
                    modified: UnixMillis(0),
                    tag: None,
                })
                .collect()
        })
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        self.world.send(self.process, move |world| drop(world.objects.lock().remove(&name)))
    }
}

/// The transactional store as one process sees it.
struct Sent {
    world: Arc<World>,
    process: usize,
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("records")
    }
}

impl Sent {
    fn send<T: Send + 'static>(
        &self,
        request: impl FnOnce(&MemoryRecords) -> BoxFuture<'_, Result<T>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let answer = self.world.send(self.process, move |world| {
            request(&world.records).now_or_never().unwrap_or_else(|| Err(Error::internal("waits")))
        });
        async move { answer.await? }.boxed()
    }
}

impl RecordStore for Sent {
    fn kind(&self) -> &'static str {
        "memory"
    }
    fn bind(&self, location: &str, fresh: u128) -> BoxFuture<'_, Result<u128>> {
        let location = location.to_owned();
        self.send(move |records| records.bind(&location, fresh))
    }
    fn location_of(&self, namespace: u128) -> BoxFuture<'_, Result<Option<String>>> {
        self.send(move |records| records.location_of(namespace))
    }
    fn rebind(&self, namespace: u128, location: &str) -> BoxFuture<'_, Result<()>> {
        let location = location.to_owned();
        self.send(move |records| records.rebind(namespace, &location))
    }
    fn insert(
        &self,
        namespace: u128,
        destination: ObjectName,
        source: ObjectName,
    ) -> BoxFuture<'_, Result<InsertOutcome>> {
        self.send(move |records| records.insert(namespace, destination, source))
    }
    fn get(&self, namespace: u128, name: ObjectName) -> BoxFuture<'_, Result<Option<Record>>> {
        self.send(move |records| records.get(namespace, name))
    }
    fn list(&self, namespace: u128, complete: bool) -> BoxFuture<'_, Result<Vec<Record>>> {
        self.send(move |records| records.list(namespace, complete))
    }
    fn complete(&self, namespace: u128, record: Record) -> BoxFuture<'_, Result<()>> {
        self.send(move |records| records.complete(namespace, record))
    }
    fn remove(&self, namespace: u128, names: Vec<ObjectName>) -> BoxFuture<'_, Result<()>> {
        self.send(move |records| records.remove(namespace, names))
    }
    fn purge(&self, namespace: u128, record: Record) -> BoxFuture<'_, Result<()>> {
        self.send(move |records| records.purge(namespace, record))
    }
    fn revoke(&self, namespace: u128, source: ObjectName) -> BoxFuture<'_, Result<bool>> {
        self.send(move |records| records.revoke(namespace, source))
    }
}

fn process(world: &Arc<World>, process: usize) -> Arc<TwoPhaseStore> {
    let here = Arc::new(Here { world: Arc::clone(world), process });
    let effects = Effects { clock: here.clone(), random: here.clone(), spawn: here };
    let objects = Arc::new(Objects { world: Arc::clone(world), process });
    let records = Arc::new(Sent { world: Arc::clone(world), process });
    TwoPhaseStore::new(objects, records, effects)
}

/// Runs a future whose requests take effect at once.
fn calm<T>(world: &World, work: impl Future<Output = T>) -> T {
    *world.is_calm.lock() = true;
    let done = work.now_or_never().unwrap();
    poll_tasks(world);
    *world.is_calm.lock() = false;
    done
}

/// Lets every task go as far as it gets without an answer.
fn poll_tasks(world: &World) {
    let mut going = Vec::new();
    loop {
        let tasks = std::mem::take(&mut *world.tasks.lock());
        if tasks.is_empty() {
            break;
        }
        for (process, mut task) in tasks {
            let mut context = Context::from_waker(noop_waker_ref());
            if task.as_mut().poll(&mut context) == Poll::Pending {
                going.push((process, task));
            }
        }
    }
    *world.tasks.lock() = going;
}

/// An action of a process.
#[derive(Clone, Copy, Debug)]
enum Act {
    Create(&'static str),
    /// Lists, then reads.
    Read,
    /// Deletes sources of any age.
    Sweep,
    Delete,
}

#[derive(Debug, Default)]
struct Seen {
    created: Vec<&'static str>,
    read: Vec<Option<Bytes>>,
    deleted: bool,
    errors: Vec<String>,
}

async fn act(store: Arc<TwoPhaseStore>, act: Act, seen: Arc<Mutex<Seen>>) {
    match act {
        Act::Create(bytes) => {
            match store.put_if_absent(NAME, Bytes::from_static(bytes.as_bytes())).await {
                PutAnswer::Created => seen.lock().created.push(bytes),
                PutAnswer::Exists => {}
                PutAnswer::Refused(error) | PutAnswer::Ambiguous(error) => {
                    // The source may have been revoked, which is a transient error.
                    if !error.kind().is_transient() {
                        seen.lock().errors.push(error.to_string());
                    }
                }
            }
        }
        Act::Read => {
            let listed = store.list(prefix::MANIFEST, None).await;
            let read = store.get(NAME, None).await;
            match (listed, read) {
                (Ok(listed), Ok(read)) => {
                    let mut seen = seen.lock();
                    if !listed.is_empty() && read.is_none() {
                        seen.errors.push("listed, and not there".to_owned());
                    }
                    seen.read.push(read);
                }
                (listed, read) => {
                    seen.lock().errors.push(format!("{:?} {:?}", listed.err(), read.err()));
                }
            }
        }
        Act::Sweep => {
            if let Err(error) = store.sweep(UnixMillis(u64::MAX)).await {
                seen.lock().errors.push(error.to_string());
            }
        }
        Act::Delete => match store.delete(NAME).await {
            Ok(()) => seen.lock().deleted = true,
            Err(error) => seen.lock().errors.push(error.to_string()),
        },
    }
}

/// The namespace of a database exists before the explored part, or is created in it.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Used,
    Empty,
}

/// One run. `choices` says which request or crash comes at each point, and grows by first choices;
/// the widths that were met go to `widths`.
fn run(
    (acts, crashes, place): (&[Act], usize, Place),
    choices: &mut Vec<usize>,
    widths: &mut Vec<usize>,
    mut next: impl FnMut(usize) -> usize,
) -> Vec<String> {
    let world = Arc::new(World::default());
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let stores: Vec<_> = (0..acts.len()).map(|number| process(&world, number)).collect();
    if place == Place::Used {
        let first = process(&world, 99);
        calm(&world, first.put_if_absent(ObjectName::ProbeRecord, Bytes::from_static(b"x")));
        for store in &stores {
            calm(&world, store.get(NAME, None)).unwrap();
        }
    }
    for ((number, act), store) in acts.iter().enumerate().zip(stores) {
        let task = self::act(store, *act, Arc::clone(&seen)).boxed();
        world.tasks.lock().push((number, task));
    }
    let mut dead: Vec<usize> = Vec::new();
    for step in 0.. {
        poll_tasks(&world);
        let live: Vec<usize> = {
            let tasks = world.tasks.lock();
            let live = (0..acts.len()).filter(|one| tasks.iter().any(|(of, _)| of == one));
            live.filter(|_| dead.len() < crashes).collect()
        };
        let waiting = world.waiting.lock().len();
        // Requests of dead processes may never arrive.
        let of_living =
            world.waiting.lock().iter().filter(|(process, _)| !dead.contains(process)).count();
        let may_stop = usize::from(of_living == 0);
        let width = waiting + live.len() + may_stop;
        if waiting == 0 {
            break;
        }
        if choices.len() == step {
            choices.push(next(width));
        }
        widths.push(width);
        let choice = choices[step];
        if choice < waiting {
            let (_, request) = world.waiting.lock().remove(choice);
            request(&world);
        } else if let Some(process) = live.get(choice - waiting) {
            world.tasks.lock().retain(|(of, _)| of != process);
            dead.push(*process);
        } else {
            break;
        }
    }
    world.waiting.lock().clear();
    world.tasks.lock().clear();
    judge(&world, acts, &seen.lock())
}

/// Checks the promises when every process has ended: a fresh one finds all acknowledged and read
/// creates.
fn judge(world: &Arc<World>, acts: &[Act], seen: &Seen) -> Vec<String> {
    let mut broken = std::mem::take(&mut *world.broken.lock());
    broken.extend(seen.errors.iter().cloned());
    let store = process(world, 100);
    let found = calm(world, store.get(NAME, None));
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            broken.push(format!("does not recover: {error}"));
            return broken;
        }
    };
    let deletes = acts.iter().any(|act| matches!(act, Act::Delete));
    if seen.created.len() > 1 && !deletes {
        broken.push(format!("two creates succeeded: {:?}", seen.created));
    }
    if !deletes {
        for bytes in &seen.created {
            if found.as_deref() != Some(bytes.as_bytes()) {
                broken.push(format!("{bytes} was acknowledged, and {found:?} is there"));
            }
        }
        for read in seen.read.iter().flatten() {
            if found.as_ref() != Some(read) {
                broken.push(format!("{read:?} was read, and {found:?} is there"));
            }
        }
    }
    // Two rounds of a collector leave nothing but the object and its record.
    for _ in 0..2 {
        if let Err(error) = calm(world, store.sweep(UnixMillis(u64::MAX))) {
            broken.push(format!("does not sweep: {error}"));
        }
    }
    let sources = |name: &&ObjectName| matches!(name, ObjectName::TwoPhaseSource(..));
    let left = world.objects.lock().keys().filter(sources).count();
    if left > 0 {
        broken.push(format!("{left} sources are left"));
    }
    broken
}

/// Every run; how many there were.
fn explore(acts: &[Act], crashes: usize) -> usize {
    let (mut choices, mut runs) = (Vec::new(), 0);
    loop {
        let mut widths = Vec::new();
        let how = (acts, crashes, Place::Used);
        let broken = run(how, &mut choices, &mut widths, |_| 0);
        assert!(broken.is_empty(), "{acts:?}, choices {choices:?}: {broken:?}");
        runs += 1;
        // The next sequence of choices, the last one first.
        loop {
            let Some(last) = choices.pop() else { return runs };
            if last + 1 < widths[choices.len()] {
                choices.push(last + 1);
                break;
            }
        }
    }
}

/// So many runs at random, in a place without a namespace; too many orders for all of them.
fn sample(acts: &[Act], runs: u64) {
    for run_number in 0..runs {
        let mut state = run_number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let draw = |width: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % width as u64) as usize
        };
        let (mut choices, mut widths) = (Vec::new(), Vec::new());
        let broken = run((acts, 1, Place::Empty), &mut choices, &mut widths, draw);
        assert!(broken.is_empty(), "{acts:?}, choices {choices:?}: {broken:?}");
    }
}

#[test]
fn processes_that_create_a_database_at_once_find_one_namespace() {
    sample(&[Act::Create("one"), Act::Create("two")], 20_000);
    sample(&[Act::Create("one"), Act::Create("two"), Act::Read], 20_000);
}

#[test]
fn one_of_two_creates_is_there_for_good() {
    let runs = explore(&[Act::Create("one"), Act::Create("two")], 1);
    assert!(runs > 10_000, "{runs}");
}

#[test]
fn a_create_survives_a_reader_that_completes_it() {
    let runs = explore(&[Act::Create("one"), Act::Read], 1);
    assert!(runs > 10_000, "{runs}");
}

#[test]
fn a_sweep_takes_no_source_that_a_record_needs() {
    let runs = explore(&[Act::Create("one"), Act::Sweep], 1);
    assert!(runs > 1_000, "{runs}");
}

#[test]
fn a_delete_meets_every_step_of_a_create() {
    let runs = explore(&[Act::Create("one"), Act::Delete], 1);
    assert!(runs > 1_000, "{runs}");
}
