//! Fuzz target for the requests to `quorlock serve`; see `quorlock_cli::requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quorlock_cli::requests(bytes));
