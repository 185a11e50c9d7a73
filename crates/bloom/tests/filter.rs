//! Invariants of a filter, its false positive rate, and bytes that are not a filter.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test"
)]

use proptest::prelude::*;
use siltstone_bloom::{Bloom, BloomBuilder, DecodeError, Marks, key_hash};

fn build(bits_per_key: u32, hashes: &[u64]) -> Vec<u8> {
    let mut builder = BloomBuilder::new(bits_per_key);
    hashes.iter().for_each(|hash| builder.add(*hash));
    assert_eq!(builder.encoded_len(), builder.clone().finish().len());
    builder.finish()
}

proptest! {
    #[test]
    fn an_added_key_is_never_denied(
        hashes in prop::collection::vec(any::<u64>(), 0..2000),
        bits in 0u32..80,
    ) {
        let bloom = Bloom::decode(&build(bits, &hashes)).unwrap();
        for hash in &hashes {
            prop_assert!(bloom.may_contain(*hash));
        }
    }

    #[test]
    fn marks_say_what_the_hash_says(
        filters in prop::collection::vec(
            (0u32..40, prop::collection::vec(any::<u64>(), 0..60)), 1..6,
        ),
        asked in prop::collection::vec(any::<u64>(), 0..20),
    ) {
        let filter = |(bits, hashes): &(u32, Vec<u64>)| Bloom::decode(&build(*bits, hashes));
        let blooms: Vec<Bloom> = filters.iter().map(|one| filter(one).unwrap()).collect();
        for hash in filters.iter().flat_map(|(_, hashes)| hashes).chain(&asked) {
            let mut marks = Marks::new(*hash);
            for bloom in &blooms {
                prop_assert_eq!(bloom.may_contain_marked(&mut marks), bloom.may_contain(*hash));
            }
        }
    }

    #[test]
    fn a_builder_that_begins_anew_makes_what_a_new_one_makes(
        filters in prop::collection::vec(
            (0u32..80, prop::collection::vec(any::<u64>(), 0..500)), 1..5,
        ),
    ) {
        let mut kept = BloomBuilder::default();
        for (bits, hashes) in &filters {
            kept.restart(*bits);
            kept.reserve(hashes.len());
            hashes.iter().for_each(|hash| kept.add(*hash));
            let mut out = b"before".to_vec();
            kept.encode_into(&mut out);
            prop_assert_eq!(out, [b"before", build(*bits, hashes).as_slice()].concat());
        }
    }

    #[test]
    fn any_bytes_are_a_filter_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(bloom) = Bloom::decode(&bytes) {
            let _ = bloom.may_contain(7);
        }
    }
}

#[test]
fn no_bits_mean_perhaps_and_no_keys_mean_no() {
    assert!(Bloom::decode(&build(0, &[1, 2, 3])).unwrap().may_contain(9));
    assert_eq!(build(0, &[1, 2, 3]).len(), 8);
    assert!(!Bloom::decode(&build(10, &[])).unwrap().may_contain(9));
}

/// Upper limits of the false positive rate, slightly above the rates measured when the format was
/// frozen (6 bits: 5.7 %, 10 bits: 0.97 %, 16 bits: 0.08 %), so that a change to probes or to the
/// choice of blocks is detected.
#[test]
fn false_answers_stay_rare() {
    for (bits, most) in [(6, 0.069), (10, 0.012), (16, 0.0012)] {
        let members: Vec<u64> = (0u64..200_000).map(|n| key_hash(&n.to_be_bytes())).collect();
        let bloom = Bloom::decode(&build(bits, &members)).unwrap();
        let asked = 400_000u64;
        let wrong = (0..asked)
            .filter(|n| bloom.may_contain(key_hash(&(n + 1_000_000_000).to_be_bytes())))
            .count();
        let rate = wrong as f64 / asked as f64;
        println!("{bits} bits per key: {:.3} % false answers", rate * 100.0);
        assert!(rate < most, "{bits} bits per key: {rate}");
    }
}

/// The stored form is frozen: these bytes never change.
#[test]
fn the_stored_form_is_frozen() {
    let hashes = [b"a".as_slice(), b"b", b"siltstone"].map(key_hash);
    assert_eq!(
        hashes,
        [0xe6c6_32b6_1e96_4e1f, 0x575a_0b1c_44d8_843f, 0xe4f4_06f5_4887_3481],
        "XXH3 of known keys: {hashes:x?}"
    );
    let bytes = build(10, &hashes);
    let set: Vec<usize> = (0..512)
        .filter(|bit| bytes.get(8 + bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1))
        .collect();
    assert_eq!(bytes.get(..8), Some([1u8, 6, 0, 0, 1, 0, 0, 0].as_slice()));
    // Computed by hand from the crate's documentation.
    let expected =
        [5, 32, 70, 100, 101, 107, 110, 126, 152, 197, 283, 287, 298, 311, 392, 407, 418, 510];
    assert_eq!(set, expected);
}

#[test]
fn damaged_heads_are_refused() {
    let good = build(10, &[1, 2, 3]);
    let with = |position: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[position] = byte;
        Bloom::decode(&bytes).err()
    };
    assert_eq!(with(0, 2), Some(DecodeError::UnknownVersion(2)));
    for (position, byte) in [(1, 0), (1, 17), (2, 1), (3, 1), (4, 0), (4, 2), (7, 255)] {
        assert_eq!(with(position, byte), Some(DecodeError::Corrupt), "{position} {byte}");
    }
    for cut in 0..good.len() {
        assert_eq!(Bloom::decode(&good[..cut]).err(), Some(DecodeError::Corrupt), "{cut}");
    }
}
