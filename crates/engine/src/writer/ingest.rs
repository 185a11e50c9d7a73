//! Ingest jobs: the writer adopts requested jobs through the log (RFC 0035, rules N1, N12 and Q4).
//! The flush task installs them.

use super::commit::{Commit, Tail};
use super::state::Writer;
use super::transaction::footprint::CommitFootprint;
use crate::compact::pending::pending_bytes;
use crate::manifests::objects::is_damage;
use crate::read::queue::QueuedIngest;
use crate::read::tree::Tree;
use crate::wal::replay::content_gone;
use futures::future::{Either, select};
use parking_lot::Mutex;
use siltstone_base::{Error, ErrorKind, JobId, ObjectName, Result, Seq, SstDescriptor};
use siltstone_manifest::ingest::{ClosedJob, JobStatus, pending, standing_since, to_adopt};
use siltstone_manifest::protocol::Failure;
use siltstone_manifest::{
    Conflict, Edit, IngestConflict, IngestEdit, Manifest, PendingIngest, Refusal, RequestIngest,
    Rules, with_layers,
};
use siltstone_sst::wal::{WalIngest, WalIngestContent};
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Every `INGEST_LIST_EVERY`-th look is a listing. A manifest stays for the grace period of the
/// collector, so only a process that was stopped for longer misses a number by reads alone. Rule M4
/// binds readers, which serve the rows that they find. A look of this task finds only requests: a
/// missed one is adopted later.
const INGEST_LIST_EVERY: u32 = 64;
/// The log target of the writer.
const TARGET: &str = "siltstone.writer";
/// Pause before a job is tried again after an error that may pass.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum number of queued ingests. Each is at least one layer that every look-up reads, and no
/// key filter saves a look-up from reading it.
const MOST_QUEUED: usize = 8;
/// Number of jobs whose sequence number is remembered.
const MOST_REMEMBERED: usize = 256;

/// Adopts requested jobs until the handle begins to close or has ended.
pub(crate) async fn run(writer: Arc<Writer>) {
    let mut looks = 0u32;
    while writer.is_open() {
        let nudged = pin!(writer.nudges.ingest.notified());
        // This task is notified of every newer manifest. A writer that uploads nothing does not
        // meet its successor's fence, and learns of the successor here.
        let newest = writer.manifests.newest_known().writer_epoch;
        if newest > writer.epoch {
            writer.end(&Refusal::Fenced { by: newest }.into());
            return;
        }
        let queue = || writer.tree().queued().iter().filter_map(|one| one.job()).collect();
        let logs = writer.options.writes.wal_enabled;
        if let Some(asked) = next_asked(queue, || writer.manifests.newest_known()).filter(|_| logs)
        {
            if let Err(error) = writer.adopt(&asked).await {
                // A close that has begun refuses new writes and continues; the next writer adopts
                // the job.
                if error.kind() == ErrorKind::Closed || !writer.is_open() {
                    return;
                }
                if !error.kind().may_pass() {
                    writer.end(&error);
                    return;
                }
                writer.adopted_jobs.note(&error);
                // The commit may have succeeded although it returned an error.
                writer.nudges.ingested.notify_waiters();
                select(nudged, writer.env.clock.sleep(writer.env.jittered(RETRY))).await;
            }
            continue;
        }
        let Some(interval) = writer.options.writes.ingest_poll_interval else {
            nudged.await;
            continue;
        };
        let pause = writer.env.clock.sleep(interval);
        if let Either::Right(_) = select(nudged, pause).await {
            looks = looks.wrapping_add(1);
            // The manifest client notifies this task of a newer manifest.
            writer.manifests.glance(looks.is_multiple_of(INGEST_LIST_EVERY)).await;
        }
    }
}

/// The last jobs that this writer adopted, for callers that wait for them. The manifest forgets the
/// number of a job once a later version of its application is adopted.
#[derive(Debug, Default)]
pub(crate) struct AdoptedJobs {
    last: Mutex<VecDeque<(JobId, Seq)>>,
    denials: Mutex<Denials>,
}

