//! The work that a store does in the background, for callers that wait until it has ended.

use parking_lot::Mutex;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Work under way. Each wait begins a new tracker, so that it does not wait for later work.
#[derive(Debug)]
pub(crate) struct Background {
    /// The last one tracks new work.
    trackers: Mutex<Vec<TaskTracker>>,
}

impl Background {
    pub(crate) fn new() -> Background {
        Background { trackers: Mutex::new(vec![TaskTracker::new()]) }
    }

    /// Work is under way until the token is dropped.
    pub(crate) fn begin(&self) -> TaskTrackerToken {
        let trackers = self.trackers.lock();
        trackers[trackers.len() - 1].token()
    }

    /// Waits until the work that has begun by now has ended.
    pub(crate) async fn at_rest(&self) {
        let begun = {
            let mut trackers = self.trackers.lock();
            trackers.retain(|tracker| !tracker.is_empty());
            let begun = trackers.clone();
            trackers.push(TaskTracker::new());
            begun
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
        let background = Background::new();
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
        assert_eq!(background.trackers.lock().len(), 1);
    }
}
