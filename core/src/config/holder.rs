//! Holder names: which names are valid, and the default. Names are for people; no lock relies on them.
//!
//! `options.rs` uses this module to check the option `holder`, and `wire/token.rs` to check names that other programs
//! have stored.

use crate::config::secret::without_secrets;
use crate::error::printable::is_printable;
use std::fmt;

/// The maximum length of a name, in bytes.
pub(crate) const MAX_HOLDER: usize = 128;
/// The number of characters of an invalid name that an error shows.
const SHOWN: usize = 32;

/// Whether a name may be stored and shown. The empty name means no name.
pub(crate) fn is_valid(name: &str) -> bool {
    name.len() <= MAX_HOLDER && name.chars().all(is_printable)
}

/// The default name of this process, `hostname:pid`. A forked child has another name, because its process ID differs.
pub(crate) fn of_this_process() -> String {
    let pid = format!(":{}", std::process::id());
    let mut name: String = hostname().chars().filter(|letter| is_printable(*letter)).collect();
    while name.len() + pid.len() > MAX_HOLDER {
        name.pop();
    }
    name + &pid
}

#[cfg(unix)]
fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn hostname() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// Displays an invalid name in an error, without secrets and with unprintable characters escaped. A long name is
/// shortened, and its length follows.
pub(crate) struct Invalid<'a>(pub(crate) &'a str);

impl fmt::Display for Invalid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0;
        let shown = without_secrets(name);
        if shown != name {
            return write!(f, "{shown:?} ({} bytes)", name.len());
        }
        match name.char_indices().nth(SHOWN) {
            None => write!(f, "{name:?}"),
            Some((end, _)) => write!(f, "{:?}… ({} bytes)", &name[..end], name.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_HOLDER, is_valid, of_this_process};

    #[test]
    fn default_name_is_valid_and_names_the_process() {
        let name = of_this_process();
        assert!(is_valid(&name), "{name}");
        let (host, pid) = name.rsplit_once(':').expect("hostname:pid");
        assert!(!host.is_empty() && host.len() < MAX_HOLDER, "{name}");
        assert_eq!(pid, std::process::id().to_string());
    }
}
