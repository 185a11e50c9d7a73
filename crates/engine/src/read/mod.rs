//! Reading: point look-ups, many at once, scans, snapshots (RFC 0006). All of it works on a
//! [`Pin`]: a tree and a sequence number that stay what they are however long the read takes.

mod cover;
mod get;
mod keys;
mod lacking;
mod many;
mod partition;
mod rows;
mod scan;
mod scan_table;
mod snapshot;
mod wave;

pub(crate) use get::get;
pub use keys::Keys;
pub(crate) use many::get_many;
pub use rows::{Column, Rows};
pub use scan::{Fill, Scan, ScanRange};
pub use snapshot::Snapshot;

use crate::fetch::ReadContext;
use crate::tree::Tree;
use siltstone_base::{Seq, UnixMillis};
use siltstone_merge::ReadView;
use std::sync::Arc;

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
        ReadView { seq: self.seq, now: self.now, operator: context.operator().cloned() }
    }
}
