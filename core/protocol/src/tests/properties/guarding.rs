//! The restart guard, tested against a server whose true history is known.

use super::{cases, moment, term, up_to};
use crate::{Guard, Moment, Term};
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Change {
    /// The server process is the same as before.
    None,
    /// The server restarted this long before the step.
    Restarted(Duration),
    /// The server was replaced by another one, which has been up for this time and lacks the memory of the old one.
    Replaced(Duration),
}

#[derive(Clone, Copy, Debug)]
struct Step {
    change: Change,
    /// The time since the previous step.
    after: Duration,
    /// Whether the server reports its identity and uptime.
    reports: bool,
    /// Whether the server reports that its memory is being replaced.
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
        .prop_map(|(change, after, reports, doubted)| Step { change, after, reports, doubted })
}

/// Returns the moment at which every lease granted before `forgot` has expired on every node.
fn safe(term: Term, forgot: Moment) -> Moment {
    forgot.plus(term.ttl).plus(term.drift())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_node_does_not_count_before_its_forgotten_leases_have_expired(
        term in term(), start in moment(), uptime in up_to(Duration::from_secs(36_000)),
        steps in vec(step(), 1..12),
    ) {
        let mut guard = Guard::new(term);
        prop_assert!(!guard.counts(start), "it has not been examined");
        let mut now = start.plus(uptime);
        // The number of the server process, its start, and the last moment at which grants were forgotten.
        let mut server = 0;
        let mut up_since = start;
        let mut forgot = start;
        // The server process that was reported in the last step, and whether any process was ever reported.
        let mut reported = None;
        let mut was_reported = false;
        for (number, step) in steps.into_iter().enumerate() {
            let before = guard.counts_from();
            let last = now;
            now = now.plus(step.after);
            match step.change {
                Change::None => {}
                // The old process ran in the previous step, so the restart was not before that step.
                Change::Restarted(ago) => {
                    (server, up_since) = (number + 1, now.minus(ago).max(last));
                    forgot = up_since;
                }
                // If a server never reported its memory ID and uptime, the guard cannot detect its replacement.
                Change::Replaced(_) if !was_reported => {}
                Change::Replaced(age) => {
                    (server, up_since) = (number + 1, now.minus(age));
                    forgot = now;
                }
            }
            let memory = server.to_string();
            let seconds = Duration::from_secs(now.since(up_since).as_secs());
            guard.looked(now, step.reports.then_some((&*memory, seconds)));
            if step.reports && reported == Some(server) {
                prop_assert_eq!(guard.counts_from(), before, "it has forgotten nothing");
            }
            // Without a report, the guard cannot know which server answered in this step.
            reported = step.reports.then_some(server);
            was_reported |= step.reports;
            let from = guard.counts_from();
            prop_assert!(from >= safe(term, forgot), "it forgot at {:?}", forgot);
            prop_assert!(guard.counts(from), "the guard must end");
            if step.doubted {
                guard.doubted(now);
                prop_assert!(guard.counts_from() >= from.max(safe(term, now)));
            }
        }
    }
}
