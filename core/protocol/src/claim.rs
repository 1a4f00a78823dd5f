//! A claim: the life of one token, from its first ACQUIRE to the last request that deletes its keys.
//!
//! A claim consists of a [`Round`], a [`Lease`] if the round is won, and a [`Footprint`]: the keys that the token's
//! requests may have left on the nodes. The claim decides which of these keys are deleted, when, and on which nodes: no
//! other code decides about RELEASE, UNDO or GIVE BACK. The claim sends nothing: the driver (`lock/claim.rs` of the
//! crate `quorlock`) and the model report events to the claim and carry out the [`Commands`] that the claim returns.

use crate::footprint::Footprint;
use crate::lease::{Ended, Extended, Extension, Lease, Release};
use crate::quorum::{NodeSet, Quorum};
use crate::round::{Actions, Event, Outcome, Round, Vote};
use crate::tally::{Answer, Healing};
use crate::term::{Keep, Moment, Term};
use core::time::Duration;

/// How a claim gets its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// By ACQUIRE.
    Acquired,
    /// By TRANSFER, from a lease that its holder has detached. Other adopters may compete for the same lease.
    Adopted,
    /// By TRANSFER, from a shared lease of the same client: this claim makes that lease exclusive.
    Upgraded,
}

impl Origin {
    /// Whether the claim takes over the keys of a *giver*: a detached lease, or the lease that this claim upgrades.
    fn takes_over(self) -> bool {
        matches!(self, Self::Adopted | Self::Upgraded)
    }
}

/// The requests that the caller must send now. The default is no request.
///
/// RELEASE deletes the keys of a token; after a lost round, RELEASE is called UNDO. If a node does not answer RELEASE
/// or GIVE BACK, repeat the request until the node answers, or until the keys have [expired](Claim::gone_by) on the
/// node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Commands<S> {
    /// Send RAISE with this fence to these nodes; `None` if no RAISE is needed.
    pub raise: Option<(NodeSet, u64)>,
    /// Send RELEASE to these nodes. If the connection that carried this claim's earlier requests to a node is still
    /// open, send RELEASE on that connection, after those requests.
    pub release: NodeSet,
    /// Send GIVE BACK to these nodes. If the connection that carried this claim's earlier requests to a node is still
    /// open, send GIVE BACK on that connection, after those requests.
    pub give_back: NodeSet,
    /// Send RELEASE with the token of the giver (the lease that this claim takes over) to these nodes.
    pub release_giver: NodeSet,
    /// Send RELEASE with this claim's token to these nodes. After a node has answered, send that node RELEASE with the
    /// giver's token. The order matters: after the first RELEASE, a GIVE BACK that is still under way finds no key that
    /// it could give back to the giver.
    pub release_both: NodeSet,
    /// Failed upgrades of this lease, each with a node. Send that node RELEASE with the upgrade's token, and, after the
    /// node has answered, RELEASE with this lease's token. In this order, a GIVE BACK that is still under way cannot
    /// restore this lease's keys.
    pub release_upgrades: Vec<(S, usize)>,
    /// The decision of the round; `None` unless the event that was just handled has decided the round.
    pub outcome: Option<Outcome>,
}

impl<S> Default for Commands<S> {
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
    /// The lease was lost during an upgrade, and the upgrade has ended. The claim has returned the requests that delete
    /// the lease's keys, which must not come back.
    Lost,
    /// The lease was released. If an upgrade of the lease is under way, RELEASE is sent after that upgrade has ended.
    Releasing {
        is_sent: bool,
        /// The nodes where a late request may set the token after RELEASE. Send these nodes a second RELEASE, but only
        /// after the first RELEASE is answered or has reached its deadline. If the second RELEASE arrived first, the
        /// first one would find no key, and the release would report that the lease was lost.
        again: NodeSet,
        /// The nodes that might still have applied GIVE BACK of a failed upgrade when RELEASE was sent.
        giving_back: NodeSet,
    },
    /// The lease was released, upgraded or deleted. If a late request of this claim still sets a key, that key is
    /// deleted.
    Over,
    /// The lease was detached. A late request of this claim may still set a key on a node. Deleting that key is safe:
    /// such a node must not vote on an adoption, so no adopter relies on the key.
    Detached,
}

