//! Exports into a mirror: tables that are copied, tables that are shared, and the resulting mirror.

use super::*;
use crate::edit::{Edit, MirrorEdit, MirrorUse};
use crate::features::TWO_PHASE;
use crate::invariant::broken;
use crate::rules::{Rule, Rules};
use crate::state::PendingIngest;
use crate::testing::{empty, manifest, table};
use bytes::Bytes;
use siltstone_base::{Epoch, RequestId};

const SOURCE: DatabaseId = DatabaseId(77);
const MIRROR: DatabaseId = DatabaseId(88);

fn mirror(claim: u128, job: u128) -> Mirror {
    Mirror {
        source: SOURCE,
        location: "memory://source".to_owned(),
        is_import: false,
        claim: AttemptId(claim),
        job: Some(JobId::of_an_export(job)),
        head: None,
    }
}

/// A mirror in which the first exporter has begun.
fn first() -> Manifest {
    begun(ManifestId(1), MIRROR, &source(), mirror(1, 1))
}

/// A database without ancestors: tables 14 and 13 in L0, 10, 11 and 9 in runs.
fn source() -> Manifest {
    Manifest { ancestors: Vec::new(), attempt: AttemptId(500), ..manifest() }
}

fn claimed(target: &Manifest, claim: u128, job: u128) -> Manifest {
    let edit = MirrorEdit::Claim {
        source: SOURCE,
        location: "memory://source".to_owned(),
        is_import: false,
        claim: AttemptId(claim),
        job: JobId::of_an_export(job),
    };
    Edit::Mirror(edit).apply(target).unwrap()
}

fn head_of(source: &Manifest, target: &Manifest, log: LogWritten) -> NewHead {
    let last = source.flushed_seq.max(log.last_seq);
    let plan = ExportPlan::new(source, rows_to(last), target, &HashSet::new()).unwrap();
    plan.head(source, log, TimelineId(u128::from(target.id.get()) + 900), UnixMillis(7))
}

/// A log that reaches to `last` and contains no ingest.
fn rows_to(last: Seq) -> (Seq, std::iter::Empty<&'static SstDescriptor>) {
    (last, std::iter::empty())
}

fn committed(target: &Manifest, head: NewHead) -> Result<Manifest, Refusal> {
    Edit::Mirror(MirrorEdit::Head(Box::new(head))).apply(target)
}

fn exported(source: &Manifest, target: &Manifest) -> Manifest {
    committed(target, head_of(source, target, LogWritten::default())).unwrap()
}

fn moved(plan: &ExportPlan) -> Vec<u128> {
    plan.moves.iter().map(|(table, _)| table.id.get()).collect()
}

fn job_table(id: u128, job: u128, min: u64, max: u64) -> SstDescriptor {
    let job = Some(JobId::of_an_export(job));
    SstDescriptor { job, ..table(SstId(id), b"a", b"z", min, max) }
}

#[test]
fn the_first_export_moves_everything_into_its_folder() {
    let (source, target) = (source(), first());
    let plan = ExportPlan::new(&source, rows_to(Seq(60)), &target, &HashSet::new()).unwrap();
    assert_eq!((moved(&plan), plan.shared), (vec![14, 13, 10, 11, 9], 0));
    let next = exported(&source, &target);
    assert_eq!(broken(&next), None);
    assert!(next.initialized && next.ancestors.is_empty() && next.closed_cleanly());
    assert!(next.tables().all(|table| table.job == Some(JobId::of_an_export(1))));
    assert_eq!((next.flushed_seq, next.floor, next.last_l0_order), (Seq(60), Seq(60), 4));
    assert_eq!((next.database, next.writer_epoch), (MIRROR, Epoch::NONE));
    let mirror = next.mirror.as_ref().unwrap();
    assert_eq!(mirror.job, None, "the folder ends with its head");
    assert_eq!(mirror.head.as_ref().unwrap().manifest, source.id);
    assert_eq!(next.timelines.len(), 1);
}

