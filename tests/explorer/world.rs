//! The explored state: a store, requests in flight, processes, and the truth.

use crate::actor::Actor;
use crate::ghost::Ghost;
use crate::shared::{Shared, fingerprint};
use crate::step::{Step, What};
use siltstone_base::sst::SstLocation;
use siltstone_base::{Epoch, ManifestId, ObjectName, Seq, SstDescriptor, SstId, UnixMillis, WalId};
use siltstone_manifest::compaction::Compactions;
use siltstone_manifest::compaction::record::{RecordAnswer, RecordListing, RecordRequest};
use siltstone_manifest::gc::ListedObject;
use siltstone_manifest::protocol::{Listing, ManifestAnswer, ManifestRequest, WalListing, WalSeen};
use siltstone_manifest::{Manifest, Rules};
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

/// A write: its position in the history and the writer that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Record {
    /// Sequence number.
    pub(crate) seq: u64,
    /// Epoch of the writer.
    pub(crate) epoch: Epoch,
}

/// The owner of bytes: the process that sends them. Together with the bytes it represents the
/// attempt id.
pub(crate) type Owner = u8;

/// The content of a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Object {
    Manifest(Stored<Manifest>),
    Data { owner: Owner, record: Record, durable: WalId },
    Fence { owner: Owner, epoch: Epoch, next_id: WalId },
    Table(Vec<Record>),
    Jobs(Stored<Compactions>),
    Boundary,
}

/// A manifest or a record of jobs as an object. Ordered by its hash, so that requests in flight can
/// be kept sorted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored<T> {
    pub(crate) owner: Owner,
    pub(crate) state: Arc<T>,
}

impl<T: Eq + Hash> PartialOrd for Stored<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Eq + Hash> Ord for Stored<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |stored: &Self| (stored.owner, fingerprint(&stored.state));
        key(self).cmp(&key(other))
    }
}

/// The object store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store(pub(crate) BTreeMap<ObjectName, Object>);

impl Store {
    pub(crate) fn manifest(&self, id: ManifestId) -> Option<&Arc<Manifest>> {
        match self.0.get(&ObjectName::Manifest(id)) {
            Some(Object::Manifest(stored)) => Some(&stored.state),
            _ => None,
        }
    }

    pub(crate) fn has_table(&self, id: SstId) -> bool {
        self.0.keys().any(|name| match name {
            ObjectName::Compacted(one) | ObjectName::IngestSst(_, one) => *one == id,
            _ => false,
        })
    }

    pub(crate) fn listing(&self, after: ManifestId) -> Listing {
        let ids = self.0.keys().filter_map(|name| match name {
            ObjectName::Manifest(id) => Some(*id),
            _ => None,
        });
        Listing::of(&ids.collect::<Vec<_>>(), self.manifest_boundary(), after)
    }

    pub(crate) fn manifest_boundary(&self) -> ManifestId {
        let boundaries = self.0.keys().filter_map(|name| match name {
            ObjectName::ManifestBoundary(id) => Some(*id),
            _ => None,
        });
        boundaries.max().unwrap_or_default()
    }

    pub(crate) fn wal_boundary(&self) -> WalId {
        let boundaries = self.0.keys().filter_map(|name| match name {
            ObjectName::WalBoundary(id) => Some(*id),
            _ => None,
        });
        boundaries.max().unwrap_or_default()
    }

    /// The result of a listing of the WAL behind `after`.
    pub(crate) fn wal_listing(&self, after: WalId) -> WalListing {
        let later = self.0.keys().filter_map(|name| match name {
            ObjectName::Wal(id) if *id > after => Some(*id),
            _ => None,
        });
        WalListing { boundary: self.wal_boundary(), later: later.collect() }
    }

    /// The result of a GET of a WAL name, and the record in it.
    pub(crate) fn wal(&self, id: WalId) -> (WalSeen, Option<Record>) {
        self.0.get(&ObjectName::Wal(id)).map_or((WalSeen::Absent, None), seen)
    }

    /// Every object; all are old enough: age only delays a delete, so this is the most difficult
    /// store.
    pub(crate) fn listed(&self) -> Vec<ListedObject> {
        let listed =
            |name: &ObjectName| ListedObject { name: *name, modified: UnixMillis(0), bytes: 1 };
        self.0.keys().map(listed).collect()
    }

