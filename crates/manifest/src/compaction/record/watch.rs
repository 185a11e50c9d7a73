//! Detection of stalled workers by one observer.

use super::{Claim, Compactions, JobRange};
use siltstone_base::JobId;
use std::collections::HashMap;
use std::time::Duration;

/// The claims that an observer has seen, and since when they are unchanged by its own clock. A
/// wrong judgement is harmless: a worker that is judged stalled by mistake only loses its claim.
#[derive(Clone, Debug, Default)]
pub struct ClaimWatch {
    seen: HashMap<(JobId, usize), (Claim, Duration)>,
}

impl ClaimWatch {
    /// Observes `record` at `now`, by a monotonic clock. Returns the claims that were the same in
    /// every observation for `limit` or longer, by job and index of the range. Claims that have
    /// ended are forgotten.
    pub fn look(
        &mut self,
        record: &Compactions,
        now: Duration,
        limit: Duration,
    ) -> Vec<(JobId, usize, Claim)> {
        let mut seen = HashMap::new();
        let mut still = Vec::new();
        for job in record.jobs.iter().filter(|job| !job.cancelled) {
            let claim = |(at, range): (usize, &JobRange)| Some((at, range.claim?));
            for (at, claim) in job.ranges.iter().enumerate().filter_map(claim) {
                let place = (job.id, at);
                let before = self.seen.get(&place).filter(|(before, _)| *before == claim);
                let since = before.map_or(now, |(_, since)| *since);
                if now.saturating_sub(since) >= limit {
                    still.push((job.id, at, claim));
                }
                seen.insert(place, (claim, since));
            }
        }
        self.seen = seen;
        still
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::job;
    use super::*;
    use crate::compaction::KeyRange;
    use bytes::Bytes;
    use siltstone_base::{AttemptId, DatabaseId};

    fn record(claim: Option<Claim>) -> Compactions {
        let mut one = job(7);
        let keys = KeyRange { start: Bytes::from_static(b"a"), end: None, bottom: true };
        one.ranges = vec![JobRange::open(keys.clone()), JobRange { claim, ..JobRange::open(keys) }];
        Compactions { jobs: vec![one], ..Compactions::none(DatabaseId(1)) }
    }

    #[test]
    fn a_claim_is_still_when_no_look_saw_it_move() {
        let limit = Duration::from_secs(30);
        let at = Duration::from_secs;
        let claim = |heartbeats| Claim { worker: AttemptId(9), heartbeats };
        let mut watch = ClaimWatch::default();
        // A new observer knows nothing yet, however old the claim is.
        assert_eq!(watch.look(&record(Some(claim(1))), at(1000), limit), vec![]);
        assert_eq!(watch.look(&record(Some(claim(1))), at(1029), limit), vec![]);
        let still = watch.look(&record(Some(claim(1))), at(1030), limit);
        assert_eq!(still, vec![(JobId(7), 1, claim(1))]);
        // A heartbeat restarts the count, and so does another worker or an end in between.
        assert_eq!(watch.look(&record(Some(claim(2))), at(1031), limit), vec![]);
        let other = Claim { worker: AttemptId(10), heartbeats: 2 };
        assert_eq!(watch.look(&record(Some(other)), at(1061), limit), vec![]);
        assert_eq!(watch.look(&record(None), at(1070), limit), vec![]);
        assert_eq!(watch.look(&record(Some(other)), at(1100), limit), vec![]);
        assert_eq!(watch.look(&record(Some(other)), at(1130), limit).len(), 1);
    }
}
