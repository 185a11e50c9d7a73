//! Gives up a table that cannot be read (rule Y4). The caller must name the table, and it must have
//! lost rows.
//!
//! ```text
//! newest manifest ─► read all of the table ─► what checkpoints name ─► told ─► copy aside
//!   ─► claim, walk, fence, confirm ─► covers, under names that the claim reserved ─► one commit
//! ```
//! The log stays unchanged, and the next opening replays it.

use super::{RepairOptions, aside};
use crate::manifests::client::{commit_alone, newest};
use crate::manifests::gate;
use crate::manifests::missing::check_writable;
use crate::manifests::objects::Objects;
use crate::manifests::rules;
use crate::options::Options;
use crate::verify::{TableHealth, read_table};
use crate::writer::flush::new_names;
use crate::writer::opening::Opening;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Entry, Envelope, Error, ErrorKind, JobId, Kind,
    ManifestId, ObjectId, ObjectKind, ObjectName, RangeDelete, Result, Seq, SstDescriptor, SstId,
};
use siltstone_manifest::protocol::WriterOptions;
use siltstone_manifest::{CheckpointOwner, Edit, GiveUpTable, GivenUpPart, Manifest};
use siltstone_sst::TableBuilder;
use siltstone_store::env::Env;
use std::collections::BTreeMap;

/// A table that is given up, and what is lost with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GiveUpReport {
    /// The database.
    pub database: DatabaseId,
    /// The object of the table.
    pub object: String,
    /// Description of its damage.
    pub damage: String,
    /// Whether it was given up. Otherwise the report is a preview.
    pub done: bool,
    /// The layers that contain it, as text.
    pub layers: Vec<String>,
    /// The smallest visible key that it may have contained.
    pub first_key: Bytes,
    /// The largest visible key that it may have contained.
    pub last_key: Bytes,
    /// Number of puts and operands that it contained, which are lost.
    pub rows_lost: u64,
    /// Number of tombstones that it contained.
    pub tombstones: u64,
    /// Number of entries of older tables that share keys with it. It is unknown which of them the
    /// table had deleted or overwritten, so those between its first and last key are deleted too:
    /// at most this number.
    pub rows_hidden: u64,
    /// Checkpoints of users that also contain it and are dropped.
    pub checkpoints_dropped: Vec<CheckpointId>,
    /// Clones that read it through a checkpoint, which stays. It has to be given up there as well.
    pub clones: Vec<DatabaseId>,
    /// The manifest of this report; after the table was given up, the new manifest.
    pub manifest_id: ManifestId,
    /// Folder of the copy of its remains.
    pub aside: Option<String>,
}

/// Reports the data that is lost with an unreadable table of the current state. Unless `dry_run` is
/// set, it copies the remains of the table under `damaged/` and commits a state without it. Rows
/// that the table had hidden do not return.
///
/// # Errors
/// NotFound without a database, or without such a table in its current state; Conflict if every row
/// of the table can be read, if a writer is alive, or if another process changes the layers
/// meanwhile (try again); Corruption if the log prevents opening and has to be repaired first;
/// Fenced, Denied, Unavailable, Timeout (of one request: the caller may try again), Unsupported for
/// a table of a newer version.
pub fn give_up_table<'a>(
    env: &'a Env,
    table: SstId,
    how: RepairOptions,
    options: &'a Options,
) -> BoxFuture<'a, Result<GiveUpReport>> {
    async move {
        let objects = Objects { env: env.clone(), limit: options.deadline };
        let newest = newest(&objects).await?;
        check_writable(&newest)?;
        gate::check_changes(&newest)?;
        let parts = GivenUpPart::all(&newest, table, rules::in_force())?;
        let Some(first) = parts.first().map(|part| part.table.clone()) else {
            return Err(Error::new(
                ErrorKind::NotFound,
                "the current state has no such table; `siltstone verify` names the damaged \
             tables, and a table of a checkpoint is deleted with that checkpoint",
            )
            .with("table", table));
        };
        let damage = damage_of(&objects, &newest, &first).await?;
        let mut report = report_of(&newest, &parts, &first, damage);
        held_by(&objects, &newest, table, &mut report).await?;
        if how.dry_run {
            return Ok(report);
        }
        // This call excludes no writer that the protocol admits. It only asks whether one is alive.
        let _presence = env.store.place().occupy(newest.database, how.take_over).await?;
        if first.ancestor().is_none() {
            let repair = JobId(env.new_ulid());
            report.aside = aside::copy_table(&objects, repair, &first).await?;
        }
        let checkpoints = report.checkpoints_dropped.clone();
        let state = replace(&objects, newest, table, checkpoints, options).await?;
        (report.manifest_id, report.done) = (state, true);
        Ok(report)
    }
    .boxed()
}

/// The table of an object name, as `verify` reports it, or of a table id.
///
/// # Errors
/// Invalid for any other text.
pub fn table_named(text: &str) -> Result<SstId> {
    match ObjectName::parse(text) {
        Some(ObjectName::Compacted(id) | ObjectName::IngestSst(_, id)) => Ok(id),
        _ => SstId::parse(text).ok_or_else(|| {
            Error::invalid(
                "this is not the name of a table: use the object name that verify reports, such as \
                 compacted/01ARZ3NDEKTSV4RRFFQ69G5FAV.sst",
            )
            .with("name", text)
        }),
    }
}

