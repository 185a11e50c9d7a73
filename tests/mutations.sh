#!/bin/sh
# Plants one mistake at a time into the engine and shows that the tests find it: the test named
# after the mechanism, and, where SEEDS is given, the simulation within so many seeds.
#
#   tests/mutations.sh                 every mistake
#   tests/mutations.sh two_writers     one of them
#   SEEDS=500 tests/mutations.sh       and how many seeds the simulation took
set -u
cd "$(dirname "$0")/.."
PROFILE="${PROFILE:---release}"

# mistake                  named test
MISTAKES='slot_reused                bug_01
fence_below_replay_point   bug_02
two_writers                bug_02
create_trusts_exists       bug_05
replay_past_the_fence      bug_09
replay_all                 bug_10
end_wakes_nobody           bug_12
abandon_drops              bug_13
empty_range                bug_14
create_trusts_ambiguous    bug_15'

unfound=0
echo "$MISTAKES" | {
    while read -r mistake test; do
        [ $# -eq 0 ] || [ "$1" = "$mistake" ] || continue
        export SILTSTONE_MUTATION="$mistake"
        log=$(mktemp)
        # shellcheck disable=SC2086
        if ! cargo test $PROFILE -q -p siltstone-tests --test regress --no-run >"$log" 2>&1; then
            echo "$mistake: does not build"; cat "$log"; exit 1
        fi
        # shellcheck disable=SC2086
        if cargo test $PROFILE -q -p siltstone-tests --test regress "$test" >"$log" 2>&1; then
            echo "$mistake: NOT FOUND by $test"
            unfound=1
        else
            found="found by $test"
            if [ -n "${SEEDS:-}" ]; then
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
