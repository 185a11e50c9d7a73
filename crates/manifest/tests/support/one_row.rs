//! A table of one row, shared by the models of clones and exports.

use siltstone_base::sst::SstLocation;
use siltstone_base::{Seq, SstDescriptor, SstId};

/// A table with `key` at sequence number 1.
pub(crate) fn one_row(id: u128, location: SstLocation, key: &'static [u8]) -> SstDescriptor {
    SstDescriptor {
        id: SstId(id),
        location,
        job: None,
        object_bytes: 100,
        checksum: 1,
        tail_offset: 50,
        first_key: key.into(),
        last_key: key.into(),
        visible_start: None,
        visible_end: None,
        seq_override: None,
        entries: 1,
        tombstones: 0,
        min_seq: Seq(1),
        max_seq: Seq(1),
        min_expiry: None,
        max_expiry: None,
        range_deletes: None,
        sum: None,
    }
}
