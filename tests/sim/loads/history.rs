//! The observations and acknowledgements, and the histories with which they are compared: one line
//! after another, each begun by a restore.
//!
//! ```text
//! first   1 … 40 … 60 … 100               numbers after 60 are on this line alone
//! second           └─ cut 60 ── 101 …     it continues after the gap, to 100
//! ```

use super::Action;
use super::consumers::{self, Feed};
use crate::oracle::{Moment, Rows, all_rows};
use bytes::Bytes;
use siltstone::ingest::IngestJob;
use siltstone::{JobId, JobStatus, Seq, UnixMillis};
use siltstone_base::{ManifestId, TimelineId, WalId};
use siltstone_manifest::Manifest;
use siltstone_sst::wal::{WalIngestContent, WalRecord, decode};
use siltstone_tests::faults::Bucket;
use siltstone_tests::model::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One time for all: entries with an expiry in these histories expired long ago, or never expire.
const NOW: UnixMillis = UnixMillis(2);

/// A writer that was opened.
#[derive(Default)]
struct Reign {
    /// The first number that it showed.
    from: Option<Seq>,
    accepted: Vec<(Seq, Vec<u8>)>,
    /// Large batches.
    large: Vec<(Seq, Vec<u8>)>,
    /// A batch in flight: it is unknown whether it was accepted.
    under_way: Option<Vec<u8>>,
    acknowledged: Seq,
}

/// The facts of a job that a driver knows.
#[derive(Default)]
pub(crate) struct Job {
    /// Its content, as operations in order.
    content: Vec<u8>,
    pub(super) replaces: bool,
    pub(super) has_operands: bool,
    /// A process reported that it is installed since one of these numbers at the latest.
    adopted_before: Vec<Seq>,
    requested: bool,
    /// The reported position.
    adopted: Option<Seq>,
    /// A process reported that it is not part of the database, and never will be.
    ended: bool,
    /// That report came after an attempt to restore.
    ended_amid_restores: bool,
}

/// The observations and acknowledgements.
#[derive(Default)]
pub(crate) struct Books {
    pub(super) did: BTreeMap<Action, u64>,
    pub(super) jobs: BTreeMap<JobId, Job>,
    reigns: BTreeMap<u64, Reign>,
    /// The rows that writers showed, by epoch and number.
    pub(super) looks: Vec<(u64, Seq, Rows)>,
    /// The changes that consumers received, by name.
    pub(super) feeds: BTreeMap<&'static str, Feed>,
    /// A process has tried to restore it.
    pub(super) restoring: bool,
    wrong: Vec<String>,
}

impl Books {
    /// The writer of `epoch` has opened.
    pub(super) fn opened(&mut self, epoch: u64, at: Seq) {
        self.reigns.entry(epoch).or_default().from.get_or_insert(at);
    }

    pub(super) fn accepted(&mut self, epoch: u64, first: Seq, batch: &[u8]) {
        self.reigns.entry(epoch).or_default().accepted.push((first, batch.to_vec()));
    }

    /// A large batch is in flight, or was abandoned: then nothing was written.
    pub(super) fn sends(&mut self, epoch: u64, batch: Option<&[u8]>) {
        self.reigns.entry(epoch).or_default().under_way = batch.map(<[u8]>::to_vec);
    }

    /// It was accepted, at one number.
    pub(super) fn accepted_large(&mut self, epoch: u64, at: Seq) {
        let reign = self.reigns.entry(epoch).or_default();
        reign.large.extend(reign.under_way.take().map(|batch| (at, batch)));
    }

    pub(super) fn acknowledged(&mut self, epoch: u64, seq: Seq) {
        let reign = self.reigns.entry(epoch).or_default();
        reign.acknowledged = reign.acknowledged.max(seq);
    }

    /// The writer of `epoch` showed these rows.
    pub(super) fn saw(&mut self, epoch: u64, seq: Seq, rows: Rows) {
        self.looks.push((epoch, seq, rows));
    }

    /// A driver is about to close a job with this content.
    pub(super) fn closes(&mut self, job: &IngestJob, content: Vec<u8>, has_operands: bool) {
        let known = self.jobs.entry(job.id).or_default();
        known.content = content;
        known.replaces = job.replace.is_some();
        known.has_operands = has_operands;
    }

    /// It was requested, and the request was accepted.
    pub(super) fn requested(&mut self, job: JobId) {
        self.jobs.entry(job).or_default().requested = true;
    }

