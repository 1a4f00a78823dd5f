//! Runs rslock: `peer NAME URL...`. The commands are described in ../peers.py.

use rslock::{Lock, LockError, LockManager};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let urls: Vec<String> = std::env::args().skip(2).collect();
    let mut manager = LockManager::new(urls);
    manager.set_retry(1, Duration::from_millis(1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut held = HashMap::new();
    for line in std::io::stdin().lines() {
        let command = serde_json::from_str(&line?)?;
        println!("{}", runtime.block_on(answer(&manager, &mut held, &command))?);
    }
    Ok(())
}

async fn answer(
    manager: &LockManager,
    held: &mut HashMap<String, Lock>,
    command: &Value,
) -> Result<Value, Box<dyn Error>> {
    if let Some(resource) = command["release"].as_str() {
        manager.unlock(&held.remove(resource).ok_or("nothing is held")?).await;
        return Ok(json!({}));
    }
    let ttl = Duration::from_millis(command["ttl"].as_u64().ok_or("no ttl")?);
    if let Some(resource) = command["extend"].as_str() {
        let extended = manager.extend(held.get(resource).ok_or("nothing is held")?, ttl).await;
        return Ok(json!({ "held": extended.is_ok() }));
    }
    let resource = command["acquire"].as_str().ok_or("an unknown command")?;
    match manager.lock(resource, ttl).await {
        Ok(lock) => held.insert(resource.to_owned(), lock),
        Err(LockError::Unavailable) => return Ok(json!({ "held": false })),
        Err(error) => return Err(error.into()),
    };
    Ok(json!({ "held": true }))
}
