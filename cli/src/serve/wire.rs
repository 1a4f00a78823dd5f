//! The bytes of a connection: finds requests in them, and writes replies. RESP2, and RESP3 after `HELLO 3`.
//!
//! The parser of redis-rs is made for the replies of trusted servers: it takes nested values, and allocates what a length
//! announces. So a request is checked before it is parsed. What the words of a request mean is the affair of `command`.

use crate::output::one_line;
use redis::Value;

/// The most words of a request.
pub(crate) const MAX_WORDS: usize = 1024;
/// The most bytes of a request, and of what a client may send ahead while one of its requests waits.
pub(crate) const MAX_REQUEST: usize = 1024 * 1024;
/// The most digits of a length, so that it is a small number.
const MAX_DIGITS: usize = 7;

/// What is wrong with bytes that are no request.
pub(crate) type Malformed = &'static str;

/// Returns the length of the first request in `bytes`, or `None` if its end is missing.
pub(crate) fn request_length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let length = scan(bytes)?;
    let shortest = length.unwrap_or(bytes.len());
    if shortest > MAX_REQUEST { Err("the request is too long") } else { Ok(length) }
}

fn scan(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let wrong = "a request is an array of bulk strings";
    let Some((words, mut at)) = number(bytes, b'*').ok_or(wrong)? else { return Ok(None) };
    if !(1..=MAX_WORDS).contains(&words) {
        return Err("a request has 1 to 1024 words");
    }
    for _ in 0..words {
        let Some((length, header)) = number(&bytes[at..], b'$').ok_or(wrong)? else {
            return Ok(None);
        };
        at += header + length;
        if at > MAX_REQUEST {
            return Err("the request is too long");
        }
        match bytes.get(at..at + 2) {
            Some(b"\r\n") => at += 2,
            Some(_) => return Err("a bulk string is longer than its length"),
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// Reads a mark, a number and a line end. Returns the number and how many bytes that was; `Some(None)` if the end is missing,
/// and `None` if it is something else.
fn number(bytes: &[u8], mark: u8) -> Option<Option<(usize, usize)>> {
    let Some((first, rest)) = bytes.split_first() else { return Some(None) };
    if *first != mark {
        return None;
    }
    let digits = rest.iter().take_while(|digit| digit.is_ascii_digit()).count();
    if digits > MAX_DIGITS {
        return None;
    }
    match &rest[digits..] {
        [] | [b'\r'] => Some(None),
        [b'\r', b'\n', ..] => {
            let number = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
            Some(Some((number, 1 + digits + 2)))
        }
        _ => None,
    }
}

/// Returns the words of one whole request.
pub(crate) fn words(request: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let wrong = "a request is an array of bulk strings";
    let Ok(Value::Array(values)) = redis::parse_redis_value(request) else { return Err(wrong) };
    let word = |value| match value {
        Value::BulkString(word) => Ok(word),
        _ => Err(wrong),
    };
    values.into_iter().map(word).collect()
}

/// Replies that are to be written.
#[derive(Default)]
pub(crate) struct Replies {
    pub(crate) bytes: Vec<u8>,
    /// Whether the client speaks RESP3.
    pub(crate) is_resp3: bool,
}

impl Replies {
    fn line(&mut self, mark: u8, text: &str) {
        self.bytes.push(mark);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// Writes an error: a code in upper case, and a message, of which line breaks are removed.
    pub(crate) fn error(&mut self, text: &str) {
        self.line(b'-', &one_line(text));
    }

    pub(crate) fn integer(&mut self, number: u64) {
        self.line(b':', &number.to_string());
    }

    pub(crate) fn bulk(&mut self, text: &[u8]) {
        self.line(b'$', &text.len().to_string());
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Begins an array. Its items follow.
    pub(crate) fn array(&mut self, items: usize) {
        self.line(b'*', &items.to_string());
    }

    /// Begins a map. So many keys follow, each with its value.
    pub(crate) fn map(&mut self, keys: usize) {
        match self.is_resp3 {
            true => self.line(b'%', &keys.to_string()),
            false => self.array(2 * keys),
        }
    }

    /// Begins a push message of RESP3. Its items follow.
    pub(crate) fn push(&mut self, items: usize) {
        self.line(b'>', &items.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::parse_redis_value;

    fn request(words: &[&[u8]]) -> Vec<u8> {
        let mut request = Replies::default();
        request.array(words.len());
        words.iter().for_each(|word| request.bulk(word));
        request.bytes
    }

    #[test]
    fn requests_are_found_wherever_the_bytes_are_cut() {
        let bytes = request(&[b"LOCK", b"a\r\nb", b"", &[0xff; 300]]);
        for end in 0..bytes.len() {
            assert_eq!(request_length(&bytes[..end]), Ok(None), "{end}");
        }
        let two = [&bytes[..], &bytes[..]].concat();
        assert_eq!(request_length(&two), Ok(Some(bytes.len())));
        let expected = [&b"LOCK"[..], b"a\r\nb", b"", &[0xff; 300]].map(<[u8]>::to_vec);
        assert_eq!(words(&bytes), Ok(expected.to_vec()));
    }

    #[test]
    fn other_bytes_are_no_request() {
        let wrong: [&[u8]; 14] = [
            b"PING\r\n",
            b"\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"*1025\r\n",
            b"*99999999999999999999\r\n",
            b"*1\n",
            b"*\r\n",
            b"*1\r\n:1\r\n",
            b"*1\r\n*1\r\n$4\r\nPING\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$3\r\nPING\r\n",
            b"*1\r\n$1048577\r\n",
            b"*2\r\n$1048560\r\n",
        ];
        for bytes in &wrong[..13] {
            assert!(request_length(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(request_length(wrong[13]), Ok(None));
    }

    #[test]
    fn a_request_is_limited_before_it_has_arrived() {
        assert!(request_length(b"*2\r\n$1048570\r\n").is_err());
        let mut long = request(&[&[b'x'; 600_000]]);
        long[1] = b'2';
        assert_eq!(request_length(&long), Ok(None));
        long.extend_from_slice(b"$600000\r\n");
        assert!(request_length(&long).is_err());
    }

    #[test]
    fn replies_are_what_redis_clients_read() {
        let mut replies = Replies::default();
        replies.array(7);
        replies.simple("PONG");
        replies.error("TIMEOUT two\r\nlines");
        replies.integer(u64::MAX >> 1);
        replies.bulk(b"\r\n");
        replies.null();
        replies.map(0);
        replies.is_resp3 = true;
        replies.map(1);
        replies.bulk(b"key");
        replies.null();
        let Ok(Value::Array(items)) = parse_redis_value(&replies.bytes) else {
            panic!("no array: {}", String::from_utf8_lossy(&replies.bytes));
        };
        let Value::ServerError(error) = &items[1] else { panic!("no error: {items:?}") };
        assert_eq!((error.code(), error.details()), ("TIMEOUT", Some("two lines")));
        assert_eq!(items[0], Value::SimpleString("PONG".to_owned()));
        let rest = [
            Value::Int(i64::MAX),
            Value::BulkString(b"\r\n".to_vec()),
            Value::Nil,
            Value::Array(Vec::new()),
            Value::Map(vec![(Value::BulkString(b"key".to_vec()), Value::Nil)]),
        ];
        assert_eq!(items[2..], rest);
    }
}
