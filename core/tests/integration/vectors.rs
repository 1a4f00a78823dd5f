//! The test vectors that all languages run; `tests/vectors/README.md` describes them.

use crate::servers::Servers;
use crate::{wait, wait_until};
use quorlock::{Client, ClientBuilder, Dialect, Error, ErrorCode, Lease, Lock, Resources, Result};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{iter, thread};

/// Reads a file of vectors.
pub fn read(name: &str) -> Value {
    let path = format!("{}/../tests/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn load(name: &str) -> Vec<Value> {
    serde_json::from_value(read(name)).unwrap()
}

fn milliseconds(value: &Value) -> Duration {
    Duration::from_secs_f64(value.as_f64().unwrap() / 1e3)
}

fn set(builder: ClientBuilder, option: &str, value: &Value) -> ClientBuilder {
    match option {
        "ttl" => builder.ttl(milliseconds(value)),
        "wait" if value.is_null() => builder.wait_forever(),
        "wait" => builder.wait(milliseconds(value)),
        "auto_extend" => builder.auto_extend(value.as_bool().unwrap()),
        "heartbeat_timeout" => builder.heartbeat_timeout(milliseconds(value)),
        "max_hold" if value.is_null() => builder.unlimited_hold(),
        "max_hold" => builder.max_hold(milliseconds(value)),
        "node_timeout" => builder.node_timeout(milliseconds(value)),
        "connect_timeout" => builder.connect_timeout(milliseconds(value)),
        "drift_factor" if value.is_object() => builder.drift_factor(f64::NAN),
        "drift_factor" => builder.drift_factor(value.as_f64().unwrap()),
        "retry_delay" => builder.retry_delay(milliseconds(&value[0]), milliseconds(&value[1])),
        "restart_guard" => builder.restart_guard(milliseconds(value)),
        "key_prefix" => builder.key_prefix(value.as_str().unwrap()),
        "holder" => builder.holder(value.as_str().unwrap()),
        "keep" => builder.keep(milliseconds(value)),
        _ => panic!("unknown option {option}"),
    }
}

fn set_in_lock(lock: Lock, option: &str, value: &Value) -> Lock {
    match option {
        "ttl" => lock.ttl(milliseconds(value)),
        "wait" => lock.wait(milliseconds(value)),
        "auto_extend" => lock.auto_extend(value.as_bool().unwrap()),
        "heartbeat_timeout" => lock.heartbeat_timeout(milliseconds(value)),
        "max_hold" if value.is_null() => lock.unlimited_hold(),
        "max_hold" => lock.max_hold(milliseconds(value)),
        "holder" => lock.holder(value.as_str().unwrap()),
        "keep" => lock.keep(milliseconds(value)),
        "mode" if value == "shared" => lock.shared(),
        "mode" if value == "exclusive" => lock,
        "mode" => {
            let modes = value.as_object().unwrap().iter();
            let shared = modes.filter(|(_, mode)| *mode == "shared");
            shared.fold(lock, |lock, (resource, _)| lock.shared_for(resource))
        }
        _ => panic!("unknown option {option} of a lock"),
    }
}

pub fn texts<'a>(row: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    row[field].as_array().into_iter().flatten().map(|text| text.as_str().unwrap())
}

/// Checks that the result is as the row expects. Returns the value if it is a success.
pub fn expect<T>(row: &Value, result: Result<T>) -> Option<T> {
    let error: Error = match (result, row["error"].as_str()) {
        (Ok(value), None) => return Some(value),
        (Err(error), Some(code)) if error.code().as_str() == code => error,
        (Ok(_), Some(_)) => panic!("{row}: no error"),
        (Err(error), _) => panic!("{row}: {error}"),
    };
    let shown = format!("{error} {error:?}");
    for part in texts(row, "contains") {
        let part = part.replace("{name}", row["option"].as_str().unwrap_or_default());
        assert!(error.to_string().contains(&part), "{error} lacks {part}");
    }
    for secret in texts(row, "never") {
        assert!(!shown.contains(secret), "{shown}");
    }
    if !row["about"].is_null() {
        assert_eq!(error.resources(), texts(row, "about").collect::<Vec<_>>(), "{row}");
    }
    if let Some(holder) = row.get("holder") {
        assert_eq!(json!(error.holder()), *holder, "{error}");
    }
    if let Some(reason) = row.get("reason") {
        assert_eq!(json!(error.reason()), *reason, "{error}");
    }
    if let Some(outcomes) = row["outcomes"].as_array() {
        assert_eq!(error.nodes().len(), outcomes.len());
        for (node, outcome) in error.nodes().iter().zip(outcomes) {
            assert!(outcome.is_null() || outcome == node.outcome.as_str(), "{error}");
        }
    }
    None
}

