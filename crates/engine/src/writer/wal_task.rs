//! The WAL task: makes WAL objects of buffered batches, keeps up to `max_parallel_writes` of them
//! in flight, and acknowledges in id order. The rules are the manifest crate's `WalWindow`; this
//! file only carries them out.

use super::life::Phase;
use super::state::Writer;
use super::wal_buffer::FlushDue;
use crate::io::store::conditional::{self, Created};
use crate::io::store::troubles::{Area, Verb};
use crate::manifests::objects::{Objects, seen};
use crate::manifests::poll::{LIST_EVERY, LONG_PAUSE_INTERVALS};
use bytes::Bytes;
use futures::FutureExt;
use futures::StreamExt;
use futures::future::{BoxFuture, Either, select};
use futures::stream::FuturesUnordered;
use siltstone_base::{
    AttemptId, Envelope, Error, ErrorKind, ObjectId, ObjectKind, ObjectName, PutOutcome, Result,
    Seq, WalId,
};
use siltstone_manifest::Manifest;
use siltstone_manifest::protocol::{Failure, WalSeen, WalWindow, WindowEvent};
use siltstone_sst::wal::{self, CutInfo};
use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::futures::Notified;

/// First pause before the same bytes go to the same id again; doubles up to the second bound.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MOST: Duration = Duration::from_secs(1);
/// Reads of an object that is not ours, each twice in a row damaged, before that is no damage of
/// the way.
const READS_OF_DAMAGE: u32 = 3;

/// A WAL object that is cut and not yet acknowledged.
struct SealedObject {
    bytes: Bytes,
    attempt: AttemptId,
    last_seq: Seq,
    /// When its oldest write was accepted; `None` of an ingest alone.
    since: Option<Duration>,
    tries: u32,
    /// Reads in a row of what stands in its place that could not be understood.
    unread: u32,
}

/// What something in flight ended with.
enum WalEvent {
    Sent(WalId, Created),
    Looked(Result<Arc<Manifest>>),
    /// The boundary, asked because of this id.
    Boundary(WalId, Result<WalId>),
}

pub(crate) struct WalTask {
    writer: Arc<Writer>,
    objects: Objects,
    window: WalWindow,
    sealed: BTreeMap<WalId, SealedObject>,
    in_flight: FuturesUnordered<BoxFuture<'static, WalEvent>>,
    /// When the manifest was last looked at (rule F7).
    looked: Duration,
    looking: bool,
    /// Looks so far.
    looks: u32,
    /// Ids on whose account the boundary is being asked, and how often it could not be told.
    checking: BTreeMap<WalId, u32>,
    /// When the rate ceiling allows the next cut.
    next_cut: Duration,
}

impl WalTask {
    pub(crate) fn new(writer: &Arc<Writer>, window: WalWindow) -> WalTask {
        WalTask {
            objects: writer.manifests.objects().clone(),
            looked: writer.env.clock.monotonic(),
            writer: Arc::clone(writer),
            window,
            sealed: BTreeMap::new(),
            in_flight: FuturesUnordered::new(),
            looking: false,
            looks: 0,
            checking: BTreeMap::new(),
            next_cut: Duration::ZERO,
        }
    }

    /// Runs until the handle has ended, or is closing and everything buffered is durable.
    pub(crate) async fn run(mut self) {
        let writer = Arc::clone(&self.writer);
        loop {
            let nudged = pin!(writer.nudges.wal.notified());
            if writer.dead().is_some() {
                return;
            }
            let wait = self.cut_what_is_due();
            if self.is_drained() {
                writer.set_phase(Phase::DrainFlush);
                return;
            }
            let timer = match wait {
                Some(wait) => writer.env.clock.sleep(wait),
                None => futures::future::pending().boxed(),
            };
            if let Some(done) = self.next_event(nudged, timer).await
                && let Err(fatal) = self.on_done(done)
            {
                writer.end(&fatal);
                return;
            }
        }
    }

