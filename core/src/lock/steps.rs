//! Unit tests only: reports what clients decide to the simulation, which writes it for the trace
//! checker (`proof/tie`). Each report is the elements of a JSON array.

use crate::command::request::{Request, Subject};
use crate::lock::held::HeldLease;
use crate::lock::held::extension::PendingExtension;
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

/// A round begins.
pub(crate) fn began(subject: &Subject, sent: Moment, term: Term) {
    record(|| {
        let resources: Vec<_> = subject.keys.iter().map(|keys| &*keys.lock).collect();
        let (token, ttl, drift) = (subject.token.as_str(), term.ttl.as_nanos(), term.drift_factor);
        let (sent, end) = (nanos(sent), nanos(term.end(sent)));
        format!("\"begin\",{token:?},{resources:?},{sent},{ttl},{end},{drift}")
    });
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
pub(crate) fn extending(lease: &HeldLease, sent: Moment, term: Term) {
    record(|| {
        let (token, ttl) = (lease.grant.subject.token.as_str(), term.ttl.as_nanos());
        format!("\"extending\",{token:?},{},{ttl},{}", nanos(sent), nanos(term.end(sent)))
    });
}

/// Extensions are sent in one request.
pub(crate) fn sending(request: &Request, items: &[PendingExtension]) {
    let Request::Extend(locks) = request else { return };
    record(|| {
        let item = |item: &PendingExtension| {
            let (token, ttl) = (item.lease.grant.subject.token.as_str(), item.extension.term().ttl);
            format!("[{token:?},{},{}]", nanos(item.sent), ttl.as_nanos())
        };
        let items: Vec<_> = items.iter().map(item).collect();
        format!("\"sending\",{},[{}]", locks.as_ptr().addr(), items.join(","))
    });
}

/// The answer of a node to an extension was handled.
pub(crate) fn answered(
    lease: &HeldLease,
    (sent, term): (Moment, Term),
    node: usize,
    answer: Answer,
    extended: Option<Extended>,
) {
    record(|| {
        let (token, sent) = (lease.grant.subject.token.as_str(), nanos(sent));
        let (ttl, end) = (term.ttl.as_nanos(), nanos(lease.state().lease.end()));
        let extended = extended.map_or("null".to_owned(), |extended| format!("\"{extended:?}\""));
        format!("\"answered\",{token:?},{sent},{ttl},{node},\"{answer:?}\",{extended},{end}")
    });
}

/// A repair begins, which will send HEAL.
pub(crate) fn healing(lease: &HeldLease) {
    record(|| format!("\"healing\",{:?}", lease.grant.subject.token.as_str()));
}

/// A lease ends for its holder.
pub(crate) fn finished(subject: &Subject) {
    record(|| format!("\"finish\",{:?}", subject.token.as_str()));
}
