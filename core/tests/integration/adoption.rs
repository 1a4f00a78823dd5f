//! Leases that are detached and adopted.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, Error, ErrorCode, Lease, Lock, NodeOutcome};
use serde_json::json;
use std::thread;
use std::time::Duration;

/// Longer than any test, so nothing expires.
const LONG: Duration = Duration::from_secs(600);
const NOW: Duration = Duration::ZERO;

fn client(servers: &Servers) -> Client {
    let builder = Client::builder().nodes(&servers.urls).ttl(LONG).wait(TIMEOUT);
    builder.node_timeout(TIMEOUT).build().unwrap()
}

fn detach(lease: &Lease) -> String {
    wait(lease.detach(LONG)).unwrap().into_text()
}

fn adopt(client: &Client, text: &str) -> Result<Lease, Error> {
    wait(client.adopt(text).acquire())
}

/// Returns the value of a lock key on each node.
fn stored(servers: &Servers, key: &str) -> Vec<Option<String>> {
    let value = |server| servers.command(server, &["GET", key]).as_str().map(str::to_owned);
    (0..servers.urls.len()).map(value).collect()
}

/// Waits until all nodes have this token.
fn wait_for_token(servers: &Servers, key: &str, token: &str) {
    wait_until("all nodes have the token", || {
        stored(servers, key).iter().all(|stored| stored.as_deref() == Some(token))
    });
}

#[test]
fn one_of_many_adopters_wins_and_no_key_is_deleted() {
    one_of_many_adopters_wins(|client| client.lock("r"), &["GET", "r"]);
}

/// Another client reads during the adoptions. So a node cannot tell whether another adopter has taken over the share.
#[test]
fn one_of_many_adopters_of_a_share_wins_and_no_key_is_deleted() {
    one_of_many_adopters_wins(
        |client| client.lock("r").shared(),
        &["ZRANGE", "{r}:shared", "0", "-1"],
    );
}

/// `stored` is the command that reads the holders.
fn one_of_many_adopters_wins(lock: fn(&Client) -> Lock, stored: &[&str]) {
    let servers = Servers::start(4);
    let clients: Vec<_> = (0..6).map(|_| client(&servers)).collect();
    let [giver, other, adopters @ ..] = &clients[..] else { unreachable!() };
    let mut last = 0;
    for _ in 0..25 {
        let lease = wait(lock(giver).acquire()).unwrap();
        let reader = wait(lock(other).wait(NOW).acquire()).ok();
        let text = detach(&lease);
        let results: Vec<_> = thread::scope(|scope| {
            let adopting = adopters.iter().map(|client| scope.spawn(|| adopt(client, &text)));
            let adopting: Vec<_> = adopting.collect();
            adopting.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        let [won] = &won[..] else { panic!("{} adopters won: {lost:?}", won.len()) };
        let won = won.as_ref().unwrap();
        assert!(won.fence() > lease.fence() && lease.fence() > last);
        last = won.fence();
        for error in lost {
            let error = error.unwrap_err();
            assert_eq!(error.code(), ErrorCode::LeaseLost, "{error}");
        }
        // A late GIVE BACK of another adopter may have restored the giver's share beside the adopter's. The adopter's
        // RELEASE deletes it.
        wait_until("all nodes have the token of the adopter", || {
            (0..servers.urls.len())
                .all(|server| servers.command(server, stored).to_string().contains(won.token()))
        });
        assert!(wait(won.release()));
        assert!(reader.is_none_or(|reader| wait(reader.release())));
        wait_until("no key is left", || servers.are_empty());
    }
}

#[test]
fn adopter_that_gives_up_among_readers_leaves_the_lease_to_others() {
    let servers = Servers::start(3);
    let (giver, adopter) = (client(&servers), client(&servers));
    let lease = wait(giver.lock("r").shared().acquire()).unwrap();
    let _reader = wait(giver.lock("r").shared().acquire()).unwrap();
    let has_share = |server| {
        let score = servers.command(server, &["ZSCORE", "{r}:shared", lease.token()]);
        score.as_str().is_some()
    };
    wait_until("all nodes have the share", || (0..3).all(has_share));
    let text = detach(&lease);
    // For an adopter, this looks as if other adopters had the share on two nodes again and again.
    for server in 0..2 {
        servers.command(server, &["ZREM", "{r}:shared", lease.token()]);
    }
    let error = adopt(&adopter, &text).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LeaseLost, "{error}");
    assert!(error.message().contains("others hold the lock in shared mode"), "{error}");
    // The requests for another lock arrive after all requests of the adoption.
    let next = wait(adopter.lock("other").acquire()).unwrap();
    wait_for_token(&servers, "other", next.token());
    assert!(wait(next.release()));
    wait_until("no key of the other lock is left", || {
        stored(&servers, "other").iter().all(Option::is_none)
    });
    assert!(has_share(2));
}

#[test]
fn late_grants_of_an_adoption_are_given_back() {
    let servers = Servers::start(3);
    let giver = client(&servers);
    let builder = Client::builder().nodes(&servers.urls).ttl(LONG);
    let adopter = builder.node_timeout(TIMEOUT / 300).wait(NOW).build().unwrap();
    assert!(wait(wait(adopter.lock("warm").acquire()).unwrap().release()));
    let lease = wait(giver.lock("r").acquire()).unwrap();
    wait_for_token(&servers, "r", lease.token());
    let text = detach(&lease);
    for node in [0, 1] {
        servers.ask(json!({ "freeze": node }));
    }
    let error = adopt(&adopter, &text).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoQuorum, "{error}");
    for node in [0, 1] {
        servers.ask(json!({ "thaw": node }));
    }
    wait_for_token(&servers, "r", lease.token());
    let left = servers.command(0, &["PTTL", "r"]).as_i64().unwrap();
    assert!(left > 0, "the key still expires: {left}");
    // Once the frozen nodes have answered all requests, the lease can be adopted.
    wait_until("it can be adopted", || adopt(&giver, &text).is_ok_and(|lease| lease.is_valid()));
}

