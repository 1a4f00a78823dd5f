//! The lease of a won round: its validity, extension, repair and release.
//!
//! This module owns the validity end: no other module may declare a lease valid. [`Claim`](crate::Claim) passes in the
//! nodes' answers.

use crate::quorum::{NodeSet, Quorum};
use crate::tally::{Answer, Healed, Tally};
use crate::term::{Keep, Moment, Term};
use core::time::Duration;

/// Why a lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// Its validity end passed without an extension in time.
    Expired,
    /// It was extended up to its limit, and its validity end has passed.
    AtLimit,
    /// Its validity end passed, because its renewal had stopped: there was no heartbeat. Only
    /// [`Upkeep::reason`](crate::Upkeep::reason) returns this reason.
    NoHeartbeat,
    /// Too many nodes reported that the key is missing: no majority can hold the key.
    Taken,
    /// Its client was closed while the lease was held.
    ClientClosed,
    /// Its holder released it.
    Released,
    /// Its holder detached it, so that another client can adopt it.
    Detached,
    /// It was upgraded: an exclusive lease has taken its place.
    Upgraded,
}

/// One lease: its validity end, its fence, and the nodes that count for it.
///
/// A lease is valid until the first of these events: the validity end passes; so many nodes report that the key is
/// missing that no majority can hold the key; the holder releases, detaches or upgrades the lease; the client is
/// closed. Only a confirmed extension moves the validity end, and never beyond the limit. A lease that has ended never
/// becomes valid again.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    quorum: Quorum,
    end: Moment,
    limit: Option<Moment>,
    /// Why the lease ended; `None` if it is valid or has expired. An expiry is not recorded, because it follows from
    /// `end`.
    ended: Option<Ended>,
    released: bool,
    fence: u64,
    /// The nodes whose confirmations count. These nodes hold the key and have not granted the resource to another
    /// client since this lease was won.
    sound: NodeSet,
    /// Nodes that hold the key but may have granted the resource to another client since this lease was won. Until such
    /// a node is [sound](Self::sound) again, its confirmations count against the lease.
    passed: NodeSet,
    /// The number of changes of mode so far. Answers to extensions that began before the latest change do not count: a
    /// node refuses an EXTEND of the old mode after an upgrade or a downgrade has reached it.
    mode_changes: u32,
    /// Whether an upgrade is under way. Meanwhile, nothing extends, repairs or detaches the lease.
    is_upgrading: bool,
}

impl Lease {
    /// Creates the lease of a won round. `granted` are the nodes that granted the round
    /// ([`Round::granted`](super::Round::granted)); `end` is the validity end.
    ///
    /// No extension moves the end beyond `limit`; `None` means no limit. The Redlock specification asks for a limit, so
    /// that a holder that hangs does not keep the lock forever.
    pub fn new(
        quorum: Quorum,
        granted: NodeSet,
        fence: u64,
        end: Moment,
        limit: Option<Moment>,
    ) -> Self {
        Self {
            quorum,
            end,
            limit,
            ended: None,
            released: false,
            fence,
            sound: granted,
            passed: NodeSet::EMPTY,
            mode_changes: 0,
            is_upgrading: false,
        }
    }

    /// Returns the lease of the won round. `grants` has each node that granted the round, with its fence. `self` is the
    /// placeholder that was created before the round was won.
    pub(crate) fn won(
        &self,
        grants: impl Iterator<Item = (usize, u64)>,
        fence: u64,
        end: Moment,
    ) -> Self {
        let mut lease = Self::new(self.quorum, NodeSet::EMPTY, fence, end, self.limit);
        grants.for_each(|(node, granted)| lease.granted(node, granted));
        lease
    }