/// Permissions that were missing when this writer adopted jobs.
#[derive(Debug, Default)]
struct Denials {
    count: u64,
    newest: Option<Error>,
}

impl AdoptedJobs {
    fn remember(&self, job: JobId, last: Seq) {
        let mut jobs = self.last.lock();
        jobs.push_back((job, last));
        if jobs.len() > MOST_REMEMBERED {
            jobs.pop_front();
        }
    }

    /// The last sequence number of `job`.
    fn last_of(&self, job: JobId) -> Option<Seq> {
        self.last.lock().iter().rev().find(|(known, _)| *known == job).map(|(_, last)| *last)
    }

    /// Notes an error of an adoption that is tried again, if it is a missing permission.
    fn note(&self, error: &Error) {
        if error.kind() == ErrorKind::Denied {
            let mut denials = self.denials.lock();
            denials.count += 1;
            denials.newest = Some(error.clone());
        }
    }

    /// The number of denials so far, for [`AdoptedJobs::denied_since`].
    fn denials(&self) -> u64 {
        self.denials.lock().count
    }

    /// The newest denial, if there were more than `count`.
    fn denied_since(&self, count: u64) -> Option<Error> {
        let denials = self.denials.lock();
        denials.newest.clone().filter(|_| denials.count > count)
    }
}

/// The next job to adopt. The queue is read before the manifest: a job leaves the queue once the
/// known manifest has its tables. *The run that breaks the other order:* the manifest shows a
/// pending job that is queued. Before the queue is read, a flush installs the job, and it is
/// adopted a second time. The simulation does not interrupt a step there; threads do.
fn next_asked(
    queue: impl FnOnce() -> Vec<JobId>,
    newest: impl FnOnce() -> Arc<Manifest>,
) -> Option<PendingIngest> {
    let queued = queue();
    to_adopt(&newest(), &queued, Rules::ALL).cloned()
}

impl Writer {
    /// Requests again the jobs of the replayed log that the manifest does not show as requested. A
    /// job is adopted only after its request, so the manifest with the request is lost: it was
    /// damaged and a repair went on from an earlier one, or it was deleted. Without a request no
    /// flush could install the job, and each of its requests would adopt it once more.
    ///
    /// # Errors
    /// Corruption if the object that closed a job is gone; Conflict if the job cannot be requested
    /// any more; Fenced; errors of the store.
    pub(super) async fn request_lost(&self) -> Result<()> {
        let queued: Vec<JobId> =
            self.tree().queued().iter().rev().filter_map(|one| one.job()).collect();
        for job in queued {
            let newest = self.manifests.newest_known();
            if pending(&newest, job).is_some() {
                continue;
            }
            let closed = self.manifests.objects().closed_job(job).await?;
            let closed = closed.ok_or_else(|| content_gone(job))?;
            log::warn!(target: TARGET, "event=ingest_requested_again job={job}");
            let request = RequestIngest {
                job,
                database: closed.database,
                // The log that was replayed belongs to the newest one, which a repair begins.
                timeline: newest.timelines.last().map(|one| one.id),
                digest: closed.digest(),
                app: closed.app,
                requested_at: self.env.clock.now(),
            };
            self.manifests.commit(Edit::Ingest(IngestEdit::Request(request))).await?;
        }
        Ok(())
    }

    /// Adopts a job, or refuses it with a reason.
    ///
    /// # Errors
    /// An error that may pass: the request stays pending. Any other error ends the handle.
    async fn adopt(self: &Arc<Self>, asked: &PendingIngest) -> Result<()> {
        let closed = match self.brought(asked).await? {
            Ok(closed) => closed,
            Err(reason) => {
                let (epoch, job) = (self.epoch, asked.job);
                let edit = IngestEdit::Refuse { epoch, job, reason };
                self.manifests.commit(Edit::Ingest(edit)).await?;
                self.nudges.ingested.notify_waiters();
                return Ok(());
            }
        };
        if closed.behind {
            self.install_behind(&closed).await?;
        } else {
            self.wait_for_room(&closed.layers).await?;
            self.accept_ingest(&closed)?;
        }
        self.nudges.ingested.notify_waiters();
        Ok(())
    }

