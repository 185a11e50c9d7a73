use super::*;
use crate::state::{FedSource, Hold};

const NAMES: [SstId; 2] = [SstId(90), SstId(91)];

fn reserve(base: &Manifest, let_go: Vec<SstId>) -> Edit {
    let (epoch, names) = (base.writer_epoch, NAMES.to_vec());
    Edit::ReserveBatch(ReserveBatch { epoch, names, let_go })
}

fn made(id: SstId, first: &[u8], last: &[u8], seq: u64) -> SstDescriptor {
    SstDescriptor { seq_override: Some(Seq(seq)), ..table(id, first, last, 1, 9) }
}

/// The writer of `manifest()` flushes only this batch.
fn installing(base: &Manifest, tables: Vec<SstDescriptor>, flushed: u64) -> Edit {
    let batches = vec![InstallBatch { after: 0, tables }];
    let (epoch, flushed_seq) = (base.writer_epoch, Seq(flushed));
    Edit::FlushL0(FlushL0 { batches, flushed_seq, ..FlushL0::nothing(epoch, base) })
}

#[test]
fn names_are_kept_for_readers_to_come() {
    let base = manifest();
    let edit = reserve(&base, vec![]);
    assert!(!edit.in_effect(&base));
    let next = edit.apply(&base).unwrap();
    assert!(edit.in_effect(&next) && next.features.names("large-batches"));
    assert_eq!((&next.left[..], next.tables_since), (&NAMES[..], next.id));
    // The names of a failed batch make room for others.
    let names = vec![SstId(92)];
    let epoch = base.writer_epoch;
    let edit = Edit::ReserveBatch(ReserveBatch { epoch, names, let_go: vec![NAMES[0]] });
    assert!(!edit.in_effect(&next));
    assert_eq!(edit.apply(&next).unwrap().left, [NAMES[1], SstId(92)]);
    let fenced =
        Edit::ReserveBatch(ReserveBatch { epoch: Epoch(1), names: vec![], let_go: vec![] });
    assert!(matches!(fenced.apply(&next), Err(Refusal::Fenced { .. })));
}

#[test]
fn a_batch_is_installed_once_and_uses_its_name_up() {
    let base = reserve(&manifest(), vec![]).apply(&manifest()).unwrap();
    let edit = installing(&base, vec![made(NAMES[0], b"a", b"b", 61)], 61);
    assert!(!edit.in_effect(&base));
    let next = edit.apply(&base).unwrap();
    assert!(edit.in_effect(&next));
    assert_eq!((&next.left[..], next.flushed_seq), (&NAMES[1..], Seq(61)));
    assert!(next.tables().any(|table| table.id == NAMES[0]));
    assert!(edit.apply(&next).is_err(), "not twice");
    // Refused: a name that is not reserved, a number above what is flushed, and a missing number.
    let refused = |tables, flushed| installing(&base, tables, flushed).apply(&base).unwrap_err();
    let invalid = |refusal| matches!(refusal, Refusal::Invalid(_));
    assert!(invalid(refused(vec![made(SstId(95), b"a", b"b", 61)], 61)));
    assert!(invalid(refused(vec![made(NAMES[0], b"a", b"b", 62)], 61)));
    assert!(invalid(refused(vec![], 61)));
}

/// Layers, jobs and batches are placed by their numbers, each on all older data.
#[test]
fn a_batch_is_placed_between_what_is_older_and_what_is_newer() {
    let base = reserve(&manifest(), vec![]).apply(&manifest()).unwrap();
    let layer = |id: u128, seq| vec![table(SstId(id), b"a", b"z", seq, seq)];
    let batch = |after, id, seq| InstallBatch { after, tables: vec![made(id, b"a", b"z", seq)] };
    let edit = Edit::FlushL0(FlushL0 {
        layers: vec![layer(50, 61), layer(51, 63)],
        batches: vec![batch(1, NAMES[0], 62), batch(2, NAMES[1], 64)],
        flushed_seq: Seq(64),
        ..FlushL0::nothing(base.writer_epoch, &base)
    });
    let next = edit.apply(&base).unwrap();
    let newest: Vec<SstId> = next.l0.iter().take(4).map(|entry| entry.tables[0].id).collect();
    assert_eq!(newest, [NAMES[1], SstId(51), NAMES[0], SstId(50)]);
}

/// N15: a claim voids other names. These names stay until no replay can need them.
#[test]
fn a_claim_leaves_the_names_of_batches() {
    let base = reserve(&manifest(), vec![]).apply(&manifest()).unwrap();
    let claimed = Edit::ClaimWriter(claim(2, 9)).apply(&base).unwrap();
    assert_eq!(claimed.left, NAMES);
    let fence = KeptFence { id: WalId(8), epoch: Epoch(3), next_id: WalId(10) };
    let go = |point, rules| to_let_go(&claimed.left, &fence, WalId(point), rules);
    assert_eq!(go(9, Rules::ALL), []);
    assert_eq!(go(10, Rules::ALL), NAMES);
    assert_eq!(go(9, Rules::ALL.without(Rule::LeftUntilReplayed)), NAMES);
    let nothing = FlushL0::nothing(claimed.writer_epoch, &claimed);
    let edit = Edit::FlushL0(FlushL0 { let_go: NAMES.to_vec(), ..nothing });
    assert!(!edit.in_effect(&claimed));
    let next = edit.apply(&claimed).unwrap();
    assert!(edit.in_effect(&next) && next.left.is_empty());
}

/// W4: the same for the tables of a batch.
#[test]
fn a_feed_keeps_the_tables_of_a_batch() {
    let hold = Hold {
        name: "a".to_owned(),
        generation: 1,
        wal_from: WalId(6),
        seq: Seq(60),
        expires_at: None,
        most_bytes: None,
        unretained: None,
    };
    let base = Manifest { holds: vec![hold], ..manifest() };
    let base = reserve(&base, vec![]).apply(&base).unwrap();
    let edit = installing(&base, vec![made(NAMES[0], b"a", b"b", 61)], 61);
    let kept: Vec<_> = edit.apply(&base).unwrap().fed.iter().map(|one| one.source).collect();
    assert_eq!(kept, [FedSource::Table(NAMES[0])]);
}
