use super::*;
use crate::ingest::{JobApp, JobStatus, deadline, pending, standing, standing_as, standing_since};
use crate::state::{
    IngestOutcome, L0Entry, MOST_PENDING, MOST_REMEMBERED, RememberedIngest, Timeline,
};
use bytes::Bytes;
use siltstone_base::id::ulid_bits;
use siltstone_base::{DatabaseId, ObjectId, SstDescriptor, TimelineId};

fn job(millis: u64, number: u128) -> JobId {
    JobId(ulid_bits(millis, number))
}

fn request(job: JobId) -> RequestIngest {
    RequestIngest {
        job,
        database: DatabaseId(77),
        timeline: None,
        digest: Bytes::from_static(b"parts"),
        app: None,
        requested_at: UnixMillis(5),
    }
}

fn of_app(job: JobId, version: u64) -> RequestIngest {
    of_app_since(job, version, 0)
}

fn of_app_since(job: JobId, version: u64, forgotten: u64) -> RequestIngest {
    let app = JobApp { name: "stream".to_owned(), version, forgotten };
    RequestIngest { app: Some(app), ..request(job) }
}

fn ask(base: &Manifest, request: RequestIngest) -> Result<Manifest, Refusal> {
    Edit::Ingest(IngestEdit::Request(request)).apply(base)
}

fn no(conflict: IngestConflict) -> Result<Manifest, Refusal> {
    Err(Refusal::Conflict(Conflict::Ingest(conflict)))
}

fn staged(job: JobId, id: u128, first: &[u8], last: &[u8], seq: u64) -> SstDescriptor {
    let table = table(SstId(id), first, last, 0, 0);
    SstDescriptor { job: Some(job), seq_override: Some(Seq(seq)), ..table }
}

fn install(job: JobId, after: usize, tables: Vec<SstDescriptor>) -> InstallIngest {
    InstallIngest { after, job, digest: Bytes::from_static(b"parts"), layers: vec![tables] }
}

/// The writer of `manifest()` flushes only these jobs.
fn installing(base: &Manifest, ingests: Vec<InstallIngest>, flushed: u64) -> Edit {
    let (epoch, flushed_seq) = (base.writer_epoch, Seq(flushed));
    Edit::FlushL0(FlushL0 { ingests, flushed_seq, ..FlushL0::nothing(epoch, base) })
}

#[test]
fn the_feature_is_named_once_and_first() {
    let edit = Edit::Ingest(IngestEdit::Begin);
    assert!(!edit.in_effect(&empty()));
    let next = edit.apply(&empty()).unwrap();
    assert!(edit.in_effect(&next) && next.features.check_committable().is_ok());
    assert_eq!(edit.apply(&next).unwrap().features.named.len(), 1);
    // A request without a recorded feature adds the feature too.
    assert!(ask(&empty(), request(job(9, 1))).unwrap().features.names("ingest"));
}

#[test]
fn a_request_waits_and_shows_its_outcome() {
    let (base, one) = (manifest(), job(9_000, 1));
    let asked = Edit::Ingest(IngestEdit::Request(request(one)));
    assert!(!asked.in_effect(&base));
    let next = asked.apply(&base).unwrap();
    assert!(asked.in_effect(&next));
    assert_eq!(next.pending_ingests.len(), base.pending_ingests.len() + 1);
    // A repeated request changes nothing.
    assert_eq!(asked.apply(&next).unwrap().pending_ingests, next.pending_ingests);
    let other = RequestIngest { digest: Bytes::from_static(b"others"), ..request(one) };
    assert_eq!(ask(&next, other), no(IngestConflict::OtherContent));
    let edit = installing(&next, vec![install(one, 0, vec![staged(one, 90, b"a", b"b", 61)])], 61);
    let installed = edit.apply(&next).unwrap();
    assert!(edit.in_effect(&installed) && !edit.in_effect(&next));
    assert_eq!(standing(&installed, one), JobStatus::Adopted(Seq(61)));
    assert!(asked.in_effect(&installed) && installed.tables_since == installed.id);
    let again = asked.apply(&installed).unwrap();
    assert_eq!(again.pending_ingests, base.pending_ingests);
    let reason = "a table is missing".to_owned();
    let refuse = Edit::Ingest(IngestEdit::Refuse { epoch: Epoch(2), job: one, reason });
    let refused = refuse.apply(&next).unwrap();
    assert!(asked.in_effect(&refused) && refuse.in_effect(&refused));
    assert_eq!(standing(&refused, one), JobStatus::Refused("a table is missing".to_owned()));
    assert_eq!(asked.apply(&refused), no(IngestConflict::Ended));
}

