//! Typed requests of the protocols' drivers to the store, with retries and decoding. This module
//! must never decide by a listing alone that a manifest is the newest.

use super::ahead::{EarlyReads, ManifestTags, ReadAhead};
use super::gate;
use bytes::Bytes;
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::name::prefix;
use siltstone_base::{
    AttemptId, DatabaseId, Envelope, Error, ErrorKind, JobId, ManifestId, ObjectKind, ObjectName,
    Result, WalId,
};
use siltstone_manifest::codec::{decode_boundary, says_emptied};
use siltstone_manifest::compaction::Compactions;
use siltstone_manifest::compaction::record::RecordListing;
use siltstone_manifest::edit::Conflict;
use siltstone_manifest::ingest::{ClosedJob, JobStatus, standing_as};
use siltstone_manifest::protocol::{
    EndOfRun, Follow, FollowAction, Listing, NumbersLeft, RunAction, WalListing, WalSeen,
};
use siltstone_manifest::{Manifest, Refusal};
use siltstone_sst::wal::{self, WalBody, WalObject};
use siltstone_store::env::Env;
use siltstone_store::retry::{ContradictionRetry, read_whole, with_retries};
use siltstone_store::separate_log::SeparateLogStore;
use siltstone_store::{Listed, LogIdentityStep, ObjectTag};
use std::sync::Arc;
use std::time::Duration;

/// Manifests where there is no database: their ids, ascending, and the boundary.
pub(crate) type Left = (Vec<ManifestId>, ManifestId);

/// Requests for the objects of one database. Each has the time `limit`, and the time that its bytes
/// need.
#[derive(Clone)]
pub(crate) struct Objects {
    pub(crate) env: Env,
    pub(crate) limit: Duration,
}

impl Objects {
    /// Requests for the database at `location`, in the same store. Its log is not read.
    ///
    /// # Errors
    /// Unsupported if that location cannot be opened from this store.
    pub(crate) fn neighbour(&self, location: &str) -> Result<Objects> {
        let store = SeparateLogStore::without_log(self.env.store.neighbours().neighbour(location)?);
        Ok(Objects { env: Env { store, ..self.env.clone() }, limit: self.limit })
    }

    /// Takes up the log that `newest`, the newest manifest, names.
    ///
    /// # Errors
    /// Unsupported if the store looks for it in another place.
    pub(crate) fn follow_log(&self, newest: &Manifest) -> Result<()> {
        self.env.store.log().follow(newest.database, newest.wal_store.as_ref())
    }

    /// Takes up the log of the newest manifest that `machine` has proven, if its next action reads
    /// the log.
    ///
    /// # Errors
    /// As [`Objects::follow_log`].
    pub(crate) fn follow_log_for(&self, machine: &Follow) -> Result<()> {
        let Some(newest) = machine.manifest() else { return Ok(()) };
        match machine.action() {
            FollowAction::ReadWal(_) | FollowAction::ListWal(_) | FollowAction::ReadWalBoundary => {
                self.follow_log(newest)
            }
            FollowAction::Request(_) | FollowAction::Idle | FollowAction::Failed(_) => Ok(()),
        }
    }

    /// Checks the identity of a separate log.
    ///
    /// # Errors
    /// Corruption if it is missing or another one; Conflict if the log belongs to a database of
    /// which this is a copy; errors of the store.
    pub(crate) async fn check_log(&self) -> Result<()> {
        let check = || self.env.store.log().identity(LogIdentityStep::Check);
        with_retries(&self.env, self.limit, "check the log", check).await
    }

    /// Checks the identity of a separate log. A log that is lost is used without its identity from
    /// here on, by a process that needs nothing of it. Returns the error that others meet.
    ///
    /// # Errors
    /// Corruption if another object is in place of the identity; Conflict if the log belongs to a
    /// database of which this is a copy; errors of the store.
    pub(crate) async fn give_up_lost_log(&self) -> Result<Option<Error>> {
        let (env, store) = (&self.env, &self.env.store);
        let step = |step| move || store.log().identity(step);
        match self.check_log().await {
            Ok(()) => Ok(None),
            Err(error) if error.kind() == ErrorKind::Corruption => {
                let ignore = step(LogIdentityStep::Ignore);
                with_retries(env, self.limit, "check the log", ignore).await?;
                Ok(Some(error))
            }
            Err(error) => Err(error),
        }
    }