    pub(crate) fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// Recreates a lease that another process won, from the nodes' answers to a query sent at `sent`. `None` if the
    /// sound nodes that still hold the key are not a majority.
    ///
    /// `sound` are the nodes that [counted](Self::sound) for the lease when the other process stopped managing it,
    /// except those nodes that lack the key now. `left` has each node that holds the key, with the time until the key
    /// expires on that node.
    ///
    /// No process is allowed to repair the lease after the other process has stopped managing it. So a sound node that
    /// still holds the key has held the key all the time, and has granted the resource to nobody else. A majority of
    /// such nodes excludes all other clients until the returned validity end, however long ago the lease was won.
    pub fn resume(
        quorum: Quorum,
        sound: NodeSet,
        fence: u64,
        sent: Moment,
        drift_factor: f64,
        left: &[(usize, Duration)],
    ) -> Option<Self> {
        let counted = left.iter().filter(|(node, _)| sound.contains(*node));
        let mut ends: Vec<_> =
            counted.map(|(_, ttl)| Term { ttl: *ttl, drift_factor }.end(sent)).collect();
        ends.sort_unstable_by(|one, other| other.cmp(one));
        let end = *ends.get(quorum.size() - 1)?;
        Some(Self::new(quorum, sound, fence, end, None))
    }

    /// Records a grant: `node` granted the resource to the lease's token, with this fence. The node's answer may have
    /// arrived after the round was won.
    pub fn granted(&mut self, node: usize, fence: u64) {
        // If the fence is larger than the lease's own, the node may have granted the resource to another client before
        // it received this request, perhaps even after this round was won.
        let healed = if fence > self.fence { Healed::Passed } else { Healed::Clean };
        self.healed(node, healed);
    }

    /// Records a node's answer to HEAL, which repairs a lost key. A repaired node counts only if it cannot have been
    /// part of another client's majority while the key was missing.
    pub fn healed(&mut self, node: usize, healed: Healed) {
        match healed {
            Healed::Held => {}
            Healed::Clean if self.passed.contains(node) => {}
            Healed::Clean => self.sound.insert(node),
            Healed::Passed if self.sound.contains(node) => {}
            Healed::Passed => self.passed.insert(node),
        }
    }

    /// The nodes that, as far as this client knows, do not hold the key. Send HEAL to them.
    pub fn missing(&self) -> NodeSet {
        self.quorum.all().without(self.sound.with(self.passed))
    }

    /// The nodes that count: they hold the key, as far as this client knows, and have not granted the resource to
    /// another client since the lease was won.
    pub fn sound(&self) -> NodeSet {
        self.sound
    }

    /// Whether some nodes hold the key but do not count yet. The next confirmed extension makes these nodes count
    /// again: see [`Lease::extended`].
    pub fn has_passed(&self) -> bool {
        !self.passed.is_empty()
    }

    /// The current validity end: the first moment at which the lease is no longer valid.
    pub fn end(&self) -> Moment {
        self.end
    }

    /// Whether the validity end is as late as the limit allows.
    pub fn is_at_limit(&self) -> bool {
        self.limit.is_some_and(|limit| self.end >= limit)
    }

    /// Why the lease is over; `None` while it is valid.
    pub fn ended(&self, now: Moment) -> Option<Ended> {
        self.ended.or_else(|| {
            let expired = if self.is_at_limit() { Ended::AtLimit } else { Ended::Expired };
            (now >= self.end).then_some(expired)
        })
    }

    /// Whether the lease is valid at `now`.
    pub fn is_valid(&self, now: Moment) -> bool {
        self.ended(now).is_none()
    }

    /// Whether the lease was given up: by [`Lease::release`], by [`Lease::close`], or by a successful [`Lease::detach`]
    /// or [`Lease::upgraded`]. A lost lease is given up only when it is released or closed.
    pub fn is_released(&self) -> bool {
        self.released
    }

    /// Begins an extension whose first EXTEND is sent at `sent` or later. `None` if the lease has ended, or if an
    /// upgrade of the lease is under way: a node that has granted the upgrade refuses EXTEND, and that refusal would
    /// count against the lease.
    ///
    /// Send EXTEND with the ttl of [`Extension::term`] to all nodes and pass the nodes' answers to [`Lease::extended`].
    /// An extension never shortens the lease, just as EXTEND never shortens the life of a key.
    pub fn extend(&self, sent: Moment, term: Term) -> Option<Extension> {
        let (term, latest) = match self.limit {
            Some(limit) => (term.until(sent, limit), limit),
            None => (term, term.end(sent)),
        };
        let end = term.end(sent).min(latest);
        Some(self.ask(sent, term, end)).filter(|_| self.may_send(sent))
    }

