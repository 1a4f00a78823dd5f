//! Randomness from the operating system.

use crate::error::{Error, ErrorCode, Result};

/// As long as the specification suggests: 20 bytes.
pub(crate) const TOKEN_BYTES: usize = 20;

/// A new token, as 40 hexadecimal digits. Every round has its own.
pub(crate) fn token() -> Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    fill(&mut bytes).map_err(|error| {
        let message = format!("the operating system gives no random numbers: {error}");
        Error::new(ErrorCode::NoQuorum, message)
    })?;
    let mut token = String::with_capacity(2 * TOKEN_BYTES);
    for byte in bytes {
        token.extend(
            [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])),
        );
    }
    Ok(token)
}

/// A random number for delays; where there is none, delays are the shortest.
pub(crate) fn random() -> u32 {
    let mut bytes = [0; 4];
    fill(&mut bytes).map_or(0, |()| u32::from_ne_bytes(bytes))
}

/// A factor between a half and one, so that clients do not reconnect in step.
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
