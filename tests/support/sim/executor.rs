//! The executor: the next task, the time, and the history.

use super::env;
use super::limits::{Limits, Stopped};
use super::panics;
use super::planned::{PlannedPanic, is_planned, panic_as_planned};
use super::random::Rng;
use super::timer::Sleep;
use super::trace::{Event, Trace};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use siltstone::Env;
use siltstone::UnixMillis;
use siltstone::env::Effects;
use siltstone::store::Store;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A process of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(u32);

impl ProcessId {
    /// The network and the store behind it: sent requests continue here after their sender is dead.
    /// Never killed, never paused.
    pub const NETWORK: ProcessId = ProcessId(0);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TaskId(u64);

struct Process {
    name: &'static str,
    alive: bool,
    paused: bool,
    skew_millis: i64,
    /// Its tasks that panicked as planned.
    panics: Vec<PlannedPanic>,
}

struct Task {
    process: ProcessId,
    name: &'static str,
    /// Whether the engine spawned it; other tasks belong to the test.
    background: bool,
    spawned: Duration,
    /// Removed while it is polled.
    future: Option<BoxFuture<'static, ()>>,
    waker: Waker,
    queued: bool,
}

struct State {
    seed: u64,
    rng: Rng,
    limits: Limits,
    now: Duration,
    processes: BTreeMap<ProcessId, Process>,
    tasks: BTreeMap<TaskId, Task>,
    ready: Vec<TaskId>,
    /// The task that is being polled.
    running: Option<TaskId>,
    timers: BTreeMap<(Duration, u64), Waker>,
    /// Numbers tasks, timers and processes.
    next_number: u64,
    /// Processes that die after the current poll.
    dying: Vec<ProcessId>,
    /// Whether a panic of a task is part of the test.
    panics_expected: bool,
    /// The latest wall time that any process has read.
    latest_shown: UnixMillis,
    steps: u64,
    trace: Trace,
}

impl Process {
    fn new(name: &'static str, skew_millis: i64) -> Process {
        Process { name, alive: true, paused: false, skew_millis, panics: Vec::new() }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn is_alive(&self, process: ProcessId) -> bool {
        self.processes.get(&process).is_some_and(|process| process.alive)
    }

    fn may_run(&self, task: TaskId) -> bool {
        let process = self.tasks.get(&task).and_then(|task| self.processes.get(&task.process));
        process.is_some_and(|process| process.alive && !process.paused)
    }

    fn wake(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(&id)
            && !task.queued
        {
            task.queued = true;
            self.ready.push(id);
        }
    }

    fn panics(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else { return };
        let panic = PlannedPanic { task: task.name, spawned: task.spawned, at: self.now };
        let process = task.process;
        if let Some(process) = self.processes.get_mut(&process) {
            process.panics.push(panic);
        }
        self.note(process, "panics", id.0);
    }

    fn note(&mut self, process: ProcessId, what: &'static str, detail: u64) {
        self.trace.note(Event { at: self.now, process: process.0, what, detail });
    }

    /// Takes one of the runnable tasks, by the seed.
    fn pick(&mut self) -> Option<(TaskId, BoxFuture<'static, ()>, Waker)> {
        loop {
            let candidates: Vec<usize> = (0..self.ready.len())
                .filter(|at| self.ready.get(*at).is_some_and(|task| self.may_run(*task)))
                .collect();
            let drawn = self.rng.below(candidates.len() as u64) as usize;
            let id = self.ready.swap_remove(*candidates.get(drawn)?);
            let task = self.tasks.get_mut(&id)?;
            task.queued = false;
            let (process, name, waker) = (task.process, task.name, task.waker.clone());
            if let Some(future) = task.future.take() {
                self.note(process, name, id.0);
                self.running = Some(id);
                return Some((id, future, waker));
            }
        }
    }

    /// Jumps to the next timer, but not past `horizon`. Returns the wakers of all timers that are
    /// then due.
    fn advance(&mut self, horizon: Duration) -> Vec<Waker> {
        let Some(((due, _), _)) = self.timers.first_key_value() else { return vec![] };
        let due = *due;
        if due > horizon {
            return vec![];
        }
        self.now = self.now.max(due);
        let later = self.timers.split_off(&(due, u64::MAX));
        std::mem::replace(&mut self.timers, later).into_values().collect()
    }
}

struct TaskWaker {
    sim: SimHandle,
    task: TaskId,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.sim.0.lock().wake(self.task);
    }
}

/// The owner of a simulation: dropping it ends every process. It dereferences to the handle for
/// everything else.
pub struct Sim(SimHandle);

/// Access to a simulation. Cheap to clone.
#[derive(Clone)]
pub struct SimHandle(Arc<Mutex<State>>);

impl Deref for Sim {
    type Target = SimHandle;