    /// Begins an extension that does not move the validity end: it only finds out which nodes hold the key. `None` if
    /// the lease has ended, or if an upgrade of the lease is under way.
    pub fn verify(&self, sent: Moment, term: Term) -> Option<Extension> {
        Some(self.ask(sent, term.until(sent, self.end), self.end)).filter(|_| self.may_send(sent))
    }

    /// Whether requests that keep the lease alive may be sent.
    fn may_send(&self, now: Moment) -> bool {
        self.is_valid(now) && !self.is_upgrading
    }

    fn ask(&self, sent: Moment, term: Term, end: Moment) -> Extension {
        Extension {
            sent,
            patience: term.patience(),
            term,
            end,
            tally: Tally::default(),
            confirmed: false,
            missing: NodeSet::EMPTY,
            passed: self.passed,
            mode_changes: self.mode_changes,
        }
    }

    /// Records a node's answer to `extension`, received at `now`. Returns `None` until the extension is decided, and
    /// then the decision. Continue to pass in answers after the decision, because [`Extension::take_missing`] needs
    /// them.
    ///
    /// A majority must confirm before the *old* validity end. A majority that confirms later still excludes other
    /// clients, because its nodes hold the key. But after the old validity end, another client may have acquired the
    /// resource, with a larger fence, and released it. This lease would then be valid again with the smaller fence.
    ///
    /// Only *sound* nodes can confirm. A node that lost the key and was repaired may have granted the resource to
    /// another client before the repair, and that client's lease may have begun and ended unnoticed. The node counts
    /// again after a majority of sound nodes has confirmed an extension that was sent after the repair. That
    /// confirmation proves that no other client had a majority.
    pub fn extended(
        &mut self,
        now: Moment,
        extension: &mut Extension,
        node: usize,
        answer: Answer,
    ) -> Option<Extended> {
        if extension.mode_changes != self.mode_changes {
            return Some(if self.is_valid(now) { Extended::Undecided } else { Extended::Lost });
        }
        let answer = self.weigh(node, answer, &mut extension.missing);
        extension.tally.add(node, answer);
        if !self.is_valid(now) {
            return Some(Extended::Lost);
        }
        if extension.tally.no.len() > self.quorum.tolerated() {
            self.ended = Some(Ended::Taken);
            return Some(Extended::Lost);
        }
        if extension.tally.yes.len() >= self.quorum.size() {
            self.end = self.end.max(extension.end);
            extension.confirmed = true;
            self.trust(extension.passed);
            return Some(Extended::Confirmed);
        }
        extension.tally.is_complete(self.quorum).then_some(Extended::Undecided)
    }

    /// Decides how a node's answer to EXTEND counts. Adds the node to `missing` if the node needs HEAL.
    fn weigh(&mut self, node: usize, answer: Answer, missing: &mut NodeSet) -> Answer {
        match answer {
            Answer::Yes if self.sound.contains(node) => Answer::Yes,
            Answer::Yes if self.passed.contains(node) => Answer::No,
            Answer::Yes => {
                // How the node came to hold the key is unknown. The answer to HEAL will decide whether the node counts.
                missing.insert(node);
                Answer::Unknown
            }
            Answer::No => {
                self.sound.remove(node);
                self.passed.remove(node);
                missing.insert(node);
                Answer::No
            }
            Answer::Unknown => Answer::Unknown,
        }
    }

    /// Makes `nodes` count again, except those that are no longer `passed`. Call this only after a majority has
    /// confirmed an extension; `nodes` are the nodes that were `passed` when that extension began.
    fn trust(&mut self, nodes: NodeSet) {
        for node in nodes.iter() {
            if self.passed.contains(node) {
                self.passed.remove(node);
                self.sound.insert(node);
            }
        }
    }

