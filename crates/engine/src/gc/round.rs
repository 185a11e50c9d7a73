//! One round of the collector: the machine names the requests to the store, and this module makes
//! them. It must never delete an object that the machine did not name.

use super::around;
use super::boundary::BoundaryMaker;
use super::deletes::delete_batch;
use super::detach::detach;
use super::due::LastRound;
use super::report::GcReport;
use crate::manifests::client::{ManifestRequests, look};
use crate::manifests::gate;
use crate::manifests::missing::no_database;
use crate::manifests::objects::{Objects, is_damage};
use crate::manifests::rules;
use crate::manifests::store_time::store_time;
use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use siltstone_base::name::prefix;
use siltstone_base::{
    DatabaseId, Error, ErrorKind, JobId, ManifestId, ObjectName, PutOutcome, Result, UnixMillis,
};
use siltstone_manifest::compaction::record::{RecordAnswer, RecordRequest};
use siltstone_manifest::gc::{Allowance, CollectDecision, ListedObject};
use siltstone_manifest::ingest::JobApp;
use siltstone_manifest::protocol::{
    Collect, CollectAction, ManifestAnswer, ManifestRequest, ProvenManifests,
};
use siltstone_manifest::{Conflict, LeasedVersion, Manifest, Refusal, SinceLease, codec};
use siltstone_store::Listed;
use siltstone_store::full::is_full;
use siltstone_store::progress::Progress;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Manifests that are read at a time: a first round over a busy database may need many.
const READ_AHEAD: usize = 32;
/// Maximum number of bytes of manifests that are read at a time. In memory a manifest takes three
/// times as much.
const READ_AHEAD_BYTES: u64 = 8 << 20;
/// The folders that a round lists.
const FOLDERS: [&str; 6] = [
    prefix::MANIFEST,
    prefix::WAL,
    prefix::COMPACTED,
    prefix::COMPACTIONS,
    prefix::INGEST,
    prefix::PROBE,
];

/// Attempts to create a boundary in a full store, and the pause between two of them. A write that
/// takes the last block and fails frees that block again.
const TRIES_FOR_ROOM: u32 = 8;
const PAUSE_FOR_ROOM: Duration = Duration::from_millis(25);

/// Cut-offs of rounds that use no clock: no object is old, or every object is.
const NEVER: UnixMillis = UnixMillis(0);
const ALWAYS: UnixMillis = UnixMillis(u64::MAX);

/// The collector of one database, from one round to the next.
pub(crate) struct Collector {
    pub(super) objects: Objects,
    min_age: Duration,
    /// Time for which a destroyed database is kept.
    pub(super) db_delete_grace: Duration,
    /// Proven content of manifests, so that each is read once.
    known: ProvenManifests,
    pub(super) seen: LastRound,
    /// The objects that the last round left because they were too young, and their bytes.
    young: Vec<(ObjectName, u64)>,
    /// Progress of the running round, for the caller that asked for it.
    pub(super) progress: Arc<Progress>,
}

impl Collector {
    /// A collector without memory: any garbage that it finds is a reason for a round.
    pub(crate) fn new(objects: Objects, min_age: Duration, db_delete_grace: Duration) -> Collector {
        let (known, seen) = (ProvenManifests::default(), LastRound::default());
        let (young, progress) = (Vec::new(), Arc::default());
        Collector { objects, min_age, db_delete_grace, known, seen, young, progress }
    }

    /// As [`Collector::new`], for a process that begins with `newest`. Garbage that exists already
    /// is from other processes, and waits until this process makes some.
    pub(crate) fn beginning_with(self, newest: Arc<Manifest>) -> Collector {
        Collector { seen: LastRound::at_open(newest), ..self }
    }

    /// This collector, which keeps `progress` up to date.
    pub(super) fn told_to(self, progress: &Arc<Progress>) -> Collector {
        Collector { progress: Arc::clone(progress), ..self }
    }

    /// Whether a round that begins from `newest` could find garbage.
    pub(super) fn is_due(&self, newest: &Manifest) -> bool {
        if newest.destroyed_at.is_some() {
            return self.is_end_due(newest);
        }
        let clock = &self.objects.env.clock;
        self.seen.is_due(newest, clock.now(), clock.monotonic())
    }

    /// Whether a round that begins from `newest` is worth its requests.
    pub(crate) fn is_worth(&self, newest: &Manifest) -> bool {
        let clock = &self.objects.env.clock;
        self.seen.is_worth(newest, clock.now(), clock.monotonic())
    }