    fn deref(&self) -> &SimHandle {
        &self.0
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.report());
        }
        // Tasks hold the simulation, and it holds them.
        let all: Vec<ProcessId> = self.0.0.lock().processes.keys().copied().collect();
        for process in all {
            self.0.end_process(process);
        }
    }
}

impl fmt::Debug for SimHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("Sim").field("seed", &state.seed).field("now", &state.now).finish()
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Sim {
    /// An empty world.
    #[must_use]
    pub fn new(seed: u64) -> Sim {
        panics::count();
        let network = Process::new("network", 0);
        Sim(SimHandle(Arc::new(Mutex::new(State {
            seed,
            rng: Rng::new(seed),
            limits: Limits::default(),
            now: Duration::ZERO,
            processes: BTreeMap::from([(ProcessId::NETWORK, network)]),
            tasks: BTreeMap::new(),
            ready: Vec::new(),
            running: None,
            timers: BTreeMap::new(),
            next_number: 0,
            dying: Vec::new(),
            panics_expected: false,
            latest_shown: UnixMillis(0),
            steps: 0,
            trace: Trace::default(),
        }))))
    }
}

impl SimHandle {
    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.lock().seed
    }

    /// A separate stream of randomness, for a workload or a store.
    #[must_use]
    pub fn split_rng(&self) -> Rng {
        self.0.lock().rng.split()
    }

    /// Sets the limits of each [`SimHandle::block_on`].
    pub fn set_limits(&self, limits: Limits) {
        self.0.lock().limits = limits;
    }

    /// Panics that tasks catch are part of the test: otherwise the first one ends it.
    pub fn expect_panics(&self) {
        self.0.lock().panics_expected = true;
    }

    /// A new process, whose wall clock differs from the world's by `skew_millis`.
    #[must_use]
    pub fn process(&self, name: &'static str, skew_millis: i64) -> ProcessId {
        let mut state = self.0.lock();
        let id = ProcessId(state.number() as u32);
        state.processes.insert(id, Process::new(name, skew_millis));
        id
    }

    /// Every process that is alive, including the network, whose clock is the store's.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessId> {
        let state = self.0.lock();
        state.processes.iter().filter(|(_, one)| one.alive).map(|(id, _)| *id).collect()
    }

    /// The seam of `process` over `store`.
    #[must_use]
    pub fn env(&self, process: ProcessId, store: Arc<dyn Store>) -> Env {
        self.effects(process).with_store(store)
    }

    /// [`SimHandle::env`] without a store.
    #[must_use]
    pub fn effects(&self, process: ProcessId) -> Effects {
        env::effects(self, process, self.split_rng())
    }

    /// Virtual time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.lock().now
    }

    /// The network's wall clock, with which a store stamps objects.
    #[must_use]
    pub fn wall_clock(&self) -> UnixMillis {
        env::wall_clock(self.elapsed(), self.skew_millis(ProcessId::NETWORK))
    }

    /// The latest wall time that any process has read: no process can have dropped an entry that
    /// expires later.
    #[must_use]
    pub fn latest_shown(&self) -> UnixMillis {
        self.0.lock().latest_shown
    }

    pub(crate) fn show(&self, now: UnixMillis) {
        let mut state = self.0.lock();
        state.latest_shown = state.latest_shown.max(now);
    }

    /// Completes after `duration` of virtual time.
    pub fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(Sleep::new(self.clone(), duration))
    }

    pub(crate) fn skew_millis(&self, process: ProcessId) -> i64 {
        self.0.lock().processes.get(&process).map_or(0, |process| process.skew_millis)
    }

    /// Changes a process's clock, as an administrator or a bad battery does.
    pub fn set_skew_millis(&self, process: ProcessId, skew_millis: i64) {
        if let Some(process) = self.0.lock().processes.get_mut(&process) {
            process.skew_millis = skew_millis;
        }
    }

    /// Adds a task. In a dead process the task is dropped.
    pub fn spawn(
        &self,
        process: ProcessId,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.add_task(process, name, false, Box::pin(task));
    }

    /// As [`SimHandle::spawn`], for tasks that the engine spawns itself.
    pub(crate) fn spawn_background(
        &self,
        process: ProcessId,
        name: &'static str,
        task: BoxFuture<'static, ()>,
    ) {
        self.add_task(process, name, true, task);
    }

    fn add_task(
        &self,
        process: ProcessId,
        name: &'static str,
        background: bool,
        future: BoxFuture<'static, ()>,
    ) {
        let mut state = self.0.lock();
        if !state.is_alive(process) {
            drop(state);
            return;
        }
        let id = TaskId(state.number());
        let waker = Waker::from(Arc::new(TaskWaker { sim: self.clone(), task: id }));
        let (future, spawned) = (Some(future), state.now);
        let task = Task { process, name, background, spawned, future, waker, queued: false };
        state.tasks.insert(id, task);
        state.wake(id);
    }

    /// Whether the current poll is of a task that the engine spawned itself.
    #[must_use]
    pub fn is_in_background(&self) -> bool {
        let state = self.0.lock();
        state.running.and_then(|id| state.tasks.get(&id)).is_some_and(|task| task.background)
    }

    /// Panics in the polled task; the panic is recorded even if it is caught.
    pub fn panic_as_planned(&self) -> ! {
        let mut state = self.0.lock();
        if let Some(id) = state.running {
            state.panics(id);
        }
        drop(state);
        panic_as_planned()
    }

    /// The tasks of `process` that have panicked as planned.
    #[must_use]
    pub fn panics(&self, process: ProcessId) -> Vec<PlannedPanic> {
        let state = self.0.lock();
        state.processes.get(&process).map(|process| process.panics.clone()).unwrap_or_default()
    }

    /// Whether the process has not been killed, and will not be at the end of this step.
    #[must_use]
    pub fn is_alive(&self, process: ProcessId) -> bool {
        let state = self.0.lock();
        state.is_alive(process) && !state.dying.contains(&process)
    }

    /// Kills a process: its tasks are dropped and never run again.
    pub fn kill(&self, process: ProcessId) {
        if process != ProcessId::NETWORK {
            self.end_process(process);
        }
    }

    fn end_process(&self, process: ProcessId) {
        let mut state = self.0.lock();
        let Some(dead) = state.processes.get_mut(&process) else { return };
        if !std::mem::replace(&mut dead.alive, false) {
            return;
        }
        state.note(process, "killed", 0);
        let ids: Vec<TaskId> =
            state.tasks.iter().filter(|(_, t)| t.process == process).map(|(id, _)| *id).collect();
        state.ready.retain(|task| !ids.contains(task));
        let tasks: Vec<Task> = ids.iter().filter_map(|id| state.tasks.remove(id)).collect();
        // Outside of the lock: dropped values may wake, spawn, or cancel a timer.
        drop(state);
        drop(tasks);
    }

    /// Kills a process after the current poll.
    pub fn kill_after_this_step(&self, process: ProcessId) {
        self.0.lock().dying.push(process);
    }

    /// Stops a process without ending it (SIGSTOP): its timers expire, its requests continue.
    pub fn pause(&self, process: ProcessId) {
        self.set_paused(process, true);
    }

    /// Continues a paused process (SIGCONT).
    pub fn resume(&self, process: ProcessId) {
        self.set_paused(process, false);
    }

    fn set_paused(&self, process: ProcessId, paused: bool) {
        if let Some(process) = self.0.lock().processes.get_mut(&process) {
            process.paused = paused;
        }
    }

    pub(crate) fn add_timer(&self, at: Duration, waker: Waker) -> (Duration, u64) {
        let mut state = self.0.lock();
        let key = (at, state.number());
        state.timers.insert(key, waker);
        key
    }

    pub(crate) fn remove_timer(&self, key: (Duration, u64)) {
        let removed = self.0.lock().timers.remove(&key);
        drop(removed);
    }

    /// Folds an event into the trace hash.
    pub fn note(&self, process: ProcessId, what: &'static str, detail: u64) {
        self.0.lock().note(process, what, detail);
    }

    /// The hash of everything that happened. Equal for equal seeds.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.0.lock().trace.hash()
    }

    /// Polls so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.0.lock().steps
    }

    /// Seed, time and the latest events, for the report of a failure.
    #[must_use]
    pub fn report(&self) -> String {
        let state = self.0.lock();
        let mut text = format!("seed {} at {:?}, {} steps\n", state.seed, state.now, state.steps);
        for event in state.trace.recent() {
            let process = state.processes.get(&ProcessId(event.process)).map_or("?", |p| p.name);
            let number = event.process;
            let (at, what, detail) = (event.at, event.what, event.detail);
            text.push_str(&format!("  {at:?} {process}#{number} {what} {detail:x}\n"));
        }
        text
    }

    /// Runs one runnable task, or else jumps to the next timer up to `horizon`. False if there is
    /// neither.
    fn step(&self, horizon: Duration) -> bool {
        let picked = self.0.lock().pick();
        let Some((id, mut future, waker)) = picked else {
            let due = self.0.lock().advance(horizon);
            let any = !due.is_empty();
            for waker in due {
                waker.wake();
            }
            return any;
        };
        let panics = panics::seen();
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        let mut state = self.0.lock();
        assert!(panics == panics::seen() || state.panics_expected, "a task panicked: see above");
        state.steps += 1;
        state.running = None;
        let polled = match polled {
            Ok(polled) => polled,
            // As in a runtime: the task is gone, the others continue.
            Err(payload) if is_planned(&*payload) => Poll::Ready(()),
            Err(payload) => {
                drop(state);
                resume_unwind(payload);
            }
        };
        let mut ended = Some(future);
        match polled {
            Poll::Ready(()) => drop(state.tasks.remove(&id)),
            // Its entry is gone if its process was killed meanwhile.
            Poll::Pending => {
                if let Some(task) = state.tasks.get_mut(&id) {
                    task.future = ended.take();
                }
            }
        }
        let dying = std::mem::take(&mut state.dying);
        drop(state);
        drop(ended);
        for process in dying {
            self.kill(process);
        }
        true
    }

    /// Runs the world until `future`, a task of `process`, is done.
    ///
    /// # Errors
    /// The reason why it stopped without a result.
    pub fn block_on<T: Send + 'static>(
        &self,
        process: ProcessId,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stopped> {
        let slot = Arc::new(Mutex::new(None));
        let fill = Arc::clone(&slot);
        self.spawn(process, "main", async move {
            let result = future.await;
            *fill.lock() = Some(result);
        });
        let (limits, started, steps) = {
            let state = self.0.lock();
            (state.limits, state.now, state.steps)
        };
        let horizon = started + limits.time;
        loop {
            if let Some(result) = slot.lock().take() {
                return Ok(result);
            }
            if !self.is_alive(process) {
                return Err(Stopped::Killed);
            }
            if self.steps() - steps >= limits.steps {
                return Err(Stopped::TooManySteps);
            }
            if !self.step(horizon) {
                let waits = !self.0.lock().timers.is_empty();
                return Err(if waits { Stopped::TooLong } else { Stopped::Deadlock });
            }
        }
    }

    /// Runs the world for `duration` of virtual time.
    ///
    /// # Errors
    /// [`Stopped::TooManySteps`] if it does not get that far.
    pub fn run_for(&self, duration: Duration) -> Result<(), Stopped> {
        let (until, limit) = {
            let state = self.0.lock();
            (state.now + duration, state.steps + state.limits.steps)
        };
        while self.step(until) {
            if self.steps() >= limit {
                return Err(Stopped::TooManySteps);
            }
        }
        let mut state = self.0.lock();
        state.now = state.now.max(until);
        Ok(())
    }
}