#[test]
fn cancelled_adoption_leaves_the_lease_to_others() {
    let servers = Servers::start(3);
    let giver = client(&servers);
    let proxies = [0, 1, 2].map(|server| servers.proxy(server));
    let urls = proxies.each_ref().map(|proxy| &proxy.url);
    let lease = wait(Client::builder().nodes(urls).ttl(LONG).build().unwrap().lock("r").acquire());
    let lease = lease.unwrap();
    wait_for_token(&servers, "r", lease.token());
    let text = detach(&lease);
    let adopter = Client::builder().nodes(urls).ttl(LONG).node_timeout(TIMEOUT).build().unwrap();
    assert!(wait(wait(adopter.lock("warm").acquire()).unwrap().release()));
    // The answers of two nodes are under way when the adopter gives up.
    proxies[..2].iter().for_each(|proxy| proxy.delay(0.3));
    let adopting = adopter.adopt(&text).acquire();
    wait_until("a node has transferred the key", || {
        stored(&servers, "r").iter().any(|token| token.as_deref() != Some(lease.token()))
    });
    drop(adopting);
    wait_for_token(&servers, "r", lease.token());
    proxies[..2].iter().for_each(|proxy| proxy.delay(0.0));
    wait_for_token(&servers, "r", lease.token());
    let adopted = wait(adopter.adopt(&text).acquire()).unwrap();
    assert!(wait(adopted.release()));
    wait(giver.close());
}

#[test]
fn killed_adopter_keeps_the_lease_until_its_ttl_ends() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let lease = wait(client.lock("r").acquire()).unwrap();
    wait_for_token(&servers, "r", lease.token());
    let text = detach(&lease);
    // Set the keys that an adopter leaves if it is killed after its requests have arrived at two nodes.
    let killed = format!("{};killed", "0".repeat(40));
    for node in [0, 1] {
        servers.command(node, &["SET", "r", &killed, "PX", "700"]);
    }
    let error = adopt(&client, &text).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LeaseLost);
    assert!(error.message().contains("killed has adopted it"), "{error}");
    assert!(error.nodes().iter().any(|node| node.outcome == NodeOutcome::Held), "{error}");
    wait_until("its keys have expired, and the last one is released", || servers.are_empty());
    assert_eq!(adopt(&client, &text).unwrap_err().code(), ErrorCode::LeaseLost);
    assert!(wait(wait(client.lock("r").acquire()).unwrap().release()));
}

