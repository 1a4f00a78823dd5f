//! The results of operations, as JavaScript gets them, and their way into the mailbox.
//!
//! [`Outcome`] lists the types of all results. The native part of `Lease` is one of them, and has a mailbox of outcomes
//! itself, so its struct is here; `lease.rs` has its methods. `client`, `semaphore`, `election` and `lease` call
//! [`begin`].

use crate::convert::{Failure, NodeReport};
use crate::mailbox;
use napi::bindgen_prelude::{Either9, Null};
use napi::{Error, Result, Status};
use napi_derive::napi;
use quorlock::Pending;
use std::sync::Weak;

/// The mailbox of one environment, which delivers outcomes.
pub(crate) type Mailbox = mailbox::Mailbox<Outcome>;

/// What JavaScript gets as the result of an operation.
pub(crate) type Outcome =
    Either9<Lease, bool, String, Vec<String>, Failure, (), Null, Vec<NodeReport>, Detached>;

/// The native part of `Lease`.
#[napi]
pub struct Lease {
    pub(crate) lease: quorlock::Lease,
    // Weak, to avoid a reference cycle: undelivered results in the mailbox may be leases.
    pub(crate) mailbox: Weak<Mailbox>,
}

/// A lease that was detached. If its environment ends before the text was taken, the lock is released.
#[napi]
pub struct Detached(Option<quorlock::Detached>);

#[napi]
impl Detached {
    /// Returns the text, the first time.
    #[napi(catch_unwind)]
    pub fn take(&mut self) -> Option<String> {
        self.0.take().map(quorlock::Detached::into_text)
    }
}

/// Registers an operation with the mailbox, which will deliver its result. Returns the operation's number.
/// Fails if the environment is being torn down.
pub(crate) fn begin<T: IntoOutcome>(mailbox: &Weak<Mailbox>, pending: Pending<T>) -> Result<f64> {
    let mailbox = mailbox.upgrade().ok_or_else(|| Error::from_status(Status::Closing))?;
    Ok(mailbox.expect(pending, T::into_outcome))
}

/// The result of a core operation.
pub(crate) trait IntoOutcome: Send + 'static {
    /// `mailbox` is the one that delivers the outcome.
    fn into_outcome(self, mailbox: &Weak<Mailbox>) -> Outcome;
}

/// An error becomes a plain object.
impl<T: IntoOutcome> IntoOutcome for quorlock::Result<T> {
    fn into_outcome(self, mailbox: &Weak<Mailbox>) -> Outcome {
        self.map_or_else(|error| Either9::E(error.into()), |value| value.into_outcome(mailbox))
    }
}

/// `None` becomes `null`.
impl<T: IntoOutcome> IntoOutcome for Option<T> {
    fn into_outcome(self, mailbox: &Weak<Mailbox>) -> Outcome {
        self.map_or(Either9::G(Null), |value| value.into_outcome(mailbox))
    }
}

/// Becomes `undefined`.
impl IntoOutcome for () {
    fn into_outcome(self, _: &Weak<Mailbox>) -> Outcome {
        Either9::F(())
    }
}

impl IntoOutcome for bool {
    fn into_outcome(self, _: &Weak<Mailbox>) -> Outcome {
        Either9::B(self)
    }
}

impl IntoOutcome for quorlock::Lease {
    fn into_outcome(self, mailbox: &Weak<Mailbox>) -> Outcome {
        Either9::A(Lease { lease: self, mailbox: Weak::clone(mailbox) })
    }
}

impl IntoOutcome for quorlock::Detached {
    fn into_outcome(self, _: &Weak<Mailbox>) -> Outcome {
        Either9::I(Detached(Some(self)))
    }
}

/// Becomes an array of two strings: its name and its fence.
impl IntoOutcome for quorlock::Leader {
    fn into_outcome(self, _: &Weak<Mailbox>) -> Outcome {
        Either9::D(vec![self.holder, self.fence.to_string()])
    }
}

/// Becomes an array of two strings: text and JSON.
impl IntoOutcome for quorlock::Diagnosis {
    fn into_outcome(self, _: &Weak<Mailbox>) -> Outcome {
        Either9::D(vec![self.to_string(), self.to_json()])
    }
}

/// Becomes JSON.
impl IntoOutcome for quorlock::Status {
    fn into_outcome(self, _: &Weak<Mailbox>) -> Outcome {
        Either9::C(self.to_json())
    }
}

/// Becomes JSON.
impl IntoOutcome for quorlock::SemaphoreStatus {
    fn into_outcome(self, _: &Weak<Mailbox>) -> Outcome {
        Either9::C(self.to_json())
    }
}

impl IntoOutcome for Vec<quorlock::NodeReport> {
    fn into_outcome(self, _: &Weak<Mailbox>) -> Outcome {
        Either9::H(self.iter().map(NodeReport::from).collect())
    }
}