#[test]
fn a_job_of_elsewhere_or_of_another_time_is_refused() {
    let one = job(9_000, 1);
    let other = RequestIngest { database: DatabaseId(1), ..request(one) };
    assert_eq!(ask(&manifest(), other), no(IngestConflict::OtherDatabase { here: DatabaseId(77) }));
    let other = RequestIngest { timeline: Some(TimelineId(1)), ..request(one) };
    assert_eq!(ask(&manifest(), other), no(IngestConflict::OtherTimeline));
    let horizon = UnixMillis(9_001);
    let late = Manifest { ingest_horizon: horizon, ..manifest() };
    assert_eq!(ask(&late, request(one)), no(IngestConflict::Forgotten { horizon }));
    let edit = Edit::Ingest(IngestEdit::Request(request(one)));
    assert!(edit.apply_with(&late, Rules::ALL.without(Rule::RequestAboveHorizon)).is_ok());
}

#[test]
fn no_more_wait_than_may() {
    let mut base = empty();
    for number in 0..MOST_PENDING as u128 {
        base = ask(&base, request(job(9_000, number))).unwrap();
    }
    assert_eq!(ask(&base, request(job(9_000, 1 << 40))), no(IngestConflict::Full));
}

/// The maximum number of remembered jobs, with deadlines from 1,000 on.
fn many_ended() -> Manifest {
    let ended = |number: u64| RememberedIngest {
        job: job(1_000 + number, 7),
        outcome: IngestOutcome::Withdrawn,
        reason: None,
    };
    let remembered_ingests = (0..MOST_REMEMBERED as u64).map(ended).collect();
    Manifest { remembered_ingests, ..manifest() }
}

/// N10: at the maximum number of ended jobs, another one is accepted; the earliest deadline is
/// forgotten.
#[test]
fn where_as_many_are_remembered_as_may_the_earliest_goes() {
    let (base, one) = (many_ended(), job(9_000, 1));
    let asked = ask(&base, request(one)).unwrap();
    assert_eq!((asked.remembered_ingests.len(), asked.ingest_horizon), (4_096, UnixMillis(0)));
    let tables = vec![staged(one, 90, b"a", b"b", 61)];
    let next = installing(&asked, vec![install(one, 0, tables)], 61).apply(&asked).unwrap();
    assert_eq!((next.remembered_ingests.len(), broken(&next)), (4_096, None));
    assert_eq!(standing(&next, one), JobStatus::Adopted(Seq(61)));
    // A forgotten job cannot be requested, nor one that began no later.
    let horizon = UnixMillis(1_001);
    for gone in [job(1_000, 7), job(1_000, 8), job(900, 1)] {
        assert_eq!(standing(&next, gone), JobStatus::Forgotten);
        assert_eq!(ask(&next, request(gone)), no(IngestConflict::Forgotten { horizon }));
    }
    assert_eq!(standing(&next, job(1_001, 7)), JobStatus::Withdrawn);
    assert!(ask(&next, request(job(1_001, 8))).is_ok());
    let withdraw = Edit::Ingest(IngestEdit::Withdraw { job: job(9_000, 2), app: None });
    let next = withdraw.apply(&next).unwrap();
    assert!(withdraw.in_effect(&next));
    assert_eq!((next.remembered_ingests.len(), next.ingest_horizon), (4_096, UnixMillis(1_002)));
}

