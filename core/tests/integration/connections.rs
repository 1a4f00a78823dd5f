//! Every kind of connection on real servers; `tests/vectors/README.md` describes the cases.

use crate::servers::Servers;
use crate::vectors::{expect, read, texts};
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, ClientBuilder, ErrorCode};
use serde_json::Value;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Longer than a test, so that a waiter that gets the lock must have been notified.
const NEVER: Duration = Duration::from_secs(600);
const NOW: Duration = Duration::ZERO;

/// The largest difference, in microseconds, by which the fences of two clients may be out of order after all nodes have
/// lost their counters.
const CLOCK_ERROR: u64 = 4_000_000;

/// The servers of the vectors, started on first use.
struct Setups {
    commands: Value,
    started: HashMap<String, Result<Servers, String>>,
}

impl Setups {
    /// Returns the URLs of a case, and the names of the servers in them. Returns the reason as an error if
    /// this machine cannot run one of the servers.
    fn nodes(&mut self, case: &Value) -> Result<(Vec<String>, Vec<String>), String> {
        let mut urls = Vec::new();
        let mut names = Vec::new();
        for url in texts(case, "nodes") {
            let mut parts = url.split('{');
            let mut filled = parts.next().unwrap().to_owned();
            for part in parts {
                let (place, rest) = part.split_once('}').unwrap();
                let (name, field) = place.split_once('.').unwrap();
                match &self.start(name)?.all[0][field] {
                    Value::String(text) => filled += text,
                    value => filled += &value.to_string(),
                }
                filled += rest;
                names.push(name.to_owned());
            }
            urls.push(filled);
        }
        Ok((urls, names))
    }

    fn start(&mut self, name: &str) -> Result<&Servers, String> {
        let command = &self.commands[name];
        let start = || Servers::try_start(command.clone());
        let started = self.started.entry(name.to_owned()).or_insert_with(start);
        started.as_ref().map_err(Clone::clone)
    }
}

#[test]
fn locks_work_over_every_kind_of_connection() {
    let mut vectors = read("connections");
    let commands = vectors["servers"].take();
    let mut setups = Setups { commands, started: HashMap::new() };
    for case in vectors["cases"].as_array().unwrap() {
        let (urls, names) = match setups.nodes(case) {
            Ok(nodes) => nodes,
            Err(reason) => {
                println!("skipped {}: {reason}", case["what"]);
                continue;
            }
        };
        println!("{}", case["what"]);
        let builder = Client::builder().nodes(urls);
        if case["error"].is_null() {
            let flush = || {
                for name in &names {
                    setups.started[name].as_ref().unwrap().ask(serde_json::json!({"flush": true}));
                }
            };
            use_lock(&builder, case, flush);
            continue;
        }
        // For a silent server the connect timeout must apply. All other servers must be rejected immediately.
        let silent = case["silent"] == true;
        let builder = if silent { builder } else { builder.connect_timeout(TIMEOUT) };
        let began = Instant::now();
        let client = builder.build();
        let locked = client.and_then(|client| wait(client.lock("r").wait(NOW).acquire()));
        assert!(expect(case, locked).is_none());
        assert!(began.elapsed() < TIMEOUT / 2, "the error was not reported at once");
    }
}

/// Uses every operation of a lock. `flush` deletes all keys on the nodes.
fn use_lock(nodes: &ClientBuilder, case: &Value, flush: impl Fn()) {
    let resource = case["what"].as_str().unwrap();
    let builder = nodes.clone().ttl(NEVER).wait(NEVER).retry_delay(NEVER, NEVER);
    let holder = builder.clone().build().unwrap();
    let other = builder.build().unwrap();
    let lease = wait(holder.lock(resource).acquire()).unwrap();
    assert!(wait(other.lock(resource).locked()).unwrap());
    let refused = wait(other.lock(resource).wait(NOW).acquire()).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Timeout, "{refused}");
    let diagnosis = wait(holder.doctor()).unwrap();
    let shown = format!("{holder:?} {lease:?} {refused} {refused:?} {diagnosis}");
    assert!(texts(case, "never").all(|secret| !shown.contains(secret)), "{shown}");
    wait(lease.extend(Some(2 * NEVER))).unwrap();
    assert!(lease.remaining() > NEVER);

    let tried = held(&other);
    let waiting = other.lock(resource).acquire();
    wait_until("the other client waits", || held(&other) > tried);
    assert!(wait(lease.release()));
    let following = wait(waiting).unwrap();
    assert!(following.fence() > lease.fence());

    flush();
    let lost = wait(following.extend(None)).unwrap_err();
    assert_eq!(lost.code(), ErrorCode::LeaseLost, "{lost}");
    assert!(!following.is_valid());
    let last = wait(holder.lock(resource).acquire()).unwrap();
    // The nodes have lost their counters, and each client estimates the time on the nodes by itself. Therefore, the
    // fences may be out of order by the error of these estimates.
    assert!(last.fence() + CLOCK_ERROR > following.fence());
    assert!(wait(last.release()));
    assert!(!wait(other.lock(resource).locked()).unwrap());
}

/// Returns the number of times that nodes refused this client a lock because it was held.
fn held(client: &Client) -> u64 {
    client.stats().nodes.iter().filter_map(|node| node.outcomes.get("held")).sum()
}