    /// The objects under `prefix` that have known names.
    pub(crate) async fn list(&self, prefix: &'static str) -> Result<Vec<Listed>> {
        let list = || self.env.store.list(prefix, None);
        with_retries(&self.env, self.limit, "list", list).await
    }

    /// The staged objects of an ingest job.
    pub(crate) async fn list_job(&self, job: JobId) -> Result<Vec<Listed>> {
        with_retries(&self.env, self.limit, "list", || self.env.store.list_job(job)).await
    }

    /// The names of the objects under `prefix`.
    pub(crate) async fn names(&self, prefix: &'static str) -> Result<Vec<ObjectName>> {
        let names = || self.env.store.names(prefix, None);
        with_retries(&self.env, self.limit, "list", names).await
    }

    /// The whole object; `None` if it does not exist. The time limit of a long object grows with
    /// its length.
    pub(crate) async fn get(&self, name: ObjectName) -> Result<Option<Bytes>> {
        let get = || self.env.store.get(name, None);
        read_whole(&self.env, self.limit, "read", self.length(name), get).await
    }

    /// The length of an object, from a listing.
    async fn length(&self, name: ObjectName) -> Result<Option<u64>> {
        let folder = match name {
            ObjectName::Wal(_) => prefix::WAL,
            ObjectName::Manifest(_) => prefix::MANIFEST,
            ObjectName::Compactions(_) => prefix::COMPACTIONS,
            // Other objects are short.
            _ => return Ok(None),
        };
        let listed = self.env.store.list(folder, None).await?;
        Ok(listed.into_iter().find(|object| object.name == name).map(|object| object.bytes))
    }

    /// The newest manifest above `after`, and the boundary. One listing returns both, because the
    /// boundary is under the same prefix. The listings of some stores are stale for a while and
    /// lack the newest manifest. So the number after the last listed one is read until no manifest
    /// is found.
    ///
    /// # Errors
    /// Errors of the store; Corruption; Unavailable if listings still show a first manifest that is
    /// gone.
    pub(crate) async fn list_manifests(&self, after: ManifestId) -> Result<Listing> {
        self.list_ahead(after, &mut ReadAhead::default()).await
    }

    /// As [`Objects::list_manifests`]. Leaves the newest manifest in `ahead` if it was read.
    pub(crate) async fn list_ahead(
        &self,
        after: ManifestId,
        ahead: &mut ReadAhead,
    ) -> Result<Listing> {
        let (listing, _) = self.list_run(after, ahead).await?;
        Ok(listing)
    }

    /// As [`Objects::list_ahead`], with the ids of all existing manifests, ascending.
    pub(crate) async fn list_run(
        &self,
        after: ManifestId,
        ahead: &mut ReadAhead,
    ) -> Result<(Listing, Vec<ManifestId>)> {
        let mut again = ContradictionRetry::new(&self.env, self.limit);
        let (ids, boundary, end) = loop {
            let (ids, boundary, end) = self.run_listed(after, ahead).await?;
            let shown = end.filter(|end| *end >= after);
            let stale = match (end, shown) {
                (None, _) => true,
                (Some(end), Some(_)) if end > boundary => false,
                (Some(_), Some(_)) => !self.is_boundary_still(boundary).await?,
                // The listing shows an older run, of a database that was destroyed at this path.
                // The manifest before `after` shows whether `after` belongs to a newer run.
                (Some(_), None) => self.get(ObjectName::Manifest(after.minus(1))).await?.is_some(),
            };
            if let Some(end) = end.filter(|_| !stale) {
                break (ids, boundary, end);
            }
            if !again.after_a_pause().await {
                if let Some(end) = end {
                    break (ids, boundary, end);
                }
                let stale = "the store goes on to list a manifest that is gone, and no boundary";
                let first = ObjectName::Manifest(ManifestId::FIRST);
                return Err(Error::unavailable(stale).with("object", first));
            }
        };
        let listing = Listing::ending(end, boundary, after);
        if let Some(apart) = ids.iter().copied().find(|id| *id > end)
            && end > boundary
            && listing.stands
        {
            self.refuse_a_gap(end, apart).await?;
        }
        Ok((listing, ids))
    }

