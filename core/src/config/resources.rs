//! The resources of one lock: their number and names. `command/keys.rs` checks the keys that follow
//! from the names.

use crate::error::{Error, Result};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The maximum number of resources of one lock. It is limited because a server runs no other
/// command while it locks them.
const MAX_RESOURCES: usize = 64;

/// The resources of one lock: 1 to 64 different, non-empty strings. Convertible from a string or
/// from a list of strings.
///
/// All of them are locked or none, by one request to each node. So two locks that name the same
/// resources in different orders cannot deadlock.
#[derive(Clone, PartialEq, Eq)]
pub struct Resources(Arc<[String]>);

impl Resources {
    /// Fails if there are too many resources, one is empty or one is named twice.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.iter().any(String::is_empty) {
            return Err(Error::config(
                "the resource must be a string of Unicode characters that is not empty",
            ));
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
            Some(pair) => Err(Error::config(format!("the resource {:?} is named twice", pair[0]))),
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
    /// Writes the names in quotes, separated by commas, for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, resource) in self.0.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            write!(f, "{separator}{resource:?}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
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
