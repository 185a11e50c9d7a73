#!/bin/sh
# Plants one mistake at a time into the engine, or into the codec of tables and WAL objects, and
# checks that the named test finds it. If SEEDS is given, the simulation also runs with each mistake
# in the engine, for at most this number of seeds.
#
#   tests/mutations.sh                 every mistake
#   tests/mutations.sh two_writers     one mistake
#   SEEDS=500 tests/mutations.sh       also prints the number of seeds that the simulation needed
set -u
cd "$(dirname "$0")/.."
PROFILE="${PROFILE:---release}"
# A proptest case that fails with a mistake must not be saved for runs without it.
export PROPTEST_DISABLE_FAILURE_PERSISTENCE=1

# mistake                  tests    named test
MISTAKES='slot_reused                regress  bug_01
deletes_by_prefix          regress  bug_01
fence_below_replay_point   regress  bug_02
two_writers                regress  bug_02
boundary_after_deletes     regress  bug_03
slot_unchecked             regress  bug_03
finish_unfenced            regress  bug_04_a_fenced
create_trusts_exists       regress  bug_05
jobs_ignored               regress  bug_06_outputs
reservations_ignored       regress  bug_06_a_table
nothing_pinned             regress  bug_07
let_go_too_early           regress  bug_07
checkpoints_ignored        regress  bug_07_what
cutoff_by_own_clock        regress  bug_08
replay_past_the_fence      regress  bug_09
replay_all                 regress  bug_10
expired_revives            regress  bug_11_what
expired_is_passed_over     regress  bug_11_what
bottom_everywhere          regress  bug_11_deletes
end_wakes_nobody           regress  bug_12
abandon_drops              regress  bug_13
empty_range                regress  bug_14
create_trusts_ambiguous    regress  bug_15
listing_remembered         regress  bug_16
listing_trusted            regress  bug_22
old_base_committed         regress  peer_14
claim_conflict_is_final    regress  peer_16
destination_lost           regress  peer_17
leftovers_stay             regress  peer_17
finished_jobs_forgotten    regress  peer_19_a_finished
release_unseen             compactors a_compaction_by_hand
taken_claim_counts         regress  peer_19_what
taken_claim_is_mine        regress  peer_19_what
listing_after_reading      regress  peer_24
revoked_for_good           regress  peer_27_a_reader
refresh_forgotten          regress  peer_27_an_idle
hole_is_corruption         regress  peer_28
gaps_untracked             regress  peer_29
overtaken_unseen           regress  peer_30
registered_late            regress  peer_31
snapshots_ignored          regress  peer_32_compaction
floor_of_the_moment        regress  peer_32_a_resumed
folded_across_snapshots    regress  peer_33_operands
expiry_not_minded          regress  peer_33_an_operand
bound_ignored              regress  peer_34
bound_ignored              regress  peer_35
backward_versions          regress  peer_36
one_cache                  regress  peer_42
source_unheld              regress  peer_43
never_detached             regress  peer_44
part_uncut                 regress  peer_45
range_deletes_uncut        regress  peer_45
stall_end_is_told_to_nobodyregress  peer_47
heartbeats_by_progress     regress  peer_48
own_options_decide         regress  peer_49
leases_ignored             regress  bug_07_a_readers
restore_keeps_log          ending   every_crash_of_a_restore
checkpoint_unfenced        ending   a_fenced_handle_makes_no
restore_keeps_histories    feed     a_history_comes_back
undone_is_held             feed     what_is_undone_is_not_acknowledged
restore_keeps_histories    sim      jobs_come_in_whole
undone_is_held             sim      jobs_come_in_whole
left_out_for_good          feed     whatever_is_restored
inside_is_outside          feed     whatever_is_restored
trouble_takes_rows         feed     what_was_read_before_a_trouble
dropped_is_passed_on       feed     a_read_that_is_dropped
hold_ends_unseen           feed     a_consumer_whose_log_is_gone
gone_is_expired            feed     what_is_undone_before_it_is_told
gone_inputs_end_all        regress  a_compactor_goes_on
gone_plans_end_all         regress  a_compactor_goes_on
worker_waits_for_itself    regress  a_worker_goes_on
holds_ignored              sim      jobs_come_in_whole
fed_let_go_early           sim      jobs_come_in_whole
source_unheld              clones   a_clone_has_what
bound_ignored              linear   across_a_take_over
open_end_of_tables         model    the_engine_equals
dead_spans_stay            dead_spans no_span_hides
dead_spans_forget_own_writes dead_spans no_span_hides
lent_kept                  beyond   of_tables_that_are_gone
lent_unchecked             beyond   a_damaged_table
stops_at_a_denied_delete   gc       a_denied_delete_stops_no_other
manifest_before_freed      repair   the_only_one_harmed
ingests_unverified         verified every_object_in_turn
listing_is_a_snapshot      verified nothing_is_wrong_beside
pins_unverified            verified a_pin_that_is_gone
wal_unbounded              refusals an_object_of_the_log_has
gaps_untracked             transactions phantoms_are_conflicts
validated_before_lock      transactions no_update_is_lost
registered_late            transactions serializable_histories
sst_checksum_unbound       hostile  decoders::samples_are_read
sst_checksum_unmasked      hostile  decoders::samples_are_read
copied_before_record       store    of_two_creates
source_unrevoked           store    a_sweep_takes_no_source
log_unproven               store    an_emptied_log_is_damage
copy_shares_log            store    a_copy_of_the_main_store
wal_gap_unseen             hostile  decoders::damage_behind_a_checksum'

unfound=0
echo "$MISTAKES" | {
    while read -r mistake tests test; do
        [ $# -eq 0 ] || [ "$1" = "$mistake" ] || continue
        export SILTSTONE_MUTATION="$mistake"
        log=$(mktemp)
        # shellcheck disable=SC2086
        if ! cargo test $PROFILE -q -p siltstone-tests --test "$tests" --no-run >"$log" 2>&1; then
            echo "$mistake: does not build"; cat "$log"; exit 1
        fi
        # shellcheck disable=SC2086
        if cargo test $PROFILE -q -p siltstone-tests --test "$tests" "$test" >"$log" 2>&1; then
            echo "$mistake: NOT FOUND by $test"
            unfound=1
        else
            found="found by $test"
            if [ -n "${SEEDS:-}" ] && [ "$tests" = regress ]; then
                # shellcheck disable=SC2086
                UNTIL_FOUND=1 cargo test $PROFILE -q -p siltstone-tests --test sim nothing \
                    -- --nocapture >"$log" 2>&1
                seeds=$(sed -n 's/^found after \([0-9]*\) seeds.*/\1/p' "$log")
                found="$found, and by the simulation after ${seeds:-more than $SEEDS} seeds"
            fi
            echo "$mistake: $found"
        fi
        rm -f "$log"
    done
    exit $unfound
}
