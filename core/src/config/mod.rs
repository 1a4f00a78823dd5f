//! What a client is told: nodes, options and resources, checked before anything starts.

pub(crate) mod endpoint;
pub(crate) mod nodes;
pub(crate) mod options;
pub(crate) mod resources;
pub(crate) mod server;
pub(crate) mod tls;
pub(crate) mod url;
