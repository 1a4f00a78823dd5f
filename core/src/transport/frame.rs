//! Finds the ends of replies in the bytes that a server sends. Refuses a reply that is larger than its limit,
//! even if only part of the reply has arrived.
//!
//! This module reads only lengths and line ends; the parser of redis-rs gets whole replies. The limit of a reply
//! depends on the request, and is looked up only if the reply exceeds [`USUAL`]. Only `connection.rs` calls this
//! module.

use crate::wire::limits::{DEPTH, LINE, Limit, USUAL};
use redis::{ErrorKind, RedisError};

/// How far the current reply has been read.
#[derive(Default)]
pub(super) struct Frame {
    /// Where the next value begins, in bytes from the beginning of the reply. The bytes there may not have arrived yet.
    at: usize,
    /// Where to continue to search for the end of the line that begins at `at`: there is no line end before this
    /// position.
    searched: usize,
    /// For each level of nesting, the number of values that have not been read yet.
    missing: [u32; DEPTH],
    depth: usize,
    /// The number of values that the reply has announced so far, in the lengths of its arrays and maps.
    values: u64,
    is_whole: bool,
    /// The limit of this reply. `None` until the reply exceeds [`USUAL`]; only then, the limit is looked up.
    limit: Option<Limit>,
}

fn malformed() -> RedisError {
    (ErrorKind::Parse, "malformed").into()
}

fn too_large(what: &str) -> RedisError {
    let detail = format!("it is larger than any that was asked for ({what})");
    (ErrorKind::UnexpectedReturnType, "too large", detail).into()
}

/// The bytes with which a value may begin. No server sends streamed values, so their bytes are not accepted.
const KINDS: &[u8] = b"+-:_,#($=!*~>%|";

impl Frame {
    /// Continues to read a reply. `bytes`: all bytes of the reply that have arrived so far. Returns `None` if
    /// the reply is not whole yet. Otherwise, returns the length of the reply; the next call begins with the
    /// next reply. Fails if the reply is malformed or exceeds its limit. `limit` returns this limit.
    pub(super) fn scan(
        &mut self,
        bytes: &[u8],
        limit: impl Fn() -> Limit,
    ) -> Result<Option<usize>, RedisError> {
        while !self.is_whole {
            let Some(&kind) = bytes.get(self.at) else { return Ok(None) };
            if !KINDS.contains(&kind) {
                return Err(malformed());
            }
            let from = self.searched.max(self.at + 1);
            let Some(end) = line_end(&bytes[from..]).map(|end| from + end) else {
                // The last byte that has arrived may be the first byte of a line end, so search it again.
                self.searched = from.max(bytes.len() - 1);
                self.check(bytes.len(), bytes.len() - self.at, &limit)?;
                return Ok(None);
            };
            let line = &bytes[self.at + 1..end];
            let begin = end + 2;
            self.check(begin, line.len(), &limit)?;
            self.at = begin;
            let inside = match kind {
                b'$' | b'=' | b'!' => {
                    match number(line)? {
                        -1 if kind == b'$' => {}
                        length => {
                            let length = usize::try_from(length).map_err(|_| malformed())?;
                            self.at = begin
                                .checked_add(length)
                                .and_then(|end| end.checked_add(2))
                                .ok_or_else(malformed)?;
                            let is_line = kind == b'!';
                            self.check(self.at, if is_line { length } else { 0 }, &limit)?;
                        }
                    }
                    0
                }
                b'*' | b'~' | b'>' => match number(line)? {
                    -1 => 0,
                    count => u64::try_from(count).map_err(|_| malformed())?,
                },
                b'%' | b'|' => {
                    let pairs = u64::try_from(number(line)?).map_err(|_| malformed())?;
                    // An attribute comes before the value that it belongs to, so one more value follows.
                    let more = u64::from(kind == b'|');
                    pairs
                        .checked_mul(2)
                        .and_then(|count| count.checked_add(more))
                        .ok_or_else(malformed)?
                }
                _ => 0,
            };
            self.enter(inside, &limit)?;
        }
        let length = self.at;
        if bytes.len() < length {
            return Ok(None);
        }
        *self = Self::default();
        Ok(Some(length))
    }

    /// Continues with the values inside the current value. `inside` is the number of these values; if it is 0, the
    /// current value is complete.
    fn enter(&mut self, inside: u64, limit: &impl Fn() -> Limit) -> Result<(), RedisError> {
        if inside > 0 {
            self.values = self.values.saturating_add(inside);
            if self.values > self.limit.unwrap_or(USUAL).values.into()
                && self.values > self.limit.insert(limit()).values.into()
            {
                return Err(too_large(&format!("{} values", self.values)));
            }
            let level =
                self.missing.get_mut(self.depth).ok_or_else(|| too_large("nested too deeply"))?;
            // `inside` fits into a `u32`: it is at most the limit, which is a `u32`.
            *level = inside as u32;
            self.depth += 1;
            return Ok(());
        }
        while self.depth > 0 {
            let level = &mut self.missing[self.depth - 1];
            *level -= 1;
            if *level > 0 {
                return Ok(());
            }
            self.depth -= 1;
        }
        self.is_whole = true;
        Ok(())
    }

    /// Fails if the reply or the current line is too long. `bytes`: the minimum length of the reply, according to the
    /// bytes that have been read. `line`: the length of the line, or of the part of the line that has arrived.
    fn check(
        &mut self,
        bytes: usize,
        line: usize,
        limit: &impl Fn() -> Limit,
    ) -> Result<(), RedisError> {
        if line > LINE {
            return Err(too_large(&format!("a line of more than {LINE} bytes")));
        }
        if bytes > self.limit.unwrap_or(USUAL).bytes as usize
            && bytes > self.limit.insert(limit()).bytes as usize
        {
            return Err(too_large(&format!("{bytes} bytes")));
        }
        Ok(())
    }
}

/// Returns where the next line end begins; `None` if no whole line end has arrived.
fn line_end(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + bytes[from..].iter().position(|byte| *byte == b'\r')?;
        if *bytes.get(at + 1)? == b'\n' {
            return Some(at);
        }
        from = at + 1;
    }
}

/// Parses a number in the same way as the parser of redis-rs.
fn number(line: &[u8]) -> Result<i64, RedisError> {
    let number = std::str::from_utf8(line).ok().and_then(|line| line.trim().parse().ok());
    number.ok_or_else(malformed)
}

#[cfg(test)]
mod tests;
