//! The option `credentials`: a function returns the user and the password. The client calls it for each new connection.

use crate::servers::Servers;
use crate::{TIMEOUT, wait, wait_until};
use quorlock::{Client, ClientBuilder, Credentials, Error, ErrorCode, NodeOutcome};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The password that the servers accept at first.
const FIRST: &str = "f1rst-s3cret";
const SECOND: &str = "s3cond-s3cret";

fn users() -> serde_json::Value {
    json!({ "app": format!("on >{FIRST} ~* &* +@all") })
}

/// Starts the servers of a cluster or of a Sentinel deployment, and adds the user to each server.
fn start_group(command: serde_json::Value) -> Servers {
    let servers = Servers::start_with(command);
    for server in 0..servers.urls.len() {
        let password = format!(">{FIRST}");
        servers.command(server, &["ACL", "SETUSER", "app", "on", &password, "~*", "&*", "+@all"]);
    }
    servers
}

/// A store of passwords, as in a cloud.
#[derive(Clone)]
struct Vault(Arc<Mutex<(String, Vec<String>)>>);

impl Vault {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((FIRST.to_owned(), Vec::new()))))
    }

    fn rotate(&self, servers: &Servers) {
        self.0.lock().unwrap().0 = SECOND.to_owned();
        for server in 0..servers.urls.len() {
            let password = format!(">{SECOND}");
            servers.command(server, &["ACL", "SETUSER", "app", "resetpass", &password]);
            servers.command(server, &["CLIENT", "KILL", "USER", "app"]);
        }
    }

    /// The addresses for which the clients have requested credentials.
    fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().1.clone()
    }

    fn client(&self, urls: &[String]) -> Client {
        let vault = Arc::clone(&self.0);
        let credentials = move |address: &str| {
            let vault = Arc::clone(&vault);
            let address = address.to_owned();
            async move {
                // The answer takes a while, like that of a remote service.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let mut vault = vault.lock().unwrap();
                vault.1.push(address);
                Ok(Credentials::new("app", vault.0.clone()))
            }
        };
        builder(urls).credentials(credentials).build().unwrap()
    }
}

/// Returns a builder of clients whose waiters do not retry by themselves. Therefore, a waiter that gets the lock must
/// have been notified.
fn builder(urls: &[String]) -> ClientBuilder {
    let never = Duration::from_secs(600);
    Client::builder().nodes(urls).retry_delay(never, never).node_timeout(Duration::from_secs(5))
}

fn try_acquire(client: &Client) -> quorlock::Result<u64> {
    let lease = wait(client.lock("r").wait(Duration::ZERO).acquire())?;
    let fence = lease.fence();
    assert!(wait(lease.release()));
    Ok(fence)
}

/// Uses a lock with a waiter, rotates the password, and uses the lock again.
fn rotate_passwords(servers: &Servers, urls: &[String]) {
    let vault = Vault::new();
    let client = vault.client(urls);
    let other = vault.client(urls);
    let use_locks = || {
        let lease = wait(client.lock("r").acquire()).unwrap();
        let waiting = other.lock("r").wait(TIMEOUT).acquire();
        wait_until("the other client waits", || other.stats().waiting == 1);
        assert!(wait(lease.release()));
        assert!(wait(wait(waiting).unwrap().release()));
    };
    use_locks();
    let diagnosis = wait(client.doctor()).unwrap();
    assert!(diagnosis.nodes.iter().all(|node| node.reachable), "{diagnosis}");
    let asked = vault.asked();
    let addresses: Vec<_> = client.addresses().collect();
    assert!(
        addresses.iter().all(|address| asked.iter().any(|asked| asked == address)),
        "{asked:?}"
    );
    assert!(asked.iter().all(|asked| addresses.contains(&&**asked)), "{asked:?}");

    vault.rotate(servers);
    wait_until("the client connects with the new password", || try_acquire(&client).is_ok());
    use_locks();
    assert!(vault.asked().len() > asked.len());
    let shown = format!("{client:?} {:?} {diagnosis} {diagnosis:?}", client.stats());
    assert!(!shown.contains(FIRST) && !shown.contains(SECOND), "{shown}");
}

#[test]
fn each_connection_to_a_server_asks_for_credentials() {
    let servers = Servers::start_with(json!({ "start": 3, "users": users() }));
    rotate_passwords(&servers, &servers.urls);
}

#[test]
fn connections_to_a_master_behind_sentinels_ask_for_credentials() {
    let servers = start_group(json!({ "start_sentinel": true }));
    let seeds = servers.all[0]["seeds"].as_str().unwrap();
    rotate_passwords(&servers, &[format!("redis-sentinel://{seeds}/orders")]);
}

