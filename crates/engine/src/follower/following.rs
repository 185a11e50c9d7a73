//! A reader's following, carried out: the manifest crate's `Follow` says what to read, this reads
//! it and builds the view that reads work on.

use super::lease::ReaderLease;
use super::rows::LogRows;
use crate::cache::fetch::ReadContext;
use crate::cache::metadata::MetadataBudget;
use crate::manifests::client::{ManifestRequests, look};
use crate::manifests::missing::no_database;
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

/// How long a reader that lacks rows waits at most for another one to cover newer tables: with a
/// fleet one commits in a few hundredths of that, and a single reader is not to be late.
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// What reads work on: replaced whole by every refresh that found something.
#[derive(Clone)]
pub(crate) struct ReaderView {
    pub(crate) tree: Arc<Tree>,
    pub(crate) seq: Seq,
    pub(crate) manifest: Arc<Manifest>,
}

/// How to look for newer data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollMode {
    /// By probing, mostly: what freed slots hide is found by one of the next looks.
    Cheaply,
    /// As that, in the log alone but for the looks that list: nothing has changed for long.
    Seldom,
    /// So that everything is found that was durable before.
    Thoroughly,
}

/// Where a reader stands.
pub(crate) struct Follower {
    machine: Follow,
    requests: ManifestRequests,
    objects: Objects,
    log: WalReadahead,
    /// WAL objects read on the walk and not yet handed out.
    bodies: BTreeMap<WalId, WalObject>,
    /// Rows of the log, without a gap above `whole_from` up to `last_seq`.
    rows: LogRows,
    whole_from: Seq,
    last_seq: Seq,
    /// A state with the tables that the view reads, and those.
    version: Option<Arc<Manifest>>,
    levels: Arc<Levels>,
    /// What the reader has leased; `None` for one that leases nothing.
    lease: Option<ReaderLease>,
    /// Whether memory was full before the log was at its end.
    stopped: bool,
    /// Whether something is there that no view shows yet; and up to where one has shown rows.
    fresh: bool,
    shown: Seq,
    last_poll: Duration,
    last_listing: Duration,
    /// The last restore before it began, and one since: it is of no use any more then.
    history: Option<ManifestId>,
    undone_by: Option<ManifestId>,
}

impl Follower {
    /// Reads the newest manifest and all of the WAL behind it.
    ///
    /// # Errors
    /// NotFound without a database; Invalid where the log holds more than `max_memtable_bytes`;
    /// those of the store, and of a commit.
    pub(crate) async fn start(
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
    ) -> Result<(Follower, ReaderView)> {
        let lease = options.reader_lease.then(|| ReaderLease::new(options.lease_lifetimes()));
        Follower::begin(context, options, budget, &Arc::default(), lease).await
    }