    /// Answers a read or a listing of records; `None` for a create.
    pub(crate) fn record_answer(&self, request: &RecordRequest) -> Option<RecordAnswer> {
        match request {
            RecordRequest::Create(_) => None,
            RecordRequest::List => {
                let mut listing = RecordListing::default();
                for name in self.0.keys() {
                    match name {
                        ObjectName::Compactions(number) => {
                            listing.newest = listing.newest.max(*number);
                        }
                        ObjectName::CompactionsBoundary(number) => {
                            listing.boundary = listing.boundary.max(*number);
                        }
                        _ => {}
                    }
                }
                Some(RecordAnswer::Listed(listing))
            }
            RecordRequest::Read(number) => {
                Some(RecordAnswer::Read(match self.0.get(&ObjectName::Compactions(*number)) {
                    Some(Object::Jobs(stored)) => Some(stored.state.clone()),
                    _ => None,
                }))
            }
        }
    }

    /// Answers a read or a listing; `None` for a create.
    pub(crate) fn answer(&self, request: &ManifestRequest) -> Option<ManifestAnswer> {
        match request {
            ManifestRequest::Create(_) => None,
            ManifestRequest::List { after } => Some(ManifestAnswer::Listed(self.listing(*after))),
            ManifestRequest::Read(id) => Some(ManifestAnswer::Read(self.manifest(*id).cloned())),
        }
    }
}

/// A WAL object as a walk sees it, and the record in it.
pub(crate) fn seen(object: &Object) -> (WalSeen, Option<Record>) {
    match object {
        Object::Data { record, durable, .. } => {
            (WalSeen::Data { epoch: record.epoch, durable: *durable }, Some(*record))
        }
        Object::Fence { epoch, next_id, .. } => {
            (WalSeen::Fence { epoch: *epoch, next_id: *next_id }, None)
        }
        _ => (WalSeen::Foreign, None),
    }
}

/// A table over the whole key space.
pub(crate) fn describe(id: SstId, rows: &[Record]) -> SstDescriptor {
    let seqs = || rows.iter().map(|row| Seq(row.seq));
    SstDescriptor {
        id,
        location: SstLocation::Own,
        job: None,
        object_bytes: 2,
        checksum: 0,
        tail_offset: 1,
        first_key: bytes::Bytes::from_static(b"a"),
        last_key: bytes::Bytes::from_static(b"z"),
        visible_start: None,
        visible_end: None,
        seq_override: None,
        entries: rows.len() as u64,
        tombstones: 0,
        min_seq: seqs().min().unwrap_or_default(),
        max_seq: seqs().max().unwrap_or_default(),
        min_expiry: None,
        max_expiry: None,
        range_deletes: None,
        sum: None,
    }
}

/// A request whose caller no longer waits, and which may take effect at any later time, or never.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Pending {
    Create(ObjectName, Object),
    Delete(ObjectName),
}

/// The information in the store's tags about an object that was listed, and then read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tags {
    /// The store has no tags.
    None,
    /// An object has another tag than all that had its name before or after it.
    Exact,
    /// All objects of one name have the same tag. This breaks the contract of the store.
    Blind,
}

/// The faults that may still occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// Processes that may still die.
    pub(crate) crashes: u8,
    /// Creates that land although their answer is lost.
    pub(crate) unanswered: u8,
    /// Creates that land and whose answer, to a retry below the engine, is "exists".
    pub(crate) retried: u8,
    /// Requests that are abandoned without an answer and may take effect later.
    pub(crate) late: u8,
    /// WAL objects that an outsider may still delete, against the rules.
    pub(crate) destroyed: u8,
    /// Number of times that an outsider may still delete the whole database under running
    /// processes.
    pub(crate) wiped: u8,
    /// Creates that are refused as a conflict although nothing exists, and deletes that fail.
    pub(crate) refused: u8,
}

/// One state.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) store: Shared<Store>,
    pub(crate) network: Shared<Vec<Pending>>,
    pub(crate) actors: Vec<Shared<Actor>>,
    pub(crate) ghost: Shared<Ghost>,
    pub(crate) faults: Faults,
    tags: Tags,
    /// For each process the newest manifest in its last listing, until it reads a manifest. Empty
    /// without tags.
    listed: Shared<Vec<Option<Object>>>,
    /// The first invariant that the last step broke.
    pub(crate) broken: Option<String>,
}

