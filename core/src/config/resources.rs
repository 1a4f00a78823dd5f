//! The resources of one lock: their number and names. `wire/keys.rs` checks the keys that are made from the names.

use crate::config::quoted::Quoted;
use crate::config::secret::has_lease_text;
use crate::config::value::{Dialect, OptionValue};
use crate::error::{Error, Result};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The maximum number of resources of one lock. There is a limit because a server runs no other command while it locks
/// the resources.
pub(crate) const MAX_RESOURCES: usize = 64;

/// The maximum length of a resource in bytes. A longer text is probably not a name, but a whole document that was
/// passed by mistake.
const MAX_LENGTH: usize = 8192;

/// The resources of one lock: 1 to 64 different strings of 1 to 8,192 bytes. Convertible from a
/// string or from a list of strings.
///
/// One request to each node locks all of them or none. So two locks that name the same resources in different orders
/// cannot deadlock.
#[derive(Clone, PartialEq, Eq)]
pub struct Resources(Arc<[String]>);

impl Resources {
    /// Fails if there are no resources or too many of them, or if a resource is empty, is too long, contains the text
    /// of a lease, or is named twice.
    pub(crate) fn check(&self) -> Result<()> {
        for (index, resource) in self.0.iter().enumerate() {
            let length = resource.len();
            let name =
                if self.0.len() > 1 { &*format!("resource {}", index + 1) } else { "the resource" };
            if has_lease_text(resource) {
                return Err(Error::config(format!(
                    "{name} must be a name, not the text of a lease, which is a secret: to release or extend that \
                     lease, use quorlock release or quorlock extend with the text in QUORLOCK_LEASE; to adopt a \
                     detached lease, pass the text to adopt"
                )));
            }
            if (1..=MAX_LENGTH).contains(&length) {
                continue;
            }
            let given = if length == 0 {
                "an empty one"
            } else {
                &*format!("of {length}: {}", Quoted(resource))
            };
            return Err(Error::config(format!(
                "{name} must be a string of 1 to {MAX_LENGTH} bytes, not {given}"
            )));
        }
        if !(1..=MAX_RESOURCES).contains(&self.0.len()) {
            let given = self.0.len();
            return Err(Error::config(format!(
                "the resources must be 1 to {MAX_RESOURCES} different ones, not {given}"
            )));
        }
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                let resource = Quoted(pair[0]);
                Err(Error::config(format!("the resource {resource} is named twice")))
            }
            None => Ok(()),
        }
    }
}

impl Deref for Resources {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Resources {
    /// Writes the names in quotes, shortened and separated by commas, for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, resource) in self.0.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            write!(f, "{separator}{}", Quoted(resource))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

/// Returns the error for a value that was given as a resource but is not a string of Unicode characters, for language
/// bindings. `position` is the position of the value, from 0; `None` if only one resource is given. `accepted` says
/// which types the argument may have.
pub fn wrong_resource(
    dialect: Dialect,
    position: Option<usize>,
    accepted: &str,
    given: &OptionValue,
) -> Error {
    let name = match position {
        Some(position) => &*format!("resource {}", position + 1),
        None => "the resource",
    };
    let accepted = match given {
        OptionValue::NotUnicode => "a string of Unicode characters",
        _ => accepted,
    };
    let advice = match (given, dialect, position) {
        (OptionValue::Number(number), Dialect::Python, Some(1..)) => {
            let argument = dialect.argument("ttl", *number);
            format!("; if it is the ttl in seconds, write {argument}")
        }
        _ => String::new(),
    };
    let given = given.shown(dialect);
    Error::config(format!("{name} must be {accepted}, not {given}{advice}"))
}

impl From<&str> for Resources {
    fn from(resource: &str) -> Self {
        Self([resource.to_owned()].into())
    }
}

impl From<String> for Resources {
    fn from(resource: String) -> Self {
        Self([resource].into())
    }
}

impl From<&String> for Resources {
    fn from(resource: &String) -> Self {
        resource.as_str().into()
    }
}

impl<S: Into<String>> From<Vec<S>> for Resources {
    fn from(resources: Vec<S>) -> Self {
        Self(resources.into_iter().map(Into::into).collect())
    }
}

impl<S: Into<String>, const N: usize> From<[S; N]> for Resources {
    fn from(resources: [S; N]) -> Self {
        Self(resources.into_iter().map(Into::into).collect())
    }
}

impl<S: AsRef<str>> From<&[S]> for Resources {
    fn from(resources: &[S]) -> Self {
        Self(resources.iter().map(|resource| resource.as_ref().to_owned()).collect())
    }
}
