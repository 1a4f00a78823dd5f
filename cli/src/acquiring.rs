//! Acquires a lock, or adopts a lease, for `run` and `acquire`: says what it waits for, and retries during an outage.

use crate::args::{Acquiring, Named, Run};
use crate::duration::{self, show};
use crate::output::{Failure, Output};
use quorlock::{
    Adoption, Client, Dialect, Error, ErrorCode, Lease, Lock, OptionValue, Pending, Semaphore,
    printable,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The pause between two attempts while too few nodes can vote.
const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// The value of `--wait` for a single attempt.
pub(crate) const NOW: OptionValue = OptionValue::Number(0.0);

/// Where a lease comes from.
#[derive(Clone)]
pub(crate) enum Source {
    Lock(Lock),
    Semaphore(Semaphore),
    /// A lease that was detached.
    Adoption(Adoption),
}

impl Source {
    /// Returns the lock or the semaphore that `run` is to acquire.
    pub(crate) fn wanted(client: &Client, wanted: &Run) -> Self {
        let (Some(limit), [resource]) = (wanted.limit, &*wanted.resources) else {
            return Self::Lock(client.lock(wanted.resources.clone()));
        };
        let limit = OptionValue::Number(limit);
        let source = Self::Semaphore(client.semaphore_as(Dialect::CommandLine, resource, &limit));
        match wanted.permits {
            Some(permits) => {
                source.option(&Named::default(), "permits", &OptionValue::Number(permits))
            }
            None => source,
        }
    }

    /// Sets an option, such as `max_hold`, which errors name as `named` does.
    pub(crate) fn option(self, named: &Named, option: &str, value: &OptionValue) -> Self {
        let (dialect, name) = named.option(option);
        match self {
            Self::Lock(lock) => Self::Lock(lock.option(dialect, &name, value)),
            Self::Semaphore(semaphore) => Self::Semaphore(semaphore.option(dialect, &name, value)),
            Self::Adoption(adoption) => Self::Adoption(adoption.option(dialect, &name, value)),
        }
    }

    /// Sets the mode of each resource.
    fn shared(self, wanted: &Acquiring) -> Self {
        match self {
            Self::Lock(lock) if wanted.shared => Self::Lock(lock.shared()),
            Self::Lock(lock) if !wanted.shared_for.is_empty() => {
                Self::Lock(lock.shared_for(&*wanted.shared_for))
            }
            source => source,
        }
    }

    pub(crate) fn checked(self) -> Result<Self, Error> {
        Ok(match self {
            Self::Lock(lock) => Self::Lock(lock.checked()?),
            Self::Semaphore(semaphore) => Self::Semaphore(semaphore.checked()?),
            Self::Adoption(adoption) => Self::Adoption(adoption.checked()?),
        })
    }

    /// Returns the names of its resources for a message.
    fn names(&self) -> String {
        match self {
            Self::Lock(lock) => names(lock.resources()),
            Self::Semaphore(semaphore) => names(&[semaphore.resource().to_owned()]),
            Self::Adoption(adoption) => names(adoption.resources()),
        }
    }

    fn acquire(&self) -> Pending<Result<Lease, Error>> {
        match self {
            Self::Lock(lock) => lock.acquire(),
            Self::Semaphore(semaphore) => semaphore.acquire(),
            Self::Adoption(adoption) => adoption.acquire(),
        }
    }
}

/// Acquires the lock or adopts the lease. Dropping the future ends the wait, and leaves nothing held that was not
/// held before.
pub(crate) async fn acquire(
    source: &Source,
    wanted: &Acquiring,
    output: &Output,
) -> Result<Lease, Failure> {
    let began = Instant::now();
    let mut source = source.clone();
    let wait = if wanted.nonblock { Some(&NOW) } else { wanted.wait.as_ref() };
    if let Some(wait) = wait {
        source = source.option(&wanted.named, "wait", wait);
    }
    if let Some(holder) = &wanted.holder {
        source = source.option(&wanted.named, "holder", &OptionValue::Text(holder.clone()));
    }
    let source = source.shared(wanted).checked()?;
    let outage = outage(wanted)?;
    let mut is_outage_known = false;
    loop {
        let error = match attempt(&source, wait, output).await {
            Ok(lease) => {
                tell_acquired(&source, &lease, began, output);
                return Ok(lease);
            }
            Err(error) => error,
        };
        match error.code() {
            ErrorCode::Timeout => return Err(Failure::Conflict(error, wanted.conflict_exit_code)),
            ErrorCode::NoQuorum if outage.is_none_or(|outage| began.elapsed() < outage) => {}
            _ => return Err(error.into()),
        }
        if !std::mem::replace(&mut is_outage_known, true) {
            let limit =
                outage.map_or_else(String::new, |outage| format!(" for up to {}", show(outage)));
            output.note(format_args!("{}; retrying{limit}", error.message()));
        }
        output.detail(error.nodes());
        sleep(OUTAGE_PAUSE).await;
    }
}

/// Acquires the lock, and first says that it is held if a single try shows that.
async fn attempt(
    source: &Source,
    wait: Option<&OptionValue>,
    output: &Output,
) -> Result<Lease, Error> {
    if wait != Some(&NOW) {
        match source.clone().option(&Named::default(), "wait", &NOW).acquire().await {
            Err(error) if error.code() == ErrorCode::Timeout => {
                let by =
                    error.holder().map_or_else(String::new, |holder| format!(", held by {holder}"));
                output.note(format_args!("waiting for {}{by}", source.names()));
                output.detail(error.nodes());
            }
            // A single try gives up at once, so the acquire below decides whether it is an outage.
            Err(error) if error.code() == ErrorCode::NoQuorum => {}
            result => return result,
        }
    }
    source.acquire().await
}

fn tell_acquired(source: &Source, lease: &Lease, began: Instant, output: &Output) {
    let fence = lease.fences().next().map_or(0, |(_, fence)| fence);
    let name = names(lease.resources());
    let waited = show(began.elapsed());
    let holder = match lease.holder() {
        "" => String::new(),
        holder => format!(" as {holder}"),
    };
    let verb = match source {
        Source::Lock(_) | Source::Semaphore(_) => "acquired",
        Source::Adoption(_) => "adopted",
    };
    let permits = match slots(lease) {
        Some(slots) if slots.contains(',') => format!(", permits {slots}"),
        Some(slot) => format!(", permit {slot}"),
        None => String::new(),
    };
    output.note(format_args!("{verb} {name}{holder} after {waited}, fence {fence}{permits}"));
}

/// Returns the slots of a lease of permits, separated by commas.
pub(crate) fn slots(lease: &Lease) -> Option<String> {
    let slots: Vec<_> = lease.slots().iter().map(u32::to_string).collect();
    (!slots.is_empty()).then(|| slots.join(","))
}

/// Returns how long an outage at the start may last; `None` for no limit.
fn outage(wanted: &Acquiring) -> Result<Option<Duration>, Failure> {
    match &wanted.outage {
        None => Ok(Some(Duration::ZERO)),
        Some(OptionValue::Null) => Ok(None),
        Some(value) => duration::of(value).map(Some).ok_or_else(|| {
            let name = wanted.named.name("outage");
            Failure::Usage(format!("{name} must be a duration of 0 or more, or forever"))
        }),
    }
}

/// Returns the names of resources for a message.
pub(crate) fn names(resources: &[String]) -> String {
    resources
        .iter()
        .map(|resource| printable(&quorlock::shortened(resource)).into_owned())
        .collect::<Vec<_>>()
        .join(", ")
}
