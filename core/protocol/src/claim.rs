//! A claim: the life of one token, from its first ACQUIRE to the last request that deletes its keys.
//!
//! A claim consists of its [`Round`], of the [`Lease`] if the round is won, and of the [`Footprint`]: the keys that the
//! token's requests may have left on the nodes. The claim decides which of these keys are deleted, when, and on which
//! nodes: no other code decides about RELEASE, UNDO or GIVE BACK. The claim sends nothing: the driver (`lock/claim.rs`
//! of the crate `quorlock`) and the model report events to the claim and carry out the [`Commands`] that it returns.

use crate::footprint::Footprint;
use crate::lease::{Ended, Extended, Extension, Lease, Release};
use crate::quorum::{NodeSet, Quorum};
use crate::round::{Actions, Event, Outcome, Round, Vote};
use crate::tally::{Answer, Healed};
use crate::term::{Moment, Term};
use core::time::Duration;

/// How a claim gets its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// By ACQUIRE.
    Acquired,
    /// By TRANSFER, from a lease that its holder has detached. Other adopters may try to win that lease, too.
    Adopted,
    /// By TRANSFER, from a shared lease of the same client. This claim upgrades that lease.
    Upgraded,
    /// Another process has won the lease, and this process resumes it.
    Resumed,
}

impl Origin {
    /// Whether the claim takes over the keys of a giver.
    fn takes_over(self) -> bool {
        matches!(self, Self::Adopted | Self::Upgraded)
    }
}

/// The requests that the caller must send now. The default is no request.
///
/// RELEASE deletes the keys of a token; after a lost round, RELEASE is called UNDO. Repeat RELEASE and GIVE BACK until
/// the node has answered, or until the keys have [expired](Claim::gone_by) on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Commands<U> {
    /// Send RAISE with this fence to these nodes.
    pub raise: Option<(NodeSet, u64)>,
    /// Send RELEASE to these nodes. If the connection that carried this claim's earlier requests to a node is still
    /// open, send RELEASE on that connection, after those requests.
    pub release: NodeSet,
    /// Send GIVE BACK to these nodes, in the same way: after this claim's earlier requests.
    pub give_back: NodeSet,
    /// Send RELEASE with the giver's token to these nodes.
    pub release_giver: NodeSet,
    /// Send RELEASE with this claim's token to these nodes. Once a node has answered, send that node RELEASE with the
    /// giver's token. In this order, a GIVE BACK that is still under way finds no key to give back.
    pub release_both: NodeSet,
    /// Upgrades of this lease, each with a node. Send RELEASE with the upgrade's token to the node. Once the node has
    /// answered, send that node RELEASE with the token of this lease.
    pub release_upgrades: Vec<(U, usize)>,
    /// The decision of the round; returned only once.
    pub outcome: Option<Outcome>,
}

impl<U> Default for Commands<U> {
    fn default() -> Self {
        Self {
            raise: None,
            release: NodeSet::EMPTY,
            give_back: NodeSet::EMPTY,
            release_giver: NodeSet::EMPTY,
            release_both: NodeSet::EMPTY,
            release_upgrades: Vec::new(),
            outcome: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The round is undecided.
    Asking,
    /// The round was lost or abandoned, or an upgrade won its round after the shared lease had ended.
    Undone,
    /// The round was won. The lease may have been lost since.
    Held,
    /// The lease was lost during an upgrade, and its keys were deleted at the end of the upgrade.
    Lost,
    /// The lease was released. If an upgrade of the lease is under way, RELEASE is sent after that upgrade has ended.
    Releasing {
        is_sent: bool,
        /// The nodes where a late request may set the token after RELEASE. Send them another RELEASE, but only after
        /// the first one is answered or has reached its deadline. If the second RELEASE arrived before the first one,
        /// the first one would find no key, and the holder would be told that the lease was lost.
        again: NodeSet,
    },
    /// The lease was released, upgraded or deleted. Keys that late requests of this claim set are deleted.
    Over,
    /// The lease was detached. Late requests of this claim may still set keys, which may be deleted, too: no adopter
    /// relies on them, because a node with such a request may not vote on an adoption.
    Detached,
}

/// The nodes' answers to a query for a token.
#[derive(Clone, Debug)]
pub struct StoredToken {
    /// When the query was sent.
    pub asked: Moment,
    /// The nodes that hold the token, each with the time until its key expires there.
    pub left: Vec<(usize, Duration)>,
    /// The nodes that have answered that they do not hold the token.
    pub missing: NodeSet,
}

/// Why a lease cannot be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresumable {
    /// Too few nodes have answered to tell whether the lease still exists.
    Unknown,
    /// The lease has ended.
    Ended,
}

/// Why a lease cannot be detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undetachable {
    /// An upgrade of the lease is under way.
    Upgrading,
    /// A late request may still set the lease's keys on these nodes, so these nodes may not vote on an adoption.
    /// Without them, no adopter could win a majority.
    Silent(NodeSet),
    /// The lease has ended.
    Ended(Ended),
}

