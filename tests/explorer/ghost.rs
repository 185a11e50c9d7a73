//! The truth, which no process knows: the invariants are checked against it.
//!
//! A manifest is real if it was created one past the newest real one; any other one landed in a
//! freed slot. Recoveries define the history: when the writer of an epoch opens, it must recover
//! what its predecessor recovered, then a prefix of what that one sent, with everything in it that
//! was acknowledged. From then on that prefix is the predecessor's permanent share: nothing beyond
//! it may be acknowledged, seen by a reader, or recovered.

use crate::shared::fingerprint;
use crate::world::{Object, Record, Store};
use crate::writer::bug;
use siltstone_base::{Epoch, JobId, ManifestId, ObjectName, Seq, SstId, WalId};
use siltstone_manifest::Manifest;
use siltstone_manifest::compaction::{Compactions, FinishedUnit};
use siltstone_manifest::edit::{Conflict, Refusal};
use siltstone_manifest::protocol::{Failure, Hole};
use std::sync::Arc;

/// One writer that opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reign {
    epoch: Epoch,
    /// The records that it recovered.
    base: Vec<Record>,
    /// Number of records sent; they follow `base`.
    sent: usize,
    /// One past the last record that it acknowledged.
    acknowledged: usize,
    /// How many of them the next writer recovered.
    kept: Option<usize>,
    /// One of them that it reported as certainly not written.
    disowned: Option<usize>,
}

impl Reign {
    fn record(&self, index: usize) -> Record {
        Record { seq: (self.base.len() + index + 1) as u64, epoch: self.epoch }
    }

    /// The first `count` records of those that it recovered and then sent.
    fn history(&self, count: usize) -> impl Iterator<Item = Record> {
        let own = (0..self.sent).map(|index| self.record(index));
        self.base.iter().copied().chain(own).take(count)
    }

    fn problem(&self) -> Option<String> {
        let epoch = self.epoch;
        match (self.kept, self.disowned) {
            (Some(kept), _) if self.acknowledged > kept => Some(format!(
                "I1, F6: epoch {epoch} acknowledged its record {}, and a later recovery has only \
                 {kept} of its records",
                self.acknowledged
            )),
            (Some(kept), Some(disowned)) if disowned < kept => Some(format!(
                "F6: epoch {epoch} reported its record {} as not written, and it was recovered",
                disowned + 1
            )),
            _ => None,
        }
    }
}

/// The truth.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ghost {
    /// Fingerprints of the real manifests, by id.
    chain: Vec<u64>,
    /// The newest real manifest.
    pub(crate) tip: Arc<Manifest>,
    reigns: Vec<Reign>,
    /// Fingerprints of the real records of jobs, by number.
    records: Vec<u64>,
    /// The newest real record of jobs.
    pub(crate) jobs: Arc<Compactions>,
    /// Jobs that were committed.
    finished: Vec<JobId>,
    /// Tables that some real manifest added.
    added: Vec<SstId>,
    /// The content of every table ever uploaded.
    contents: Vec<(SstId, Vec<Record>)>,
    /// Results that units have sent to their drivers; a message may arrive at any time, and twice.
    pub(crate) told_by_units: Vec<(JobId, FinishedUnit)>,
    /// WAL objects that an outsider deleted.
    destroyed: Vec<WalId>,
    /// Whether a process ended because one of those is missing.
    pub(crate) told: bool,
    /// Whether an outsider deleted everything: objects created since are part of nothing.
    pub(crate) gone: bool,
}

impl Ghost {
    pub(crate) fn new(first: Arc<Manifest>) -> Ghost {
        let chain = vec![fingerprint(&first)];
        Ghost {
            chain,
            records: Vec::new(),
            jobs: Arc::new(Compactions::none(first.database)),
            finished: Vec::new(),
            tip: first,
            reigns: Vec::new(),
            added: Vec::new(),
            contents: Vec::new(),
            told_by_units: Vec::new(),
            destroyed: Vec::new(),
            told: false,
            gone: false,
        }
    }

