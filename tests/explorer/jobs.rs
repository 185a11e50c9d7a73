//! Jobs of the model: everything in L0 and the runs is merged into run 0. A job has one or two key
//! ranges, and each range one or two tables, so that a process that continues a range finds a part
//! of it recorded. Rows are assigned to tables by their sequence number.

use crate::actor::{Call, Create, Progress, owner, without};
use crate::ghost::Ghost;
use crate::step::{Step, What};
use crate::world::{Object, Out, Record, Stored, World, describe};
use bytes::Bytes;
use siltstone_base::{AttemptId, JobId, ObjectName, SstDescriptor, SstId, UnixMillis};
use siltstone_manifest::Manifest;
use siltstone_manifest::compaction::record::{RecordAnswer, RecordRequest};
use siltstone_manifest::compaction::{
    Append, Change, Claim, Compactions, Job, JobParameters, JobRange, KeyRange, Layer, PlanReason,
};
use std::sync::Arc;

/// The ranges and tables of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) ranges: u8,
    /// Tables of each range.
    pub(crate) tables: u8,
}

/// One range, one table.
pub(crate) const WHOLE: Shape = Shape { ranges: 1, tables: 1 };

impl Shape {
    /// The shape of a job in the record.
    pub(crate) fn of(job: &Job) -> Shape {
        let ranges = job.ranges.len() as u8;
        Shape { ranges, tables: job.parameters.cut_prefix_bytes as u8 }
    }

    fn slots(self) -> u8 {
        self.ranges * self.tables
    }

    fn keys(self, range: u8) -> KeyRange {
        let from = |range: u8| Bytes::from(vec![b'a' + range * self.tables]);
        let last = range + 1 == self.ranges;
        KeyRange { start: from(range), end: (!last).then(|| from(range + 1)), bottom: true }
    }
}

/// The job that merges all of `state`.
pub(crate) fn job(id: JobId, state: &Manifest, shape: Shape) -> Job {
    let layer = |tables: &[SstDescriptor]| tables.iter().map(|table| table.id).collect();
    let l0 = state.l0.iter().map(|entry| (Layer::L0(entry.order), layer(&entry.tables)));
    let runs = state.runs.iter().map(|run| (Layer::Run(run.id), layer(&run.tables)));
    Job {
        id,
        reason: PlanReason::Manual,
        planned_on: state.id,
        started_at: UnixMillis(0),
        inputs: l0.chain(runs).collect(),
        destination: 0,
        drops: Vec::new(),
        moves: Vec::new(),
        parameters: JobParameters {
            cut_prefix_bytes: u16::from(shape.tables),
            ..JobParameters::default()
        },
        ranges: (0..shape.ranges).map(|range| JobRange::open(shape.keys(range))).collect(),
        cancelled: false,
    }
}

/// The names that a process uses: its `count`-th.
pub(crate) fn name_of(me: usize, count: u8) -> SstId {
    SstId((me as u128 + 1) << 8 | u128::from(count))
}

/// The identity of a process's claims.
pub(crate) fn worker_of(me: usize) -> AttemptId {
    AttemptId(me as u128 + 1)
}

/// The claim of a process.
pub(crate) fn claim_of(me: usize) -> Claim {
    Claim { worker: worker_of(me), heartbeats: 0 }
}

/// A range to claim, of a job in the newest record, and the claim that it replaces.
pub(crate) type Claimable<'a> = (&'a Arc<Compactions>, JobId, usize, Option<Claim>);

/// The claim of a range by a process that has used `names` names.
pub(crate) fn claims(world: &World, me: usize, names: u8, wanted: Claimable<'_>) -> Append {
    let (record, job, range, instead_of) = wanted;
    let names = vec![name_of(me, names)];
    let change = Change::Claim { job, range, worker: worker_of(me), instead_of, names };
    Append::new(change, record.clone(), world.rules)
}

/// The range that `worker` has claimed in a job that continues.
pub(crate) fn claimed(record: &Compactions, worker: AttemptId) -> Option<(&Job, usize)> {
    record.jobs.iter().filter(|job| !job.cancelled).find_map(|job| {
        let mine = |range: &JobRange| range.claim.is_some_and(|claim| claim.worker == worker);
        Some((job, job.ranges.iter().position(mine)?))
    })
}

/// The next table of a range: its content, its name, and whether it is the last.
pub(crate) struct Made {
    pub(crate) table: SstDescriptor,
    pub(crate) rows: Vec<Record>,
    pub(crate) last: bool,
}

/// The next table of a range that is not done.
pub(crate) fn next_table(ghost: &Ghost, job: &Job, range: usize) -> Option<Made> {
    table_named(ghost, job, range, *job.ranges.get(range)?.reserved.first()?)
}

/// The same under a name that is not reserved.
pub(crate) fn table_named(ghost: &Ghost, job: &Job, range: usize, id: SstId) -> Option<Made> {
    let (shape, one) = (Shape::of(job), job.ranges.get(range)?);
    let made = u8::try_from(one.outputs.len()).ok().filter(|made| *made < shape.tables)?;
    let slot = u8::try_from(range).ok()? * shape.tables + made;
    let mut rows = ghost.rows_of(job.input_ids());
    rows.retain(|row| row.seq % u64::from(shape.slots()) == u64::from(slot));
    let table = SstDescriptor {
        first_key: Bytes::from(vec![b'a' + slot]),
        last_key: Bytes::from(vec![b'a' + slot, b'~']),
        ..describe(id, &rows)
    };
    Some(Made { table, rows, last: made + 1 == shape.tables })
}

/// The object that a process creates for a record.
pub(crate) fn record_object(me: usize, record: &Arc<Compactions>) -> (ObjectName, Object) {
    let stored = Stored { owner: owner(me), state: record.clone() };
    (ObjectName::Compactions(record.number), Object::Jobs(stored))
}

/// The steps of one request about records.
pub(crate) fn record_steps(
    world: &World,
    (me, role): (usize, &'static str),
    request: &RecordRequest,
    call: Call,
    out: &mut Out,
    then: impl Fn(&mut World, Result<RecordAnswer, Call>),
) {
    if let RecordRequest::Create(record) = request {
        let (name, object) = record_object(me, record);
        let create = Create { me, role, name, object };
        create.steps(world, call, out, |next, progress| match progress {
            Progress::Call(call) => then(next, Err(call)),
            Progress::Outcome(outcome) => {
                then(next, Ok(RecordAnswer::Created(without(outcome))));
            }
        });
        return;
    }
    let Some(answer) = world.store.record_answer(request) else { return };
    let what = match (request, &answer) {
        (_, RecordAnswer::Listed(listing)) => What::ListsRecords(*listing),
        (RecordRequest::Read(number), RecordAnswer::Read(read)) => {
            What::ReadsRecord(*number, read.is_some())
        }
        _ => return,
    };
    world.then(out, Step::of(me, role, what), |next| then(next, Ok(answer)));
}
