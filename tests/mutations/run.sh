#!/bin/sh
# Plants one mistake at a time into a copy of the tree, and checks that the tests find it.
#
# A mistake is a patch in this folder. Its first lines are the commands that must fail with it.
# `tests/tidy` checks that every patch applies. If SEEDS is given, the simulation also runs with
# each mistake that a test of `tests/regress` finds, for at most this number of seeds.
#
#   tests/mutations/run.sh                 every mistake
#   tests/mutations/run.sh two_writers     one mistake
#   SEEDS=500 tests/mutations/run.sh       also prints how many seeds the simulation needed
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
PROFILE="${PROFILE:---release}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}"
# A proptest case that fails with a mistake must not be saved for runs without it.
export PROPTEST_DISABLE_FAILURE_PERSISTENCE=1

# The copy is outside of the repository's index, so that `git apply` works on it as on a plain
# folder. Times of files are those of the copy: Cargo builds by them.
copy="$CARGO_TARGET_DIR/mutations"
rm -rf "$copy" && mkdir -p "$copy"
git ls-files --cached --others --exclude-standard | while read -r file; do
    if [ -e "$file" ]; then echo "$file"; fi
done | tar -cf - -T - | tar -xmf - -C "$copy"
cd "$copy"
export GIT_CEILING_DIRECTORIES="$CARGO_TARGET_DIR"

unfound=0
log=$(mktemp)
commands=$(mktemp)
trap 'rm -f "$log" "$commands"' EXIT
for patch in "$root"/tests/mutations/*.patch; do
    mistake=$(basename "$patch" .patch)
    [ $# -eq 0 ] || [ "$1" = "$mistake" ] || continue
    git apply "$patch"
    sed -n 's/^Found by: cargo test //p' "$patch" >"$commands"
    while read -r command; do
        # Without its last word, the name of a test, the command builds.
        # shellcheck disable=SC2086
        if ! cargo test $PROFILE -q ${command% *} --no-run >"$log" 2>&1; then
            echo "$mistake: does not build"; cat "$log"; exit 1
        fi
        # shellcheck disable=SC2086
        if cargo test $PROFILE -q $command >"$log" 2>&1; then
            echo "$mistake: NOT FOUND by cargo test $command"
            unfound=1
            continue
        fi
        found="found by cargo test $command"
        case "$command" in *regress*)
            if [ -n "${SEEDS:-}" ]; then
                # shellcheck disable=SC2086
                UNTIL_FOUND=1 cargo test $PROFILE -q -p siltstone-tests --test sim nothing \
                    -- --nocapture >"$log" 2>&1 || true
                seeds=$(sed -n 's/^found after \([0-9]*\) seeds.*/\1/p' "$log")
                found="$found, and by the simulation after ${seeds:-more than $SEEDS} seeds"
            fi ;;
        esac
        echo "$mistake: $found"
    done <"$commands"
    git apply -R "$patch"
done
exit $unfound
