//! The target `table_schema`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| siltstone_fuzz::run("table_schema", data));
