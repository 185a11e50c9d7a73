//! Jobs of overtaken compactors, and of trees that disappeared under them.

use crate::compactor::{Ended, compacting, filled, how, killed_at, rows, sleeper, small};
use crate::place::Place;
use siltstone::{CheckpointOptions, CompactorProcess, ErrorKind, admin};
use siltstone_base::SstId;
use siltstone_manifest::compaction::Compactions;
use siltstone_tests::gc;
use std::sync::Arc;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(5);

/// Its end: in order, or fenced. Returns whether it was fenced.
fn was_fenced(ended: &Ended, case: &str) -> bool {
    let kind = ended.lock().take().expect("it ends").map_err(|error| error.kind());
    assert!(matches!(kind, Ok(_) | Err(ErrorKind::Fenced)), "{case}: {kind:?}");
    kind.is_err()
}

fn record(place: &Place) -> Arc<Compactions> {
    let (process, env) = place.process();
    let database = place.newest().database;
    let newest = place.run(process, async move { gc::newest_record(&env, database).await });
    newest.expect("a healthy store")
}

/// Tables recorded by jobs that are not finished according to the manifest.
fn recorded(place: &Place) -> Vec<SstId> {
    let (record, state) = (record(place), place.newest());
    let finished = record.finished(&state);
    let left = record.jobs.iter().filter(|job| !finished.contains(&job.id));
    left.flat_map(|job| job.outputs().map(|table| table.id)).collect()
}

/// The next compactor ends in order, and adds all tables of `recorded` to the tree.
fn is_kept(place: &Place, recorded: &[SstId], case: &str) {
    let (process, env) = place.process();
    let next = place.run(process, compacting(env));
    assert!(next.is_ok(), "{case}: {next:?}");
    let state = place.newest();
    let named: Vec<SstId> = state.tables().map(|table| table.id).collect();
    let kept = recorded.iter().filter(|table| named.contains(table)).count();
    assert_eq!(kept, recorded.len(), "{case}: recorded tables are done again");
}

/// Two compactors have planned when they continue, the older first: its job is recorded or not, and
/// the younger one takes it over instead of its tables.
#[test]
fn neither_of_two_planners_takes_the_others_tables() {
    let mut fenced = 0;
    for (first, second) in (6..26).flat_map(|first| (6..26).map(move |second| (first, second))) {
        let case = format!("{first} {second}");
        let place = Place::new(|plan| plan);
        let rows = filled(&place);
        let sleepers = [sleeper(&place, first), sleeper(&place, second)];
        for (process, _) in &sleepers {
            place.sim.resume(*process);
            place.pass(2);
        }
        place.pass(30);
        let told = sleepers.iter().filter(|(_, ended)| was_fenced(ended, &case));
        fenced += told.count();
        is_kept(&place, &recorded(&place), &case);
        assert_eq!(self::rows(&place), rows, "{case}");
    }
    assert!(fenced > 0, "no compactor was overtaken");
}

/// A compactor sleeps between its plan and its record, another moves one of its tables, which needs
/// no job: the sleeper's job is not recorded, or it was recorded before the move. A job recorded
/// after it was merged completely by its workers, and then aborted.
#[test]
fn one_that_was_overtaken_by_a_move_records_no_job() {
    let mut fenced = 0;
    for step in 4..40 {
        let case = format!("step {step}");
        let place = Place::new(|plan| plan);
        let rows = filled(&place);
        let (process, ended) = sleeper(&place, step);
        let oldest = place.newest().l0.last().map(|entry| format!("L0:{} -> 7", entry.order));
        if let Some(plan) = oldest {
            let (mover, env) = place.process();
            let moved = place.run(mover, async move {
                let one = CompactorProcess::open(env, how(small(), 0), |_| {}).await?;
                one.submit(&plan).await
            });
            let known = moved.as_ref().map_err(siltstone::Error::kind);
            // The sleeper's recorded job ends first, and takes the table with it.
            assert!(matches!(known, Ok(_) | Err(ErrorKind::Invalid)), "{case}: {moved:?}");
        }
        place.sim.resume(process);
        place.pass(30);
        fenced += usize::from(was_fenced(&ended, &case));
        is_kept(&place, &recorded(&place), &case);
        assert_eq!(self::rows(&place), rows, "{case}");
    }
    assert!(fenced > 5, "overtaken {fenced} times");
}

/// A restore removes the tables of a left-over job: the next compactor aborts the job, without an
/// error.
#[test]
fn a_leftover_whose_tables_a_restore_took_is_given_up_in_silence() {
    let mut left = 0;
    for step in (17..80).step_by(3) {
        let place = Place::new(|plan| plan);
        let rows = filled(&place);
        let (process, env) = place.process();
        let kept = place.run(process, async move {
            admin::create_checkpoint(&env, &CheckpointOptions::default(), DEADLINE).await
        });
        let kept = kept.expect("a healthy store");
        place.flushes(&["other"]);
        killed_at(&place, step, compacting);
        let before = recorded(&place).len();
        let (process, env) = place.process();
        let restored = place
            .run(process, async move { admin::restore(&env, &kept.id.into(), &small()).await });
        restored.expect("a healthy store");
        let given_up = record(&place).jobs.len() - record(&place).finished(&place.newest()).len();
        left += usize::from(before > 0 && given_up > 0);
        let (process, env) = place.process();
        let next = place.run(process, compacting(env));
        assert!(next.is_ok(), "step {step}: {next:?}");
        assert_eq!(self::rows(&place), rows, "step {step}");
    }
    assert!(left > 5, "{left} jobs with tables were left behind");
}