    /// Its status was reported.
    pub(super) fn stands(&mut self, job: JobId, standing: &JobStatus) {
        let known = self.jobs.entry(job).or_default();
        match standing {
            JobStatus::Adopted(seq) => {
                if known.adopted.is_some_and(|before| before != *seq) {
                    self.wrong.push(format!("{job} is at two places: {seq}, {:?}", known.adopted));
                }
                known.adopted = Some(*seq);
            }
            JobStatus::Withdrawn => {
                known.ended = true;
                known.ended_amid_restores |= self.restoring;
            }
            // All staged objects exist until the job can no longer be requested.
            JobStatus::Refused(why) => self.wrong.push(format!("{job} was refused: {why}")),
            JobStatus::AdoptedBefore(seq) => known.adopted_before.push(*seq),
            JobStatus::Open | JobStatus::Pending | JobStatus::Ended | JobStatus::Forgotten => {}
        }
    }
}

/// One step of a history.
#[derive(Clone)]
pub(super) struct Step {
    pub(super) first: Seq,
    pub(super) last: Seq,
    /// Whether it was ever in the log.
    pub(super) landed: bool,
    pub(super) what: What,
}

#[derive(Clone)]
pub(super) enum What {
    Batch(Vec<u8>),
    /// All of it has one number.
    Large(Vec<u8>),
    Job(JobId),
}

/// Consecutive steps.
#[derive(Clone, Default)]
pub(super) struct History {
    pub(super) steps: Vec<Step>,
    /// Restores: the last number before each, and the first one after it.
    gaps: Vec<(Seq, Seq)>,
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gaps.iter().try_for_each(|(cut, begins)| write!(f, "to {cut}, {begins} "))?;
        write!(f, "to {}", self.end())
    }
}

impl History {
    fn end(&self) -> Seq {
        let behind = self.gaps.last().map_or(Seq::NONE, |(_, begins)| begins.minus(1));
        self.steps.last().map_or(Seq::NONE, |step| step.last).max(behind)
    }

    /// Whether a follower may be at `seq`.
    fn shows(&self, seq: Seq) -> bool {
        let inside = |(cut, begins): &(Seq, Seq)| *cut < seq && seq.next() < *begins;
        seq <= self.end() && !self.gaps.iter().any(inside)
    }

    /// The steps that landed, up to `cut`.
    fn upto(&self, cut: Seq) -> History {
        let counts = |step: &&Step| step.landed && step.last <= cut;
        let steps = self.steps.iter().filter(counts).cloned().collect();
        History { steps, gaps: self.gaps.clone() }
    }
}

/// A restore that was committed.
struct Restored {
    line: TimelineId,
    from: Option<TimelineId>,
    cut: Seq,
    begins: Seq,
}

/// The restores in the manifests, by the epoch of the restorer: for each number the first manifest
/// that ever existed counts.
fn restores(manifests: &[(ManifestId, Bytes)]) -> BTreeMap<u64, Restored> {
    let (mut all, mut known) = (BTreeMap::new(), BTreeSet::new());
    for (id, bytes) in manifests {
        if !known.insert(*id) {
            continue;
        }
        let (_, state) = Manifest::decode(bytes).expect("a sound manifest");
        let Some((last, before)) = state.timelines.split_last() else { continue };
        if last.manifest_id == *id {
            let from = before.last().map(|one| one.id);
            let (line, cut, begins) = (last.id, last.cut, last.begins);
            all.insert(state.writer_epoch.get(), Restored { line, from, cut, begins });
        }
    }
    all
}

/// A line of history up to its present end.
#[derive(Clone, Default)]
pub(super) struct Line {
    pub(super) history: History,
    /// The last acknowledged number on it.
    promised: Seq,
}

/// The records that an epoch put into the log, whether they count or not.
#[derive(Default)]
struct Logged {
    batches: BTreeSet<Seq>,
    large: BTreeSet<Seq>,
    jobs: BTreeMap<JobId, (Seq, Seq, Bytes)>,
}

fn logged(log: &[(WalId, Bytes)], wrong: &mut Vec<String>) -> BTreeMap<u64, Logged> {
    let mut all: BTreeMap<u64, Logged> = BTreeMap::new();
    for (id, bytes) in log {
        let object = decode(bytes.clone(), *id).expect("a sound object");
        let epoch = all.entry(object.epoch.get()).or_default();
        for record in object.records() {
            match record.expect("a sound record") {
                WalRecord::Batch { first_seq, .. } => drop(epoch.batches.insert(first_seq)),
                WalRecord::Ingest(one) => {
                    let (first, last) = (one.first_seq, one.last_seq());
                    let WalIngestContent::Job { job, digest } = one.content else {
                        epoch.large.insert(first);
                        continue;
                    };
                    let place = (first, last, digest);
                    let before = epoch.jobs.insert(job, place.clone());
                    if before.is_some_and(|before| before != place) {
                        wrong.push(format!("epoch {} took {job} in twice", object.epoch));
                    }
                }
            }
        }
    }
    all
}

