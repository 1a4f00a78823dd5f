//! Runs the bodies of the fuzz targets on the committed corpus and on random input from proptest.

use super::{OPTION_LENGTH, options, reply, requests, texts, url, value};
use crate::wire::reply::Reply;
use proptest::collection::vec;
use proptest::prelude::*;
use redis::{PushKind, ServerError, Value, VerbatimFormat, parse_redis_value};
use std::path::Path;

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Returns the files of one target's corpus.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let files = directory.read_dir().expect("readable corpus directory");
    let read = |file: std::io::Result<std::fs::DirEntry>| std::fs::read(file?.path());
    let files: Vec<_> = files.map(read).collect::<Result<_, _>>().expect("readable files");
    assert!(!files.is_empty());
    files
}

#[test]
fn the_committed_corpus_passes() {
    for bytes in corpus("url") {
        url(&String::from_utf8_lossy(&bytes));
    }
    corpus("options").iter().for_each(|bytes| options(bytes));
    corpus("reply").iter().for_each(|bytes| reply(bytes));
    corpus("texts").iter().for_each(|bytes| texts(bytes));
}

#[test]
fn numbers_that_no_script_returns_are_no_answer() {
    let limit = 1_i64 << 53;
    let int = |numbers: &[i64]| numbers.iter().copied().map(Value::Int).collect::<Vec<_>>();
    let refusal = |left, clock, rank, holder: &[u8]| {
        let mut parts = int(&[0, left, clock, rank]);
        parts.push(Value::BulkString(holder.to_vec()));
        Value::Array(parts)
    };
    let acquire = &requests()[0];
    let answer = |value: Value| acquire.understand(&value);
    for fence in [i64::MIN, -1, 0, limit, i64::MAX] {
        assert_eq!(answer(Value::Array(int(&[1, fence, 1]))), None, "fence {fence}");
    }
    for clock in [i64::MIN, -1, 0, limit + 10_000_000, i64::MAX] {
        assert_eq!(answer(Value::Array(int(&[1, 1, clock]))), None, "clock {clock}");
        assert_eq!(answer(refusal(5, clock, 0, b"")), None, "clock {clock}");
    }
    for number in [i64::MIN, -2] {
        assert_eq!(answer(refusal(number, 1, 0, b"")), None, "remaining time {number}");
        assert_eq!(answer(refusal(5, 1, number, b"")), None, "rank {number}");
    }
    assert_eq!(answer(refusal(5, 1, 0, &[b'a'; 300])), None, "a long token");
    for fence in [1, limit - 1] {
        let granted = answer(Value::Array(int(&[1, fence, fence])));
        assert!(matches!(granted, Some(Reply::Granted { .. })));
        assert!(matches!(answer(refusal(-1, fence, -1, b"")), Some(Reply::Held(_))));
    }
}

/// Generates the contents of lease texts. Quorlock itself never writes most of these contents.
fn contents() -> impl Strategy<Value = serde_json::Value> {
    let number = prop_oneof![
        3 => (0..40_u64).prop_map(serde_json::Value::from),
        2 => prop::sample::select(vec![9, 10, 86_400_000, 86_400_001, 1 << 53, u64::MAX])
            .prop_map(serde_json::Value::from),
        1 => any::<i64>().prop_map(serde_json::Value::from),
        1 => any::<f64>().prop_map(serde_json::Value::from),
    ];
    let numbers = || vec(number.clone(), 0..4).prop_map(serde_json::Value::from);
    let ttl = (number.clone(), number.clone())
        .prop_map(|(secs, nanos)| serde_json::json!({ "secs": secs, "nanos": nanos }));
    let token = prop_oneof![
        3 => Just("0".repeat(40)),
        2 => "[;a-z\u{202e}]{0,200}".prop_map(|name| format!("{};{name}", "0".repeat(40))),
        1 => any::<String>(),
    ];
    let permits =
        (number.clone(), numbers()).prop_map(|(limit, slots)| serde_json::json!([limit, slots]));
    let names = vec("[a-z]{0,2}", 0..3);
    let lists = (numbers(), numbers(), numbers(), prop::option::of(permits));
    (names, token, ttl, (number.clone(), number.clone(), number.clone()), lists).prop_map(
        |(names, token, ttl, (fence, within, until), (shared, sound, silent, permits))| {
            serde_json::json!({
                "resources": names, "token": token, "ttl": ttl, "fence": fence, "within": within,
                "until": until, "shared": shared, "sound": sound, "silent": silent, "permits": permits,
            })
        },
    )
}

