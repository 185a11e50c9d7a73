use super::*;
use siltstone_base::id::NUMBERS_A_MILLI;
use siltstone_base::{Epoch, JobId};
use std::collections::BTreeMap;

const DATABASE: DatabaseId = DatabaseId(7);

/// Records as in a store, with the boundary.
#[derive(Default)]
struct Store {
    records: BTreeMap<u64, Arc<Compactions>>,
    boundary: u64,
    requests: usize,
}

impl Store {
    fn answer(&mut self, request: RecordRequest) -> RecordAnswer {
        self.requests += 1;
        match request {
            RecordRequest::Create(record) => {
                if let Some(there) = self.records.get(&record.number) {
                    let own = Arc::ptr_eq(there, &record);
                    let outcome = if own { PutOutcome::Committed } else { PutOutcome::Lost(()) };
                    return RecordAnswer::Created(outcome);
                }
                self.records.insert(record.number, record);
                RecordAnswer::Created(PutOutcome::Committed)
            }
            RecordRequest::List => {
                let newest = self.records.keys().next_back().copied().unwrap_or_default();
                RecordAnswer::Listed(RecordListing { newest, boundary: self.boundary })
            }
            RecordRequest::Read(number) => RecordAnswer::Read(self.records.get(&number).cloned()),
        }
    }

    fn run(&mut self, append: &mut Append) -> Result<Arc<Compactions>, ChangeRefusal> {
        for _ in 0..50 {
            match append.action() {
                AppendAction::Request(request) => append.on_answer(self.answer(request)),
                AppendAction::Done(record) => return Ok(record),
                AppendAction::Failed(refusal) => return Err(refusal),
            }
        }
        panic!("no end: {append:?}");
    }

    fn append(
        &mut self,
        change: Change,
        base: &Arc<Compactions>,
    ) -> Result<Arc<Compactions>, ChangeRefusal> {
        self.run(&mut Append::new(change, base.clone(), Rules::ALL))
    }

    /// Frees every record up to `number`.
    fn free(&mut self, number: u64) {
        self.boundary = number;
        self.records.retain(|each, _| *each > number);
    }
}

fn none() -> Arc<Compactions> {
    Arc::new(Compactions::none(DATABASE))
}

fn take_over(epoch: u64) -> Change {
    Change::TakeOver { epoch: Epoch(epoch) }
}

/// Adds a record; a change without jobs to forget counts as a change.
fn forget(epoch: u64) -> Change {
    Change::Forget { epoch: Epoch(epoch), jobs: vec![JobId(1)] }
}

/// A chain of `length` records, each under its own epoch.
fn chain(length: u64) -> (Store, Arc<Compactions>) {
    let mut store = Store::default();
    let mut newest = none();
    for epoch in 1..=length {
        newest = store.append(take_over(epoch), &newest).unwrap();
    }
    (store, newest)
}

#[test]
fn alone_a_change_costs_two_requests() {
    let (store, newest) = chain(3);
    assert_eq!((newest.number, newest.epoch, store.requests), (3, Epoch(3), 6));
}

#[test]
fn an_old_base_is_planned_again() {
    let (mut store, newest) = chain(3);
    let made = store.append(take_over(4), &none()).unwrap();
    assert_eq!((made.number, made.epoch), (4, Epoch(4)));
    // It is in effect already: nothing is created.
    assert_eq!(store.append(take_over(4), &newest).unwrap(), made);
    assert_eq!(store.append(take_over(4), &made).unwrap(), made);
    assert_eq!(store.records.len(), 4);
}

#[test]
fn a_refusal_counts_from_the_newest_only() {
    let (mut store, newest) = chain(3);
    let old = store.records[&2].clone();
    assert_eq!(store.append(take_over(2), &newest), Err(ChangeRefusal::Fenced { by: Epoch(3) }));
    // Epoch 2 plans on its own record, which was valid.
    let cancel = Change::Cancel { epoch: Epoch(2), job: JobId(1) };
    assert_eq!(store.append(cancel, &old), Err(ChangeRefusal::Fenced { by: Epoch(3) }));
}

/// Planted bug 3: a compactor slept while its number was freed. Its create succeeds, and is not
/// trusted.
#[test]
fn a_record_in_a_freed_slot_is_not_believed() {
    let (mut store, _) = chain(6);
    let old = store.records[&2].clone();
    store.free(5);
    let late =
        Append::new(Change::Cancel { epoch: Epoch(2), job: JobId(1) }, old.clone(), Rules::ALL);
    assert!(matches!(late.phase, AppendPhase::Verify(_)), "no such job");
    let mut late = Append::new(take_over(3), old, Rules::ALL);
    assert_eq!(store.run(&mut late), Err(ChangeRefusal::Fenced { by: Epoch(6) }));
    assert!(store.records.contains_key(&3), "it did land");
    // No observer takes it for the newest, or trusts it after reading it.
    let mut look = Append::look(DATABASE, Rules::ALL);
    assert_eq!(store.run(&mut look).unwrap().number, 6);
    let zombie = store.records[&3].clone();
    assert_eq!(store.append(take_over(3), &zombie), Err(ChangeRefusal::Fenced { by: Epoch(6) }));
}

