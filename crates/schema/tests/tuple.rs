//! Tuples: golden bytes, and properties against an order that is written apart.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect"
)]

use proptest::prelude::*;
use siltstone_base::ErrorKind;
use siltstone_schema::tuple::{DAYS, Decimal, MICROSECONDS, Part, pack, range_of, unpack};
use std::cmp::Ordering;

fn big(negative: bool, magnitude: &[u8]) -> Part<'static> {
    Part::BigInt { negative, magnitude: magnitude.to_vec().into() }
}

fn finite(negative: bool, digits: &[u8], exponent: i64) -> Part<'static> {
    Part::Decimal(Decimal::Finite { negative, digits: digits.to_vec(), exponent })
}

/// Parts and their bytes, in ascending order. Frozen.
fn golden() -> Vec<(Part<'static>, &'static str)> {
    let infinite = |negative| Part::Decimal(Decimal::Infinite { negative });
    vec![
        (Part::None, "01"),
        (Part::Bool(false), "02"),
        (Part::Bool(true), "03"),
        (big(true, &[1, 0, 0, 0, 0, 0, 0, 0, 0]), "17f6feffffffffffffffff"),
        (big(true, &[0xff; 8]), "180000000000000000"),
        (Part::Int(i64::MIN), "187fffffffffffffff"),
        (Part::Int(-256), "1efeff"),
        (Part::Int(-255), "1f00"),
        (Part::Int(-1), "1ffe"),
        (Part::Int(0), "20"),
        (Part::Int(1), "2101"),
        (Part::Int(255), "21ff"),
        (Part::Int(256), "220100"),
        (Part::Int(i64::MAX), "287fffffffffffffff"),
        (big(false, &[0x80, 0, 0, 0, 0, 0, 0, 0]), "288000000000000000"),
        (big(false, &[1, 0, 0, 0, 0, 0, 0, 0, 0]), "2909010000000000000000"),
        (Part::Float(f64::NEG_INFINITY), "30000fffffffffffff"),
        (Part::Float(-1.5), "304007ffffffffffff"),
        (Part::Float(0.0), "308000000000000000"),
        (Part::Float(1.5), "30bff8000000000000"),
        (Part::Float(f64::INFINITY), "30fff0000000000000"),
        (Part::Float(f64::NAN), "30fff8000000000000"),
        (infinite(true), "3801"),
        (finite(true, &[1, 2, 3], 0), "3802defde6c3"),
        (finite(true, &[5], -1), "3802e0019b"),
        (finite(false, &[], 0), "3803"),
        (finite(false, &[5], -1), "38041ffe64"),
        (finite(false, &[1], 0), "38042014"),
        (finite(false, &[1, 0, 5], -2), "3804201564"),
        (finite(false, &[1, 1], -1), "38042016"),
        (finite(false, &[1, 2, 3], 0), "38042102193c"),
        (infinite(false), "3805"),
        (Part::Decimal(Decimal::Nan), "3806"),
        (Part::Date(*DAYS.start()), "407ff506c6"),
        (Part::Date(0), "4080000000"),
        (Part::Date(20_000), "4080004e20"),
        (Part::Moment(-1), "447fffffffffffffff"),
        (Part::Moment(1_000_000), "4480000000000f4240"),
        (Part::Text("".into()), "500000"),
        (Part::Text("a".into()), "50610000"),
        (Part::Text("a\0b".into()), "506100ff620000"),
        (Part::Text("ä".into()), "50c3a40000"),
        (Part::Bytes(b"".as_slice().into()), "580000"),
        (Part::Bytes(b"\0\xff".as_slice().into()), "5800ffff0000"),
        (Part::Uuid([7; 16]), "6007070707070707070707070707070707"),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_bytes() {
    let mut before: Option<Vec<u8>> = None;
    for (part, bytes) in golden() {
        let key = pack(std::slice::from_ref(&part)).unwrap();
        assert_eq!(hex(&key), bytes, "{part:?}");
        // A NaN is not equal to itself; its text is.
        assert_eq!(format!("{:?}", unpack(&key).unwrap()), format!("{:?}", [part]));
        assert!(before.is_none_or(|before| before < key), "{bytes}");
        before = Some(key);
    }
}

#[test]
fn equal_values_are_one_key() {
    for (one, other) in [
        (Part::Float(0.0), Part::Float(-0.0)),
        (Part::Float(f64::NAN), Part::Float(-f64::NAN)),
        (finite(false, &[1, 5], -1), finite(false, &[0, 1, 5, 0, 0], -3)),
        (finite(false, &[], 0), finite(true, &[0, 0], 7)),
        (Part::Int(-7), big(true, &[0, 7])),
        (Part::Int(0), big(true, &[])),
        (big(true, &[1; 9]), big(true, &[0, 1, 1, 1, 1, 1, 1, 1, 1, 1])),
    ] {
        assert_eq!(pack(&[one]).unwrap(), pack(&[other]).unwrap());
    }
}

#[test]
fn values_without_an_encoding_are_invalid() {
    let wrong = [
        vec![],
        vec![Part::Date(DAYS.end() + 1)],
        vec![Part::Moment(MICROSECONDS.start() - 1)],
        vec![big(false, &[1; 256])],
        vec![finite(false, &[1, 1], i64::MAX)],
        vec![finite(false, &[10], 0)],
        vec![Part::Bytes(vec![1; 65_535].into())],
    ];
    for parts in wrong {
        assert_eq!(pack(&parts).unwrap_err().kind(), ErrorKind::Invalid, "{parts:?}");
    }
    assert!(pack(&[Part::Bytes(vec![1; 65_532].into())]).is_ok());
    assert!(pack(&[big(true, &[1; 255])]).is_ok());
}

#[test]
fn bytes_that_pack_never_makes_are_corruption() {
    for wrong in [
        &b""[..],
        b"\x00",
        b"\x04",
        b"\xff",
        b"\x21",
        b"\x21\x00",
        b"\x1f\xff",
        b"\x22\x00\x01",
        b"\x29\x08\x01\x01\x01\x01\x01\x01\x01\x01",
        b"\x29\x09\x00\x01\x01\x01\x01\x01\x01\x01\x01",
        b"\x30\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x38",
        b"\x38\x00",
        b"\x38\x04\x20",
        b"\x38\x04\x20\x00",
        b"\x38\x04\x20\x0a",
        b"\x38\x04\x20\x15\x00",
        b"\x38\x04\x20\xc8",
        b"\x40\x00\x00\x00\x00",
        b"\x44\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x50a",
        b"\x50\xff\x00\x00",
        b"\x60\x01",
        b"\x01\x05",
    ] {
        assert_eq!(unpack(wrong).unwrap_err().kind(), ErrorKind::Corruption, "{wrong:x?}");
    }
    assert_eq!(unpack(&[1; 65_536]).unwrap_err().kind(), ErrorKind::Corruption);
}

/// The types in their order.
fn rank(part: &Part<'_>) -> u8 {
    match part {
        Part::None => 0,
        Part::Bool(_) => 1,
        Part::Int(_) | Part::BigInt { .. } => 2,
        Part::Float(_) => 3,
        Part::Decimal(_) => 4,
        Part::Date(_) => 5,
        Part::Moment(_) => 6,
        Part::Text(_) => 7,
        Part::Bytes(_) => 8,
        Part::Uuid(_) => 9,
    }
}

/// A whole number as its sign and 300 digits to the base 256.
fn whole(part: &Part<'_>) -> (bool, Vec<u8>) {
    let (negative, magnitude) = match part {
        Part::Int(value) => (*value < 0, value.unsigned_abs().to_be_bytes().to_vec()),
        Part::BigInt { negative, magnitude } => (*negative, magnitude.to_vec()),
        _ => unreachable!(),
    };
    let padded = [vec![0; 300 - magnitude.len()], magnitude].concat();
    (negative && padded.iter().any(|byte| *byte != 0), padded)
}

fn signed<T: Ord>(one: (bool, T), other: (bool, T)) -> Ordering {
    match (one.0, other.0) {
        (false, false) => one.1.cmp(&other.1),
        (true, true) => other.1.cmp(&one.1),
        (negative, _) => {
            if negative {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
    }
}

/// A decimal as a place among infinities and NaN, and 200 digits of which the 100th is the ones.
fn places(value: &Decimal) -> (u8, (bool, Vec<u8>)) {
    match value {
        Decimal::Infinite { negative } => (if *negative { 0 } else { 2 }, (false, vec![])),
        Decimal::Nan => (3, (false, vec![])),
        Decimal::Finite { negative, digits, exponent } => {
            let mut places = vec![0; 200];
            let ones = 99 - exponent - (digits.len() as i64 - 1);
            for (position, digit) in digits.iter().enumerate() {
                places[(ones + position as i64) as usize] = *digit;
            }
            (1, (*negative && digits.iter().any(|digit| *digit != 0), places))
        }
    }
}

/// Written apart from the encoding.
fn order(one: &Part<'_>, other: &Part<'_>) -> Ordering {
    match (one, other) {
        (Part::Bool(one), Part::Bool(other)) => one.cmp(other),
        (Part::Float(one), Part::Float(other)) => {
            one.partial_cmp(other).unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
        }
        (Part::Decimal(one), Part::Decimal(other)) => {
            let ((one, number), (other, second)) = (places(one), places(other));
            one.cmp(&other).then_with(|| signed(number, second))
        }
        (Part::Date(one), Part::Date(other)) => one.cmp(other),
        (Part::Moment(one), Part::Moment(other)) => one.cmp(other),
        (Part::Text(one), Part::Text(other)) => one.chars().cmp(other.chars()),
        (Part::Bytes(one), Part::Bytes(other)) => one.cmp(other),
        (Part::Uuid(one), Part::Uuid(other)) => one.cmp(other),
        _ if rank(one) == 2 && rank(other) == 2 => signed(whole(one), whole(other)),
        _ => rank(one).cmp(&rank(other)),
    }
}

fn part() -> impl Strategy<Value = Part<'static>> {
    let bytes =
        || prop::collection::vec(prop_oneof![Just(0u8), Just(255), 1u8..4, any::<u8>()], 0..6);
    let decimal = (any::<bool>(), prop::collection::vec(0u8..10, 0..40), -60i64..20);
    prop_oneof![
        Just(Part::None),
        any::<bool>().prop_map(Part::Bool),
        any::<i64>().prop_map(Part::Int),
        (-70_000i64..70_000).prop_map(Part::Int),
        (any::<bool>(), prop::collection::vec(any::<u8>(), 0..255))
            .prop_map(|(negative, magnitude)| big(negative, &magnitude)),
        any::<f64>().prop_map(Part::Float),
        prop::num::f64::ANY.prop_map(Part::Float),
        prop_oneof![Just(0.0), Just(-0.0), Just(f64::INFINITY), Just(-1.0)].prop_map(Part::Float),
        decimal.prop_map(|(negative, digits, exponent)| finite(negative, &digits, exponent)),
        (any::<bool>(), prop::collection::vec(0u8..3, 0..4), -3i64..3)
            .prop_map(|(negative, digits, exponent)| finite(negative, &digits, exponent)),
        any::<bool>().prop_map(|negative| Part::Decimal(Decimal::Infinite { negative })),
        Just(Part::Decimal(Decimal::Nan)),
        DAYS.prop_map(Part::Date),
        MICROSECONDS.prop_map(Part::Moment),
        "[\\x00-\\x02a\u{ffff}\u{10000}]{0,4}".prop_map(|text| Part::Text(text.into())),
        bytes().prop_map(|bytes| Part::Bytes(bytes.into())),
        any::<[u8; 16]>().prop_map(Part::Uuid),
    ]
}

fn tuple() -> impl Strategy<Value = Vec<Part<'static>>> {
    prop::collection::vec(part(), 1..5)
}

/// Keys with one changed byte: decoding must not fail on them except with Corruption.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    (tuple(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(parts, at, byte)| {
        let mut key = pack(&parts).unwrap();
        let at = at.index(key.len());
        key[at] ^= byte;
        key
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn keys_compare_as_tuples(one in tuple(), other in tuple()) {
        let lexical = one.iter().zip(&other).map(|(one, other)| order(one, other));
        let expected = lexical.fold(Ordering::Equal, Ordering::then);
        let expected = expected.then(one.len().cmp(&other.len()));
        let (one, other) = (pack(&one).unwrap(), pack(&other).unwrap());
        prop_assert_eq!(one.cmp(&other), expected);
        // Neither is what the other begins with, but for whole parts.
        if expected.is_ne() && other.starts_with(&one) {
            prop_assert!(unpack(&other).unwrap().len() > unpack(&one).unwrap().len());
        }
    }

    #[test]
    fn unpacked_parts_are_equal_and_make_the_same_key(parts in tuple()) {
        let key = pack(&parts).unwrap();
        let out = unpack(&key).unwrap();
        prop_assert_eq!(out.len(), parts.len());
        for (one, other) in parts.iter().zip(&out) {
            prop_assert_eq!(order(one, other), Ordering::Equal);
        }
        prop_assert_eq!(pack(&out).unwrap(), key);
    }

    #[test]
    fn a_range_holds_what_begins_with_its_parts(
        parts in tuple(),
        other in tuple(),
        cut in 0..4usize,
    ) {
        let prefix: Vec<_> = parts.iter().take(cut).cloned().collect();
        let packed = if prefix.is_empty() { vec![] } else { pack(&prefix).unwrap() };
        let (start, end) = range_of(packed).unwrap();
        let within = |key: &[u8]| start.as_slice() <= key && key < end.as_slice();
        prop_assert!(within(&pack(&parts).unwrap()));
        let begins = other.len() >= prefix.len()
            && prefix.iter().zip(&other).all(|(one, other)| order(one, other).is_eq());
        prop_assert_eq!(within(&pack(&other).unwrap()), begins);
    }

    #[test]
    fn any_bytes_are_refused_or_are_the_only_key_of_their_parts(
        key in prop_oneof![damaged(), prop::collection::vec(any::<u8>(), 0..40)]
    ) {
        match unpack(&key) {
            Ok(parts) => prop_assert_eq!(pack(&parts).unwrap(), key),
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corruption),
        }
    }
}
