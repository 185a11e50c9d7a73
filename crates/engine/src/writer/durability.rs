//! Which writes are durable, and which callers wait for that.
//!
//! Acknowledgements come in the order of WAL ids, so durability is one number, a watermark. A
//! caller leaves its waker under the sequence number for which it waits; advancing the watermark
//! wakes the callers at or below it. A write that no caller waits for costs no channel and no
//! allocation.

use parking_lot::Mutex;
use siltstone_base::{Error, Result, Seq};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

/// The watermark of durable writes.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    durable: AtomicU64,
    waited: AtomicU64,
    waiting: Mutex<DurabilityWaiters>,
}

#[derive(Debug, Default)]
struct DurabilityWaiters {
    /// Set once, when the handle has died and no more writes will be acknowledged.
    failed: Option<Error>,
    /// A temporary error, such as a refused credential. It is reported to the callers that wait
    /// now, while the write continues.
    trouble: Option<(u64, Error)>,
    next_ticket: u64,
    wakers: BTreeMap<(u64, u64), Waker>,
}

impl Durability {
    pub(crate) fn new(durable: Seq) -> Self {
        let this = Durability::default();
        this.durable.store(durable.0, Ordering::Release);
        this
    }

    /// Everything up to this number is durable.
    pub(crate) fn durable(&self) -> Seq {
        Seq(self.durable.load(Ordering::Acquire))
    }

    /// The largest sequence number for which a caller waits.
    pub(crate) fn waited(&self) -> Seq {
        Seq(self.waited.load(Ordering::Acquire))
    }

    /// Records that a caller waits for `seq`. Returns whether the WAL task must be notified.
    pub(crate) fn want(&self, seq: Seq) -> bool {
        self.waited.fetch_max(seq.0, Ordering::AcqRel) < seq.0 && seq > self.durable()
    }

    /// Moves the watermark and wakes the callers that it passes.
    pub(crate) fn advance(&self, to: Seq) {
        self.durable.fetch_max(to.0, Ordering::AcqRel);
        let mut waiting = self.waiting.lock();
        let later = waiting.wakers.split_off(&(to.0.saturating_add(1), 0));
        let passed = std::mem::replace(&mut waiting.wakers, later);
        drop(waiting);
        passed.into_values().for_each(Waker::wake);
    }

    /// Ends every present and future wait with `error`.
    pub(crate) fn fail(&self, error: Error) {
        let mut waiting = self.waiting.lock();
        waiting.failed.get_or_insert(error);
        let all = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        all.into_values().for_each(Waker::wake);
    }

    /// Reports `error`, which waiting does not cure, to the callers that wait now. The writes stay
    /// queued and are retried.
    pub(crate) fn trouble(&self, error: Error) {
        let mut waiting = self.waiting.lock();
        waiting.trouble = Some((waiting.next_ticket, error));
        let all = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        all.into_values().for_each(Waker::wake);
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.waiting.lock().failed.clone()
    }

    /// Completes once `seq` is durable.
    pub(crate) fn wait(self: Arc<Self>, seq: Seq) -> DurableWait {
        DurableWait { durability: self, seq, ticket: None }
    }
}

/// The future of [`Durability::wait`]. Dropping it cancels nothing but the wait.
pub(crate) struct DurableWait {
    durability: Arc<Durability>,
    seq: Seq,
    ticket: Option<u64>,
}

impl Future for DurableWait {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let durability = Arc::clone(&self.durability);
        if durability.durable() >= self.seq {
            return Poll::Ready(Ok(()));
        }
        let mut waiting = durability.waiting.lock();
        // Check again under the lock: an `advance` since the check above has already taken the
        // wakers and would miss this one.
        if durability.durable() >= self.seq {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &waiting.failed {
            return Poll::Ready(Err(error.clone()));
        }
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => {
                let ticket = waiting.next_ticket;
                waiting.next_ticket += 1;
                self.ticket = Some(ticket);
                ticket
            }
        };
        if let Some((before, error)) = &waiting.trouble
            && ticket < *before
        {
            return Poll::Ready(Err(error.clone()));
        }
        waiting.wakers.insert((self.seq.0, ticket), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for DurableWait {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.durability.waiting.lock().wakers.remove(&(self.seq.0, ticket));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use siltstone_base::ErrorKind;

    #[test]
    fn waiters_wake_in_order_and_failure_wakes_the_rest() {
        let durability = Arc::new(Durability::new(Seq(3)));
        assert!(Arc::clone(&durability).wait(Seq(3)).now_or_never().is_some());
        let mut four = Arc::clone(&durability).wait(Seq(4));
        let mut five = Arc::clone(&durability).wait(Seq(5));
        assert!((&mut four).now_or_never().is_none() && (&mut five).now_or_never().is_none());
        durability.advance(Seq(4));
        assert_eq!((&mut four).now_or_never().map(|r| r.is_ok()), Some(true));
        assert!((&mut five).now_or_never().is_none());
        durability.fail(Error::new(ErrorKind::Fenced, "x"));
        let ended = (&mut five).now_or_never().and_then(Result::err).map(|e| e.kind());
        assert_eq!(ended, Some(ErrorKind::Fenced));
        assert!(Arc::clone(&durability).wait(Seq(4)).now_or_never().is_some_and(|r| r.is_ok()));
    }

    #[test]
    fn trouble_is_told_to_those_who_wait_now_only() {
        let durability = Arc::new(Durability::new(Seq(0)));
        let mut early = Arc::clone(&durability).wait(Seq(1));
        assert!((&mut early).now_or_never().is_none());
        durability.trouble(Error::new(ErrorKind::Denied, "x"));
        assert_eq!((&mut early).now_or_never().map(|r| r.is_err()), Some(true));
        assert!(Arc::clone(&durability).wait(Seq(1)).now_or_never().is_none());
    }

    #[test]
    fn a_dropped_wait_leaves_nothing_behind() {
        let durability = Arc::new(Durability::new(Seq(0)));
        let mut wait = Arc::clone(&durability).wait(Seq(1));
        assert!((&mut wait).now_or_never().is_none());
        drop(wait);
        assert!(durability.waiting.lock().wakers.is_empty());
    }
}