    /// Ids of manifests, ascending, the boundary, and the end of their run. A run that ends before
    /// the manifest `after`, or before a listed one, counts only if the boundary has not moved
    /// since. The end of the run is read after the listing. If a slot was freed in between, it may
    /// contain a late object of a suspended process, for example the first manifest of another
    /// creator.
    async fn run_listed(
        &self,
        after: ManifestId,
        ahead: &mut ReadAhead,
    ) -> Result<(Vec<ManifestId>, ManifestId, Option<ManifestId>)> {
        let (listed, mut found) =
            futures::join!(self.manifests_tagged(), self.beside_a_listing(after, ahead));
        let ((mut ids, mut boundary), mut tags) = listed?;
        if after.is_none() && !ids.is_empty() {
            found = EarlyReads::default();
        }
        loop {
            let listed = (&*ids, boundary, &tags);
            let end = self.end_of_run(listed, after, found, ahead).await?;
            let last = ids.last().copied().unwrap_or_default().max(after);
            if end.is_none_or(|end| end >= last) {
                return Ok((ids, boundary, end));
            }
            let ((listed, stands), tagged) = self.manifests_tagged().await?;
            if stands <= boundary {
                return Ok((ids, boundary, end));
            }
            (ids, boundary, tags, found) = (listed, stands, tagged, EarlyReads::default());
        }
    }

    /// No manifest is above the boundary: the database was destroyed, or never existed. Returns
    /// `false` if the boundary has moved, because the manifests behind it may then have been freed
    /// before they were read.
    async fn is_boundary_still(&self, boundary: ManifestId) -> Result<bool> {
        Ok(boundary.is_none() || self.manifests_listed().await?.1 == boundary)
    }

    /// As [`Objects::manifests_listed`], with tags.
    async fn manifests_tagged(&self) -> Result<((Vec<ManifestId>, ManifestId), ManifestTags)> {
        if !self.is_distant() {
            // A local folder reads lengths and ages file by file, and has no tags.
            return Ok((self.manifests_listed().await?, ManifestTags::new()));
        }
        let (mut ids, mut boundary, mut tags) = (Vec::new(), ManifestId::NONE, ManifestTags::new());
        for listed in self.list(prefix::MANIFEST).await? {
            match listed.name {
                ObjectName::Manifest(id) => {
                    ids.push(id);
                    tags.extend(listed.tag.map(|tag| (id, tag)));
                }
                ObjectName::ManifestBoundary(id) => boundary = boundary.max(id),
                _ => {}
            }
        }
        Ok(((ids, boundary), tags))
    }

    /// Ids of manifests, ascending, and the boundary.
    pub(crate) async fn manifests_listed(&self) -> Result<Left> {
        let (mut ids, mut boundary) = (Vec::new(), ManifestId::NONE);
        for name in self.names(prefix::MANIFEST).await? {
            match name {
                ObjectName::Manifest(id) => ids.push(id),
                ObjectName::ManifestBoundary(id) => boundary = boundary.max(id),
                _ => {}
            }
        }
        Ok((ids, boundary))
    }

    /// The end of the run of manifests in a listing. `found` was read beside that listing.
    async fn end_of_run(
        &self,
        (ids, boundary, tags): (&[ManifestId], ManifestId, &ManifestTags),
        after: ManifestId,
        mut found: EarlyReads,
        ahead: &mut ReadAhead,
    ) -> Result<Option<ManifestId>> {
        let mut run = EndOfRun::new(ids.to_vec(), boundary);
        let needs_first = run.action() == RunAction::Read(ManifestId::FIRST);
        self.read_at_once(&run, after, (&mut found, ahead)).await;
        loop {
            match run.action() {
                RunAction::Done(end) => {
                    ahead.note(needs_first, end.filter(|end| *end > after), (found, tags));
                    return Ok(end);
                }
                RunAction::Read(id) => {
                    if found.get(id).is_none() {
                        let read = self.manifest(id).await?;
                        found.keep(id, read);
                    }
                    run.on_read(found.get(id).flatten().as_deref());
                }
                RunAction::Ask(id) => run.on_asked(match found.get(id) {
                    Some(read) => read.is_some(),
                    None => self.get(ObjectName::Manifest(id)).await?.is_some(),
                }),
            }
        }
    }

