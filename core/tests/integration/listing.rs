//! `Client::list` on in-memory nodes. `tests/cli/test_list.py` tests it on servers and clusters.

use quorlock::Client;

fn client(prefix: &str) -> Client {
    let nodes = ["memory://listing-1", "memory://listing-2", "memory://listing-3"];
    Client::builder().nodes(nodes).key_prefix(prefix).build().expect("valid")
}

#[tokio::test]
async fn held_resources_are_listed_by_prefix() {
    let client = client("app:");
    let mut leases = Vec::new();
    for name in ["orders:1", "orders:2", "users:1"] {
        leases.push(client.lock(name).acquire().await.expect("free"));
    }
    let list = |prefix: &'static str, limit| client.list(prefix, limit);
    let all = names(["orders:1", "orders:2", "users:1"]);
    assert_eq!(list("", 10).await.expect("all answer"), (all, false));
    let orders = names(["orders:1", "orders:2"]);
    assert_eq!(list("orders:", 10).await.expect("all answer"), (orders.clone(), false));
    assert_eq!(list("", 2).await.expect("all answer"), (orders, true));
    let other = self::client("other:").list("", 10).await.expect("all answer");
    assert_eq!(other, (names([]), false));

    assert!(leases.remove(0).release().await);
    let rest = names(["orders:2", "users:1"]);
    assert_eq!(list("", 10).await.expect("all answer"), (rest, false));
}

#[tokio::test]
async fn permits_do_not_count_towards_the_limit() {
    let client = client("permits:");
    let permits = client.semaphore("s", 9).permits(9).acquire().await.expect("free");
    let lease = client.lock("r").acquire().await.expect("free");
    assert_eq!(client.list("", 1).await.expect("all answer"), (names(["r"]), false));
    assert!(lease.release().await && permits.release().await);
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}
