//! Tests of the store seam (RFC 0008): one contract for every store, the outcome of conditional
//! creates, the real client against a misbehaving server, the simulation itself.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::type_complexity,
    reason = "a test that panics has failed, as it should"
)]

mod conditional;
mod conformance;
mod contract;
mod copies;
mod counting;
mod edges;
mod faults;
mod first_open;
mod google;
mod hedging;
mod http;
mod limits;
mod races;
mod records;
mod refusals;
mod removal;
mod renewal;
mod scripted;
mod separate_log;
mod served;
mod server;
mod simulation;
mod strace;
mod two_phase;
mod uploads;
mod urls;
