//! Observations of a store about its own requests, for limits of calls and for statistics.

use super::DiskCacheCounts;
use crate::sent::SentRequests;
use std::sync::Arc;

/// Observations of a store up to one moment. The default is that of a store without requests.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Bytes of answers, including those in flight. A call continues past its deadline while a long
    /// object arrives. 0 for stores that do not count them.
    pub moved: u64,
    /// Whether the listings so far came in the order of the names, before this seam sorted them;
    /// `None` for stores that make their listings themselves.
    pub lists_in_order: Option<bool>,
    /// Counts of the requests of its clients; `None` for stores without clients, whose requests are
    /// counted at this seam.
    pub sent: Option<Arc<SentRequests>>,
    /// Counts of the disk cache of the handle; `None` without one.
    pub disk_cache: Option<DiskCacheCounts>,
}
