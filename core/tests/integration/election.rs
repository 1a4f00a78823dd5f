//! Elections: candidates, hand-over to a successor by name, and observers.

use crate::servers::{Proxy, Servers};
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, Dialect, Election, Error, ErrorCode, Lease, OptionValue, Pending};
use serde_json::json;
use std::future::pending;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Longer than any test, so nothing expires, and waiters do not retry by themselves.
const LONG: Duration = Duration::from_secs(600);

fn client(servers: &Servers) -> Client {
    let builder = Client::builder().nodes(&servers.urls).ttl(LONG).retry_delay(LONG, LONG);
    builder.node_timeout(TIMEOUT).build().unwrap()
}

/// Returns a candidate with this name and a client of its own.
fn candidate(servers: &Servers, name: &str) -> Election {
    client(servers).elect("r").holder(name)
}

fn listeners(servers: &Servers, channel: &str) -> Vec<u64> {
    let count = |server| servers.command(server, &["PUBSUB", "NUMSUB", channel])[1].as_u64();
    (0..servers.urls.len()).map(|server| count(server).unwrap()).collect()
}

/// Waits until exactly one candidate of this name listens on every node (`listens`), or until none listens on any node.
fn wait_for_listener(servers: &Servers, name: &str, listens: bool) {
    let channel = format!("quorlock:candidate:1:r:{name}");
    wait_until("the candidate listens", || {
        listeners(servers, &channel).iter().all(|count| *count == u64::from(listens))
    });
}

/// Starts a candidacy, and waits until the candidate is in the queue of each node and listens.
fn campaign(servers: &Servers, name: &str, waiting: u64) -> Pending<quorlock::Result<Lease>> {
    let campaigning = candidate(servers, name).next();
    wait_until("the candidate waits", || {
        (0..3).all(|node| servers.command(node, &["ZCARD", "{r}:queue"]) == json!(waiting))
    });
    wait_for_listener(servers, name, true);
    campaigning
}

