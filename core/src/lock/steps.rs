//! Unit tests only: reports to the simulation what clients decide. The simulation writes the reports for the trace
//! checker (`proof/tie`). Each report contains the elements of a JSON array, without the brackets.

use crate::lock::claim::Commands;
use crate::runtime::machine::record;
use crate::wire::keys::KeyMode;
use crate::wire::request::{Request, Subject};
use quorlock_protocol::{Answer, Event, Extended, Moment, NodeSet, Outcome, Term, Vote};
use std::fmt::Write;
use std::time::Duration;

fn nanos(moment: Moment) -> u128 {
    moment.since(Moment::from_origin(Duration::ZERO)).as_nanos()
}

fn nodes(set: NodeSet) -> Vec<usize> {
    set.iter().collect()
}

/// Reports that a round begins. If the subject has a giver, the round is that of an adoption or of an upgrade. The last
/// element of the report is the mode: `upgrade`, or the mode of each resource. The mode of a permit is its semaphore,
/// its slot and the limit.
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

/// Reports that a round has handled an event. Does not report a vote against the round if no command follows from the
/// vote.
pub(crate) fn handled(subject: &Subject, event: Event, commands: &Commands) {
    let is_against = |vote| !matches!(vote, Vote::Granted { .. } | Vote::Guarded);
    if let Event::Vote { vote, .. } | Event::Late { vote, .. } = event
        && is_against(vote)
        && *commands == Commands::default()
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
        let undo = [commands.release, commands.give_back, commands.release_both];
        let undo = undo.iter().flat_map(|nodes| nodes.iter()).collect();
        let raise = commands.raise.map(|(set, fence)| format!("[{:?},{fence}]", nodes(set)));
        let _ = write!(step, ",{},{:?},", raise.as_deref().unwrap_or("null"), nodes(undo));
        let _ = match commands.outcome {
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

/// Reports that an extension begins.
pub(crate) fn extending(subject: &Subject, sent: Moment, term: Term) {
    record(|| {
        let token = subject.token.as_str();
        let ttl = term.ttl.as_nanos();
        format!("\"extending\",{token:?},{},{ttl},{}", nanos(sent), nanos(term.end(sent)))
    });
}

/// Reports that the extensions `items` are sent in one request.
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

/// Reports that a node's answer to an extension was handled. `end` is the validity end of the lease after that.
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

/// Reports that a repair begins. It sends HEAL next.
pub(crate) fn healing(subject: &Subject) {
    record(|| format!("\"healing\",{:?}", subject.token.as_str()));
}

/// Reports that a lease was detached, so it has ended for its holder. `silent` are the nodes that may not vote on its
/// adoption.
pub(crate) fn detached(subject: &Subject, silent: NodeSet) {
    record(|| format!("\"detached\",{:?},{:?}", subject.token.as_str(), nodes(silent)));
}

/// Reports that the holder treats its lease as shared from now on.
pub(crate) fn downgraded(subject: &Subject) {
    record(|| format!("\"downgraded\",{:?}", subject.token.as_str()));
}

/// Reports that a holder begins an upgrade of its lease. `end` is the current validity end of the lease.
pub(crate) fn upgrading(subject: &Subject, end: Moment) {
    record(|| format!("\"upgrading\",{:?},{}", subject.token.as_str(), nanos(end)));
}

/// Reports that the won round of an upgrade has become a lease.
pub(crate) fn upgraded(subject: &Subject) {
    record(|| format!("\"upgraded\",{:?}", subject.token.as_str()));
}

/// Reports that a lease has ended for its holder.
pub(crate) fn finished(subject: &Subject) {
    record(|| format!("\"finish\",{:?}", subject.token.as_str()));
}
