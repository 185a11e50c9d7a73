//! The scheduler at work: a task of the writer's process, woken when a flush has changed the tree.

use super::Wanted;
use crate::writer::Writer;
use futures::future::select;
use siltstone_base::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Pause after a compaction that failed; it doubles from one failure to the next.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Runs until the handle begins to close, has ended, or another compactor has taken over.
pub(crate) async fn run(writer: Arc<Writer>) {
    let mut pause = FIRST_PAUSE;
    while writer.is_open() {
        match super::alone(&writer, &Wanted::Scheduled).await {
            // What it made may make the next one due.
            Ok(true) => pause = FIRST_PAUSE,
            Ok(false) => {
                pause = FIRST_PAUSE;
                writer.compact_nudge.notified().await;
            }
            Err(error) if error.kind() == ErrorKind::Fenced => return,
            Err(_) => {
                stays_open(&writer, writer.env.jittered(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Waits for `pause`, or until the handle begins to close.
async fn stays_open(writer: &Writer, pause: Duration) {
    let until = writer.env.clock.monotonic() + pause;
    while writer.is_open() {
        let left = until.saturating_sub(writer.env.clock.monotonic());
        if left.is_zero() {
            return;
        }
        let nudged = pin!(writer.compact_nudge.notified());
        select(nudged, writer.env.clock.sleep(left)).await;
    }
}