/// The whole life of one token: its round, its lease and its footprint.
///
/// `U` identifies an upgrade of the lease: see [`Footprint`].
#[derive(Clone, Debug, PartialEq)]
pub struct Claim<U> {
    origin: Origin,
    term: Term,
    stage: Stage,
    /// `None` once no vote can change anything any more. Boxed, because most leases need the round only for a short
    /// time.
    round: Option<Box<Round>>,
    /// Before the round is won, a placeholder: a lease that has ended.
    lease: Lease,
    footprint: Footprint<U>,
    /// Set once nobody can use the giver's lease any more: see [`Claim::end_giver`].
    is_giver_over: bool,
}

impl<U: Clone + PartialEq> Claim<U> {
    /// Creates a claim whose first ACQUIRE or TRANSFER is sent at `sent` or later. For `limit`, see [`Lease::new`].
    pub fn new(
        quorum: Quorum,
        origin: Origin,
        sent: Moment,
        term: Term,
        limit: Option<Moment>,
    ) -> Self {
        let round = Round::new(quorum, sent, term);
        Self {
            origin,
            term,
            stage: Stage::Asking,
            lease: Lease::new(quorum, NodeSet::EMPTY, 0, sent, limit),
            footprint: Footprint::new(&round, term.gone(sent)),
            round: Some(Box::new(round)),
            is_giver_over: false,
        }
    }

    /// Creates the claim of a lease that another process has won and stopped managing: see [`Lease::resume`]. `sound`
    /// are the nodes that counted for the lease when that process stopped managing it.
    pub fn resume(
        quorum: Quorum,
        sound: NodeSet,
        fence: u64,
        term: Term,
        stored: &StoredToken,
        now: Moment,
    ) -> Result<Self, Unresumable> {
        let StoredToken { asked, left, missing } = stored;
        let all_but = |left_out: NodeSet| -> NodeSet {
            quorum.all().iter().filter(|node| !left_out.contains(*node)).collect()
        };
        let sound: NodeSet = sound.iter().filter(|node| !missing.contains(*node)).collect();
        let lease = Lease::resume(quorum, sound, fence, *asked, term.drift_factor, left);
        let lease = match lease {
            None if sound.len() >= quorum.size() => return Err(Unresumable::Unknown),
            lease => lease.filter(|lease| lease.is_valid(now)).ok_or(Unresumable::Ended)?,
        };
        // A node that has not answered may hold the key. A request of the first process may still be under way to a
        // node that is not sound.
        let footprint = Footprint::with(all_but(*missing), all_but(sound), term.gone(now));
        Ok(Self {
            origin: Origin::Resumed,
            term,
            stage: Stage::Held,
            round: None,
            lease,
            footprint,
            is_giver_over: false,
        })
    }

    /// Returns this claim, whose giver has keys that last until `gone_by`: TRANSFER does not shorten their time.
    #[must_use]
    pub fn with_keys_until(mut self, gone_by: Moment) -> Self {
        self.footprint.set_keys_until(gone_by);
        self
    }