#[test]
fn errors() {
    let named: Vec<_> =
        ErrorCode::ALL.map(|code| json!({ "code": code.as_str(), "class": code.class() })).into();
    assert_eq!(load("errors"), named);
}

#[test]
fn options() {
    for row in load("options").iter().filter(|row| row["typed"] != true) {
        let option = row["option"].as_str().unwrap();
        let value = &row["value"];
        let builder = Client::builder().nodes(["memory://options"]);
        match row["in"].as_str() {
            Some("client") => {
                expect(row, set(builder, option, value).build());
            }
            Some("lock") => {
                let lock = builder.build().unwrap().lock("r");
                expect(row, set_in_lock(lock, option, value).checked());
            }
            place => {
                let lease = wait(builder.build().unwrap().lock(row.to_string()).acquire()).unwrap();
                match place {
                    Some("release") => {
                        expect(row, lease.release_and_keep(milliseconds(value)).map(wait));
                    }
                    _ => drop(expect(row, wait(lease.extend(Some(milliseconds(value)))))),
                }
            }
        }
    }
}

#[test]
fn nodes() {
    for row in load("nodes").iter().filter(|row| row["typed"] != true) {
        let client = expect(row, Client::builder().nodes(texts(row, "nodes")).build());
        let shown = format!("{client:?}");
        assert!(texts(row, "never").all(|secret| !shown.contains(secret)), "{shown}");
    }
}

#[test]
fn resources() {
    let client = Client::builder().nodes(["memory://resources"]).build().unwrap();
    for row in load("resources").iter().filter(|row| row["typed"] != true) {
        let given: Vec<_> = match (row["count"].as_u64(), row["length"].as_u64()) {
            (Some(count), _) => (0..count).map(|number| format!("r{number}")).collect(),
            (_, Some(length)) => vec!["x".repeat(length as usize)],
            _ => texts(row, "given").map(str::to_owned).collect(),
        };
        let Some(lock) = expect(row, client.lock(given.clone()).checked()) else { continue };
        let lease = wait(lock.acquire()).unwrap();
        assert_eq!(lease.resources(), given);
        assert_eq!(lease.fences().map(|(resource, _)| resource).collect::<Vec<_>>(), given);
        assert!(wait(lock.locked()).unwrap());
        assert!(wait(lease.release()));
        assert!(!wait(lock.locked()).unwrap());
    }
}

fn number(value: &Value) -> u32 {
    value.as_u64().unwrap().try_into().unwrap()
}

/// Returns the resources of a step, given as one name or a list.
fn named(resource: &Value) -> Resources {
    match resource.as_array() {
        Some(several) => several.iter().map(|one| one.as_str().unwrap()).collect::<Vec<_>>().into(),
        None => resource.as_str().unwrap().into(),
    }
}

/// Checks the modes of the lease, if the step has any.
fn check_modes(step: &Value, lease: &Lease) {
    if let Some(expected) = step.get("modes") {
        let modes: HashMap<_, _> =
            lease.modes().map(|(resource, mode)| (resource, mode.as_str())).collect();
        assert_eq!(json!(modes), *expected, "{step}");
        let kinds: HashSet<_> = modes.values().collect();
        assert_eq!(lease.mode().is_some(), kinds.len() == 1, "{step}");
    }
}

#[test]
fn scenarios() {
    let stories = load("scenarios");
    let left = Mutex::new(stories.iter().enumerate());
    let next = || left.lock().unwrap().next();
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for (number, story) in iter::from_fn(next) {
                    // A failure names its thread.
                    let named = thread::Builder::new().name(story["name"].to_string());
                    let run = named.spawn_scoped(scope, move || scenario(number, story));
                    run.unwrap().join().unwrap();
                }
            });
        }
    });
}

fn scenario(number: usize, story: &Value) {
    let password = &story["password"];
    let started = Servers::start_with(json!({ "start": story["servers"], "password": password }));
    let user = match story["url_password"].as_str() {
        Some(password) if !password.is_empty() => format!(":{password}@"),
        _ => String::new(),
    };
    let url = |port| format!("redis://{user}127.0.0.1:{port}");
    play(story, &started.ports.iter().map(url).collect::<Vec<_>>(), Some(&started));
    if story["memory"] == true {
        let url = |node| format!("memory://scenario-{number}-{node}");
        let urls: Vec<_> = (0..story["servers"].as_u64().unwrap()).map(url).collect();
        play(story, &urls, None);
    }
}

