//! Unit tests only: reports what clients decide to the simulation, which writes it for the trace
//! checker (`proof/tie`). Each report is the elements of a JSON array.

use crate::command::keys::KeyMode;
use crate::command::request::{Request, Subject};
use crate::runtime::machine::record;
use quorlock_protocol::{Actions, Answer, Event, Extended, Moment, NodeSet, Outcome, Term, Vote};
use std::fmt::Write;
use std::time::Duration;

fn nanos(moment: Moment) -> u128 {
    moment.since(Moment::from_origin(Duration::ZERO)).as_nanos()
}

fn nodes(set: NodeSet) -> Vec<usize> {
    set.iter().collect()
}

/// A round begins; an adopter's or an upgrade's if there is a giver. The last element is its mode: `upgrade`, or the
/// mode for each resource. That of a permit is its semaphore, its slot and the limit.
pub(crate) fn began(subject: &Subject, sent: Moment, term: Term) {
    record(|| {
        let resources: Vec<_> = subject.keys.iter().map(|keys| &*keys.lock).collect();
        let token = subject.token.as_str();
        let ttl = term.ttl.as_nanos();
        let drift = term.drift_factor;
        let (sent, end) = (nanos(sent), nanos(term.end(sent)));
        let giver = subject.giver.as_ref();
        let giver = giver.map_or("null".to_owned(), |giver| format!("{:?}", giver.token.as_str()));
        let mode = mode(subject);
        format!("\"begin\",{token:?},{resources:?},{sent},{ttl},{end},{giver},{drift},{mode}")
    });
}

fn mode(subject: &Subject) -> String {
    if subject.is_upgraded() {
        return "\"upgrade\"".to_owned();
    }
    let modes = subject.keys.iter().map(|keys| {
        let mode = match &keys.mode {
            KeyMode::Permit { index, slot, limit } => format!("[{index:?},{slot},{limit}]"),
            _ if keys.is_shared() => "\"shared\"".to_owned(),
            _ => "\"exclusive\"".to_owned(),
        };
        format!("{:?}:{mode}", keys.lock)
    });
    format!("{{{}}}", modes.collect::<Vec<_>>().join(","))
}

/// A round handled an event. Not reported is a vote against it that decides nothing.
pub(crate) fn handled(subject: &Subject, event: Event, actions: &Actions) {
    let is_against = |vote| !matches!(vote, Vote::Granted { .. } | Vote::Guarded);
    if let Event::Vote { vote, .. } | Event::Late { vote, .. } = event
        && is_against(vote)
        && *actions == Actions::default()
    {
        return;
    }
    record(|| {
        let mut step = format!("\"round\",{:?},", subject.token.as_str());
        let _ = match event {
            Event::Vote { node, vote, .. } => write!(step, "\"vote\",{node},{}", voted(vote)),
            Event::Late { node, vote } => write!(step, "\"late\",{node},{}", voted(vote)),
            Event::Raised { node, stored } => write!(step, "\"raised\",{node},{stored}"),
            Event::Abandon => write!(step, "\"abandon\",null,null"),
        };
        let raise = actions.raise.map(|(set, fence)| format!("[{:?},{fence}]", nodes(set)));
        let _ = write!(step, ",{},{:?},", raise.as_deref().unwrap_or("null"), nodes(actions.undo));
        let _ = match actions.outcome {
            None => write!(step, "null"),
            Some(Outcome::Won { fence, end }) => write!(step, "[\"won\",{fence},{}]", nanos(end)),
            Some(Outcome::Lost(_)) => write!(step, "[\"lost\"]"),
        };
        step
    });
}

fn voted(vote: Vote) -> String {
    match vote {
        Vote::Granted { fence } => fence.to_string(),
        Vote::Held { .. } => "\"held\"".to_owned(),
        Vote::Unknown => "\"unknown\"".to_owned(),
        Vote::Refused => "\"refused\"".to_owned(),
        Vote::Guarded => "\"guarded\"".to_owned(),
    }
}

/// An extension begins.
pub(crate) fn extending(subject: &Subject, sent: Moment, term: Term) {
    record(|| {
        let token = subject.token.as_str();
        let ttl = term.ttl.as_nanos();
        format!("\"extending\",{token:?},{},{ttl},{}", nanos(sent), nanos(term.end(sent)))
    });
}

/// Extensions are sent in one request. `items` are the extensions.
pub(crate) fn sending<'a>(
    request: &Request,
    items: impl Iterator<Item = (&'a Subject, Moment, Term)> + Clone,
) {
    let Request::Extend(locks) = request else { return };
    record(|| {
        let item = |(subject, sent, term): (&Subject, _, Term)| {
            format!("[{:?},{},{}]", subject.token.as_str(), nanos(sent), term.ttl.as_nanos())
        };
        let items: Vec<_> = items.clone().map(item).collect();
        format!("\"sending\",{},[{}]", locks.as_ptr().addr(), items.join(","))
    });
}

/// The answer of a node to an extension was handled. `end` is the validity end of the lease now.
pub(crate) fn answered(
    subject: &Subject,
    (sent, term): (Moment, Term),
    (node, answer): (usize, Answer),
    extended: Option<Extended>,
    end: Moment,
) {
    record(|| {
        let token = subject.token.as_str();
        let sent = nanos(sent);
        let ttl = term.ttl.as_nanos();
        let end = nanos(end);
        let extended = extended.map_or("null".to_owned(), |extended| format!("\"{extended:?}\""));
        format!("\"answered\",{token:?},{sent},{ttl},{node},\"{answer:?}\",{extended},{end}")
    });
}

/// A repair begins, which will send HEAL.
pub(crate) fn healing(subject: &Subject) {
    record(|| format!("\"healing\",{:?}", subject.token.as_str()));
}

/// A lease is detached: it ends for its holder. `silent` are the nodes that may not vote on its adoption.
pub(crate) fn detached(subject: &Subject, silent: NodeSet) {
    record(|| format!("\"detached\",{:?},{:?}", subject.token.as_str(), nodes(silent)));
}

/// The holder of a lease takes it as shared from now on.
pub(crate) fn downgraded(subject: &Subject) {
    record(|| format!("\"downgraded\",{:?}", subject.token.as_str()));
}

/// An upgrade of a lease is asked for. `end` is the validity end of the lease now.
pub(crate) fn upgrading(subject: &Subject, end: Moment) {
    record(|| format!("\"upgrading\",{:?},{}", subject.token.as_str(), nanos(end)));
}

/// The won round of an upgrade is a lease from now on.
pub(crate) fn upgraded(subject: &Subject) {
    record(|| format!("\"upgraded\",{:?}", subject.token.as_str()));
}

/// A lease ends for its holder.
pub(crate) fn finished(subject: &Subject) {
    record(|| format!("\"finish\",{:?}", subject.token.as_str()));
}
