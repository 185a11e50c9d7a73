//! An S3 server for tests and benches, on loopback, in memory.
//!
//! It has the requests that Siltstone and the tools of its tests send, exact under races. A plan of
//! [rules](fault::Rule) makes it fail as real stores do, [latency](pace::LatencyModel) and
//! [bandwidth](pace::Bandwidth) make it as slow as they are, and its [log](log::RequestLog) has
//! every request with its price. It must never be reachable from another machine, and nothing that
//! is shipped contains it.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "a server of its own: it has its own threads, clock and runtime"
)]

mod bucket;
mod call;
pub mod client;
pub mod fault;
mod listing;
pub mod log;
mod operations;
pub mod pace;
mod random;
mod serve;
mod server;
mod signature;
mod stream;
mod time;
mod xml;

pub use call::Kind;
pub use server::{ServerConfig, TestServer};
