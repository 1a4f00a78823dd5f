//! `Client::list` on in-memory nodes. `tests/cli/test_list.py` has servers and clusters.

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
    let listed = client.list("", 10).await.expect("memory nodes answer");
    assert_eq!(
        (listed.resources, listed.is_cut),
        (names(["orders:1", "orders:2", "users:1"]), false)
    );
    let listed = client.list("orders:", 10).await.expect("memory nodes answer");
    assert_eq!(listed.resources, names(["orders:1", "orders:2"]));
    let listed = client.list("", 2).await.expect("memory nodes answer");
    assert_eq!((listed.resources, listed.is_cut), (names(["orders:1", "orders:2"]), true));
    let other = self::client("other:").list("", 10).await.expect("memory nodes answer");
    assert_eq!(other.resources, names([]));

    assert!(leases.remove(0).release().await);
    let listed = client.list("", 10).await.expect("memory nodes answer");
    assert_eq!(listed.resources, names(["orders:2", "users:1"]));
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}
