//! Fuzz target for options; see `quorlock::testing::fuzzing::options`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quorlock::testing::fuzzing::options(bytes));
