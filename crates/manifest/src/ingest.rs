//! Ingest jobs (RFC 0035): the closing object of a job, the layers of its tables, where they are
//! placed, and the status of a job.
//!
//! ```text
//! object, in the frame of a manifest    body
//! offset  size  field                   offset  size  field
//!      0    72  envelope, kind Ingest,       0     1  form: 1 parts, 2 aborted, 3 parts that
//!                                                      come behind all data (RFC 0043)
//!               object id = the job
//!     72     8  length n of the body         1     1  1 if it is an application's version
//!     80     n  body                         2     2  zero
//!   80+n     4  CRC32C of all before it      4     4  number of layers; 0 when aborted
//!                                            8    16  timeline; 0 for the first
//!                                           24        of an application's: version (8), how many
//!                                                     had been forgotten (8), length (4), name
//!                                                     layers: length (4), FlatBuffers L0Entry
//! ```

use crate::codec::decode::limits;
use crate::codec::encode::{Builder, table as encode_table};
use crate::codec::unknown::{KnownFields, any};
use crate::codec::{FRAME_BYTES, TABLE_BYTES_AT_MOST, decode, seal, unseal};
use crate::features::Carried;
use crate::invariant::is_before;
use crate::rules::{Rule, Rules};
use crate::span::Span;
use crate::state::{IngestOutcome, Manifest, PendingIngest, SortedRun};
use bytes::Bytes;
use flatbuffers::WIPOffset;
use siltstone_base::bytes_io::Reader;
use siltstone_base::limits::MAX_MANIFEST_BYTES;
use siltstone_base::sst::SstLocation;
use siltstone_base::{
    AttemptId, DatabaseId, Envelope, Error, JobId, ObjectId, ObjectKind, Result, Seq,
    SstDescriptor, TimelineId, UnixMillis,
};
use siltstone_fbs::manifest as fb;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

const FORM_PARTS: u8 = 1;
const FORM_ABORTED: u8 = 2;
const FORM_BEHIND: u8 = 3;
/// Number of bits of a ULID below its time.
const RANDOM_BITS: u32 = 80;

/// The deadline for requesting a job: the time in its id (rule N7).
#[must_use]
pub fn deadline(job: JobId) -> UnixMillis {
    UnixMillis((job.get() >> RANDOM_BITS) as u64)
}

/// The application and version of a job (rule N11).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobApp {
    /// The application's name.
    pub name: String,
    /// The version.
    pub version: u64,
    /// How many applications had been forgotten when the job began.
    pub forgotten: u64,
}

/// The content of the closing object of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClosedJob {
    /// The job.
    pub job: JobId,
    /// The database that it is for.
    pub database: DatabaseId,
    /// The attempt that created the object.
    pub attempt: AttemptId,
    /// The timeline that it was staged for; `None`: the first one.
    pub timeline: Option<TimelineId>,
    /// The application of which the job is a version.
    pub app: Option<JobApp>,
    /// Its tables, oldest layer first, each layer with disjoint tables in key order; empty if the
    /// job was aborted.
    pub layers: Vec<Vec<SstDescriptor>>,
    /// Whether it is installed behind all other data (rule P6); false for an aborted job.
    pub behind: bool,
    /// Whether a table holds merge operands; false for an aborted job.
    pub operands: bool,
}

impl ClosedJob {
    /// Identifies its content in a request and in the log: an object is created only once.
    #[must_use]
    pub fn digest(&self) -> Bytes {
        Bytes::copy_from_slice(&self.attempt.to_bytes())
    }