    /// Returns the ttl of a HEAL, which repairs a node that lacks the key; `None` if the lease has ended or is being
    /// upgraded. A repair needs no new majority: while the lease is valid, its majority excludes all other clients.
    pub fn heal(&self, now: Moment, term: Term) -> Option<Duration> {
        // If the lease was extended for longer than this term, the HEAL needs a larger allowance for drift.
        let longer = Term { ttl: Duration::MAX, ..term }.until(now, self.end);
        let ttl = longer.ttl.max(self.end.since(now).saturating_add(term.drift()));
        self.may_send(now).then_some(ttl)
    }

    /// Ends the lease for its holder: from `now` on the lease is not valid, whatever the nodes answer. Send RELEASE to
    /// all nodes and pass their answers to [`Lease::released`].
    pub fn release(&mut self, now: Moment) -> Release {
        self.finish(now, Ended::Released)
    }

    /// Ends the lease because its client is closed. The caller must notify the holder, and then continue as after
    /// [`Lease::release`].
    pub fn close(&mut self, now: Moment) -> Release {
        self.finish(now, Ended::ClientClosed)
    }

    /// Ends the lease for its holder, and leaves its keys on the nodes for an adopter. Returns `false` and does nothing
    /// if the lease has ended or is being upgraded.
    ///
    /// Tell nobody the token before this method returns: an adopter could take the keys while the lease is still valid.
    /// Send no HEAL afterwards: the lease's key must not come back on a node that has transferred the key to an
    /// adopter.
    pub fn detach(&mut self, now: Moment) -> bool {
        !self.is_upgrading && self.give_up(now, Ended::Detached)
    }

    /// Begins an upgrade of this shared lease: a [`Round`](crate::Round) with a new token, whose TRANSFER is sent at
    /// `sent` or later. If the round is won, its lease takes the place of the shared lease. Returns `false` if the
    /// lease has ended or is being upgraded already. In that case, do not start the round.
    ///
    /// Neither TRANSFER nor GIVE BACK shortens the life of a key. So a node that has granted the upgrade still keeps
    /// other clients out for at least as long as the shared lease needs. The upgrade therefore does not change the
    /// validity end of the shared lease, whether the upgrade succeeds or fails.
    ///
    /// If the upgrade's round is lost, send GIVE BACK to every node that may have granted the upgrade. This GIVE BACK
    /// must restore the keys for a whole term. Then call [`Lease::end_upgrade`].
    pub fn begin_upgrade(&mut self, sent: Moment) -> bool {
        let may_begin = self.may_send(sent);
        if may_begin {
            self.mode_changes += 1;
            self.is_upgrading = true;
        }
        may_begin
    }

    /// Records that the lease is downgraded. Extensions that began before this call stay undecided.
    pub(crate) fn record_downgrade(&mut self) {
        self.mode_changes += 1;
    }

    /// Whether an upgrade is under way. Meanwhile, nothing extends, repairs or detaches the lease.
    pub fn is_upgrading(&self) -> bool {
        self.is_upgrading
    }

    /// Ends an upgrade, whether it succeeded or failed.
    pub fn end_upgrade(&mut self) {
        self.is_upgrading = false;
    }

    /// Ends the shared lease for its holder, because the round of its upgrade was won. Returns whether the shared lease
    /// was valid. If it was not valid, does nothing, and the caller must give the upgrade's keys back
    /// ([`Claim::upgraded`](crate::Claim::upgraded)).
    pub fn upgraded(&mut self, now: Moment) -> bool {
        self.give_up(now, Ended::Upgraded)
    }

    fn give_up(&mut self, now: Moment, why: Ended) -> bool {
        let is_valid = self.is_valid(now);
        if is_valid {
            self.ended = Some(why);
            self.released = true;
        }
        is_valid
    }

    fn finish(&mut self, now: Moment, why: Ended) -> Release {
        let ended = self.ended(now);
        self.ended = ended.or(Some(why));
        self.released = true;
        Release { was_valid: ended.is_none(), tally: Tally::default() }
    }

