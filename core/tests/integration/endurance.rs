//! Many cycles.

use crate::servers::Servers;
use crate::{wait, wait_until};
use quorlock::Client;
use std::thread;

/// Pages of memory that the process has in use; `None` where the system does not tell.
fn resident_pages() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    pages.split(' ').nth(1)?.parse().ok()
}

fn cycles(client: &Client, threads: usize, each: usize) {
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let lock = client.lock(format!("r{thread}"));
                for _ in 0..each {
                    assert!(wait(wait(lock.acquire()).unwrap().release()));
                }
            });
        }
    });
}

#[test]
fn ten_thousand_cycles_leave_only_fences_and_no_growth() {
    let servers = Servers::start(5);
    let client = Client::builder().nodes(&servers.urls).build().unwrap();
    cycles(&client, 8, 250);
    // Other tests of this binary run beside it, and take memory at times; a leak takes it always.
    let grows = (0..3).all(|_| {
        let before = resident_pages();
        cycles(&client, 8, 1_000);
        // A leak of 1 KiB a cycle would be 2,000 pages.
        before.zip(resident_pages()).is_some_and(|(before, after)| after >= before + 1_500)
    });
    assert!(!grows, "the memory grows with every thousand cycles");
    wait_until("nothing stays behind", || servers.are_empty());
    for server in 0..5 {
        let fences = servers.command(server, &["DBSIZE"]);
        assert_eq!(fences, 8, "a fence for each resource, and nothing else");
        assert_eq!(servers.connections(server), 2, "one of ours, and one of the test's");
    }
}