    /// Whether the job was aborted and will never have content.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.layers.is_empty()
    }

    /// Its tables.
    pub fn tables(&self) -> impl Iterator<Item = &SstDescriptor> {
        self.layers.iter().flatten()
    }

    /// Its layers, each with its own sequence number, from `first` on (rules P1, P4).
    #[must_use]
    pub fn numbered(&self, first: Seq) -> Vec<Vec<SstDescriptor>> {
        let numbered = |(at, tables): (usize, &Vec<SstDescriptor>)| {
            let seq = Some(first.plus(at as u64));
            tables
                .iter()
                .map(|table| SstDescriptor { seq_override: seq, ..table.clone() })
                .collect()
        };
        self.layers.iter().enumerate().map(numbered).collect()
    }

    /// Encodes the object. Equal values give equal bytes.
    ///
    /// # Errors
    /// Invalid if it could exceed the size limit of a manifest.
    pub fn encode(&self) -> Result<Bytes> {
        let keys = |table: &SstDescriptor| (table.first_key.len() + table.last_key.len()) as u64;
        let most: u64 = self.tables().map(|table| TABLE_BYTES_AT_MOST + keys(table)).sum();
        let app = self.app.as_ref().map_or(0, |app| app.name.len() as u64);
        let most = most + TABLE_BYTES_AT_MOST * self.layers.len() as u64 + FRAME_BYTES + app;
        if most > MAX_MANIFEST_BYTES {
            return Err(Error::invalid(
                "the job has too many tables; make larger ones, or more jobs",
            )
            .with("bytes at most", most)
            .with("limit", MAX_MANIFEST_BYTES));
        }
        let form = match (self.is_aborted(), self.behind) {
            (true, _) => FORM_ABORTED,
            (false, true) => FORM_BEHIND,
            (false, false) => FORM_PARTS,
        };
        let mut body = vec![form, self.app.is_some().into(), self.operands.into(), 0];
        body.extend_from_slice(&(self.layers.len() as u32).to_le_bytes());
        body.extend_from_slice(&self.timeline.unwrap_or_default().to_bytes());
        if let Some(JobApp { name, version, forgotten }) = &self.app {
            body.extend_from_slice(&version.to_le_bytes());
            body.extend_from_slice(&forgotten.to_le_bytes());
            body.extend_from_slice(&(name.len() as u32).to_le_bytes());
            body.extend_from_slice(name.as_bytes());
        }
        for tables in &self.layers {
            let layer = encode_layer(tables);
            body.extend_from_slice(&(layer.len() as u32).to_le_bytes());
            body.extend_from_slice(&layer);
        }
        let object = ObjectId(self.job.get());
        let envelope = Envelope::new(ObjectKind::Ingest, self.database, object, self.attempt);
        Ok(seal(&envelope, body.len() as u64, &body))
    }

    /// Decodes the object of a job.
    ///
    /// # Errors
    /// Corruption for damaged bytes, and for tables that cannot belong to a job; Unsupported for
    /// data of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<ClosedJob> {
        let (envelope, length, body) = unseal(bytes, ObjectKind::Ingest)?;
        if length != body.len() as u64 {
            return Err(Error::corruption("the length in a job's object differs from its body")
                .with("says", length)
                .with("has", body.len()));
        }
        let mut reader = Reader::new(body);
        let form = reader.u8()?;
        let [has_app, operands, zero] = reader.array::<3>()?;
        let count = reader.u32()?;
        let timeline = TimelineId(reader.u128_be()?);
        let is_known = matches!(form, FORM_PARTS | FORM_ABORTED | FORM_BEHIND) && has_app <= 1;
        if !is_known || operands > 1 || zero != 0 {
            return Err(Error::unsupported("a form of job that this version does not know")
                .with("form", form));
        }
        let app = (has_app == 1).then(|| read_app(&mut reader)).transpose()?;
        let mut layers = Vec::new();
        for _ in 0..count {
            let length = reader.u32()? as usize;
            layers.push(decode_layer(reader.take(length)?)?);
        }
        let closed = ClosedJob {
            job: JobId(envelope.object.get()),
            database: envelope.database,
            attempt: envelope.attempt,
            timeline: (!timeline.is_none()).then_some(timeline),
            app,
            layers,
            behind: form == FORM_BEHIND,
            operands: operands == 1,
        };
        let formed = closed.is_aborted() == (form == FORM_ABORTED)
            && !(closed.operands && form != FORM_PARTS);
        if !formed || reader.remaining() > 0 || !closed.is_well_formed() {
            return Err(Error::corruption("impossible object of an ingest job"));
        }
        Ok(closed)
    }

    fn is_well_formed(&self) -> bool {
        let well = |table: &SstDescriptor| {
            table.job == Some(self.job)
                && !table.id.is_none()
                && table.location == SstLocation::Own
                && table.seq_override.is_none()
                && !table.is_cut()
                && table.first_key <= table.last_key
                && table.tail_offset < table.object_bytes
        };
        let in_order = |tables: &Vec<SstDescriptor>| {
            let pairs = tables.iter().zip(tables.iter().skip(1));
            !tables.is_empty() && pairs.into_iter().all(|(left, right)| is_before(left, right))
        };
        let mut names = HashSet::new();
        let mut each_once = self.tables().map(|table| names.insert(table.id));
        self.tables().all(well) && self.layers.iter().all(in_order) && each_once.all(|new| new)
    }
}

