//! Majorities and sets of nodes. Used by every other module of this crate.

/// The maximum number of nodes of a client. Fault tolerance needs far fewer; five is usual.
pub const MAX_NODES: usize = 32;

/// The number of nodes and the size of a majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    nodes: usize,
}

impl Quorum {
    /// Returns the quorum of `nodes` nodes; `None` unless `nodes` is 1 to [`MAX_NODES`].
    pub fn over(nodes: usize) -> Option<Self> {
        (1..=MAX_NODES).contains(&nodes).then_some(Self { nodes })
    }

    /// N: the number of nodes.
    pub fn nodes(self) -> usize {
        self.nodes
    }

    /// All nodes.
    pub fn all(self) -> NodeSet {
        (0..self.nodes).collect()
    }

    /// q = floor(N/2) + 1: the smallest size at which any two sets of that many nodes overlap.
    pub fn size(self) -> usize {
        self.nodes / 2 + 1
    }

    /// N − q: the number of nodes that may fail while a majority remains.
    pub fn tolerated(self) -> usize {
        self.nodes - self.size()
    }
}

/// A set of nodes. A node is identified by its position in the client's list, from 0 to
/// [`MAX_NODES`] − 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(u32);

impl NodeSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Adds `node`, which must be below [`MAX_NODES`].
    pub fn insert(&mut self, node: usize) {
        debug_assert!(node < MAX_NODES);
        self.0 |= 1 << node;
    }

    /// Removes `node`.
    pub fn remove(&mut self, node: usize) {
        self.0 &= !(1 << node);
    }

    /// Whether `node` is in the set.
    pub fn contains(self, node: usize) -> bool {
        self.0 & (1 << node) != 0
    }

    /// The number of nodes in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes that are in this set or in `others`.
    #[must_use]
    pub fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// The nodes that are in this set and not in `others`.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// The nodes in the set, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_NODES).filter(move |node| self.contains(*node))
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> Self {
        let mut set = Self::EMPTY;
        nodes.into_iter().for_each(|node| set.insert(node));
        set
    }
}
