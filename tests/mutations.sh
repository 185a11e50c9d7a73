#!/bin/sh
# Plants one mistake at a time into the engine, or into the codec of tables and WAL objects, and
# shows that the tests find it: the named test, and, where SEEDS is given, for the engine's the
# simulation within so many seeds.
#
#   tests/mutations.sh                 every mistake
#   tests/mutations.sh two_writers     one of them
#   SEEDS=500 tests/mutations.sh       and how many seeds the simulation took
set -u
cd "$(dirname "$0")/.."
PROFILE="${PROFILE:---release}"

# mistake                  tests    named test
MISTAKES='slot_reused                regress  bug_01
fence_below_replay_point   regress  bug_02
two_writers                regress  bug_02
create_trusts_exists       regress  bug_05
nothing_pinned             regress  bug_07
let_go_too_early           regress  bug_07
replay_past_the_fence      regress  bug_09
replay_all                 regress  bug_10
end_wakes_nobody           regress  bug_12
abandon_drops              regress  bug_13
empty_range                regress  bug_14
create_trusts_ambiguous    regress  bug_15
sst_checksum_unbound       hostile  decoders::samples_are_read
sst_checksum_unmasked      hostile  decoders::samples_are_read
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