/// A database whose creates are committed by records is exported to a place where they are
/// conditional, and the other way round: each place keeps its own kind.
#[test]
fn a_head_leaves_the_kind_of_creates_to_the_place() {
    let kinds = [None, Some("sqlite"), Some("postgres")];
    for (of_source, of_target) in kinds.iter().flat_map(|a| kinds.map(|b| (*a, b))) {
        let (mut source, mut target) = (source(), first());
        source.features = source.features.committed_by(of_source);
        target.features = target.features.committed_by(of_target);
        let features = exported(&source, &target).features;
        assert_eq!(features.records(), of_target, "{of_source:?}");
        assert_eq!(features.names(TWO_PHASE), of_target.is_some());
    }
}

#[test]
fn a_later_one_moves_what_is_new() {
    let before = claimed(&exported(&source(), &first()), 2, 2);
    let mut source = source();
    source.id = ManifestId(6);
    source.l0.insert(0, L0Entry { order: 5, tables: vec![table(SstId(20), b"a", b"z", 61, 70)] });
    (source.last_l0_order, source.flushed_seq) = (5, Seq(70));
    let plan = ExportPlan::new(&source, rows_to(Seq(70)), &before, &HashSet::new()).unwrap();
    assert_eq!((moved(&plan), plan.shared), (vec![20], 5));
    let next = exported(&source, &before);
    let jobs: Vec<_> = next.tables().map(|table| table.job).collect();
    let folder = |job| Some(JobId::of_an_export(job));
    assert_eq!(jobs[..2], [folder(2), folder(1)]);
    assert_eq!(next.timelines.len(), 1, "the history continues");
    assert_eq!(next.tables_since, next.id);
    let same = exported(&source, &claimed(&next, 3, 3));
    assert_eq!(same.tables_since, next.id, "nothing moved");
    assert_eq!(broken(&next), None);
}

/// Parts of one object are copied once, each with its own visible keys.
#[test]
fn the_visible_range_comes_with_each_part() {
    let part = |start: Option<&'static [u8]>, end: Option<&'static [u8]>| SstDescriptor {
        visible_start: start.map(Into::into),
        visible_end: end.map(Into::into),
        location: SstLocation::Ancestor(3),
        ..table(SstId(14), b"a", b"z", 51, 60)
    };
    let mut source = source();
    source.l0[0].tables = vec![part(None, Some(b"h")), part(Some(b"h"), None)];
    let plan = ExportPlan::new(&source, rows_to(Seq(60)), &first(), &HashSet::new()).unwrap();
    assert_eq!(moved(&plan), vec![14, 13, 10, 11, 9]);
    let next = exported(&source, &first());
    let seen: Vec<_> = next.l0[0].tables.iter().map(|part| part.visible_end.clone()).collect();
    assert_eq!(seen, vec![Some(b"h".as_slice().into()), None]);
    assert!(next.tables().all(|table| table.location == SstLocation::Own));
    assert_eq!(broken(&next), None);
}

/// Exported log rows stay as long as nothing is flushed; after a flush they are in the source's
/// tables.
#[test]
fn rows_of_the_log_move_once() {
    let rows = |id, job, min, max| LogWritten {
        layers: vec![vec![job_table(id, job, min, max)]],
        ingests: Vec::new(),
        last_seq: Seq(max),
        commit_time: UnixMillis(5),
    };
    let source = source();
    let one = committed(&first(), head_of(&source, &first(), rows(30, 1, 61, 65))).unwrap();
    assert_eq!((one.flushed_seq, one.l0[0].order), (Seq(65), 5));
    let two = claimed(&one, 2, 2);
    let plan = ExportPlan::new(&source, rows_to(Seq(70)), &two, &HashSet::new()).unwrap();
    assert_eq!((plan.moves.len(), plan.shared, plan.written), (0, 6, Seq(65)));
    let two = committed(&two, head_of(&source, &two, rows(31, 2, 66, 70))).unwrap();
    let l0: Vec<u128> = two.l0.iter().map(|layer| layer.tables[0].id.get()).collect();
    assert_eq!(l0, vec![31, 30, 14, 13]);
    assert_eq!(broken(&two), None);
    let three = claimed(&two, 3, 3);
    for (flushed, last, history) in [(68, 70, 0), (60, 68, 0), (60, 70, 1)] {
        let mut later = source.clone();
        later.flushed_seq = Seq(flushed);
        later.timelines.extend((history > 0).then_some(crate::state::Timeline {
            id: TimelineId(history),
            cut: Seq(1),
            begins: Seq(60),
            manifest_id: ManifestId(5),
            began_at: UnixMillis(1),
        }));
        let plan = ExportPlan::new(&later, rows_to(Seq(last)), &three, &HashSet::new()).unwrap();
        assert_eq!(plan.written, Seq(flushed), "flushed {flushed}, to {last}, of {history}");
        assert!(plan.log.is_empty());
    }
}

