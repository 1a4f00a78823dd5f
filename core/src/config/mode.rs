//! The modes in which a lock holds its resources: exclusive, or shared with other readers. Each resource of a lock has
//! its own mode.

use crate::config::quoted::Quoted;
use crate::config::resources::{MAX_RESOURCES, Resources};
use crate::error::{Error, Result};
use std::sync::Arc;

/// How a lock holds a resource: `exclusive` or `shared`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// One holder at a time.
    #[default]
    Exclusive,
    /// Any number of holders at a time, if all of them hold the resource in this mode.
    Shared,
}

impl Mode {
    /// The mode as a stable word for programs: `exclusive` or `shared`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Exclusive, Self::Shared].into_iter().find(|mode| mode.as_str() == word)
    }
}

/// The modes of the resources of a lock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Modes {
    /// All resources have this mode.
    All(Mode),
    /// The named resources have these modes. All others are exclusive.
    Each(Arc<[(String, Mode)]>),
}

impl Default for Modes {
    fn default() -> Self {
        Self::All(Mode::Exclusive)
    }
}

impl Modes {
    /// Returns modes in which these resources are shared and all others are exclusive.
    pub(crate) fn shared(resources: impl IntoIterator<Item = String>) -> Self {
        Self::Each(resources.into_iter().map(|resource| (resource, Mode::Shared)).collect())
    }

    pub(crate) fn of(&self, resource: &str) -> Mode {
        match self {
            Self::All(mode) => *mode,
            Self::Each(modes) => {
                let own = modes.iter().find(|(name, _)| name == resource);
                own.map(|(_, mode)| *mode).unwrap_or_default()
            }
        }
    }

    pub(crate) fn has_shared(&self, resources: &Resources) -> bool {
        let is_shared = |resource: &String| self.of(resource) == Mode::Shared;
        *self != Self::default() && resources.iter().any(is_shared)
    }

    /// Returns the positions of the shared resources. The text of a lease contains these positions.
    pub(crate) fn shared_positions(&self, resources: &Resources) -> Vec<usize> {
        let is_shared = |position: &usize| self.of(&resources[*position]) == Mode::Shared;
        (0..resources.len()).filter(is_shared).collect()
    }

    /// Whether [`Modes::shared_positions`] can have returned these positions for some of `count` resources. Must be
    /// checked first for a text that anyone may have made: otherwise, a short text could name a resource any number of
    /// times.
    pub(crate) fn are_positions(positions: &[usize], count: usize) -> bool {
        (1..=MAX_RESOURCES).contains(&count)
            && positions.is_sorted_by(|one, other| one < other)
            && positions.iter().all(|position| *position < count)
    }

    /// Returns modes in which the resources at these positions are shared: the inverse of [`Modes::shared_positions`].
    /// Ignores positions at which there is no resource.
    pub(crate) fn with_shared_positions(resources: &Resources, positions: &[usize]) -> Self {
        Self::shared(positions.iter().filter_map(|position| resources.get(*position).cloned()))
    }

    /// Fails if a mode was given for a resource that is not one of `resources`.
    pub(crate) fn check(&self, resources: &Resources) -> Result<()> {
        let Self::Each(modes) = self else { return Ok(()) };
        match modes.iter().find(|(name, _)| !resources.contains(name)) {
            Some((name, _)) => Err(Error::config(format!(
                "the mode of {} is given, which is not a resource of this lock; its resources are {resources}",
                Quoted(name)
            ))),
            None => Ok(()),
        }
    }
}
