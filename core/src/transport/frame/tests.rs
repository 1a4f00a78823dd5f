#![allow(clippy::unwrap_used, reason = "tests")]

use super::Frame;
use crate::wire::limits::{DEPTH, INSPECTION, LINE, Limit, PAGE, REPORT, SLOT_MAP, USUAL};
use proptest::collection::vec;
use proptest::prelude::*;
use redis::{ErrorKind, RedisError};
use std::cell::Cell;

fn scan(bytes: &[u8]) -> Result<Option<usize>, RedisError> {
    Frame::default().scan(bytes, || USUAL)
}

fn is_refused(bytes: &[u8], limit: Limit) -> bool {
    Frame::default()
        .scan(bytes, || limit)
        .is_err_and(|error| error.kind() == ErrorKind::UnexpectedReturnType)
}

#[test]
fn announced_length_is_refused_before_the_data_arrives() {
    let announced = |kind: char, number: u64| format!("{kind}{number}\r\n").into_bytes();
    for limit in [USUAL, REPORT, INSPECTION, PAGE, SLOT_MAP] {
        let bytes = u64::from(limit.bytes);
        let values = u64::from(limit.values);
        for kind in ['$', '='] {
            // The lengths of the header and of the line end also count towards the limit.
            assert!(!is_refused(&announced(kind, bytes - 20), limit), "{kind} {limit:?}");
            assert!(is_refused(&announced(kind, bytes), limit), "{kind} {limit:?}");
        }
        for kind in ['*', '~', '>'] {
            assert!(!is_refused(&announced(kind, values), limit), "{kind} {limit:?}");
            assert!(is_refused(&announced(kind, values + 1), limit), "{kind} {limit:?}");
        }
        for kind in ['%', '|'] {
            assert!(!is_refused(&announced(kind, values / 2 - 1), limit), "{kind} {limit:?}");
            assert!(is_refused(&announced(kind, values / 2 + 1), limit), "{kind} {limit:?}");
        }
        for kind in ['$', '=', '*', '~', '>', '%', '|', '!'] {
            for number in [u64::MAX >> 1, (u64::MAX >> 2) + 1, 100_000_000_000] {
                assert!(Frame::default().scan(&announced(kind, number), || limit).is_err());
            }
        }
    }
}

#[test]
fn values_and_bytes_of_all_levels_count_together() {
    let many = [&b"*100\r\n"[..], &b"*100\r\n:1\r\n".repeat(100)].concat();
    assert!(is_refused(&many, USUAL));
    let large = [&b"*2000\r\n"[..], &b"$10\r\n0123456789\r\n".repeat(2_000)].concat();
    assert!(is_refused(&large, USUAL));
    assert_eq!(Frame::default().scan(&large, || REPORT).unwrap(), Some(large.len()));
}

#[test]
fn a_line_and_the_depth_have_limits_of_their_own() {
    for kind in ["-", "+", ":", "(", "$", "*"] {
        let long = [kind.as_bytes(), &[b'1'; LINE + 1]].concat();
        assert!(is_refused(&long, PAGE), "{kind}");
    }
    assert!(is_refused(format!("!{}\r\n", LINE + 1).as_bytes(), PAGE));
    assert_eq!(scan(&b"*1\r\n".repeat(DEPTH)).unwrap(), None);
    assert!(is_refused(&b"*1\r\n".repeat(DEPTH + 1), PAGE));
}

#[test]
fn nonsense_is_refused_at_once() {
    let all = [
        "HTTP", "\0", "\r\n", "$-2\r\n", "*-7\r\n", "%-1\r\n", "=-1\r\n", "$?\r\n", "*?\r\n",
        "$1e3\r\n", "$\r\n", "?1\r\n",
    ];
    for bytes in all {
        assert_eq!(scan(bytes.as_bytes()).unwrap_err().kind(), ErrorKind::Parse, "{bytes:?}");
    }
}

#[test]
fn a_usual_reply_is_not_looked_up() {
    let looked_up = Cell::new(0);
    let limit = || {
        looked_up.set(looked_up.get() + 1);
        PAGE
    };
    Frame::default().scan(b"*3\r\n:1\r\n:5\r\n:1700000000000000\r\n", limit).unwrap().unwrap();
    assert_eq!(looked_up.get(), 0);
    let mut frame = Frame::default();
    let large = [&b"*1000\r\n"[..], &b"$100\r\n"[..], &[b'x'; 100], b"\r\n"].concat();
    assert_eq!(frame.scan(&large, limit).unwrap(), None);
    assert_eq!(looked_up.get(), 0);
    let large =
        [&b"*1000\r\n"[..], &[&b"$100\r\n"[..], &[b'x'; 100], b"\r\n"].concat().repeat(1_000)]
            .concat();
    assert_eq!(frame.scan(&large, limit).unwrap(), Some(large.len()));
    assert_eq!(looked_up.get(), 1);
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let text = |kind: u8| {
        vec(any::<u8>(), 0..8).prop_map(move |text| {
            [&[kind], text.len().to_string().as_bytes(), b"\r\n", &text, b"\r\n"].concat()
        })
    };
    let line = |kind: &'static str, texts: &'static [&'static str]| {
        prop::sample::select(texts).prop_map(move |text| format!("{kind}{text}\r\n").into_bytes())
    };
    let leaf = prop_oneof![
        text(b'$'),
        line("+", &["", "OK", "a\rb", "a\nb", "\r"]),
        line("-", &["", "ERR", "NOSCRIPT no", "\r\r"]),
        line(":", &["1", " 7 ", "-3"]),
        line("$", &["-1"]),
        line("*", &["-1", "0"]),
        line("_", &[""]),
        line(",", &["1.5", "nan", "inf"]),
        line("#", &["t"]),
        line("(", &["99999999999999999999"]),
        line("=", &["5\r\ntxt:a"]),
        line("!", &["5\r\nERR a"]),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let of = |kind: &'static str, each: usize, more: usize| {
            move |parts: Vec<Vec<u8>>| {
                let count = (parts.len() - more) / each;
                [
                    format!("{kind}{count}\r\n").into_bytes(),
                    parts.into_iter().take(count * each + more).flatten().collect(),
                ]
                .concat()
            }
        };
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(of("*", 1, 0)),
            vec(inner.clone(), 0..4).prop_map(of("~", 1, 0)),
            vec(inner.clone(), 0..4).prop_map(of("%", 2, 0)),
            vec(inner, 1..4).prop_map(of("|", 2, 1)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The frame and the parser must agree on where a reply ends. Otherwise, a reply could evade its limit.
    #[test]
    fn replies_end_where_the_parser_sees_their_end(all in vec(value(), 1..4), cuts in vec(any::<prop::sample::Index>(), 0..4)) {
        let bytes = all.concat();
        let mut arrived: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        arrived.push(bytes.len());
        arrived.sort_unstable();
        let mut frame = Frame::default();
        let mut at = 0;
        let mut ends = Vec::new();
        for arrived in arrived {
            while let Some(length) = frame.scan(&bytes[at..arrived], || USUAL).unwrap() {
                at += length;
                ends.push(at);
            }
        }
        let lengths = all.iter().map(Vec::len);
        let expected: Vec<_> = lengths.scan(0, |end, length| { *end += length; Some(*end) }).collect();
        prop_assert_eq!(&ends, &expected);
        let mut from = 0;
        for end in ends {
            redis::parse_redis_value(&bytes[from..end]).unwrap();
            // Without its last byte, a reply is not whole for the parser either.
            prop_assert!(redis::parse_redis_value(&bytes[from..end - 1]).is_err());
            from = end;
        }
    }
}
