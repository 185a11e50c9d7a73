//! The WAL task: makes WAL objects from buffered batches, keeps up to `max_parallel_writes` of them
//! in flight, and acknowledges them in the order of their ids. `WalWindow` of the manifest crate
//! has the rules; this file only carries them out.

use super::life::Phase;
use super::state::Writer;
use super::wal_buffer::FlushDue;
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
use siltstone_store::conditional::{self, Created};
use siltstone_store::troubles::{Area, Verb};
use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::futures::Notified;

/// First pause before an object is sent again under its id. It doubles up to `RETRY_MOST`.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MOST: Duration = Duration::from_secs(1);
/// Number of consecutive damaged reads of an object that is not ours before the damage counts as
/// permanent, not as a fault in transit. Each of these reads is repeated once.
const READS_OF_DAMAGE: u32 = 3;

/// A WAL object that is cut and not acknowledged yet.
struct SealedObject {
    bytes: Bytes,
    attempt: AttemptId,
    last_seq: Seq,
    /// Time at which its oldest write was accepted; `None` if it holds only an ingest.
    since: Option<Duration>,
    tries: u32,
    /// Consecutive reads of the object under this name that could not be decoded.
    unread: u32,
}

/// The result of a request in flight.
enum WalEvent {
    Sent(WalId, Created),
    Looked(Result<Arc<Manifest>>),
    /// The boundary, requested because of this id.
    Boundary(WalId, Result<WalId>),
}

pub(crate) struct WalTask {
    writer: Arc<Writer>,
    objects: Objects,
    window: WalWindow,
    sealed: BTreeMap<WalId, SealedObject>,
    in_flight: FuturesUnordered<BoxFuture<'static, WalEvent>>,
    /// Time of the last look at the manifest (rule F7).
    looked: Duration,
    looking: bool,
    /// Number of looks so far.
    looks: u32,
    /// Ids for which the boundary is requested, with the number of failed requests.
    checking: BTreeMap<WalId, u32>,
    /// Time at which the rate limit allows the next cut.
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

    /// Runs until the handle has ended, or is closing and all buffered writes are durable.
    pub(crate) async fn run(mut self) {
        let writer = Arc::clone(&self.writer);
        loop {
            let nudged = pin!(writer.nudges.wal.notified());
            if writer.dead().is_some() {
                return;
            }
            self.flush_what_is_awaited();
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

    /// Without a WAL, flushes the memtable with the write for which a caller waits.
    fn flush_what_is_awaited(&self) {
        let writer = &self.writer;
        let waited = writer.durability.waited();
        if writer.options.writes.wal_enabled || waited <= writer.durability.durable() {
            return;
        }
        let mut tail = writer.tail.lock();
        if tail.active.first_seq().is_some_and(|first| first <= waited) {
            writer.freeze(&mut tail);
        }
        drop(tail);
        writer.ask_flush(waited);
    }

    /// The next result in flight, or `None` after a notification or the timer.
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

    /// Cuts WAL objects while one is due and the window has room. Returns the time until the next
    /// one is due; `None` if only an event can make one due.
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

    /// Time until a buffered write must be sent, zero for now; `None` if nothing is buffered.
    fn due_in(&self, now: Duration) -> Option<Duration> {
        let writer = &self.writer;
        let tail = writer.tail.lock();
        let due = tail.wal.due()?;
        let waited = writer.durability.waited() >= tail.wal.first_seq();
        drop(tail);
        let closing = writer.life.phase() >= Phase::DrainWal;
        // A close does not wait for the rate: its deadline would pass, and the writes be lost.
        let by_rate = if closing { Duration::ZERO } else { self.next_cut.saturating_sub(now) };
        let by_time = match due {
            FlushDue::Since(since) if !waited && !closing => {
                (since + writer.options.flush_interval).saturating_sub(now)
            }
            FlushDue::Since(_) | FlushDue::Now => Duration::ZERO,
        };
        Some(by_time.max(by_rate))
    }

    /// Makes a WAL object of the oldest buffered piece and sends it under the next id.
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

    /// Sends the bytes of `id` after a pause.
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

    /// The pause after `tries` consecutive attempts.
    fn pause_after(&self, tries: u32) -> Duration {
        let base = RETRY_FIRST.saturating_mul(1 << tries.saturating_sub(1).min(10));
        self.writer.env.jittered(base.min(RETRY_MOST))
    }

    /// Rule F7: a writer under load checks whether another writer has taken over. Safety does not
    /// depend on it, because the fence of the newer writer stops this one. A read of the next
    /// manifest's number therefore suffices: it finds the claim of the newer writer, unless that
    /// number was freed meanwhile. For that case every `LIST_EVERY`-th look, and the first after a
    /// long pause, is a listing.
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
                    // A failed request proves nothing.
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

    /// Handles an error of the store for `id`. A refused credential is reported to waiting callers.
    /// Retrying does not cure it, but the objects stay queued in case the credential is repaired.
    ///
    /// # Errors
    /// A permanent refusal, which ends the handle (rule E4).
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

    /// Translates the result of an attempt for the protocol. An object that cannot be decoded
    /// counts as Unknown and is requested again.
    ///
    /// # Errors
    /// A permanent refusal; Corruption if the object under this name stays unreadable.
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
                        // Before the acknowledgement, so that a caller whose wait ends finds it.
                        if let Some(since) = sealed.since {
                            let context = &self.writer.context;
                            context.note(&context.asked.durable_writes, since);
                        }
                        self.writer.acknowledge(id, sealed.last_seq);
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

    /// Requests the boundary because of `id`, after a pause if an earlier request failed.
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

/// The error of a handle whose log the store refuses for good. An earlier attempt for the same
/// object may have landed, so the text does not claim what is stored.
fn refused(id: WalId, error: &Error) -> Error {
    Error::new(
        error.kind(),
        "the store refuses to store the log, and a retry cannot help: the handle has \
         ended; unacknowledged writes may or may not be stored",
    )
    .with("object", ObjectName::Wal(id))
    .caused_by(error.clone())
}