/// N14: an ingest of the log is exported with its application, at its position among the rows; the
/// next export writes the log again.
#[test]
fn an_ingest_of_the_log_moves_with_its_application() {
    let staged = |id, first: &[u8], last: &[u8]| SstDescriptor {
        job: Some(JobId(9)),
        seq_override: Some(Seq(62)),
        ..table(SstId(id), first, last, 0, 0)
    };
    let layers = vec![vec![staged(20, b"a", b"b"), staged(21, b"c", b"d")]];
    let asked = PendingIngest {
        job: JobId(9),
        requested_at: UnixMillis(1),
        digest: Bytes::from_static(b"parts"),
        app: Some(("daily".to_owned(), 7)),
        timeline: None,
    };
    let source = Manifest { pending_ingests: vec![asked.clone()], ..source() };
    let plan =
        ExportPlan::new(&source, (Seq(63), layers.iter().flatten()), &first(), &HashSet::new())
            .unwrap();
    assert_eq!(moved(&plan)[..2], [20, 21]);
    let placed: Vec<SstDescriptor> = layers[0].iter().map(|one| plan.placed(one)).collect();
    assert!(placed.iter().all(|one| one.job == Some(plan.job()) && one.seq_override.is_some()));
    let ingest = InstallIngest { after: 1, job: JobId(9), digest: asked.digest, layers };
    let log = LogWritten {
        layers: vec![vec![job_table(30, 1, 61, 61)], placed, vec![job_table(31, 1, 63, 63)]],
        ingests: vec![ingest.clone()],
        last_seq: Seq(63),
        commit_time: UnixMillis(5),
    };
    let one = committed(&first(), plan.head(&source, log, TimelineId(901), UnixMillis(7))).unwrap();
    let newest: Vec<u128> =
        one.l0.iter().take(3).flat_map(|one| &one.tables).map(|one| one.id.get()).collect();
    assert_eq!((newest, broken(&one)), (vec![31, 20, 21, 30], None));
    let app = one.ingest_apps.iter().find(|one| one.app == "daily").unwrap();
    assert_eq!((app.version, app.job, app.seq), (7, JobId(9), Seq(62)));
    let two = claimed(&one, 2, 2);
    let brought = ingest.layers.iter().flatten();
    let plan = ExportPlan::new(&source, (Seq(64), brought), &two, &HashSet::new()).unwrap();
    assert_eq!((plan.moves.len(), plan.written, plan.log.len()), (0, Seq(60), 0));
    // Installed meanwhile, and no later data exists.
    let installed = Manifest { pending_ingests: Vec::new(), ..source };
    let plan = ExportPlan::new(&installed, rows_to(Seq(64)), &two, &HashSet::new()).unwrap();
    assert_eq!((plan.written, plan.log.len()), (Seq(60), 0));
}

/// X3: numbers never fall, and readers of the mirror learn that it went back.
#[test]
fn an_older_state_is_a_new_history() {
    let before = claimed(&exported(&source(), &first()), 2, 2);
    let mut older = source();
    older.l0.remove(0);
    (older.id, older.flushed_seq, older.floor) = (ManifestId(3), Seq(50), Seq(40));
    let next = exported(&older, &before);
    assert_eq!(next.flushed_seq, Seq(60));
    let timeline = next.timelines.last().unwrap();
    assert_eq!((timeline.cut, timeline.begins), (Seq(50), Seq(61)));
    assert_eq!(next.restored_at(), next.id);
    assert_eq!(next.last_l0_order, 4);
    assert_eq!(broken(&next), None);
}

