//! Measures in virtual time how many permits of a semaphore are in use. The result shows what the protocol's rules
//! cost, without the CPU time of clients and servers.

use super::waiting::{Calm, calm};
use std::time::Duration;
use tokio::time::sleep;

const LIMIT: u32 = 10;
const CONTENDERS: usize = 20;

/// The factor by which all times are longer than on a local network. A simulated message takes up to a millisecond,
/// because the simulation draws delays in whole milliseconds. Therefore, a hold of 10 ms on a local network corresponds
/// to a hold of 200 ms here.
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
    // All contenders compete for permits during this whole period.
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
