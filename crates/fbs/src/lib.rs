//! Generated FlatBuffers code of the metadata formats, and nothing else.
//!
//! The schemas and the rules for changing them stand in `fbs/`; `fbs/generate.sh` writes
//! everything here except this file. Only the codecs of the pure crates should use it:
//! these types are the shape of bytes, not of the state.

// The code is the compiler's, not ours: it reads fields through `unsafe` after verification, and
// follows neither this house's lints nor the newest edition's idioms. No other crate lifts these.
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    unused_imports,
    mismatched_lifetime_syntaxes,
    unsafe_op_in_unsafe_fn,
    elided_lifetimes_in_paths,
    clippy::all,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "generated code"
)]
#[rustfmt::skip]
mod manifest_generated;
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    unused_imports,
    mismatched_lifetime_syntaxes,
    unsafe_op_in_unsafe_fn,
    elided_lifetimes_in_paths,
    clippy::all,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "generated code"
)]
#[rustfmt::skip]
mod compactions_generated;

pub use compactions_generated::compactions;
pub use manifest_generated::manifest;
