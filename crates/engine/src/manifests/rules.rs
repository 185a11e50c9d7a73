//! The protocol rules in force.

use siltstone_manifest::Rules;

/// The rules of every machine: all of them. Planted mistakes of the mutation tests drop some
/// (`tests/mutations`).
pub(crate) fn in_force() -> Rules {
    Rules::ALL
}