    /// A manifest was created.
    pub(crate) fn committed(&mut self, state: &Arc<Manifest>) -> Option<String> {
        if state.id != self.tip.id.next() || self.gone {
            // A freed slot, or a deleted place: part of nothing.
            return None;
        }
        self.chain.push(fingerprint(state));
        let before: Vec<SstId> = self.tip.tables().map(|table| table.id).collect();
        let mut problem = self.ended_jobs(state);
        for table in state.tables().filter(|table| !before.contains(&table.id)) {
            if self.added.contains(&table.id) {
                problem = Some(format!("M2: table {} was added a second time", name(table.id)));
            }
            self.added.push(table.id);
        }
        self.tip = state.clone();
        problem
    }

    /// Jobs that `state`, the next real manifest, ends: each once, by the compactor of the newest
    /// epoch, with tables in the record.
    fn ended_jobs(&mut self, state: &Manifest) -> Option<String> {
        let tip = self.tip.clone();
        let news = state.finished_jobs.iter().filter(|done| !tip.finished_jobs.contains(done));
        for done in news {
            let job = done.job;
            if self.finished.contains(&job) {
                return Some(format!("R2: job {job} is committed a second time"));
            }
            self.finished.push(job);
            if done.epoch != tip.compactor_epoch {
                return Some(format!("R2: job {job} is committed by a compactor that is fenced"));
            }
            let ranges = self.jobs.job(job).map(|job| job.ranges.as_slice()).unwrap_or_default();
            let recorded = |id: SstId| {
                ranges.iter().flat_map(|range| &range.outputs).any(|table| table.id == id)
            };
            let before = |id: SstId| tip.tables().any(|table| table.id == id);
            let mut added = state.tables().filter(|table| !before(table.id));
            if let Some(table) = added.find(|table| !recorded(table.id)) {
                let table = name(table.id);
                return Some(format!("R1: table {table} is committed and was not recorded"));
            }
        }
        None
    }

    /// A record of jobs was created.
    pub(crate) fn recorded(&mut self, record: &Arc<Compactions>) {
        if record.number == self.jobs.number + 1 {
            self.records.push(fingerprint(record));
            self.jobs = record.clone();
        }
    }

    /// A process takes `record` for a part of the chain.
    pub(crate) fn believed_jobs(&self, record: &Compactions) -> Option<String> {
        let at = usize::try_from(record.number).ok()?.checked_sub(1)?;
        let real = self.records.get(at).is_some_and(|real| *real == fingerprint(record));
        let number = record.number;
        (!real).then(|| format!("M3: record {number} landed in a freed slot and is believed"))
    }

    /// A process takes `state` for a committed manifest.
    pub(crate) fn believed(&self, state: &Manifest) -> Option<String> {
        let at = usize::try_from(state.id.get()).ok()?.checked_sub(1)?;
        let real = self.chain.get(at).is_some_and(|real| *real == fingerprint(state));
        (!real).then(|| {
            let (place, id) =
                (if self.gone { "E1: an emptied place" } else { "M3: a freed slot" }, state.id);
            format!("{place}: manifest {id} landed there and is taken for committed")
        })
    }

    pub(crate) fn uploaded(&mut self, id: SstId, rows: &[Record]) {
        if !self.contents.iter().any(|(known, _)| *known == id) {
            self.contents.push((id, rows.to_vec()));
            self.contents.sort();
        }
    }

    /// A unit reports its result.
    pub(crate) fn tells(&mut self, job: JobId, unit: FinishedUnit) {
        self.told_by_units.push((job, unit));
        self.told_by_units.sort_by_key(|(_, unit)| unit.tables.first().map(|table| table.id));
    }

    /// The rows of a state's tables, oldest first.
    pub(crate) fn rows(&self, state: &Manifest) -> Vec<Record> {
        self.rows_of(state.tables().map(|table| table.id))
    }