    /// The lease. Before the round is won, a placeholder that has ended.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The round; `None` once no vote can change anything.
    pub fn round(&self) -> Option<&Round> {
        self.round.as_deref()
    }

    /// How the claim gets its lease.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The nodes that may still set the keys, because they have not answered a request of this claim. They may not vote
    /// on an adoption.
    pub fn silent(&self) -> NodeSet {
        self.footprint.silent()
    }

    /// The nodes that may hold the token, now or later.
    pub fn holders(&self) -> NodeSet {
        self.footprint.holders()
    }

    /// The moment by which the last key of the claim has expired on every node, even if no RELEASE reaches the nodes.
    pub fn gone_by(&self) -> Moment {
        self.footprint.gone_by()
    }

    /// Whether nobody can use the lease any more: it was released or upgraded, or [deleted](Claim::delete). If so, call
    /// [`Claim::end_giver`] on the claim of each upgrade of this lease before that claim handles its next event.
    ///
    /// [`Claim::detach`] does not delete a lease: adopters need the keys that a failed upgrade gives back to the lease.
    pub fn is_deleted(&self) -> bool {
        match self.stage {
            // A RELEASE that is not sent yet must find the keys, so the upgrade must still give them back.
            Stage::Releasing { is_sent, .. } => is_sent,
            Stage::Lost | Stage::Over => true,
            Stage::Asking | Stage::Undone | Stage::Held | Stage::Detached => false,
        }
    }

    /// Handles an event of the round. [`Event`] says when the driver must report each event. When the driver releases
    /// the lease, it need not report [`Event::Abandon`]: the claim abandons the round itself.
    pub fn handle(&mut self, now: Moment, event: Event) -> Commands<U> {
        let Some(round) = &mut self.round else { return Commands::default() };
        let Actions { raise, undo, outcome } = round.handle(now, event);
        self.footprint.counted_votes(round);
        let mut commands = Commands { raise, outcome, ..Commands::default() };
        match outcome {
            Some(Outcome::Won { fence, end }) => {
                self.lease = self.lease.won(round.granted(), fence, end);
                self.stage = Stage::Held;
            }
            _ if self.stage == Stage::Held => self.join(event),
            _ => {}
        }
        self.footprint.set_keys_until(self.term.gone(now));
        self.undo(undo, &mut commands);
        self.forget_round();
        commands
    }

    /// If the event is a grant that arrived after the decision, adds its node to the lease.
    fn join(&mut self, event: Event) {
        if let Event::Vote { node, vote: Vote::Granted { fence }, .. }
        | Event::Late { node, vote: Vote::Granted { fence } } = event
        {
            self.lease.granted(node, fence);
        }
    }

    /// Chooses the requests that delete the token on these nodes.
    fn undo(&mut self, nodes: NodeSet, commands: &mut Commands<U>) {
        let Some(round) = &self.round else { return };
        let is_new = self.stage == Stage::Asking && round.is_lost();
        if is_new {
            self.stage = Stage::Undone;
        }
        if !self.origin.takes_over() || round.has_won() {
            self.release_now_or_later(nodes, commands);
        } else if self.is_giver_over {
            commands.release_both = nodes;
        } else if is_new && self.origin == Origin::Upgraded {
            // Before the shared lease is extended again, it must have its keys back on every node where the TRANSFER
            // may take them. So GIVE BACK also goes to the nodes that have not answered the TRANSFER yet, after that
            // TRANSFER.
            commands.give_back = round.holders();
        } else {
            commands.give_back = nodes;
        }
    }

    fn release_now_or_later(&mut self, nodes: NodeSet, commands: &mut Commands<U>) {
        match &mut self.stage {
            Stage::Releasing { again, .. } => nodes.iter().for_each(|node| again.insert(node)),
            _ => commands.release = nodes,
        }
    }