    /// Handles a manifest behind a gap in the numbers. A manifest of another database is a stray:
    /// that database was deleted, and one of its processes did not know it yet. A manifest of this
    /// database shows that another program has deleted the manifests in between. Continuing without
    /// them would lose their changes.
    async fn refuse_a_gap(&self, end: ManifestId, apart: ManifestId) -> Result<()> {
        let (last, stray) = (self.manifest(end).await?, self.manifest(apart).await?);
        let one = last.zip(stray).is_some_and(|(last, stray)| last.database == stray.database);
        if !one || self.manifest(end.next()).await?.is_some() {
            return Ok(());
        }
        Err(Error::corruption(
            "a manifest is missing, and a later one is there: something other than Siltstone \
             deleted it; put it back, from the store's older versions or a backup, or use \
             `siltstone repair`",
        )
        .with("object", ObjectName::Manifest(end.next()))
        .with("the later one", ObjectName::Manifest(apart)))
    }

    /// The database of the manifest with this number, from its envelope alone; `None` if there is
    /// no manifest.
    pub(crate) async fn owner_of(&self, id: ManifestId) -> Result<Option<DatabaseId>> {
        let name = ObjectName::Manifest(id);
        let get = || self.env.store.get(name, Some(0..ENVELOPE_BYTES as u64));
        let head = with_retries(&self.env, self.limit, "read", get).await?;
        let decode = |head: Bytes| Envelope::decode(&head, ObjectKind::Manifest);
        match head.map(decode).transpose() {
            Ok(head) => Ok(head.map(|head| head.database)),
            // The bytes are damaged, in transit or in the store. A read of the whole object
            // decides.
            Err(_) => Ok(self.manifest(id).await?.map(|manifest| manifest.database)),
        }
    }

    /// The boundary of the WAL.
    pub(crate) async fn wal_boundary(&self) -> Result<WalId> {
        let names = self.names(prefix::WAL_BOUNDARY).await?;
        let ids = names.into_iter().filter_map(|name| match name {
            ObjectName::WalBoundary(id) => Some(id),
            _ => None,
        });
        Ok(ids.max().unwrap_or(WalId::NONE))
    }

    /// The highest boundaries of all three kinds.
    pub(crate) async fn numbers_left(&self) -> Result<NumbersLeft> {
        let folders = [prefix::MANIFEST, prefix::WAL_BOUNDARY, prefix::COMPACTIONS];
        let mut names = Vec::new();
        for folder in folders {
            names.extend(self.names(folder).await?);
        }
        Ok(NumbersLeft::of(&names))
    }

    /// Whether the boundary object `id` of the manifests records that its database was destroyed.
    pub(crate) async fn is_emptied(&self, id: ManifestId) -> Result<bool> {
        let decode = |bytes: &Bytes| Ok(says_emptied(&decode_boundary(bytes)?.0));
        let says = self.decoded(ObjectName::ManifestBoundary(id), decode).await?;
        Ok(says.unwrap_or_default())
    }

    /// The WAL ids above `after`, and the boundary of the WAL. One listing returns both, because
    /// they are under the same prefix.
    pub(crate) async fn list_wal(&self, after: WalId) -> Result<WalListing> {
        let after = ObjectName::Wal(after);
        let names = || self.env.store.names(prefix::WAL, Some(after));
        let mut listing = WalListing::default();
        for name in with_retries(&self.env, self.limit, "list", names).await? {
            match name {
                ObjectName::Wal(id) => listing.later.push(id),
                ObjectName::WalBoundary(id) => listing.boundary = listing.boundary.max(id),
                _ => {}
            }
        }
        Ok(listing)
    }

    /// The WAL objects above `after`, with their lengths.
    pub(crate) async fn list_wal_lengths(&self, after: WalId) -> Result<Vec<Listed>> {
        let after = ObjectName::Wal(after);
        let list = || self.env.store.list(prefix::WAL, Some(after));
        with_retries(&self.env, self.limit, "list", list).await
    }