    /// The rows of tables, oldest first.
    pub(crate) fn rows_of(&self, tables: impl Iterator<Item = SstId>) -> Vec<Record> {
        let mut rows: Vec<Record> = Vec::new();
        for table in tables {
            let contents = self.contents.iter().find(|(id, _)| *id == table);
            rows.extend(contents.iter().flat_map(|(_, rows)| rows));
        }
        rows.sort();
        rows
    }

    /// The combination of a state's tables and replayed WAL records (rule N4).
    pub(crate) fn merged(&self, state: &Manifest, replayed: &[Record]) -> Vec<Record> {
        let mut rows = self.rows(state);
        let above = |record: &&Record| Seq(record.seq) > state.flushed_seq;
        rows.extend(replayed.iter().filter(above));
        rows
    }

    /// The writer of `epoch` opened with these records.
    pub(crate) fn recovered(&mut self, epoch: Epoch, base: Vec<Record>) -> Option<String> {
        if self.gone {
            return Some("E1: a writer opens on an emptied place".to_owned());
        }
        let mut reign = Reign { epoch, base, sent: 0, acknowledged: 0, kept: None, disowned: None };
        let Some(before) = self.reigns.last_mut() else {
            let ghostly = !reign.base.is_empty();
            self.reigns.push(reign);
            return ghostly.then(|| "I2: a row that was never written was recovered".to_owned());
        };
        let base = &reign.base;
        let same = before.history(base.len()).eq(base.iter().copied());
        let prefix = same && base.len() >= before.base.len();
        if before.epoch > epoch {
            // Overtaken at the moment of opening: it read a prefix, and may acknowledge nothing.
            reign.kept = Some(0);
            self.reigns.insert(0, reign);
            return (!same).then(|| format!("I4: epoch {epoch} recovered what is no prefix"));
        }
        let problem = if prefix {
            before.kept = Some(base.len() - before.base.len());
            before.problem()
        } else {
            Some(format!(
                "I1, I4: epoch {epoch} recovered {}, where {} was written",
                told(base.iter().copied()),
                told(before.history(usize::MAX))
            ))
        };
        self.reigns.push(reign);
        problem
    }

    /// The next record of `epoch`, which it sends now.
    pub(crate) fn sends(&mut self, epoch: Epoch) -> Record {
        match self.reign(epoch) {
            Some(reign) => {
                reign.sent += 1;
                reign.record(reign.sent - 1)
            }
            None => Record { seq: 0, epoch },
        }
    }

    /// The writer of `epoch` acknowledges its record number `index`.
    pub(crate) fn acknowledges(&mut self, epoch: Epoch, index: usize) -> Option<String> {
        if self.gone {
            // Until its next look, on a store that does not report it.
            return None;
        }
        let reign = self.reign(epoch)?;
        reign.acknowledged = reign.acknowledged.max(index + 1);
        reign.problem()
    }

    /// The writer of `epoch` reports its record number `index` as not written.
    pub(crate) fn disowns(&mut self, epoch: Epoch, index: usize) -> Option<String> {
        if self.gone {
            return None;
        }
        let reign = self.reign(epoch)?;
        reign.disowned = Some(index);
        let acknowledged = reign.acknowledged > index;
        let both = || format!("F6: epoch {epoch} acknowledged record {} and lost it", index + 1);
        reign.problem().or_else(|| acknowledged.then(both))
    }

    /// Whether `view`, as seen by a process, is a prefix of the history.
    pub(crate) fn is_history(&self, view: &[Record]) -> bool {
        match self.reigns.last() {
            None => view.is_empty(),
            Some(reign) => reign.history(view.len()).eq(view.iter().copied()),
        }
    }

    /// The records that every later reader must see at least: the acknowledged ones.
    pub(crate) fn acknowledged(&self) -> usize {
        self.reigns.last().map_or(0, |reign| reign.base.len() + reign.acknowledged)
    }