fn read_app(reader: &mut Reader<'_>) -> Result<JobApp> {
    let (version, forgotten, length) = (reader.u64()?, reader.u64()?, reader.u32()? as usize);
    let name = std::str::from_utf8(reader.take(length)?)
        .map_err(|_| Error::corruption("the name of a job's application is not UTF-8"))?;
    Ok(JobApp { name: name.to_owned(), version, forgotten })
}

pub(crate) fn encode_layer(tables: &[SstDescriptor]) -> Vec<u8> {
    let mut b = Builder::new();
    let offsets: Vec<_> = tables.iter().map(|each| encode_table(&mut b, each)).collect();
    let tables = WIPOffset::new(b.create_vector(&offsets).value());
    let entry = fb::L0Entry::create(&mut b, &fb::L0EntryArgs { order: 0, tables: Some(tables) });
    b.finish(entry, None);
    b.finished_data().to_vec()
}

pub(crate) fn decode_layer(bytes: &[u8]) -> Result<Vec<SstDescriptor>> {
    let entry = flatbuffers::root_with_opts::<fb::L0Entry<'_>>(&limits(bytes.len()), bytes)
        .map_err(|invalid| Error::corruption("not a layer of tables").caused_by(invalid))?;
    let of_table = |one: fb::SstDescriptor<'_>| one.unknown();
    let unknown = entry.unknown().or_else(|| any(Some(entry.tables()), of_table));
    Carried { unknown_field: unknown, ..Carried::default() }.check_committable()?;
    decode::list(Some(entry.tables()), |each| decode::table(&each))
}

/// Arranges tables in layers, in the order of their parts: each table is placed in the oldest layer
/// above all earlier tables with which it may share a key, so that the later part takes precedence.
#[must_use]
pub fn layered(tables: impl IntoIterator<Item = SstDescriptor>) -> Vec<Vec<SstDescriptor>> {
    let mut layers: Vec<BTreeMap<Bytes, SstDescriptor>> = Vec::new();
    for table in tables {
        // Tables of a layer are disjoint, so only the last one that begins before the end of this
        // one must be checked.
        let meets = |layer: &BTreeMap<Bytes, SstDescriptor>| {
            let before = layer.range(..=table.last_key.clone()).next_back();
            before.is_some_and(|(_, other)| other.last_key >= table.first_key)
        };
        let above = layers.iter().rposition(meets).map_or(0, |at| at + 1);
        match layers.get_mut(above) {
            Some(layer) => drop(layer.insert(table.first_key.clone(), table)),
            None => layers.push(BTreeMap::from([(table.first_key.clone(), table)])),
        }
    }
    layers.into_iter().map(|layer| layer.into_values().collect()).collect()
}

/// Groups neighbours among `layers` so that `most` are left: repeatedly the two that have the
/// fewest bytes together, so that a large layer stays unchanged. In order; a layer that stays
/// unchanged is alone in its group.
#[must_use]
pub fn stacked(layers: &[Vec<SstDescriptor>], most: usize) -> Vec<Range<usize>> {
    let bytes = |layer: &Vec<SstDescriptor>| layer.iter().map(|table| table.object_bytes).sum();
    let mut stacks: Vec<(Range<usize>, u64)> =
        layers.iter().enumerate().map(|(at, layer)| (at..at + 1, bytes(layer))).collect();
    while stacks.len() > most.max(1) {
        let pairs = stacks.iter().zip(stacks.iter().skip(1));
        let smallest = pairs.map(|(lower, upper)| lower.1.saturating_add(upper.1)).enumerate();
        let Some((at, bytes)) = smallest.min_by_key(|(_, bytes)| *bytes) else { break };
        let upper = stacks.remove(at + 1).0;
        if let Some(lower) = stacks.get_mut(at) {
            *lower = (lower.0.start..upper.end, bytes);
        }
    }
    stacks.into_iter().map(|(stack, _)| stack).collect()
}

