//! The protocol rules in force: all of them, but in a build that plants a mistake for the tests to
//! find.

#[cfg(any(
    mutation = "slot_reused",
    mutation = "fence_below_replay_point",
    mutation = "two_writers",
    mutation = "acknowledge_early",
    mutation = "gap_not_skipped",
    mutation = "nothing_pinned",
    mutation = "let_go_too_early"
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
    #[allow(unreachable_code, reason = "a planted mistake returned before")]
    Rules::ALL
}