#[test]
fn adopter_that_was_too_late_leaves_nothing_on_a_node_that_answers_later() {
    let servers = Servers::start(3);
    let giver = client(&servers);
    let builder = Client::builder().nodes(&servers.urls).ttl(LONG).wait(TIMEOUT);
    let adopter = builder.node_timeout(TIMEOUT / 300).build().unwrap();
    assert!(wait(wait(adopter.lock("warm").acquire()).unwrap().release()));
    let lease = wait(giver.lock("r").acquire()).unwrap();
    wait_for_token(&servers, "r", lease.token());
    let text = detach(&lease);
    let winner = format!("{};winner", "0".repeat(40));
    for node in [0, 1] {
        servers.command(node, &["SET", "r", &winner]);
    }
    servers.ask(json!({ "freeze": 2 }));
    assert_eq!(adopt(&adopter, &text).unwrap_err().code(), ErrorCode::LeaseLost);
    servers.ask(json!({ "thaw": 2 }));
    wait_until("the third node has no key", || stored(&servers, "r")[2].is_none());
}

#[test]
fn adopter_that_detaches_leaves_nothing_of_its_giver() {
    let servers = Servers::start(3);
    let proxy = servers.proxy(2);
    let urls = [&servers.urls[0], &servers.urls[1], &proxy.url];
    let client = Client::builder().nodes(urls).ttl(LONG).build().unwrap();
    let lease = wait(client.lock("r").acquire()).unwrap();
    wait_for_token(&servers, "r", lease.token());
    proxy.mode("refuse");
    // The third node is unreachable, so it keeps the token of the first lease.
    let second = adopt(&client, &detach(&lease)).unwrap();
    let third = adopt(&client, &detach(&second)).unwrap();
    assert!(wait(third.release()));
    assert_eq!(stored(&servers, "r"), [None, None, Some(lease.token().to_owned())]);
    proxy.mode("pass");
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn lease_of_a_bare_majority_is_adopted_and_repaired() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let lease = wait(client.lock(["r", "s"]).acquire()).unwrap();
    wait_for_token(&servers, "s", lease.token());
    let text = detach(&lease);
    servers.command(1, &["DEL", "s"]);
    let adopted = adopt(&client, &text).unwrap();
    // On node 1, a repair replaces the remaining key of the old lease.
    for key in ["r", "s"] {
        wait_for_token(&servers, key, adopted.token());
    }
    assert!(wait(adopted.release()));
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn text_that_nobody_has_releases_the_lock() {
    let servers = Servers::start(3);
    let client = client(&servers);
    let lease = wait(client.lock("r").acquire()).unwrap();
    drop(wait(lease.detach(LONG)).unwrap());
    wait_until("no key is left", || servers.are_empty());

    let lease = wait(client.lock("r").acquire()).unwrap();
    let detaching = lease.detach(LONG);
    wait_until("it is detached", || lease.is_detached());
    drop(detaching);
    wait_until("no key is left", || servers.are_empty());
}

#[test]
fn detached_lease_outlives_its_handle_and_its_client() {
    let servers = Servers::start(3);
    let giver = client(&servers);
    let adopter = client(&servers);
    let lease = wait(giver.lock("r").acquire()).unwrap();
    wait_for_token(&servers, "r", lease.token());
    let lost = lease.lost();
    let text = detach(&lease);
    assert!(wait(lost).is_none(), "it counts as given up, not as lost");
    let token = lease.token().to_owned();
    drop(lease);
    let stats = giver.stats();
    assert_eq!((stats.detached, stats.losses, stats.held), (1, 0, 0));
    wait(giver.close());
    wait_for_token(&servers, "r", &token);
    assert!(adopt(&adopter, &text).unwrap().is_valid());
    assert_eq!(adopter.stats().wins, 1);
}

#[test]
fn failed_detach_leaves_the_lease_valid() {
    let servers = Servers::start(3);
    let client = Client::builder()
        .nodes(&servers.urls)
        .ttl(LONG)
        .connect_timeout(Duration::from_millis(300))
        .build()
        .unwrap();
    let lease = wait(client.lock("r").acquire()).unwrap();
    wait_for_token(&servers, "r", lease.token());
    for node in [0, 1] {
        servers.ask(json!({ "freeze": node }));
    }
    let error = wait(lease.detach(LONG)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoQuorum, "{error}");
    assert!(lease.is_valid() && !lease.is_detached());
    for node in [0, 1] {
        servers.ask(json!({ "thaw": node }));
    }
    wait_until("it can be detached", || wait(lease.detach(LONG)).is_ok());
}

#[test]
fn cancelled_detach_leaves_the_lease_valid_and_renewed() {
    let servers = Servers::start(3);
    let proxies = [0, 1, 2].map(|server| servers.proxy(server));
    let urls = proxies.each_ref().map(|proxy| &proxy.url);
    let client = Client::builder().nodes(urls).ttl(LONG).node_timeout(TIMEOUT).build().unwrap();
    let lease = wait(client.lock("r").acquire()).unwrap();
    proxies.iter().for_each(|proxy| proxy.delay(0.2));
    drop(lease.detach(LONG));
    proxies.iter().for_each(|proxy| proxy.delay(0.0));
    wait(lease.extend(None)).unwrap();
    assert!(lease.is_valid() && !lease.is_detached());
    assert!(wait(lease.release()));
}

#[test]
fn adopter_does_not_count_a_node_that_may_get_a_late_request_of_the_giver() {
    let servers = Servers::start(3);
    let builder = Client::builder().nodes(&servers.urls).ttl(LONG);
    let giver = builder.node_timeout(Duration::from_millis(200)).build().unwrap();
    assert!(wait(wait(giver.lock("warm").acquire()).unwrap().release()));
    wait_until("no key is left", || servers.are_empty());
    servers.ask(json!({ "freeze": 2 }));
    let lease = wait(giver.lock("r").acquire()).unwrap();
    let text = detach(&lease);
    servers.ask(json!({ "thaw": 2 }));
    // The giver's ACQUIRE arrives at node 2 late, and the giver undoes it.
    let adopter = client(&servers);
    let adopted = adopt(&adopter, &text).unwrap();
    wait_for_token(&servers, "r", adopted.token());

    // Node 2 does not count, because it may get a late request of the giver. One of the other two nodes has lost the
    // key.
    let lease = wait(giver.lock("s").acquire()).unwrap();
    servers.ask(json!({ "freeze": 2 }));
    let other = wait(giver.lock("t").acquire()).unwrap();
    let text = detach(&other);
    servers.ask(json!({ "thaw": 2 }));
    servers.command(1, &["DEL", "t"]);
    let error = wait(adopter.adopt(&text).wait(NOW).acquire()).unwrap_err();
    assert!(error.to_string().contains("had not answered all requests"), "{error}");
    assert!(wait(lease.release()));
}

#[test]
fn mistakes_are_reported_before_anything_is_sent() {
    let client = Client::builder().nodes(["memory://adoption-1", "memory://adoption-2"]);
    let client = client.key_prefix("p:").build().unwrap();
    let lease = wait(client.lock("r").acquire()).unwrap();
    for within in [NOW, Duration::from_millis(1), Duration::from_secs(86_401)] {
        let error = wait(lease.detach(within)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Config);
        assert!(error.message().contains("within must be"), "{error}");
    }
    let text = detach(&lease);
    let urls =
        [["memory://adoption-2", "memory://adoption-1"], ["memory://adoption-1", "memory://b"]];
    let build = |urls: [&str; 2], prefix: &str| {
        Client::builder().nodes(urls).key_prefix(prefix).build().unwrap()
    };
    let refused = [
        (build(urls[1], "p:"), text.clone(), "on other nodes"),
        (build(urls[0], ""), text.clone(), "another key prefix"),
        (build(urls[0], "p:"), text.replace("-1:", "-2:"), "another version"),
        (build(urls[0], "p:"), text[..text.len() - 1].to_owned(), "damaged"),
        (build(urls[0], "p:"), lease.token().to_owned(), "no lease text"),
        (build(urls[0], "p:"), String::new(), "no lease text"),
    ];
    for (client, text, reason) in refused {
        let error = adopt(&client, &text).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Config);
        assert!(error.message().contains(reason), "{error}");
        let checked = client.adopt(&text).ttl(NOW).checked().unwrap_err();
        assert_eq!(checked.message(), error.message(), "the text matters more than the options");
        assert!(text.is_empty() || !format!("{error:?}").contains(&text));
    }
    // An adopter that lists the nodes in another order can use the text.
    let adoption = build(urls[0], "p:").adopt(&text).ttl(LONG).auto_extend(false);
    assert!(!format!("{adoption:?}").contains(lease.token()));
    let adopted = wait(adoption.acquire()).unwrap();
    assert!(adopted.remaining() > LONG / 2);
    let error = client.adopt(&text).ttl(NOW).checked().unwrap_err();
    assert!(error.message().contains("ttl"), "{error}");
}

