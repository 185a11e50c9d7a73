//! The protocol rules in force.

use siltstone_manifest::Rules;

/// What every machine is made with: all rules. Planted mistakes of the mutation tests drop some
/// (`tests/mutations`).
pub(crate) fn in_force() -> Rules {
    Rules::ALL
}