/// The run in which `table` can be placed as the newest data: the deepest run such that neither it
/// nor any newer layer may share a key with the table (rule P2). `None`: a layer of L0.
pub(crate) fn deepest_run(state: &Manifest, table: &SstDescriptor, rules: Rules) -> Option<u32> {
    let meets = |tables: &[SstDescriptor]| meets_one_of(table, tables);
    let newer_too = rules.has(Rule::PlaceBelowNothingNewer);
    if newer_too && state.l0.iter().any(|entry| meets(&entry.tables)) {
        return None;
    }
    let mut runs = state.runs.iter().filter(|run| run.id >= state.first_run());
    let free = if newer_too {
        runs.take_while(|run| !meets(&run.tables)).last()
    } else {
        runs.rfind(|run| !meets(&run.tables))
    };
    // If there is no run at all, the last one is created.
    let first = state.first_run();
    free.map(|run| run.id).or_else(|| state.runs.iter().all(|run| run.id < first).then_some(first))
}

/// The run in which `table` is placed behind all other data: the newest of the reserved runs that,
/// with everything older, shares no key with it; otherwise a new run below all (rule P6). `None`:
/// no run is left.
#[must_use]
pub(crate) fn run_behind(state: &Manifest, table: &SstDescriptor, rules: Rules) -> Option<u32> {
    let meets = |run: &SortedRun| meets_one_of(table, &run.tables);
    let reserved = || state.runs.iter().rev().take_while(|run| run.id < state.first_run());
    let free = if rules.has(Rule::BehindBelowAll) {
        reserved().take_while(|run| !meets(run)).last()
    } else {
        reserved().filter(|run| !meets(run)).last()
    };
    free.map(|run| run.id).or_else(|| state.last_run().min(state.first_run()).checked_sub(1))
}

/// Whether `table` may share a key with one of `tables`, which are disjoint and in key order.
fn meets_one_of(table: &SstDescriptor, tables: &[SstDescriptor]) -> bool {
    let at = tables.partition_point(|other| other.ends_below(table.first_visible()));
    tables.get(at).is_some_and(|other| Span::of(other).meets(&Span::of(table)))
}

/// The status of a job in a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum JobStatus {
    /// It was not requested, and may be.
    Open,
    /// It is requested.
    Pending,
    /// It is part of the database, up to this sequence number.
    Adopted(Seq),
    /// It has been part of the database since this sequence number at the latest: a later version
    /// of its application has passed it, and its own number is no longer known.
    AdoptedBefore(Seq),
    /// The writer refused it, for this reason.
    Refused(String),
    /// Its requester withdrew it.
    Withdrawn,
    /// It ended with an outcome that this version does not know.
    Ended,
    /// Its deadline has passed, a later version of its application was installed, or that
    /// application was forgotten. Its outcome is no longer known, and it can no longer be
    /// requested.
    Forgotten,
}

/// The status of `job` in `state`.
#[must_use]
pub fn standing(state: &Manifest, job: JobId) -> JobStatus {
    if pending(state, job).is_some() {
        return JobStatus::Pending;
    }
    if let Some(ended) = state.remembered_ingests.iter().find(|one| one.job == job) {
        return match ended.outcome {
            IngestOutcome::Adopted(seq) => JobStatus::Adopted(seq),
            IngestOutcome::Refused => JobStatus::Refused(ended.reason.clone().unwrap_or_default()),
            IngestOutcome::Withdrawn => JobStatus::Withdrawn,
            IngestOutcome::Other(_) => JobStatus::Ended,
        };
    }
    if let Some(app) = state.ingest_apps.iter().find(|one| one.job == job) {
        return JobStatus::Adopted(app.seq);
    }
    if deadline(job) < state.ingest_horizon { JobStatus::Forgotten } else { JobStatus::Open }
}