    /// The newest manifest that the last round found.
    pub(crate) fn newest_found(&self) -> Option<&Arc<Manifest>> {
        self.seen.newest()
    }

    /// The objects that the last round left because they were too young, and their bytes.
    pub(crate) fn young(&self) -> &[(ObjectName, u64)] {
        &self.young
    }

    /// The newest manifest; `None` if no database exists at the path, or no longer.
    ///
    /// # Errors
    /// Errors of the store; Corruption; Unsupported if this build may not collect the database.
    pub(super) async fn look(&self) -> Result<Option<Arc<Manifest>>> {
        // A database that was created anew at this path begins with small numbers again. Only a
        // look from the start finds it: a look from a known number would find no newer manifest.
        let newest = look(&self.objects, None).await?;
        newest.as_deref().map_or(Ok(()), gate::check_changes)?;
        let in_the_making = |state: &Manifest| !state.initialized && state.destroyed_at.is_none();
        if newest.as_deref().is_some_and(in_the_making) {
            return Err(Refusal::from(Conflict::NotInitialized).into());
        }
        Ok(newest)
    }

    /// Runs one round, planned on `newest`, which leaves at most `allowance` of garbage because of
    /// its age. If the store has no room for the objects that the round must write, the collector
    /// first deletes the garbage that needs no write.
    ///
    /// # Errors
    /// See [`super::once`].
    pub(crate) async fn round(
        &mut self,
        newest: Arc<Manifest>,
        allowance: Option<Allowance>,
    ) -> Result<GcReport> {
        let database = newest.database;
        match self.round_of(newest, allowance).await {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                self.unless_ended(database, error).await
            }
            ended => ended,
        }
    }

    /// Decides about `error`, which reports a missing object. If the database was destroyed since
    /// the round began, its objects are being removed: the collector continues the removal. If no
    /// database, or another one, is at the path, the error is NotFound. Otherwise `error` is
    /// returned.
    async fn unless_ended(&mut self, database: DatabaseId, error: Error) -> Result<GcReport> {
        match self.look().await?.filter(|state| state.database == database) {
            Some(state) if state.destroyed_at.is_some() => self.end_round(state).await,
            Some(_) => Err(error),
            None => Err(no_database(&self.objects.env)),
        }
    }

    async fn round_of(
        &mut self,
        newest: Arc<Manifest>,
        allowance: Option<Allowance>,
    ) -> Result<GcReport> {
        if newest.destroyed_at.is_some() {
            return self.end_round(newest).await;
        }
        let full = match self.whole_round(Arc::clone(&newest), allowance).await {
            Err(error) if is_full(&error) => error,
            ended => return ended,
        };
        let mut freed = self.round_without_time(&newest, NEVER).await?;
        if freed.total().deleted == 0 {
            return Err(full);
        }
        match self.whole_round(newest, allowance).await {
            Ok(mut report) => {
                report.add(&freed);
                Ok(report)
            }
            Err(error) => {
                self.seen = LastRound::default();
                freed.trouble.get_or_insert(error);
                Ok(freed)
            }
        }
    }

    /// Frees space in a full store: deletes all garbage of any age, and writes nothing but
    /// boundaries.
    ///
    /// # Errors
    /// See [`super::once`]; the refusal of the store if it has no room for a boundary, and no
    /// garbage can be deleted without one.
    pub(crate) async fn relieve(&mut self, newest: Arc<Manifest>) -> Result<GcReport> {
        let full = match self.round_without_time(&newest, ALWAYS).await {
            Err(error) if is_full(&error) => error,
            ended => return ended,
        };
        let freed = self.round_without_time(&newest, NEVER).await?;
        if freed.total().deleted == 0 {
            return Err(full);
        }
        let mut report = self.round_without_time(&newest, ALWAYS).await?;
        report.add(&freed);
        Ok(report)
    }

    /// A round that neither requests the store's time nor revokes. With `cutoff` [`ALWAYS`] every
    /// object is old, with [`NEVER`] none is. With [`NEVER`] the round writes nothing: it moves no
    /// boundary, and deletes only unreferenced objects and objects behind a present boundary.
    async fn round_without_time(
        &mut self,
        newest: &Arc<Manifest>,
        cutoff: UnixMillis,
    ) -> Result<GcReport> {
        let began = self.objects.env.clock.monotonic();
        let machine = Collect::new(Arc::clone(newest), NEVER, cutoff, rules::in_force());
        let mut round = Round::new(&self.objects, machine, newest.database);
        round.drive().await?;
        self.young = round.young();
        let Round { report, machine, .. } = round;
        let newest = machine.newest().cloned().unwrap_or_else(|| Arc::clone(newest));
        self.seen = LastRound::after(&report, newest, began, self.min_age);
        Ok(report)
    }

    async fn whole_round(
        &mut self,
        newest: Arc<Manifest>,
        allowance: Option<Allowance>,
    ) -> Result<GcReport> {
        let (env, database) = (&self.objects.env, newest.database);
        let (began, mut now) = (env.clock.monotonic(), env.clock.now());
        if newest.has_expired(now) {
            // The process that refreshes a checkpoint or a lease uses its own clock. So a record
            // counts as expired only if both this process's clock and the store's say so. A wrong
            // clock then only delays.
            now = now.min(store_time(&self.objects, database).await?);
        }
        let expired = newest.checkpoints.iter().filter(|one| one.expired_at(now));
        let expired: Vec<_> = expired.map(|one| one.id).collect();
        let leases = newest.leases.iter().filter(|lease| lease.expired_at(now));
        let ran_out: Vec<_> = leases.flat_map(|lease| lease.versions.clone()).collect();
        let since = newest.since_leases.iter().filter(|lease| lease.expired_at(now));
        let since: Vec<_> = since.copied().collect();
        let (rules, never) = (rules::in_force(), UnixMillis(0));
        let machine = Collect::new(Arc::clone(&newest), now, never, rules);
        let known = std::mem::take(&mut self.known);
        let machine = machine.knowing(known).leaving(allowance);
        let mut round = Round::new(&self.objects, machine, database);
        round.progress = Some(&self.progress);
        round.min_age = Some(self.min_age);
        round.drive().await?;
        self.young = round.young();
        let Round { mut report, machine, cutoff, .. } = round;
        // A checkpoint that was refreshed in time is still present.
        let gone = |id: &&_| machine.newest().is_some_and(|state| state.checkpoint(**id).is_none());
        report.revoked = expired.iter().filter(gone).count() as u64;
        let unleased = |version: &&LeasedVersion| {
            machine.newest().is_some_and(|state| state.lease_of(version.manifest_id).is_none())
        };
        let dropped = |lease: &&SinceLease| {
            machine.newest().is_some_and(|state| !state.since_leases.contains(lease))
        };
        let unleased =
            ran_out.iter().filter(unleased).count() + since.iter().filter(dropped).count();
        report.unleased = unleased as u64;
        report.swept = self.objects.env.store.sweep(cutoff).await?;
        let newest = machine.newest().cloned().unwrap_or(newest);
        let unnamed = machine.detachable();
        if let Err(error) = detach(&self.objects, &newest, unnamed).await {
            report.trouble.get_or_insert(error);
        }
        self.seen = LastRound::after(&report, newest, began, self.min_age);
        self.known = machine.into_known();
        Ok(report)
    }

    /// The report of a round that changes nothing.
    ///
    /// # Errors
    /// See [`super::once`].
    pub(super) async fn dry_round(&mut self, newest: &Manifest) -> Result<GcReport> {
        if newest.destroyed_at.is_some() {
            return self.dry_end(newest).await;
        }
        let now = self.objects.env.clock.now();
        let (rules, cutoff) = (rules::in_force(), before(now, self.min_age));
        let machine = Collect::dry(newest.database, now, cutoff, rules);
        let mut round = Round::new(&self.objects, machine, newest.database);
        round.drive().await?;
        let Round { mut report, .. } = round;
        report.note_dead(&round.listed, &round.fates, now);
        report.dry_run = true;
        report.revoked = newest.checkpoints.iter().filter(|one| one.expired_at(now)).count() as u64;
        let ran_out = newest.leases.iter().filter(|lease| lease.expired_at(now));
        let since = newest.since_leases.iter().filter(|lease| lease.expired_at(now));
        let points: usize = ran_out.map(|lease| lease.versions.len()).sum();
        report.unleased = (points + since.count()) as u64;
        Ok(report)
    }
}

