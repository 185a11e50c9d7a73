//! The amount of work that is due, by the scheduler: a pure function of the manifest.

use crate::options::Options;
use siltstone_base::{SstDescriptor, UnixMillis};
use siltstone_manifest::Manifest;
use siltstone_manifest::compaction::{Pick, Plan, PlanReason, SpaceAmplification, View};

/// Input bytes of all plans that the scheduler would begin now, without running jobs and without a
/// limit on their number. Inputs of a running job count until its commit. Tables that are dropped
/// without being read do not count.
pub(crate) fn pending_bytes(state: &Manifest, options: &Options, now: UnixMillis) -> u64 {
    let Ok(scheduler) = options.compaction.scheduler(options.l0_sst_size_bytes as u64) else {
        return 0;
    };
    let view = View { state, running: &[], now, max_compactions: usize::MAX };
    let plans = scheduler.plans(&view);
    plans
        .iter()
        .filter(|plan| plan.reason != PlanReason::Expired)
        .map(|plan| bytes_of(state, plan))
        .sum()
}

/// The bytes above the last layer, if the scheduler bounds them and a compactor is active. Without
/// a compactor writes are not slowed down for a merge that does not come.
pub(crate) fn above(state: &Manifest, options: &Options) -> Option<SpaceAmplification> {
    if !options.embedded_compactor && state.compactor_is_released() {
        return None;
    }
    let scheduler = options.compaction.scheduler(options.l0_sst_size_bytes as u64).ok()?;
    scheduler.above(state)
}

fn bytes_of(state: &Manifest, plan: &Plan) -> u64 {
    let sources = plan.sources.iter().map(|source| {
        let tables = state.layer(source.layer).unwrap_or_default().iter();
        let picked = |table: &&SstDescriptor| match &source.pick {
            Pick::Whole => true,
            Pick::Tables(names) => names.contains(&table.id),
        };
        tables.filter(picked).map(|table| table.object_bytes).sum::<u64>()
    });
    sources.sum()
}
