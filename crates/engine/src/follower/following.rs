//! A reader's following, carried out: the manifest crate's `Follow` says what to read, this reads
//! it and builds the view that reads work on.

use super::lease::ReaderLease;
use crate::cache::fetch::ReadContext;
use crate::cache::metadata::MetadataBudget;
use crate::manifests::client::{ManifestRequests, look};
use crate::manifests::missing::no_database;
use crate::manifests::objects::{Objects, seen};
use crate::manifests::poll::{LIST_EVERY, LONG_PAUSE_INTERVALS, LONGEST_WITHOUT_LISTING};
use crate::manifests::replay::insert_rows;
use crate::manifests::rules;
use crate::options::Options;
use crate::read::settings::check_settings;
use crate::read::tree::{Levels, Tree};
use siltstone_base::{Error, Result, Seq, WalId};
use siltstone_manifest::Manifest;
use siltstone_manifest::protocol::{Follow, FollowAction, FollowEvent, WalSeen};
use siltstone_memtable::Memtable;
use siltstone_sst::wal::WalObject;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of WAL rows in one memtable of a reader; whole memtables are let go once tables cover
/// them.
const SEGMENT_BYTES: usize = 8 << 20;

/// What reads work on: replaced whole by every refresh that found something.
#[derive(Clone)]
pub(crate) struct ReaderView {
    pub(crate) tree: Arc<Tree>,
    pub(crate) seq: Seq,
    pub(crate) manifest: Arc<Manifest>,
}

/// How to look for newer data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looking {
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
    /// WAL objects read on the walk and not yet handed out.
    bodies: BTreeMap<WalId, WalObject>,
    /// WAL rows, newest segment first; never empty.
    segments: Vec<Arc<Memtable>>,
    /// The version that the view reads, and its tables.
    version: Option<Arc<Manifest>>,
    levels: Arc<Levels>,
    last_seq: Seq,
    last_poll: Duration,
    last_listing: Duration,
    /// The reader's own checkpoint; `None` for one without.
    lease: Option<ReaderLease>,
    /// Whether something was applied that no view shows yet.
    fresh: bool,
}

impl Follower {
    /// Reads the newest manifest and all of the WAL behind it.
    pub(crate) async fn start(
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
    ) -> Result<(Follower, ReaderView)> {
        Follower::restart(context, options, budget, &Arc::default()).await
    }

    /// As [`Follower::start`], keeping the handles of tables that are still there.
    pub(crate) async fn restart(
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
        levels: &Arc<Levels>,
    ) -> Result<(Follower, ReaderView)> {
        let objects = Objects { env: context.env.clone(), limit: options.deadline };
        let mut follower = Follower {
            machine: Follow::new(LIST_EVERY, rules::in_force()),
            requests: ManifestRequests::new(&objects),
            objects,
            bodies: BTreeMap::new(),
            segments: vec![Arc::new(Memtable::new())],
            version: None,
            levels: Arc::clone(levels),
            last_seq: Seq::NONE,
            last_poll: context.env.clock.monotonic(),
            last_listing: context.env.clock.monotonic(),
            lease: options.reader_checkpoint.then(|| ReaderLease::new(options.checkpoint_lifetime)),
            fresh: false,
        };
        follower.drive(context).await?;
        follower.take_up(budget).await?;
        let Some(view) = follower.view() else { return Err(no_database(&context.env)) };
        Ok((follower, view))
    }

    /// Looks for newer data; `None` when there is none.
    pub(crate) async fn refresh(
        &mut self,
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
        look: Looking,
    ) -> Result<Option<ReaderView>> {
        let now = context.env.clock.monotonic();
        // First of all: a store that answers seldom must not cost the checkpoint.
        let due = self.lease.as_mut().is_some_and(|lease| lease.is_due(now));
        if due {
            self.keep().await?;
        }
        // A walk that an error interrupted goes on where it was; otherwise this begins one.
        let resumed = self.machine.action() != FollowAction::Idle;
        self.poll(options, look, now);
        self.drive(context).await?;
        if resumed {
            self.poll(options, look, now);
            self.drive(context).await?;
        }
        self.last_poll = now;
        if !self.fresh && !self.is_behind() {
            return Ok(None);
        }
        // Until this is done, what was applied may lack the tables it goes with.
        self.take_up(budget).await?;
        self.fresh = false;
        Ok(self.view())
    }

    /// Begins a poll.
    fn poll(&mut self, options: &Options, look: Looking, now: Duration) {
        let paused = now.saturating_sub(self.last_poll);
        let long = paused > options.poll_interval() * LONG_PAUSE_INTERVALS
            || now.saturating_sub(self.last_listing) >= LONGEST_WITHOUT_LISTING;
        let lists = match look {
            Looking::Seldom if !long && self.machine.action() == FollowAction::Idle => {
                self.machine.poll_log();
                false
            }
            Looking::Cheaply | Looking::Seldom => self.machine.poll(long),
            Looking::Thoroughly => self.machine.poll_thoroughly(),
        };
        if lists {
            self.last_listing = now;
        }
    }