#[test]
fn kept_lease_is_not_adopted_and_a_detached_one_not_resumed() {
    let client = Client::builder().nodes(["memory://adoption-kept"]).build().unwrap();
    let lease = wait(client.lock("r").acquire()).unwrap();
    let (_kept, text) = wait(client.keep(lease)).unwrap();
    let error = adopt(&client, &text).unwrap_err();
    assert!(error.message().contains("quorlock acquire has printed"), "{error}");
    let other = wait(client.lock("other").acquire()).unwrap();
    let text = detach(&other);
    let error = wait(client.resume(&text)).unwrap_err();
    assert!(error.message().contains("adopt it instead"), "{error}");
    assert!(wait(adopt(&client, &text).unwrap().release()));
}

/// After a restart, a node counts again once the restart guard has passed, also for clients with a shorter guard.
#[test]
fn resumed_lease_is_not_extended_beyond_the_restart_guard() {
    let builder = || Client::builder().nodes(["memory://adoption-guard"]);
    let lease = wait(builder().build().unwrap().lock("r").ttl(LONG).acquire()).unwrap();
    let (_kept, text) = wait(builder().build().unwrap().keep(lease)).unwrap();
    let guard = LONG / 2;
    let client = builder().ttl(guard).restart_guard(guard).build().unwrap();
    let resumed = wait(client.resume(&text)).unwrap();
    let error = wait(resumed.extend(None)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Config);
    assert!(error.message().contains("restart_guard"), "{error}");
    assert!(wait(resumed.extend(Some(guard))).is_ok() && wait(resumed.release()));
}

