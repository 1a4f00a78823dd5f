//! Randomness from the operating system: tokens, random delays and jitter.
//!
//! All code of this crate gets its randomness here, so that the simulation can replace it.

use crate::error::{Error, ErrorCode, Result};

/// The length of a token before hexadecimal encoding: 20 bytes, as the Redlock specification
/// suggests.
pub(crate) const TOKEN_BYTES: usize = 20;

/// Returns the random bytes of a new token. Every round uses a new token. Fails if the operating system provides no
/// random bytes.
pub(crate) fn random_token() -> Result<[u8; TOKEN_BYTES]> {
    let mut bytes = [0; TOKEN_BYTES];
    fill(&mut bytes).map_err(|error| {
        let message = format!("the operating system gives no random numbers: {error}");
        Error::new(ErrorCode::NoQuorum, message)
    })?;
    Ok(bytes)
}

/// A random number for delays; 0 if the operating system provides no random bytes.
pub(crate) fn random() -> u32 {
    let mut bytes = [0; 4];
    fill(&mut bytes).map_or(0, |()| u32::from_ne_bytes(bytes))
}

/// A random factor from 0.5 to 1. Intervals are multiplied by this factor, so that clients do not all act at the same
/// time, for example when they reconnect.
pub(crate) fn jitter() -> f64 {
    0.5 + 0.5 * f64::from(random()) / f64::from(u32::MAX)
}

fn fill(bytes: &mut [u8]) -> std::result::Result<(), getrandom::Error> {
    #[cfg(test)]
    if let Some(machine) = crate::runtime::machine::current() {
        machine.fill(bytes);
        return Ok(());
    }
    getrandom::fill(bytes)
}
