//! The Rust client of `tests/cross/test_languages.py` and `test_thawed.py`: runs one JSON command per line of stdin, like
//! `tests/cross/holder.js`.
#![allow(clippy::unwrap_used, reason = "a test program ends at anything unexpected")]

use quorlock::{Client, Dialect, Error, Lease, OptionValue};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::stdin;
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let client = Client::builder().nodes(std::env::args().skip(1)).build().unwrap();
    let mut leases = HashMap::new();
    for line in stdin().lines() {
        let command: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let answer = match run(&client, &mut leases, &command).await {
            Ok(ok) => json!({ "ok": ok }),
            Err(error) => json!({ "error": error.code().as_str() }),
        };
        println!("{answer}");
    }
    client.close().await;
}

async fn run(
    client: &Client,
    leases: &mut HashMap<String, Lease>,
    command: &Value,
) -> Result<Value, Error> {
    let name = |verb: &str| command[verb].as_str().map(str::to_owned);
    if let Some(resource) = name("lock") {
        let mut lock = client.lock(&*resource);
        for (name, value) in options(command) {
            lock = lock.option(Dialect::JavaScript, name, &value);
        }
        let lease = lock.acquire().await?;
        let held = json!({ "fence": lease.fence(), "token": lease.token() });
        leases.insert(resource, lease);
        Ok(held)
    } else if let Some(resource) = name("permit") {
        let limit = command["options"]["limit"].as_u64().unwrap().try_into().unwrap();
        let mut semaphore = client.semaphore(resource, limit);
        for (name, value) in options(command).filter(|(name, _)| *name != "limit") {
            semaphore = semaphore.option(Dialect::JavaScript, name, &value);
        }
        let lease = semaphore.acquire().await?;
        let held = json!({ "fence": lease.fence(), "slots": lease.slots() });
        leases.insert(name("as").unwrap(), lease);
        Ok(held)
    } else if let Some(resource) = name("extend") {
        leases[&resource].extend(None).await.map(|()| Value::Null)
    } else if let Some(resource) = name("locked") {
        client.lock(&*resource).locked().await.map(Value::from)
    } else if let Some(resource) = name("adopt") {
        let lease = client.adopt(command["text"].as_str().unwrap()).acquire().await?;
        let held = json!({ "fence": lease.fence(), "token": lease.token() });
        leases.insert(resource, lease);
        Ok(held)
    } else if let Some(resource) = name("detach") {
        let within = Duration::from_millis(command["within"].as_u64().unwrap());
        Ok(json!(leases[&resource].detach(within).await?.into_text()))
    } else {
        let lease = &leases[&name("release").expect("a command")];
        Ok(json!(lease.release().await))
    }
}

fn options(command: &Value) -> impl Iterator<Item = (&str, OptionValue)> {
    let options = command["options"].as_object().into_iter().flatten();
    options.map(|(name, value)| {
        let value = match value {
            Value::String(text) => OptionValue::Text(text.clone()),
            value => OptionValue::Number(value.as_f64().unwrap()),
        };
        (&**name, value)
    })
}
