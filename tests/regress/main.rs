//! Mistakes that others made and shipped, one test each, named after the mechanism: `bug_NN` after
//! the list of mechanisms that RFC 0015 tells, `peer_NN` after what a peer published. Every one
//! fails when its mistake is planted (`tests/mutations.sh` builds them in, one at a time).
//!
//! | module | holds |
//! | --- | --- |
//! | `writers` | the log, fences, whoever waits for a writer |
//! | `slots` | numbered names: freed slots, listings, what a commit stands on |
//! | `collector` | what is deleted, and under whom |
//! | `readers` | checkpoints and outages of readers |
//! | `compactor` | jobs, claims, workers, takeovers |
//! | `rows` | which versions survive, which are seen |
//! | `transacting` | transactions, conditions, calls that are dropped |
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