    /// Records a node's answer to `release`. Returns `None` until the release is decided. Returns `true` if the lease
    /// was valid when it was released, and a majority of the nodes confirm that they still held the lease's key.
    /// Returns `false` if the lease had ended before its release, or if no majority confirms.
    pub fn released(&mut self, release: &mut Release, node: usize, answer: Answer) -> Option<bool> {
        let has_passed = answer == Answer::Yes && self.passed.contains(node);
        release.tally.add(node, if has_passed { Answer::No } else { answer });
        if !release.was_valid {
            return Some(false);
        }
        if release.tally.no.len() > self.quorum.tolerated() {
            self.ended = Some(Ended::Taken);
            return Some(false);
        }
        if release.tally.yes.len() >= self.quorum.size() {
            return Some(true);
        }
        release.tally.is_complete(self.quorum).then_some(false)
    }
}

/// The model hashes everything except the state per node. The model reads that state with [`Lease::standing`].
#[cfg(test)]
impl core::hash::Hash for Lease {
    fn hash<H: core::hash::Hasher>(&self, hasher: &mut H) {
        let Self { quorum, end, limit, ended, released, fence, mode_changes, .. } = self;
        (quorum, end, limit, ended, released, fence, mode_changes, self.is_upgrading).hash(hasher);
    }
}

#[cfg(test)]
impl Lease {
    pub(crate) fn fence(&self) -> u64 {
        self.fence
    }

    /// Whether a node is `sound`, and whether it is `passed`.
    pub(crate) fn standing(&self, node: usize) -> (bool, bool) {
        (self.sound.contains(node), self.passed.contains(node))
    }
}

/// How an extension ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// A majority confirmed in time. The validity end has moved, unless the extension came from
    /// [`Lease::verify`].
    Confirmed,
    /// The lease has ended: its validity end passed, it was released, or no majority can hold the key.
    Lost,
    /// Too few of the nodes' answers count. The lease is unchanged; the caller may begin another extension.
    Undecided,
}

/// An extension in progress, from [`Lease::extend`] or [`Lease::verify`].
#[derive(Clone, Debug, PartialEq)]
pub struct Extension {
    sent: Moment,
    pub(crate) patience: Duration,
    term: Term,
    end: Moment,
    tally: Tally,
    confirmed: bool,
    /// The nodes that need HEAL and have not been returned by [`Self::take_missing`] yet.
    missing: NodeSet,
    /// The lease's `passed` nodes when the extension began. If a majority confirms, these nodes count again.
    passed: NodeSet,
    /// How often the lease had changed its mode when the extension began. If the lease has another number by now, the
    /// answers do not count.
    mode_changes: u32,
}

impl Extension {
    /// When the extension began: its EXTEND is sent at this moment or later.
    pub fn sent(&self) -> Moment {
        self.sent
    }

    /// How long to wait for each node's answer, from [`Extension::sent`] on.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The term to send in EXTEND.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Returns the nodes that lack the key, except those that an earlier call returned. Send HEAL to the returned
    /// nodes. Returns no node until a majority has confirmed.
    pub fn take_missing(&mut self) -> NodeSet {
        if self.confirmed { core::mem::take(&mut self.missing) } else { NodeSet::EMPTY }
    }
}

#[cfg(test)]
impl Extension {
    /// Whether `node` counts again if a majority confirms.
    pub(crate) fn trusts(&self, node: usize) -> bool {
        self.passed.contains(node)
    }
}

/// A release in progress, from [`Lease::release`] or [`Lease::close`].
#[derive(Clone, Debug)]
pub struct Release {
    was_valid: bool,
    tally: Tally,
}

impl Release {
    /// Whether the lease was valid when it was released. If it was not, [`Lease::released`] returns `false`, whatever
    /// the nodes answer.
    pub fn was_valid(&self) -> bool {
        self.was_valid
    }

    /// Returns how long the nodes keep the keys if the holder asks for `term.ttl`; `None` if the lease had ended before
    /// its release, because the nodes then delete the keys.
    pub fn keep(&self, now: Moment, term: Term) -> Option<Keep> {
        self.was_valid.then(|| Keep::new(term, now))
    }
}
