#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use super::*;
use crate::read::value::{KeyEntry, Value};
use siltstone_merge::built_in;

fn overlay() -> ChangeOverlay {
    ChangeOverlay::new(built_in("append"))
}

fn change(kind: Kind, key: &'static [u8], value: &'static [u8], ends: u64) -> Entry<'static> {
    let expires_at = (ends > 0).then_some(UnixMillis(ends));
    Entry { key, seq: Seq(1), kind, expires_at, value }
}

/// The value at the checkpoint, which lasts until this time; 0: forever.
fn base(value: &[u8], ends: u64) -> LastingEntry {
    let lasts_until = (ends > 0).then_some(UnixMillis(ends));
    let value = Value::of_bytes(value);
    LastingEntry { entry: KeyEntry { value, expires_at: lasts_until, seq: None }, lasts_until }
}

/// The before-image of a change.
fn image(
    overlay: &mut ChangeOverlay,
    change: &Entry<'_>,
    at: u64,
    base: Option<&LastingEntry>,
) -> Option<Vec<u8>> {
    let mut images = BeforeColumn::default();
    let needed = overlay.needs_base(change.key, UnixMillis(at));
    let base = base.filter(|_| needed);
    overlay.push(change, UnixMillis(at), base, &mut images).unwrap();
    assert_eq!(images.present.len(), 1);
    images.get(0).map(<[u8]>::to_vec)
}

/// Values expire one by one: the value at the checkpoint at 10, an operand at 20.
#[test]
fn an_operand_outlives_the_value_below_it() {
    let mut overlay = overlay();
    let below = base(b"a", 10);
    let mut seen = |ends, at, below: Option<&LastingEntry>| {
        image(&mut overlay, &change(Kind::Merge, b"k", b"+", ends), at, below)
    };
    assert_eq!(seen(20, 1, Some(&below)).as_deref(), Some(&b"a"[..]));
    assert_eq!(seen(0, 2, Some(&below)).as_deref(), Some(&b"a+"[..]));
    assert_eq!(seen(0, 11, None).as_deref(), Some(&b"++"[..]));
    assert_eq!(seen(0, 12, None).as_deref(), Some(&b"+++"[..]));
    // The operand that expires takes everything below it along.
    assert_eq!(seen(0, 20, None).as_deref(), Some(&b"+++"[..]));
    assert_eq!(seen(0, 21, None).as_deref(), Some(&b"++++"[..]));
}

#[test]
fn a_range_delete_ends_older_changes_only() {
    let mut overlay = overlay();
    let put = change(Kind::Put, b"d", b"1", 0);
    let kept = base(b"0", 0);
    assert_eq!(image(&mut overlay, &put, 1, Some(&kept)).as_deref(), Some(&b"0"[..]));
    overlay.settle();
    for (start, end) in [(&b"c"[..], &b"e"[..]), (b"e", b"g"), (b"a", b"b"), (b"x", b"x")] {
        let range = Entry { value: end, ..change(Kind::RangeDelete, b"", b"", 0) };
        assert_eq!(image(&mut overlay, &Entry { key: start, ..range }, 2, None), None);
    }
    for key in [&b"b"[..], b"bz", b"g", b"x"] {
        assert!(overlay.needs_base(key, UnixMillis(3)), "{key:?}");
    }
    for key in [&b"a"[..], b"c", b"d", b"e", b"f"] {
        assert!(!overlay.needs_base(key, UnixMillis(3)), "{key:?}");
    }
    assert_eq!(image(&mut overlay, &put, 3, None), None);
    assert_eq!(image(&mut overlay, &put, 4, None).as_deref(), Some(&b"1"[..]));
    // The changes of the last read are taken back, those before it stay.
    overlay.take_back();
    assert_eq!(image(&mut overlay, &put, 3, None).as_deref(), Some(&b"1"[..]));
    overlay.clear();
    assert!(overlay.needs_base(b"d", UnixMillis(3)));
}

/// Every key counts once, with its newest value, and not after a range delete.
#[test]
fn memory_is_bounded() {
    let mut overlay = overlay();
    // Three keys before the last read, and three of the last read.
    overlay.most = 7000;
    for turn in 0..1000 {
        for key in [&b"a"[..], b"b", b"c"] {
            let put = Entry { key, ..change(Kind::Put, b"", &[7; 900], 0) };
            image(&mut overlay, &put, turn, None);
        }
        if turn % 3 == 0 {
            overlay.settle();
        }
        if turn % 10 == 0 {
            image(&mut overlay, &change(Kind::RangeDelete, b"a", b"d", 0), turn, None);
        }
    }
    overlay.settle();
    let push = |overlay: &mut ChangeOverlay, key: u8| {
        let put = Entry { key: &[key], ..change(Kind::Put, b"", &[7; 900], 0) };
        overlay.push(&put, UnixMillis(2000), None, &mut BeforeColumn::default())
    };
    let full = (b'd'..).find_map(|key| push(&mut overlay, key).err()).unwrap();
    assert!(full.to_string().contains("newer checkpoint"), "{full}");
}
