//! Reading: point look-ups, batch gets, scans (RFC 0006). All of it works on a [`Pin`]: a tree and
//! a sequence number that stay what they are however long the read takes.

pub(crate) mod answer;
mod batch_get;
mod batch_probe;
mod cover;
mod dead_spans;
mod get;
mod keys;
mod mem_versions;
pub(crate) mod mirror;
mod missing;
mod partition;
pub(crate) mod queue;
mod read_range;
mod rows;
pub(crate) mod scan;
mod scan_blocks;
mod scan_range;
mod scan_run;
mod scan_source;
mod scan_table;
pub(crate) mod settings;
mod size;
pub(crate) mod tree;
pub(crate) mod value;
mod warm;

pub(crate) use batch_get::get_many;
pub(crate) use get::{get, get_entry, get_lasting};
pub use keys::Keys;
pub(crate) use read_range::ReadRange;
pub use rows::{Column, Rows};
pub use scan::{FillOutcome, Scan};
pub use scan_range::ScanRange;
pub use size::Size;
pub(crate) use size::approximate_size;

use crate::cache::fetch::ReadContext;
use siltstone_base::{Seq, UnixMillis};
use siltstone_merge::ReadView;
use std::sync::Arc;
use tree::Tree;

/// A consistent moment of the database.
#[derive(Clone)]
pub(crate) struct Pin {
    pub(crate) tree: Arc<Tree>,
    pub(crate) seq: Seq,
    /// "Now" for expiry: fixed once, so that an entry does not expire in the middle of a read.
    pub(crate) now: UnixMillis,
}

impl Pin {
    fn view(&self, context: &ReadContext) -> ReadView {
        let operator = context.operator().cloned();
        let recorded_operator = match &operator {
            Some(_) => None,
            None => context.operator.recorded.get().cloned(),
        };
        ReadView { seq: self.seq, now: self.now, operator, recorded_operator }
    }
}
