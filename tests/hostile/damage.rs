//! Every bit of a small database flipped, every object truncated, swapped, emptied or deleted:
//! every read is correct or refused, nothing hangs, and verification detects the damage.

use super::alone;
use super::database::{Made, Objects, compare, examine, made, newest};
use bytes::Bytes;
use siltstone_base::ObjectName;
use siltstone_fuzz::damage::Damage;
use std::mem::discriminant;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `HOSTILE=full` flips every bit; otherwise one bit in this many, and every bit of small objects.
const STRIDE: usize = 13;
/// An envelope, an id and a checksum: every bit of an object that is no longer is always flipped.
const SMALL_OBJECT: usize = 84;

fn stride(bytes: usize) -> usize {
    let full = std::env::var("HOSTILE").is_ok_and(|value| value == "full");
    if full || bytes <= SMALL_OBJECT { 1 } else { STRIDE }
}

/// Does all of `work` on two threads; returns the sum.
fn in_parallel<T: Sync>(work: &[T], each: impl Fn(&T) -> usize + Sync) -> usize {
    let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(item) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    sum.fetch_add(each(item), Ordering::Relaxed);
                }
            });
        }
    });
    sum.into_inner()
}

fn with(objects: &Objects, name: ObjectName, bytes: Vec<u8>) -> Objects {
    let mut damaged = objects.clone();
    damaged.insert(name, Bytes::from(bytes));
    damaged
}

fn damages(
    made: &Made,
    of: impl Fn(&ObjectName, usize) -> Vec<Damage>,
) -> Vec<(ObjectName, Damage)> {
    let each = made.objects.iter().flat_map(|(name, bytes)| {
        of(name, bytes.len()).into_iter().map(move |damage| (*name, damage))
    });
    each.collect()
}

/// Damages an object, and compares reads with the correct results. Returns whether anything was
/// refused.
fn check(made: &Made, name: ObjectName, damage: Damage) -> usize {
    let what = format!("{name}, {damage:?}");
    let bytes = made.objects.get(&name).unwrap();
    let (looks, report) = examine(&with(&made.objects, name, damage.apply(bytes)), &what);
    let state = made.states.last().unwrap();
    let refused = compare(&looks, state, &what);
    let report = report.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert!(!report.is_ok(), "{what}: verification finds nothing");
    let named = report.problems.iter().any(|problem| problem.object == name);
    assert!(named, "{what}: {:?}", report.problems);
    usize::from(refused > 0)
}

#[test]
fn a_sound_database_is_read_and_verified() {
    let _turn = alone();
    let made = made(0);
    let (looks, report) = examine(&made.objects, "sound");
    assert_eq!(compare(&looks, made.states.last().unwrap(), "sound"), 0);
    let report = report.unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
    assert_eq!(report.orphans, []);
    assert_eq!((report.tables, report.boundaries), (2, 2));
    assert!(report.fences >= 1 && report.wal_objects >= 4 && report.manifests >= 3, "{report:?}");
    assert!(report.blocks > 2 && report.tombstones > 0, "{report:?}");
    let live: u64 = made.objects.values().map(|bytes| bytes.len() as u64).sum();
    assert!(report.bytes_read >= live, "{} of {live} bytes were read", report.bytes_read);
}

#[test]
fn every_flipped_bit_of_a_database_is_found_or_harmless() {
    let _turn = alone();
    let made = made(0);
    let all = damages(&made, |_, bytes| {
        (0..bytes * 8).step_by(stride(bytes)).map(Damage::Flip).collect()
    });
    let refused = in_parallel(&all, |(name, damage)| check(&made, *name, *damage));
    let bytes: usize = made.objects.values().map(Bytes::len).sum();
    println!("{bytes} bytes, {} flips, {refused} of them met by a read, 0 wrong", all.len());
    // Only verification reads old manifests, boundaries and the front of a table.
    assert!(refused * 3 > all.len(), "{refused} of {}", all.len());
}

#[test]
fn every_cut_and_every_longer_object_is_found_or_harmless() {
    let _turn = alone();
    let made = made(0);
    let all = damages(&made, |_, bytes| {
        let cuts = (0..bytes).step_by(if stride(bytes) == 1 { 1 } else { 5 }).map(Damage::Cut);
        cuts.chain([Damage::Extend(1, 0), Damage::Extend(100, 0xff)]).collect()
    });
    let refused = in_parallel(&all, |(name, damage)| check(&made, *name, *damage));
    println!("{} cuts and additions, {refused} of them met by a read, 0 wrong", all.len());
    assert!(refused * 3 > all.len(), "{refused} of {}", all.len());
}

/// The bytes of one object under the name of another of its kind, of this database or of another of
/// the same shape: checksums match, the location is wrong.
#[test]
fn a_swapped_object_is_found_or_harmless() {
    let _turn = alone();
    let (made, other) = (made(0), made(1));
    let mut pairs = Vec::new();
    for name in made.objects.keys() {
        for (from, bytes) in made.objects.iter().chain(&other.objects) {
            if discriminant(name) == discriminant(from) && made.objects.get(name) != Some(bytes) {
                pairs.push((*name, *from, bytes.clone()));
            }
        }
    }
    assert!(pairs.len() > 20, "only {} swaps", pairs.len());
    in_parallel(&pairs, |(name, from, bytes)| {
        let what = format!("{from} under the name {name}");
        let (looks, report) = examine(&with(&made.objects, *name, bytes.to_vec()), &what);
        let refused = compare(&looks, made.states.last().unwrap(), &what);
        assert!(!report.unwrap().is_ok(), "{what}: verification finds nothing");
        refused
    });
}

/// Without an object: the newest manifest and the end of the WAL leave no evidence, so only an
/// older state is possible; any other state is wrong.
#[test]
fn a_missing_object_is_found_or_leaves_an_older_state() {
    let _turn = alone();
    let made = made(0);
    let newest = newest(&made.objects);
    for name in made.objects.keys() {
        let what = format!("missing {name}");
        let mut objects = made.objects.clone();
        objects.remove(name);
        let (looks, report) = examine(&objects, &what);
        let may_be_older = match name {
            ObjectName::Manifest(id) => *id == newest.id,
            ObjectName::Wal(id) => *id > newest.wal_id_last_seen,
            _ => false,
        };
        let rows = looks.iter().filter_map(|look| look.as_ref().ok()?.rows().cloned());
        let older: Vec<_> = rows.collect();
        if may_be_older {
            let known = older.iter().all(|rows| made.states.contains(rows));
            assert!(known, "{what}: {older:?} never was");
            continue;
        }
        compare(&looks, made.states.last().unwrap(), &what);
        let boundary = matches!(name, ObjectName::ManifestBoundary(_) | ObjectName::WalBoundary(_));
        let found = report.is_ok_and(|report| !report.is_ok());
        assert!(found || boundary, "{what}: verification finds nothing");
    }
}