    /// Gives back what the reader holds.
    pub(crate) async fn give_back(&mut self) -> Result<()> {
        match (&mut self.lease, self.machine.manifest()) {
            (Some(lease), Some(newest)) => lease.give_back(&self.objects, newest).await,
            _ => Ok(()),
        }
    }

    /// Whether `checkpoint` of this reader is still present, as far as it knows.
    pub(crate) async fn is_held(&self) -> Result<bool> {
        let Some(lease) = &self.lease else { return Ok(false) };
        let newest = look(&self.objects, None).await?;
        Ok(newest.is_some_and(|newest| lease.is_held(&newest)))
    }

    fn is_behind(&self) -> bool {
        let (lease, newest) = (self.lease.as_ref(), self.machine.manifest());
        lease.zip(newest).is_some_and(|(lease, newest)| lease.is_behind(newest))
    }

    /// A commit for the reader's checkpoint, as far as one is needed.
    async fn keep(&mut self) -> Result<()> {
        let Some(newest) = self.machine.manifest().cloned() else { return Ok(()) };
        let walked = self.machine.next_wal_id().minus(1);
        if let Some(lease) = &mut self.lease {
            let state = lease.keep(&self.objects, &newest, walked).await?;
            self.machine.learn(&state);
            self.last_seq = self.last_seq.max(self.flushed());
        }
        Ok(())
    }

    /// Makes the newest tables those of the view: pinned first, where the reader keeps a
    /// checkpoint.
    async fn take_up(&mut self, budget: &Arc<MetadataBudget>) -> Result<()> {
        // Once nearly always; again where what settled the commit was newer than the commit.
        while self.is_behind() {
            self.keep().await?;
        }
        let Some(newest) = self.machine.manifest().cloned() else { return Ok(()) };
        let version = self.lease.as_ref().and_then(ReaderLease::version).unwrap_or(&newest).clone();
        if self.version.as_ref().is_none_or(|read| read.id != version.id) {
            self.levels = Arc::new(Levels::of_manifest(&version, &self.levels, budget)?);
            if let Some(lease) = &mut self.lease {
                lease.reads(version.id, &self.levels);
            }
            self.version = Some(version);
        }
        Ok(())
    }

    /// Does what the machine wants until it is idle.
    async fn drive(&mut self, context: &ReadContext) -> Result<()> {
        loop {
            let events = match self.machine.action() {
                FollowAction::Idle => return Ok(()),
                FollowAction::Failed(failure) => return Err(failure.into()),
                FollowAction::Request(request) => {
                    let answer = self.requests.perform(request).await?;
                    self.machine.on_answer(answer)
                }
                FollowAction::ReadWal(id) => {
                    let seen = self.read_wal(id).await?;
                    self.machine.on_wal(seen)
                }
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

    async fn read_wal(&mut self, id: WalId) -> Result<WalSeen> {
        let Some(object) = self.objects.wal(id).await? else { return Ok(WalSeen::Absent) };
        let database = self.machine.manifest().map(|manifest| manifest.database);
        let seen = seen(&object, database.unwrap_or_default());
        self.bodies.insert(id, object);
        Ok(seen)
    }

    fn apply(&mut self, event: FollowEvent, context: &ReadContext) -> Result<()> {
        match event {
            FollowEvent::StartAgain(manifest) => {
                check_settings(&manifest, context)?;
                self.segments = vec![Arc::new(Memtable::new())];
                self.bodies.clear();
                self.last_seq = manifest.flushed_seq;
            }
            FollowEvent::Newer(manifest) => {
                check_settings(&manifest, context)?;
                let flushed = manifest.flushed_seq;
                self.last_seq = self.last_seq.max(flushed);
                self.segments.retain(|one| one.last_seq().is_some_and(|last| last > flushed));
                if self.segments.is_empty() {
                    self.segments.push(Arc::new(Memtable::new()));
                }
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
        let flushed = self.flushed();
        if self.segments.first().is_none_or(|newest| newest.bytes() >= SEGMENT_BYTES) {
            self.segments.insert(0, Arc::new(Memtable::new()));
        }
        let Some(active) = self.segments.first() else { return Ok(()) };
        if let Some(last) = insert_rows(active, body, flushed, self.last_seq)? {
            self.last_seq = last;
        }
        Ok(())
    }

    fn flushed(&self) -> Seq {
        self.machine.manifest().map_or(Seq::NONE, |manifest| manifest.flushed_seq)
    }

    fn view(&self) -> Option<ReaderView> {
        let version = self.version.as_ref()?;
        let (active, frozen) = self.segments.split_first()?;
        let tree = Tree {
            active: Arc::clone(active),
            frozen: frozen.to_vec(),
            levels: Arc::clone(&self.levels),
            flushed_seq: version.flushed_seq,
            frozen_until: Seq::MAX,
        };
        Some(ReaderView { tree: Arc::new(tree), seq: self.last_seq, manifest: Arc::clone(version) })
    }
}
