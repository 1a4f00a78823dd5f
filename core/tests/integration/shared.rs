//! Leases in shared mode.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, ErrorCode, Lease, Lock, NodeOutcome, State};
use serde_json::json;
use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

/// Longer than any test, so nothing expires.
const LONG: Duration = Duration::from_secs(600);
const NOW: Duration = Duration::ZERO;

fn client(servers: &Servers) -> Client {
    let builder = Client::builder().nodes(&servers.urls).ttl(LONG).wait(TIMEOUT);
    builder.node_timeout(TIMEOUT).build().unwrap()
}

fn acquire(lock: Lock) -> Lease {
    wait(lock.acquire()).unwrap()
}

/// Tries to acquire the lock without waiting, and releases it again. Returns whether the lock was free.
fn is_free(lock: Lock) -> bool {
    match wait(lock.wait(NOW).acquire()) {
        Ok(lease) => wait(lease.release()),
        Err(error) if error.code() == ErrorCode::Timeout => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn crashed_reader_leaves_with_its_own_ttl() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let reader = acquire(client.lock("r").shared());
    let short = client.lock("r").shared().ttl(Duration::from_millis(500)).auto_extend(false);
    let crashed = acquire(short);
    wait_until("it has expired", || !crashed.is_valid());
    let readers = || wait(client.status("r")).unwrap().readers.len();
    wait_until("only one reader is left", || readers() == 1);
    assert!(wait(reader.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn expired_reader_is_not_brought_back() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let reader = acquire(client.lock("r").shared());
    let other = acquire(client.lock("r").shared());
    for server in 0..3 {
        assert_eq!(servers.command(server, &["ZREM", "{r}:shared", reader.token()]), 1);
    }
    let error = wait(reader.extend(None)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LeaseLost, "{error}");
    assert!(wait(other.extend(None)).is_ok());
    for server in 0..3 {
        let left = servers.command(server, &["ZCARD", "{r}:shared"]);
        assert_eq!(left, 1, "the lost reader has no share");
    }
}

#[test]
fn reader_is_repaired_on_a_node_that_lost_it() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let reader = acquire(client.lock("r").shared());
    let has_share = |server| {
        servers.command(server, &["ZSCORE", "{r}:shared", reader.token()])
            != serde_json::Value::Null
    };
    wait_until("all nodes have it", || (0..3).all(has_share));
    servers.command(1, &["DEL", "r", "{r}:shared"]);
    wait(reader.extend(None)).unwrap();
    wait_until("the node has it again", || has_share(1));
    assert!(!is_free(client.lock("r")));
    assert!(wait(reader.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn writer_waits_for_the_readers_before_it_and_goes_before_later_ones() {
    let servers = Servers::start(3);
    let one = client(&servers);
    let two = client(&servers);
    let reader = acquire(one.lock("r").shared());
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        let waiting = || (0..3).all(|server| servers.command(server, &["ZCARD", "{r}:queue"]) == 1);
        scope.spawn(|| {
            let lease = acquire(two.lock("r"));
            order.lock().unwrap().push("writer");
            wait(lease.release());
        });
        wait_until("the writer waits", waiting);
        assert!(!is_free(one.lock("r").shared()), "a reader does not overtake it");
        for client in [&one, &two] {
            let order = &order;
            scope.spawn(move || {
                let lease = acquire(client.lock("r").shared());
                order.lock().unwrap().push("reader");
                wait(lease.release());
            });
        }
        let all = || (0..3).all(|server| servers.command(server, &["ZCARD", "{r}:queue"]) == 3);
        wait_until("the readers wait", all);
        wait(reader.release());
    });
    assert_eq!(*order.lock().unwrap(), ["writer", "reader", "reader"]);
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn status_lists_the_readers_and_a_force_release_ends_them() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let one = acquire(client.lock("r").shared().holder("web-1"));
    let two = acquire(client.lock("r").shared().holder("web-2"));
    let names = || {
        let status = wait(client.status("r")).unwrap();
        assert_eq!((status.state, &status.holder, &status.token), (State::Held, &None, &None));
        let mut names: Vec<_> = status.readers.into_iter().filter_map(|r| r.holder).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(), ["web-1", "web-2"]);
    assert!(wait(client.lock("r").locked()).unwrap());
    assert!(!wait(client.lock("r").shared().locked()).unwrap());
    wait(client.force_release(&wait(client.status("r")).unwrap())).unwrap();
    assert_eq!(wait(client.status("r")).unwrap().state, State::Free);
    let writer = acquire(client.lock("r"));
    assert!(wait(client.lock("r").shared().locked()).unwrap());
    for reader in [one, two] {
        assert_eq!(wait(reader.extend(None)).unwrap_err().code(), ErrorCode::LeaseLost);
    }
    assert!(wait(writer.release()));
}

#[test]
fn force_release_ends_only_the_readers_that_were_seen() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let status = || wait(client.status("r")).unwrap();
    let one = acquire(client.lock("r").shared());
    let two = acquire(client.lock("r").shared());
    let is_everywhere = || status().nodes.iter().all(|node| node.readers.len() == 2);
    wait_until("all nodes have both", is_everywhere);
    let seen = status();
    let later = acquire(client.lock("r").shared().holder("later"));
    assert!(wait(one.release()));
    let outcomes = || {
        let nodes = wait(client.force_release(&seen)).unwrap();
        nodes.iter().map(|node| node.outcome).collect::<Vec<_>>()
    };
    assert_eq!(outcomes(), [NodeOutcome::Confirmed; 3]);
    assert_eq!(wait(two.extend(None)).unwrap_err().code(), ErrorCode::LeaseLost);
    assert_eq!(outcomes(), [NodeOutcome::Missing; 3]);
    assert!(wait(later.extend(None)).is_ok());
    let left: Vec<_> = status().readers.into_iter().map(|reader| reader.holder).collect();
    assert_eq!(left, [Some("later".to_owned())]);
    assert!(wait(later.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn shared_lease_is_adopted_and_kept_in_its_mode() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let other = acquire(client.lock("config").shared());
    let lock = || client.lock(["order", "config"]).shared_for("config");
    let lease = acquire(lock());
    let text = wait(lease.detach(LONG)).unwrap().into_text();
    assert!(!is_free(client.lock("order")));
    let adopted = wait(client.adopt(&text).acquire()).unwrap();
    assert!(adopted.fences().zip(lease.fences()).all(|(new, old)| new > old));
    assert!(is_free(client.lock("config").shared()) && !is_free(client.lock("order").shared()));
    assert_eq!(wait(client.adopt(&text).acquire()).unwrap_err().code(), ErrorCode::LeaseLost);
    let (_kept, text) = wait(client.keep(adopted)).unwrap();
    let resumed = wait(client.resume(&text)).unwrap();
    assert!(wait(resumed.extend(None)).is_ok() && wait(resumed.release()));
    assert!(is_free(client.lock("order")) && !is_free(client.lock("config")));
    assert!(wait(other.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn many_readers_and_writers_of_one_client_take_turns() {
    let servers = Servers::start(3);
    let clients = [client(&servers), client(&servers)];
    let state = std::sync::Mutex::new((0_u32, 0_u32));
    thread::scope(|scope| {
        for number in 0..16 {
            let client = &clients[number % 2];
            let state = &state;
            scope.spawn(move || {
                for _ in 0..20 {
                    let is_reader = number % 4 != 0;
                    let lock = client.lock("r");
                    let lease = acquire(if is_reader { lock.shared() } else { lock });
                    {
                        let mut state = state.lock().unwrap();
                        let (readers, writers) = &mut *state;
                        *(if is_reader { &mut *readers } else { &mut *writers }) += 1;
                        assert!(*writers == 0 || (*writers, *readers) == (1, 0), "{state:?}");
                    }
                    thread::yield_now();
                    {
                        let mut state = state.lock().unwrap();
                        if is_reader { state.0 -= 1 } else { state.1 -= 1 }
                    }
                    assert!(wait(lease.release()));
                }
            });
        }
    });
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn downgrade_notifies_the_readers_that_wait() {
    let servers = Servers::start(3);
    let one = client(&servers);
    let two = client(&servers);
    let lease = acquire(one.lock("r"));
    let waiting = two.lock("r").shared().acquire();
    let all = || (0..3).all(|server| servers.command(server, &["ZCARD", "{r}:queue"]) == 1);
    wait_until("the reader waits", all);
    wait(lease.downgrade()).unwrap();
    let reader = wait(waiting).unwrap();
    assert!(lease.is_valid() && wait(reader.release()) && wait(lease.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn downgrade_reaches_a_node_that_was_away() {
    let servers = Servers::start(3);
    let proxy = servers.proxy(2);
    let urls = [&servers.urls[0], &servers.urls[1], &proxy.url];
    let client = Client::builder().nodes(urls).ttl(LONG).build().unwrap();
    let lease = acquire(client.lock("r"));
    let value = |server| servers.command(server, &["GET", "r"]);
    wait_until("all nodes have it", || (0..3).all(|server| value(server) == lease.token()));
    proxy.mode("refuse");
    wait(lease.downgrade()).unwrap();
    assert_eq!(value(2), lease.token());
    proxy.mode("pass");
    wait_until("it is shared everywhere", || {
        (0..3).all(|server| value(server) == "quorlock:shared")
    });
    assert!(wait(lease.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn failed_upgrade_leaves_the_reader_on_all_nodes() {
    let servers = Servers::start(3);
    let one = client(&servers);
    let two = client(&servers);
    let reader = acquire(one.lock(["r", "s"]).shared_for("r"));
    let other = acquire(two.lock("r").shared());
    let shares = |server| servers.command(server, &["ZCARD", "{r}:shared"]);
    wait_until("all nodes have both", || (0..3).all(|server| shares(server) == 2));
    // Node 0 alone would grant the upgrade.
    servers.command(0, &["ZREM", "{r}:shared", other.token()]);
    for _ in 0..20 {
        assert!(wait(reader.try_upgrade()).unwrap().is_none());
        assert!(reader.is_valid());
        let is_reader = |server| {
            servers.command(server, &["ZSCORE", "{r}:shared", reader.token()]).is_string()
                && servers.command(server, &["GET", "s"]) == reader.token()
        };
        assert!((0..3).all(is_reader));
    }
    assert!(wait(reader.extend(None)).is_ok() && wait(other.extend(None)).is_ok());
    assert!(wait(reader.release()) && wait(other.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn upgrade_without_a_majority_is_an_error_and_the_reader_stays() {
    let servers = Servers::start(3);
    let builder = Client::builder().nodes(&servers.urls).ttl(LONG);
    let client = builder.node_timeout(Duration::from_millis(200)).build().unwrap();
    let reader = acquire(client.lock("r").shared());
    let has_share =
        |server| servers.command(server, &["ZSCORE", "{r}:shared", reader.token()]).is_string();
    wait_until("all nodes have it", || (0..3).all(has_share));
    for node in [0, 1] {
        servers.ask(json!({ "freeze": node }));
    }
    let error = wait(reader.try_upgrade()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoQuorum, "{error}");
    assert!(reader.is_valid() && has_share(2));
    for node in [0, 1] {
        servers.ask(json!({ "thaw": node }));
    }
    wait_until("all nodes have it again", || (0..3).all(has_share));
    assert!(wait(reader.extend(None)).is_ok() && wait(reader.release()));
    wait_until("no key is left", || servers.are_empty());
}

/// The requests of a failed upgrade arrive after the lease was extended. They must not shorten the lease on any of its
/// resources.
#[test]
fn late_upgrade_never_shortens_the_lease() {
    let servers = Servers::start(3);
    let proxies = [0, 1].map(|server| servers.proxy(server));
    let urls = [&proxies[0].url, &proxies[1].url, &servers.urls[2]];
    let builder = Client::builder().nodes(urls).ttl(Duration::from_secs(20)).auto_extend(false);
    let builder = builder.node_timeout(Duration::from_millis(200));
    let client = builder.connect_timeout(Duration::from_millis(400)).build().unwrap();
    // After this upgrade, the nodes know the scripts that an upgrade needs.
    let lease = acquire(client.lock(["x", "y"]).shared_for("y"));
    assert!(wait(wait(lease.try_upgrade()).unwrap().unwrap().release()));
    wait_until("no key is left", || servers.are_empty());

    let lease = acquire(client.lock(["a", "b"]).shared_for("b").wait(TIMEOUT));
    let is_held = |server| {
        servers.command(server, &["GET", "a"]) == lease.token()
            && servers.command(server, &["ZSCORE", "{b}:shared", lease.token()]).is_string()
    };
    wait_until("all nodes have it", || (0..3).all(is_held));
    proxies.iter().for_each(|proxy| proxy.mode("hold_commands"));
    assert_eq!(wait(lease.try_upgrade()).unwrap_err().code(), ErrorCode::NoQuorum);
    // New connections pass, but the proxies still hold back the requests that were sent before.
    proxies.iter().for_each(|proxy| proxy.mode("hold_open"));
    let left = |server, key| servers.command(server, &["PTTL", key]).as_i64().unwrap();
    let is_extended = |server| left(server, "a") > 30_000 && left(server, "b") > 30_000;
    wait_until("all nodes have extended it", || {
        wait(lease.extend(Some(LONG))).is_ok() && (0..3).all(is_extended)
    });
    let before = [0, 1].map(|server| servers.scripts(server));
    proxies.iter().for_each(|proxy| proxy.mode("pass"));
    wait_until("TRANSFER and GIVE BACK have arrived", || {
        (0..2).all(|server| servers.scripts(server) >= before[server] + 2)
    });
    // One of the two scripts may have been an earlier GIVE BACK, which is repeated on a new connection.
    wait_until("all nodes have it again", || {
        (0..2).all(|server| is_held(server) && is_extended(server))
    });
    assert!(lease.is_valid() && wait(lease.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn loss_during_an_upgrade_is_reported_when_the_lease_ends() {
    let servers = Servers::start(3);
    let builder = Client::builder().nodes(&servers.urls).ttl(Duration::from_secs(3));
    let client = builder.auto_extend(false).node_timeout(TIMEOUT).build().unwrap();
    let lease = client.lock("r").shared();
    let other = client.lock("r").shared();
    let lease = acquire(lease);
    let _other = acquire(other.ttl(LONG));
    servers.ask(json!({ "freeze": 2 }));
    let _upgrading = lease.try_upgrade();
    assert_eq!(wait(lease.lost()).unwrap().code(), ErrorCode::LeaseLost);
    assert_eq!(client.stats().losses, 1);
    servers.ask(json!({ "thaw": 2 }));
}

/// The lease has been extended for longer than its ttl. After the refused upgrade, the nodes must still keep the keys
/// for as long as the lease is valid.
#[test]
fn refused_upgrade_changes_nothing() {
    for (auto_extend, resources, is_silent) in [
        (false, &["r"][..], false),
        (true, &["r"], false),
        (false, &["a", "r"], false),
        (true, &["a", "r"], true),
        (false, &["r"], true),
    ] {
        let servers = Servers::start(3);
        let builder = Client::builder().nodes(&servers.urls).ttl(Duration::from_secs(1));
        let builder = builder.auto_extend(auto_extend).node_timeout(Duration::from_millis(500));
        let client = builder.connect_timeout(TIMEOUT).build().unwrap();
        let reader = acquire(client.lock(resources).shared_for("r"));
        let other = acquire(client.lock("r").shared().ttl(LONG));
        wait(reader.extend(Some(LONG))).unwrap();
        let share =
            |server| servers.command(server, &["ZSCORE", "{r}:shared", reader.token()]).to_string();
        let shares = |server| servers.command(server, &["ZCARD", "{r}:shared"]);
        wait_until("all nodes have both", || (0..3).all(|server| shares(server) == 2));
        let up = if is_silent { 0..2 } else { 0..3 };
        if is_silent {
            servers.ask(json!({ "freeze": 2 }));
        }
        let nodes = |key| up.clone().map(|at| servers.command(at, &["PTTL", key])).collect();
        let end = reader.remaining();
        let stored = up.clone().map(share).collect::<Vec<_>>();
        for _ in 0..3 {
            assert!(wait(reader.try_upgrade()).unwrap().is_none(), "another client reads");
        }
        assert!(reader.remaining() > LONG / 2 && reader.remaining() <= end);
        assert_eq!(up.clone().map(share).collect::<Vec<_>>(), stored);
        let lefts: Vec<serde_json::Value> =
            resources.iter().flat_map(|key| -> Vec<_> { nodes(key) }).collect();
        let reader_left = i64::try_from(reader.remaining().as_millis()).unwrap();
        assert!(lefts.iter().all(|left| left.as_i64().unwrap() >= reader_left), "{lefts:?}");
        // Now the other reader no longer blocks the upgrade on node 0. This node grants the upgrade, and the client
        // must give the keys back there.
        for server in up.clone().take(1) {
            servers.command(server, &["ZREM", "{r}:shared", other.token()]);
        }
        let granting = wait(reader.try_upgrade());
        assert!(matches!(granting, Ok(None)) || is_silent, "{granting:?}");
        assert!(reader.is_valid() && reader.remaining() > LONG / 2);
        let lefts: Vec<serde_json::Value> =
            resources.iter().flat_map(|key| -> Vec<_> { nodes(key) }).collect();
        let reader_left = i64::try_from(reader.remaining().as_millis()).unwrap();
        assert!(lefts.iter().all(|left| left.as_i64().unwrap() >= reader_left), "{lefts:?}");
        if is_silent {
            servers.ask(json!({ "thaw": 2 }));
        }
        wait(reader.extend(None)).unwrap();
        assert!(wait(reader.release()));
        wait(other.release());
        wait_until("no key is left", || servers.are_empty());
    }
}

#[test]
fn lease_is_not_detached_while_an_upgrade_is_under_way() {
    let servers = Servers::start(3);
    let builder = Client::builder().nodes(&servers.urls).ttl(LONG).wait(TIMEOUT);
    let client = builder.node_timeout(Duration::from_secs(6)).build().unwrap();
    assert!(wait(acquire(client.lock("r").shared()).release()));
    wait_until("no key is left", || servers.are_empty());
    servers.ask(json!({ "freeze": 2 }));
    let reader = acquire(client.lock("r").shared());
    // This detach first extends the lease, and then waits for the vote of the frozen node.
    let detaching = reader.detach(2 * LONG);
    let left = |server| servers.command(server, &["PTTL", "r"]).as_i64().unwrap();
    wait_until("two nodes have extended it", || left(0) > 700_000 && left(1) > 700_000);
    servers.ask(json!({ "freeze": 1 }));
    let upgrading = reader.try_upgrade();
    let error = wait(detaching).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Config, "{error}");
    assert!(error.message().contains("being upgraded"), "{error}");
    assert_eq!(wait(upgrading).unwrap_err().code(), ErrorCode::NoQuorum);
    for node in [1, 2] {
        servers.ask(json!({ "thaw": node }));
    }
    assert!(reader.is_valid());
    wait(reader.release());
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn waiting_for_an_own_shared_lease_of_a_block_is_a_mistake() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let reader = acquire(client.lock("r").shared());
    let error = wait(client.lock("r").wait(Duration::from_millis(100)).acquire()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
    let [inner, outer] = [1, 2].map(|block| NonZeroU64::new(block).unwrap());
    reader.enter_block(outer);
    let other = acquire(client.lock("s").shared());
    other.enter_block(inner);
    let locks = [client.lock("r"), client.lock(["s", "r"]).shared_for(["s"])];
    for lock in locks.map(|lock| lock.within(vec![inner, outer])) {
        let error = wait(lock.acquire()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Config, "{error}");
        assert!(error.message().contains("try_upgrade"), "{error}");
    }
    let error = wait(client.elect("r").within(vec![outer]).next()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Config, "{error}");
    wait(other.release());
    // A writer in another thread may wait, because this thread can still release the shared lease.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| acquire(client.lock("r")).is_valid());
        let all = || (0..3).all(|server| servers.command(server, &["ZCARD", "{r}:queue"]) == 1);
        wait_until("the writer waits", all);
        wait(reader.release());
        assert!(waiting.join().unwrap());
    });
    wait_until("no key is left", || servers.are_empty());
}
