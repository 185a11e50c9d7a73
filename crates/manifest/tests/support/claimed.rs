//! A database with a writer and a compactor, shared by the tests of placement.

use siltstone_base::{AttemptId, Epoch};
use siltstone_manifest::{ClaimWriter, Edit, Manifest};

/// `empty` after the claims of a writer and a compactor.
pub(crate) fn claimed(empty: &Manifest) -> Manifest {
    let writer = Edit::ClaimWriter(ClaimWriter {
        expected: Epoch::NONE,
        claim: AttemptId(1),
        max_parallel_writes: 1,
        take_over: true,
        transient: false,
        ends_transient: false,
        reserve: Vec::new(),
        checkpoint: None,
        merge_operator: None,
    });
    let (expected, claim) = (Epoch::NONE, AttemptId(2));
    let compactor = Edit::ClaimCompactor { writer: None, expected, claim };
    let state = writer.apply(empty).and_then(|next| compactor.apply(&next));
    state.expect("a new database")
}
