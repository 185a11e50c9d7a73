//! Hostile bytes (RFC 0015): every decoder behind one signature, checksums made right after damage,
//! and models that what was decoded is held against. The tests of `tests/hostile` and the fuzz
//! targets, by `make fuzz`, run the very same functions; what the fuzzer finds is kept in
//! `tests/corpus`.

#![forbid(unsafe_code)]

pub mod damage;
pub mod decoders;
pub mod samples;
pub mod scripts;
pub mod seal;
pub mod typed;

use siltstone_base::{ErrorKind, JobId, ObjectName, SstId};

/// A function that a fuzzer calls with any bytes. A broken promise is a panic.
pub type Target = fn(&[u8]);

/// Every target by its name, which is that of its folder in `tests/corpus`.
pub const TARGETS: [(&str, Target); 16] = [
    ("envelope", |data| decoders::ENVELOPE.fuzz(data)),
    ("manifest", |data| decoders::MANIFEST.fuzz(data)),
    ("compactions", |data| decoders::COMPACTIONS.fuzz(data)),
    ("boundary", |data| decoders::BOUNDARY.fuzz(data)),
    ("wal", |data| decoders::WAL.fuzz(data)),
    ("table", |data| decoders::TABLE.fuzz(data)),
    ("block", |data| decoders::BLOCK.fuzz(data)),
    ("filter", |data| decoders::FILTER.fuzz(data)),
    ("batch", |data| decoders::BATCH.fuzz(data)),
    ("typed_key", |data| typed::TYPED_KEY.fuzz(data)),
    ("typed_value", |data| typed::TYPED_VALUE.fuzz(data)),
    ("tuple", |data| typed::TUPLE.fuzz(data)),
    ("table_schema", |data| typed::TABLE_SCHEMA.fuzz(data)),
    ("names", names),
    ("table_script", scripts::table),
    ("merge_script", scripts::merge),
];

/// Runs the target of this name.
///
/// # Panics
/// When a promise is broken, or there is no such target.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    assert!(target.is_some(), "no target is called {name}");
    if let Some((_, target)) = target {
        target(data);
    }
}

/// Whether an error is what damaged or newer bytes are answered with.
#[must_use]
pub fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corruption | ErrorKind::Unsupported)
}

/// Names have one spelling: what parses is printed as it was.
fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let parsed = [
        ObjectName::parse(&text).map(|name| name.to_string()),
        SstId::parse(&text).map(|id| id.to_string()),
        JobId::parse(&text).map(|id| id.to_string()),
    ];
    for printed in parsed.into_iter().flatten() {
        assert_eq!(printed, text);
    }
}
