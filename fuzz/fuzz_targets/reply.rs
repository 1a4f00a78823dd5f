//! Fuzz target for the replies of servers; see `quorlock::testing::fuzzing::reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quorlock::testing::fuzzing::reply(bytes));
