//! Mistakes that other stores released, one test each, named after the mechanism: `bug_NN` by the
//! list of mechanisms in RFC 0015, `peer_NN` by a peer's publication. Every test fails if its
//! mistake is planted (`tests/mutations/run.sh`, one at a time).
//!
//! | module | holds |
//! | --- | --- |
//! | `writers` | the log, fences, processes that wait for a writer |
//! | `slots` | numbered names: freed slots, listings, the base of a commit |
//! | `collector` | deletes |
//! | `readers` | checkpoints and outages of readers |
//! | `compactor` | jobs, claims, workers, takeovers |
//! | `rows` | the versions that are kept and visible |
//! | `transacting` | transactions, conditions, dropped calls |
//! | `clones` | pins, parts of databases, caches |
//! | `place` | a store and processes |

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and stops at what it did not expect"
)]

mod clones;
mod collector;
mod compactor;
mod overtaken;
mod place;
mod readers;
mod restored;
mod rows;
mod slots;
mod transacting;
mod writers;
