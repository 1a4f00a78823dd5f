//! Model checking: every order of events, up to a bound, of the production state machines.
//!
//! The state of the model is made of the very types that the driver runs: [`Round`], [`Lease`],
//! [`Extension`], [`Release`] and [`Guard`] on the clients, [`Entry`] on the nodes. What is modelled is
//! only what surrounds them: a network that delays messages at will, loses them with their
//! connection, and delivers some of them after the connection was replaced; clocks that run at
//! different rates; nodes that restart, with their memory or without; clients that give up on a node,
//! cancel, crash, or stop for a while (which is the same as that all their messages are slow).
//!
//! [stateright](https://docs.rs/stateright) does the search. `make model` runs all of it and prints
//! the figures; `docs/verification.md` has them.
//!
//! [`Round`]: crate::Round
//! [`Lease`]: crate::Lease
//! [`Extension`]: crate::Extension
//! [`Release`]: crate::Release
//! [`Guard`]: crate::Guard
//! [`Entry`]: crate::node::entry::Entry

mod beginning;
mod check;
mod client;
mod directed;
mod happens;
mod properties;
mod sameness;
mod scope;
mod scopes;
mod settings;
mod step;
mod turns;
mod world;
