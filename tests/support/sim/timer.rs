//! Virtual sleeps.

use super::executor::SimHandle;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Completes once virtual time has passed `until`.
pub(crate) struct Sleep {
    sim: SimHandle,
    until: Duration,
    /// The timer's key in the executor's queue, while it is there.
    registered: Option<(Duration, u64)>,
    /// A sleep of length zero still lets other tasks run once.
    yielded: bool,
}

impl Sleep {
    pub(crate) fn new(sim: SimHandle, duration: Duration) -> Sleep {
        let until = sim.elapsed().saturating_add(duration);
        Sleep { sim, until, registered: None, yielded: !duration.is_zero() }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.yielded {
            self.yielded = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(key) = self.registered.take() {
            self.sim.remove_timer(key);
        }
        if self.sim.elapsed() >= self.until {
            return Poll::Ready(());
        }
        let key = self.sim.add_timer(self.until, context.waker().clone());
        self.registered = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.registered.take() {
            self.sim.remove_timer(key);
        }
    }
}
