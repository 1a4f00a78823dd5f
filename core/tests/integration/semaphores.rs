//! Semaphores.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, ErrorCode, Lease, Semaphore};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// Longer than any test, so nothing expires.
const LONG: Duration = Duration::from_secs(600);

fn client(servers: &Servers) -> Client {
    let builder = Client::builder().nodes(&servers.urls).ttl(LONG).wait(TIMEOUT);
    builder.node_timeout(TIMEOUT).build().unwrap()
}

/// Returns a client whose waiters stay in the queues, and try again only if they are notified.
fn patient(servers: &Servers) -> Client {
    let builder = Client::builder().nodes(&servers.urls).ttl(LONG).wait_forever();
    builder.node_timeout(TIMEOUT).retry_delay(LONG, LONG).build().unwrap()
}

fn acquire(semaphore: &Semaphore) -> Lease {
    wait(semaphore.acquire()).unwrap()
}

fn try_acquire(semaphore: &Semaphore) -> Option<Lease> {
    wait(semaphore.try_acquire()).unwrap()
}

/// The number of waiters on each node.
fn waiters(servers: &Servers) -> Vec<u64> {
    let length = |server| servers.command(server, &["ZCARD", "{s}:permits:queue"]);
    (0..servers.urls.len()).map(|server| length(server).as_u64().unwrap()).collect()
}

fn wait_for_waiters(servers: &Servers, count: u64) {
    wait_until("the waiters are in the queues", || {
        waiters(servers).iter().all(|length| *length == count)
    });
}

#[test]
fn waiter_for_several_permits_is_not_overtaken() {
    let servers = Servers::start(3);
    let one = client(&servers);
    let two = client(&servers);
    let semaphore = one.semaphore("s", 3);
    let mut held: Vec<_> = (0..3).map(|_| acquire(&semaphore)).collect();
    let served = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let many = two.semaphore("s", 3).permits(2);
        scope.spawn(|| {
            let many = many;
            let lease = acquire(&many);
            served.lock().unwrap().push(2);
            assert!(wait(lease.release()));
        });
        wait_for_waiters(&servers, 1);
        scope.spawn(|| {
            let lease = acquire(&semaphore);
            served.lock().unwrap().push(1);
            assert!(wait(lease.release()));
        });
        wait_for_waiters(&servers, 2);
        assert!(wait(held.pop().unwrap().release()));
        // One permit is free, but the first waiter has precedence.
        for _ in 0..20 {
            assert!(try_acquire(&two.semaphore("s", 3)).is_none());
        }
        assert!(served.lock().unwrap().is_empty());
        assert!(wait(held.pop().unwrap().release()));
    });
    assert_eq!(*served.lock().unwrap(), [2, 1]);
    drop(held);
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn release_notifies_the_next_waiter_with_the_slot() {
    let servers = Servers::start(3);
    let one = client(&servers);
    let two = client(&servers);
    let patient = patient(&servers);
    let mut held: BTreeMap<_, _> = (0..4)
        .map(|turn| acquire(&[&one, &two][turn % 2].semaphore("s", 4)))
        .map(|lease| (lease.only_slot().unwrap(), lease))
        .collect();
    // A node that lacks the key of a permit would offer that permit instead, and the waiter would learn of the release
    // late.
    let exist = |node| {
        let slots = ["0", "1", "2", "3"].map(|slot| format!("{{s}}:permit:{slot}"));
        let [a, b, c, d] = slots.each_ref().map(String::as_str);
        servers.command(node, &["EXISTS", a, b, c, d]) == json!(4)
    };
    for slot in [2, 0, 3] {
        wait_until("all nodes have all permits", || {
            // Repairs the key on a node that refused the acquire, because the permit was released on this node later
            // than on the others.
            held.values().for_each(|lease| wait(lease.extend(None)).unwrap());
            (0..3).all(exist)
        });
        thread::scope(|scope| {
            let waiting = scope.spawn(|| acquire(&patient.semaphore("s", 4)));
            wait_for_waiters(&servers, 1);
            assert!(wait(held[&slot].release()));
            let lease = waiting.join().unwrap();
            assert_eq!(lease.only_slot().unwrap(), slot);
            held.insert(slot, lease);
        });
    }
}

