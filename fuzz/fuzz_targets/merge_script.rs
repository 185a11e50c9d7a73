//! The target `merge_script`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| siltstone_fuzz::run("merge_script", data));