#[test]
fn nodes_that_have_answered_vote_if_servers_report_no_identity() {
    let servers = Servers::start(3);
    for server in 0..3 {
        servers.command(server, &["ACL", "SETUSER", "default", "-info"]);
    }
    // `node_timeout` is as long as the time limit of the test. So if `detach` waited for a node, it would exceed its
    // shorter limit below.
    let client = client(&servers);
    let lease = wait(client.lock("r").acquire()).unwrap();
    wait_for_token(&servers, "r", lease.token());
    let detached = lease.detach(LONG).block_for(TIMEOUT / 4);
    assert!(detached.is_some(), "all nodes have answered, but it waits for one");
}

#[test]
fn lease_that_other_processes_may_have_cannot_be_handed_over() {
    let client = Client::builder().nodes(["memory://adoption-shared"]).build().unwrap();
    let lease = wait(client.lock("r").acquire()).unwrap();
    let (kept, text) = wait(client.keep(lease)).unwrap();
    let resumed = wait(client.resume(&text)).unwrap();
    for lease in [&kept, &resumed] {
        for error in [
            wait(lease.detach(LONG)).unwrap_err(),
            wait(lease.hand_over("pod-2", LONG)).unwrap_err(),
        ] {
            assert_eq!(error.code(), ErrorCode::Config);
            assert!(error.message().contains("other processes may have it"), "{error}");
        }
        assert!(lease.is_valid());
    }
}