    /// The manifest with this number; `None` if it does not exist.
    ///
    /// # Errors
    /// Errors of the store; Corruption; Unsupported, with the feature's name, for a manifest that
    /// this build cannot read. Every read of a manifest passes this check.
    pub(crate) async fn manifest(&self, id: ManifestId) -> Result<Option<Arc<Manifest>>> {
        Ok(self.manifest_and_attempt(id).await?.map(|(_, manifest)| manifest))
    }

    /// As [`Objects::manifest`], with the attempt that created it, which distinguishes two objects
    /// with the same number.
    pub(crate) async fn manifest_and_attempt(
        &self,
        id: ManifestId,
    ) -> Result<Option<(AttemptId, Arc<Manifest>)>> {
        self.decoded(ObjectName::Manifest(id), |bytes| self.decoded_manifest(id, bytes)).await
    }

    fn decoded_manifest(
        &self,
        id: ManifestId,
        bytes: &Bytes,
    ) -> Result<(AttemptId, Arc<Manifest>)> {
        let (envelope, manifest) = Manifest::decode(bytes)?;
        if manifest.id == id {
            gate::check(&manifest, &*self.env.store)?;
            return Ok((envelope.attempt, Arc::new(manifest)));
        }
        Err(Error::corruption("a manifest stands under another's number")
            .with("found", manifest.id))
    }

    /// As [`Objects::manifest`], with the object's tag, if the store has tags.
    pub(crate) async fn manifest_tagged(
        &self,
        id: ManifestId,
    ) -> Result<Option<(Arc<Manifest>, Option<ObjectTag>)>> {
        let name = ObjectName::Manifest(id);
        let get = || self.env.store.get_tagged(name);
        let read = read_whole(&self.env, self.limit, "read", self.length(name), get).await?;
        let Some((bytes, tag)) = read else { return Ok(None) };
        match self.decoded_manifest(id, &bytes) {
            Ok((_, manifest)) => Ok(Some((manifest, tag))),
            // Damaged bytes are read a second time.
            Err(_) => Ok(self.manifest(id).await?.map(|manifest| (manifest, None))),
        }
    }

    /// The newest record of compaction jobs of `database`, and the boundary, as
    /// [`Objects::list_manifests`].
    ///
    /// # Errors
    /// Errors of the store; Corruption if the record above the boundary stays missing: it existed
    /// when the boundary was created, and is deleted only behind a higher boundary; errors of
    /// `goes_on`, which is called before each further look.
    pub(crate) async fn list_records(
        &self,
        database: DatabaseId,
        goes_on: impl Fn() -> Result<()>,
    ) -> Result<RecordListing> {
        let first = database.counts_from();
        let mut again = ContradictionRetry::new(&self.env, self.limit);
        loop {
            let listing = self.records_listed(first).await?;
            if listing.newest > listing.boundary || listing.boundary == 0 {
                return Ok(listing);
            }
            goes_on()?;
            if !again.after_a_pause().await {
                return Err(Error::corruption(
                    "the records of compaction jobs are missing, and a boundary says that there \
                     are some: something other than Siltstone deleted them; put the newest back, \
                     from the store's older versions or a backup; or, once no process compacts, \
                     delete the boundary",
                )
                .with("object", ObjectName::Compactions(listing.boundary.saturating_add(1)))
                .with("boundary", ObjectName::CompactionsBoundary(listing.boundary)));
            }
        }
    }

    async fn records_listed(&self, first: u64) -> Result<RecordListing> {
        let mut listing = RecordListing::default();
        for name in self.names(prefix::COMPACTIONS).await? {
            match name {
                ObjectName::Compactions(number) => listing.newest = listing.newest.max(number),
                ObjectName::CompactionsBoundary(number) => {
                    listing.boundary = listing.boundary.max(number);
                }
                _ => {}
            }
        }
        let mut listing = listing.counting_from(first);
        loop {
            let next = listing.newest.max(listing.boundary).saturating_add(1).max(first);
            match self.get(ObjectName::Compactions(next)).await? {
                Some(_) => listing.newest = next,
                None => break,
            }
        }
        Ok(listing)
    }

