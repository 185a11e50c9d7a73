//! The kinds of faults, and their frequencies.

use super::link::Link;
use crate::sim::Rng;
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A request takes seconds.
    Stall,
    /// A create is not applied and the answer is an error.
    PutLostOnTheWay,
    /// A create is applied and its answer is lost.
    PutAnswerLost,
    /// A create is answered with an error and lands seconds or minutes later, even if its process
    /// died.
    PutLandsLate,
    /// A create is answered "exists" with nothing stored (a bare 409).
    PutFalseExists,
    /// The client sends a create twice and reports a conflict with itself.
    PutResent,
    /// A read fails.
    GetError,
    /// A read ends early; the seam turns that into an error.
    GetShort,
    /// A read returns one flipped bit; further reads of the object are correct for a while.
    GetFlippedBit,
    /// A listing fails.
    ListError,
    /// A listing lacks the newest objects. This violates the contract of the seam: only for tests
    /// that request it ([`FaultPlan::with_stale_lists`]).
    ListStale,
    /// A delete fails and does nothing.
    DeleteLost,
    /// A delete succeeds and its answer is lost.
    DeleteAnswerLost,
    /// A delete is answered with an error and lands later.
    DeleteLate,
    /// Sending a chunk of an upload fails.
    UploadPartError,
    /// Completing an upload fails without effect.
    UploadLost,
    /// Completing an upload succeeds and its answer is lost.
    UploadAnswerLost,
    /// Completing an upload is answered with an error and lands later.
    UploadLate,
    /// Everything fails for a while.
    BrownOut,
    /// A body waits for the link longer than the longest time of a request ([`FaultPlan::link`]).
    SlowLink,
    /// The client gives a request up at its limit: bytes that had arrived by then are applied, the
    /// fate of the rest is unknown.
    CutOff,
    /// Creates and uploads are denied for a while; other requests work.
    PutDenied,
    /// Listings are denied for a while; other requests work.
    ListDenied,
    /// Deletes are denied for a while; other requests work.
    DeleteDenied,
    /// For a while the store answers a kind of request with a permanent refusal.
    RefusedForGood,
    /// Objects that do not fit are refused, until space is freed.
    DiskFull,
    /// A listing is made of pages, each read at a different time.
    ListInPages,
    /// A store operation in a background task of the engine panics.
    TaskPanic,
    /// A process's wall clock, or the store's, steps by hours.
    ClockStep,
    /// A caller drops the future of a call.
    DroppedFuture,
    /// Written values expire during the run.
    ExpiryDue,
    /// An outsider deletes a WAL object that is needed.
    Hole,
    /// An outsider deletes the database under live handles, and another is created there.
    Remade,
}

impl Fault {
    /// Faults that may affect any single request: every random plan has some of them.
    pub const REQUESTS: [Fault; 19] = [
        Fault::Stall,
        Fault::PutLostOnTheWay,
        Fault::PutAnswerLost,
        Fault::PutLandsLate,
        Fault::PutFalseExists,
        Fault::PutResent,
        Fault::GetError,
        Fault::GetShort,
        Fault::GetFlippedBit,
        Fault::ListError,
        Fault::ListStale,
        Fault::DeleteLost,
        Fault::DeleteAnswerLost,
        Fault::DeleteLate,
        Fault::UploadPartError,
        Fault::UploadLost,
        Fault::UploadAnswerLost,
        Fault::UploadLate,
        Fault::BrownOut,
    ];

    /// Faults of the environment: a seed has few of them, or none.
    pub const EDGES: [Fault; 14] = [
        Fault::SlowLink,
        Fault::CutOff,
        Fault::PutDenied,
        Fault::ListDenied,
        Fault::DeleteDenied,
        Fault::RefusedForGood,
        Fault::DiskFull,
        Fault::ListInPages,
        Fault::TaskPanic,
        Fault::ClockStep,
        Fault::DroppedFuture,
        Fault::ExpiryDue,
        Fault::Hole,
        Fault::Remade,
    ];

    /// Number of kinds.
    const KINDS: usize = Fault::REQUESTS.len() + Fault::EDGES.len();

    /// Whether the fault is possible with a store that keeps the contract, without an outsider.
    #[must_use]
    pub fn keeps_the_contract(self) -> bool {
        !matches!(self, Fault::ListStale | Fault::Hole | Fault::Remade)
    }
}

