//! Moments and terms.

use super::{DAY, any_duration, cases, moment, term, up_to};
use crate::{Moment, Term};
use proptest::prelude::*;
use std::time::Duration;

const ALLOWANCE: Duration = Duration::from_millis(2);

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn no_sum_of_times_overflows(
        origin in any_duration(), other in any_duration(), ttl in any_duration(), factor in 0.0..=0.5
    ) {
        let moment = Moment::from_origin(origin);
        let other_moment = Moment::from_origin(other);
        let term = Term { ttl, drift_factor: factor };
        prop_assert!(moment.plus(other) >= moment);
        prop_assert!(moment.minus(other) <= moment);
        prop_assert!(moment.since(other_moment) <= origin);
        prop_assert!(moment.ceil(other) >= moment);
        prop_assert!(term.end(moment) <= moment.plus(ttl));
        prop_assert!(term.gone(moment) >= moment.plus(ttl));
    }

    #[test]
    fn sums_and_differences_agree(at in moment(), duration in up_to(DAY)) {
        prop_assert_eq!(at.plus(duration).since(at), duration);
        prop_assert_eq!(at.plus(duration).minus(duration), at);
        prop_assert_eq!(at.since(at.plus(duration)), Duration::ZERO);
    }

    #[test]
    fn no_node_expires_a_key_before_end_or_keeps_it_beyond_gone(
        term in term(), sent in moment(), late in up_to(DAY)
    ) {
        let drift = term.ttl.as_secs_f64() * term.drift_factor;
        let end = term.end(sent);
        let gone = term.gone(sent.plus(late));
        // `end` is never before the clock's origin, hence the `max`.
        prop_assert!(end <= sent.plus(term.ttl).minus(ALLOWANCE));
        prop_assert!(end.plus(Duration::from_secs_f64(drift)).minus(Duration::from_nanos(2))
            <= sent.plus(term.ttl).minus(ALLOWANCE).max(Moment::from_origin(ALLOWANCE + term.drift())));
        prop_assert!(gone >= sent.plus(late).plus(term.ttl).plus(ALLOWANCE));
    }

    #[test]
    fn a_later_or_longer_term_does_not_end_earlier(
        term in term(), sent in moment(), later in up_to(DAY), longer in up_to(DAY)
    ) {
        prop_assert!(term.end(sent.plus(later)) >= term.end(sent));
        let long = Term { ttl: term.ttl + longer, ..term };
        prop_assert!(long.end(sent) >= term.end(sent));
        let steady = Term { drift_factor: 0.0, ..term };
        prop_assert!(steady.end(sent) >= term.end(sent));
    }

    #[test]
    fn a_term_cut_short_ends_at_the_limit(
        term in term(), sent in moment(), left in up_to(36_500 * DAY)
    ) {
        let limit = sent.plus(left);
        let cut = term.until(sent, limit);
        prop_assert!(cut.ttl <= term.ttl);
        if cut.ttl < term.ttl {
            prop_assert!(cut.end(sent) >= limit);
            prop_assert!(cut.end(sent) <= limit.plus(Duration::from_micros(2)));
        }
    }

    #[test]
    fn a_moment_rounded_up_is_the_next_tick(at in moment(), tick in up_to(DAY)) {
        let rounded = at.ceil(tick);
        let origin = Moment::from_origin(Duration::ZERO);
        prop_assert!(rounded >= at);
        prop_assert!(rounded.since(at) < tick.max(Duration::from_nanos(1)));
        prop_assert_eq!(rounded.since(origin).as_nanos() % tick.as_nanos().max(1), 0);
    }
}
