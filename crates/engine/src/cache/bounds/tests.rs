//! Every answer against the descriptors' own.
#![allow(clippy::unwrap_used, reason = "a test")]

use super::Bounds;
use crate::cache::metadata::testing::descriptor;
use crate::cache::metadata::{MetadataBudget, TableHandle};
use bytes::Bytes;
use proptest::prelude::*;
use siltstone_base::SstDescriptor;
use std::sync::Arc;

fn bounds(runs: &[Vec<SstDescriptor>]) -> Bounds {
    let budget = MetadataBudget::new(usize::MAX);
    let handle = |table: &SstDescriptor| TableHandle::new(table.clone(), &budget);
    let runs: Vec<Vec<Arc<TableHandle>>> =
        runs.iter().map(|tables| tables.iter().map(handle).collect()).collect();
    Bounds::new(runs.iter().map(Vec::as_slice))
}

fn found(bounds: &Bounds, run: usize, key: &[u8]) -> Option<usize> {
    bounds.candidate(run, &bounds.seek(key)?)
}

/// The result according to the descriptors, one by one.
fn expected(runs: &[Vec<SstDescriptor>], run: usize, key: &[u8]) -> Option<usize> {
    let before: usize = runs.iter().take(run).map(Vec::len).sum();
    runs.get(run)?.iter().position(|table| table.covers(key)).map(|at| before + at)
}

fn check(runs: &[Vec<SstDescriptor>], keys: &[&[u8]]) {
    let bounds = bounds(runs);
    for key in keys {
        for run in 0..=runs.len() {
            assert_eq!(found(&bounds, run, key), expected(runs, run, key), "{run} {key:?}");
        }
    }
}

#[test]
fn bounds_themselves_are_inside_and_gaps_are_not() {
    let runs = [
        vec![descriptor(b"c", b"m")],
        vec![descriptor(b"a", b"b"), descriptor(b"d", b"f"), descriptor(b"f\0", b"k")],
        vec![descriptor(b"z", b"z")],
    ];
    check(&runs, &[b"a", b"b", b"b\0", b"c", b"d", b"e", b"f", b"f\0", b"f\0\0", b"k", b"l"]);
    check(&runs, &[b"\0", b"m", b"m\0", b"y", b"z", b"z\0", b"\xff\xff\xff\xff\xff\xff\xff\xff"]);
}

#[test]
fn nothing_is_found_where_there_are_no_tables() {
    check(&[], &[b"a"]);
    check(&[vec![], vec![descriptor(b"a", b"b")], vec![]], &[b"a", b"c"]);
}

#[test]
fn the_common_prefix_of_bounds_decides_too() {
    let runs = [
        vec![descriptor(b"user:long:0001", b"user:long:0500")],
        vec![descriptor(b"user:long", b"x")],
    ];
    check(&runs[..1], &[b"user:long:", b"user:long:0001", b"user:long:04", b"user", b"v", b"a"]);
    check(&runs, &[b"user:long:0001", b"user:long", b"user:lonf", b"w", b"x", b"x\0"]);
}

#[test]
fn keys_decide_where_more_than_eight_bytes_are_equal() {
    // Nothing is shared by all, so the heads of the second run are equal.
    let runs = [
        vec![descriptor(b"a", b"z")],
        vec![
            descriptor(b"aaaaaaaa1", b"aaaaaaaa3"),
            descriptor(b"aaaaaaaa5", b"aaaaaaaa7"),
            descriptor(b"aaaaaaaa9", b"b"),
        ],
    ];
    let keys: Vec<Vec<u8>> = (0..=9).map(|n| format!("aaaaaaaa{n}").into_bytes()).collect();
    check(&runs, &keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
    check(&runs, &[b"aaaaaaaa", b"aaaaaaaa\0", b"aaaaaaab", b"b", b"b\0"]);
}

#[test]
fn keys_outside_the_visible_range_are_not_found() {
    let seen = |start: &'static [u8], end: &'static [u8]| SstDescriptor {
        visible_start: Some(Bytes::from_static(start)),
        visible_end: Some(Bytes::from_static(end)),
        ..descriptor(b"d", b"m")
    };
    let keys: [&[u8]; 9] = [b"c", b"d", b"e", b"e\0", b"f", b"j", b"k", b"m", b"n"];
    for (start, end) in [(b"e", b"k"), (b"a", b"z"), (b"d", b"m"), (b"e", b"e"), (b"n", b"p")] {
        check(&[vec![descriptor(b"a", b"b"), seen(start, end), descriptor(b"o", b"q")]], &keys);
    }
}

/// K6: all of them have the first key and the last of one object.
#[test]
fn parts_of_one_table_have_each_key_once() {
    let keys: Vec<Vec<u8>> = (b'c'..=b'n').map(|key| vec![key]).collect();
    let keys = keys.iter().map(Vec::as_slice).chain([&b"e\0"[..], b"h\0", b"kkkkkkkkk"]);
    let keys: Vec<&[u8]> = keys.collect();
    let part = |start: Option<&'static [u8]>, end: Option<&'static [u8]>| SstDescriptor {
        visible_start: start.map(Bytes::from_static),
        visible_end: end.map(Bytes::from_static),
        ..descriptor(b"d", b"m")
    };
    let cuts: [&'static [u8]; 3] = [b"e", b"h", b"kkkkkkkkk"];
    let [one, two, three] = cuts.map(Some);
    check(&[vec![part(None, one), part(one, two), part(two, three), part(three, None)]], &keys);
    check(&[vec![part(None, two), part(three, None)], vec![part(one, two)]], &keys);
    // If a newer bound lies within, the last keys do not ascend.
    let inner =
        SstDescriptor { visible_start: two.map(Bytes::from_static), ..descriptor(b"g", b"j") };
    check(&[vec![part(None, two), inner, descriptor(b"k", b"n")]], &keys);
}

/// Keys of a small alphabet, short and long, so that heads tie, are cut, and share a beginning.
fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let end = prop::collection::vec(prop::sample::select(vec![0u8, b'a', b'b', 255]), 0..4);
    (prop::sample::select(vec![&b""[..], b"a", b"aaaaaaaa", b"aaaaaaaaaaaa"]), end)
        .prop_map(|(start, end)| [start, &end].concat())
}

proptest! {
    #[test]
    fn candidates_are_those_of_the_descriptors(
        runs in prop::collection::vec(prop::collection::btree_set(any_key(), 0..12), 0..5),
        keys in prop::collection::vec(any_key(), 1..20),
    ) {
        let runs: Vec<Vec<SstDescriptor>> = runs
            .iter()
            .map(|ends| {
                let ends: Vec<&Vec<u8>> = ends.iter().collect();
                let pairs = ends.as_chunks::<2>().0.iter();
                pairs.map(|[first, last]| descriptor(first, last)).collect()
            })
            .collect();
        let bounds = bounds(&runs);
        let ends = runs.iter().flatten().flat_map(|one| [&one.first_key[..], &one.last_key[..]]);
        for key in keys.iter().map(Vec::as_slice).chain(ends) {
            for run in 0..runs.len() {
                prop_assert_eq!(found(&bounds, run, key), expected(&runs, run, key));
            }
        }
    }
}
