//! Unit tests only: a claim that reports each of its steps to the simulation. The simulation writes the reports for the
//! trace checker (`proof/tie`). Each report contains the elements of a JSON array, without the brackets.

use crate::runtime::machine::record;
use crate::wire::keys::KeyMode;
use crate::wire::request::{Request, Subject};
use quorlock_protocol::{
    Answer, Event, Extended, Extension, Moment, NodeSet, Obstacle, Origin, Outcome, Quorum,
    Release, StoredToken, Term, Unresumable, Vote,
};
use std::fmt::Write;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

type Inner = quorlock_protocol::Claim<Arc<Subject>>;
type Commands = quorlock_protocol::Commands<Arc<Subject>>;

/// The protocol's claim. A method that is a step of the protocol's proof (`proof/`) also reports this step.
#[derive(Clone)]
pub(crate) struct Claim(Inner);

impl Deref for Claim {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl DerefMut for Claim {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.0
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.report("finish");
    }
}

impl Claim {
    pub(crate) fn new(
        subject: Arc<Subject>,
        quorum: Quorum,
        origin: Origin,
        sent: Moment,
        term: Term,
        limit: Option<Moment>,
    ) -> Self {
        began(&subject, sent, term);
        Self(Inner::new(subject, quorum, origin, sent, term, limit))
    }

    pub(crate) fn resume(
        subject: Arc<Subject>,
        quorum: Quorum,
        sound: NodeSet,
        fence: u64,
        term: Term,
        stored: &StoredToken,
        now: Moment,
    ) -> Result<Self, Unresumable> {
        Inner::resume(subject, quorum, sound, fence, term, stored, now).map(Self)
    }

    pub(crate) fn must_release_forgotten(vote: Vote) -> bool {
        Inner::must_release_forgotten(vote)
    }

    /// Reports a step that needs no data except the token.
    fn report(&self, step: &str) {
        record(|| format!("\"{step}\",{:?}", self.subject().token.as_str()));
    }

    pub(crate) fn handle(&mut self, now: Moment, event: Event) -> Commands {
        let commands = self.0.handle(now, event);
        handled(self.subject(), event, &commands);
        commands
    }

    pub(crate) fn extend(
        &mut self,
        now: Moment,
        term: Term,
        patience: Duration,
    ) -> Option<Extension> {
        let extension = self.0.extend(now, term, patience)?;
        self.extending(&extension);
        Some(extension)
    }

    pub(crate) fn verify(&mut self, now: Moment, patience: Duration) -> Option<Extension> {
        let extension = self.0.verify(now, patience)?;
        self.extending(&extension);
        Some(extension)
    }

    fn extending(&self, extension: &Extension) {
        record(|| {
            let token = self.subject().token.as_str();
            let sent = extension.sent();
            let end = nanos(extension.term().end(sent));
            let ttl = extension.term().ttl.as_nanos();
            format!("\"extending\",{token:?},{},{ttl},{end}", nanos(sent))
        });
    }

    /// The report contains the validity end of the lease after the answer.
    pub(crate) fn extended(
        &mut self,
        now: Moment,
        extension: &mut Extension,
        node: usize,
        answer: Answer,
    ) -> Option<Extended> {
        let extended = self.0.extended(now, extension, node, answer);
        record(|| {
            let token = self.subject().token.as_str();
            let sent = nanos(extension.sent());
            let ttl = extension.term().ttl.as_nanos();
            let end = nanos(self.lease().end());
            let extended =
                extended.map_or("null".to_owned(), |extended| format!("\"{extended:?}\""));
            format!("\"answered\",{token:?},{sent},{ttl},{node},\"{answer:?}\",{extended},{end}")
        });
        extended
    }

    pub(crate) fn heal(&mut self, now: Moment, nodes: NodeSet) -> Option<Duration> {
        let ttl = self.0.heal(now, nodes)?;
        self.report("healing");
        Some(ttl)
    }

    pub(crate) fn downgrade(&mut self, now: Moment, subject: Arc<Subject>) -> Result<(), Obstacle> {
        self.0.downgrade(now, subject)?;
        self.report("downgraded");
        Ok(())
    }

    /// The report contains the validity end of the lease.
    pub(crate) fn begin_upgrade(
        &mut self,
        now: Moment,
        patience: Duration,
    ) -> Result<(), Obstacle> {
        self.0.begin_upgrade(now, patience)?;
        record(|| {
            let end = nanos(self.lease().end());
            format!("\"upgrading\",{:?},{end}", self.subject().token.as_str())
        });
        Ok(())
    }

    pub(crate) fn upgraded(&mut self, now: Moment, upgrade: &mut Self) -> Result<(), Commands> {
        let upgraded = self.0.upgraded(now, upgrade);
        self.report("finish");
        upgrade.report(if upgraded.is_ok() { "upgraded" } else { "finish" });
        upgraded
    }

    pub(crate) fn end_upgrade(&mut self, now: Moment) -> Commands {
        let commands = self.0.end_upgrade(now);
        if commands != Commands::default() {
            self.report("finish");
        }
        commands
    }

    pub(crate) fn release(&mut self, now: Moment) -> Option<Release> {
        self.report("finish");
        self.0.release(now)
    }

    pub(crate) fn close(&mut self, now: Moment) -> Option<Release> {
        self.report("finish");
        self.0.close(now)
    }

    /// The report contains the nodes that must not vote on an adoption.
    pub(crate) fn detach(&mut self, now: Moment) -> Result<Commands, Obstacle> {
        let silent = self.silent();
        let commands = self.0.detach(now)?;
        record(|| {
            let silent = nodes(silent);
            format!("\"detached\",{:?},{silent:?}", self.subject().token.as_str())
        });
        Ok(commands)
    }
}

fn nanos(moment: Moment) -> u128 {
    moment.since(Moment::from_origin(Duration::ZERO)).as_nanos()
}

fn nodes(set: NodeSet) -> Vec<usize> {
    set.iter().collect()
}

/// Reports that a round begins, at `sent`. If the subject has a giver, the round belongs to an adoption or an upgrade.
/// The last element of the report is the mode: `upgrade`, or the mode of each resource. The mode of a permit is its
/// semaphore, its slot and the limit.
fn began(subject: &Subject, sent: Moment, term: Term) {
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
fn handled(subject: &Subject, event: Event, commands: &Commands) {
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

/// Reports that these extensions are sent in one request.
pub(crate) fn sending<'a>(
    request: &Request,
    extensions: impl Iterator<Item = &'a Extension> + Clone,
) {
    let Request::Extend(locks) = request else { return };
    record(|| {
        let item = |((subject, _), extension): (&(Arc<Subject>, _), &Extension)| {
            let ttl = extension.term().ttl.as_nanos();
            format!("[{:?},{},{ttl}]", subject.token.as_str(), nanos(extension.sent()))
        };
        let items: Vec<_> = locks.iter().zip(extensions.clone()).map(item).collect();
        format!("\"sending\",{},[{}]", locks.as_ptr().addr(), items.join(","))
    });
}