/// Plays a story. Without `servers`, skips the steps that look at what a server stores.
fn play(story: &Value, urls: &[String], servers: Option<&Servers>) {
    let open = |by: &Value| {
        let nodes: Vec<_> = match by["nodes"].as_array() {
            Some(nodes) => nodes.iter().map(|node| node.as_u64().unwrap() as usize).collect(),
            None => (0..urls.len()).collect(),
        };
        let options = [&story["options"], by].map(|options| options.as_object().into_iter());
        let options = options.into_iter().flatten().flatten().filter(|(name, _)| *name != "nodes");
        let builder = Client::builder().nodes(nodes.into_iter().map(|node| &urls[node]));
        options.fold(builder, |builder, (name, value)| set(builder, name, value)).build().unwrap()
    };
    let client = open(&Value::Null);
    let mut others = Vec::new();
    let mut leases: HashMap<String, Lease> = HashMap::new();
    let mut texts: HashMap<String, String> = HashMap::new();
    for step in story["steps"].as_array().unwrap() {
        let (verb, subject) = step
            .as_object()
            .unwrap()
            .iter()
            .find(|(name, _)| VERBS.contains(&name.as_str()))
            .unwrap_or_else(|| panic!("unknown step {step}"));
        let name = subject.as_str().unwrap_or_default();
        if servers.is_none() && ["command", "eventually", "stores"].contains(&verb.as_str()) {
            continue;
        }
        let ask = |command| servers.expect("the step is for servers").ask(command);
        let reply = |words: &Value| ask(json!({ "command": words }));
        match verb.as_str() {
            "acquire" => {
                let mut lock = client.lock(named(&step["resource"]));
                for (option, value) in step["options"].as_object().into_iter().flatten() {
                    lock = set_in_lock(lock, option, value);
                }
                if let Some(lease) = expect(step, wait(lock.acquire())) {
                    assert_eq!(lease.resources(), &*named(&step["resource"]));
                    if let Some(holder) = step.get("holder") {
                        assert_eq!(json!(lease.holder()), *holder, "{step}");
                    }
                    check_modes(step, &lease);
                    leases.insert(name.to_owned(), lease);
                }
            }
            "try_acquire" => {
                let lock = client.lock(named(&step["resource"]));
                if let Some(tried) = expect(step, wait(lock.try_acquire())) {
                    assert_eq!(json!(tried.is_some()), step["returns"], "{step}");
                    leases.extend(tried.map(|lease| (name.to_owned(), lease)));
                }
            }
            "permits" => {
                let limit = number(&step["limit"]);
                let count = step.get("count").map_or(1, number);
                let semaphore = client.semaphore(step["resource"].as_str().unwrap(), limit);
                let semaphore = semaphore.permits(count).wait(Duration::ZERO);
                if let Some(lease) = expect(step, wait(semaphore.acquire())) {
                    assert_eq!(lease.slots().len(), count as usize, "{step}");
                    leases.insert(name.to_owned(), lease);
                }
            }
            "slots" => {
                let of = |name: &Value| leases[name.as_str().unwrap()].slots();
                let mut slots: Vec<_> = subject.as_array().unwrap().iter().flat_map(of).collect();
                slots.sort_unstable();
                assert_eq!(json!(slots), step["are"], "{step}");
            }
            "free" => {
                let status = wait(client.semaphore(name, number(&step["limit"])).status());
                assert_eq!(json!(status.unwrap().free), step["is"], "{step}");
            }
            "release" => {
                let released = match &step["keep"] {
                    Value::Null => leases[name].release(),
                    keep => leases[name].release_and_keep(milliseconds(keep)).unwrap(),
                };
                assert_eq!(json!(wait(released)), step["returns"], "{step}");
            }
            "extend" => {
                let ttl = (!step["ttl"].is_null()).then(|| milliseconds(&step["ttl"]));
                expect(step, wait(leases[name].extend(ttl)));
            }
            "downgrade" => {
                expect(step, wait(leases[name].downgrade()));
                check_modes(step, &leases[name]);
            }
            "upgrade" => {
                let upgrade = leases[step["of"].as_str().unwrap()].try_upgrade();
                if let Some(upgraded) = expect(step, wait(upgrade)) {
                    assert_eq!(json!(upgraded.is_some()), step["returns"], "{step}");
                    if let Some(lease) = upgraded {
                        check_modes(step, &lease);
                        leases.insert(name.to_owned(), lease);
                    }
                }
            }
            "detach" => {
                let detaching = match &step["within"] {
                    Value::Null => leases[name].detach_by(Dialect::Rust, None),
                    within => leases[name].detach(milliseconds(within)),
                };
                if let Some(detached) = expect(step, wait(detaching)) {
                    texts.insert(name.to_owned(), detached.into_text());
                }
            }
            "adopt" => {
                let giver = step["text"].as_str().unwrap();
                let replace: Vec<_> = self::texts(step, "replace").collect();
                let text = match replace[..] {
                    [from, to] => texts[giver].replacen(from, to, 1),
                    _ => texts[giver].clone(),
                };
                let adopter = step.get("by").map_or_else(|| client.clone(), &open);
                let mut adoption = adopter.adopt(&text);
                for (option, value) in step["options"].as_object().into_iter().flatten() {
                    adoption = match option.as_str() {
                        "ttl" => adoption.ttl(milliseconds(value)),
                        "wait" => adoption.wait(milliseconds(value)),
                        "holder" => adoption.holder(value.as_str().unwrap()),
                        "keep" => adoption.keep(milliseconds(value)),
                        _ => panic!("unknown option {option} of an adoption"),
                    };
                }
                let mut row = step.clone();
                row["never"] = json!([&texts[giver][30..60]]);
                if let Some(lease) = expect(&row, wait(adoption.acquire())) {
                    assert_eq!(lease.resources(), leases[giver].resources());
                    if let Some(holder) = step.get("holder") {
                        assert_eq!(json!(lease.holder()), *holder, "{step}");
                    }
                    leases.insert(name.to_owned(), lease);
                }
                others.push(adopter);
            }
            "stores" => {
                let lease = &leases[step["lease"].as_str().unwrap()];
                let get = json!([subject, "GET", step["resource"]]);
                wait_until(&step.to_string(), || reply(&get) == lease.token());
            }
            "locked" => {
                let locked = expect(step, wait(client.lock(named(subject)).locked()));
                assert_eq!(json!(locked), step["returns"]);
            }
            "status" => {
                let status = wait(client.status(name)).unwrap();
                let seen = json!([status.state, status.holder]);
                assert_eq!(seen, json!([step["is"], step["holder"]]), "{step}");
            }
            "force_release" => {
                let nodes = wait(client.force_release_holder(name)).unwrap();
                let outcomes: Vec<_> = nodes.iter().map(|node| node.outcome.as_str()).collect();
                assert_eq!(json!(outcomes), step["outcomes"], "{step}");
            }
            "valid" => {
                assert_eq!(leases[name].is_valid(), step["is"]);
                assert_eq!(!leases[name].remaining().is_zero(), step["is"]);
            }
            "check" => {
                expect(step, leases[name].check());
            }
            "lost" => {
                let loss = wait(leases[name].lost()).unwrap_or_else(|| panic!("{step}: no loss"));
                let mut lost = step.clone();
                lost["error"] = json!("LEASE_LOST");
                expect::<()>(&lost, Err(loss));
                expect::<()>(&lost, Err(leases[name].loss().expect("the lease is lost")));
            }
            "not_lost" => {
                assert!(wait(leases[name].lost()).is_none(), "{step}");
                assert!(leases[name].loss().is_none(), "{step}");
            }
            "hold" => {
                let until = Instant::now() + milliseconds(&step["for"]);
                while Instant::now() < until {
                    assert!(leases[name].is_valid(), "{step}");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            "heartbeat" => {
                let until = Instant::now() + step.get("for").map_or(Duration::ZERO, milliseconds);
                while Instant::now() < until {
                    leases[name].heartbeat().unwrap_or_else(|error| panic!("{step}: {error}"));
                    std::thread::sleep(Duration::from_millis(5));
                }
                expect(step, leases[name].heartbeat());
            }
            "increasing" => {
                let mut last = HashMap::new();
                for name in subject.as_array().unwrap() {
                    for (resource, fence) in leases[name.as_str().unwrap()].fences() {
                        let before = last.insert(resource, fence);
                        assert!(before < Some(fence), "{step}: {before:?}, {fence}");
                    }
                }
            }
            "fence" => {
                let lease = &leases[name];
                if let Some(fence) = expect(step, lease.only_fence()) {
                    assert_eq!(lease.fence(), fence);
                    assert_eq!(
                        lease.fences().collect::<Vec<_>>(),
                        [(&*lease.resources()[0], fence)]
                    );
                }
            }
            "command" => assert_eq!(reply(subject), step["reply"], "{step}"),
            "eventually" => wait_until(&step.to_string(), || reply(subject) == step["reply"]),
            "close" => wait(client.close()),
            _ => drop(ask(step.clone())),
        }
    }
    others.into_iter().for_each(|client| wait(client.close()));
    wait(client.close());
}

const VERBS: [&str; 30] = [
    "heartbeat",
    "acquire",
    "try_acquire",
    "permits",
    "slots",
    "free",
    "release",
    "extend",
    "downgrade",
    "upgrade",
    "detach",
    "adopt",
    "stores",
    "locked",
    "status",
    "force_release",
    "valid",
    "check",
    "lost",
    "not_lost",
    "hold",
    "increasing",
    "fence",
    "command",
    "eventually",
    "close",
    "freeze",
    "thaw",
    "kill",
    "restart",
];
