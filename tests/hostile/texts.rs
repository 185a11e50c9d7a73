//! Texts from outside: URLs and options.

use proptest::prelude::*;
use siltstone::store::options::StoreOptions;
use siltstone::store::url;
use siltstone::{ErrorKind, OptionValue, Options};
use siltstone_tests::sim::Sim;

/// The parts of URLs, and common mistakes in them.
const PIECES: [&str; 24] = [
    "s3",
    "s3a",
    "gs",
    "az",
    "abfs",
    "file",
    "memory",
    "http",
    "://",
    ":",
    "/",
    "//",
    "localhost",
    "bucket",
    "..",
    ".",
    "%2",
    "%2e",
    "%ff",
    "?",
    "#",
    "@",
    "\0",
    "\u{e9}",
];
const NAMES: [&str; 12] = [
    "flush_interval",
    "flush_bytes",
    "max_parallel_writes",
    "block_bytes",
    "compression",
    "filter_bits_per_key",
    "writes.wal_enabled",
    "deadline",
    "max_wal_puts_per_second",
    "endpoint",
    "aws_access_key_id",
    "unknown",
];
const VALUES: [&str; 14] = [
    "",
    "0",
    "1",
    "-1",
    "65",
    "1e308",
    "NaN",
    "inf",
    "true",
    "false",
    "lz4",
    "18446744073709551616",
    "http://127.0.0.1:1",
    "\u{7f}",
];

/// A URL and options. Every result is a store, or a refusal on which a caller can act.
fn check(place: &str, pairs: &[(&str, &str)]) {
    set(pairs);
    let store: StoreOptions =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let sim = Sim::new(1);
    let effects = sim.effects(sim.process("hostile", 0));
    for options in [store, StoreOptions::default()] {
        let parsed = url::parse(place, &options, [], &effects);
        let kind = parsed.err().map(|error| error.kind());
        let allowed = [ErrorKind::Invalid, ErrorKind::Unsupported];
        assert!(kind.is_none_or(|kind| allowed.contains(&kind)), "{place:?}: {kind:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn urls_and_options_are_taken_or_refused(
        pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..9),
        pairs in prop::collection::vec(
            (prop::sample::select(&NAMES[..]), prop::sample::select(&VALUES[..])), 0..4),
    ) {
        let _turn = super::alone();
        check(&pieces.concat(), &pairs);
    }

    #[test]
    fn any_text_is_taken_or_refused(place in ".{0,40}", name in ".{0,20}", value in ".{0,20}") {
        let _turn = super::alone();
        check(&place, &[(&name, &value)]);
    }
}

fn set(pairs: &[(&str, &str)]) {
    let mut options = Options::default();
    for (name, text) in pairs {
        let mut values = vec![OptionValue::Text((*text).to_owned()), OptionValue::Nothing];
        values.extend(text.parse().map(OptionValue::Int));
        values.extend(text.parse().map(OptionValue::Seconds));
        values.extend(text.parse().map(OptionValue::Bool));
        for value in values {
            let before = options.get(name);
            match options.set(name, value) {
                Ok(()) => assert!(Options::info(name).is_ok()),
                Err(error) => {
                    let allowed = [ErrorKind::Invalid, ErrorKind::Unsupported];
                    assert!(allowed.contains(&error.kind()), "{error:?}");
                    assert_eq!(options.get(name), before, "a refused value was taken");
                }
            }
        }
    }
    if let Err(error) = options.validate() {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    }
}
