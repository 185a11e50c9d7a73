//! How a reader follows the database. The `Follow` machine of the manifest crate names the objects
//! to read. This module reads them and builds the view that reads use. It must never show a row
//! that a restore has undone.

use super::lease::{ReaderLease, warn_of_no_lease};
use super::requests::FollowerRequests;
use super::rows::LogRows;
use crate::cache::fetch::ReadContext;
use crate::cache::metadata::MetadataBudget;
use crate::manifests::client::{absent, look};
use crate::manifests::missing::{no_database, restored};
use crate::manifests::objects::{Objects, seen};
use crate::manifests::poll::{LIST_EVERY, LONG_PAUSE_INTERVALS, LONGEST_WITHOUT_LISTING};
use crate::manifests::rules;
use crate::options::Options;
use crate::read::queue::{IngestQueue, QueuedIngest};
use crate::read::settings::check_settings;
use crate::read::tree::{Levels, Tree};
use crate::wal::readahead::WalReadahead;
use crate::wal::replay::is_kept;
use siltstone_base::{Error, ErrorKind, ManifestId, Result, Seq, WalId};
use siltstone_manifest::Manifest;
use siltstone_manifest::protocol::{Follow, FollowAction, FollowEvent, WalSeen, Want};
use siltstone_sst::wal::{WalIngest, WalObject};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time for which a reader that lacks rows waits for another reader to lease newer tables.
/// In a fleet of readers, one commits within a few hundredths of this time. A single reader must
/// not lag behind for longer.
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// The state that reads use. A refresh that finds newer data replaces it as a whole.
#[derive(Clone)]
pub(crate) struct ReaderView {
    pub(crate) tree: Arc<Tree>,
    pub(crate) seq: Seq,
    pub(crate) manifest: Arc<Manifest>,
}

/// How to look for newer data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollMode {
    /// Mostly by reads of the next number. A later listing finds data that freed numbers hide.
    Cheaply,
    /// As `Cheaply`, but reads only the log, except in polls that list. For a database that has not
    /// changed for a long time.
    Seldom,
    /// Finds everything that was durable before the poll began.
    Thoroughly,
}

/// The position of a reader that follows, and the data it has read.
pub(crate) struct Follower {
    machine: Follow,
    requests: FollowerRequests,
    objects: Objects,
    log: WalReadahead,
    /// WAL objects that the walk has read and the machine has not handed out.
    bodies: BTreeMap<WalId, WalObject>,
    /// Rows of the log. They are complete from above `whole_from` up to `last_seq`.
    rows: LogRows,
    whole_from: Seq,
    last_seq: Seq,
    /// A manifest with the tables that the view uses, and those tables.
    version: Option<Arc<Manifest>>,
    levels: Arc<Levels>,
    /// The lease of the reader; `None` if the reader leases nothing.
    lease: Option<ReaderLease>,
    /// Whether memory was full before the walk reached the end of the log.
    stopped: bool,
    /// Whether no view shows the newest data yet.
    fresh: bool,
    /// The last sequence number that a view has shown.
    shown: Seq,
    last_poll: Duration,
    last_listing: Duration,
    /// The last restore before the follower began.
    history: Option<ManifestId>,
    /// A later restore, which ends the follower.
    undone_by: Option<ManifestId>,
}

impl Follower {
    /// Reads the newest manifest and the WAL behind it.
    ///
    /// # Errors
    /// NotFound if there is no database; Invalid if the log contains more than
    /// `max_memtable_bytes`; errors of the store and of a commit.
    pub(crate) async fn start(
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
    ) -> Result<(Follower, ReaderView)> {
        let lease = options.reader_lease.then(|| ReaderLease::new(options.lease_lifetimes()));
        Follower::begin(context, options, budget, &Arc::default(), lease).await
    }

    /// As [`Follower::start`], but keeps the handles of tables that are still in use, and the
    /// leases under which scans read.
    pub(crate) async fn restart(
        &self,
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
        levels: &Arc<Levels>,
    ) -> Result<(Follower, ReaderView)> {
        Follower::begin(context, options, budget, levels, self.lease.clone()).await
    }