/// Successors of one state.
pub(crate) type Out = Vec<(Step, World)>;

impl World {
    pub(crate) fn new(rules: Rules, first: Manifest, actors: Vec<Actor>, faults: Faults) -> World {
        let first = Arc::new(first);
        let mut store = Store::default();
        let stored = Stored { owner: Owner::MAX, state: first.clone() };
        store.0.insert(ObjectName::Manifest(first.id), Object::Manifest(stored));
        World {
            rules,
            store: Shared::new(store),
            network: Shared::new(Vec::new()),
            actors: actors.into_iter().map(Shared::new).collect(),
            ghost: Shared::new(Ghost::new(first)),
            faults,
            tags: Tags::None,
            listed: Shared::new(Vec::new()),
            broken: None,
        }
    }

    /// The same, with these tags.
    pub(crate) fn with_tags(self, tags: Tags) -> World {
        let listed = if tags == Tags::None { Vec::new() } else { vec![None; self.actors.len()] };
        World { tags, listed: Shared::new(listed), ..self }
    }

    /// The answer to a read or a listing of process `me`: a manifest has the tag of the one that
    /// was listed before, or another one.
    pub(crate) fn answer(&self, me: usize, request: &ManifestRequest) -> Option<ManifestAnswer> {
        let answer = self.store.answer(request)?;
        let ManifestAnswer::Read(Some(read)) = &answer else { return Some(answer) };
        let name = ObjectName::Manifest(read.id);
        let listed = self.listed.get(me).and_then(Option::as_ref);
        let same = match (self.tags, listed) {
            (Tags::None, _) | (_, None) => false,
            (Tags::Exact, Some(listed)) => self.store.0.get(&name) == Some(listed),
            (Tags::Blind, Some(listed)) => {
                matches!(listed, Object::Manifest(stored) if stored.state.id == read.id)
            }
        };
        Some(if same { ManifestAnswer::ReadAsListed(read.clone()) } else { answer })
    }

    /// Notes the tag that this answer has shown to process `me`.
    pub(crate) fn note_tag(&mut self, me: usize, answer: &ManifestAnswer) {
        if self.tags == Tags::None {
            return;
        }
        let newest = match answer {
            ManifestAnswer::Listed(listing) => listing.newest,
            _ => None,
        };
        let newest = newest.and_then(|id| self.store.0.get(&ObjectName::Manifest(id)).cloned());
        if let Some(listed) = self.listed.edit().get_mut(me) {
            *listed = newest;
        }
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        let mut parts = Vec::with_capacity(self.actors.len() + 6);
        parts.extend(self.actors.iter().map(Shared::hash));
        parts.push(self.store.hash());
        parts.push(self.network.hash());
        parts.push(self.ghost.hash());
        parts.push(self.listed.hash());
        let faults = &self.faults;
        let left = [faults.crashes, faults.unanswered, faults.retried, faults.late, faults.refused];
        let left = left.into_iter().chain([faults.destroyed, faults.wiped]);
        parts.push(left.fold(0, |sum, one| sum * 256 + u64::from(one)));
        parts.push(u64::from(self.broken.is_some()));
        fingerprint(&parts)
    }

    /// A successor: this state after `change`.
    pub(crate) fn then(&self, out: &mut Out, step: Step, change: impl FnOnce(&mut World)) {
        let mut next = self.clone();
        change(&mut next);
        next.store.seal();
        next.network.seal();
        next.ghost.seal();
        next.listed.seal();
        next.actors.iter_mut().for_each(Shared::seal);
        out.push((step, next));
    }

    pub(crate) fn actor(&mut self, me: usize) -> Option<&mut Actor> {
        self.actors.get_mut(me).map(Shared::edit)
    }

    /// Records a violation; the first one counts.
    pub(crate) fn break_if(&mut self, problem: Option<String>) {
        if self.broken.is_none() {
            self.broken = problem;
        }
    }

