//! Reads the log as an opening would, and finds out up to where it can be kept, and what comes
//! after.

use super::chain::{ManifestChain, Remedy};
use super::report::Damage;
use crate::manifests::objects::{Objects, seen};
use crate::wal::readahead::WalReadahead;
use crate::wal::replay::{ingest_of, insert_rows, layers_of};
use bytes::Bytes;
use siltstone_base::{Epoch, ErrorKind, JobId, ObjectName, Result, Seq, WalId};
use siltstone_manifest::protocol::{Hole, WalListing};
use siltstone_manifest::{Manifest, PendingIngest};
use siltstone_memtable::Memtable;
use siltstone_sst::wal::{WalBody, WalIngest, WalIngestContent, WalObject};

/// The log of a database.
pub(super) struct Log {
    /// Number of objects with rows that are kept.
    pub(super) objects: usize,
    /// The last sequence number of the tables and of these objects.
    pub(super) seq: Seq,
    /// The largest epoch that was found.
    pub(super) epoch: Epoch,
    /// The jobs of these objects, if newer manifests are lost, and their requests with them.
    pub(super) jobs: Vec<PendingIngest>,
    /// The end of the readable part.
    pub(super) end: WalId,
    /// The cut, if the log must be cut off.
    pub(super) cut: Option<Cut>,
}

/// The place at which a log must be cut off.
pub(super) struct Cut {
    pub(super) at: WalId,
    pub(super) damage: Vec<Damage>,
    /// The objects from there on.
    pub(super) off: Vec<CutObject>,
    /// Number of missing ids that may have had rows.
    pub(super) missing: u64,
}

/// An object that is cut off.
pub(super) struct CutObject {
    pub(super) id: WalId,
    pub(super) bytes: u64,
    /// Its first and last sequence number; `None` if they are unknown.
    pub(super) seqs: Option<(Seq, Seq)>,
}

impl Log {
    /// Records that the separate store of the log was emptied or replaced. The rest is kept. The
    /// manifest does not know how far the log went, so at least one object counts as missing.
    pub(super) fn lost_identity(&mut self, damage: Damage) {
        let at = self.end;
        let nothing = || Cut { at, damage: Vec::new(), off: Vec::new(), missing: 0 };
        let cut = self.cut.get_or_insert_with(nothing);
        cut.missing = cut.missing.max(1);
        cut.damage.insert(0, damage);
    }

    /// Whether it has objects of a writer that `state` does not know.
    pub(super) fn knows_more(&self, state: &Manifest) -> bool {
        self.epoch > state.writer_epoch
    }
}

/// # Errors
/// Unsupported for an object of a newer version; errors of the store.
pub(super) async fn inspect(objects: &Objects, chain: &ManifestChain) -> Result<Log> {
    let mut walk = LogWalk {
        objects,
        readahead: WalReadahead::new(objects),
        state: &chain.base,
        is_void: matches!(chain.remedy, Remedy::Void(_)),
        log: Log {
            objects: 0,
            seq: chain.base.flushed_seq,
            epoch: Epoch::NONE,
            jobs: Vec::new(),
            end: chain.base.replay_from,
            cut: None,
        },
    };
    let mut at = chain.base.replay_from;
    let told = loop {
        walk.log.end = at;
        match walk.step(at).await? {
            Step::On(next) => at = next,
            Step::End => return Ok(walk.log),
            Step::Cut(what) => break what,
        }
    };
    let cut = walk.behind(at, told).await?;
    walk.log.cut = Some(cut);
    Ok(walk.log)
}

enum Step {
    On(WalId),
    End,
    Cut(Damage),
}

struct LogWalk<'a> {
    objects: &'a Objects,
    readahead: WalReadahead,
    state: &'a Manifest,
    /// Whether newer manifests are lost. The log may have been freed behind them.
    is_void: bool,
    log: Log,
}