#[test]
fn undo_of_an_earlier_round_does_not_put_the_winner_back_into_a_queue() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let _held = acquire(&client.semaphore("s", 2).permits(2));
    let patient = patient(&servers);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| acquire(&patient.semaphore("s", 2)));
        wait_for_waiters(&servers, 1);
        let names = servers.command(0, &["ZRANGE", "{s}:permits:queue", "0", "0"]);
        let (channel, wanted) = names[0].as_str().unwrap().split_once('#').unwrap();
        let (number, _) = wanted.split_once('*').unwrap();
        // Slot 1 is free on all nodes, and slot 0 on node 0 only.
        let free = |node, slot| {
            servers.command(node, &["DEL", &format!("{{s}}:permit:{slot}")]);
            servers.command(node, &["ZADD", "{s}:permits", "0", slot]);
        };
        (0..3).for_each(|node| free(node, "1"));
        free(0, "0");
        // These notifications offer slot 0, so the waiter loses its next round, and begins another round at once.
        for node in 0..2 {
            servers.command(node, &["PUBLISH", channel, &format!("{number} {{s}}:permit:0")]);
        }
        let lease = waiting.join().unwrap();
        assert_eq!(lease.slots(), [1]);
        wait_until("node 0 has handled both rounds", || {
            let exists = |slot| servers.command(0, &["EXISTS", &format!("{{s}}:permit:{slot}")]);
            exists(1) == json!(1) && exists(0) == json!(0)
        });
        assert_eq!(waiters(&servers), [0, 0, 0]);
    });
}

#[test]
fn winner_leaves_the_queue_of_a_node_that_refused_it() {
    let servers = Servers::start(3);
    let one = client(&servers);
    let two = patient(&servers);
    let lease = acquire(&one.semaphore("s", 1));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| acquire(&two.semaphore("s", 1)));
        wait_for_waiters(&servers, 1);
        // On node 2, another program holds the permit, so this node will refuse the waiter.
        servers.command(2, &["SET", "{s}:permit:0", "another program"]);
        wait(lease.release());
        let won = waiting.join().unwrap();
        assert!(won.is_valid());
        wait_for_waiters(&servers, 0);
        assert!(won.is_valid() && wait(won.release()));
    });
}

#[test]
fn permits_are_granted_in_order_without_an_index() {
    let servers = Servers::start(3);
    let one = client(&servers);
    let two = client(&servers);
    let nodes = 0..servers.urls.len();
    // A key of another program: quorlock must neither change it nor make it expire.
    nodes.clone().for_each(|node| drop(servers.command(node, &["SET", "{s}:permits", "mine"])));
    let single = one.semaphore("s", 2);
    let several = two.semaphore("s", 2).permits(2);
    let lease = acquire(&single);
    assert_eq!(lease.slots().len(), 1);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| acquire(&several));
        wait_for_waiters(&servers, 1);
        assert!(wait(lease.release()));
        let all = waiting.join().unwrap();
        assert_eq!(all.slots(), [0, 1]);
        assert!(try_acquire(&single).is_none() && wait(all.release()));
    });
    for node in nodes {
        assert_eq!(servers.command(node, &["GET", "{s}:permits"]), json!("mine"));
        assert_eq!(servers.command(node, &["TTL", "{s}:permits"]), json!(-1));
    }
}

#[test]
fn foreign_members_of_the_index_do_no_harm() {
    let servers = Servers::start(3);
    let client = client(&servers);
    for node in 0..servers.urls.len() {
        let member = |name: &str| ["ZADD", "{s}:permits", "9e15", name].map(str::to_owned);
        for member in ["x", "y", "-1", "1.5"].map(member) {
            servers.command(node, &member.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    for _ in 0..3 {
        let one = acquire(&client.semaphore("s", 2));
        let two = acquire(&client.semaphore("s", 2));
        assert!(try_acquire(&client.semaphore("s", 2)).is_none());
        assert!(wait(one.release()) && wait(two.release()));
        assert_eq!(servers.command(0, &["EXISTS", "{s}:permit:0", "{s}:permit:1"]), json!(0));
    }
}

#[test]
fn client_with_a_larger_limit_does_not_wait_behind_its_own_smaller_one() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let held: Vec<_> = (0..2).map(|_| acquire(&client.semaphore("s", 2))).collect();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| acquire(&client.semaphore("s", 2)));
        wait_for_waiters(&servers, 1);
        let other = acquire(&client.semaphore("s", 10));
        assert!(other.only_slot().unwrap() >= 2);
        assert!(held.into_iter().all(|lease| wait(lease.release())) && wait(other.release()));
        assert!(wait(waiting.join().unwrap().release()));
    });
}

