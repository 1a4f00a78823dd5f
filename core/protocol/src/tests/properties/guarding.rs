//! The restart guard, with a server whose true history is known.

use super::{cases, moment, term, up_to};
use crate::{Guard, Moment, Term};
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Change {
    /// It is the server that it was.
    None,
    /// It restarted this long ago.
    Restarted(Duration),
    /// Another one stands in its place, which has been up for so long and knows nothing.
    Replaced(Duration),
}

#[derive(Clone, Copy, Debug)]
struct Step {
    change: Change,
    /// How long after the step before.
    after: Duration,
    tells: bool,
    /// Whether it says that its memory is being exchanged.
    doubted: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let time = || up_to(Duration::from_secs(3600));
    let change = prop_oneof![
        Just(Change::None),
        time().prop_map(Change::Restarted),
        time().prop_map(Change::Replaced),
    ];
    (change, time(), any::<bool>(), any::<bool>())
        .prop_map(|(change, after, tells, doubted)| Step { change, after, tells, doubted })
}

/// From when on the lease that was granted last before `forgot` is over on every node.
fn safe(term: Term, forgot: Moment) -> Moment {
    forgot.plus(term.ttl).plus(term.drift())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_node_does_not_count_before_what_it_forgot_is_over(
        term in term(), start in moment(), uptime in up_to(Duration::from_secs(36_000)),
        steps in vec(step(), 1..12),
    ) {
        let mut guard = Guard::new(term);
        prop_assert!(!guard.counts(start), "nobody has looked at it");
        let mut now = start.plus(uptime);
        // The server process, and when it began to know what it grants.
        let (mut server, mut up_since, mut forgot) = (0, start, start);
        let (mut told, mut was_told) = (None, false);
        for (number, step) in steps.into_iter().enumerate() {
            let before = guard.counts_from();
            let last = now;
            now = now.plus(step.after);
            match step.change {
                Change::None => {}
                // Not before the step before, in which it was the one that it was.
                Change::Restarted(ago) => {
                    (server, up_since) = (number + 1, now.minus(ago).max(last));
                    forgot = up_since;
                }
                // What is not known of a server that nobody has looked at cannot be guarded.
                Change::Replaced(_) if !was_told => {}
                Change::Replaced(age) => {
                    (server, up_since) = (number + 1, now.minus(age));
                    forgot = now;
                }
            }
            let memory = server.to_string();
            let seconds = Duration::from_secs(now.since(up_since).as_secs());
            guard.looked(now, step.tells.then_some((&*memory, seconds)));
            if step.tells && told == Some(server) {
                prop_assert_eq!(guard.counts_from(), before, "it has forgotten nothing");
            }
            // Who knows what was there while it did not tell.
            told = step.tells.then_some(server);
            was_told |= step.tells;
            let from = guard.counts_from();
            prop_assert!(from >= safe(term, forgot), "it forgot at {:?}", forgot);
            prop_assert!(guard.counts(from), "nor is it away for ever");
            if step.doubted {
                guard.doubted(now);
                prop_assert!(guard.counts_from() >= from.max(safe(term, now)));
            }
        }
    }
}
