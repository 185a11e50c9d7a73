#!/bin/sh
# Regenerates crates/fbs/src/*_generated.rs from fbs/*.fbs.
#
#   fbs/generate.sh           write the generated code
#   fbs/generate.sh --check   fail when the checked-in code is not what the schemas give
#
# The compiler is built once from source, unoptimised (half a minute; CMake and a C++ compiler are
# needed: `make fbs` and `make fbs-check` bring CMake) into ${SILTSTONE_CACHE:-~/.cache/siltstone}/
# flatc. FLATC names another one to use instead.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
generated="$root/crates/fbs/src"

if [ -z "${FLATC:-}" ]; then
    cache="${SILTSTONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/siltstone}/flatc"
    FLATC=$(CARGO_TARGET_DIR="$cache" \
        CMAKE_TOOLCHAIN_FILE="$root/fbs/compiler/only-the-compiler.cmake" \
        cargo run --quiet --locked --manifest-path "$root/fbs/compiler/Cargo.toml")
fi

# Another compiler version writes other code: one version, so that a diff shows schema changes only.
case $("$FLATC" --version) in
    *" 23.5.26") ;;
    *) echo "fbs/generate.sh: $FLATC is not FlatBuffers 23.5.26" >&2; exit 1 ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for schema in "$root"/fbs/*.fbs; do
    # Relative names keep the machine's paths out of the generated heads.
    (cd "$root/fbs" && "$FLATC" --rust -o "$scratch" "$(basename "$schema")")
done

changed=0
for file in "$scratch"/*_generated.rs; do
    name=$(basename "$file")
    cmp -s "$file" "$generated/$name" && continue
    changed=1
    if [ "${1:-}" = "--check" ]; then
        echo "crates/fbs/src/$name is not what its schema gives: run fbs/generate.sh" >&2
    else
        cp "$file" "$generated/$name"
        echo "wrote crates/fbs/src/$name"
    fi
done
if [ "${1:-}" = "--check" ] && [ "$changed" = 1 ]; then
    exit 1
fi
