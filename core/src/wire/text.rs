//! Writes leases as texts for other processes, and reads these texts.
//!
//! A text names its kind and its version, and ends with a checksum. So a text that was cut or changed is refused with a
//! reason. A text contains a token, so the text is a secret: no error may contain it. `client/kept.rs` and
//! `lock/claim/handover.rs` define what the texts of each kind contain.

use crate::config::secret::{DETACHED_MARK, KEPT_MARK};
use crate::error::{Error, Result};
use crc::{CRC_32_ISO_HDLC, Crc};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The number of hexadecimal digits of the checksum at the end of a text.
const CHECKSUM: usize = 8;

static CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// A kind of lease text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextKind {
    /// A text from `quorlock acquire`: any number of processes can share the lease.
    Kept,
    /// A text from `Lease::detach`: one adopter takes over the lease.
    Detached,
}

/// The version of the texts that this release writes and reads.
const VERSION: &str = "1:";

impl TextKind {
    const ALL: [Self; 2] = [Self::Kept, Self::Detached];

    /// The beginning of every lease text of this kind; the version of the text follows it.
    fn mark(self) -> &'static str {
        match self {
            Self::Kept => KEPT_MARK,
            Self::Detached => DETACHED_MARK,
        }
    }

    /// The error for a text of this kind where a text of the other kind is expected.
    fn misplaced(self) -> Error {
        Error::config(match self {
            Self::Kept => {
                "the text is of a lease that quorlock acquire has printed, which is shared and not handed over: \
                 pass the text that detach has returned"
            }
            Self::Detached => {
                "the text is of a lease that was detached, to be handed over: adopt it instead, with quorlock run \
                 --adopt"
            }
        })
    }

    /// The error for a text that is not a lease text of any kind. `self` is the expected kind.
    fn unknown(self) -> Error {
        Error::config(match self {
            Self::Kept => "this is no lease text: give exactly what the acquire has returned",
            Self::Detached => "this is no lease text: pass exactly what detach has returned",
        })
    }
}

/// Returns the checksum of a text. Two different texts very probably have different checksums.
pub(crate) fn checksum(text: &str) -> u32 {
    CRC.checksum(text.as_bytes())
}

/// Writes a lease as a text of only letters, digits, `-` and `:`.
pub(crate) fn write(kind: TextKind, lease: &impl Serialize) -> String {
    let json = serde_json::to_vec(lease).expect("it contains only values that JSON can represent");
    let hex: String = json.iter().map(|byte| format!("{byte:02x}")).collect();
    let checksum = checksum(&hex);
    format!("{}{VERSION}{hex}{checksum:0CHECKSUM$x}", kind.mark())
}

/// The error for a text that was cut or changed, or whose contents are impossible.
pub(crate) fn damaged() -> Error {
    Error::config("the lease text is damaged: it is not complete, or was changed")
}

/// Reads a lease text of this kind. Errors do not contain the text. The caller must check the values in the returned
/// lease, and must fail with [`damaged`] if they are impossible.
pub(crate) fn read<L: DeserializeOwned>(kind: TextKind, text: &str) -> Result<L> {
    let text = text.trim();
    let Some(rest) = text.strip_prefix(kind.mark()) else {
        let other = TextKind::ALL.into_iter().find(|other| text.starts_with(other.mark()));
        return Err(other.map_or_else(|| kind.unknown(), TextKind::misplaced));
    };
    let Some(rest) = rest.strip_prefix(VERSION) else {
        let (version, _) = rest.split_once(':').ok_or_else(damaged)?;
        version.parse::<u32>().map_err(|_| damaged())?;
        return Err(Error::config(
            "the lease text is from another version of quorlock, which writes lease texts of another form: \
             use the same version on both sides",
        ));
    };
    let end = rest.len().checked_sub(CHECKSUM).ok_or_else(damaged)?;
    let (hex, digits) = rest.split_at_checked(end).ok_or_else(damaged)?;
    if format!("{:0CHECKSUM$x}", checksum(hex)) != digits {
        return Err(damaged());
    }
    let byte = |pair: &[u8]| {
        let digits = std::str::from_utf8(pair).ok().filter(|digits| digits.len() == 2)?;
        u8::from_str_radix(digits, 16).ok()
    };
    let json: Option<Vec<_>> = hex.as_bytes().chunks(2).map(byte).collect();
    serde_json::from_slice(&json.ok_or_else(damaged)?).map_err(|_| damaged())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::{TextKind, VERSION, checksum, read, write};
    use crate::error::{Error, ErrorCode};

    type Contents = (String, Vec<u32>);

    fn lease() -> Contents {
        ("orders:42 ü \"x\"\n".to_owned(), vec![0, u32::MAX])
    }

    fn refusal(kind: TextKind, text: &str) -> Error {
        let error = read::<Contents>(kind, text).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Config);
        assert!(!error.message().contains("5b22"), "{error}");
        error
    }

    #[test]
    fn text_can_be_read_again() {
        for kind in TextKind::ALL {
            let text = write(kind, &lease());
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-:".contains(letter);
            assert!(text.chars().all(is_plain), "{text}");
            assert_eq!(read::<Contents>(kind, &format!(" {text}\n")).unwrap(), lease());
        }
    }

    #[test]
    fn damaged_text_is_refused_without_being_shown() {
        for kind in TextKind::ALL {
            let text = write(kind, &lease());
            let mut texts: Vec<_> = (0..text.len()).map(|end| text[..end].to_owned()).collect();
            for at in 0..text.len() {
                let other = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
                texts.push(format!("{}{other}{}", &text[..at], &text[at + 1..]));
            }
            texts.push(format!("{text}{text}"));
            texts.push(format!("{}{VERSION}€€€€€€€€", kind.mark()));
            let number = write(kind, &7);
            texts.push(number);
            for text in texts {
                refusal(kind, &text);
            }
        }
    }

    #[test]
    fn refusal_says_what_is_wrong_with_the_text() {
        for (kind, other) in
            [(TextKind::Kept, TextKind::Detached), (TextKind::Detached, TextKind::Kept)]
        {
            let text = write(kind, &lease());
            let later = text.replace(VERSION, "2:");
            assert!(refusal(kind, &later).message().contains("another version of quorlock"));
            let cut = &text[..text.len() - 1];
            assert!(refusal(kind, cut).message().contains("damaged"));
            assert!(refusal(kind, "orders:42").message().contains("no lease text"));
            let misplaced = refusal(other, &text);
            assert!(misplaced.message().starts_with("the text is of a lease that"), "{misplaced}");
        }
        assert_ne!(checksum("a"), checksum("b"));
    }
}
