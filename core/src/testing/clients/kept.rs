//! Tests of forged lease texts whose checksum is correct.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::wire::text::{self, TextKind};
use crate::{Client, ErrorCode};
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn forged_lease_text_is_refused() {
    let client = Client::builder().nodes(["memory://forged-text"]).build().unwrap();
    let lease = client.lock("r").acquire().block_for(PATIENCE).unwrap().unwrap();
    let (lease, text) = client.keep(lease).block_for(PATIENCE).unwrap().unwrap();
    let contents: Value = text::read(TextKind::Kept, &text).unwrap();
    let forged = |field: &str, value: Value| {
        let mut contents = contents.clone();
        contents[field] = value;
        text::write(TextKind::Kept, &contents)
    };
    let ttl = |secs: u64| json!({ "secs": secs, "nanos": 0 });
    let texts = [
        forged("ttl", ttl(u64::MAX)),
        forged("ttl", ttl(u64::MAX / 1000)),
        forged("ttl", ttl(30 * 24 * 3600)),
        forged("ttl", ttl(0)),
        forged("fence", json!(0)),
        forged("fence", json!(1_u64 << 53)),
        forged("sound", json!([0, 1])),
        forged("sound", json!([64])),
        forged("shared", json!([1])),
        forged("token", json!("another program")),
        forged("token", json!(format!("{};{}", "0".repeat(40), "x".repeat(200)))),
        forged("resources", json!([])),
        forged("resources", json!(["r", "r"])),
    ];
    for text in texts {
        let error = client.resume(text.as_str()).block_for(PATIENCE).unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::Config, "{error}");
        assert!(!error.message().contains(&text));
    }
    let resumed = client.resume(text.as_str()).block_for(PATIENCE).unwrap().unwrap();
    resumed.extend(None).block_for(PATIENCE).unwrap().unwrap();
    assert!(resumed.release().block_for(PATIENCE).unwrap());
    drop(lease);
}
