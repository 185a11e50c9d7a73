//! The target `tuple`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| siltstone_fuzz::run("tuple", data));
