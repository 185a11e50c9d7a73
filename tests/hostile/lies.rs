//! Wrong lengths and counts under correct checksums: nothing is allocated because of them.

use super::{SMALL_CHANGE, alone, peak};
use siltstone_fuzz::decoders::{BLOCK, MANIFEST, TABLE, WAL};
use siltstone_fuzz::samples;

const LIES: [u64; 8] = [0, 1, 1 << 20, (1 << 30) - 1, 1 << 30, u32::MAX as u64, 1 << 40, u64::MAX];

/// Every word of every frame claims sizes that the bytes do not have.
#[test]
fn a_claimed_length_costs_nothing() {
    let _turn = alone();
    for decoder in [BLOCK, TABLE, WAL, MANIFEST] {
        for sample in (decoder.samples)() {
            for at in 0..sample.len().saturating_sub(8) {
                for lie in LIES {
                    for width in [4, 8] {
                        let mut hostile = sample.clone();
                        hostile[at..at + width].copy_from_slice(&lie.to_le_bytes()[..width]);
                        if let Some(reseal) = decoder.reseal {
                            reseal(&mut hostile);
                        }
                        let (_, taken) = peak(|| decoder.refused(&hostile));
                        let allowed = SMALL_CHANGE + decoder.memory_factor * hostile.len();
                        assert!(taken <= allowed, "{} {lie} at {at}: {taken}", decoder.name);
                    }
                }
            }
        }
    }
}

/// A stored block: a codec, the claimed length, and bytes.
fn stored(codec: u8, claimed: u64, bytes: &[u8]) -> Vec<u8> {
    [&[codec], claimed.to_le_bytes().as_slice(), bytes].concat()
}

/// Sizes that a codec's format cannot reach are refused before memory is allocated for them.
#[test]
fn a_compressed_block_cannot_claim_more_than_its_codec_reaches() {
    let _turn = alone();
    let sample = samples::blocks();
    for codec in 0..4u8 {
        for bytes in [0usize, 1, 20, 1000] {
            let body = vec![0x11; bytes];
            for claimed in [1u64 << 20, 1 << 28, 1 << 30, (1 << 30) + 1, u64::MAX] {
                let hostile = stored(codec, claimed, &body);
                let (refused, taken) = peak(|| BLOCK.refused(&hostile));
                assert!(refused, "codec {codec}, {bytes} bytes claim {claimed}");
                assert!(taken <= SMALL_CHANGE + 512 * hostile.len(), "{codec} {claimed}: {taken}");
            }
        }
    }
    // Intact blocks with a wrong claimed length.
    for block in sample {
        for claimed in [0, 1, 1 << 20, 1 << 30, u64::MAX] {
            let hostile = stored(block[0], claimed, &block[9..]);
            assert!(BLOCK.refused(&hostile), "codec {} claims {claimed}", block[0]);
        }
    }
}