/// As [`standing`], for a job whose application and version are known.
#[must_use]
pub fn standing_as(state: &Manifest, job: JobId, app: Option<&JobApp>) -> JobStatus {
    match standing(state, job) {
        JobStatus::Open if app.is_some_and(|app| is_passed(state, app)) => JobStatus::Forgotten,
        stands => stands,
    }
}

/// As [`standing_as`], for a job that was requested on the timeline that is still current in
/// `state`. Refused jobs are remembered, so a job that a later version has passed was installed.
#[must_use]
pub fn standing_since(
    state: &Manifest,
    (job, app): (JobId, Option<&JobApp>),
    timeline: Option<TimelineId>,
) -> JobStatus {
    let stands = standing_as(state, job, app);
    let known = app.filter(|app| {
        stands == JobStatus::Forgotten
            && deadline(job) >= state.ingest_horizon
            && timeline == state.timelines.last().map(|one| one.id)
            && app.forgotten >= state.forgotten_apps.begins(&app.name)
    });
    let last = known.and_then(|app| state.ingest_apps.iter().find(|one| one.app == app.name));
    last.map_or(stands, |last| JobStatus::AdoptedBefore(last.seq))
}

/// Whether this version can never be requested: it or a later one was requested by another job, or
/// its application was forgotten after the job began (rule N11).
#[must_use]
pub(crate) fn is_passed(state: &Manifest, app: &JobApp) -> bool {
    let mut apps = state.ingest_apps.iter();
    app.forgotten < state.forgotten_apps.begins(&app.name)
        || apps.any(|one| one.app == app.name && one.version >= app.version)
}

/// The job that contains exactly this version of an application, if the application was not
/// forgotten since.
#[must_use]
pub fn bringing(state: &Manifest, app: &JobApp) -> Option<JobId> {
    if app.forgotten < state.forgotten_apps.begins(&app.name) {
        return None;
    }
    let pending = state.pending_ingests.iter().filter_map(|one| Some((one.app.as_ref()?, one.job)));
    let mut waits = pending.filter(|(other, _)| other.0 == app.name && other.1 == app.version);
    let mut taken = state.ingest_apps.iter();
    let taken = taken.find(|one| one.app == app.name && one.version == app.version);
    waits.next().map(|(_, job)| job).or_else(|| taken.map(|one| one.job))
}

/// The request of `job`, if it is pending.
#[must_use]
pub fn pending(state: &Manifest, job: JobId) -> Option<&PendingIngest> {
    state.pending_ingests.iter().find(|one| one.job == job)
}

/// The next job to adopt for a writer whose queue contains `queued`: jobs that it replayed or
/// adopted (rule N12). Requests are adopted in their order.
#[must_use]
pub fn to_adopt<'a>(
    state: &'a Manifest,
    queued: &[JobId],
    rules: Rules,
) -> Option<&'a PendingIngest> {
    let once = rules.has(Rule::AdoptOnce);
    state.pending_ingests.iter().find(|one| !once || !queued.contains(&one.job))
}

/// Whether `job`, whose application may be known, has permanently ended in `state`: a late request
/// of it is refused, and its staged objects are deleted unless the job is pending or the objects
/// are referenced (rules N10, N11).
#[must_use]
pub(crate) fn has_ended(state: &Manifest, job: JobId, app: Option<&JobApp>) -> bool {
    stays_ended(state, job)
        || state.ingest_apps.iter().any(|one| one.job == job)
        || app.is_some_and(|app| is_passed(state, app))
}

/// Whether its end is known until the job's deadline, and after that by the deadline, without its
/// closing object.
#[must_use]
pub(crate) fn stays_ended(state: &Manifest, job: JobId) -> bool {
    deadline(job) < state.ingest_horizon
        || state.remembered_ingests.iter().any(|one| one.job == job)
}

#[cfg(test)]
mod tests;