/// All known histories.
#[derive(Default)]
struct Histories {
    /// By epoch, its own part up to the known end.
    of_epochs: BTreeMap<u64, History>,
    /// By the restore that began it.
    lines: BTreeMap<Option<TimelineId>, Line>,
    /// The current line.
    current: Option<TimelineId>,
    wrong: Vec<String>,
}

impl Histories {
    fn of(
        books: &Books,
        logged: &BTreeMap<u64, Logged>,
        restores: &BTreeMap<u64, Restored>,
    ) -> Histories {
        let nothing = (Reign::default(), Logged::default());
        let mut all = Histories::default();
        let epochs: BTreeSet<u64> =
            books.reigns.keys().chain(logged.keys()).chain(restores.keys()).copied().collect();
        for epoch in epochs {
            match restores.get(&epoch) {
                Some(restored) => all.goes_back(epoch, restored),
                None => {
                    let reign = books.reigns.get(&epoch).unwrap_or(&nothing.0);
                    all.reigns(epoch, reign, logged.get(&epoch).unwrap_or(&nothing.1));
                }
            }
        }
        all
    }

    /// A restore begins a line.
    fn goes_back(&mut self, epoch: u64, restored: &Restored) {
        let from = self.lines.get(&restored.from).cloned().unwrap_or_default();
        let cut = restored.cut;
        let mut history = from.history.upto(cut);
        if history.end() < from.promised.min(cut) {
            let (kept, promised) = (history.end(), from.promised);
            self.wrong.push(format!("a restore to {cut} kept {kept}; {promised} was promised"));
        }
        history.gaps.push((cut, restored.begins));
        self.current = Some(restored.line);
        let line = Line { history: history.clone(), promised: from.promised.min(cut) };
        self.lines.insert(self.current, line);
        self.of_epochs.insert(epoch, history);
    }

    /// A writer continues the current line.
    fn reigns(&mut self, epoch: u64, reign: &Reign, logged: &Logged) {
        let own = own_steps(reign, logged, &mut self.wrong);
        let before = own.first().map(|step| step.first.minus(1));
        let Some(cut) = reign.from.into_iter().chain(before).min() else { return };
        let line = self.lines.entry(self.current).or_default();
        let mut history = line.history.upto(cut);
        if line.history.steps.iter().any(|step| step.first <= cut && cut < step.last) {
            let text = format!("epoch {epoch} recovered up to {cut}, in the middle of a step");
            self.wrong.push(text);
        }
        let (recovered, promised) = (history.end(), line.promised);
        if recovered.min(cut) < promised {
            let text = format!("epoch {epoch} recovered {recovered}, and {promised} was promised");
            self.wrong.push(text);
        }
        for step in own {
            // The steps after a job that was never in the log belong to no writer.
            if step.first == history.end().next() {
                history.steps.push(step);
            }
        }
        if reign.acknowledged > history.end() {
            let (said, end) = (reign.acknowledged, history.end());
            self.wrong
                .push(format!("epoch {epoch} acknowledged {said}, and its log ends at {end}"));
        }
        line.promised = promised.max(reign.acknowledged);
        line.history = history.clone();
        self.of_epochs.insert(epoch, history);
    }
}

fn own_steps(reign: &Reign, logged: &Logged, wrong: &mut Vec<String>) -> Vec<Step> {
    let batch = |(first, bytes): &(Seq, Vec<u8>)| Step {
        first: *first,
        last: first.plus(siltstone_base::BatchOps::new(bytes).count() as u64).minus(1),
        landed: logged.batches.contains(first),
        what: What::Batch(bytes.clone()),
    };
    let job = |(job, (first, last, _)): (&JobId, &(Seq, Seq, Bytes))| Step {
        first: *first,
        last: *last,
        landed: true,
        what: What::Job(*job),
    };
    let large = |(at, bytes): &(Seq, Vec<u8>)| Step {
        first: *at,
        last: *at,
        landed: logged.large.contains(at),
        what: What::Large(bytes.clone()),
    };
    let mut own: Vec<Step> = reign.accepted.iter().map(batch).collect();
    own.extend(logged.jobs.iter().map(job));
    own.extend(reign.large.iter().map(large));
    // A killed writer may have had one accepted.
    let mut unheard = reign.under_way.iter();
    for at in logged.large.iter().filter(|at| !reign.large.iter().any(|(known, _)| known == *at)) {
        match unheard.next() {
            Some(bytes) => own.push(large(&(*at, bytes.clone()))),
            None => wrong.push(format!("the log has a large batch at {at} that no writer sent")),
        }
    }
    own.sort_by_key(|step| step.first);
    own
}