/// `now` minus the grace period.
fn before(now: UnixMillis, min_age: Duration) -> UnixMillis {
    let grace = u64::try_from(min_age.as_millis()).unwrap_or(u64::MAX);
    UnixMillis(now.0.saturating_sub(grace))
}

/// A running round.
struct Round<'a> {
    objects: &'a Objects,
    machine: Collect,
    database: DatabaseId,
    requests: ManifestRequests,
    /// Manifests that were read ahead of the machine's requests.
    ahead: HashMap<ManifestId, Option<Arc<Manifest>>>,
    /// Lengths of manifests, from the listing.
    lengths: HashMap<ManifestId, u64>,
    /// The listed objects, and the decision about each.
    listed: Vec<Listed>,
    fates: Vec<CollectDecision>,
    /// Lengths of the objects to delete.
    bytes: HashMap<ObjectName, u64>,
    boundaries: BoundaryMaker,
    /// The grace period of a round that deletes; `cutoff` is the resulting time.
    min_age: Option<Duration>,
    cutoff: UnixMillis,
    report: GcReport,
    progress: Option<&'a Progress>,
    /// Manifests that are read at a time.
    reads_at_once: usize,
}

impl<'a> Round<'a> {
    fn new(objects: &'a Objects, machine: Collect, database: DatabaseId) -> Round<'a> {
        Round {
            objects,
            machine,
            database,
            requests: ManifestRequests::new(objects),
            ahead: HashMap::new(),
            lengths: HashMap::new(),
            listed: Vec::new(),
            fates: Vec::new(),
            bytes: HashMap::new(),
            boundaries: BoundaryMaker::default(),
            min_age: None,
            cutoff: UnixMillis(0),
            report: GcReport { database, ..GcReport::default() },
            progress: None,
            reads_at_once: READ_AHEAD,
        }
    }

    async fn drive(&mut self) -> Result<()> {
        loop {
            match self.machine.action() {
                CollectAction::Request(request) => {
                    let answer = self.about_manifests(request).await?;
                    self.machine.on_answer(answer);
                }
                CollectAction::ListObjects => self.list().await?,
                CollectAction::Record(request) => {
                    let answer = self.about_records(request).await?;
                    self.machine.on_record(answer);
                }
                CollectAction::ReadJobs(jobs) => self.read_jobs(jobs).await?,
                CollectAction::CreateBoundary(name) => {
                    self.judge();
                    let outcome = self.create_boundary(name).await?;
                    self.machine.on_boundary(outcome);
                }
                CollectAction::Delete(names) => {
                    self.judge();
                    self.delete(names).await;
                }
                CollectAction::Done(done) => {
                    self.report.overtaken = done.overtaken;
                    if !done.overtaken {
                        self.judge();
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Takes over the decision about each object. The machine's evidence is complete now.
    fn judge(&mut self) {
        if !self.fates.is_empty() {
            return;
        }
        self.fates = self.machine.fates().into_iter().map(|(_, fate)| fate).collect();
        let dead = self.listed.iter().zip(&self.fates);
        let dead = dead.filter(|(_, fate)| matches!(fate, CollectDecision::Dead(_)));
        self.bytes = dead.map(|(object, _)| (object.name, object.bytes)).collect();
        if let Some(progress) = self.progress {
            progress.expect(self.bytes.len() as u64);
        }
        self.report.note_stays(&self.listed, &self.fates);
        self.report.manifest_id = self.machine.newest().map_or(ManifestId::NONE, |one| one.id);
    }

    /// The objects that stay only because of their age, and their bytes.
    fn young(&self) -> Vec<(ObjectName, u64)> {
        let young = self.listed.iter().zip(&self.fates);
        let young = young.filter(|(_, fate)| **fate == CollectDecision::Young);
        young.map(|(object, _)| (object.name, object.bytes)).collect()
    }

    async fn about_manifests(&mut self, request: ManifestRequest) -> Result<ManifestAnswer> {
        let ManifestRequest::Read(id) = request else {
            return self.requests.perform(request).await;
        };
        if !self.ahead.contains_key(&id) {
            self.read_ahead().await?;
        }
        let answer = match self.ahead.remove(&id) {
            Some(read) => ManifestAnswer::Read(read),
            // The manifest was not to be read ahead: a look requests it.
            None => self.requests.perform(ManifestRequest::Read(id)).await?,
        };
        // A manifest of a newer version may have been committed since the round began.
        if let ManifestAnswer::Read(Some(read)) | ManifestAnswer::ReadAsListed(read) = &answer {
            gate::check_changes(read)?;
        }
        Ok(answer)
    }

    /// Reads the next manifests. They share the bandwidth. Over a slow link fewer of them arrive
    /// before their deadlines, so the number of parallel reads halves until they do.
    async fn read_ahead(&mut self) -> Result<()> {
        loop {
            let (ids, objects) = (self.next_manifests(), self.objects);
            match try_join_all(ids.iter().map(|id| objects.manifest(*id))).await {
                Err(error) if error.kind() == ErrorKind::Timeout && ids.len() > 1 => {
                    self.reads_at_once = ids.len() / 2;
                }
                read => {
                    self.ahead.extend(ids.into_iter().zip(read?));
                    return Ok(());
                }
            }
        }
    }

    /// The next manifests to read: at least one, and as many as the bounds on number and bytes
    /// allow.
    fn next_manifests(&self) -> Vec<ManifestId> {
        let mut ids = self.machine.reads_ahead(self.reads_at_once);
        let mut bytes = 0_u64;
        let fits = ids.iter().take_while(|id| {
            bytes += self.lengths.get(id).copied().unwrap_or_default();
            bytes <= READ_AHEAD_BYTES
        });
        let count = fits.count().max(1);
        ids.truncate(count);
        ids
    }

    async fn list(&mut self) -> Result<()> {
        let objects = self.objects;
        if let Some(min_age) = self.min_age {
            self.cutoff = before(store_time(objects, self.database).await?, min_age);
            self.machine.age_by(self.cutoff);
        }
        let found = try_join_all(FOLDERS.map(|folder| objects.list(folder))).await?;
        self.listed = found.into_iter().flatten().collect();
        let manifests = self.listed.iter().filter_map(|object| match object.name {
            ObjectName::Manifest(id) => Some((id, object.bytes)),
            _ => None,
        });
        self.lengths = manifests.collect();
        let short = |object: &Listed| ListedObject {
            name: object.name,
            bytes: object.bytes,
            modified: object.modified,
        };
        self.machine.on_objects(self.listed.iter().map(short).collect());
        Ok(())
    }

    async fn about_records(&self, request: RecordRequest) -> Result<RecordAnswer> {
        let (objects, database) = (self.objects, self.database);
        match request {
            RecordRequest::List => {
                let listed = objects.list_records(database, || Ok(())).await?;
                Ok(RecordAnswer::Listed(listed))
            }
            RecordRequest::Read(number) => {
                Ok(RecordAnswer::Read(objects.record(number, database).await?))
            }
            RecordRequest::Create(_) => Err(Error::internal("a look creates nothing")),
        }
    }

    /// Reads the applications and versions of closed jobs. A job object that is damaged, or was
    /// deleted meanwhile, gives no evidence.
    async fn read_jobs(&mut self, jobs: Vec<JobId>) -> Result<()> {
        let objects = self.objects;
        let read = async |job| match objects.closed_job(job).await {
            Err(error) if is_damage(error.kind()) => Ok::<_, Error>(None),
            read => Ok(read?.map(|closed| (job, closed.app))),
        };
        let reads = stream::iter(jobs).map(read).buffer_unordered(READ_AHEAD);
        let read: Vec<Option<(JobId, Option<JobApp>)>> = reads.try_collect().await?;
        self.machine.on_jobs(read.into_iter().flatten().collect());
        Ok(())
    }

    async fn create_boundary(&mut self, name: ObjectName) -> Result<PutOutcome<()>> {
        let (objects, encode) = (self.objects, codec::encode_boundary);
        let creating = self.boundaries.creating(objects, name, self.database, encode)?;
        let mut tries = 1;
        loop {
            let outcome = creating.once(objects, name).await?;
            let Some(full) = creating.trouble().filter(|trouble| is_full(trouble)) else {
                return Ok(outcome);
            };
            if tries == TRIES_FOR_ROOM {
                return Err(full.clone().with("object", name));
            }
            tries += 1;
            objects.env.clock.sleep(around(&objects.env, PAUSE_FOR_ROOM)).await;
        }
    }

    async fn delete(&mut self, names: Vec<ObjectName>) {
        let (report, progress) = (&mut self.report, self.progress);
        let gone = delete_batch(self.objects, names, &self.bytes, report, progress).await;
        self.machine.on_deleted(&gone);
    }
}
