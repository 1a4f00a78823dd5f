//! Property tests of times, numbers and sequences of events. There are too many inputs to try all of them, so the input
//! is random.

mod guarding;
mod leasing;
mod numbers;
mod rounds;
mod times;

use crate::{Moment, Term};
use proptest::prelude::*;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Returns the configuration of a property test that tries this many random cases. A test that fails prints the
/// smallest failing case that it found.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Generates a duration from zero to `longest`. Zero, `longest` and short durations are more likely than others.
fn up_to(longest: Duration) -> impl Strategy<Value = Duration> {
    let most = u64::try_from(longest.as_nanos()).expect("less than five centuries");
    prop_oneof![
        1 => Just(0),
        1 => Just(most),
        2 => 0..=most.min(100_000_000),
        4 => 0..=most,
    ]
    .prop_map(Duration::from_nanos)
}

/// Generates any duration, up to `Duration::MAX`.
fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        1 => Just(Duration::MAX),
        2 => up_to(DAY),
        2 => (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, ns)| Duration::new(s, ns)),
    ]
}

/// Generates a moment within 1000 days of the clock's origin.
fn moment() -> impl Strategy<Value = Moment> {
    up_to(1000 * DAY).prop_map(Moment::from_origin)
}

/// Generates a term whose values are within the ranges that the client options allow.
fn term() -> impl Strategy<Value = Term> {
    let drift_factor = prop_oneof![Just(0.0), Just(0.01), Just(0.5), 0.0..=0.5];
    let ttl = up_to(DAY).prop_map(|ttl| ttl.max(Duration::from_millis(10)));
    (ttl, drift_factor).prop_map(|(ttl, drift_factor)| Term { ttl, drift_factor })
}