fn model_of(history: &History, jobs: &BTreeMap<JobId, Job>) -> Model {
    let mut model = Model::default();
    for step in &history.steps {
        match &step.what {
            What::Batch(bytes) => drop(model.apply(step.first, bytes).expect("a batch")),
            What::Large(bytes) => model.apply_at(step.last, bytes).expect("a batch"),
            What::Job(job) => {
                let content = jobs.get(job).map(|job| job.content.as_slice());
                model.apply_at(step.last, content.unwrap_or_default()).expect("a batch");
            }
        }
    }
    model
}

/// The result of the checks.
#[derive(Default)]
pub(super) struct Judged {
    /// The jobs that are part of the history.
    pub(super) adopted: Vec<JobId>,
    /// Number of rows that consumers received.
    pub(super) told: u64,
    pub(super) wrong: Vec<String>,
}

/// Compares everything with the history, by every object of the log and every manifest that ever
/// existed.
pub(super) fn judge(books: &Books, store: &Bucket, readers: &[(Seq, Moment, Rows)]) -> Judged {
    let mut wrong = books.wrong.clone();
    let logged = logged(&store.log(), &mut wrong);
    let restores = restores(&store.manifests());
    let all = Histories::of(books, &logged, &restores);
    wrong.extend(all.wrong.iter().cloned());
    for (epoch, seq, rows) in &books.looks {
        let Some(history) = all.of_epochs.get(epoch) else { continue };
        let model = model_of(history, &books.jobs);
        if *seq <= history.end() && all_rows(&model, *seq, NOW) != *rows {
            wrong.push(format!("epoch {epoch} showed something else at {seq}"));
        }
    }
    let Some(history) = all.of_epochs.values().next_back() else {
        return Judged { wrong, ..Judged::default() };
    };
    let lines: Vec<&History> = all.lines.values().map(|line| &line.history).collect();
    let models: Vec<Model> = lines.iter().map(|line| model_of(line, &books.jobs)).collect();
    for (seq, _, rows) in readers {
        let mut both = lines.iter().zip(&models);
        if !both.any(|(line, model)| line.shows(*seq) && all_rows(model, *seq, NOW) == *rows) {
            wrong.push(format!("a reader's view at {seq} is not that of a history that was"));
        }
    }
    let content = |job| books.jobs.get(&job).map(|known| known.content.clone());
    let content = |job| content(job).unwrap_or_default();
    let (unfit, told) = consumers::judge(&books.feeds, &lines, content);
    wrong.extend(unfit);
    let adopted = judge_jobs(&books.jobs, history, &mut wrong);
    Judged { adopted, told, wrong }
}

/// Each job is in the history once, at its reported position. Jobs that a restore undid are not,
/// and none of them comes back.
fn judge_jobs(
    jobs: &BTreeMap<JobId, Job>,
    history: &History,
    wrong: &mut Vec<String>,
) -> Vec<JobId> {
    let restored = !history.gaps.is_empty();
    let lacks = |seq: Seq| history.gaps.iter().any(|(cut, begins)| *cut < seq && seq < *begins);
    let mut places: BTreeMap<JobId, Vec<Seq>> = BTreeMap::new();
    for step in &history.steps {
        if let What::Job(job) = step.what {
            places.entry(job).or_default().push(step.last);
        }
    }
    for (job, known) in jobs {
        let at = places.get(job).map(Vec::as_slice).unwrap_or_default();
        let fits = match (known.adopted, known.ended) {
            (Some(seq), _) if lacks(seq) => at.is_empty(),
            (Some(seq), false) => at == [seq],
            // It may have been aborted while a restore had undone it, and be part of the history
            // again since a restore to a state before that.
            (known_at, true) if known.ended_amid_restores && at.len() == 1 => {
                known_at.is_none_or(|seq| at == [seq])
            }
            (None, true) => at.is_empty(),
            (Some(_), true) => false,
            (None, false) => at.len() <= 1 && (!known.requested || at.len() == 1 || restored),
        };
        let late = |least: &Seq| !restored && !at.iter().any(|at| at <= least);
        if !fits || known.adopted_before.iter().any(late) {
            let (adopted, ended, asked) = (known.adopted, known.ended, known.requested);
            wrong.push(format!(
                "{job} is at {at:?}; it was said to be at {adopted:?}, ended: {ended}, asked for: \
                 {asked}"
            ));
        }
    }
    places.into_keys().collect()
}