/// Without the horizon a job that was installed, and pushed out by others, is installed again.
#[test]
fn a_job_forgotten_for_want_of_room_is_not_requested_again() {
    let twice = |rules: Rules| {
        let first = job(500, 1);
        let mut state = Manifest { remembered_ingests: Vec::new(), ..many_ended() };
        state = ask(&state, request(first)).unwrap();
        let tables = vec![staged(first, 90, b"a", b"b", 61)];
        let edit = installing(&state, vec![install(first, 0, tables)], 61);
        state = edit.apply_with(&state, rules).unwrap();
        for other in many_ended().remembered_ingests {
            let edit = Edit::Ingest(IngestEdit::Withdraw { job: other.job, app: None });
            state = edit.apply_with(&state, rules).unwrap();
        }
        let again = Edit::Ingest(IngestEdit::Request(request(first)));
        again.apply_with(&state, rules).is_ok_and(|next| pending(&next, first).is_some())
    };
    assert!(!twice(Rules::ALL));
    assert!(twice(Rules::ALL.without(Rule::ForgetBelowHorizon)));
}

/// N11: an equal version is answered, a lower one is a conflict, a higher one waits and is refused
/// with its predecessor.
#[test]
fn versions_of_an_application_ascend() {
    let [first, second, third] = [1, 2, 3].map(|number| job(9_000, number));
    let base = ask(&manifest(), of_app(first, 7)).unwrap();
    assert_eq!(ask(&base, of_app(second, 7)), no(IngestConflict::AppHas { job: first }));
    assert_eq!(ask(&base, of_app(second, 6)), no(IngestConflict::AppIsAhead { version: 7 }));
    let both = ask(&base, of_app(second, 8)).unwrap();
    let forget = Edit::Ingest(IngestEdit::ForgetApp { app: "stream".to_owned(), count: 0 });
    assert_eq!(forget.apply(&both), no(IngestConflict::AppPending));
    // The same for an application without a record that has a pending job; not for one without
    // either.
    assert!(!forget.in_effect(&base) && forget.in_effect(&manifest()));
    let (epoch, reason) = (Epoch(2), "empty".to_owned());
    let refuse = Edit::Ingest(IngestEdit::Refuse { epoch, job: first, reason });
    let refused = refuse.apply(&both).unwrap();
    assert!(
        matches!(standing(&refused, second), JobStatus::Refused(why) if why.contains("earlier"))
    );
    let edit =
        installing(&both, vec![install(first, 0, vec![staged(first, 90, b"a", b"b", 61)])], 61);
    let installed = edit.apply(&both).unwrap();
    assert_eq!(installed.ingest_apps[0].version, 7);
    assert_eq!(standing(&installed, first), JobStatus::Adopted(Seq(61)));
    assert!(installed.remembered_ingests.is_empty());
    assert_eq!(ask(&installed, of_app(third, 8)), no(IngestConflict::AppHas { job: second }));
    // Permanently: the horizon forgets jobs, not applications.
    let edit = Edit::Ingest(IngestEdit::Horizon { to: UnixMillis(20_000) });
    let late = edit.apply(&installed).unwrap();
    let again = of_app(job(30_000, 4), 7);
    assert_eq!(ask(&late, again), no(IngestConflict::AppIsAhead { version: 8 }));
}

#[test]
fn only_unrequested_jobs_are_taken_back() {
    let one = job(9_000, 1);
    let edit = Edit::Ingest(IngestEdit::Withdraw { job: one, app: None });
    let asked = ask(&manifest(), request(one)).unwrap();
    assert_eq!(edit.apply(&asked), no(IngestConflict::Requested));
    let back = edit.apply(&manifest()).unwrap();
    assert!(edit.in_effect(&back));
    assert_eq!(ask(&back, request(one)), no(IngestConflict::Ended));
    assert!(edit.apply(&back).is_ok());
}

