//! Model checking: runs the production state machines through every order of events, up to a bound.
//!
//! The state of the model consists of the types that the driver runs: [`Claim`], [`Extension`] and
//! [`Guard`] on the clients, [`Entry`] on the nodes. Only the surroundings of these types are modelled:
//!
//! - a network that delays messages, loses them when their connection breaks, and delivers some of them after the
//!   connection was replaced;
//! - clocks that run at different rates;
//! - nodes that restart, with or without their memory;
//! - clients that give up on a node, cancel or crash. (A paused client needs no event of its own: it is
//!   the same as slow messages.)
//!
//! [stateright](https://docs.rs/stateright) performs the search. `make model` runs all searches and prints the size of
//! each search. `docs/verification.md` lists the searches. Only tests use this module.
//!
//! [`Claim`]: crate::Claim
//! [`Extension`]: crate::Extension
//! [`Guard`]: crate::Guard
//! [`Entry`]: crate::node::entry::Entry

mod action;
mod beginning;
mod check;
mod client;
mod directed;
mod happens;
mod owned;
mod properties;
mod sameness;
mod scope;
mod scopes;
mod settings;
mod step;
mod turns;
mod world;