    /// The content of a job, if all of it is present; otherwise the reason to refuse it.
    async fn brought(&self, asked: &PendingIngest) -> Result<Result<ClosedJob, String>> {
        let (objects, job) = (self.manifests.objects(), asked.job);
        let closed = match objects.closed_job(job).await {
            Ok(Some(closed)) => closed,
            Ok(None) => return Ok(Err("the object that closed the job is missing".to_owned())),
            Err(error) if is_damage(error.kind()) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
        };
        let ours = closed.database == self.manifests.database();
        if closed.is_aborted() || closed.digest() != asked.digest || !ours {
            return Ok(Err("the job was closed with different content".to_owned()));
        }
        // The collector trusts the application in this object. An object of an older format has
        // none.
        let app = closed.app.as_ref().map(|app| (app.name.clone(), app.version));
        if app.is_some() && app != asked.app {
            return Ok(Err("the job was closed as another version of an application".to_owned()));
        }
        let listed = objects.list_job(job).await?;
        let there: HashMap<ObjectName, u64> =
            listed.into_iter().map(|object| (object.name, object.bytes)).collect();
        let wrong = closed.tables().find_map(|table| {
            let bytes = there.get(&table.name()).copied();
            (bytes != Some(table.object_bytes)).then(|| (table.name(), bytes))
        });
        Ok(match wrong {
            None => Ok(closed),
            Some((name, None)) => Err(format!("the table {name} is missing")),
            Some((name, Some(bytes))) => Err(format!("the table {name} has {bytes} bytes")),
        })
    }

    /// Waits until there is room for these layers, oldest first, in addition to the queued ones.
    /// The wait precedes the sequence number; otherwise every put would wait behind it.
    pub(super) async fn wait_for_room(&self, layers: &[Vec<SstDescriptor>]) -> Result<()> {
        let mut awaits = None;
        loop {
            let change = self.next_change();
            if let Some(dead) = self.dead() {
                return Err(dead);
            }
            if self.has_room_for(layers) || !self.is_open() {
                return Ok(());
            }
            // The queued ingests free room once a manifest has them.
            awaits.get_or_insert_with(|| self.flushes.await_room());
            self.nudges.flush.notify_one();
            change.await;
        }
    }

    /// Ends at the next change of the handle's phase, of the queue, or of the newest known
    /// manifest. Create it before reading the state, so that no change in between is missed. It
    /// does not consume the notifications of the ingest task, because writers of large batches wait
    /// here too.
    fn next_change(&self) -> impl Future<Output = ()> + Send {
        let (life, relief) = (self.life.changed.notified(), self.pressure.relief.notified());
        let newer = self.pressure.newer.notified();
        async move {
            select(pin!(life), select(pin!(relief), pin!(newer))).await;
        }
    }

    fn has_room_for(&self, layers: &[Vec<SstDescriptor>]) -> bool {
        let tree = self.tree();
        let queued: usize = tree.queued().iter().map(|one| one.layers.len()).sum();
        if tree.queued().len() >= MOST_QUEUED {
            return false;
        }
        let fits =
            self.pressure.has_room_for(queued, layers.len()) && self.keeps_up_with(&tree, layers);
        fits || self.pending_bytes_with(&tree, &[]) == 0
    }

    /// Whether the bytes that wait for compaction stay within the bound at which writes stop, with
    /// these layers.
    fn keeps_up_with(&self, tree: &Tree, layers: &[Vec<SstDescriptor>]) -> bool {
        let most = self.options.compaction.max_pending_compaction_bytes;
        most.is_none_or(|most| layers.is_empty() || self.pending_bytes_with(tree, layers) <= most)
    }

    /// Bytes that wait for compaction once the queued ingests and these layers are in the tree. If
    /// the queue alone leaves none, no compaction will make more room: a job of three layers would
    /// wait for ever beside four layers of L0 if compaction begins at five layers and five are
    /// allowed.
    fn pending_bytes_with(&self, tree: &Tree, layers: &[Vec<SstDescriptor>]) -> u64 {
        let (newest, now) = (self.manifests.newest_known(), self.env.clock.now());
        let queued = tree.queued().iter().rev().flat_map(|one| &one.layers);
        pending_bytes(&with_layers(&newest, queued.chain(layers)), &self.options, now)
    }