/// The damage of the table.
async fn damage_of(objects: &Objects, state: &Manifest, table: &SstDescriptor) -> Result<String> {
    let (what, way) = match read_table(objects, state, table).await? {
        TableHealth::Missing => return Ok("is missing".to_owned()),
        TableHealth::Lost(what) => return Ok(what),
        TableHealth::Sound => {
            ("every row of the table can be read".to_owned(), "no repair is needed")
        }
        TableHealth::Readable(what) => (
            format!("every row of the table can be read, although it has damage ({what})"),
            "compact the database, which rewrites it",
        ),
    };
    let text = format!("{what}: it is not given up; {way}");
    Err(Error::new(ErrorKind::Conflict, text).with("table", table.name()))
}

fn report_of(
    state: &Manifest,
    parts: &[GivenUpPart],
    first: &SstDescriptor,
    damage: String,
) -> GiveUpReport {
    let of = |key: fn(&SstDescriptor) -> &Bytes| parts.iter().map(move |one| key(&one.table));
    GiveUpReport {
        database: state.database,
        object: first.name().to_string(),
        damage,
        layers: parts.iter().map(|part| part.layer.to_string()).collect(),
        first_key: of(SstDescriptor::first_visible).min().cloned().unwrap_or_default(),
        last_key: of(SstDescriptor::last_visible).max().cloned().unwrap_or_default(),
        rows_lost: first.entries.saturating_sub(first.tombstones),
        tombstones: first.tombstones,
        rows_hidden: parts.iter().map(|part| part.entries_below).fold(0, u64::saturating_add),
        manifest_id: state.id,
        ..GiveUpReport::default()
    }
}

/// Finds the checkpoints that contain the table, by the manifests of present checkpoints.
async fn held_by(
    objects: &Objects,
    state: &Manifest,
    table: SstId,
    report: &mut GiveUpReport,
) -> Result<()> {
    let mut known: BTreeMap<ManifestId, bool> = BTreeMap::new();
    for one in &state.checkpoints {
        let holds = match known.get(&one.manifest_id) {
            Some(holds) => *holds,
            None => names(objects, one.manifest_id, table).await?,
        };
        known.insert(one.manifest_id, holds);
        match one.owner {
            CheckpointOwner::User if holds => report.checkpoints_dropped.push(one.id),
            CheckpointOwner::Clone(clone) if holds => report.clones.push(clone),
            _ => {}
        }
    }
    Ok(())
}

/// Whether that manifest names the table. A manifest that cannot be read is another damage.
async fn names(objects: &Objects, id: ManifestId, table: SstId) -> Result<bool> {
    match objects.manifest(id).await {
        Ok(found) => Ok(found.is_some_and(|state| state.tables().any(|one| one.id == table))),
        Err(error) if error.kind() == ErrorKind::Corruption => Ok(false),
        Err(error) => Err(error),
    }
}

/// Replaces the table by covers, in an opening that ends with one commit.
async fn replace(
    objects: &Objects,
    newest: std::sync::Arc<Manifest>,
    table: SstId,
    checkpoints: Vec<CheckpointId>,
    options: &Options,
) -> Result<ManifestId> {
    let env = &objects.env;
    let count = newest.tables().filter(|one| one.id == table).count();
    let mut reserved = new_names(env, count);
    let how = WriterOptions {
        claim: AttemptId(env.random_u128()),
        max_parallel_writes: 1,
        take_over: true,
        reserve: reserved.clone(),
        ..WriterOptions::default()
    };
    let (recovered, _) = Opening::new(objects, newest, how).drive().await?;
    let state = recovered.manifest;
    let mut covers = Vec::with_capacity(count);
    for part in GivenUpPart::all(&state, table, rules::in_force())? {
        let cover = match (part.cover, reserved.pop()) {
            (Some(seq), Some(name)) => {
                Some(upload_cover(objects, &state, &part.table, name, seq, options).await?)
            }
            _ => None,
        };
        covers.push((part.table.part(), cover));
    }
    let edit = GiveUpTable { epoch: recovered.epoch, table, covers, checkpoints };
    Ok(commit_alone(objects, Edit::GiveUpTable(edit), state).await?.id)
}

async fn upload_cover(
    objects: &Objects,
    state: &Manifest,
    lost: &SstDescriptor,
    name: SstId,
    seq: Seq,
    options: &Options,
) -> Result<SstDescriptor> {
    let env = &objects.env;
    let (object, attempt) = (ObjectId(name.get()), AttemptId(env.random_u128()));
    let envelope = Envelope::new(ObjectKind::Table, state.database, object, attempt);
    let (bytes, cover) = cover(lost, envelope, seq, options)?;
    let open = env.store.upload(ObjectName::Compacted(name));
    let mut upload = env.deadline(objects.limit, "begin upload", open).await?;
    upload.write(bytes).await?;
    upload.finish().await?;
    Ok(cover)
}

/// Builds a table that deletes, at `seq`, every visible key that `lost` may have contained. It has
/// the same visible range.
fn cover(
    lost: &SstDescriptor,
    envelope: Envelope,
    seq: Seq,
    options: &Options,
) -> Result<(Bytes, SstDescriptor)> {
    let mut table = TableBuilder::new(options.table_options(), envelope);
    let (first, last) = (lost.first_visible(), lost.last_visible());
    if first < last {
        table.add_range_deletes(&[RangeDelete::new(first, last, seq)])?;
    }
    // A range delete ends before a key, and there is no key after the greatest.
    if lost.covers(last) {
        let (key, kind) = (last.as_ref(), Kind::Delete);
        table.add(&Entry { key, seq, kind, expires_at: None, value: &[] })?;
    }
    let (bytes, cover) = table.finish()?;
    let visible = (lost.visible_start.clone(), lost.visible_end.clone());
    let (visible_start, visible_end) = visible;
    Ok((bytes, SstDescriptor { visible_start, visible_end, ..cover }))
}
