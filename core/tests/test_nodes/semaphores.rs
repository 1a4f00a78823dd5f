//! Semaphores while nodes fail and time passes.

use crate::{MINUTE, PATIENCE, TTL, advance, done, turn};
use quorlock::{Client, Fault, TestNodes};
use std::time::{Duration, Instant};

#[test]
fn winner_leaves_the_queue_of_a_guarded_node_that_refused_it() {
    let _turn = turn();
    let nodes = TestNodes::new(3).unwrap();
    // A node remembers a queue for longer than a minute, so the queue cannot become empty at the end only because it
    // has expired.
    let builder = Client::builder().ttl(TTL).wait_forever().retry_delay(MINUTE, MINUTE);
    let guarded = builder.clone().nodes(nodes.urls()).restart_guard(TTL);
    let [one, two] = [(), ()].map(|()| guarded.clone().build().unwrap());
    let third = builder.nodes([&nodes.urls()[2]]).build().unwrap();
    let waiters = || done(third.semaphore("s", 1).status()).unwrap().waiters;
    let wait_for = |count, pass: Duration| {
        let began = Instant::now();
        while waiters() != count {
            assert!(began.elapsed() < PATIENCE, "{} waiters, not {count}", waiters());
            advance(&nodes, pass);
        }
    };

    let lease = done(one.semaphore("s", 1).acquire()).unwrap();
    let waiting = two.semaphore("s", 1).acquire();
    wait_for(1, Duration::ZERO);
    // The third node forgets everything, and then another client acquires the permit there. The waiter joins the queue
    // of this node again.
    done(nodes.apply(Some(2), Fault::Forget));
    let _other = done(third.semaphore("s", 1).acquire()).unwrap();
    wait_for(1, MINUTE / 4);
    assert!(done(lease.release()));
    let won = done(waiting).unwrap();
    wait_for(0, Duration::ZERO);
    assert!(won.is_valid());
}
