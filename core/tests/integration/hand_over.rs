//! Races between the end of a lease and threads that observe it, and between `close` and a first acquire.

use crate::{TIMEOUT, wait};
use quorlock::{Client, ErrorCode, Lease};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: u32 = 4;
const LEASES: u32 = 60;

fn short_lease(client: &Client, resource: &str) -> Lease {
    // On a busy machine, an acquire may take longer than this short ttl, so try again until one succeeds.
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let lock = client.lock(resource).ttl(Duration::from_millis(20)).auto_extend(false);
        match wait(lock.acquire()) {
            Ok(lease) => return lease,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

/// Spins until shortly before or after the end of the lease: the difference, which depends on `step`, is less
/// than 100 µs.
fn near_the_end(lease: &Lease, step: u32) {
    let before = Duration::from_micros(u64::from(step * 37 % 100));
    let until = Instant::now() + lease.remaining().saturating_sub(before);
    let until = until + Duration::from_micros(u64::from(step * 53 % 100));
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

#[test]
fn every_observer_learns_of_the_loss() {
    let client = Client::builder().nodes(["memory://hand-over"]).build().unwrap();
    let threads = (0..THREADS).map(|number| {
        let client = client.clone();
        thread::spawn(move || {
            for round in 0..LEASES {
                let lease = short_lease(&client, &format!("r{number}-{round}"));
                let early = lease.lost();
                near_the_end(&lease, number * LEASES + round);
                let late = lease.lost();
                let (sender, receiver) = mpsc::channel();
                lease.on_lost(move |error| drop(sender.send(error)));
                for error in [wait(early), wait(late), receiver.recv_timeout(TIMEOUT).ok()] {
                    assert_eq!(error.map(|error| error.code()), Some(ErrorCode::LeaseLost));
                }
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    wait(client.close());
}

#[test]
fn a_concurrent_release_is_not_reported_as_a_loss() {
    let client = Client::builder().nodes(["memory://hand-over-2"]).build().unwrap();
    for round in 0..500_u32 {
        let lease = Arc::new(wait(client.lock("r").acquire()).unwrap());
        let asking = {
            let lease = Arc::clone(&lease);
            thread::spawn(move || {
                (0..round * 31 % 500).for_each(|_| std::hint::spin_loop());
                wait(lease.lost())
            })
        };
        assert!(wait(lease.release()));
        assert!(asking.join().unwrap().is_none());
    }
    wait(client.close());
}

/// Closes the client while another thread works, and returns the result of the work.
fn close_amid<T: Send + 'static>(client: &Client, work: impl FnOnce() -> T + Send + 'static) -> T {
    let both = Arc::new(Barrier::new(2));
    let working = {
        let both = Arc::clone(&both);
        thread::spawn(move || {
            both.wait();
            work()
        })
    };
    both.wait();
    wait(client.close());
    working.join().unwrap()
}

#[test]
fn a_client_closed_during_an_upgrade_leaves_no_lease() {
    for _ in 0..5_000 {
        let client = Client::builder().nodes(["memory://closed-upgrading"]).build().unwrap();
        let lease = wait(client.lock("r").shared().acquire()).unwrap();
        match close_amid(&client, move || wait(lease.try_upgrade())) {
            Ok(upgraded) => {
                let lease = upgraded.expect("there are no other readers");
                assert!(!lease.is_valid(), "closing must end the client's leases");
            }
            Err(error) => {
                assert!(matches!(error.code(), ErrorCode::Closed | ErrorCode::LeaseLost));
            }
        }
    }
}

#[test]
fn a_client_closed_during_its_first_acquire_leaves_no_lease() {
    for _ in 0..5_000 {
        let client = Client::builder().nodes(["memory://closed-early"]).build().unwrap();
        let lock = client.lock("r");
        match close_amid(&client, move || wait(lock.acquire())) {
            Ok(lease) => assert!(!lease.is_valid(), "closing must end the client's leases"),
            Err(error) => assert_eq!(error.code(), ErrorCode::Closed),
        }
    }
}
