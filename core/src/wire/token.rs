//! The token of a round. While a lease holds a resource exclusively, the token of its round is the value of the lock
//! key. A token consists of 40 random hexadecimal digits and, if the holder has a name, of `;` and the name.
//!
//! The digits are a secret, because anyone who has the whole token can release the lock. Only the first 8 digits are
//! ever shown. The name is not a secret, and anyone who can write to the nodes can forge a name. The protocol only
//! compares whole tokens. `lock` creates tokens; `parse.rs` reads those that nodes report.

use crate::config::holder::{self, MAX_HOLDER};
use crate::error::Result;
use crate::error::printable::is_printable;
use crate::runtime::random::{TOKEN_BYTES, random_token};
use quorlock_protocol::node::entry::LockValue;
use std::fmt;

/// The number of random digits.
const DIGITS: usize = 2 * TOKEN_BYTES;
/// The number of characters of a token that may be shown.
const SHOWN: usize = 8;
/// The length of the longest token of quorlock, in bytes.
pub(crate) const MAX_TOKEN: usize = DIGITS + 1 + MAX_HOLDER;

/// The value of the lock key while readers hold the resource. This value does not have the form of a token, so other
/// programs see a lock with an unknown holder. No other program may store this value, because readers would then join
/// that program's lock.
pub(crate) const MARKER: &str = "quorlock:shared";

/// The value of a lock key. Its `Debug` text hides the secret digits.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Token(String);

impl Token {
    /// Creates a token with fresh random digits. Fails if the operating system returns no random bytes.
    pub(crate) fn new(holder: &str) -> Result<Self> {
        let bytes = random_token()?;
        let mut token = String::with_capacity(DIGITS + 1 + holder.len());
        for byte in bytes {
            let digits = [byte >> 4, byte & 15];
            token.extend(digits.map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])));
        }
        if !holder.is_empty() {
            token.push(';');
            token.push_str(holder);
        }
        Ok(Self(token))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name in the token: empty if the token has no name, and `None` if this value does not have the form of a
    /// token of quorlock. The name may be invalid, because another program may have stored a value in the form of a
    /// token.
    fn name(&self) -> Option<&str> {
        let (digits, rest) = self.0.split_at_checked(DIGITS)?;
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_own = digits.bytes().all(is_digit) && (rest.is_empty() || rest.starts_with(';'));
        is_own.then(|| rest.strip_prefix(';').unwrap_or_default())
    }

    /// The name of the holder; `None` if the token has no name, or a name that must not be shown.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.name().filter(|name| !name.is_empty() && holder::is_valid(name))
    }

    /// Whether this value has the form of a token of quorlock. If not, the value is the [`MARKER`], or another program
    /// stored it.
    pub(crate) fn is_own(&self) -> bool {
        self.name().is_some()
    }

    /// Whether [`Token::new`] may have created this token, with a valid name or without a name.
    pub(crate) fn is_whole(&self) -> bool {
        self.name().is_some_and(holder::is_valid)
    }

    /// Whether this value is the marker of a resource that readers hold.
    pub(crate) fn is_marker(&self) -> bool {
        self.0 == MARKER
    }

    /// The part of the token that may be shown: its first 8 characters, with U+FFFD in place of unprintable characters.
    pub(crate) fn shown(&self) -> String {
        let show = |letter| if is_printable(letter) { letter } else { '\u{fffd}' };
        self.0.chars().take(SHOWN).map(show).collect()
    }
}

impl LockValue for Token {
    fn readers() -> Self {
        MARKER.into()
    }
}

impl<S: Into<String>> From<S> for Token {
    fn from(token: S) -> Self {
        Self(token.into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", self.shown())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::{MAX_HOLDER, MAX_TOKEN, Token};

    const DIGITS: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn token_has_the_name_of_its_holder() {
        for name in ["web-7:4121", "a;b", "", &"é".repeat(MAX_HOLDER / 2)] {
            let token = Token::new(name).unwrap();
            assert_eq!(token.holder().unwrap_or_default(), name);
            assert!(token.is_own() && token.as_str().len() <= MAX_TOKEN);
            assert_ne!(token, Token::new(name).unwrap(), "the digits are random");
        }
    }

    #[test]
    fn value_of_another_program_has_no_holder() {
        let foreign = [
            "",
            "another program",
            &DIGITS[1..],
            &DIGITS.to_uppercase(),
            &format!("{DIGITS}0"),
            &format!("{DIGITS}:web"),
            &format!("{};web", &DIGITS[1..]),
        ];
        for value in foreign {
            let token = Token::from(value);
            assert_eq!((token.holder(), token.is_own()), (None, false), "{value:?}");
        }
    }

    #[test]
    fn name_that_must_not_be_shown_counts_as_none() {
        let long = "x".repeat(MAX_HOLDER + 1);
        // Tokens of an earlier version have no name.
        for name in
            ["", ";", ";\u{1b}[31mred", ";two\nlines", ";\u{202e}sdrawkcab", &format!(";{long}")]
        {
            let token = Token::from(format!("{DIGITS}{name}"));
            assert_eq!((token.holder(), token.is_own()), (None, true), "{name:?}");
        }
    }

    #[test]
    fn only_the_first_digits_are_shown() {
        let token = Token::from(format!("{DIGITS};web-7"));
        assert_eq!(
            (token.shown(), format!("{token:?}")),
            ("01234567".into(), "Token(01234567…)".into())
        );
        assert_eq!(Token::from("\u{1b}[31m\nred").shown(), "\u{fffd}[31m\u{fffd}re");
    }
}