    /// What ended first: something in flight, or (`None`) a nudge or the timer.
    async fn next_event(
        &mut self,
        nudged: Pin<&mut Notified<'_>>,
        timer: BoxFuture<'static, ()>,
    ) -> Option<WalEvent> {
        let in_flight = &mut self.in_flight;
        let done = pin!(async {
            match in_flight.next().await {
                Some(done) => done,
                None => futures::future::pending().await,
            }
        });
        match select(done, select(nudged, timer)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }

    fn is_drained(&self) -> bool {
        self.writer.life.phase() >= Phase::DrainWal
            && self.sealed.is_empty()
            && self.writer.tail.lock().wal.is_empty()
    }

    /// Cuts WAL objects while one is due and the window has room. Answers how long until the next
    /// one is due by time alone; `None` when only an event can make one due.
    fn cut_what_is_due(&mut self) -> Option<Duration> {
        loop {
            self.window.may_send()?;
            let now = self.writer.env.clock.monotonic();
            let due = self.due_in(now)?;
            if !due.is_zero() {
                return Some(due);
            }
            self.cut(now);
        }
    }

    /// How long until something buffered must go; zero: now. `None` when nothing is buffered.
    fn due_in(&self, now: Duration) -> Option<Duration> {
        let writer = &self.writer;
        let tail = writer.tail.lock();
        let due = tail.wal.due()?;
        let waited = writer.durability.waited() >= tail.wal.first_seq();
        drop(tail);
        let closing = writer.life.phase() >= Phase::DrainWal;
        let by_rate = self.next_cut.saturating_sub(now);
        let by_time = match due {
            FlushDue::Since(since) if !waited && !closing => {
                (since + writer.options.flush_interval).saturating_sub(now)
            }
            FlushDue::Since(_) | FlushDue::Now => Duration::ZERO,
        };
        Some(by_time.max(by_rate))
    }

    /// Makes a WAL object of the oldest piece that is buffered and sends it under the next id.
    fn cut(&mut self, now: Duration) {
        if self.window.may_send().is_none() {
            return;
        }
        let writer = &self.writer;
        let Some((buffered, since)) = writer.tail.lock().wal.take() else { return };
        let Some(id) = self.window.send() else { return };
        let last_seq = buffered.last_seq();
        let attempt = AttemptId(writer.env.random_u128());
        let object = ObjectId(writer.env.random_u128());
        let database = writer.manifests.database();
        let envelope = Envelope::new(ObjectKind::Wal, database, object, attempt);
        let at = writer.log.next_commit_time(writer.env.clock.now());
        let sent = CutInfo { durable: self.window.committed(), at };
        let bytes = buffered.finish(envelope, writer.epoch, id, sent);
        self.sealed
            .insert(id, SealedObject { bytes, attempt, last_seq, since, tries: 0, unread: 0 });
        if let Some(rate) = writer.options.max_wal_puts_per_second {
            self.next_cut = now + Duration::from_secs_f64(1.0 / rate);
        }
        self.send(id, Duration::ZERO);
        self.look_when_due(now);
    }

    /// Sends the bytes of `id`, after a pause.
    fn send(&mut self, id: WalId, pause: Duration) {
        let Some(sealed) = self.sealed.get_mut(&id) else { return };
        sealed.tries += 1;
        let (env, bytes, attempt) = (self.writer.env.clone(), sealed.bytes.clone(), sealed.attempt);
        self.in_flight.push(Box::pin(async move {
            if !pause.is_zero() {
                env.clock.sleep(pause).await;
            }
            let created = conditional::create(&env, ObjectName::Wal(id), bytes, attempt).await;
            WalEvent::Sent(id, created)
        }));
    }

    fn retry_pause(&self, id: WalId) -> Duration {
        let tries = self.sealed.get(&id).map_or(1, |sealed| sealed.tries);
        self.pause_after(tries)
    }

    /// The pause after so many tries in a row.
    fn pause_after(&self, tries: u32) -> Duration {
        let base = RETRY_FIRST.saturating_mul(1 << tries.saturating_sub(1).min(10));
        self.writer.env.jittered(base.min(RETRY_MOST))
    }

    /// Rule F7: a writer under load looks whether it was overtaken. Safety does not hang on it (the
    /// newer writer's fence stops this one), so a read of the next manifest's number will do: it
    /// finds the claim of whoever took over, unless that number was freed meanwhile. For that case
    /// one look in so many, and the first after a long pause, is a listing.
    fn look_when_due(&mut self, now: Duration) {
        let due = self.looked + self.writer.options.poll_interval();
        if self.looking || now < due {
            return;
        }
        let interval = self.writer.options.poll_interval();
        let paused = now.saturating_sub(self.looked) > interval * LONG_PAUSE_INTERVALS;
        self.looking = true;
        self.looks = self.looks.wrapping_add(1);
        let thorough = paused || self.looks.is_multiple_of(LIST_EVERY);
        let writer = Arc::clone(&self.writer);
        self.in_flight.push(Box::pin(async move {
            WalEvent::Looked(writer.manifests.probe(thorough).await)
        }));
    }

    fn on_done(&mut self, done: WalEvent) -> Result<()> {
        match done {
            WalEvent::Sent(id, created) => {
                let outcome = self.outcome(id, created)?;
                let events = self.window.on_outcome(id, outcome);
                self.carry_out(&events)
            }
            WalEvent::Looked(looked) => {
                self.looking = false;
                self.looked = self.writer.env.clock.monotonic();
                match looked {
                    Ok(manifest) if manifest.writer_epoch > self.writer.epoch => {
                        let events = self.window.on_overtaken(manifest.writer_epoch);
                        self.carry_out(&events)
                    }
                    Err(error) if !error.kind().may_pass() => Err(error),
                    // A store that does not answer just now proves nothing.
                    _ => Ok(()),
                }
            }
            WalEvent::Boundary(id, Ok(boundary)) => {
                self.checking.remove(&id);
                let events = self.window.on_boundary(id, boundary);
                self.carry_out(&events)
            }
            WalEvent::Boundary(id, Err(error)) => {
                self.heard(id, &error)?;
                if let Some(tries) = self.checking.get_mut(&id) {
                    *tries += 1;
                }
                self.ask_boundary(id);
                Ok(())
            }
        }
    }

    /// What the store refused on account of `id`. A refused credential is told to those who wait;
    /// retrying does not cure it, and the objects stay queued in case somebody does.
    ///
    /// # Errors
    /// A refusal that stays: the end of the handle.
    fn heard(&self, id: WalId, error: &Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Denied => self.writer.durability.trouble(error.clone()),
            kind if !kind.may_pass() => return Err(refused(id, error)),
            _ => {
                let troubles = self.writer.context.requests.troubles();
                troubles.note(Verb::Create, Area::Log, error);
            }
        }
        Ok(())
    }