#[test]
fn the_horizon_only_grows_and_forgets_below_it() {
    let [old, young] = [job(100, 1), job(200, 2)];
    let withdrawn = |job| Edit::Ingest(IngestEdit::Withdraw { job, app: None });
    let base = withdrawn(old).apply(&manifest()).unwrap();
    let base = withdrawn(young).apply(&base).unwrap();
    let edit = Edit::Ingest(IngestEdit::Horizon { to: UnixMillis(150) });
    let next = edit.apply(&base).unwrap();
    assert_eq!(next.remembered_ingests.len(), 1);
    assert_eq!(
        (standing(&next, old), standing(&next, young)),
        (JobStatus::Forgotten, JobStatus::Withdrawn)
    );
    assert_eq!(deadline(old), UnixMillis(100));
    let back = Edit::Ingest(IngestEdit::Horizon { to: UnixMillis(10) });
    assert!(back.in_effect(&next));
    assert_eq!(back.apply(&next).unwrap().ingest_horizon, UnixMillis(150));
}

/// N13: with everything older, under the epoch, while the job is pending.
#[test]
fn an_install_brings_what_is_pending_with_all_below_it() {
    let one = job(9_000, 1);
    let base = ask(&manifest(), request(one)).unwrap();
    let tables = || vec![staged(one, 90, b"a", b"b", 61)];
    let other = InstallIngest { digest: Bytes::new(), ..install(one, 0, tables()) };
    let bad = [
        (manifest(), installing(&manifest(), vec![install(one, 0, tables())], 61)),
        (base.clone(), installing(&base, vec![install(one, 0, Vec::new())], 61)),
        (base.clone(), installing(&base, vec![install(one, 0, tables())], 60)),
        (base.clone(), installing(&base, vec![other], 61)),
    ];
    for (base, edit) in bad {
        assert!(matches!(edit.apply(&base), Err(Refusal::Invalid(_))));
    }
    let older = manifest();
    let fenced = FlushL0 { epoch: Epoch(1), ..FlushL0::nothing(Epoch(1), &older) };
    assert!(matches!(Edit::FlushL0(fenced).apply(&base), Err(Refusal::Fenced { .. })));
}

/// Q2, P2: among the flush's layers the job has its position, above all older data.
#[test]
fn a_job_between_two_memtables_is_placed_between_them() {
    let one = job(9_000, 1);
    let base = ask(&Manifest { l0: Vec::new(), ..manifest() }, request(one)).unwrap();
    let tables = vec![staged(one, 90, b"c", b"d", 71), staged(one, 91, b"zz", b"zzz", 71)];
    let edit = Edit::FlushL0(FlushL0 {
        layers: vec![
            vec![table(SstId(50), b"a", b"m", 61, 70)],
            vec![table(SstId(51), b"c", b"c", 72, 80)],
        ],
        ingests: vec![install(one, 1, tables)],
        flushed_seq: Seq(80),
        ..flush(&base)
    });
    let next = edit.apply(&base).unwrap();
    let ids = |tables: &[SstDescriptor]| tables.iter().map(|one| one.id.0).collect::<Vec<_>>();
    let l0: Vec<_> = next.l0.iter().map(|entry: &L0Entry| ids(&entry.tables)).collect();
    assert_eq!(l0, [vec![51], vec![90], vec![50]]);
    // No table reaches up to zz: the last run takes it.
    assert_eq!(ids(&next.runs[1].tables), [9, 91]);
    assert!(edit.in_effect(&next));
}

