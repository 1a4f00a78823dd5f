//! Acquires as OpenTelemetry spans, through the `tracing-opentelemetry` layer.
#![allow(clippy::unwrap_used, reason = "tests")]

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Key, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use quorlock::{Client, ErrorCode};
use std::time::Duration;
use tracing_subscriber::layer::SubscriberExt;

const TIMEOUT: Duration = Duration::from_secs(60);

fn attribute(span: &SpanData, name: &'static str) -> Option<Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key == Key::new(name));
    found.map(|attribute| attribute.value.clone())
}

#[test]
fn an_acquire_is_a_span_within_that_of_its_caller() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let client = Client::builder().nodes(["memory://spans"]).build().unwrap();
    let lock = client.lock("orders:42").wait(Duration::ZERO);
    let fence = {
        let _request = tracing::info_span!("request").entered();
        let lease = lock.acquire().block_for(TIMEOUT).unwrap().unwrap();
        let late = lock.acquire().block_for(TIMEOUT).unwrap().unwrap_err();
        assert_eq!(late.code(), ErrorCode::Timeout);
        assert!(lease.release().block_for(TIMEOUT).unwrap());
        lease.fence()
    };
    let spans = exporter.get_finished_spans().unwrap();
    assert_eq!(spans.len(), 3);
    let request = spans.iter().find(|span| span.name == "request").unwrap();
    let with = |outcome: &'static str| {
        let is = |span: &&SpanData| attribute(span, "outcome") == Some(Value::from(outcome));
        spans.iter().find(is).unwrap()
    };
    let won = with("won");
    let late = with("timeout");
    for span in [won, late] {
        assert_eq!(span.name, "quorlock.acquire");
        assert_eq!(span.parent_span_id, request.span_context.span_id());
        assert_eq!(attribute(span, "resource"), Some(Value::from("orders:42")));
    }
    // The layer records unsigned integers as strings.
    assert_eq!(attribute(won, "fence"), Some(Value::from(fence.to_string())));
    let events: Vec<_> = won.events.iter().map(|event| &*event.name).collect();
    assert!(events.contains(&"lease acquired"), "{events:?}");
}