#[test]
fn a_lost_answer_is_settled_in_its_slot() {
    let (mut store, newest) = chain(1);
    let mut append = Append::new(take_over(2), newest, Rules::ALL);
    let AppendAction::Request(create) = append.action() else { panic!() };
    store.answer(create.clone());
    append.on_answer(RecordAnswer::Created(PutOutcome::Unknown));
    assert_eq!(append.action(), AppendAction::Request(create));
    assert_eq!(store.run(&mut append).unwrap().number, 2);
    assert_eq!(store.records.len(), 2);
}

/// The create landed, others continued, the slot was freed: the newest record decides.
#[test]
fn a_change_whose_slot_was_freed_is_recognised_or_made_again() {
    let (mut store, newest) = chain(1);
    let mut append = Append::new(take_over(2), newest.clone(), Rules::ALL);
    let AppendAction::Request(create) = append.action() else { panic!() };
    let RecordAnswer::Created(_) = store.answer(create) else { panic!() };
    append.on_answer(RecordAnswer::Created(PutOutcome::Unknown));
    let second = store.records[&2].clone();
    let job = Change::Forget { epoch: Epoch(2), jobs: vec![] };
    assert_eq!(store.append(job, &second).unwrap(), second, "nothing to do");
    let third = store.append(take_over(3), &second).unwrap();
    store.free(2);
    // Epoch 3 is in the newest record: epoch 2 has ended, whether its change was made or not.
    assert_eq!(store.run(&mut append), Err(ChangeRefusal::Fenced { by: Epoch(3) }));
    assert_eq!(store.append(forget(3), &third).unwrap(), third);
}

/// A record from before the job lacks it, as one after the job does.
#[test]
fn a_forgotten_job_shows_in_the_newest_only() {
    let (mut store, newest) = chain(2);
    let mut with_job = (*newest).clone();
    with_job.number = 3;
    with_job.jobs = vec![crate::compaction::record::tests::job(1)];
    store.records.insert(3, Arc::new(with_job));
    let made = store.append(forget(2), &newest).unwrap();
    assert_eq!((made.number, made.jobs.len()), (4, 0));
}

#[test]
fn a_chain_that_was_never_begun_is_empty() {
    let mut store = Store::default();
    assert_eq!(store.run(&mut Append::look(DATABASE, Rules::ALL)).unwrap(), none());
    assert_eq!(store.requests, 1);
}

/// Rule E1: a database was deleted at this place without the knowledge of its compactor and its
/// collector. The objects that they left, or leave later, do not matter: the chain of the new
/// database begins and continues above them. If it counted from 1, the look below would find a
/// boundary and no record above it, for ever, and the next look a record of the other database.
#[test]
fn records_of_an_earlier_database_are_ignored() {
    let first = 5 * NUMBERS_A_MILLI;
    let old = DatabaseId::counting_from(2 * NUMBERS_A_MILLI, 8);
    let new = DatabaseId::counting_from(first, 9);
    let left = |store: &mut Store, number: u64| {
        let record = Compactions { number, epoch: Epoch(3), ..Compactions::none(old) };
        store.records.insert(number, Arc::new(record));
    };
    let mut store = Store::default();
    store.free(old.counts_from() + 7);
    let look = || Append::look(new, Rules::ALL);
    let none = store.run(&mut look()).unwrap();
    assert_eq!(*none, Compactions::none(new));
    left(&mut store, old.counts_from() + 8);
    assert_eq!(store.run(&mut look()).unwrap(), none);
    let made = store.append(take_over(1), &none).unwrap();
    assert_eq!((made.number, made.database), (first, new));
    store.boundary = old.counts_from() + 8;
    left(&mut store, old.counts_from() + 9);
    assert_eq!(store.run(&mut look()).unwrap(), made);
    assert_eq!(store.append(take_over(2), &made).unwrap().number, first + 1);
    // A refusal needs no record of its own as proof.
    let mut empty = Store { boundary: store.boundary, ..Store::default() };
    let cancel = Change::Cancel { epoch: Epoch(1), job: JobId(1) };
    let refused = empty.append(cancel, &Arc::new(Compactions::none(new)));
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn answers_to_other_questions_are_ignored() {
    let (_, newest) = chain(1);
    let mut append = Append::new(take_over(2), newest, Rules::ALL);
    let before = append.clone();
    append.on_answer(RecordAnswer::Read(None));
    append.on_answer(RecordAnswer::Listed(RecordListing { newest: 9, boundary: 9 }));
    assert_eq!(append, before);
}