    /// A WAL object or a manifest that must stay is being deleted.
    pub(crate) fn wrongly_deleted(&self, deleted: ObjectName) -> Option<String> {
        let pinning = |one: &&siltstone_manifest::Checkpoint| match deleted {
            ObjectName::Wal(id) => one.pins_wal(id),
            ObjectName::Manifest(id) => one.manifest_id == id,
            _ => false,
        };
        if self.tip.checkpoints.iter().find(pinning).is_some() {
            return Some(format!("I6: {deleted} is deleted, which a present checkpoint pins"));
        }
        match deleted {
            ObjectName::Wal(id) if id >= self.tip.replay_from => {
                Some(format!("I6: {deleted} is deleted, which recovery reads"))
            }
            ObjectName::Wal(id) if self.tip.kept_fences.iter().any(|fence| fence.id == id) => {
                Some(format!("F5: the kept fence {deleted} is deleted"))
            }
            ObjectName::Compactions(number) if number == self.jobs.number => {
                Some(format!("I6: {deleted} is deleted, the newest record of jobs"))
            }
            ObjectName::Manifest(id) if id == self.tip.id => {
                Some(format!("I6: {deleted} is deleted, the newest manifest"))
            }
            _ => None,
        }
    }

    /// An outsider deletes a WAL object.
    pub(crate) fn destroys(&mut self, id: WalId) {
        self.destroyed.push(id);
        self.destroyed.sort();
    }

    /// Whether no outsider has deleted anything.
    pub(crate) fn is_whole(&self) -> bool {
        !self.gone && self.destroyed.is_empty()
    }

    /// The violation when a step function ends with this failure.
    pub(crate) fn failed(&mut self, failure: Failure) -> Option<String> {
        match failure {
            Failure::Refused(Refusal::Conflict(Conflict::OtherDatabase)) if !self.gone => {
                Some("E1: a database that is there is called gone".to_owned())
            }
            Failure::Fenced { .. } => None,
            // A remaining part of a deleted log has holes.
            Failure::Hole(_) if self.gone => None,
            Failure::Refused(refusal) => bug(refusal),
            Failure::Hole(Hole { id, .. }) if self.destroyed.contains(&id) => {
                self.told = true;
                None
            }
            Failure::Hole(hole) => Some(format!("M4, F2: what is right is called {hole:?}")),
            Failure::Foreign(_) | Failure::Impossible(_) => {
                Some(format!("F3: a process meets what cannot be: {failure:?}"))
            }
        }
    }

    /// A table that a manifest above the boundary, or one that a present checkpoint pins,
    /// references and that is missing (rule M5).
    pub(crate) fn missing(&self, store: &Store) -> Option<String> {
        let boundary = store.manifest_boundary();
        let pinned = |id: ManifestId| self.tip.checkpoints.iter().any(|one| one.manifest_id == id);
        let states = store.0.iter().filter_map(|(name, object)| match (name, object) {
            (ObjectName::Manifest(id), Object::Manifest(stored)) => {
                let counts =
                    (*id > boundary || pinned(*id)) && self.believed(&stored.state).is_none();
                counts.then_some(&stored.state)
            }
            _ => None,
        });
        for state in states {
            for table in state.tables() {
                if !store.0.contains_key(&table.name()) {
                    let (table, id) = (name(table.id), state.id);
                    return Some(format!("I6: manifest {id} names table {table}, which is gone"));
                }
            }
        }
        None
    }

    fn reign(&mut self, epoch: Epoch) -> Option<&mut Reign> {
        self.reigns.iter_mut().find(|reign| reign.epoch == epoch)
    }
}

/// The short name of a table.
pub(crate) fn name(id: SstId) -> String {
    format!("t{:x}", id.get())
}

/// Records in words: epoch and sequence number.
pub(crate) fn told(records: impl Iterator<Item = Record>) -> String {
    let each: Vec<String> =
        records.map(|record| format!("{}@{}", record.seq, record.epoch)).collect();
    format!("[{}]", each.join(" "))
}
