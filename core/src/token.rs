//! Randomness from the operating system.

use crate::error::{Error, ErrorCode, Result};
use std::fmt::Write;

/// As long as the specification suggests: 20 bytes.
const TOKEN_BYTES: usize = 20;

/// A new token, as 40 hexadecimal digits. Every round has its own.
pub(crate) fn token() -> Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        let message = format!("the operating system gives no random numbers: {error}");
        Error::new(ErrorCode::NoQuorum, message)
    })?;
    let mut token = String::with_capacity(2 * TOKEN_BYTES);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(token, "{byte:02x}");
    }
    Ok(token)
}

/// A random number for delays; where there is none, delays are the shortest.
pub(crate) fn random() -> u32 {
    getrandom::u32().unwrap_or_default()
}