#[test]
fn candidates_are_elected_one_after_another() {
    let servers = Servers::start(3);
    let mut leader = wait(candidate(&servers, "a").next()).unwrap();
    let waiting = [("b", 1), ("c", 2)].map(|(name, count)| campaign(&servers, name, count));
    for (name, campaigning) in ["b", "c"].into_iter().zip(waiting) {
        let fence = leader.fence();
        assert!(wait(leader.release()));
        leader = wait(campaigning).unwrap();
        assert_eq!(leader.holder(), name);
        assert!(leader.fence() > fence);
        wait_for_listener(&servers, name, false);
    }
    // If the leader's lease is dropped, another candidate succeeds too. This leader has never waited. A leader that has
    // waited may still be in the queue of a node that granted late.
    assert!(wait(leader.release()));
    wait_until("no key is left", || servers.are_empty());
    let leader = wait(candidate(&servers, "e").next()).unwrap();
    let last = campaign(&servers, "d", 1);
    drop(leader);
    assert!(wait(wait(last).unwrap().release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn leader_hands_over_to_the_candidate_that_it_names() {
    let servers = Servers::start(3);
    let leading = client(&servers);
    let leader = wait(leading.elect("r").holder("a").next()).unwrap();
    let first = campaign(&servers, "b", 1);
    let named = campaign(&servers, "c", 2);
    let lost = leader.lost();
    assert!(wait(leader.hand_over("c", LONG)).unwrap());
    assert!(!leader.is_valid() && leader.is_detached(), "the leader has given up the lease");
    assert!(wait(lost).is_none() && leader.loss().is_none());
    assert!(!wait(leader.release()));
    let successor = wait(named).unwrap();
    assert_eq!(successor.holder(), "c");
    assert!(successor.is_valid() && successor.fence() > leader.fence());
    assert_eq!((leading.stats().handed_over, leading.stats().elections), (1, 1));

    // The successor's lease works like that of any leader: it can be handed over again, and then released.
    assert!(wait(successor.hand_over("b", LONG)).unwrap());
    let last = wait(first).unwrap();
    assert_eq!(last.holder(), "b");
    assert!(last.fence() > successor.fence());
    assert!(wait(last.release()));
    wait_until("no key is left", || servers.are_empty());
}

/// Other clients may have won votes while the leader held the lease: on nodes that had lost its key, and got it back.
#[test]
fn larger_fence_with_the_leaders_key_is_no_successor() {
    let servers = Servers::start(3);
    let leader = wait(candidate(&servers, "a").next()).unwrap();
    let larger = (leader.fence() + 9).to_string();
    let listeners = servers.urls.iter().enumerate().map(|(node, url)| {
        servers.command(node, &["SET", "{r}:fence", &larger]);
        let mut listener = TcpStream::connect(url.strip_prefix("redis://").unwrap()).unwrap();
        listener.write_all(b"SUBSCRIBE quorlock:candidate:1:r:b\r\n").unwrap();
        listener
    });
    let listeners: Vec<_> = listeners.collect();
    wait_for_listener(&servers, "b", true);
    assert!(!wait(leader.hand_over("b", Duration::from_millis(300))).unwrap());
    wait_until("no key is left", || servers.are_empty());
    drop(listeners);
}

#[test]
fn leader_stays_if_there_is_no_such_candidate() {
    let servers = Servers::start(3);
    let leader = wait(candidate(&servers, "a").next()).unwrap();
    let other = campaign(&servers, "b", 1);
    for name in ["c", "", "a", "b:r"] {
        assert!(!wait(leader.hand_over(name, LONG)).unwrap(), "{name}");
        assert!(leader.is_valid() && !leader.is_detached());
    }
    // A candidate that has given up cannot take over.
    drop(other);
    wait_for_listener(&servers, "b", false);
    assert!(!wait(leader.hand_over("b", LONG)).unwrap() && leader.is_valid());
    // A candidate without a name cannot take over either.
    let unnamed = candidate(&servers, "").next();
    wait_until("it waits", || servers.command(0, &["ZCARD", "{r}:queue"]) == json!(1));
    assert!(!wait(leader.hand_over("", LONG)).unwrap() && leader.is_valid());
    assert!(wait(leader.release()));
    assert_eq!(wait(unnamed).unwrap().holder(), "");
}

#[test]
fn candidate_that_gives_up_stops_listening_at_once() {
    let servers = Servers::start(3);
    let leader = wait(candidate(&servers, "a").next()).unwrap();
    let _held = wait(client(&servers).lock("other").acquire()).unwrap();
    let client = client(&servers);
    // Another waiter of the client keeps open the connections on which the candidate listens.
    let _waiting = client.lock("other").wait_forever().acquire();
    let campaigning = client.elect("r").holder("b").next();
    wait_for_listener(&servers, "b", true);
    drop(campaigning);
    wait_for_listener(&servers, "b", false);
    assert!(!wait(leader.hand_over("b", LONG)).unwrap() && leader.is_valid());
}

/// Begins the campaign of a candidate `b` that cannot adopt a lease: its client uses other addresses of the nodes, so
/// it refuses the text of the lease. The proxies must live as long as the campaign.
fn stranger(servers: &Servers) -> (Vec<Proxy<'_>>, Pending<Result<Lease, Error>>) {
    let proxies: Vec<_> = (0..3).map(|server| servers.proxy(server)).collect();
    let urls: Vec<_> = proxies.iter().map(|proxy| proxy.url.clone()).collect();
    let elsewhere = Client::builder().nodes(&urls).ttl(LONG).build().unwrap();
    let stranger = elsewhere.elect("r").holder("b").next();
    wait_for_listener(servers, "b", true);
    (proxies, stranger)
}

#[test]
fn successor_that_cannot_adopt_costs_the_time_of_the_hand_over() {
    let servers = Servers::start(3);
    let leader = wait(candidate(&servers, "a").next()).unwrap();
    let (_proxies, stranger) = stranger(&servers);
    assert!(!wait(leader.hand_over("b", Duration::from_millis(300))).unwrap());
    assert!(leader.is_detached());
    // The stranger did not take over, so the lease is released, and the stranger is elected like any other candidate.
    let next = wait(stranger).unwrap();
    assert!(next.fence() > leader.fence());
}

#[test]
fn lease_that_ends_with_max_hold_is_not_taken_for_handed_over() {
    let servers = Servers::start(3);
    let leading = candidate(&servers, "a").max_hold(Duration::from_secs(3));
    let leader = wait(leading.next()).unwrap();
    let (_proxies, stranger) = stranger(&servers);
    let handing = leader.hand_over("b", LONG);
    assert!(wait(stranger).unwrap().fence() > leader.fence());
    assert!(!wait(handing).unwrap(), "it was elected like any other");
}

#[test]
fn forged_messages_elect_nobody() {
    let servers = Servers::start(3);
    let leader = wait(candidate(&servers, "a").next()).unwrap();
    let client = client(&servers);
    let other = wait(client.lock("other").acquire()).unwrap();
    let other = wait(other.detach(LONG)).unwrap().into_text();
    let mut campaigning = campaign(&servers, "b", 1);
    for message in ["", "nonsense", &other[..20], &other] {
        for node in 0..3 {
            servers.command(node, &["PUBLISH", "quorlock:candidate:1:r:b", message]);
        }
    }
    // The candidate receives the hand-over after the forged messages.
    assert!(wait(leader.hand_over("b", LONG)).unwrap());
    let elected = campaigning.block_for(TIMEOUT).unwrap().unwrap();
    assert_eq!(elected.resource(), "r");
    assert!(wait(wait(client.adopt(&other).acquire()).unwrap().release()), "nobody adopted it");
}

#[test]
fn outage_is_no_end_of_a_candidacy() {
    let servers = Servers::start(3);
    let patient = Client::builder().nodes(&servers.urls).connect_timeout(Duration::from_millis(50));
    let client = patient.node_timeout(Duration::from_millis(50)).build().unwrap();
    let leaders = client.watch("r");
    (0..3).for_each(|node| drop(servers.ask(json!({ "freeze": node }))));
    let campaigning = client.elect("r").next();
    let leader = leaders.after(0);
    wait_until("two acquires have failed", || client.stats().no_quorum >= 2);
    (0..3).for_each(|node| drop(servers.ask(json!({ "thaw": node }))));
    let lease = wait(campaigning).unwrap();
    assert!(lease.is_valid());
    assert!(wait(leader).unwrap().fence <= lease.fence());
    drop(leaders);

    // Closing the client ends the candidacy and the observation.
    let waiting = client.elect("r").next();
    let watching = client.watch("r");
    let mut last = lease.fence();
    last += 1;
    let observing = watching.after(last);
    wait(client.close());
    assert_eq!(wait(waiting).unwrap_err().code(), ErrorCode::Closed);
    let error = wait(observing).unwrap_err();
    assert_eq!((error.code(), error.resources()), (ErrorCode::Closed, &["r".to_owned()][..]));
    assert_eq!(wait(client.elect("r").next()).unwrap_err().code(), ErrorCode::Closed);
}

#[test]
fn invalid_candidates_are_refused() {
    let servers = Servers::start(1);
    let client = client(&servers);
    let zero = OptionValue::Number(0.0);
    let invalid = [
        (client.elect(""), "the resource"),
        (client.elect("r").ttl(Duration::ZERO), "ttl must be"),
        (client.elect("r").holder("\n"), "holder must be"),
        (client.elect("r").option(Dialect::Python, "wait", &zero), "wait is not an option of an"),
        (client.elect("r").option(Dialect::Rust, "nothing", &zero), "nothing is not an option"),
    ];
    for (election, mistake) in invalid {
        let error = wait(election.next()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Config);
        assert!(error.message().contains(mistake), "{error}");
        assert!(election.checked().is_err());
    }
    assert!(client.watch("").checked().is_err());
    assert_eq!(wait(client.watch("").after(0)).unwrap_err().code(), ErrorCode::Config);
    assert!(client.watch("r").checked().is_ok() && client.elect("r").checked().is_ok());

    let lease = wait(client.elect("r").next()).unwrap();
    let error = wait(lease.hand_over("b", Duration::ZERO)).unwrap_err();
    assert!(error.message().contains("within must be"), "{error}");
    let both = wait(client.lock(["x", "y"]).acquire()).unwrap();
    assert_eq!(wait(both.hand_over("b", LONG)).unwrap_err().code(), ErrorCode::Config);
    assert!(wait(lease.release()));
    let error = wait(lease.hand_over("b", LONG)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LeaseLost);
}

#[test]
fn observer_learns_of_each_leader() {
    let servers = Servers::start(3);
    let observing = client(&servers);
    let mut leaders = observing.watch("r");
    let mut next = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(TIMEOUT, leaders.next()).await })
    };
    let first = wait(candidate(&servers, "a").next()).unwrap();
    let seen = next().unwrap().unwrap();
    assert_eq!((&*seen.holder, seen.fence), ("a", first.fence()));
    let waiting = campaign(&servers, "b", 1);
    assert!(wait(first.hand_over("b", LONG)).unwrap());
    let second = wait(waiting).unwrap();
    let seen = next().unwrap().unwrap();
    assert_eq!((&*seen.holder, seen.fence), ("b", second.fence()));
    // The holder of an ordinary lock is a leader too, although it does not announce itself.
    assert!(wait(second.release()));
    let third = wait(client(&servers).lock("r").holder("").acquire()).unwrap();
    let seen = next().unwrap().unwrap();
    assert_eq!((&*seen.holder, seen.fence), ("", third.fence()));

    // A later observer sees only the current leader. An observer that already knows the current leader sees nobody.
    let later = client(&servers);
    assert_eq!(wait(later.watch("r").after(0)).unwrap(), seen);
    let mut known = later.watch("r").after(seen.fence);
    assert!(known.block_for(Duration::from_millis(50)).is_none());
}

