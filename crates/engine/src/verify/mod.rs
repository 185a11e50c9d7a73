//! Reads and checks every byte of a database: the newest manifest, the chain of manifests before
//! it, manifests that present checkpoints pin, the boundaries, the WAL from the replay point on,
//! the content of its ingests, every block of every table, and the pins of a clone.
//!
//! ```text
//! list all ─► record of jobs ─► newest manifest ─► chain, checkpoints ─► boundaries
//!   ─► WAL ─► ingests ─► pins in ancestors ─► tables ─► orphans
//! ```
//! Without a problem, every opening, checkpoint, lease, consumer of the change feed and clone can
//! read its data.
//!
//! The listing comes first: an object in it that nothing names afterwards was garbage then. Objects
//! are compared with the newest manifest. If they disagree because a writer or a collector
//! continued meanwhile, the newest manifest is read again before a problem is reported. A
//! verification must not write anything.
//!
//! Without the key of an encrypted database, only the form of its objects is checked.
//!
//! Memory: [`PARALLEL_TABLES`] tables at a time, each with its index, its filter and
//! [`CHUNK_BYTES`] of blocks (or one block, if that is larger); [`PARALLEL_OBJECTS`] manifests or
//! WAL objects; and the names of the listing.

mod ingests;
mod manifests;
mod orphans;
mod pins;
mod report;
mod sealed;
mod table;
mod wal;

pub use crate::manifests::lost_clones::LostClone;
pub use report::{Orphan, Problem, Report};

use crate::cache::ancestors::Ancestors;
use crate::manifests::missing::no_database;
use crate::manifests::objects::{Objects, is_damage};
use futures::FutureExt;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream;
use ingests::{IngestContents, Keeper};
use siltstone_base::name::prefix;
use siltstone_base::sst::SstLocation;
use siltstone_base::{DatabaseId, Error, ErrorKind, ManifestId, ObjectName, Result, SstDescriptor};
use siltstone_manifest::Manifest;
use siltstone_manifest::compaction::record::JobReservation;
use siltstone_manifest::edit::Conflict;
use siltstone_manifest::protocol::Listing;
use siltstone_store::LogIdentityStep;
use siltstone_store::env::Env;
use siltstone_store::progress::Progress;
use siltstone_store::retry::with_retries;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Number of tables that are read in parallel: enough to keep two cores and a network busy.
const PARALLEL_TABLES: usize = 4;
/// Number of manifests or WAL objects that are read ahead.
const PARALLEL_OBJECTS: usize = 4;
/// Bytes of a table per request.
const CHUNK_BYTES: u64 = 4 << 20;
/// Maximum number of listed problems. Further ones are only counted.
const MOST_PROBLEMS: usize = 1000;

/// Checks everything that the newest manifest and the present checkpoints name. `deadline` limits
/// each request, not the whole verification. Any thread may read `progress` meanwhile: bytes read,
/// of an estimated total, because writers continue and damaged bytes are read twice.
///
/// # Errors
/// NotFound if there is no database; Unsupported if the newest manifest needs a feature that this
/// version lacks; Denied, Unavailable, Timeout from the store. Damage is not an error: the report
/// contains it.
pub fn verify<'a>(
    env: &'a Env,
    deadline: Duration,
    progress: &'a Progress,
) -> BoxFuture<'a, Result<Report>> {
    async move {
        let objects = Objects { env: env.clone(), limit: deadline };
        let mut verify = Verify {
            objects,
            progress,
            listed: BTreeMap::new(),
            report: Report::default(),
            named: HashSet::new(),
            states: Vec::new(),
            brought: IngestContents::default(),
            jobs: Vec::new(),
            has_log: true,
        };
        if verify.lacks_key().await? {
            verify.forms().await?;
            return Ok(verify.report);
        }
        verify.find_log().await?;
        verify.list().await?;
        verify.jobs().await?;
        let newest = verify.newest().await?;
        verify.boundaries().await?;
        if let Some(newest) = newest {
            verify.is_made(&newest);
            verify.namespace(&newest).await?;
            verify.expect_bytes(&newest);
            verify.chain(&newest).await?;
            verify.checkpoints(&newest).await?;
            if verify.has_log {
                verify.wal(&newest).await?;
                verify.requests(&newest).await?;
            }
            verify.pins(&newest).await?;
            verify.clones(&newest).await?;
            verify.tables().await?;
            verify.advise_mirror(&newest);
            verify.orphans(&newest);
        }
        if let Some(place) = verify.objects.env.store.log().location() {
            verify.report.log_lies_in(&place);
        }
        // Tables end in any order.
        verify.report.problems.sort_by_key(|problem| (problem.object, problem.offset));
        Ok(verify.report)
    }
    .boxed()
}

