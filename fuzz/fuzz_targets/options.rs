//! Options; see `quorlock::fuzzing::options`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quorlock::fuzzing::options(bytes));
