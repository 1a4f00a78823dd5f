//! How well the permits of a semaphore are used, in virtual time: what the rules themselves cost, without the CPU time of
//! clients and servers.

use super::waiting::{Calm, calm};
use std::time::Duration;
use tokio::time::sleep;

const LIMIT: u32 = 10;
const CONTENDERS: usize = 20;

/// Messages take a millisecond at most. As the shortest delay that is simulated is a millisecond, all times are twenty times as
/// long as on a local network: holds of 10 ms there are holds of 200 ms here.
const SCALE: u32 = 20;
const HOLD: Duration = Duration::from_millis(10);
const LENGTH: Duration = Duration::from_secs(60);

/// Lets the contenders acquire, hold and release a permit in loops. Returns how many permits were held on average.
async fn held_on_average(calm: Calm) -> f64 {
    let [shortest, longest] = [50, 200].map(|delay| Duration::from_millis(delay) * SCALE);
    let contenders = calm.peers_with(CONTENDERS, |builder| builder.retry_delay(shortest, longest));
    let contenders = contenders.into_iter().map(|peer| {
        tokio::spawn(async move {
            let mut held = Vec::new();
            while peer.now() < LENGTH {
                let lease = peer.get_permit("s", LIMIT).await;
                let granted = peer.now();
                sleep(HOLD * SCALE).await;
                held.push((granted, peer.now()));
                peer.release(lease).await;
            }
            held
        })
    });
    let mut all = Vec::new();
    for contender in contenders.collect::<Vec<_>>() {
        all.extend(contender.await.expect("no panic"));
    }
    // All contend for all of this time.
    let from = LENGTH / 10;
    let until = LENGTH;
    let within = |(granted, released): &(Duration, Duration)| {
        (*released).min(until).saturating_sub((*granted).max(from))
    };
    let sum: Duration = all.iter().map(within).sum();
    sum.as_secs_f64() / (until - from).as_secs_f64()
}

#[test]
fn contenders_use_almost_all_permits() {
    calm(|calm| async move {
        let held = held_on_average(calm).await;
        println!("{held:.2} of {LIMIT} permits were held");
        assert!(held >= 9.5, "only {held:.2} of {LIMIT} permits were held");
    });
}
