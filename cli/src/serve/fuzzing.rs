//! The body of the fuzz target `requests` in `fuzz/`. Tests run it on the committed corpus, and on random input.

use crate::serve::command;
use crate::serve::wire::{MAX_REQUEST, MAX_WORDS, Replies, request_length, words};

/// Handles bytes as a connection does. Checks that each request is found wherever the bytes are cut, stays within the limits,
/// and is parsed as it was found, and that its error fits on one line.
pub fn requests(bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        let found = request_length(rest);
        let cut = &rest[..rest.len() / 2];
        match (request_length(cut), &found) {
            (Ok(None), _) => {}
            (early, found) => assert_eq!(early, *found, "more bytes change what was found"),
        }
        let Ok(Some(length)) = found else { return };
        assert!(length <= rest.len() && length <= MAX_REQUEST);
        let words = words(&rest[..length]).expect("what was found is a request");
        assert!((1..=MAX_WORDS).contains(&words.len()));
        // Lengths may have leading zeros.
        assert!(encoded_length(&words) <= length);
        if let Err(refusal) = command::parse(words) {
            let code = refusal.split(' ').next().unwrap_or_default();
            assert!(["ERR", "CONFIG", "NOPROTO"].contains(&code), "{refusal:?}");
            let mut replies = Replies::default();
            replies.error(&refusal);
            let (line, end) = replies.bytes.split_at(replies.bytes.len() - 2);
            assert!(end == b"\r\n" && !line.iter().any(|byte| b"\r\n".contains(byte)));
            assert!(line.len() < 1024, "an error repeats no long word");
        }
        rest = &rest[length..];
    }
}

/// Returns the length of the shortest request of these words.
fn encoded_length(words: &[Vec<u8>]) -> usize {
    let mut request = Replies::default();
    request.array(words.len());
    words.iter().for_each(|word| request.bulk(word));
    request.bytes.len()
}

#[cfg(test)]
mod tests {
    use super::requests;
    use crate::serve::wire::Replies;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::path::Path;

    fn cases(cases: u32) -> ProptestConfig {
        ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
    }

    #[test]
    fn the_committed_corpus_passes() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/requests");
        let files = directory.read_dir().expect("readable corpus directory");
        let files: Vec<_> = files.map(|file| std::fs::read(file.expect("a file").path())).collect();
        assert!(files.len() > 3);
        files.into_iter().for_each(|bytes| requests(&bytes.expect("a readable file")));
    }

    fn word() -> impl Strategy<Value = Vec<u8>> {
        let known = prop::sample::select(vec![
            "LOCK",
            "lock",
            "RESOURCES",
            "ADOPT",
            "UNLOCK",
            "EXTEND",
            "CHECK",
            "DETACH",
            "LOST",
            "STATUS",
            "PING",
            "HELLO",
            "CLIENT",
            "SETNAME",
            "PUSH",
            "ON",
            "SELECT",
            "TTL",
            "WAIT",
            "MODE",
            "shared",
            "PERMITS",
            "LIMIT",
            "HOLDER",
            "MAXHOLD",
            "HEARTBEAT",
            "WITHIN",
            "FOREVER",
            "0",
            "1",
            "-1",
            "500",
            "1-1",
            "2",
            "3",
        ]);
        prop_oneof![3 => known.prop_map(|word| word.as_bytes().to_vec()), 1 => vec(any::<u8>(), 0..20)]
    }

    fn request() -> impl Strategy<Value = Vec<u8>> {
        vec(word(), 1..9).prop_map(|words| {
            let mut request = Replies::default();
            request.array(words.len());
            words.iter().for_each(|word| request.bulk(word));
            request.bytes
        })
    }

    /// Generates requests, and what is similar to them.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece =
            prop::sample::select(vec!["*", "$", "\r\n", "1", "3", "-1", "99999999", ":", "PING"]);
        let noise = vec(piece, 0..8).prop_map(|pieces| pieces.concat().into_bytes());
        vec(prop_oneof![4 => request(), 1 => noise], 0..4).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(cases(2000))]

        #[test]
        fn any_requests_are_handled(bytes in stream()) {
            requests(&bytes);
        }
    }
}