    /// Forgets the round of a lease once every node has answered the round's request.
    fn forget_round(&mut self) {
        let is_complete = |round: &Round| round.unanswered().is_empty();
        if !matches!(self.stage, Stage::Asking | Stage::Undone)
            && self.round.as_deref().is_some_and(is_complete)
        {
            self.round = None;
        }
    }

    /// Whether a node must get RELEASE because of this late vote. Called when the client has forgotten the claim: the
    /// lease was released, or has expired after its handle was dropped.
    pub fn must_release_forgotten(vote: Vote) -> bool {
        vote.may_be_applied()
    }

    /// Records that nobody can use the giver's lease any more: no adopter can win that lease, or it is deleted. From now
    /// on, this claim gives nothing back to it.
    ///
    /// Also releases the keys that a lost adoption has given back, or may yet give back. An upgrade does not need this:
    /// its lease has released those keys, with [`Commands::release_upgrades`].
    pub fn end_giver(&mut self) -> Commands<U> {
        let is_known = core::mem::replace(&mut self.is_giver_over, true);
        let gives_back = self.origin == Origin::Adopted && self.stage == Stage::Undone && !is_known;
        let release_both = if gives_back { self.holders() } else { NodeSet::EMPTY };
        Commands { release_both, ..Commands::default() }
    }

    /// Begins an extension whose EXTEND is sent at `now` or later. Returns the extension, and how long to wait for each
    /// node: `patience`, but not beyond the validity end. [`Lease::extend`] says when the result is `None`.
    pub fn extend(
        &mut self,
        now: Moment,
        term: Term,
        patience: Duration,
    ) -> Option<(Extension, Duration)> {
        let extension = self.lease.extend(now, term)?;
        Some(self.ask(now, extension, patience))
    }

    /// Begins an extension that does not move the validity end: see [`Lease::verify`]. Returns as [`Claim::extend`] does.
    pub fn verify(&mut self, now: Moment, patience: Duration) -> Option<(Extension, Duration)> {
        let extension = self.lease.verify(now, self.term)?;
        Some(self.ask(now, extension, patience))
    }

    fn ask(
        &mut self,
        now: Moment,
        extension: Extension,
        patience: Duration,
    ) -> (Extension, Duration) {
        let patience = patience.min(self.lease.end().since(now));
        self.footprint.set_keys_until(extension.term().gone(now.plus(patience)));
        (extension, patience)
    }

    /// Records a node's answer to an extension: see [`Lease::extended`].
    pub fn extended(
        &mut self,
        now: Moment,
        extension: &mut Extension,
        node: usize,
        answer: Answer,
    ) -> Option<Extended> {
        self.lease.extended(now, extension, node, answer)
    }

    /// Begins a repair of these nodes. Returns the ttl of the HEAL to send to them; `None` if the lease has ended, is
    /// being upgraded, or was resumed: see [`Lease::resume`].
    pub fn heal(&mut self, now: Moment, nodes: NodeSet) -> Option<Duration> {
        if self.origin == Origin::Resumed {
            return None;
        }
        let ttl = self.lease.heal(now, self.term)?;
        nodes.iter().for_each(|node| self.footprint.sent_heal(node));
        Some(ttl)
    }

    /// Records a node's answer to a HEAL with this ttl. `healed` is `None` if the node did not answer in time.
    /// `is_open`: whether the node may still apply the HEAL.
    ///
    /// If the lease was released or upgraded, returns a RELEASE of its token for the node. A detached lease also gets
    /// this RELEASE: its adopters know that this node may not vote, so they do not need the key.
    pub fn healed(
        &mut self,
        now: Moment,
        (node, ttl): (usize, Duration),
        healed: Option<Healed>,
        is_open: bool,
    ) -> Commands<U> {
        if let Some(healed) = healed {
            self.lease.healed(node, healed);
        }
        if !is_open {
            self.footprint.answered_heal(node);
        }
        self.footprint.set_keys_until(Term { ttl, ..self.term }.gone(now));
        let mut commands = Commands::default();
        if self.lease.is_released() {
            self.release_now_or_later([node].into_iter().collect(), &mut commands);
        }
        commands
    }