    /// What became of a try, in the protocol's words. What cannot be read is asked for again.
    ///
    /// # Errors
    /// A refusal that stays; Corruption where nobody can read what stands in the object's place.
    fn outcome(&mut self, id: WalId, created: Created) -> Result<PutOutcome<WalSeen>> {
        let settled = matches!(created.outcome, PutOutcome::Committed | PutOutcome::Lost(_));
        if let Some(error) = created.error.filter(|_| !settled) {
            self.heard(id, &error)?;
        }
        Ok(match created.outcome {
            PutOutcome::Committed => PutOutcome::Committed,
            PutOutcome::NotApplied => PutOutcome::NotApplied,
            PutOutcome::Unknown => PutOutcome::Unknown,
            PutOutcome::Lost(bytes) => match wal::decode(bytes, id) {
                Ok(object) => PutOutcome::Lost(seen(&object, self.writer.manifests.database())),
                Err(error) => {
                    if let Some(sealed) = self.sealed.get_mut(&id) {
                        sealed.unread += 1;
                        if sealed.unread >= READS_OF_DAMAGE {
                            return Err(refused(id, &error));
                        }
                    }
                    PutOutcome::Unknown
                }
            },
        })
    }

    fn carry_out(&mut self, events: &[WindowEvent]) -> Result<()> {
        for event in events {
            match *event {
                WindowEvent::Acknowledged(id) => {
                    if let Some(sealed) = self.sealed.remove(&id) {
                        self.writer.acknowledge(id, sealed.last_seq);
                        if let Some(since) = sealed.since {
                            let context = &self.writer.context;
                            context.note(&context.asked.durable_writes, since);
                        }
                    }
                }
                WindowEvent::Retry(id) => {
                    let pause = self.retry_pause(id);
                    self.send(id, pause);
                }
                WindowEvent::CheckBoundary(id) => {
                    if self.checking.insert(id, 0).is_none() {
                        self.ask_boundary(id);
                    }
                }
                WindowEvent::Fenced { by, .. } => return Err(Failure::Fenced { by }.into()),
                WindowEvent::Failed(failure) => return Err(failure.into()),
            }
        }
        Ok(())
    }

    /// Asks for the boundary on account of `id`, after a pause where it could not be told before.
    fn ask_boundary(&mut self, id: WalId) {
        let objects = self.objects.clone();
        let pause = match self.checking.get(&id) {
            Some(tries) if *tries > 0 => self.pause_after(*tries),
            _ => Duration::ZERO,
        };
        self.in_flight.push(Box::pin(async move {
            if !pause.is_zero() {
                objects.env.clock.sleep(pause).await;
            }
            WalEvent::Boundary(id, objects.wal_boundary().await)
        }));
    }
}

/// The end of a handle whose log the store refuses for good. An earlier try of the same object may
/// have landed, whatever the last one was told: nothing is said of what is stored.
fn refused(id: WalId, error: &Error) -> Error {
    Error::new(
        error.kind(),
        "the store refuses the log, and will not take it however often it is sent: the handle has \
         ended; what was not acknowledged may or may not be stored",
    )
    .with("object", ObjectName::Wal(id))
    .caused_by(error.clone())
}