    async fn begin(
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
        levels: &Arc<Levels>,
        lease: Option<ReaderLease>,
    ) -> Result<(Follower, ReaderView)> {
        loop {
            let mut follower = Follower::new(context, options, levels, lease.clone());
            match follower.first_view(context, options, budget).await {
                // A restore was committed during the start. No caller has read the undone rows, so
                // the reader starts again.
                Err(_) if follower.undone_by.is_some() => {}
                begun => return begun.map(|view| (follower, view)),
            }
        }
    }

    fn new(
        context: &ReadContext,
        options: &Options,
        levels: &Arc<Levels>,
        lease: Option<ReaderLease>,
    ) -> Follower {
        let objects = Objects { env: context.env.clone(), limit: options.deadline };
        Follower {
            machine: Follow::new(LIST_EVERY, rules::in_force()),
            requests: FollowerRequests::new(&objects),
            log: WalReadahead::new(&objects),
            objects,
            bodies: BTreeMap::new(),
            rows: LogRows::of(options),
            whole_from: Seq::NONE,
            last_seq: Seq::NONE,
            version: None,
            levels: Arc::clone(levels),
            lease,
            stopped: false,
            fresh: false,
            shown: Seq::NONE,
            last_poll: context.env.clock.monotonic(),
            last_listing: context.env.clock.monotonic(),
            history: None,
            undone_by: None,
        }
    }

    async fn first_view(
        &mut self,
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
    ) -> Result<ReaderView> {
        self.drive(context).await?;
        self.apply_newer_tables(context, options, budget, true).await?;
        match self.view() {
            Some(view) => Ok(view),
            None => Err(absent(&self.objects).await?),
        }
    }

    /// Looks for newer data, and passes a newer view to `show`. If a caller waits for it
    /// ([`PollMode::Thoroughly`]), the reader uses newer tables at once (rule L3).
    ///
    /// # Errors
    /// Invalid if the log contains more than `max_memtable_bytes`; the rows that were read are
    /// shown. Expired if the database was restored to a checkpoint. Errors of the store and of a
    /// commit.
    pub(crate) async fn refresh(
        &mut self,
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
        look: PollMode,
        show: impl FnOnce(ReaderView),
    ) -> Result<()> {
        self.check_undone()?;
        let now = context.env.clock.monotonic();
        // A request that hangs must not take the time in which the lease is renewed.
        let in_half = async { Ok(self.look(context, options, look, now).await) };
        let looked = context.env.deadline(options.deadline / 2, "refresh", in_half).await.ok();
        let failed = looked.as_ref().is_none_or(Result::is_err);
        if failed && self.undone_by.is_none() && self.lease_is_due() {
            // Even if the store answers seldom, the reader renews its lease in time.
            self.keep(false).await?;
        }
        match looked {
            Some(looked) => looked?,
            None => self.look(context, options, look, now).await?,
        }
        self.last_poll = now;
        let wanted = look == PollMode::Thoroughly;
        let settled = self.apply_newer_tables(context, options, budget, wanted).await;
        if self.fresh
            && let Some(view) = self.view()
        {
            self.fresh = false;
            show(view);
        }
        settled
    }

    /// Polls, and drives the machine until it is idle.
    async fn look(
        &mut self,
        context: &ReadContext,
        options: &Options,
        look: PollMode,
        now: Duration,
    ) -> Result<()> {
        // Before a renewal the reader looks at the manifest: another reader may have renewed the
        // lease.
        let look = match look {
            PollMode::Seldom if self.lease_is_due() => PollMode::Cheaply,
            look => look,
        };
        // A walk that an error interrupted continues where it was. Otherwise this begins a walk.
        let resumed = self.machine.action() != FollowAction::Idle;
        self.poll(options, look, now);
        self.drive(context).await?;
        if resumed {
            self.poll(options, look, now);
            self.drive(context).await?;
        }
        if let Some(newest) = self.machine.manifest() {
            // Every look reports it, not only the one that has found this manifest.
            check_settings(newest, context)?;
        }
        if look != PollMode::Seldom
            && let Some(newest) = self.machine.manifest().cloned()
        {
            self.on_newest_state(&newest);
        }
        Ok(())
    }