    /// Begins an upgrade whose TRANSFER is sent at `sent` or later: see [`Lease::begin_upgrade`]. Each node has
    /// `patience` to answer TRANSFER, and the same time again to answer GIVE BACK.
    pub fn begin_upgrade(&mut self, sent: Moment, patience: Duration) -> bool {
        let may_begin = self.lease.begin_upgrade(sent);
        if may_begin {
            // TRANSFER and GIVE BACK each set keys for at least a term, counted from their arrival at the node. Both
            // can arrive late.
            self.footprint.set_keys_until(self.term.gone(sent.plus(2 * patience)));
        }
        may_begin
    }

    /// Ends the shared lease because the round of its upgrade was won: see [`Lease::upgraded`].
    pub fn upgraded(&mut self, now: Moment) -> bool {
        let was_valid = self.lease.upgraded(now);
        if was_valid {
            self.end(now, Stage::Over);
        }
        was_valid
    }

    /// Returns the requests that give back the keys of this upgrade. Called if the upgrade's round was won, but the
    /// shared lease had ended before.
    pub fn refuse(&mut self, now: Moment) -> Commands<U> {
        let give_back = self.holders();
        let _ = self.lease.release(now);
        self.end(now, Stage::Undone);
        Commands { give_back, ..Commands::default() }
    }

    /// Records that GIVE BACK of an upgrade of this lease is sent to these nodes. If the lease is
    /// [deleted](Claim::is_deleted), do not send it: the commands release the upgrade there instead.
    pub fn gives_back(&mut self, upgrade: &U, nodes: NodeSet) -> Commands<U> {
        let mut commands = Commands::default();
        if self.is_deleted() {
            commands.release_upgrades = nodes.iter().map(|node| (upgrade.clone(), node)).collect();
        } else {
            self.footprint.sent_give_back(upgrade, nodes);
        }
        commands
    }

    /// Records that a node has answered GIVE BACK of this upgrade.
    pub fn gave_back(&mut self, now: Moment, upgrade: &U, node: usize) {
        self.footprint.answered_give_back(upgrade, node);
        self.footprint.set_keys_until(self.term.gone(now));
    }

    /// Whether the nodes have answered every GIVE BACK of this lease's upgrades.
    pub fn has_keys_back(&self) -> bool {
        !self.footprint.gives_back()
    }

    /// Ends an upgrade, whether it has succeeded or failed. If the lease was lost during the upgrade, returns the
    /// requests that release the keys which GIVE BACK may have restored since. If the lease was upgraded, returns those
    /// that release the keys which an earlier upgrade may still give back.
    pub fn end_upgrade(&mut self, now: Moment) -> Commands<U> {
        self.lease.end_upgrade();
        match self.stage {
            Stage::Over => {
                let release_upgrades = self.footprint.take_upgrades();
                Commands { release_upgrades, ..Commands::default() }
            }
            Stage::Held if !self.lease.is_valid(now) => {
                self.stage = Stage::Lost;
                self.delete()
            }
            _ => Commands::default(),
        }
    }

    /// Ends the lease for its holder: see [`Lease::release`]. Returns `None` if the lease is released already.
    ///
    /// If an upgrade of the lease is under way, first wait until the upgrade has ended. Then call
    /// [`Claim::send_release`], carry out its commands, and pass the answers to [`Claim::released`].
    pub fn release(&mut self, now: Moment) -> Option<Release> {
        self.finish(now, Lease::release)
    }

    /// Ends the lease because its client is closed: see [`Lease::close`]. Returns as [`Claim::release`] does, and
    /// requires the same steps afterwards.
    pub fn close(&mut self, now: Moment) -> Option<Release> {
        self.finish(now, Lease::close)
    }

    fn finish(
        &mut self,
        now: Moment,
        end: impl FnOnce(&mut Lease, Moment) -> Release,
    ) -> Option<Release> {
        if self.lease.is_released() {
            return None;
        }
        let release = end(&mut self.lease, now);
        self.end(now, Stage::Releasing { is_sent: false, again: NodeSet::EMPTY });
        Some(release)
    }