    /// Gives a job its sequence numbers and its place in the log, above everything accepted before.
    fn accept_ingest(&self, closed: &ClosedJob) -> Result<()> {
        let mut tail = self.tail.lock();
        if let Some(ended) = &tail.ended {
            return Err(ended.clone());
        }
        let numbers = closed.layers.len() as u32;
        let (job, digest, first_seq) = (closed.job, closed.digest(), tail.next_seq);
        let content = WalIngestContent::Job { job, digest };
        let ingest = WalIngest { first_seq, numbers, content };
        let last = self.append_ingest(&mut tail, ingest, closed.numbered(first_seq))?;
        if tail.window.is_on() {
            for table in closed.tables() {
                if table.first_key < table.last_key {
                    tail.window
                        .note(last, CommitFootprint::Span(&table.first_key, &table.last_key));
                }
                tail.window.note(last, CommitFootprint::Key(&table.last_key));
            }
        }
        self.publish(last);
        drop(tail);
        self.adopted_jobs.remember(job, last);
        self.nudges.wal.notify_one();
        self.nudges.flush.notify_one();
        Ok(())
    }

    /// Appends an ingest to the log and to the queue (rule Q1). Returns its last number; the caller
    /// publishes it.
    pub(super) fn append_ingest(
        &self,
        tail: &mut Tail,
        ingest: WalIngest,
        layers: Vec<Vec<SstDescriptor>>,
    ) -> Result<Seq> {
        let last = ingest.last_seq();
        if last > Seq::MAX {
            return Err(Error::internal("sequence numbers are used up"));
        }
        self.freeze(tail);
        tail.wal.push_ingest(&ingest);
        tail.next_seq = last.next();
        let first = ingest.first_seq;
        self.queue(QueuedIngest::new(ingest.content, first, layers, &self.budget));
        Ok(last)
    }

    /// Commits a request. If the maximum number of jobs is pending, waits until this writer has
    /// adopted some.
    async fn request(
        self: &Arc<Self>,
        edit: Edit,
    ) -> Result<std::result::Result<Arc<Manifest>, Refusal>> {
        let full = Refusal::Conflict(Conflict::Ingest(IngestConflict::Full));
        let mut awaits = None;
        loop {
            let change = self.next_change();
            let answer = self.try_commit_apart(edit.clone()).await?;
            if answer.as_ref().err() != Some(&full) || !self.is_open() {
                return Ok(answer);
            }
            // The ingest task adopts the jobs of the newest known manifest, and a refused commit
            // does not make the manifest known that it read. A writer without a poll interval would
            // never learn of the jobs that fill the queue.
            self.manifests.probe(false).await?;
            awaits.get_or_insert_with(|| self.flushes.await_room());
            self.nudges.ingest.notify_one();
            self.nudges.flush.notify_one();
            change.await;
        }
    }