    /// The record of compaction jobs with this number; `None` if it does not exist.
    ///
    /// # Errors
    /// Errors of the store; Corruption; NotFound if a later database has a record with this number.
    pub(crate) async fn record(
        &self,
        number: u64,
        database: DatabaseId,
    ) -> Result<Option<Arc<Compactions>>> {
        let name = ObjectName::Compactions(number);
        let decode = |bytes: &Bytes| {
            let (_, record) = Compactions::decode(bytes)?;
            if record.number == number {
                return Ok(record);
            }
            Err(Error::corruption("a compaction record has another record's number")
                .with("found", record.number))
        };
        let record = match self.decoded(name, decode).await {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                return Err(gate::damaged_record(error).with("object", name));
            }
            record => record?,
        };
        match record.as_ref().map(|record| record.database) {
            Some(other) if other.counts_from() > database.counts_from() => {
                Err(Refusal::from(Conflict::OtherDatabase).into())
            }
            Some(other) if other != database => Err(gate::foreign_record().with("object", name)),
            _ => Ok(record.map(Arc::new)),
        }
    }

    /// The WAL object with this id; `None` if it does not exist.
    pub(crate) async fn wal(&self, id: WalId) -> Result<Option<WalObject>> {
        self.decoded(ObjectName::Wal(id), |bytes| wal::decode(bytes.clone(), id)).await
    }

    /// The object that closed an ingest job; `None` if the job is open or the object is gone.
    pub(crate) async fn closed_job(&self, job: JobId) -> Result<Option<ClosedJob>> {
        let closed =
            self.decoded(ObjectName::IngestManifest(job), |bytes| ClosedJob::decode(bytes)).await?;
        match closed {
            Some(closed) if closed.job != job => {
                Err(Error::corruption("the object of an ingest job stands under another's name")
                    .with("found", closed.job))
            }
            closed => Ok(closed),
        }
    }

    /// The status in `state` of an ingest job that it does not know. Only the closing object has
    /// the job's application and version, which decide whether a later version was ingested.
    pub(crate) async fn standing_of_closed(
        &self,
        state: &Manifest,
        job: JobId,
    ) -> Result<JobStatus> {
        let app = match self.closed_job(job).await {
            Err(error) if is_damage(error.kind()) => None,
            closed => closed?.and_then(|closed| closed.app),
        };
        Ok(standing_as(state, job, app.as_ref()))
    }

    /// Reads and decodes an object. Damaged bytes are read a second time, because the damage may be
    /// in transit.
    async fn decoded<T>(
        &self,
        name: ObjectName,
        decode: impl Fn(&Bytes) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(bytes) = self.get(name).await? else { return Ok(None) };
        let decoded = match decode(&bytes) {
            Err(error) if error.kind() == ErrorKind::Corruption => match self.get(name).await? {
                Some(again) => decode(&again),
                None => return Ok(None),
            },
            decoded => decoded,
        };
        decoded.map(Some).map_err(|error| self.located(error.with("object", name), name))
    }

    /// `error` about the object `name`, with its place if that is a separate store of the log.
    fn located(&self, error: Error, name: ObjectName) -> Error {
        let is_of_log = matches!(name, ObjectName::Wal(_) | ObjectName::WalBoundary(_));
        let place = if is_of_log { self.env.store.log().location() } else { None };
        place.into_iter().fold(error, |error, place| error.with("store of the log", place))
    }
}

/// Whether an error means that the bytes are damaged or unreadable, and not that the store failed.
pub(crate) fn is_damage(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corruption | ErrorKind::Unsupported)
}

/// The summary of a WAL object for the protocols.
pub(crate) fn seen(object: &WalObject, database: DatabaseId) -> WalSeen {
    if object.envelope.database != database {
        return WalSeen::Foreign;
    }
    match &object.body {
        WalBody::Fence { next_id } => WalSeen::Fence { epoch: object.epoch, next_id: *next_id },
        WalBody::Records(_) => WalSeen::Data { epoch: object.epoch, durable: object.sent.durable },
    }
}