    /// Returns the requests of a release. RELEASE goes to all nodes. If a node does not answer, repeat RELEASE only if
    /// the node is one of the [`Claim::holders`].
    pub fn send_release(&mut self) -> Commands<U> {
        if let Stage::Releasing { is_sent, .. } = &mut self.stage {
            *is_sent = true;
        }
        let release_giver = self.giver_holders();
        let release_upgrades = self.footprint.take_upgrades();
        let release = self.lease.quorum().all();
        Commands { release, release_giver, release_upgrades, ..Commands::default() }
    }

    /// Records a node's answer to RELEASE: see [`Lease::released`].
    pub fn released(&mut self, release: &mut Release, node: usize, answer: Answer) -> Option<bool> {
        self.lease.released(release, node, answer)
    }

    /// Records that every node has answered RELEASE or reached its deadline. Returns another RELEASE for the nodes
    /// where a late request may have set the token since.
    pub fn end_release(&mut self) -> Commands<U> {
        let release = match self.stage {
            Stage::Releasing { again, .. } => again,
            _ => NodeSet::EMPTY,
        };
        self.stage = Stage::Over;
        Commands { release, ..Commands::default() }
    }

    /// Ends the lease for its holder, who hands it over: see [`Lease::detach`]. Call [`Claim::silent`] before this
    /// method: the silent nodes may not vote on the adoption. The lease's own keys stay on the nodes. Only keys of an
    /// earlier giver are deleted, because adopters do not know that giver's token.
    pub fn detach(&mut self, now: Moment) -> Result<Commands<U>, Undetachable> {
        if self.lease.is_upgrading() {
            return Err(Undetachable::Upgrading);
        }
        let silent = self.silent();
        if silent.len() > self.lease.quorum().tolerated() {
            return Err(Undetachable::Silent(silent));
        }
        if !self.lease.detach(now) {
            return Err(Undetachable::Ended(self.lease.ended(now).unwrap_or(Ended::Expired)));
        }
        self.end(now, Stage::Detached);
        Ok(Commands { release_giver: self.giver_holders(), ..Commands::default() })
    }

    /// Returns the requests that delete all keys that the token may have left on the nodes, for example the keys of a
    /// detached lease that nobody can adopt.
    pub fn delete(&mut self) -> Commands<U> {
        if self.stage == Stage::Detached {
            self.stage = Stage::Over;
        }
        let release = self.holders();
        let release_upgrades = self.footprint.take_upgrades();
        Commands { release, release_upgrades, ..Commands::default() }
    }

    /// Ends the lease. From now on, grants that arrive late are undone.
    fn end(&mut self, now: Moment, stage: Stage) {
        self.stage = stage;
        if let Some(round) = &mut self.round {
            let _ = round.handle(now, Event::Abandon);
        }
    }

    /// The nodes that may still hold the token of the giver; none if there is no giver.
    fn giver_holders(&self) -> NodeSet {
        if !self.origin.takes_over() {
            return NodeSet::EMPTY;
        }
        self.footprint.may_hold_giver(self.lease.quorum())
    }
}

#[cfg(test)]
impl<U: Clone + PartialEq> Claim<U> {
    /// The state of the claim as a whole, without its state for each node.
    pub(crate) fn phase(&self) -> impl core::hash::Hash + use<U> {
        (core::mem::discriminant(&self.stage), self.is_giver_over)
    }

    /// Whether the lease was detached, upgraded or released. A release counts only once every node has answered RELEASE
    /// or reached its deadline.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over | Stage::Detached)
    }

    pub(crate) fn footprint(&self) -> &Footprint<U> {
        &self.footprint
    }

    /// Whether a node must get RELEASE once more at the end of the release.
    pub(crate) fn releases_again(&self, node: usize) -> bool {
        matches!(self.stage, Stage::Releasing { again, .. } if again.contains(node))
    }
}