    /// Begins a poll.
    fn poll(&mut self, options: &Options, look: PollMode, now: Duration) {
        let paused = now.saturating_sub(self.last_poll);
        let long = paused > options.poll_interval() * LONG_PAUSE_INTERVALS
            || now.saturating_sub(self.last_listing) >= LONGEST_WITHOUT_LISTING;
        let lists = match look {
            PollMode::Seldom if !long && self.machine.action() == FollowAction::Idle => {
                self.machine.poll_log();
                false
            }
            PollMode::Cheaply | PollMode::Seldom => self.machine.poll(long),
            PollMode::Thoroughly => self.machine.poll_thoroughly(),
        };
        if lists {
            self.last_listing = now;
        }
    }

    /// The newest state as of now.
    pub(crate) async fn look_up(&self) -> Result<Option<Arc<Manifest>>> {
        look(&self.objects, None).await
    }

    /// Whether a missing table of `levels` is damage, according to the state `looked`, which was
    /// looked up afterwards (rule L5).
    pub(crate) fn is_corrupt(&self, levels: &Arc<Levels>, looked: &Manifest) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.is_corrupt(levels, looked))
    }

    /// Whether the reader has leased the version of `levels`.
    pub(crate) fn leases(&self, levels: &Arc<Levels>) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.version_of(levels).is_some())
    }

    /// The latest time of the next look.
    pub(crate) fn next_moment(&self) -> Option<Duration> {
        self.lease.as_ref().and_then(ReaderLease::next_moment)
    }

    fn lease_is_due(&mut self) -> bool {
        let env = &self.objects.env;
        self.lease.as_mut().is_some_and(|lease| lease.is_due(env))
    }

    /// Uses newer tables if they are due, and renews leases that are due. If memory was full and
    /// rows could be released, it reads on.
    async fn apply_newer_tables(
        &mut self,
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
        wanted: bool,
    ) -> Result<()> {
        loop {
            let want = self.want(options, wanted);
            let env = &self.objects.env;
            let newest = self.machine.manifest();
            let commits = self.lease.as_mut().zip(newest);
            let commits = commits.is_some_and(|(lease, newest)| lease.commits(env, newest, want));
            if commits || self.lease_is_due() {
                self.keep(commits).await?;
            }
            self.use_leased_tables(budget)?;
            if !self.serve_ingests(budget).await? {
                self.machine.poll_thoroughly();
                self.drive(context).await?;
                if let Some(newest) = self.machine.manifest().cloned() {
                    self.on_newest_state(&newest);
                }
                continue;
            }
            if !self.stopped || self.is_full() {
                break;
            }
            self.stopped = false;
            self.machine.poll_log();
            self.drive(context).await?;
        }
        if wanted && self.stopped { Err(self.rows.too_much()) } else { Ok(()) }
    }

    /// How soon the reader wants newer tables, if there are any (rule L3).
    fn want(&self, options: &Options, wanted: bool) -> Want {
        let leased = self.lease.as_ref().and_then(ReaderLease::version);
        let held_up = self.rows.is_half_full() || self.rows.held_up_by().is_some();
        let Some((_, version)) = leased.filter(|_| !wanted && !held_up) else {
            return Want::Now;
        };
        // A reader must not serve rows that a restore has undone.
        let newest = self.machine.manifest();
        if newest.is_some_and(|newest| newest.restored_at() > version.restored_at()) {
            return Want::Now;
        }
        match version.flushed_seq < self.whole_from {
            true => Want::Soon(options.poll_interval().min(MOST_PATIENCE)),
            false => Want::Sometime,
        }
    }

    /// Commits the reader's leases if that is needed. With `taken` the commit also leases the
    /// newest tables.
    async fn keep(&mut self, taken: bool) -> Result<()> {
        let Some(newest) = self.machine.manifest().cloned() else { return Ok(()) };
        if let Some(lease) = &mut self.lease {
            let state = match lease.keep(self.requests.manifests(), &newest, taken).await {
                Err(error) if lease.cannot_begin(&error) => {
                    self.read_without_lease(&error);
                    return Ok(());
                }
                kept => kept?,
            };
            self.check_history(&state)?;
            // During a walk the machine keeps its manifest; the next look finds this state.
            self.machine.learn(&state);
            if self.machine.manifest().is_some_and(|known| known.id == state.id) {
                self.on_newest_state(&state);
            }
        }
        Ok(())
    }

    /// A reader without the right to write, or of a full store, continues without a lease.
    fn read_without_lease(&mut self, error: &Error) {
        self.lease = None;
        warn_of_no_lease(error);
    }

    /// Handles the newest state that the reader knows. The log no longer gives the rows that this
    /// state has in tables. If the reader lacks some of them, it discards its rows, and its log
    /// rows begin behind the tables.
    fn on_newest_state(&mut self, state: &Arc<Manifest>) {
        if let Some(lease) = &mut self.lease {
            let lost = lease.learn(&self.objects.env, state);
            self.fresh |= lost;
        }
        if self.last_seq < state.flushed_seq {
            self.rows.clear();
            self.last_seq = state.flushed_seq;
            self.whole_from = state.flushed_seq;
        }
    }

    /// Uses the leased tables for the view, or the newest tables if the reader leases nothing.
    fn use_leased_tables(&mut self, budget: &Arc<MetadataBudget>) -> Result<()> {
        let version = match &self.lease {
            Some(lease) => lease.version().map(|(_, state)| state),
            None => self.machine.manifest(),
        };
        let Some(version) = version.cloned() else { return Ok(()) };
        let same = |read: &Arc<Manifest>| read.id <= version.id && version.tables_since <= read.id;
        if !self.version.as_ref().is_some_and(same) {
            self.levels = Arc::new(Levels::of_manifest(&version, &self.levels, budget)?);
            self.fresh = true;
        }
        if let Some(lease) = &mut self.lease {
            lease.reads(&self.levels);
        }
        self.fresh |= self.version.as_ref().is_none_or(|read| read.id != version.id);
        self.rows.release(version.flushed_seq);
        self.version = Some(version);
        Ok(())
    }

    /// Serves ingests of the log. An ingest is served once the version of the view shows its job as
    /// pending, because the lease on that version keeps the job's tables (rule Q5). Returns `false`
    /// if the tables were collected: a newer version has installed them.
    async fn serve_ingests(&mut self, budget: &Arc<MetadataBudget>) -> Result<bool> {
        while let Some(ingest) = self.rows.held_up_by().cloned() {
            let Some(version) = self.version.clone() else { return Ok(true) };
            if !is_kept(&version, &ingest)? {
                return Ok(true);
            }
            match QueuedIngest::of_log(&self.objects, ingest.clone(), budget).await {
                Ok(queued) => self.rows.serve(queued),
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    return match self.is_outrun(&version, &ingest).await? {
                        true => Ok(false),
                        false => Err(error),
                    };
                }
                Err(error) => return Err(error),
            }
            self.fresh = true;
        }
        Ok(true)
    }

    /// Whether an ingest that differs from `version` is explained by a newer version, and is no
    /// damage (rule L5).
    async fn is_outrun(&self, version: &Manifest, ingest: &WalIngest) -> Result<bool> {
        let looked = self.look_up().await?.ok_or_else(|| no_database(&self.objects.env))?;
        let newer = looked.id > version.id && !is_kept(&looked, ingest)?;
        Ok(newer && !self.is_corrupt(&self.levels, &looked))
    }

    /// Carries out the machine's actions until it is idle.
    async fn drive(&mut self, context: &ReadContext) -> Result<()> {
        // A drive that was cancelled may have left some.
        self.requests.forget_early();
        let driven = self.drive_on(context).await;
        self.requests.forget_early();
        self.log.stop();
        driven
    }

    async fn drive_on(&mut self, context: &ReadContext) -> Result<()> {
        loop {
            self.objects.follow_log_for(&self.machine)?;
            let events = match self.machine.action() {
                FollowAction::Idle => return Ok(()),
                FollowAction::Failed(failure) => return Err(failure.into()),
                FollowAction::Request(request) => {
                    let is_new = self.machine.manifest().is_none();
                    let answer = self.requests.perform(request, is_new, &mut self.log).await?;
                    self.machine.on_answer(answer)
                }
                FollowAction::ReadWal(_) if self.machine.is_walking() && self.is_full() => {
                    self.stopped = true;
                    self.machine.stop()
                }
                FollowAction::ReadWal(id) => self.walk(id).await?,
                FollowAction::ListWal(after) => {
                    let listing = self.objects.list_wal(after).await?;
                    self.machine.on_wal_listing(listing)
                }
                FollowAction::ReadWalBoundary => {
                    let boundary = self.objects.wal_boundary().await?;
                    self.machine.on_wal_boundary(boundary)
                }
            };
            for event in events {
                self.apply(event, context)?;
                self.fresh = true;
            }
        }
    }

    async fn walk(&mut self, id: WalId) -> Result<Vec<FollowEvent>> {
        let seen = self.read_wal(id).await?;
        let mut events = self.machine.on_wal(seen);
        if self.under_way() >= self.rows.most_under_way() {
            events.extend(self.machine.hand_out_now());
        }
        Ok(events)
    }

    fn under_way(&self) -> usize {
        self.bodies.values().map(WalObject::record_bytes).sum()
    }

    fn is_full(&self) -> bool {
        self.rows.is_full(self.under_way())
    }

    async fn read_wal(&mut self, id: WalId) -> Result<WalSeen> {
        self.requests.begin_walk(&mut self.log).await;
        if self.requests.take_end(id) {
            return Ok(WalSeen::Absent);
        }
        let Some(object) = self.log.read(id).await? else { return Ok(WalSeen::Absent) };
        let database = self.machine.manifest().map(|manifest| manifest.database);
        let seen = seen(&object, database.unwrap_or_default());
        self.bodies.insert(id, object);
        Ok(seen)
    }

    /// Ends the follower if `manifest` belongs to a later restore, so that no row of the restored
    /// state is applied to undone rows (rule S3).
    fn check_history(&mut self, manifest: &Manifest) -> Result<()> {
        let at = manifest.restored_at();
        if *self.history.get_or_insert(at) < at {
            self.undone_by = Some(at);
        }
        self.check_undone()
    }

    /// # Errors
    /// Expired if the follower has read a restored state.
    fn check_undone(&self) -> Result<()> {
        self.undone_by.map_or(Ok(()), |at| Err(restored(at)))
    }

    /// The restore that ended this follower. A new follower can continue from it.
    pub(crate) fn undone_by(&self) -> Option<ManifestId> {
        self.undone_by
    }

    /// The last restore before the follower began.
    pub(crate) fn history(&self) -> ManifestId {
        self.history.unwrap_or_default()
    }

    fn apply(&mut self, event: FollowEvent, context: &ReadContext) -> Result<()> {
        match event {
            FollowEvent::StartAgain(manifest) => {
                check_settings(&manifest, context)?;
                self.check_history(&manifest)?;
                self.rows.clear();
                self.bodies.clear();
                self.last_seq = manifest.flushed_seq;
                self.whole_from = manifest.flushed_seq;
                self.on_newest_state(&manifest);
            }
            FollowEvent::Newer(manifest) => {
                check_settings(&manifest, context)?;
                self.check_history(&manifest)?;
                self.on_newest_state(&manifest);
            }
            FollowEvent::Apply(ids) => {
                let applied = ids.into_iter().try_for_each(|id| self.apply_object(id));
                self.bodies.clear();
                if applied.is_err() {
                    // The next look meets the error as well, unless newer tables have the rows.
                    self.machine = Follow::new(LIST_EVERY, rules::in_force());
                }
                return applied;
            }
        }
        Ok(())
    }

    fn apply_object(&mut self, id: WalId) -> Result<()> {
        let unread = || Error::internal("a WAL object met was not kept").with("wal id", id);
        let body = self.bodies.remove(&id).ok_or_else(unread)?;
        let flushed = self.machine.manifest().map_or(Seq::NONE, |manifest| manifest.flushed_seq);
        if let Some(last) = self.rows.push(&body, flushed, self.last_seq)? {
            self.last_seq = last;
        }
        Ok(())
    }

    /// The view, if it is complete: the log rows continue the tables without a gap and reach at
    /// least as far, and the view is not older than the last one.
    fn view(&mut self) -> Option<ReaderView> {
        let version = self.version.as_ref()?;
        let flushed = version.flushed_seq;
        let leased = self.lease.as_ref().is_none_or(|lease| lease.version().is_some());
        let whole = self.whole_from <= flushed && flushed <= self.last_seq;
        let seq = self.rows.held_up_by().map_or(self.last_seq, |one| one.first_seq.minus(1));
        if !leased || !whole || seq < self.shown {
            return None;
        }
        self.shown = seq;
        let (active, frozen) = self.rows.memtables();
        let (levels, queue) = IngestQueue::over(self.rows.queued(), &self.levels);
        let tree = Tree { active, frozen, levels, queue, flushed_seq: flushed, own: None };
        Some(ReaderView { tree: Arc::new(tree), seq, manifest: Arc::clone(version) })
    }
}
