//! Fuzz target for node URLs; see `quorlock::testing::fuzzing::url`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| quorlock::testing::fuzzing::url(text));