/// X3, P6: a job behind all other data changes no last sequence number, so a state before it looks
/// like the same moment.
#[test]
fn a_state_before_a_job_behind_is_a_new_history() {
    let state = |id: u64, behind: u64| Manifest {
        id: ManifestId(id),
        behind: Some(behind),
        ..source().allowing_behind()
    };
    let (early, late) = (state(3, 0), state(5, 1));
    let empty = begun(ManifestId(1), MIRROR, &early, mirror(1, 1));
    let export = |source: &Manifest, target: &Manifest| {
        let claim = u128::from(target.id.get()) + 1;
        exported(source, &claimed(target, claim, claim))
    };
    let with_job = export(&late, &exported(&early, &empty));
    assert_eq!(with_job.timelines.len(), 1, "a job behind is no new history");
    let back = export(&early, &with_job);
    assert_eq!((back.timelines.len(), back.behind), (2, Some(1)), "no number is given twice");
    assert_eq!(export(&early, &back).timelines.len(), 2, "the same state again");
    assert_eq!(export(&state(4, 0), &back).timelines.len(), 2, "a later state without the job");
    assert_eq!(export(&late, &back).timelines.len(), 2, "the job comes again");
}

/// X2: two exports pin the same source one after the other, and the one that pinned first reads the
/// log last. Neither the manifests nor the rows may go back.
#[test]
fn an_export_that_read_less_of_the_log_is_overtaken() {
    let source = source();
    let (first_pinned, later_pinned) =
        (source.clone(), Manifest { id: source.id.next(), ..source.clone() });
    let state = first();
    let plan = ExportPlan::new(&first_pinned, rows_to(Seq(70)), &state, &HashSet::new()).unwrap();
    let log = LogWritten { last_seq: Seq(70), ..LogWritten::default() };
    let one = committed(&state, plan.head(&first_pinned, log, TimelineId(901), UnixMillis(7)));
    let one = one.unwrap();
    let head = one.mirror.as_ref().and_then(|mirror| mirror.head.as_ref()).unwrap();
    assert!(is_overtaken(&later_pinned, Seq(69), head), "a newer manifest with fewer rows");
    assert!(!is_overtaken(&later_pinned, Seq(70), head));
    let older = Manifest { id: ManifestId(source.id.0 - 1), ..source.clone() };
    assert!(is_overtaken(&older, Seq(71), head), "an older manifest");
    // After a restore of the source its numbers begin lower; this state is newer nevertheless.
    let mut restored = later_pinned;
    restored.timelines.push(crate::state::Timeline {
        id: TimelineId(77),
        cut: Seq(60),
        begins: Seq(61),
        manifest_id: restored.id,
        began_at: UnixMillis(1),
    });
    assert!(!is_overtaken(&restored, Seq(65), head));
}

/// X2: an exporter that was overtaken commits nothing, neither while the newer one continues with
/// its folder nor after that has ended.
#[test]
fn a_newer_claim_voids_the_older_one() {
    let begun = first();
    let sleeper = head_of(&source(), &begun, LogWritten::default());
    let taken = claimed(&begun, 2, 2);
    assert_eq!(
        taken.mirror.as_ref().unwrap().job,
        Some(JobId::of_an_export(1)),
        "the folder continues"
    );
    let overtaken = Err(Refusal::Conflict(Conflict::ExportOvertaken));
    assert_eq!(committed(&taken, sleeper.clone()), overtaken);
    let ended = exported(&source(), &taken);
    assert_eq!(committed(&ended, sleeper.clone()), overtaken);
    let edit = Edit::Mirror(MirrorEdit::Head(Box::new(sleeper)));
    assert!(edit.apply_with(&taken, Rules::ALL.without(Rule::ExportByClaim)).is_ok());
    assert!(!edit.in_effect(&ended));
}