    /// Requests a job and waits until it is adopted. The job is visible then, and durable later.
    ///
    /// # Errors
    /// Conflict if the request cannot be accepted; Invalid, with the reason, if the writer refuses
    /// the job; Denied at once, though the job stays requested and is adopted once the permission
    /// is there; Fenced, Closed; errors of the store.
    pub(crate) async fn ingest(self: &Arc<Self>, request: RequestIngest) -> Result<Commit> {
        self.check_logs()?;
        let denials = self.adopted_jobs.denials();
        let mut job = request.job;
        // The job that is awaited, this one or an earlier one of the same version, has this
        // application.
        let (app, timeline) = (request.app.clone(), request.timeline);
        let edit = Edit::Ingest(IngestEdit::Request(request));
        match self.request(edit).await? {
            Ok(_) => {}
            // The same version of the application was requested before, as another job. Wait for
            // that one.
            Err(Refusal::Conflict(Conflict::Ingest(IngestConflict::AppHas { job: other }))) => {
                job = other;
            }
            Err(refusal) => {
                // If there is a successor, the refusal is about its state; this handle must report
                // the fencing.
                let newest = self.manifests.newest_known().writer_epoch;
                let overtaken = newest > self.epoch;
                return Err(if overtaken { Refusal::Fenced { by: newest } } else { refusal }.into());
            }
        }
        self.nudges.ingest.notify_one();
        loop {
            let mut taken = pin!(self.nudges.ingested.notified());
            taken.as_mut().enable();
            if let Some(dead) = self.dead() {
                return Err(dead);
            }
            // Read this before the adopted jobs, because no job is adopted after a close.
            let is_open = self.is_open();
            if let Some(seq) = self.adopted_jobs.last_of(job) {
                return Ok(self.commit_at(seq));
            }
            if let Some(queued) = self.tree().queued().iter().find(|one| one.job() == Some(job)) {
                return Ok(self.commit_at(queued.last));
            }
            let newest = self.manifests.newest_known();
            if newest.writer_epoch > self.epoch {
                // The fate of the job is the successor's; this handle may never show it.
                return Err(Failure::Fenced { by: Some(newest.writer_epoch) }.into());
            }
            match standing_since(&newest, (job, app.as_ref()), timeline) {
                JobStatus::Adopted(seq) | JobStatus::AdoptedBefore(seq) => {
                    self.show_behind(seq).await?;
                    return Ok(self.commit_at(seq));
                }
                JobStatus::Pending if is_open => {}
                other => return Err(not_adopted(job, &other)),
            }
            // Jobs are adopted in order, so a denial of an earlier job holds this one up too.
            if let Some(denied) = self.adopted_jobs.denied_since(denials) {
                return Err(denied.with("job", job));
            }
            debug_assert!(pending(&newest, job).is_some());
            taken.await;
        }
    }
}

/// The error for a requested job that is not part of the database.
pub(crate) fn not_adopted(job: JobId, standing: &JobStatus) -> Error {
    let error = match standing {
        JobStatus::Refused(reason) => {
            Error::invalid("the writer refused the ingest job; stage it again").with("why", reason)
        }
        JobStatus::Withdrawn => {
            Error::new(ErrorKind::Conflict, "the ingest job was withdrawn; create another one")
        }
        JobStatus::Pending => Error::new(
            ErrorKind::Closed,
            "the handle is closing; the next writer adopts the ingest job",
        ),
        JobStatus::Forgotten => Error::new(
            ErrorKind::Expired,
            "the ingest job's deadline has passed, or a later version of its application was \
             adopted or forgotten; the outcome of the job is no longer recorded",
        ),
        JobStatus::Open
        | JobStatus::Ended
        | JobStatus::Adopted(_)
        | JobStatus::AdoptedBefore(_) => {
            Error::new(ErrorKind::Conflict, "the ingest job has ended; create another one")
        }
    };
    error.with("job", job)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use siltstone_base::{DatabaseId, UnixMillis};
    use siltstone_manifest::Settings;

    /// A flush follows the first of the two reads, in either order. It publishes a manifest that
    /// has the job and removes the job from the queue.
    #[test]
    fn a_job_that_is_installed_amid_a_look_is_not_taken_in_again() {
        const JOB: JobId = JobId(1 << 90);
        let empty = Manifest::new_database(DatabaseId(1), Settings::default());
        let request = RequestIngest {
            job: JOB,
            database: DatabaseId(1),
            timeline: None,
            digest: Bytes::from_static(b"parts"),
            app: None,
            requested_at: UnixMillis(1),
        };
        let asked = Edit::Ingest(IngestEdit::Request(request)).apply(&empty).unwrap();
        // The queue is empty and the job is pending.
        let waits = next_asked(Vec::new, || Arc::new(asked.clone()));
        assert_eq!(waits.map(|one| one.job), Some(JOB));

        let world = Mutex::new((Arc::new(asked), vec![JOB]));
        let flush = || *world.lock() = (Arc::new(empty.clone()), Vec::new());
        let queue = || {
            let queued = world.lock().1.clone();
            flush();
            queued
        };
        let newest = || {
            let newest = Arc::clone(&world.lock().0);
            flush();
            newest
        };
        assert_eq!(next_asked(queue, newest), None);
    }
}
