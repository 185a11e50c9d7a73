//! What was seen and promised, and the histories that it is held against: one line after another,
//! each begun by a restore.
//!
//! ```text
//! first   1 … 40 … 60 … 100               what came behind 60 is on this line alone
//! second           └─ cut 60 ── 101 …     it goes on behind the gap, to 100
//! ```

use super::Action;
use super::consumers::{self, Feed};
use crate::oracle::{Moment, Rows, all_rows};
use bytes::Bytes;
use siltstone::ingest::IngestJob;
use siltstone::{JobId, JobStatus, Seq, UnixMillis};
use siltstone_base::{ManifestId, TimelineId, WalId};
use siltstone_manifest::Manifest;
use siltstone_sst::wal::{WalBrings, WalRecord, decode};
use siltstone_tests::faults::Bucket;
use siltstone_tests::model::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// All times: what has an end in these histories ended long ago, or never does.
const NOW: UnixMillis = UnixMillis(2);

/// A writer that was opened.
#[derive(Default)]
struct Reign {
    /// What it showed first.
    from: Option<Seq>,
    accepted: Vec<(Seq, Vec<u8>)>,
    /// Large batches.
    large: Vec<(Seq, Vec<u8>)>,
    /// One that is on its way: whether it was accepted nobody has heard.
    under_way: Option<Vec<u8>>,
    acknowledged: Seq,
}

/// What a driver knows of a job.
#[derive(Default)]
pub(crate) struct Job {
    /// What it brings, as operations in their order.
    content: Vec<u8>,
    pub(super) replaces: bool,
    /// Somebody said that it is there since one of these at the latest.
    adopted_before: Vec<Seq>,
    requested: bool,
    /// Where somebody said that it is.
    adopted: Option<Seq>,
    /// Somebody said that it is no part of the database, and never will be.
    ended: bool,
    /// And that after somebody had tried to restore it.
    ended_amid_restores: bool,
}

/// What was seen and promised.
#[derive(Default)]
pub(crate) struct Books {
    pub(super) did: BTreeMap<Action, u64>,
    pub(super) jobs: BTreeMap<JobId, Job>,
    reigns: BTreeMap<u64, Reign>,
    /// What writers showed, by epoch and number.
    pub(super) looks: Vec<(u64, Seq, Rows)>,
    /// What consumers were told, by name.
    pub(super) feeds: BTreeMap<&'static str, Feed>,
    /// Somebody has tried to restore it.
    pub(super) restoring: bool,
    wrong: Vec<String>,
}

impl Books {
    /// The writer of `epoch` came up.
    pub(super) fn opened(&mut self, epoch: u64, at: Seq) {
        self.reigns.entry(epoch).or_default().from.get_or_insert(at);
    }

    pub(super) fn accepted(&mut self, epoch: u64, first: Seq, batch: &[u8]) {
        self.reigns.entry(epoch).or_default().accepted.push((first, batch.to_vec()));
    }

    /// A large batch is on its way, or was given up: then nothing was written.
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

    /// A driver is about to close a job that brings this.
    pub(super) fn closes(&mut self, job: &IngestJob, content: Vec<u8>) {
        let known = self.jobs.entry(job.id).or_default();
        known.content = content;
        known.replaces = job.replace.is_some();
    }

    /// It was asked for, and that was accepted.
    pub(super) fn requested(&mut self, job: JobId) {
        self.jobs.entry(job).or_default().requested = true;
    }

    /// It was said to stand like this.
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
            // All that was staged is there until it may not be asked for any more.
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
    /// Whether the log ever had it.
    pub(super) landed: bool,
    pub(super) what: What,
}

#[derive(Clone)]
pub(super) enum What {
    Batch(Vec<u8>),
    /// All of it at one number.
    Large(Vec<u8>),
    Job(JobId),
}

/// What came one after the other.
#[derive(Clone, Default)]
pub(super) struct History {
    pub(super) steps: Vec<Step>,
    /// Restores: the last number before each, and the first behind it.
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

    /// Whether somebody who follows may stand at `seq`.
    fn shows(&self, seq: Seq) -> bool {
        let inside = |(cut, begins): &(Seq, Seq)| *cut < seq && seq.next() < *begins;
        seq <= self.end() && !self.gaps.iter().any(inside)
    }

    /// What of it landed, up to `cut`.
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

/// Those that the manifests tell of, by the epoch of whoever restored: of each number the first
/// that ever was counts.
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

/// A line of history, as far as it came.
#[derive(Clone, Default)]
pub(super) struct Line {
    pub(super) history: History,
    /// What was acknowledged of it.
    promised: Seq,
}

/// What an epoch put into the log, whether it counts or not.
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
                    let WalBrings::Job { job, digest } = one.brings else {
                        epoch.large.insert(first);
                        continue;
                    };
                    let place = (first, last, digest);
                    let before = epoch.jobs.insert(job, place.clone());
                    if before.is_some_and(|before| before != place) {
                        wrong.push(format!("epoch {} took {job} in twice", object.epoch));
                    }
                }
                other => wrong.push(format!("an unknown record: {other:?}")),
            }
        }
    }
    all
}

/// All that is known of histories.
#[derive(Default)]
struct Histories {
    /// By epoch, the own part up to what is known.
    of_epochs: BTreeMap<u64, History>,
    /// By the restore that began it.
    lines: BTreeMap<Option<TimelineId>, Line>,
    /// The one that is written to.
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

    /// A writer goes on with the line of this moment.
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
            // What follows a job that the log never had is nobody's.
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
    // Whoever was killed may have had one accepted.
    let mut unheard = reign.under_way.iter();
    for at in logged.large.iter().filter(|at| !reign.large.iter().any(|(known, _)| known == *at)) {
        match unheard.next() {
            Some(bytes) => own.push(large(&(*at, bytes.clone()))),
            None => wrong.push(format!("the log has a large batch at {at} that nobody wrote")),
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

/// What judging came to.
#[derive(Default)]
pub(super) struct Judged {
    /// The jobs that are part of the history.
    pub(super) adopted: Vec<JobId>,
    /// Rows that consumers were told.
    pub(super) told: u64,
    pub(super) wrong: Vec<String>,
}

/// Holds everything against the history, by every object of the log and every manifest that ever
/// was.
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

/// Each job is in the history once where it was said to be; of what a restore undid nothing is, and
/// nothing of it comes again.
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
            // It may have been given up while a restore had undone it, and be part of the history
            // again since one of a state before that.
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