/// The nodes' answers to the query whether they hold the token of a lease.
#[derive(Clone, Debug)]
pub struct StoredToken {
    /// When the query was sent.
    pub asked: Moment,
    /// The nodes that hold the token, each with the time until the token's key expires on that node.
    pub left: Vec<(usize, Duration)>,
    /// The nodes that have answered that they do not hold the token.
    pub missing: NodeSet,
}

/// Why a lease cannot be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresumable {
    /// Too few nodes have answered to tell whether the lease still exists.
    Unknown,
    /// The lease cannot be resumed any more, now or later. Send RELEASE to these nodes, if any: nobody can use the lease
    /// there, so the keys that are left would only block other clients.
    Ended(NodeSet),
}

/// Why a lease cannot be detached, downgraded or upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Another process may also use the lease, and would not learn of the change.
    Elsewhere,
    /// An upgrade of the lease is not complete. The requests of both changes would change the same keys, in an
    /// uncertain order.
    Upgrading,
    /// The lease cannot be detached. A late request may still set the lease's keys on these nodes, so these nodes must
    /// not vote on an adoption. Without their votes, no adopter could win a majority.
    Silent(NodeSet),
    /// The lease has ended.
    Ended(Ended),
}

/// The state of one token: its round, its lease and its footprint.
///
/// `S` is the type of subjects. The subject of a claim contains the token and its keys, which every request of the
/// claim carries. Two subjects are equal if they have the same token.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim<S> {
    subject: S,
    origin: Origin,
    term: Term,
    stage: Stage,
    /// The round; `None` if no further vote can change the claim. Boxed, so that a claim without a round is small.
    round: Option<Box<Round>>,
    /// Until the round is won, this is a placeholder: a lease that has ended.
    lease: Lease,
    footprint: Footprint<S>,
    /// Whether the claim knows that nobody can use the giver's lease any more: see [`Claim::end_giver`].
    is_giver_over: bool,
    /// Whether another process may also use the lease: see [`Claim::pass_on`] and [`Claim::resume`].
    is_elsewhere: bool,
    /// Whether the nodes keep the keys for a time after the release: see [`Claim::keep_keys`].
    keeps_keys: bool,
}

impl<S: Clone + PartialEq> Claim<S> {
    /// Creates a claim whose first ACQUIRE or TRANSFER is sent at `sent` or later. For `limit`, see [`Lease::new`].
    pub fn new(
        subject: S,
        quorum: Quorum,
        origin: Origin,
        sent: Moment,
        term: Term,
        limit: Option<Moment>,
    ) -> Self {
        let round = Round::new(quorum, sent, term);
        Self {
            subject,
            origin,
            term,
            stage: Stage::Asking,
            lease: Lease::new(quorum, NodeSet::EMPTY, 0, sent, limit),
            footprint: Footprint::new(&round, term.gone(sent)),
            round: Some(Box::new(round)),
            is_giver_over: false,
            is_elsewhere: false,
            keeps_keys: false,
        }
    }