    /// As [`Follower::start`], keeping the handles of tables that are still there, and the leases
    /// under which scans read.
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
                // A restore came while it began: no caller has read the undone rows.
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
            requests: ManifestRequests::new(&objects),
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
        self.settle(context, options, budget, true).await?;
        self.view().ok_or_else(|| no_database(&context.env))
    }

    /// Looks for newer data, and hands what was found to `show`. Where a caller waits for it
    /// ([`PollMode::Thoroughly`]) newer tables are taken up at once (rule L3).
    ///
    /// # Errors
    /// Invalid where the log holds more than `max_memtable_bytes`: what was read of it is shown;
    /// Expired once the database was restored to a checkpoint; those of the store, and of a commit.
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
        let looked = self.look(context, options, look, now).await;
        if looked.is_err() && self.undone_by.is_none() && self.lease_is_due() {
            // A store that answers seldom must not cost the lease.
            self.keep(false).await?;
        }
        looked?;
        self.last_poll = now;
        let wanted = look == PollMode::Thoroughly;
        let settled = self.settle(context, options, budget, wanted).await;
        if self.fresh
            && let Some(view) = self.view()
        {
            self.fresh = false;
            show(view);
        }
        settled
    }

    /// A poll, and what it leads to.
    async fn look(
        &mut self,
        context: &ReadContext,
        options: &Options,
        look: PollMode,
        now: Duration,
    ) -> Result<()> {
        // Before a renewal: another reader may have renewed already.
        let look = match look {
            PollMode::Seldom if self.lease_is_due() => PollMode::Cheaply,
            look => look,
        };
        // A walk that an error interrupted goes on where it was; otherwise this begins one.
        let resumed = self.machine.action() != FollowAction::Idle;
        self.poll(options, look, now);
        self.drive(context).await?;
        if resumed {
            self.poll(options, look, now);
            self.drive(context).await?;
        }
        if look != PollMode::Seldom
            && let Some(newest) = self.machine.manifest().cloned()
        {
            self.meet(&newest);
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

    /// A table of `levels` is missing: whether that is a corruption, as `looked` has it (rule L5).
    pub(crate) fn is_corrupt(&self, levels: &Arc<Levels>, looked: &Manifest) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.is_corrupt(levels, looked))
    }

    /// Whether it has leased the version that `levels` are of.
    pub(crate) fn leases(&self, levels: &Arc<Levels>) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.version_of(levels).is_some())
    }

    /// When the reader wants to look again at the latest.
    pub(crate) fn next_moment(&self) -> Option<Duration> {
        self.lease.as_ref().and_then(ReaderLease::next_moment)
    }

    fn lease_is_due(&mut self) -> bool {
        let env = &self.objects.env;
        self.lease.as_mut().is_some_and(|lease| lease.is_due(env))
    }

    /// Takes newer tables up, as far as that is due, renews what is due, and reads on where memory
    /// was full and rows could go.
    async fn settle(
        &mut self,
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
        wanted: bool,
    ) -> Result<()> {
        loop {
            let want = self.want(options, wanted);
            let env = &self.objects.env;
            #[cfg(mutation = "revoked_for_good")]
            if self.version.is_some()
                && self.lease.as_ref().is_some_and(|one| one.version().is_none())
            {
                return Err(Error::new(siltstone_base::ErrorKind::Expired, "planted: revoked"));
            }
            let newest = self.machine.manifest();
            let commits = self.lease.as_mut().zip(newest);
            let commits = commits.is_some_and(|(lease, newest)| lease.commits(env, newest, want));
            if commits || self.lease_is_due() {
                self.keep(commits).await?;
            }
            self.take_up(budget)?;
            if !self.serve_ingests(budget).await? {
                self.machine.poll_thoroughly();
                self.drive(context).await?;
                if let Some(newest) = self.machine.manifest().cloned() {
                    self.meet(&newest);
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

    /// How newer tables are wanted, should there be some (rule L3).
    fn want(&self, options: &Options, wanted: bool) -> Want {
        let leased = self.lease.as_ref().and_then(ReaderLease::version);
        let held_up = self.rows.is_half_full() || self.rows.held_up_by().is_some();
        let Some((_, version)) = leased.filter(|_| !wanted && !held_up) else {
            return Want::Now;
        };
        // What a restore has undone is not served a moment longer.
        let newest = self.machine.manifest();
        if newest.is_some_and(|newest| newest.restored_at() > version.restored_at()) {
            return Want::Now;
        }
        match version.flushed_seq < self.whole_from {
            true => Want::Soon(options.poll_interval().min(MOST_PATIENCE)),
            false => Want::Sometime,
        }
    }

    /// A commit for the reader's leases, as far as one is needed: for the newest tables too, if
    /// they are to be `taken` up.
    async fn keep(&mut self, taken: bool) -> Result<()> {
        let Some(newest) = self.machine.manifest().cloned() else { return Ok(()) };
        if let Some(lease) = &mut self.lease {
            let state = match lease.keep(&self.objects, &newest, taken).await {
                Err(error) if lease.may_not_begin(&error) => {
                    self.read_without_lease(&error);
                    return Ok(());
                }
                kept => kept?,
            };
            self.check_history(&state)?;
            // Amid a walk it is met by the next look.
            self.machine.learn(&state);
            if self.machine.manifest().is_some_and(|known| known.id == state.id) {
                self.meet(&state);
            }
        }
        Ok(())
    }

    /// A reader with the right to read alone goes on as one that leases nothing.
    fn read_without_lease(&mut self, error: &Error) {
        self.lease = None;
        log::warn!(
            target: "siltstone.reader",
            "event=reader_without_lease: this reader may not write a lease, and reads without one; \
             a scan ends with Expired once a collector deletes what it reads; allow it to create \
             objects under manifest/, read at a checkpoint, or open it with \
             reader_lease=False: {error}"
        );
    }

    /// A state that is the newest the reader knows. Rows of its tables are not read from the
    /// log any more, so rows may be missing between those at hand and those to come.
    fn meet(&mut self, state: &Arc<Manifest>) {
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

    /// Makes the tables that are leased, or the newest for a reader that leases none, those of the
    /// view.
    fn take_up(&mut self, budget: &Arc<MetadataBudget>) -> Result<()> {
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
        self.rows.let_go(version.flushed_seq);
        self.version = Some(version);
        Ok(())
    }

    /// Ingests of the log are read once the version that is read by shows them as pending: then it
    /// keeps what they bring (rule Q5). `false`: that was collected, by a newer version than the
    /// reader knows, which has it in its tables.
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

    /// What an ingest brings is not as `version` has it: whether that is no corruption (rule L5).
    async fn is_outrun(&self, version: &Manifest, ingest: &WalIngest) -> Result<bool> {
        let looked = self.look_up().await?.ok_or_else(|| no_database(&self.objects.env))?;
        let newer = looked.id > version.id && !is_kept(&looked, ingest)?;
        Ok(newer && !self.is_corrupt(&self.levels, &looked))
    }

    /// Does what the machine wants until it is idle.
    async fn drive(&mut self, context: &ReadContext) -> Result<()> {
        let driven = self.drive_on(context).await;
        self.log.stop();
        driven
    }

    async fn drive_on(&mut self, context: &ReadContext) -> Result<()> {
        loop {
            let events = match self.machine.action() {
                FollowAction::Idle => return Ok(()),
                FollowAction::Failed(failure) => return Err(failure.into()),
                FollowAction::Request(request) => {
                    let answer = self.requests.perform(request).await?;
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
        let Some(object) = self.log.read(id).await? else { return Ok(WalSeen::Absent) };
        let database = self.machine.manifest().map(|manifest| manifest.database);
        let seen = seen(&object, database.unwrap_or_default());
        self.bodies.insert(id, object);
        Ok(seen)
    }

    /// Nothing of a restored state comes upon what it undid (rule S3).
    fn check_history(&mut self, manifest: &Manifest) -> Result<()> {
        let at = manifest.restored_at();
        if *self.history.get_or_insert(at) < at {
            self.undone_by = Some(at);
        }
        self.check_undone()
    }

    /// # Errors
    /// Expired once it has met a restored state.
    fn check_undone(&self) -> Result<()> {
        self.undone_by.map_or(Ok(()), |at| Err(restored(at)))
    }

    /// The restore that it has met: only another one goes on from there.
    pub(crate) fn undone_by(&self) -> Option<ManifestId> {
        self.undone_by
    }

    /// The last restore before it began.
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
                self.meet(&manifest);
            }
            FollowEvent::Newer(manifest) => {
                check_settings(&manifest, context)?;
                self.check_history(&manifest)?;
                self.meet(&manifest);
            }
            FollowEvent::Apply(ids) => {
                for id in ids {
                    let body = self.bodies.remove(&id);
                    self.apply_rows(&body.ok_or_else(|| {
                        Error::internal("a WAL object met was not kept").with("wal id", id)
                    })?)?;
                }
                self.bodies.clear();
            }
        }
        Ok(())
    }

    fn apply_rows(&mut self, body: &WalObject) -> Result<()> {
        let flushed = self.machine.manifest().map_or(Seq::NONE, |manifest| manifest.flushed_seq);
        if let Some(last) = self.rows.push(body, flushed, self.last_seq)? {
            self.last_seq = last;
        }
        Ok(())
    }

    /// What is there, where that is whole: rows go on from the tables, and are not behind them, and
    /// no reader goes back.
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
        let tree =
            Tree { active, frozen, levels, queue, flushed_seq: flushed, frozen_until: Seq::MAX };
        Some(ReaderView { tree: Arc::new(tree), seq, manifest: Arc::clone(version) })
    }
}

/// What ends a reader that met a restored state.
pub(crate) fn restored(at: ManifestId) -> Error {
    Error::new(
        ErrorKind::Expired,
        "the database was restored to a checkpoint, and what this reader has read is undone; open \
         another reader, or open it with the option readers.follow_restores to go on with what was \
         restored",
    )
    .with("restored at", at)
}
