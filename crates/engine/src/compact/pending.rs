//! How much there is to compact, as the scheduler sees it: a pure function of the manifest.

use crate::options::Options;
use siltstone_base::{SstDescriptor, UnixMillis};
use siltstone_manifest::Manifest;
use siltstone_manifest::compaction::{Pick, Plan, PlanReason, SpaceAmplification, View};

/// Bytes of the sources of every plan that the scheduler would begin now if nothing were under way
/// and any number might be. What a job under way reads is among them until it is committed; tables
/// that go unread are not.
pub(crate) fn pending_bytes(state: &Manifest, options: &Options, now: UnixMillis) -> u64 {
    let Ok(scheduler) = options.compaction.scheduler(options.l0_sst_size_bytes as u64) else {
        return 0;
    };
    let view = View { state, running: &[], now, max_compactions: usize::MAX };
    let plans = scheduler.plans(&view);
    plans
        .iter()
        .filter(|plan| plan.why != PlanReason::Expired)
        .map(|plan| bytes_of(state, plan))
        .sum()
}

/// What lies above the last layer, where the scheduler bounds it and somebody compacts: nobody is
/// slowed down for the sake of a merge that does not come.
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
