//! The target `typed_key`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| siltstone_fuzz::run("typed_key", data));
