//! Node URLs; see `quorlock::fuzzing::url`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| quorlock::fuzzing::url(text));