#[test]
fn connections_to_all_masters_of_a_cluster_ask_for_credentials() {
    let servers = start_group(json!({ "start_cluster": true }));
    let seeds = servers.all[0]["seeds"].as_str().unwrap();
    rotate_passwords(&servers, &[format!("redis-cluster://{seeds}")]);
}

/// Tries to acquire a lock on one server with these credentials, and returns the error. Checks that the doctor reports
/// the same problem.
fn fails<F>(ask: impl Fn(&str) -> F + Send + Sync + 'static, outcome: NodeOutcome) -> Error
where
    F: Future<Output = Result<Credentials, String>> + Send + 'static,
{
    fails_within(TIMEOUT, ask, outcome)
}

fn fails_within<F>(
    connect_timeout: Duration,
    ask: impl Fn(&str) -> F + Send + Sync + 'static,
    outcome: NodeOutcome,
) -> Error
where
    F: Future<Output = Result<Credentials, String>> + Send + 'static,
{
    let servers = Servers::start_with(json!({ "start": 1, "users": users() }));
    let builder = builder(&servers.urls).connect_timeout(connect_timeout);
    let client = builder.credentials(ask).build().unwrap();
    let error = try_acquire(&client).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoQuorum, "{error}");
    assert_eq!(error.nodes()[0].outcome, outcome, "{error}");
    assert!(error.nodes()[0].detail.contains("the option credentials"), "{error}");
    let diagnosis = wait(client.doctor()).unwrap().to_string();
    assert!(diagnosis.contains("the option credentials"), "{diagnosis}");
    assert!(!format!("{error} {error:?} {diagnosis}").contains("s3cret"), "{error}");
    error
}

#[test]
fn a_failure_of_the_function_is_named() {
    let ask = |_: &str| async { Err("the vault is closed".to_owned()) };
    let error = fails(ask, NodeOutcome::Unreachable).to_string();
    assert!(error.contains("failed: the vault is closed"), "{error}");
}

#[test]
fn a_function_that_is_too_slow_is_named() {
    let soon = Duration::from_millis(300);
    let hangs = |_: &str| std::future::pending();
    let error = fails_within(soon, hangs, NodeOutcome::Unreachable).to_string();
    assert!(error.contains("returned nothing within 300 ms"), "{error}");
}

#[test]
fn a_panic_of_the_function_is_named() {
    async fn panics() -> Result<Credentials, String> {
        panic!("expected");
    }
    let in_future = fails(|_: &str| panics(), NodeOutcome::Unreachable).to_string();
    assert!(in_future.contains("panicked"), "{in_future}");
    let ask = |address: &str| {
        assert!(address.is_empty(), "expected");
        panics()
    };
    let in_call = fails(ask, NodeOutcome::Unreachable).to_string();
    assert!(in_call.contains("panicked"), "{in_call}");
}

#[test]
fn a_login_that_the_server_rejects_is_named() {
    let ask = |_: &str| async { Ok(Credentials::new("app", "wr0ng-s3cret")) };
    let error = fails(ask, NodeOutcome::Refused).to_string();
    assert!(error.contains("WRONGPASS") && !error.contains("in the URL"), "{error}");
}

#[test]
fn a_default_user_has_a_password_only() {
    let servers = Servers::start_with(json!({ "start": 1, "password": FIRST }));
    let url = [format!("redis://127.0.0.1:{}", servers.ports[0])];
    let ask = |_: &str| async { Ok(Credentials::of_default_user(FIRST)) };
    let client = builder(&url).credentials(ask).build().unwrap();
    assert!(try_acquire(&client).is_ok());
}

#[test]
fn a_login_in_the_url_and_a_function_are_an_error() {
    for login in ["user@", ":s3cret@", "user:s3cret@"] {
        for url in [
            format!("redis://{login}localhost"),
            format!("redis-cluster://{login}localhost"),
            format!("redis-sentinel://{login}localhost/service"),
        ] {
            let ask = |_: &str| async { Ok(Credentials::of_default_user("")) };
            let error = Client::builder().nodes([url]).credentials(ask).build().unwrap_err();
            assert_eq!(error.code(), ErrorCode::Config);
            let text = error.to_string();
            assert!(text.contains("node 1") && text.contains("option credentials"), "{text}");
            assert!(text.contains("URL has a user or a password"), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
}

#[test]
fn nodes_in_memory_ask_for_no_credentials() {
    let ask = |_: &str| async { Err("not asked".to_owned()) };
    let urls = ["memory://credentials".to_owned()];
    assert!(try_acquire(&builder(&urls).credentials(ask).build().unwrap()).is_ok());
    let shown = format!("{:?}", Credentials::new("app", FIRST));
    assert_eq!(shown, "Credentials { .. }");
}
