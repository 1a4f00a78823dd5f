//! Secrets in URLs are never shown; resources may have any name.

use crate::servers::Servers;
use crate::vectors::read;
use crate::{TIMEOUT, wait};
use quorlock::{Client, ErrorCode};
use serde_json::{Value, json};
use std::fmt::Debug;
use std::time::Duration;

const MARK: &str = "MARK";

/// Checks that [`MARK`] is not shown. Ignores case, because hosts are shown in lower case.
fn assert_hidden(shown: impl Debug) {
    let text = format!("{shown:?} {shown:#?}");
    assert!(!text.to_uppercase().contains(MARK), "{text}");
}

fn texts(table: &Value) -> Vec<String> {
    serde_json::from_value(table.clone()).unwrap()
}

fn urls() -> Vec<String> {
    let parts = read("secrets");
    let [schemes, mut logins, places] =
        ["schemes", "logins", "places"].map(|field| texts(&parts[field]));
    logins.push(String::new());
    let mut urls = Vec::new();
    for scheme in &schemes {
        for login in &logins {
            urls.extend(places.iter().map(|place| format!("{scheme}://{login}{place}")));
        }
    }
    urls.retain(|url| url.contains(MARK));
    urls
}

#[test]
fn no_url_shows_its_secrets() {
    let mut good = 0;
    let mut bad = 0;
    for url in urls() {
        for nodes in [vec![&*url], vec!["redis://127.0.0.1:2", &url], vec![&*url, &url]] {
            let builder = Client::builder().nodes(nodes);
            assert_hidden(&builder);
            match builder.build() {
                Ok(client) => {
                    assert_hidden((&client, client.stats(), client.lock("r")));
                    good += 1;
                }
                Err(error) => {
                    assert_eq!(error.code(), ErrorCode::Config);
                    assert_hidden((error.to_string(), error));
                    bad += 1;
                }
            }
        }
    }
    assert!(good > 100 && bad > 1000, "{good}, {bad}");
}

#[test]
fn nodes_that_refuse_show_no_secrets() {
    let servers = Servers::start_with(json!({ "start": 1, "password": "right" }));
    let login = "MARK:MARK%2FMARK%40MARK%3FMARK%25MARK";
    for place in [format!("127.0.0.1:{}", servers.ports[0]), "127.0.0.1:1".to_owned()] {
        let builder = Client::builder().nodes([format!("redis://{login}@{place}")]);
        let client = builder.connect_timeout(Duration::from_millis(500)).build().unwrap();
        let lock = client.lock("r").wait(Duration::ZERO);
        let error = wait(lock.acquire()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NoQuorum);
        assert_hidden((error.to_string(), &error, error.nodes()));
        assert_hidden(wait(lock.locked()).unwrap_err());
        let diagnosis = wait(client.doctor()).unwrap();
        assert_hidden((diagnosis.to_string(), diagnosis.to_json(), &diagnosis));
        assert_hidden((&client, &lock, client.stats()));
    }
}

#[test]
fn each_resource_name_is_a_key_of_its_own() {
    let servers = Servers::start(1);
    let client = |wait| Client::builder().nodes(&servers.urls).wait(wait).build().unwrap();
    let first = client(TIMEOUT);
    let second = client(Duration::ZERO);
    servers.command(0, &["SET", "other", "kept"]);
    let mut names = texts(&read("names"));
    names.push("x".repeat(8_192));
    for name in &names {
        let lease = wait(first.lock(name).acquire()).unwrap();
        assert_eq!(lease.resources(), std::slice::from_ref(name));
        assert_eq!(servers.command(0, &["GET", name]), lease.token());
        let error = wait(second.lock(name).acquire()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Timeout);
        assert!(wait(lease.release()));
        assert_eq!(servers.command(0, &["EXISTS", name]), 0);
    }
    assert_eq!(servers.command(0, &["GET", "other"]), "kept");
}
