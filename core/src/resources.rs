//! What is locked together.

use crate::error::{Error, Result};
use crate::request::{Keys, is_reserved};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// So many resources can be locked together. A server does nothing else while it takes them.
const MAX_RESOURCES: usize = 64;

/// The resources that one lease is of: 1 to 64 different ones, none of which is empty. Made from a
/// string, or from several.
///
/// They are locked all or none, by one request to each node. So locks that name the same resources in
/// different orders cannot block one another for ever.
#[derive(Clone, PartialEq, Eq)]
pub struct Resources(Arc<[String]>);

impl Resources {
    /// Fails unless these can be locked together, with this prefix.
    pub(crate) fn check(&self, prefix: &str) -> Result<()> {
        if self.0.iter().any(String::is_empty) {
            return Err(Error::config(
                "the resource must be a string of Unicode characters that is not empty",
            ));
        }
        for resource in self.0.iter().filter(|name| name.contains('{') || prefix.contains('{')) {
            let key = format!("{prefix}{resource}");
            if is_reserved(&key) {
                return Err(Error::config(format!(
                    "the resource {resource:?} is reserved: its key would be {key:?}, and keys with a hash \
                     tag that end in \":fence\" or \":queue\" are those that quorlock keeps beside a lock"
                )));
            }
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

    /// Fails if the keys of several resources, with this prefix, are in several slots of a Redis Cluster,
    /// where no request can be about all of them.
    pub(crate) fn check_slots(&self, prefix: &str) -> Result<()> {
        let keys = |resource: &String| Keys::new(prefix, resource);
        if let Some(resource) = self.0.iter().find(|resource| !keys(resource).share_a_slot()) {
            return Err(Error::config(format!(
                "the resource {resource:?} cannot be locked on a Redis Cluster: its braces make no hash \
                 tag, such as that of {{orders}}:1"
            )));
        }
        let mut slots = self.0.iter().map(|resource| (resource, keys(resource).slot()));
        let Some((first, slot)) = slots.next() else { return Ok(()) };
        match slots.find(|(_, other)| *other != slot) {
            Some((other, _)) => Err(Error::config(format!(
                "the resources {first:?} and {other:?} are in different slots of the Redis Cluster, \
                 so they cannot be locked together: give all of them the same hash tag, such as \
                 {{orders}}:1 and {{orders}}:2"
            ))),
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
    /// As in a sentence.
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