    /// Creates an object whose name is free.
    pub(crate) fn land(&mut self, name: ObjectName, object: Object) {
        if let Object::Manifest(stored) = &object {
            let problem = self.ghost.edit().committed(&stored.state);
            self.break_if(problem);
        }
        if let Object::Jobs(stored) = &object {
            let problem = self.overtaken(stored);
            self.break_if(problem);
            self.ghost.edit().recorded(&stored.state);
        }
        if let (ObjectName::Compacted(id) | ObjectName::IngestSst(_, id), Object::Table(rows)) =
            (&name, &object)
        {
            self.ghost.edit().uploaded(*id, rows);
        }
        let checks = matches!(object, Object::Manifest(_)) && !self.ghost.gone;
        self.store.edit().0.insert(name, object);
        if checks {
            let problem = self.ghost.missing(&self.store);
            self.break_if(problem);
        }
    }

    /// Rule R2: a compactor that was taken over changes the record of jobs.
    fn overtaken(&self, stored: &Stored<Compactions>) -> Option<String> {
        let next = stored.state.number == self.ghost.jobs.number + 1;
        match self.actors.get(usize::from(stored.owner)).map(|actor| &**actor) {
            Some(Actor::Compactor(one)) if next => one.overtaken(&self.ghost.jobs),
            _ => None,
        }
    }

    pub(crate) fn delete(&mut self, name: ObjectName) {
        self.store.edit().0.remove(&name);
        if self.ghost.gone {
            return;
        }
        let problem = self.ghost.wrongly_deleted(name);
        self.break_if(problem);
        let problem = self.ghost.missing(&self.store);
        self.break_if(problem);
    }

    /// An outsider deletes an object that recovery reads: records or a fence that the manifest
    /// knows, or records that a later object proves (rule E3). No opener runs at that time, because
    /// one that has already looked takes the freed id for the end. A fence that no manifest knows
    /// is excluded: no process could warn a writer whose record then takes its id.
    pub(crate) fn outsider_steps(&self, out: &mut Out) {
        let left = self.faults;
        if left.wiped > 0 {
            self.then(out, Step::outsider(What::Wipes), |next| {
                next.faults = Faults { wiped: left.wiped - 1, ..left };
                *next.store.edit() = Store::default();
                next.ghost.edit().gone = true;
            });
        }
        if left.destroyed == 0 {
            return;
        }
        let tip = &self.ghost.tip;
        let opens = |actor: &Shared<Actor>| matches!(&**actor, Actor::Writer(one) if one.opens());
        let quiet = !self.actors.iter().any(opens);
        for (name, object) in &self.store.0 {
            let ObjectName::Wal(id) = name else { continue };
            let told = match object {
                Object::Data { .. } => *id <= tip.wal_id_last_seen || (quiet && self.tells_of(*id)),
                Object::Fence { .. } => *id <= tip.wal_id_last_seen,
                _ => false,
            };
            if told && *id >= tip.replay_from {
                self.then(out, Step::outsider(What::Deletes(*name, true)), |next| {
                    next.faults = Faults { destroyed: left.destroyed - 1, ..left };
                    next.store.edit().0.remove(name);
                    next.ghost.edit().destroys(*id);
                });
            }
        }
    }

    /// Whether a later object proves that `id` was committed.
    fn tells_of(&self, id: WalId) -> bool {
        self.store.0.iter().any(|(name, object)| match (name, object) {
            (ObjectName::Wal(_), Object::Data { durable, .. }) => id <= *durable,
            (ObjectName::Wal(later), Object::Fence { .. }) => *later > id,
            _ => false,
        })
    }

    /// Leaves a request to the network.
    pub(crate) fn post(&mut self, pending: Pending) {
        let network = self.network.edit();
        if let Err(place) = network.binary_search(&pending) {
            network.insert(place, pending);
        }
    }

    /// Requests that take effect now, although no process waits for them.
    pub(crate) fn network_steps(&self, out: &mut Out) {
        for (place, pending) in self.network.iter().enumerate() {
            match pending {
                Pending::Create(name, object) if !self.store.0.contains_key(name) => {
                    self.then(out, Step::network(What::Lands(*name)), |world| {
                        world.network.edit().remove(place);
                        world.land(*name, object.clone());
                    });
                }
                // No effect: the same as one that never arrives.
                Pending::Create(..) => {}
                Pending::Delete(name) if self.store.0.contains_key(name) => {
                    self.then(out, Step::network(What::DeleteLands(*name)), |world| {
                        world.network.edit().remove(place);
                        world.delete(*name);
                    });
                }
                Pending::Delete(_) => {}
            }
        }
    }
}
