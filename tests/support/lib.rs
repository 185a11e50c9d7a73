//! Shared parts of the tests: a deterministic simulation of many processes in one thread, a store
//! that fails in every way a real one does, a model to compare with, and stores that record, serve
//! or delay requests (RFC 0008).

#![forbid(unsafe_code)]

pub mod compact;
pub mod faults;
pub mod gc;
pub mod latency;
pub mod lending;
pub mod model;
pub mod mortal;
pub mod moto;
pub mod places;
pub mod python_server;
pub mod ranges;
pub mod reachable;
pub mod recording;
pub mod s3_server;
pub mod scans;
pub mod separate_log;
pub mod sim;
