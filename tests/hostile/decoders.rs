//! Every decoder, every small file, every single damage.

use super::{SMALL_CHANGE, alone, peak, within};
use siltstone_fuzz::damage::Damage;
use siltstone_fuzz::decoders::{BATCH, BLOCK, DECODERS, Decoder, FILTER};
use siltstone_fuzz::typed::{TABLE_SCHEMA, TUPLE, TYPED_KEY, TYPED_VALUE};
use std::time::Duration;

/// Some 20,000 damages of each file take a second or two in a debug build.
const LIMIT: Duration = Duration::from_secs(300);

fn each(check: fn(&Decoder, &[u8])) {
    let _turn = alone();
    for decoder in DECODERS {
        within(LIMIT, decoder.name, move || {
            let samples = (decoder.samples)();
            assert!(samples.len() >= 2, "{}: a sample is missing", decoder.name);
            for sample in samples {
                check(&decoder, &sample);
            }
        });
    }
}

fn has_checksum(decoder: &Decoder) -> bool {
    let typed = [TYPED_KEY, TYPED_VALUE, TUPLE, TABLE_SCHEMA];
    ![BLOCK, FILTER, BATCH].iter().chain(&typed).any(|without| without.name == decoder.name)
}

#[test]
fn samples_are_read() {
    each(|decoder, sample| {
        let read = (decoder.decode)(sample);
        assert!(read.is_ok(), "{}: {read:?}", decoder.name);
        if let Some(reseal) = decoder.reseal {
            let mut sealed = sample.to_vec();
            reseal(&mut sealed);
            assert_eq!(sealed, sample, "{}: sealing anew changes a sound file", decoder.name);
        }
    });
}

/// Under a checksum every flip, truncation and added byte is refused, or makes no difference (the
/// front envelope of a table is not read).
#[test]
fn damage_under_a_checksum_is_found_or_harmless() {
    each(|decoder, sample| {
        if !has_checksum(decoder) {
            return;
        }
        let right = (decoder.decode)(sample).unwrap();
        let (mut refused, mut all) = (0, 0);
        for damage in Damage::all(sample.len(), 1) {
            let damaged = damage.apply(sample);
            all += 1;
            let (answer, taken) = peak(|| (decoder.decode)(&damaged));
            match answer {
                Ok(answer) => assert_eq!(answer, right, "{}: {damage:?}", decoder.name),
                Err(_) => refused += usize::from(decoder.refused(&damaged)),
            }
            check_memory(decoder, &damaged, taken, damage);
        }
        assert!(refused * 10 >= all * 5, "{}: {refused} of {all} refused", decoder.name);
    });
}

/// With corrected checksums, or without any: a value that satisfies the invariants of its type, or
/// a refusal.
#[test]
fn damage_behind_a_checksum_is_a_value_or_a_refusal() {
    each(|decoder, sample| {
        let (mut refused, mut all) = (0, 0);
        for damage in Damage::all(sample.len(), 1) {
            let mut damaged = damage.apply(sample);
            if let Some(reseal) = decoder.reseal {
                reseal(&mut damaged);
            }
            all += 1;
            let (was_refused, taken) = peak(|| decoder.refused(&damaged));
            refused += usize::from(was_refused);
            check_memory(decoder, &damaged, taken, damage);
        }
        // A filter's bits and a value's bytes can have any content; their frames cannot.
        assert!(refused * 20 >= all, "{}: {refused} of {all} refused", decoder.name);
    });
}

fn check_memory(decoder: &Decoder, damaged: &[u8], taken: usize, damage: Damage) {
    let allowed = damaged.len() * decoder.memory_factor + SMALL_CHANGE;
    assert!(taken <= allowed, "{}: {damage:?} takes {taken} of {allowed} bytes", decoder.name);
}

/// Two damages at once, by a fixed sequence: one that a check detects must not hide one that
/// another check misses.
#[test]
fn damage_comes_in_pairs() {
    each(|decoder, sample| {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut draw = move |below: usize| {
            // Xorshift (Marsaglia, 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below.max(1) as u64) as usize
        };
        for _ in 0..4_000 {
            let mut damaged = sample.to_vec();
            for _ in 0..2 {
                let at = draw(damaged.len());
                let new = [0, 1, 0x7f, 0x80, 0xff, draw(256) as u8][draw(6)];
                damaged[at] = new;
            }
            decoder.fuzz(&damaged);
        }
    });
}
