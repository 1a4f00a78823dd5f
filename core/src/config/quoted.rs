//! How messages show names that a user has given. All modules that write messages use this module.

use crate::config::secret::has_lease_text;
use std::borrow::Cow;
use std::fmt;

/// The largest number of characters of a name that messages show.
const SHOWN_LENGTH: usize = 100;

/// A name from a user, in the form that messages show: in quotes, and cut if it is long. A name that contains the text
/// of a lease is shown as `***`, because that text is a secret.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match has_lease_text(self.0) {
            true => f.write_str("\"***\""),
            false => write!(f, "{:?}", shortened(self.0)),
        }
    }
}

/// Returns the name of a resource in the form that messages show: a name of more than 100 characters is cut after the
/// first 100 characters, and `…` is added. For language bindings.
pub fn shortened(resource: &str) -> Cow<'_, str> {
    match resource.char_indices().nth(SHOWN_LENGTH) {
        Some((end, _)) => format!("{}…", &resource[..end]).into(),
        None => resource.into(),
    }
}
