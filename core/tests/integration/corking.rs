//! A corked thread sends the requests that it starts together.

use crate::servers::Servers;
use crate::{wait, wait_until};
use quorlock::Client;
use std::thread;
use std::time::Duration;

fn connected(servers: &Servers) -> Client {
    let client = Client::builder().nodes(&servers.urls).build().unwrap();
    assert!(wait(wait(client.lock("first").acquire()).unwrap().release()));
    client
}

#[test]
fn requests_of_a_corked_thread_share_a_command() {
    let servers = Servers::start(1);
    let client = connected(&servers);
    // On a loaded machine, the thread may not stay corked for long enough.
    wait_until("all requests share one command", || {
        let before = servers.scripts(0);
        quorlock::cork();
        let acquiring = (0..8).map(|number| client.lock(format!("r{number}")).acquire());
        let acquiring: Vec<_> = acquiring.collect();
        quorlock::uncork();
        let leases = acquiring.into_iter().map(|acquiring| wait(acquiring).unwrap());
        let leases: Vec<_> = leases.collect();
        let commands = servers.scripts(0) - before;
        leases.into_iter().for_each(|lease| assert!(wait(lease.release())));
        commands == 1
    });
}

#[test]
fn a_request_is_sent_although_its_thread_is_never_uncorked() {
    let servers = Servers::start(1);
    let client = connected(&servers);
    quorlock::cork();
    let acquiring = client.lock("r").wait(Duration::ZERO).acquire();
    let lease = thread::spawn(|| wait(acquiring)).join().unwrap().unwrap();
    assert!(wait(lease.release()));
}