    /// Creates the claim of a lease that another process won, and no longer manages: see [`Lease::resume`]. `sound` are
    /// the nodes that counted for the lease when that process stopped managing the lease.
    pub fn resume(
        subject: S,
        quorum: Quorum,
        sound: NodeSet,
        fence: u64,
        term: Term,
        stored: &StoredToken,
        now: Moment,
    ) -> Result<Self, Unresumable> {
        let StoredToken { asked, left, missing } = stored;
        let sound = sound.without(*missing);
        // Nobody repairs the lease, so a missing key does not come back.
        if sound.len() < quorum.size() {
            // Another process that has resumed the lease may count nodes that are not sound here. So release nothing if
            // a majority may hold the key.
            let may_be_held = quorum.all().without(*missing).len() >= quorum.size();
            let left = left.iter().filter(|_| !may_be_held).map(|(node, _)| *node);
            return Err(Unresumable::Ended(left.collect()));
        }
        let lease = Lease::resume(quorum, sound, fence, *asked, term.drift_factor, left);
        let Some(lease) = lease.filter(|lease| lease.is_valid(now)) else {
            let end = |ttl: Duration| Term { ttl, ..term }.end(*asked);
            let expired = left.iter().filter(|(_, ttl)| end(*ttl) <= now);
            let expired = expired.map(|(node, _)| *node).collect();
            // Another process may have extended the lease on the nodes that have not answered. So release nothing.
            let may_be_held = sound.without(expired).len() >= quorum.size();
            let ended = Unresumable::Ended(NodeSet::EMPTY);
            return Err(if may_be_held { Unresumable::Unknown } else { ended });
        };
        // A node that has not answered may also hold the key. A request of the process that won the lease may still be
        // under way to a node that is not sound.
        let all = quorum.all();
        let longest = left.iter().map(|(_, ttl)| *ttl).max().unwrap_or_default().max(term.ttl);
        let gone_by = Term { ttl: longest, ..term }.gone(now);
        let footprint = Footprint::with(all.without(*missing), all.without(sound), gone_by);
        Ok(Self {
            subject,
            origin: Origin::Acquired,
            term,
            stage: Stage::Held,
            round: None,
            lease,
            footprint,
            is_giver_over: false,
            is_elsewhere: true,
            keeps_keys: false,
        })
    }

    /// Records that this upgrade's keys may last until `gone_by`. The upgrade takes over keys of the shared lease, and
    /// its TRANSFER does not shorten the life of a key.
    pub fn takes_keys_until(&mut self, gone_by: Moment) {
        self.footprint.set_keys_until(gone_by);
    }

    /// The token and its keys, which the next request of the claim must carry.
    pub fn subject(&self) -> &S {
        &self.subject
    }

    /// The lease. Until the round is won, this is a placeholder that has ended.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The round; `None` if no further vote can change the claim.
    pub fn round(&self) -> Option<&Round> {
        self.round.as_deref()
    }

    /// How the claim gets its lease.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The nodes that have not answered a request of this claim, and may therefore still set the keys. These nodes must
    /// not vote on an adoption.
    pub fn silent(&self) -> NodeSet {
        self.footprint.silent()
    }

    /// The nodes that may hold the token now, or later because of a late request.
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
    /// A detached lease is not deleted: its adopters need its keys, including those that a failed upgrade gives back.
    pub fn is_deleted(&self) -> bool {
        match self.stage {
            // A RELEASE that is not sent yet must find the keys, so the upgrade must still give the keys back.
            Stage::Releasing { is_sent, .. } => is_sent,
            Stage::Lost | Stage::Over => true,
            Stage::Asking | Stage::Undone | Stage::Held | Stage::Detached => false,
        }
    }

    /// Whether another process may also use the lease. If so, this process must not repair the lease: see
    /// [`Lease::resume`]. Once this process has forgotten the claim, this process must not release the token either.
    pub fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    /// Lets another process [resume](Claim::resume) the lease from now on. Returns the nodes that count towards the
    /// lease's majority. The other process needs these nodes to resume the lease.
    pub fn pass_on(&mut self, now: Moment) -> Result<NodeSet, Obstacle> {
        match self.check_change(now) {
            Ok(()) | Err(Obstacle::Elsewhere) => {}
            Err(obstacle) => return Err(obstacle),
        }
        // GIVE BACK of a failed upgrade could restore the token after the other process has released it.
        if !self.has_keys_back() {
            return Err(Obstacle::Upgrading);
        }
        self.is_elsewhere = true;
        Ok(self.lease.sound())
    }