#[test]
fn contenders_never_hold_more_than_the_limit() {
    let servers = Servers::start(3);
    let clients: Vec<_> = (0..4).map(|_| client(&servers)).collect();
    let held = AtomicU32::new(0);
    let most = AtomicU32::new(0);
    let done = AtomicU32::new(0);
    let used: Vec<_> = (0..3).map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        for number in 0..16 {
            let semaphore = clients[number % 4].semaphore("s", 3).permits(1 + number as u32 % 2);
            let held = &held;
            let most = &most;
            let done = &done;
            let used = &used;
            scope.spawn(move || {
                for _ in 0..20 {
                    let lease = acquire(&semaphore);
                    let count = lease.slots().len() as u32;
                    for slot in lease.slots() {
                        assert_eq!(used[slot as usize].fetch_add(1, Ordering::SeqCst), 0);
                    }
                    most.fetch_max(
                        held.fetch_add(count, Ordering::SeqCst) + count,
                        Ordering::SeqCst,
                    );
                    thread::sleep(Duration::from_millis(1));
                    held.fetch_sub(count, Ordering::SeqCst);
                    for slot in lease.slots() {
                        used[slot as usize].fetch_sub(1, Ordering::SeqCst);
                    }
                    assert!(wait(lease.release()));
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 320);
    assert_eq!(most.load(Ordering::SeqCst), 3);
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn permit_of_a_holder_that_is_gone_is_free_after_its_ttl() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let short = client.semaphore("s", 2);
    let long = client.semaphore("s", 2);
    let lost = acquire(&short.ttl(Duration::from_secs(3)).auto_extend(false));
    let held = acquire(&long);
    let slot = lost.only_slot().unwrap();
    let next = acquire(&long);
    assert!(!lost.is_valid());
    assert_eq!(next.only_slot().unwrap(), slot);
    assert!(next.fence() > lost.fence());
    assert!(wait(held.release()) && wait(next.release()));
}

#[test]
fn permit_is_repaired_on_a_node_that_lost_everything() {
    let servers = Servers::start(3);
    let builder = Client::builder().nodes(&servers.urls).ttl(Duration::from_secs(5)).wait(TIMEOUT);
    let client = builder.node_timeout(Duration::from_secs(1)).build().unwrap();
    let semaphore = client.semaphore("s", 3);
    let held = [acquire(&semaphore), acquire(&semaphore)];
    servers.command(1, &["FLUSHALL"]);
    let lock = |lease: &Lease| format!("{{s}}:permit:{}", lease.only_slot().unwrap());
    let is_back = |lease: &Lease| servers.command(1, &["GET", &lock(lease)]) == lease.token();
    wait_until("the keys are back", || held.iter().all(is_back));
    let third = acquire(&semaphore);
    assert!(try_acquire(&semaphore).is_none());
    assert!(held.iter().chain([&third]).all(Lease::is_valid));
    assert!(held.iter().chain([&third]).all(|lease| wait(lease.release())));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn adopted_permit_is_free_when_the_lease_of_the_adopter_ends() {
    let servers = Servers::start(3);
    let one = client(&servers);
    let two = client(&servers);
    // If the nodes remembered the long ttl of the giver, the second client would get the permit only after that ttl.
    let lease = acquire(&one.semaphore("s", 1).ttl(10 * LONG));
    let text = wait(lease.detach(LONG)).unwrap().into_text();
    let short = one.adopt(&text).ttl(Duration::from_secs(1)).auto_extend(false);
    let adopted = wait(short.acquire()).unwrap();
    assert!(wait(acquire(&two.semaphore("s", 1)).release()) && !adopted.is_valid());
}

#[test]
fn kept_permit_is_free_when_its_time_is_over() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let semaphore = client.semaphore("s", 1);
    let lease = acquire(&semaphore.clone().keep(Duration::from_secs(3)));
    assert!(wait(lease.release()));
    assert!(try_acquire(&semaphore).is_none());
    assert!(wait(acquire(&semaphore).release()));
}

#[test]
fn larger_limit_is_in_force_while_it_is_used() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let small = client.semaphore("s", 2);
    let large = client.semaphore("s", 4);
    let all: Vec<_> = (0..4).map(|_| acquire(&large)).collect();
    for server in 0..servers.urls.len() {
        servers.command(server, &["DEL", "{s}:permits"]);
    }
    assert!(try_acquire(&small).is_none());
    let status = wait(small.status()).unwrap();
    assert_eq!((status.holders.len(), status.free), (4, 0), "the status shows all holders");
    let mut all: BTreeMap<_, _> =
        all.into_iter().map(|lease| (lease.only_slot().unwrap(), lease)).collect();
    // The client with the smaller limit uses only the slots below it.
    assert!(wait(all.remove(&3).unwrap().release()));
    assert!(try_acquire(&small).is_none());
    assert!(wait(all.remove(&1).unwrap().release()));
    let lease = try_acquire(&small).unwrap();
    assert_eq!(lease.slots(), [1]);
    assert!(try_acquire(&small).is_none());
    assert_eq!(try_acquire(&large).unwrap().slots(), [3]);
    drop((all, lease));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn status_lists_the_holders_and_counts_what_is_free() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let semaphore = client.semaphore("s", 5);
    let status = wait(semaphore.status()).unwrap();
    assert_eq!((status.limit, status.free, status.holders.len()), (5, 5, 0));
    let lease = acquire(&semaphore.clone().permits(2).holder("web-7"));
    let other = acquire(&semaphore.clone().holder(""));
    let is_held = || {
        let status = wait(semaphore.status()).unwrap();
        status.nodes.iter().all(|node| node.held == Some(3)).then_some(status)
    };
    wait_until("all nodes have them", || is_held().is_some());
    let status = is_held().unwrap();
    assert_eq!((status.free, status.waiters), (2, 0));
    let slots: Vec<_> = status.holders.iter().map(|holder| holder.slot).collect();
    let mut expected = [lease.slots(), other.slots()].concat();
    expected.sort_unstable();
    assert_eq!(slots, expected);
    for holder in &status.holders {
        let owner = if lease.slots().contains(&holder.slot) { &lease } else { &other };
        assert_eq!(holder.holder.as_deref().unwrap_or_default(), owner.holder());
        assert_eq!(holder.token, owner.token()[..8]);
        assert_eq!(holder.fence, Some(owner.fence()));
        assert!(holder.expires_in_ms.is_some_and(|left| left > 100_000));
    }
    assert!(!status.to_json().contains(&lease.token()[..9]));
    servers.ask(json!({ "kill": 0 }));
    servers.ask(json!({ "kill": 1 }));
    wait_until("there is no majority", || {
        wait(semaphore.status()).is_err_and(|error| error.code() == ErrorCode::NoQuorum)
    });
}

#[test]
fn cancelled_waiter_leaves_the_queues() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let semaphore = client.semaphore("s", 2);
    let held = acquire(&semaphore.clone().permits(2));
    let waiting = semaphore.clone().permits(2).acquire();
    wait_for_waiters(&servers, 1);
    drop(waiting);
    wait_for_waiters(&servers, 0);
    assert!(wait(held.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn many_permits_are_used_up_and_given_back() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let semaphore = client.semaphore("s", 1_024);
    let all: Vec<_> = (0..8).map(|_| acquire(&semaphore.clone().permits(128))).collect();
    let slots: BTreeSet<_> = all.iter().flat_map(Lease::slots).collect();
    assert_eq!(slots.len(), 1_024);
    assert_eq!(all[0].only_slot().unwrap_err().code(), ErrorCode::Config);
    assert!(try_acquire(&semaphore).is_none());
    assert!(all.iter().all(|lease| wait(lease.release())));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn mistakes_are_found_before_anything_is_sent() {
    let client = Client::builder().nodes(["redis://127.0.0.1:1"]).build().unwrap();
    let mistakes = [
        (client.semaphore("s", 0), "limit must be a whole number from 1 to 1024, not 0"),
        (client.semaphore("s", 1_025), "limit must be a whole number from 1 to 1024, not 1025"),
        (
            client.semaphore("s", 3).permits(4),
            "permits must be a whole number from 1 to the limit, which is 3, not 4",
        ),
        (client.semaphore("", 3), "empty"),
        (client.semaphore("{s}:permits", 3), "reserved"),
    ];
    for (semaphore, message) in mistakes {
        let error = wait(semaphore.acquire()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Config);
        assert!(error.message().contains(message), "{error}");
        assert!(semaphore.checked().is_err());
    }
}