/// X2: a table that left the head is not referenced again at its old location.
#[test]
fn tables_that_left_the_head_are_not_shared() {
    let one = claimed(&exported(&source(), &first()), 2, 2);
    let mut head = head_of(&source(), &one, LogWritten::default());
    let mut without = source();
    without.l0.clear();
    let two = claimed(&exported(&without, &one), 3, 3);
    head.head.claim = AttemptId(3);
    head.job = JobId::of_an_export(3);
    let edit = Edit::Mirror(MirrorEdit::Head(Box::new(head)));
    let gone = Conflict::TableGone { table: SstId(14) };
    assert_eq!(edit.apply(&two), Err(gone.into()));
    assert!(edit.apply_with(&two, Rules::ALL.without(Rule::ExportSharesHead)).is_ok());
    let plan = ExportPlan::new(&source(), rows_to(Seq(60)), &two, &HashSet::new()).unwrap();
    assert_eq!(moved(&plan), vec![14, 13], "copied again, into another folder");
    assert!(plan.moves.iter().all(|(_, to)| to.job == Some(JobId::of_an_export(3))));
}

/// X3: a head that references another location is refused.
#[test]
fn a_head_names_its_own_place_alone() {
    let target = first();
    let mut head = head_of(&source(), &target, LogWritten::default());
    head.tables.runs[0].tables[0].location = SstLocation::Ancestor(1);
    assert!(committed(&target, head).is_err());
}

/// X4: promotion.
#[test]
fn a_mirror_refuses_writers_until_it_is_promoted() {
    let mirror = exported(&source(), &first());
    let claim = Edit::ClaimCompactor { writer: None, expected: Epoch(0), claim: AttemptId(9) };
    let is_mirror = Err(Conflict::Mirror { database: MIRROR }.into());
    assert_eq!(claim.apply(&mirror), is_mirror);
    assert_eq!(Edit::close_without_log(Epoch(0)).apply(&mirror), is_mirror);
    let promote = Edit::Mirror(MirrorEdit::Promote { request: RequestId(1) });
    let promoted = promote.apply(&mirror).unwrap();
    assert!(claim.apply(&promoted).is_ok());
    assert!(promote.in_effect(&promoted));
    let other = Edit::Mirror(MirrorEdit::Promote { request: RequestId(2) });
    assert!(!other.in_effect(&promoted), "of another source");
    assert!(is_promoted_by(&promoted, RequestId(1)));
    assert!(!is_promoted_by(&promoted, RequestId(2)));
    let in_use = Manifest { writer_epoch: Epoch(1), ..promoted.clone() };
    assert!(!is_promoted_by(&in_use, RequestId(1)), "it was written to");
    assert!(promote.in_effect(&in_use), "an answer that comes late");
    let no_mirror = Conflict::NoMirror { database: MIRROR, wanted_by: MirrorUse::Export };
    assert_eq!(check_target(&promoted, SOURCE, false), Err(no_mirror.into()));
}

#[test]
fn a_mirror_has_one_source_and_one_purpose() {
    let state = first();
    assert!(check_target(&state, SOURCE, false).is_ok());
    let other = Conflict::OtherSource { database: MIRROR, source: SOURCE };
    assert_eq!(check_target(&state, DatabaseId(5), false), Err(other.into()));
    let kept = Conflict::OtherPurpose { database: MIRROR, is_import: false };
    assert_eq!(check_target(&state, SOURCE, true), Err(kept.into()));
    let no_mirror = Conflict::NoMirror { database: SOURCE, wanted_by: MirrorUse::Export };
    assert_eq!(check_target(&empty(), SOURCE, false), Err(no_mirror.into()));
}

#[test]
fn a_mirror_without_a_head_is_not_promoted() {
    let promote = Edit::Mirror(MirrorEdit::Promote { request: RequestId(1) });
    assert_eq!(promote.apply(&first()), Err(Conflict::NotInitialized.into()));
    assert_eq!(broken(&first()), None);
}