    /// Handles an event of the round, and returns the requests to send. [`Event`] says when the driver must report each
    /// event. When the driver releases the lease, it need not report [`Event::Abandon`]: the claim abandons the round
    /// itself.
    pub fn handle(&mut self, now: Moment, event: Event) -> Commands<S> {
        let Some(round) = &mut self.round else { return Commands::default() };
        let Actions { raise, undo, outcome } = round.handle(now, event);
        self.footprint.counted_votes(round);
        let mut commands = Commands { raise, outcome, ..Commands::default() };
        match outcome {
            Some(Outcome::Won { fence, end }) => {
                self.lease = self.lease.won(round.grants(), fence, end);
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

    /// If the event is a node's grant that arrived after the decision, adds this node to the lease.
    fn join(&mut self, event: Event) {
        if let Event::Vote { node, vote: Vote::Granted { fence }, .. }
        | Event::Late { node, vote: Vote::Granted { fence } } = event
        {
            self.lease.granted(node, fence);
        }
    }

    /// Adds to `commands` the requests that remove the token from these nodes: RELEASE or GIVE BACK.
    fn undo(&mut self, nodes: NodeSet, commands: &mut Commands<S>) {
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
            // Before the driver extends the shared lease again, every node where the TRANSFER may take the lease's keys
            // must give the keys back. So GIVE BACK also goes to the nodes that have not answered the TRANSFER yet. On
            // these nodes, GIVE BACK follows the TRANSFER.
            commands.give_back = round.holders();
        } else {
            commands.give_back = nodes;
        }
    }

    fn release_now_or_later(&mut self, nodes: NodeSet, commands: &mut Commands<S>) {
        match &mut self.stage {
            Stage::Releasing { again, .. } => *again = again.with(nodes),
            _ => commands.release = nodes,
        }
    }

    /// Forgets the round if it was won and every node has answered the round's request.
    fn forget_round(&mut self) {
        let is_complete = |round: &Round| round.unanswered().is_empty();
        if !matches!(self.stage, Stage::Asking | Stage::Undone)
            && self.round.as_deref().is_some_and(is_complete)
        {
            self.round = None;
        }
    }

    /// Whether a node must get RELEASE because of this late vote. The driver calls this if the client has already
    /// forgotten the claim: the lease was released, or has expired after the program dropped the lease's handle.
    pub fn must_release_forgotten(vote: Vote) -> bool {
        vote.may_be_applied()
    }

    /// Records that nobody can use the giver's lease any more: no adopter can win the giver's lease, or the giver's
    /// lease is deleted. From now on, this claim gives no keys back.
    ///
    /// If this claim is a lost adoption, its GIVE BACK has restored keys of the giver, or may yet restore them. The
    /// returned requests delete these keys. If this claim is a failed upgrade, no requests are returned: the claim of
    /// the shared lease deletes such keys with [`Commands::release_upgrades`].
    pub fn end_giver(&mut self) -> Commands<S> {
        let is_known = core::mem::replace(&mut self.is_giver_over, true);
        let gives_back = self.origin == Origin::Adopted && self.stage == Stage::Undone && !is_known;
        let release_both = if gives_back { self.holders() } else { NodeSet::EMPTY };
        Commands { release_both, ..Commands::default() }
    }

    /// Begins an extension whose EXTEND is sent at `now` or later. Each node has `patience` to answer, but at most
    /// until the validity end. Returns `None` if the lease has ended or is being upgraded: see [`Lease::extend`].
    pub fn extend(&mut self, now: Moment, term: Term, patience: Duration) -> Option<Extension> {
        let extension = self.lease.extend(now, term)?;
        Some(self.ask(extension, patience))
    }

    /// Begins an extension that does not move the validity end: see [`Lease::verify`]. Returns `None` if the lease has
    /// ended or is being upgraded.
    pub fn verify(&mut self, now: Moment, patience: Duration) -> Option<Extension> {
        let extension = self.lease.verify(now, self.term)?;
        Some(self.ask(extension, patience))
    }

    fn ask(&mut self, mut extension: Extension, patience: Duration) -> Extension {
        let sent = extension.sent();
        extension.patience = patience.min(self.lease.end().since(sent));
        self.footprint.set_keys_until(extension.term().gone(sent.plus(extension.patience)));
        extension
    }

    /// Records a node's answer to an extension. Returns the decision, or `None` while it is open: see
    /// [`Lease::extended`].
    pub fn extended(
        &mut self,
        now: Moment,
        extension: &mut Extension,
        node: usize,
        answer: Answer,
    ) -> Option<Extended> {
        self.lease.extended(now, extension, node, self.effective_answer(node, answer))
    }

    /// Returns how a node's answer to EXTEND counts. While the node may still apply GIVE BACK of a failed upgrade, it
    /// may hold the upgrade's token, so a refusal does not show that the lease's key is lost.
    pub(crate) fn effective_answer(&self, node: usize, answer: Answer) -> Answer {
        let gives_back = self.footprint.giving_back().contains(node);
        if gives_back { answer.without_no() } else { answer }
    }

    /// Handles a node's answer to EXTEND, if the answer arrives after the release. If the nodes keep the keys for a
    /// time, returns a second RELEASE for this node: the node may have applied the EXTEND after the first RELEASE, and
    /// would then keep the keys for a whole ttl.
    pub fn extended_after_release(&mut self, node: usize, answer: Answer) -> Commands<S> {
        let mut commands = Commands::default();
        if self.keeps_keys && answer != Answer::No {
            self.release_now_or_later([node].into_iter().collect(), &mut commands);
        }
        commands
    }

    /// Begins a repair of these nodes. Returns the ttl of the HEAL to send to these nodes; `None` if the lease has
    /// ended, is being upgraded, or [may also be used by another process](Claim::is_elsewhere).
    pub fn heal(&mut self, now: Moment, nodes: NodeSet) -> Option<Duration> {
        if self.is_elsewhere {
            return None;
        }
        let ttl = self.lease.heal(now, self.term)?;
        nodes.iter().for_each(|node| self.footprint.sends_heal(node));
        Some(ttl)
    }

    /// Records what has become of a HEAL with this ttl to a node.
    ///
    /// If the HEAL was sent, and the lease was released, upgraded or detached, the node must get RELEASE with the
    /// lease's token, because the HEAL may have set the key. This method returns that RELEASE; but while a release is
    /// in progress, [`Claim::end_release`] returns it later. The adopters of a detached lease do not need the key,
    /// because this node must not vote on an adoption.
    pub fn healed(
        &mut self,
        now: Moment,
        (node, ttl): (usize, Duration),
        healing: Healing,
    ) -> Commands<S> {
        match healing {
            Healing::Unsent => {
                self.footprint.did_not_send_heal(node);
                return Commands::default();
            }
            Healing::Open => {}
            Healing::Answered(healed) => {
                self.footprint.answered_heal(node);
                healed.into_iter().for_each(|healed| self.lease.healed(node, healed));
            }
        }
        self.footprint.set_keys_until(Term { ttl, ..self.term }.gone(now));
        let mut commands = Commands::default();
        if self.lease.is_released() {
            self.release_now_or_later([node].into_iter().collect(), &mut commands);
        }
        commands
    }

    /// Returns an error if the lease cannot be detached, downgraded or upgraded now. Only [`Claim::detach`] checks for
    /// [`Obstacle::Silent`].
    pub fn check_change(&self, now: Moment) -> Result<(), Obstacle> {
        if let Some(ended) = self.lease.ended(now) {
            return Err(Obstacle::Ended(ended));
        }
        if self.is_elsewhere {
            return Err(Obstacle::Elsewhere);
        }
        if self.lease.is_upgrading() { Err(Obstacle::Upgrading) } else { Ok(()) }
    }

    /// Makes the lease shared for its holder, from now on. `subject` names the same token, and the same keys in shared
    /// mode. An extension that began earlier stays undecided.
    pub fn downgrade(&mut self, now: Moment, subject: S) -> Result<(), Obstacle> {
        self.check_change(now)?;
        self.lease.record_downgrade();
        self.subject = subject;
        Ok(())
    }

    /// Begins an upgrade whose TRANSFER is sent at `sent` or later: see [`Lease::begin_upgrade`]. Each node has
    /// `patience` to answer TRANSFER, and the same time again to answer GIVE BACK.
    pub fn begin_upgrade(&mut self, sent: Moment, patience: Duration) -> Result<(), Obstacle> {
        self.check_change(sent)?;
        let begins = self.lease.begin_upgrade(sent);
        debug_assert!(begins, "nothing prevents it");
        // TRANSFER and GIVE BACK each set keys for at least a term, counted from the moment at which the node gets the
        // request. Both requests can arrive late.
        self.footprint.set_keys_until(self.term.gone(sent.plus(2 * patience)));
        Ok(())
    }

    /// Ends the shared lease, because its upgrade has won its round: see [`Lease::upgraded`]. `upgrade` is the claim of
    /// that upgrade. If the shared lease had already ended, this method ends the upgrade. The error then contains the
    /// requests that give the upgrade's keys back.
    pub fn upgraded(&mut self, now: Moment, upgrade: &mut Self) -> Result<(), Commands<S>> {
        if self.lease.upgraded(now) {
            self.end(now, Stage::Over);
            return Ok(());
        }
        let give_back = upgrade.holders();
        let _ = upgrade.lease.release(now);
        upgrade.end(now, Stage::Undone);
        Err(Commands { give_back, ..Commands::default() })
    }

    /// Call this before sending GIVE BACK of an upgrade of this lease to these nodes. If the lease is already
    /// [deleted](Claim::is_deleted), returns commands that delete the keys of the upgrade and of the lease on these
    /// nodes: carry them out instead of sending GIVE BACK.
    pub fn gives_back(&mut self, upgrade: &S, nodes: NodeSet) -> Commands<S> {
        let mut commands = Commands::default();
        if self.is_deleted() {
            commands.release_upgrades = nodes.iter().map(|node| (upgrade.clone(), node)).collect();
        } else {
            self.footprint.sent_give_back(upgrade, nodes);
        }
        commands
    }

    /// Records that a node has answered GIVE BACK of this upgrade.
    pub fn gave_back(&mut self, now: Moment, upgrade: &S, node: usize) {
        self.footprint.answered_give_back(upgrade, node);
        self.footprint.set_keys_until(self.term.gone(now));
    }

    /// Whether the nodes have answered every GIVE BACK of this lease's upgrades.
    pub fn has_keys_back(&self) -> bool {
        self.footprint.giving_back().is_empty()
    }

    /// Ends an upgrade, whether it has succeeded or failed.
    ///
    /// If the shared lease was lost during the upgrade, returns the requests that delete the lease's keys, because GIVE
    /// BACK may have restored these keys. If the upgrade succeeded, returns the requests that delete the keys that GIVE
    /// BACK of an earlier, failed upgrade may still restore.
    pub fn end_upgrade(&mut self, now: Moment) -> Commands<S> {
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

    /// Ends the lease because its client is closed: see [`Lease::close`]. Returns the same result as
    /// [`Claim::release`], and requires the same steps afterwards.
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
        let giving_back = NodeSet::EMPTY;
        self.end(now, Stage::Releasing { is_sent: false, again: NodeSet::EMPTY, giving_back });
        Some(release)
    }

    /// Records and returns how long the nodes keep the keys after this release. Returns `None` if the nodes delete the
    /// keys at once, because the lease had ended before its release: see [`Release::keep`].
    pub fn keep_keys(&mut self, release: &Release, now: Moment, term: Term) -> Option<Keep> {
        let keep = release.keep(now, term);
        self.keeps_keys = keep.is_some();
        keep
    }

    /// Returns the requests of a release, and records that they are sent. RELEASE goes to all nodes. If a node does not
    /// answer, repeat RELEASE only if the node is one of the [`Claim::holders`].
    pub fn send_release(&mut self) -> Commands<S> {
        if let Stage::Releasing { is_sent, giving_back, .. } = &mut self.stage {
            *is_sent = true;
            *giving_back = self.footprint.giving_back();
        }
        let release_giver = self.giver_holders();
        let release_upgrades = self.footprint.take_upgrades();
        let release = self.lease.quorum().all();
        Commands { release, release_giver, release_upgrades, ..Commands::default() }
    }

    /// Records a node's answer to RELEASE. Returns the result of the release, or `None` while the result is open: see
    /// [`Lease::released`]. As for EXTEND, a node that may still give an upgrade back does not show that the lease's key
    /// is lost.
    pub fn released(&mut self, release: &mut Release, node: usize, answer: Answer) -> Option<bool> {
        let gives_back = matches!(self.stage, Stage::Releasing { giving_back, .. } if giving_back.contains(node));
        let answer = if gives_back { answer.without_no() } else { answer };
        self.lease.released(release, node, answer)
    }

    /// Ends the release. Call this when every RELEASE was answered or has reached its deadline. Returns a second
    /// RELEASE for the nodes on which a late request may have set the token after the first one.
    pub fn end_release(&mut self) -> Commands<S> {
        let release = match self.stage {
            Stage::Releasing { again, .. } => again,
            _ => NodeSet::EMPTY,
        };
        self.stage = Stage::Over;
        Commands { release, ..Commands::default() }
    }

    /// Ends the lease for its holder, and leaves its keys on the nodes for an adopter: see [`Lease::detach`]. Call
    /// [`Claim::silent`] first: the silent nodes must not vote on the adoption.
    ///
    /// If this lease was itself won by TRANSFER, the returned commands delete the keys of its giver, because adopters
    /// do not know the giver's token.
    pub fn detach(&mut self, now: Moment) -> Result<Commands<S>, Obstacle> {
        self.check_change(now)?;
        let silent = self.silent();
        if silent.len() > self.lease.quorum().tolerated() {
            return Err(Obstacle::Silent(silent));
        }
        let is_detached = self.lease.detach(now);
        debug_assert!(is_detached, "nothing prevents it");
        self.end(now, Stage::Detached);
        Ok(Commands { release_giver: self.giver_holders(), ..Commands::default() })
    }

    /// Returns the requests that delete all keys that the token may have left on the nodes. A detached lease counts as
    /// [deleted](Claim::is_deleted) from then on, so call this only when nobody can adopt it any more.
    pub fn delete(&mut self) -> Commands<S> {
        if self.stage == Stage::Detached {
            self.stage = Stage::Over;
        }
        let release = self.holders();
        let release_upgrades = self.footprint.take_upgrades();
        Commands { release, release_upgrades, ..Commands::default() }
    }

    /// Ends the lease, and moves the claim to `stage`. From now on, grants that arrive late are undone.
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
impl<S: Clone + PartialEq> Claim<S> {
    /// The state of the claim as a whole, without its state for each node.
    pub(crate) fn phase(&self) -> impl core::hash::Hash + use<S> {
        (core::mem::discriminant(&self.stage), self.is_giver_over)
    }

    /// Whether the lease was detached, upgraded or released. While a release is still in progress, the lease is not
    /// over: see [`Claim::end_release`].
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over | Stage::Detached)
    }

    pub(crate) fn footprint(&self) -> &Footprint<S> {
        &self.footprint
    }

    /// Whether a node must get a second RELEASE at the end of the release.
    pub(crate) fn releases_again(&self, node: usize) -> bool {
        matches!(self.stage, Stage::Releasing { again, .. } if again.contains(node))
    }
}