/// How often each fault occurs, per thousand requests that it can affect, and the latency of the
/// store.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    rates: [u32; Fault::KINDS],
    /// Shortest and longest time of a request, in one direction.
    pub latency: (Duration, Duration),
    /// Shortest and longest delay of late requests.
    pub lateness: (Duration, Duration),
    /// Shortest and longest brown-out.
    pub brown_out: (Duration, Duration),
    /// How long an object can be missing from listings.
    pub staleness: Duration,
    /// Bandwidth and limits of requests; `None`: there are none. Stays when the faults end.
    pub link: Option<Link>,
    /// Shortest and longest time for which a verb is refused, or a disk is full.
    pub refusal: (Duration, Duration),
    /// Whether a permanent refusal may be that there is no such bucket.
    pub refuses_as_missing: bool,
    /// Maximum number of free bytes when a disk is about to be full.
    pub spare_bytes: u64,
    /// Names in a page of a listing.
    pub page_names: usize,
}

impl FaultPlan {
    /// No faults, a fast store.
    #[must_use]
    pub fn none() -> FaultPlan {
        FaultPlan {
            rates: [0; Fault::KINDS],
            latency: (Duration::from_millis(1), Duration::from_millis(10)),
            lateness: (Duration::from_secs(1), Duration::from_secs(300)),
            brown_out: (Duration::from_secs(1), Duration::from_secs(20)),
            staleness: Duration::from_secs(5),
            link: None,
            refusal: (Duration::from_millis(200), Duration::from_secs(5)),
            refuses_as_missing: true,
            spare_bytes: 4096,
            page_names: 3,
        }
    }

    /// A plan for one seed: each fault of [`Fault::REQUESTS`] that the contract allows is off in
    /// half of the plans, and otherwise occurs 1 to 60 times in a thousand; the store is fast or
    /// slow.
    #[must_use]
    pub fn random(rng: &mut Rng) -> FaultPlan {
        let mut plan = FaultPlan::none();
        for fault in Fault::REQUESTS {
            let (on, rate) = (rng.chance(500), 1 + rng.below(60) as u32);
            // A brown-out affects many requests at once.
            let rate = if fault == Fault::BrownOut { rate.div_ceil(10) } else { rate };
            if on && fault.keeps_the_contract() {
                plan = plan.with(fault, rate);
            }
        }
        let slow = rng.below(4);
        plan.latency.1 = Duration::from_millis(10 + 40 * slow * slow);
        plan.lateness.1 = Duration::from_secs(2 + rng.below(600));
        plan
    }

    /// The same, with `fault` occurring `per_mille` times in a thousand.
    #[must_use]
    pub fn with(mut self, fault: Fault, per_mille: u32) -> FaultPlan {
        if let Some(rate) = self.rates.get_mut(fault as usize) {
            *rate = per_mille;
        }
        self
    }

    /// The same, with listings that sometimes lack objects newer than [`FaultPlan::staleness`].
    #[must_use]
    pub fn with_stale_lists(self, per_mille: u32) -> FaultPlan {
        self.with(Fault::ListStale, per_mille)
    }

    /// How often `fault` occurs, in a thousand.
    #[must_use]
    pub fn rate(&self, fault: Fault) -> u32 {
        self.rates.get(fault as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_rate_of_its_own() {
        let all = || Fault::REQUESTS.into_iter().chain(Fault::EDGES);
        for (position, fault) in all().enumerate() {
            assert_eq!(fault as usize, position);
            let plan = FaultPlan::none().with(fault, 7);
            for other in all() {
                assert_eq!(plan.rate(other), if other == fault { 7 } else { 0 });
            }
        }
    }

    #[test]
    fn random_plans_keep_the_contract_and_use_every_fault_in_time() {
        let mut rng = Rng::new(3);
        let plans: Vec<_> = (0..100).map(|_| FaultPlan::random(&mut rng)).collect();
        for fault in Fault::REQUESTS {
            let used = plans.iter().filter(|plan| plan.rate(fault) > 0).count();
            if fault.keeps_the_contract() {
                assert!((20..80).contains(&used), "{fault:?} in {used} plans");
            } else {
                assert_eq!(used, 0);
            }
        }
    }
}