/// P6: it gets a number and a run below all others, ends its request, and shows that it did.
#[test]
fn a_job_behind_is_installed_below_all_and_once() {
    let one = job(9_000, 1);
    let base = ask(&empty().allowing_behind(), request(one)).unwrap();
    let claim = claim(base.writer_epoch.get(), 2);
    let base = Edit::ClaimWriter(claim).apply(&base).unwrap();
    let digest = Bytes::from_static(b"parts");
    let part = |id, first: &[u8], last: &[u8]| SstDescriptor {
        seq_override: None,
        ..staged(one, id, first, last, 1)
    };
    let layers = vec![vec![part(90, b"a", b"f")], vec![part(91, b"c", b"d"), part(92, b"x", b"z")]];
    let behind = Some(InstallBehind { job: one, digest, layers });
    let checkpoint = Some(NewCheckpoint { id: CheckpointId(8), ..NewCheckpoint::default() });
    let nothing = FlushL0::nothing(base.writer_epoch, &base);
    let edit = Edit::FlushL0(FlushL0 { behind, checkpoint, ..nothing });
    assert!(!edit.in_effect(&base));
    let next = edit.apply(&base).unwrap();
    assert!(edit.in_effect(&next));
    let begins = crate::state::HISTORY_BEGINS;
    assert_eq!(standing(&next, one), JobStatus::Adopted(begins.minus(1)));
    let placed: Vec<_> = next
        .runs
        .iter()
        .map(|run| (run.id, run.tables[0].seq_override, run.tables.len()))
        .collect();
    let reserved = crate::state::RESERVED_RUNS;
    let (newer, older) = (begins.minus(1), begins.minus(2));
    assert_eq!(placed, [(reserved - 1, Some(newer), 2), (reserved - 2, Some(older), 1)]);
    assert_eq!((next.behind, next.flushed_seq), (Some(2), begins));
    assert!(matches!(edit.apply(&next), Err(Refusal::Invalid(_))), "it is pending no more");
}

#[test]
fn a_database_that_was_not_made_for_it_has_nothing_behind() {
    let one = job(9_000, 1);
    let base = ask(&manifest(), request(one)).unwrap();
    let digest = Bytes::from_static(b"parts");
    let table = SstDescriptor { seq_override: None, ..staged(one, 90, b"a", b"f", 1) };
    let behind = Some(InstallBehind { job: one, digest, layers: vec![vec![table]] });
    let edit = Edit::FlushL0(FlushL0 { behind, ..FlushL0::nothing(base.writer_epoch, &base) });
    assert!(matches!(edit.apply(&base), Err(Refusal::Invalid(_))));
}

/// N10, N11: the record was the only trace of the job. If it is forgotten too, the same request is
/// accepted a second time, names of tables occur twice, and no writer can flush from then on.
#[test]
fn a_job_outlives_the_record_of_its_application() {
    let job = JobId((500 << 80) + 1);
    let request = Edit::Ingest(IngestEdit::Request(of_app(job, 7)));
    let base = request.apply(&manifest()).unwrap();
    let tables = vec![staged(job, 80, b"a", b"b", 61)];
    let installed = installing(&base, vec![install(job, 0, tables)], 61).apply(&base).unwrap();
    let forget = Edit::Ingest(IngestEdit::ForgetApp { app: "stream".to_owned(), count: 0 });
    let forgotten = forget.apply(&installed).unwrap();
    assert!(forget.in_effect(&forgotten) && broken(&forgotten).is_none());
    assert_eq!(standing(&forgotten, job), JobStatus::Adopted(Seq(61)));
    let again = request.apply(&forgotten).unwrap();
    assert!(!again.pending_ingests.iter().any(|one| one.job == job), "{again:?}");
    // Another job may contain any version, if it begins now.
    let other = JobId((500 << 80) + 2);
    assert_eq!(ask(&forgotten, of_app(other, 1)), no(IngestConflict::AppForgotten));
    let lower = ask(&forgotten, of_app_since(other, 1, 1)).unwrap();
    assert!(lower.pending_ingests.iter().any(|one| one.job == other));
}