/// A verification in progress.
struct Verify<'a> {
    objects: Objects,
    progress: &'a Progress,
    /// All objects at the start, with their lengths.
    listed: BTreeMap<ObjectName, u64>,
    report: Report,
    /// All objects that are named or may come to be named.
    named: HashSet<ObjectName>,
    /// The states whose tables and WAL are checked: the newest, then those that checkpoints pin.
    states: Vec<Arc<Manifest>>,
    /// Content of ingests that no manifest names.
    brought: IngestContents,
    /// Reservations of compaction jobs.
    jobs: Vec<JobReservation>,
    /// Whether the log can be read: its separate store is known and was not replaced.
    has_log: bool,
}

impl Verify<'_> {
    /// Takes up the log that the newest readable manifest names, and checks its separate store.
    async fn find_log(&mut self) -> Result<()> {
        // A manifest after a gap may be the stray of another database, with another log.
        let newest = self.manifests().await?.newest.unwrap_or_default();
        let (ids, _) = self.objects.manifests_listed().await?;
        let mut found = None;
        for id in ids.into_iter().rev().filter(|id| *id <= newest) {
            found = self.state(id).await?;
            if found.is_some() {
                break;
            }
        }
        let Some(manifest) = found else {
            self.has_log = false;
            return Ok(());
        };
        self.objects.follow_log(&manifest)?;
        let (env, limit) = (&self.objects.env, self.objects.limit);
        let check = || env.store.log().identity(LogIdentityStep::Check);
        match with_retries(env, limit, "check the log", check).await {
            Err(error) if is_damage(error.kind()) => {
                self.report.problem(ObjectName::LogIdentity, None, error);
                self.has_log = false;
                Ok(())
            }
            checked => checked,
        }
    }

    async fn list(&mut self) -> Result<()> {
        let folders =
            [prefix::MANIFEST, prefix::WAL, prefix::COMPACTED, prefix::COMPACTIONS, prefix::INGEST];
        for folder in folders.into_iter().filter(|one| self.has_log || *one != prefix::WAL) {
            let found = self.objects.list(folder).await?;
            self.listed.extend(found.into_iter().map(|object| (object.name, object.bytes)));
        }
        Ok(())
    }

    /// The newest manifest, or `None` if it cannot be read. Nothing can be compared then.
    async fn newest(&mut self) -> Result<Option<Arc<Manifest>>> {
        let mut listing = self.manifests().await?;
        let newest = loop {
            let Some(id) = listing.newest else {
                return self.no_newest(listing.boundary).await;
            };
            self.report.manifest_id = id;
            self.named.insert(ObjectName::Manifest(id));
            if let Some(newest) = self.manifest(id).await? {
                break newest;
            }
            // It may have been freed since it was listed; there are newer ones then.
            listing = self.manifests().await?;
            if listing.newest == Some(id) {
                let name = ObjectName::Manifest(id);
                let what = "the newest manifest cannot be read: what it names was not checked";
                self.report.problem(name, None, what);
                return Ok(None);
            }
        };
        self.report.database = newest.database;
        self.states.push(Arc::clone(&newest));
        Ok(Some(newest))
    }

    /// There is no manifest above the boundary. If a database was destroyed, the boundary shows it;
    /// otherwise the newest manifest is missing.
    async fn no_newest(&mut self, boundary: ManifestId) -> Result<Option<Arc<Manifest>>> {
        let is_emptied = match self.objects.is_emptied(boundary).await {
            Err(error) if is_damage(error.kind()) => false,
            answer => answer?,
        };
        if boundary.is_none() || is_emptied {
            return Err(no_database(&self.objects.env));
        }
        let name = ObjectName::Manifest(boundary.next());
        let what = "is missing, so its objects are unknown: the boundary before it exists";
        self.report.problem(name, None, what);
        Ok(None)
    }

    /// Reports a clone, export or import that was interrupted: nothing can open the database.
    fn is_made(&mut self, newest: &Manifest) {
        if !newest.initialized && newest.destroyed_at.is_none() {
            let name = ObjectName::Manifest(newest.id);
            self.report.problem(name, None, Conflict::NotInitialized);
        }
    }

    /// Reports that no process can find the records of the database's creates.
    async fn namespace(&mut self, newest: &Manifest) -> Result<()> {
        let name = ObjectName::TwoPhaseNamespace;
        if newest.features.records().is_some() && self.read(name).await?.is_none() {
            let what = "the object is missing: without it the database cannot be opened, and the \
                        creates that the transactional store holds are not found (see \"A lost \
                        namespace\" in the guide to transactional stores)";
            self.report.problem(name, None, what);
        }
        Ok(())
    }

    /// Adds to the problems of a mirror's tables how to replace them: an export shares what a
    /// listing shows, so it copies a damaged table again once the object is gone.
    fn advise_mirror(&mut self, newest: &Manifest) {
        if newest.mirror.is_none() {
            return;
        }
        for problem in &mut self.report.problems {
            if matches!(problem.object, ObjectName::Compacted(_) | ObjectName::IngestSst(..)) {
                problem.what.push_str(
                    " (delete this object of the mirror if it exists, and repeat the export, which \
                     copies the table again)",
                );
            }
        }
    }

    /// Reads `name`, or `None` if it does not exist. Counts its bytes.
    async fn read(&mut self, name: ObjectName) -> Result<Option<bytes::Bytes>> {
        let found = self.objects.get(name).await?;
        if let Some(bytes) = &found {
            self.report.bytes_read += bytes.len() as u64;
            self.progress.add(bytes.len() as u64);
        }
        Ok(found)
    }

    /// Estimates the number of bytes to read, for progress reports.
    fn expect_bytes(&self, newest: &Manifest) {
        let wal_and_manifests = self.listed.iter().filter(|(name, _)| match name {
            ObjectName::Manifest(_) => true,
            ObjectName::Wal(id) => *id >= newest.replay_from,
            _ => false,
        });
        let tables = newest.tables().map(|table| table.object_bytes);
        let rest = wal_and_manifests.map(|(_, bytes)| *bytes);
        self.progress.expect(tables.chain(rest).fold(0, u64::saturating_add));
    }

    /// Checks every table of every state once.
    async fn tables(&mut self) -> Result<()> {
        let mut wanted: BTreeMap<ObjectName, SstDescriptor> = BTreeMap::new();
        let ancestors = Ancestors::default();
        for state in self.states.clone() {
            ancestors.learn(&state);
            for table in state.tables() {
                self.name_table(&mut wanted, table);
            }
        }
        let brought = self.brought.tables.values().map(|(table, _)| table.clone());
        for table in brought.collect::<Vec<_>>() {
            self.name_table(&mut wanted, &table);
        }
        let (objects, progress, database) = (&self.objects, self.progress, self.report.database);
        let sizes = &self.listed;
        let checks = wanted.into_values().map(|descriptor| {
            let listed = match descriptor.location {
                SstLocation::Own => sizes.get(&descriptor.name()).copied(),
                SstLocation::Ancestor(_) => None,
            };
            let place = place_of(objects, &ancestors, database, &descriptor);
            let location = ancestors.location_of(&descriptor);
            async move {
                let (objects, database) = place?;
                let mut checked =
                    table::check(&objects, progress, database, descriptor, listed).await?;
                if let Some(location) = &location {
                    checked.report.lies_in(location);
                }
                Ok::<_, Error>((checked, location))
            }
        });
        let mut checks = stream::iter(checks).buffer_unordered(PARALLEL_TABLES);
        let mut gone = Vec::new();
        while let Some(checked) = checks.next().await {
            let (checked, location) = checked?;
            if checked.gone {
                gone.push((checked.name, location));
            }
            self.report.add(checked.report);
        }
        drop(checks);
        self.tables_gone(&gone).await
    }

    fn name_table(
        &mut self,
        wanted: &mut BTreeMap<ObjectName, SstDescriptor>,
        table: &SstDescriptor,
    ) {
        let name = table.name();
        if table.location == SstLocation::Own {
            self.named.insert(name);
        }
        if let Some(before) = wanted.insert(name, table.clone())
            && before.checksum != table.checksum
        {
            let what = "two manifests describe different tables of this name";
            self.report.problem(name, None, what);
        }
    }

    /// Reports missing tables that are still named. A table may have been compacted and collected
    /// since the listing.
    async fn tables_gone(&mut self, gone: &[(ObjectName, Option<Arc<str>>)]) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        let now = self.named_now().await?;
        let mut still = HashSet::new();
        for state in &now {
            still.extend(state.tables().map(SstDescriptor::name));
        }
        if let Some(newest) = now.last() {
            let kept = |keepers: &[Keeper]| keepers.iter().any(|keeper| keeper.is_in(newest));
            let brought = self.brought.tables.iter();
            still.extend(brought.filter(|(_, (_, keepers))| kept(keepers)).map(|(name, _)| *name));
        }
        for (name, location) in gone.iter().filter(|(name, _)| still.contains(name)) {
            let mut missing = Report::default();
            missing.problem(*name, None, "is missing");
            if let Some(location) = location {
                missing.lies_in(location);
            }
            self.report.add(missing);
        }
        Ok(())
    }

    /// The newest state as of now, and the states that its checkpoints pin.
    async fn named_now(&mut self) -> Result<Vec<Arc<Manifest>>> {
        let mut states = Vec::new();
        let Some(newest) = self.newest_now().await? else { return Ok(states) };
        for version in newest.pinned_versions() {
            states.extend(self.state(version).await?);
        }
        states.push(newest);
        Ok(states)
    }

    /// The newest manifest and the boundary. If an earlier manifest is missing, openings are
    /// refused, and the problem is reported elsewhere; the remaining objects are checked anyway.
    async fn manifests(&self) -> Result<Listing> {
        match self.objects.list_manifests(ManifestId::NONE).await {
            Ok(listing) if listing.newest.is_some() => return Ok(listing),
            Err(error) if error.kind() != ErrorKind::Corruption => return Err(error),
            _ => {}
        }
        let (ids, boundary) = self.objects.manifests_listed().await?;
        let newest = ids.last().copied().unwrap_or_default();
        Ok(Listing::ending(newest, boundary, ManifestId::NONE))
    }

    /// The newest state as of now; `None` if it cannot be read.
    async fn newest_now(&self) -> Result<Option<Arc<Manifest>>> {
        let newest = self.manifests().await?.newest;
        self.state(newest.unwrap_or_default()).await
    }

    /// Reads a manifest again, without reporting its damage, which was reported before.
    async fn state(&self, id: ManifestId) -> Result<Option<Arc<Manifest>>> {
        match self.objects.manifest(id).await {
            Err(error) if is_damage(error.kind()) => Ok(None),
            answer => answer,
        }
    }
}

