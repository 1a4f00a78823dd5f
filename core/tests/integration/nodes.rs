//! The doctor, and the restart guard.

use crate::servers::Servers;
use crate::{wait, wait_until};
use quorlock::{Client, ErrorCode, Level, NodeOutcome};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;
/// The restart guard, which is also the ttl.
const GUARD: Duration = Duration::from_secs(5);

#[test]
fn the_doctor_reports_misconfigured_nodes() {
    let servers = Servers::start(3);
    servers.command(1, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let client = Client::builder().nodes(&servers.urls).build().unwrap();
    let diagnosis = wait(client.doctor()).unwrap();
    assert_eq!(diagnosis.level, Level::Warning);
    assert!(diagnosis.findings.iter().all(|finding| finding.level == Level::Ok));
    let level = |node: usize, check: &str| {
        let mut findings = diagnosis.nodes[node].findings.iter();
        findings.find(|finding| finding.check == check).map(|finding| finding.level)
    };
    assert_eq!(level(0, "eviction"), Some(Level::Ok));
    assert_eq!(level(1, "eviction"), Some(Level::Warning));
    assert_eq!(level(1, "persistence"), Some(Level::Warning));
    assert!(diagnosis.to_string().contains("eviction: maxmemory-policy is allkeys-lru"));
    let json: serde_json::Value = serde_json::from_str(&diagnosis.to_json()).unwrap();
    assert_eq!(json["nodes"][1]["maxmemory_policy"], "allkeys-lru");
    assert_eq!(json["level"], "warning");
    wait(client.close());
    assert_eq!(wait(client.doctor()).unwrap_err().code(), ErrorCode::Closed);
}

#[test]
fn a_guarded_node_does_not_count_and_appears_in_stats() {
    let servers = Servers::start(1);
    let builder = Client::builder().nodes(&servers.urls).ttl(GUARD).restart_guard(GUARD);
    let builder = builder.node_timeout(GUARD / 4);
    let client = builder.clone().build().unwrap();
    let error = wait(client.lock("r").wait(NOW).acquire()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoQuorum);
    assert_eq!(error.nodes()[0].outcome, NodeOutcome::Guarded);
    assert_eq!(client.stats().nodes[0].outcomes["guarded"], 1);
    assert!(client.stats().to_json().contains("\"guarded\":1"));
    wait_until("the node counts", || wait(client.lock("r").wait(NOW).acquire()).is_ok());

    let lease = wait(client.lock("r").acquire()).unwrap();
    let longer = GUARD + Duration::from_millis(1);
    assert_eq!(wait(lease.extend(Some(longer))).unwrap_err().code(), ErrorCode::Config);
    let locked = wait(client.lock("s").ttl(longer).acquire());
    assert_eq!(locked.unwrap_err().code(), ErrorCode::Config);
    assert_eq!(builder.ttl(longer).build().unwrap_err().code(), ErrorCode::Config);
    assert!(lease.is_valid());
}

#[test]
fn memory_nodes_count_at_once_under_a_guard() {
    let nodes = ["memory://guarded-1", "memory://guarded-2", "memory://guarded-3"];
    let guard = Duration::from_secs(3600);
    let client = Client::builder().nodes(nodes).restart_guard(guard).build().unwrap();
    assert!(wait(wait(client.lock("r").acquire()).unwrap().release()));
}