#[test]
fn fence_of_a_minority_does_not_hide_the_next_leader() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let first = wait(candidate(&servers, "a").next()).unwrap();
    wait_until("all nodes have the key", || {
        (0..3).all(|node| servers.command(node, &["EXISTS", "r"]) == json!(1))
    });
    // One node stores a larger fence, as if it had granted an acquire late.
    let late = (first.fence() + 1_000_000_000).to_string();
    servers.command(2, &["SET", "{r}:fence", &late]);
    let watch = client.watch("r");
    assert_eq!(wait(watch.after(0)).unwrap().fence, first.fence());
    servers.ask(json!({ "freeze": 2 }));
    let _ = wait(first.release());
    let second =
        wait(Client::builder().nodes(&servers.urls).build().unwrap().elect("r").holder("b").next())
            .unwrap();
    assert!(second.fence() > first.fence() && second.fence().to_string() < late);
    let observing = Client::builder().nodes(&servers.urls).build().unwrap();
    let seen = wait(observing.watch("r").after(first.fence())).unwrap();
    assert_eq!((&*seen.holder, seen.fence), ("b", second.fence()));
}

#[tokio::test]
async fn run_campaigns_again_after_a_loss() {
    let servers = Servers::start(3);
    let ttl = Duration::from_secs(3);
    let client = Client::builder().nodes(&servers.urls).ttl(ttl).build().unwrap();
    let election = client.elect("r");
    let times = Arc::new(AtomicUsize::new(0));
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let led = Arc::clone(&times);
    let ends = Arc::clone(&dropped);
    // `tokio::spawn` accepts only a future that can also run on a runtime with several threads.
    let leading = tokio::spawn(async move {
        let lead = |lease: Arc<Lease>| {
            let led = Arc::clone(&led);
            let end = Dropped(Arc::clone(&ends));
            async move {
                let _end = end;
                if led.fetch_add(1, Ordering::SeqCst) < 2 {
                    pending::<()>().await;
                }
                lease.check().map(|()| lease.fence())
            }
        };
        election.run(lead).await
    });
    for time in 1..3 {
        while times.load(Ordering::SeqCst) < time {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(dropped.load(Ordering::SeqCst), time - 1);
        client.force_release(&client.status("r").await.unwrap()).await.unwrap();
    }
    let fence = tokio::time::timeout(TIMEOUT, leading).await.unwrap().unwrap().unwrap().unwrap();
    assert!(fence > 0);
    assert_eq!((times.load(Ordering::SeqCst), client.stats().losses), (3, 2));
    // `run` has released the lease.
    assert_eq!(client.stats().held, 0);
}

#[tokio::test]
async fn run_ends_after_the_hand_over() {
    let servers = Servers::start(3);
    let candidates = ["a", "b"].map(|name| candidate(&servers, name));
    let led = candidates[0].clone().run(async |lease: Arc<Lease>| {
        let successor = candidates[1].next();
        while !lease.hand_over("b", LONG).await.unwrap() {}
        assert!(!lease.is_valid());
        (lease.fence(), successor.await.unwrap())
    });
    let (fence, successor) = tokio::time::timeout(TIMEOUT, led).await.unwrap().unwrap();
    assert!(successor.fence() > fence && successor.is_valid());
}
