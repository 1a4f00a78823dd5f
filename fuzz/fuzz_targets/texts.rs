//! Fuzz target for the texts of leases; see `quorlock::testing::fuzzing::texts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quorlock::testing::fuzzing::texts(bytes));
