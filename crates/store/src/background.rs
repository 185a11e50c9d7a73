//! The work that a store does in the background, for callers that wait until it has ended.

use parking_lot::Mutex;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Work under way.
#[derive(Debug, Default)]
pub(crate) struct Background {
    trackers: Mutex<Trackers>,
}

/// Each wait begins a new tracker, so that it does not wait for later work.
#[derive(Debug, Default)]
struct Trackers {
    newest: TaskTracker,
    /// Those whose work has not ended.
    older: Vec<TaskTracker>,
}

impl Background {
    /// Work is under way until the token is dropped.
    pub(crate) fn begin(&self) -> TaskTrackerToken {
        self.trackers.lock().newest.token()
    }

    /// Waits until the work that has begun by now has ended.
    pub(crate) async fn at_rest(&self) {
        let begun = {
            let mut trackers = self.trackers.lock();
            let newest = std::mem::take(&mut trackers.newest);
            trackers.older.push(newest);
            trackers.older.retain(|tracker| !tracker.is_empty());
            trackers.older.clone()
        };
        for tracker in begun {
            tracker.close();
            tracker.wait().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_wait_ends_with_the_work_that_had_begun() {
        let background = Background::default();
        assert!(background.at_rest().now_or_never().is_some());
        let first = background.begin();
        let mut waits = Box::pin(background.at_rest());
        assert!((&mut waits).now_or_never().is_none());
        let second = background.begin();
        let mut waits_for_both = Box::pin(background.at_rest());
        drop(first);
        assert!(waits.now_or_never().is_some(), "later work does not count");
        assert!((&mut waits_for_both).now_or_never().is_none());
        drop(second);
        assert!(waits_for_both.now_or_never().is_some());
        assert!(background.at_rest().now_or_never().is_some());
        assert!(background.trackers.lock().older.is_empty());
    }
}
