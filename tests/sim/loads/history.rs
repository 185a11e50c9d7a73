//! What was seen and promised, and the history that it is held against.

use super::Action;
use super::consumers::{self, Feed};
use crate::oracle::{Moment, Rows, all_rows};
use bytes::Bytes;
use siltstone::ingest::IngestJob;
use siltstone::{JobId, Seq, Standing, UnixMillis};
use siltstone_base::WalId;
use siltstone_sst::wal::{WalBrings, WalRecord, decode};
use siltstone_tests::model::Model;
use std::collections::{BTreeMap, BTreeSet};

/// All times: what has an end in these histories ended long ago, or never does.
const NOW: UnixMillis = UnixMillis(2);

/// A writer that was opened.
#[derive(Default)]
struct Reign {
    /// What it showed first.
    from: Option<Seq>,
    accepted: Vec<(Seq, Vec<u8>)>,
    acknowledged: Seq,
}

/// What a driver knows of a job.
#[derive(Default)]
pub(crate) struct Job {
    /// What it brings, as operations in their order.
    content: Vec<u8>,
    pub(super) replaces: bool,
    requested: bool,
    /// Where somebody said that it is.
    adopted: Option<Seq>,
    /// Somebody said that it is no part of the database, and never will be.
    ended: bool,
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
    pub(super) fn stands(&mut self, job: JobId, standing: &Standing) {
        let known = self.jobs.entry(job).or_default();
        match standing {
            Standing::Adopted(seq) => {
                if known.adopted.is_some_and(|before| before != *seq) {
                    self.wrong.push(format!("{job} is at two places: {seq}, {:?}", known.adopted));
                }
                known.adopted = Some(*seq);
            }
            Standing::Withdrawn => known.ended = true,
            // All that was staged is there until it may not be asked for any more.
            Standing::Refused(why) => self.wrong.push(format!("{job} was refused: {why}")),
            Standing::Open | Standing::Pending | Standing::Ended | Standing::Forgotten => {}
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
    Job(JobId),
}

type History = Vec<Step>;

/// What an epoch put into the log, whether it counts or not.
#[derive(Default)]
struct Logged {
    batches: BTreeSet<Seq>,
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
                        wrong.push("nobody writes large batches here".to_owned());
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

/// The history of every epoch, the own part up to what is known.
fn histories(
    books: &Books,
    logged: &BTreeMap<u64, Logged>,
    wrong: &mut Vec<String>,
) -> BTreeMap<u64, History> {
    let nothing = (Reign::default(), Logged::default());
    let epochs: BTreeSet<u64> = books.reigns.keys().chain(logged.keys()).copied().collect();
    let mut all: BTreeMap<u64, History> = BTreeMap::new();
    let mut promised = Seq::NONE;
    for epoch in epochs {
        let reign = books.reigns.get(&epoch).unwrap_or(&nothing.0);
        let own = own_steps(reign, logged.get(&epoch).unwrap_or(&nothing.1));
        let before = own.first().map(|step| step.first.minus(1));
        let Some(cut) = reign.from.into_iter().chain(before).min() else { continue };
        let parent = all.values().next_back().map(Vec::as_slice).unwrap_or_default();
        let counts = |step: &&Step| step.landed && step.last <= cut;
        let mut history: History = parent.iter().filter(counts).cloned().collect();
        if parent.iter().any(|step| step.first <= cut && cut < step.last) {
            wrong.push(format!("epoch {epoch} recovered up to {cut}, in the middle of a step"));
        }
        let recovered = end_of(&history);
        if recovered < promised {
            wrong.push(format!("epoch {epoch} recovered {recovered}, and {promised} was promised"));
        }
        for step in own {
            // What follows a job that the log never had is nobody's.
            if step.first == end_of(&history).next() {
                history.push(step);
            }
        }
        if reign.acknowledged > end_of(&history) {
            let (said, end) = (reign.acknowledged, end_of(&history));
            wrong.push(format!("epoch {epoch} acknowledged {said}, and its log ends at {end}"));
        }
        promised = promised.max(reign.acknowledged);
        all.insert(epoch, history);
    }
    all
}

fn own_steps(reign: &Reign, logged: &Logged) -> History {
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
    let mut own: History = reign.accepted.iter().map(batch).collect();
    own.extend(logged.jobs.iter().map(job));
    own.sort_by_key(|step| step.first);
    own
}

fn end_of(history: &[Step]) -> Seq {
    history.last().map_or(Seq::NONE, |step| step.last)
}

fn model_of(history: &[Step], jobs: &BTreeMap<JobId, Job>) -> Model {
    let mut model = Model::default();
    for step in history {
        match &step.what {
            What::Batch(bytes) => drop(model.apply(step.first, bytes).expect("a batch")),
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

/// Holds everything against the history.
pub(super) fn judge(
    books: &Books,
    log: &[(WalId, Bytes)],
    readers: &[(Seq, Moment, Rows)],
) -> Judged {
    let mut wrong = books.wrong.clone();
    let logged = logged(log, &mut wrong);
    let all = histories(books, &logged, &mut wrong);
    let models: BTreeMap<u64, Model> =
        all.iter().map(|(epoch, history)| (*epoch, model_of(history, &books.jobs))).collect();
    for (epoch, seq, rows) in &books.looks {
        let (Some(history), Some(model)) = (all.get(epoch), models.get(epoch)) else { continue };
        if *seq <= end_of(history) && all_rows(model, *seq, NOW) != *rows {
            wrong.push(format!("epoch {epoch} showed something else at {seq}"));
        }
    }
    let Some((history, model)) = all.values().zip(models.values()).next_back() else {
        return Judged { wrong, ..Judged::default() };
    };
    for (seq, _, rows) in readers {
        if *seq > end_of(history) || all_rows(model, *seq, NOW) != *rows {
            wrong.push(format!("a reader's view at {seq} is not that of the history that won"));
        }
    }
    let content = |job| books.jobs.get(&job).map(|known| known.content.clone());
    let content = |job| content(job).unwrap_or_default();
    let (unfit, told) = consumers::judge(&books.feeds, history, content);
    wrong.extend(unfit);
    let mut places: BTreeMap<JobId, Vec<Seq>> = BTreeMap::new();
    for step in history {
        if let What::Job(job) = step.what {
            places.entry(job).or_default().push(step.last);
        }
    }
    for (job, known) in &books.jobs {
        let at = places.get(job).map(Vec::as_slice).unwrap_or_default();
        let fits = match (known.adopted, known.ended) {
            (Some(seq), false) => at == [seq],
            (None, true) => at.is_empty(),
            (Some(_), true) => false,
            (None, false) => at.len() <= 1 && (!known.requested || at.len() == 1),
        };
        if !fits {
            let (adopted, ended, asked) = (known.adopted, known.ended, known.requested);
            wrong.push(format!(
                "{job} is at {at:?}; it was said to be at {adopted:?}, ended: {ended}, asked for: \
                 {asked}"
            ));
        }
    }
    Judged { adopted: places.into_keys().collect(), told, wrong }
}
