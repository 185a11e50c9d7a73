//! Reading a range into the block cache ahead of its first use.

use super::scan::{FillOutcome, Scan};
use siltstone_base::Result;
use std::future::poll_fn;
use std::task::Poll;

/// A scan stops warming when the cache has no room for this many bytes: about one of its reads.
const LEAST_ROOM: u64 = 1 << 20;
/// Rows that are passed over before the task lets others run.
const ROWS_A_TURN: u32 = 4096;

impl Scan {
    /// Reads the rest of the range into the block cache, as far as it has room: up to three
    /// quarters of its capacity are filled by scans. Returns the bytes of the keys and values that
    /// it read.
    ///
    /// # Errors
    /// As [`Scan::fetch`] and [`Scan::fill`].
    pub async fn warm(mut self) -> Result<u64> {
        let mut bytes = 0_u64;
        loop {
            let mut rows = 0;
            let filled = self.each(|key, value| {
                bytes += (key.len() + value.len()) as u64;
                rows += 1;
                Ok(rows < ROWS_A_TURN)
            })?;
            match filled {
                FillOutcome::End => return Ok(bytes),
                _ if !self.context.cache.has_room(LEAST_ROOM) => return Ok(bytes),
                FillOutcome::Full => let_others_run().await,
                FillOutcome::NeedsBlocks => self.fetch().await?,
            }
        }
    }
}

/// Returns at the second poll.
pub(super) async fn let_others_run() {
    let mut is_second = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_second, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
