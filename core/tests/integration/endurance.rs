//! Many cycles of acquire and release.

use crate::servers::Servers;
use crate::{wait, wait_until};
use quorlock::Client;
use std::thread;

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
fn ten_thousand_cycles_leave_only_fences() {
    let servers = Servers::start(5);
    let client = Client::builder().nodes(&servers.urls).build().unwrap();
    cycles(&client, 8, 1_250);
    wait_until("no key is left", || servers.are_empty());
    for server in 0..5 {
        let fences = servers.command(server, &["DBSIZE"]);
        assert_eq!(fences, 8, "a fence for each resource and no other key");
        assert_eq!(servers.connections(server), 2, "one of the client and one of the test");
    }
}