/// The result of reading a whole table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TableHealth {
    Sound,
    /// There is damage, but every row can be read.
    Readable(String),
    /// Rows are lost.
    Lost(String),
    /// The object does not exist.
    Missing,
}

/// Reads all of a table that `state` names.
///
/// # Errors
/// Unsupported for a table of a newer version; errors of the store.
pub(crate) async fn read_table(
    objects: &Objects,
    state: &Manifest,
    table: &SstDescriptor,
) -> Result<TableHealth> {
    let ancestors = Ancestors::default();
    ancestors.learn(state);
    let (place, database) = place_of(objects, &ancestors, state.database, table)?;
    let progress = Progress::default();
    let checked = table::check(&place, &progress, database, table.clone(), None).await?;
    if let Some(newer) = checked.newer {
        return Err(newer);
    }
    let rows_read = checked.report.entries == table.entries;
    Ok(match checked.report.problems.into_iter().next() {
        _ if checked.gone => TableHealth::Missing,
        None => TableHealth::Sound,
        Some(problem) if rows_read => TableHealth::Readable(problem.what),
        Some(problem) => TableHealth::Lost(problem.what),
    })
}

/// The store and the database of the table: an ancestor's if the database is a clone.
fn place_of(
    objects: &Objects,
    ancestors: &Ancestors,
    database: DatabaseId,
    table: &SstDescriptor,
) -> Result<(Objects, DatabaseId)> {
    let store = ancestors.store_of(&objects.env.store, table)?;
    let database = ancestors.database_of(database, table)?;
    let env = Env { store, ..objects.env.clone() };
    Ok((Objects { env, limit: objects.limit }, database))
}