/// Generates texts from parts that have a meaning in URLs and from arbitrary characters.
fn part() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec![
            "redis", "unix", "memory", "://", ":", "//", "/", "@", "?", "#", "&", "=", "%", "%40", "[", "]",
            "::1", "127.0.0.1", "localhost", "6379", "65536", "0", "-1", "db", "pass", "user", "protocol",
            "resp3", " ", "\t", "..", "\u{0}", "é",
        ])
        .prop_map(str::to_owned),
        1 => any::<char>().prop_filter("it separates parts", |c| *c != '\n').prop_map(String::from),
    ];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn server_error() -> impl Strategy<Value = ServerError> {
    let code = prop::sample::select(vec![
        "ERR",
        "NOSCRIPT",
        "OOM",
        "LOADING",
        "READONLY",
        "MASTERDOWN",
        "NOPERM",
        "MISCONF",
        "WRONGTYPE",
        "",
    ]);
    (code, "[^\r\n]{0,20}").prop_map(|(code, text)| {
        let line = format!("-{code} {text}\r\n");
        match parse_redis_value(line.as_bytes()) {
            Ok(Value::ServerError(error)) => error,
            other => unreachable!("an error line was parsed as {other:?}"),
        }
    })
}

/// Generates numbers that have a meaning in replies, and arbitrary numbers.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![3 => -1..4_i64, 1 => any::<i64>(), 1 => (1_i64 << 53) - 2..(1 << 53) + 2]
}

fn info() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "run_id",
        "uptime_in_seconds",
        "role",
        "master_replid",
        "# Server",
        "",
    ]);
    let line =
        (name, "[ -~]{0,12}|[0-9]{1,30}").prop_map(|(name, text)| format!("{name}:{text}\r\n"));
    vec(line, 0..8).prop_map(|lines| lines.concat())
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => number().prop_map(Value::Int),
        1 => Just(Value::Nil),
        1 => Just(Value::Okay),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => any::<f64>().prop_map(Value::Double),
        1 => info().prop_map(|text| Value::BulkString(text.into_bytes())),
        1 => vec(any::<u8>(), 0..20).prop_map(Value::BulkString),
        1 => info().prop_map(Value::SimpleString),
        1 => info().prop_map(|text| Value::VerbatimString { format: VerbatimFormat::Text, text }),
        1 => "[0-9]{1,30}".prop_map(|digits| Value::BigNumber(digits.into_bytes())),
        1 => server_error().prop_map(Value::ServerError),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let pairs = || vec((inner.clone(), inner.clone()), 0..3);
        prop_oneof![
            4 => vec(inner.clone(), 0..4).prop_map(Value::Array),
            1 => vec(inner.clone(), 0..4).prop_map(Value::Set),
            1 => pairs().prop_map(Value::Map),
            1 => (inner.clone(), pairs()).prop_map(|(data, attributes)| Value::Attribute {
                data: Box::new(data),
                attributes,
            }),
            1 => vec(inner.clone(), 0..4)
                .prop_map(|data| Value::Push { kind: PushKind::Message, data }),
        ]
    })
}

/// Generates bytes that look like replies.
fn wire_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => (prop::sample::select(b"+-:$*%~>|=!(,#_".to_vec()), number())
            .prop_map(|(kind, number)| format!("{}{number}\r\n", char::from(kind)).into_bytes()),
        2 => info().prop_map(|text| format!("${}\r\n{text}\r\n", text.len()).into_bytes()),
        1 => vec(any::<u8>(), 0..8),
    ];
    vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn any_url_hides_its_password(parts in vec(part(), 1..5)) {
        url(&parts.join("\n"));
    }

    #[test]
    fn any_text_is_a_url_or_an_error(text in any::<String>()) {
        url(&text);
    }

    #[test]
    fn any_option_is_within_its_range_or_an_error(bytes in vec(any::<u8>(), 0..8 * OPTION_LENGTH)) {
        options(&bytes);
    }

    #[test]
    fn any_reply_value_is_understood_literally(reply in any_value()) {
        value(reply);
    }

    #[test]
    fn any_lease_text_is_refused_or_has_possible_numbers(contents in contents()) {
        texts(contents.to_string().as_bytes());
    }

    #[test]
    fn any_reply_bytes_are_understood_literally(bytes in wire_bytes()) {
        reply(&bytes);
    }
}
