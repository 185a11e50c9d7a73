//! The protocol rules in force: all of them, but in a build that plants a mistake for the tests to
//! find.

#[cfg(any(
    mutation = "slot_reused",
    mutation = "fence_below_replay_point",
    mutation = "two_writers",
    mutation = "acknowledge_early",
    mutation = "gap_not_skipped",
    mutation = "nothing_pinned",
    mutation = "let_go_too_early",
    mutation = "boundary_after_deletes",
    mutation = "slot_unchecked",
    mutation = "listing_after_reading",
    mutation = "jobs_ignored",
    mutation = "reservations_ignored",
    mutation = "checkpoints_ignored",
    mutation = "finish_unfenced",
    mutation = "old_base_committed",
    mutation = "taken_claim_counts",
    mutation = "hole_is_corruption",
    mutation = "leases_ignored",
    mutation = "holds_ignored",
    mutation = "fed_let_go_early",
    mutation = "restore_keeps_log",
    mutation = "restore_keeps_histories",
    mutation = "undone_is_held",
    mutation = "manifest_before_freed"
))]
use siltstone_manifest::Rule;
use siltstone_manifest::Rules;

/// What every machine is made with.
pub(crate) fn in_force() -> Rules {
    #[cfg(mutation = "slot_reused")]
    return Rules::ALL.without(Rule::KeepOwnFence).without(Rule::KeepFencesMet);
    #[cfg(mutation = "fence_below_replay_point")]
    return Rules::ALL.without(Rule::LookBeforeFence).without(Rule::Confirm);
    #[cfg(mutation = "two_writers")]
    return Rules::ALL
        .without(Rule::StopAtNewerEpoch)
        .without(Rule::LookBeforeFence)
        .without(Rule::Confirm);
    #[cfg(mutation = "acknowledge_early")]
    return Rules::ALL.without(Rule::AcknowledgeInOrder);
    #[cfg(mutation = "gap_not_skipped")]
    return Rules::ALL.without(Rule::SkipTheWindow);
    #[cfg(mutation = "nothing_pinned")]
    return Rules::ALL.without(Rule::PinWhatIsRead);
    #[cfg(mutation = "let_go_too_early")]
    return Rules::ALL.without(Rule::ReleaseUnread);
    #[cfg(mutation = "boundary_after_deletes")]
    return Rules::ALL.without(Rule::BoundaryFirst);
    #[cfg(mutation = "slot_unchecked")]
    return Rules::ALL.without(Rule::CheckSlot);
    #[cfg(mutation = "listing_after_reading")]
    return Rules::ALL.without(Rule::CollectorOrder);
    #[cfg(mutation = "manifest_before_freed")]
    return Rules::ALL.without(Rule::KeepManifestBefore);
    #[cfg(mutation = "jobs_ignored")]
    return Rules::ALL.without(Rule::HonourJobs);
    #[cfg(mutation = "reservations_ignored")]
    return Rules::ALL.without(Rule::HonourReservations);
    #[cfg(mutation = "checkpoints_ignored")]
    return Rules::ALL.without(Rule::HonourCheckpoints);
    #[cfg(mutation = "finish_unfenced")]
    return Rules::ALL.without(Rule::FinishByEpoch);
    #[cfg(mutation = "old_base_committed")]
    return Rules::ALL.without(Rule::PlanOnNewest);
    #[cfg(mutation = "taken_claim_counts")]
    return Rules::ALL.without(Rule::ProgressByClaim).without(Rule::RecordReserved);
    #[cfg(mutation = "hole_is_corruption")]
    return Rules::ALL.without(Rule::ProveHoles);
    #[cfg(mutation = "leases_ignored")]
    return Rules::ALL.without(Rule::HonourLeases);
    #[cfg(mutation = "holds_ignored")]
    return Rules::ALL.without(Rule::HonourHolds);
    #[cfg(mutation = "fed_let_go_early")]
    return Rules::ALL.without(Rule::FedUntilAllPassed);
    // The log is the second line, behind the numbers by which replay drops rows: with those in
    // force nothing that was undone returns from it, as the explorer shows.
    #[cfg(mutation = "restore_keeps_log")]
    return Rules::ALL.without(Rule::RestoreGoesOn).without(Rule::RestoreCutsLog);
    #[cfg(mutation = "restore_keeps_histories")]
    return Rules::ALL.without(Rule::RestoreTakesHistory);
    #[cfg(mutation = "undone_is_held")]
    return Rules::ALL.without(Rule::HoldInHistory);
    #[allow(unreachable_code, reason = "a planted mistake returned before")]
    Rules::ALL
}
