//! Connections that were closed, or have become silent, while the client did not use them.

use crate::servers::{Proxy, Servers};
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, Lease};
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(600);
const NOW: Duration = Duration::ZERO;
/// Longer than the time after which a connection counts as idle.
const IDLE: Duration = Duration::from_millis(1_200);

fn client(urls: impl IntoIterator<Item = impl Into<String>>) -> Client {
    // The timeout is long enough to reconnect on a busy machine.
    Client::builder().nodes(urls).ttl(LONG).node_timeout(TIMEOUT / 6).build().unwrap()
}

/// Acquires and releases a lock, so that all nodes are connected and idle.
fn warm_up(client: &Client, servers: &Servers) {
    let lease = wait(client.lock("warm").acquire()).unwrap();
    wait_until("all nodes hold it", || {
        (0..servers.urls.len()).all(|node| servers.keys(node) == ["warm"])
    });
    assert!(wait(lease.release()));
    wait_until("all nodes are free", || servers.are_empty());
}

fn acquired(client: &Client) -> Lease {
    wait(client.lock("r").wait(NOW).acquire()).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs every operation, and calls `disturb` before each of them. All operations must succeed at once.
fn use_everything(client: &Client, disturb: impl Fn()) {
    disturb();
    let lease = acquired(client);
    disturb();
    assert!(wait(client.lock("r").locked()).unwrap());
    disturb();
    let status = wait(client.status("r")).unwrap();
    // A status shows only the beginning of the token.
    assert!(status.token.is_some_and(|token| lease.token().starts_with(&token)));
    disturb();
    wait(lease.extend(Some(2 * LONG))).unwrap();
    disturb();
    wait(client.list("", 10)).unwrap();
    disturb();
    wait(lease.downgrade()).unwrap();
    disturb();
    let reader = wait(client.lock("r").shared().wait(NOW).acquire()).unwrap();
    disturb();
    assert!(wait(reader.release()));
    disturb();
    assert!(wait(lease.release()), "the release was not confirmed");
    disturb();
    let tried = wait(client.lock("r").try_acquire()).unwrap();
    assert!(wait(tried.expect("it is free").release()));
    disturb();
    let permit = wait(client.semaphore("s", 2).wait(NOW).acquire()).unwrap();
    disturb();
    assert!(wait(permit.release()));
}

fn set(proxies: &[Proxy<'_>], mode: &str) {
    proxies.iter().for_each(|proxy| proxy.mode(mode));
}

#[test]
fn closed_connections_cost_no_error() {
    let servers = Servers::start(3);
    let proxies = [0, 1, 2].map(|server| servers.proxy(server));
    let client = client(proxies.iter().map(|proxy| proxy.url.clone()));
    warm_up(&client, &servers);
    // The client learns only with the next request that its connections are closed.
    use_everything(&client, || set(&proxies, "lose_command"));
    wait_until("no key is left", || servers.are_empty());
}

/// The nodes grant the first round, but the answers are lost. The grants of its token must not count for the second
/// round, and the token must not stay on any node.
#[test]
fn acquire_whose_answers_were_lost_is_repeated_with_a_fresh_token() {
    let servers = Servers::start(3);
    let proxies = [0, 1, 2].map(|server| servers.proxy(server));
    let client = client(proxies.iter().map(|proxy| proxy.url.clone()));
    warm_up(&client, &servers);
    for _ in 0..5 {
        set(&proxies, "lose_reply");
        let lease = acquired(&client);
        for node in 0..3 {
            let holds = || servers.command(node, &["GET", "r"]) == lease.token();
            wait_until("the node has the token of the lease", holds);
            let stored = servers.command(node, &["GET", "{r}:fence"]);
            assert_eq!(stored.as_str().unwrap(), lease.fence().to_string());
        }
        assert!(wait(lease.release()));
        wait_until("no key is left", || servers.are_empty());
        set(&proxies, "pass");
    }
}

#[test]
fn idle_connections_that_nothing_passes_are_replaced() {
    let servers = Servers::start(3);
    let proxies = [0, 1, 2].map(|server| servers.proxy(server));
    let client = client(proxies.iter().map(|proxy| proxy.url.clone()));
    let silence = || {
        thread::sleep(IDLE);
        set(&proxies, "hold_open");
    };
    warm_up(&client, &servers);
    let began = Instant::now();
    silence();
    let lease = acquired(&client);
    silence();
    assert!(wait(client.lock("r").locked()).unwrap());
    silence();
    wait(lease.extend(None)).unwrap();
    silence();
    assert!(wait(lease.release()), "the release was not confirmed");
    assert!(began.elapsed() < TIMEOUT / 6, "it waited for the silent connections");
    set(&proxies, "pass");
    wait_until("no key is left", || servers.are_empty());
}

/// The answer of the third node is of no use to the caller, but it shows that the connection works.
#[test]
fn idle_connections_that_answer_are_kept() {
    let servers = Servers::start(3);
    let client = client(servers.urls.iter().cloned());
    warm_up(&client, &servers);
    for _ in 0..3 {
        thread::sleep(IDLE);
        assert!(!wait(client.lock("r").locked()).unwrap());
    }
    thread::sleep(IDLE);
    assert!(client.stats().nodes.iter().all(|node| node.reconnects == 0));
}

#[test]
fn release_that_is_delivered_in_the_background_is_confirmed() {
    let servers = Servers::start(3);
    let proxies = [0, 1, 2].map(|server| servers.proxy(server));
    let client = client(proxies.iter().map(|proxy| proxy.url.clone()));
    warm_up(&client, &servers);
    let lease = acquired(&client);
    wait_until("all nodes hold it", || (0..3).all(|node| servers.keys(node) == ["r"]));
    set(&proxies, "refuse");
    wait_until("the client cannot connect", || {
        client.stats().nodes.iter().all(|node| node.state == quorlock::NodeState::Down)
    });
    let releasing = lease.release();
    thread::sleep(Duration::from_millis(100));
    set(&proxies, "pass");
    assert!(wait(releasing), "the release was not confirmed");
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn release_of_keys_that_others_deleted_is_not_confirmed() {
    let servers = Servers::start(3);
    let proxies = [0, 1, 2].map(|server| servers.proxy(server));
    let client = client(proxies.iter().map(|proxy| proxy.url.clone()));
    warm_up(&client, &servers);
    for mode in ["pass", "lose_command"] {
        let lease = acquired(&client);
        wait_until("all nodes hold it", || (0..3).all(|node| servers.keys(node) == ["r"]));
        (0..3).for_each(|node| drop(servers.command(node, &["DEL", "r"])));
        set(&proxies, mode);
        assert!(!wait(lease.release()), "{mode}");
        set(&proxies, "pass");
    }
}

/// Servers behind Sentinel and in a cluster close idle connections, too.
#[test]
fn closed_connections_of_a_cluster_and_behind_sentinels_cost_no_error() {
    for (command, scheme, path) in
        [("start_cluster", "redis-cluster", ""), ("start_sentinel", "redis-sentinel", "/orders")]
    {
        let servers = match Servers::try_start(serde_json::json!({ command: true })) {
            Ok(servers) => servers,
            Err(reason) => {
                println!("skipped {command}: {reason}");
                continue;
            }
        };
        let seeds = servers.all[0]["seeds"].as_str().unwrap();
        let client = client([format!("{scheme}://{seeds}{path}")]);
        assert!(wait(wait(client.lock("warm").acquire()).unwrap().release()));
        use_everything(&client, || {
            wait_until_idle(&servers);
            // Begin with the sentinels, which come last in the list: the client asks the sentinels as soon as its
            // connection to the master is closed.
            for server in (0..servers.urls.len()).rev() {
                servers.command(server, &["CLIENT", "KILL", "TYPE", "normal"]);
            }
        });
    }
}

/// Waits until no client is connecting. If a connection attempt is cut, this counts as a failure, unlike the loss of an
/// idle connection.
fn wait_until_idle(servers: &Servers) {
    let connected = || -> Vec<String> {
        let of_server = |server| {
            let list = servers.command(server, &["CLIENT", "LIST", "TYPE", "normal"]);
            let list = list.as_str().unwrap().to_owned();
            // This command itself uses a new connection each time, and sentinels reconnect on their own.
            let is_other =
                |line: &&str| !line.contains("cmd=client") && !line.contains("name=sentinel-");
            let others = list.lines().filter(is_other);
            others.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        (0..servers.urls.len()).flat_map(of_server).collect()
    };
    let mut before = connected();
    let mut unchanged = 0;
    wait_until("no client connects any more", || {
        thread::sleep(Duration::from_millis(20));
        let now = connected();
        unchanged = if now == before { unchanged + 1 } else { 0 };
        before = now;
        unchanged >= 3
    });
}