/// N11: versions 1 and 2 are installed, and the job of version 1 has no record any more. It can
/// neither be requested nor withdrawn, even after its application is forgotten and begins again.
#[test]
fn a_version_that_was_passed_is_no_open_job() {
    let (first, second) = (job(9_000, 1), job(9_000, 2));
    let asked = of_app(first, 1);
    let app = || asked.app.clone();
    let both = ask(&ask(&manifest(), asked.clone()).unwrap(), of_app(second, 2)).unwrap();
    let tables = |job, id, seq| vec![staged(job, id, b"a", b"b", seq)];
    let jobs =
        vec![install(first, 0, tables(first, 90, 61)), install(second, 0, tables(second, 91, 62))];
    let passed = installing(&both, jobs, 62).apply(&both).unwrap();
    let stands = |state: &Manifest| standing_as(state, first, app().as_ref());
    assert_eq!(
        (standing(&passed, first), stands(&passed)),
        (JobStatus::Open, JobStatus::Forgotten)
    );
    // A process that saw its request knows more: a refused job would be remembered.
    let since = |state: &Manifest| standing_since(state, (first, app().as_ref()), None);
    assert_eq!(since(&passed), JobStatus::AdoptedBefore(Seq(62)));
    let restored = Timeline {
        id: TimelineId(4),
        cut: Seq(60),
        begins: Seq(70),
        manifest_id: passed.id,
        began_at: UnixMillis(9),
    };
    let undone = Manifest { timelines: vec![restored], ..passed.clone() };
    assert_eq!(since(&undone), JobStatus::Forgotten);

    let withdraw = |app| Edit::Ingest(IngestEdit::Withdraw { job: first, app });
    assert_eq!(withdraw(app()).apply(&passed), no(IngestConflict::Passed));
    let dropped = Rules::ALL.without(Rule::WithdrawUnpassed);
    assert!(withdraw(app()).apply_with(&passed, dropped).is_ok());
    assert_eq!(ask(&passed, asked.clone()), no(IngestConflict::AppIsAhead { version: 2 }));

    let forget = Edit::Ingest(IngestEdit::ForgetApp { app: "stream".to_owned(), count: 0 });
    let forgotten = forget.apply(&passed).unwrap();
    assert!(broken(&forgotten).is_none() && forgotten.features.names("ingest-apps"));
    assert_eq!(stands(&forgotten), JobStatus::Forgotten);
    assert_eq!(ask(&forgotten, asked.clone()), no(IngestConflict::AppForgotten));
    assert_eq!(withdraw(app()).apply(&forgotten), no(IngestConflict::Passed));
    let dropped = Rules::ALL.without(Rule::RefuseForgotten);
    let twice = Edit::Ingest(IngestEdit::Request(asked.clone()));
    assert!(twice.apply_with(&forgotten, dropped).is_ok());
    // The same after version 0 of the new record.
    let anew = job(9_000, 3);
    let again = ask(&forgotten, of_app_since(anew, 0, 1)).unwrap();
    let jobs = vec![install(anew, 0, tables(anew, 92, 63))];
    let again = installing(&again, jobs, 63).apply(&again).unwrap();
    assert_eq!(ask(&again, asked), no(IngestConflict::AppForgotten));
    // It is not answered by the same version of the new record either, pending or installed.
    assert_eq!(ask(&again, of_app(job(9_000, 5), 0)), no(IngestConflict::AppForgotten));
    let waits = ask(&again, of_app_since(job(9_000, 6), 4, 1)).unwrap();
    assert_eq!(ask(&waits, of_app(job(9_000, 5), 4)), no(IngestConflict::AppForgotten));
    // Another application is not affected.
    let name = "daily".to_owned();
    let other = Some(JobApp { name, version: 1, forgotten: 0 });
    assert!(ask(&again, RequestIngest { app: other, ..request(job(9_000, 4)) }).is_ok());
    // Repeated by a process that received no answer, the edit does not affect the new record; a new
    // edit does.
    assert!(forget.in_effect(&again) && forget.apply(&again).unwrap().ingest_apps.len() == 1);
    let next = Edit::Ingest(IngestEdit::ForgetApp { app: "stream".to_owned(), count: 1 });
    assert!(!next.in_effect(&again) && next.apply(&again).unwrap().ingest_apps.is_empty());
    // All of this is in the stored bytes.
    let bytes = again.encode(ObjectId(1), AttemptId(2)).unwrap();
    let (_, read) = Manifest::decode(&bytes).unwrap();
    assert_eq!((read.forgotten_apps, read.features), (again.forgotten_apps, again.features));
}