impl LogWalk<'_> {
    async fn step(&mut self, at: WalId) -> Result<Step> {
        let name = ObjectName::Wal(at);
        let object = match self.readahead.read(at).await {
            Ok(Some(object)) => object,
            Ok(None) => return self.nothing(at).await,
            Err(error) if error.kind() == ErrorKind::Corruption => {
                return Ok(Step::Cut(Damage::new(name, error)));
            }
            Err(error) => return Err(error),
        };
        if object.envelope.database != self.state.database {
            return Ok(Step::Cut(Damage::new(name, "belongs to another database")));
        }
        self.log.epoch = self.log.epoch.max(object.epoch);
        if let WalBody::Fence { next_id } = object.body {
            return Ok(Step::On(next_id.max(at.next())));
        }
        let scratch = Memtable::new();
        let flushed = self.state.flushed_seq;
        let rows = insert_rows(&scratch, &object, flushed, self.log.seq);
        let rows = rows.map(|last| last.unwrap_or(self.log.seq));
        // An ingest takes sequence numbers too; the next object follows them.
        let last = rows.and_then(|last| Ok((last, ingest_of(&object, flushed, last)?)));
        match last {
            Ok((last, ingest)) => {
                if let Some(damage) = self.damage_of(name, ingest.as_ref()).await? {
                    return Ok(Step::Cut(damage));
                }
                if let Some(WalIngestContent::Job { job, digest }) =
                    ingest.as_ref().map(|ingest| &ingest.content).filter(|_| self.is_void)
                {
                    self.note_job(*job, digest).await?;
                }
                self.log.seq = ingest.map_or(last, |ingest| ingest.last_seq());
                self.log.objects += 1;
                Ok(Step::On(at.next()))
            }
            Err(error) if error.kind() == ErrorKind::Corruption => {
                Ok(Step::Cut(Damage::new(name, error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Notes a job whose objects were found readable.
    async fn note_job(&mut self, job: JobId, digest: &Bytes) -> Result<()> {
        if let Some(closed) = self.objects.closed_job(job).await? {
            self.log.jobs.push(PendingIngest {
                job,
                requested_at: self.objects.env.clock.now(),
                digest: digest.clone(),
                app: closed.app.map(|app| (app.name, app.version)),
                timeline: closed.timeline,
            });
        }
        Ok(())
    }

    /// The damage of an ingest in the object `at`.
    async fn damage_of(
        &self,
        at: ObjectName,
        ingest: Option<&WalIngest>,
    ) -> Result<Option<Damage>> {
        let Some(ingest) = ingest else { return Ok(None) };
        let name = match &ingest.content {
            WalIngestContent::Job { job, .. } => ObjectName::IngestManifest(*job),
            WalIngestContent::Tables(_) => at,
        };
        match layers_of(self.objects, ingest).await {
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::Corruption => {
                Ok(Some(Damage::new(name, error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Handles a missing object: it is the end of the log, unless a manifest or a later object
    /// proves otherwise.
    async fn nothing(&self, at: WalId) -> Result<Step> {
        let cut = |what| Ok(Step::Cut(Damage::new(ObjectName::Wal(at), what)));
        if at <= self.state.wal_id_last_seen {
            return cut("is missing, and the manifest knows it");
        }
        let WalListing { boundary, later } = self.objects.list_wal(at).await?;
        if self.is_void && at <= boundary {
            return cut("was freed behind a manifest that cannot be read");
        }
        for id in later.into_iter().rev() {
            match self.objects.wal(id).await {
                Ok(Some(object)) => {
                    let shown = seen(&object, self.state.database);
                    let is_hole = Hole::before(at, (id, shown)).is_some();
                    if is_hole && self.objects.wal(at).await?.is_none() {
                        return cut("is missing, and a later object proves that it existed");
                    }
                    if is_hole {
                        return Ok(Step::On(at));
                    }
                }
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    let name = ObjectName::Wal(id);
                    return Ok(Step::Cut(Damage::new(name, error)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Step::End)
    }

    /// The objects that are cut off.
    async fn behind(&mut self, at: WalId, first: Damage) -> Result<Cut> {
        let listed = self.objects.list(siltstone_base::name::prefix::WAL).await?;
        let there = listed.into_iter().filter_map(|one| match one.name {
            ObjectName::Wal(id) if id >= at => Some((id, one.bytes)),
            _ => None,
        });
        let mut cut = Cut { at, damage: vec![first], off: Vec::new(), missing: 0 };
        let mut expected = at;
        for (id, bytes) in there {
            cut.missing += id.get().saturating_sub(expected.get());
            let object = match self.objects.wal(id).await {
                Ok(Some(object)) => Some(object),
                Ok(None) => continue,
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    let name = ObjectName::Wal(id);
                    if cut.damage.iter().all(|one| one.object != name) {
                        cut.damage.push(Damage::new(name, error));
                    }
                    None
                }
                Err(error) => return Err(error),
            };
            let own = object.filter(|one| one.envelope.database == self.state.database);
            self.log.epoch =
                self.log.epoch.max(own.as_ref().map(|one| one.epoch).unwrap_or_default());
            expected = expected.max(own.as_ref().map_or(id.next(), goes_on));
            let seqs = own.map(|one| (one.first_seq, one.last_seq));
            cut.off.push(CutObject { id, bytes, seqs });
        }
        let mut known = self.state.wal_id_last_seen.next();
        if self.is_void {
            // Freed behind manifests that are lost, together with their tables.
            known = known.max(self.objects.wal_boundary().await?.next());
        }
        cut.missing += known.get().saturating_sub(expected.get());
        Ok(cut)
    }
}

fn goes_on(object: &WalObject) -> WalId {
    match object.body {
        WalBody::Fence { next_id } => next_id.max(object.id.next()),
        WalBody::Records(_) => object.id.next(),
    }
}
