//! A reader's following, carried out: the manifest crate's `Follow` says what to read, this reads
//! it and builds the view that reads work on.

use crate::admin::no_database;
use crate::cache::MetadataBudget;
use crate::fetch::ReadContext;
use crate::manifest_client::ManifestRequests;
use crate::objects::{Objects, seen};
use crate::open::check_settings;
use crate::options::Options;
use crate::replay::insert_rows;
use crate::rules;
use crate::tree::{Levels, Tree};
use siltstone_base::{Error, Result, Seq, WalId};
use siltstone_manifest::protocol::{Follow, FollowAction, FollowEvent, WalSeen};
use siltstone_memtable::Memtable;
use siltstone_sst::wal::WalObject;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One poll in so many is a listing (rule M4).
pub(crate) const LIST_EVERY: u32 = 16;
/// A pause of so many poll intervals counts as long: numbers may have been freed meanwhile.
pub(crate) const LONG_PAUSE_INTERVALS: u32 = 10;
/// Bytes of WAL rows in one memtable of a reader; whole memtables are let go once tables cover
/// them.
const SEGMENT_BYTES: usize = 8 << 20;

/// What reads work on: replaced whole by every refresh that found something.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) tree: Arc<Tree>,
    pub(crate) seq: Seq,
    pub(crate) manifest_id: u64,
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
    levels: Arc<Levels>,
    last_seq: Seq,
    last_poll: Duration,
}

impl Follower {
    /// Reads the newest manifest and all of the WAL behind it.
    pub(crate) async fn start(
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
    ) -> Result<(Follower, View)> {
        Follower::restart(context, options, budget, &Arc::default()).await
    }

    /// As [`Follower::start`], keeping the handles of tables that are still there.
    pub(crate) async fn restart(
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
        levels: &Arc<Levels>,
    ) -> Result<(Follower, View)> {
        let objects = Objects { env: context.env.clone(), limit: options.deadline };
        let mut follower = Follower {
            machine: Follow::new(LIST_EVERY, rules::in_force()),
            requests: ManifestRequests::new(&objects),
            objects,
            bodies: BTreeMap::new(),
            segments: vec![Arc::new(Memtable::new())],
            levels: Arc::clone(levels),
            last_seq: Seq::NONE,
            last_poll: context.env.clock.monotonic(),
        };
        follower.drive(context, budget).await?;
        let Some(view) = follower.view() else { return Err(no_database(&context.env)) };
        Ok((follower, view))
    }

    /// Looks for newer data; `None` when there is none.
    pub(crate) async fn refresh(
        &mut self,
        context: &ReadContext,
        options: &Options,
        budget: &Arc<MetadataBudget>,
    ) -> Result<Option<View>> {
        let now = context.env.clock.monotonic();
        let paused = now.saturating_sub(self.last_poll);
        let long = paused > options.manifest_poll_interval * LONG_PAUSE_INTERVALS;
        // A walk that an error interrupted goes on where it was; otherwise this begins one.
        let resumed = self.machine.action() != FollowAction::Idle;
        self.machine.poll(long);
        let mut changed = self.drive(context, budget).await?;
        if resumed {
            self.machine.poll(long);
            changed |= self.drive(context, budget).await?;
        }
        self.last_poll = now;
        Ok(if changed { self.view() } else { None })
    }

    /// Does what the machine wants until it is idle. Answers whether anything became visible.
    async fn drive(&mut self, context: &ReadContext, budget: &Arc<MetadataBudget>) -> Result<bool> {
        let mut changed = false;
        loop {
            let events = match self.machine.action() {
                FollowAction::Idle => return Ok(changed),
                FollowAction::Failed(failure) => return Err(failure.into()),
                FollowAction::Request(request) => {
                    let answer = self.requests.perform(request).await?;
                    self.machine.on_answer(answer)
                }
                FollowAction::ReadWal(id) => {
                    let seen = self.read_wal(id).await?;
                    self.machine.on_wal(seen)
                }
                FollowAction::ListWalBoundary => {
                    let boundary = self.objects.wal_boundary().await?;
                    self.machine.on_wal_boundary(boundary)
                }
            };
            for event in events {
                self.apply(event, context, budget)?;
                changed = true;
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

    fn apply(
        &mut self,
        event: FollowEvent,
        context: &ReadContext,
        budget: &Arc<MetadataBudget>,
    ) -> Result<()> {
        match event {
            FollowEvent::StartAgain(manifest) => {
                check_settings(&manifest, context.operator.as_ref())?;
                self.segments = vec![Arc::new(Memtable::new())];
                self.bodies.clear();
                self.last_seq = manifest.flushed_seq;
                self.levels = Arc::new(Levels::of_manifest(&manifest, &self.levels, budget)?);
            }
            FollowEvent::Newer(manifest) => {
                self.levels = Arc::new(Levels::of_manifest(&manifest, &self.levels, budget)?);
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

    fn view(&self) -> Option<View> {
        let manifest = self.machine.manifest()?;
        let (active, frozen) = self.segments.split_first()?;
        let tree = Tree {
            active: Arc::clone(active),
            frozen: frozen.to_vec(),
            levels: Arc::clone(&self.levels),
            flushed_seq: manifest.flushed_seq,
        };
        Some(View { tree: Arc::new(tree), seq: self.last_seq, manifest_id: manifest.id.0 })
    }
}
