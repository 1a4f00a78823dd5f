//! Batches: RELEASEs and ACQUIREs that go to a server as one command, because a server spends more CPU on receiving a
//! command and sending its reply than on the work of an ACQUIRE or a RELEASE.
//!
//! A server runs the requests of a batch one after another, and no other command in between (`scripts/batch.lua`). So a
//! batch does nothing that its requests would not do alone. Only their order may change: RELEASEs go first. This is
//! safe, because requests with different tokens are concurrent, and a batch has each token at most once. So an UNDO,
//! which is a RELEASE, never moves ahead of the ACQUIRE of its own round.

use crate::wire::commands::{By, counter_ttl, invoke};
use crate::wire::keys::{KeyMode, Keys};
use crate::wire::request::{Request, Subject};
use crate::wire::script::{BATCH, milliseconds};
use crate::wire::token::Token;
use redis::{Cmd, Value};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// The largest number of requests in a batch. While a server runs a batch, it serves no other client.
const MAX_REQUESTS: usize = 64;

/// A request that may be part of a batch: an ACQUIRE, or a RELEASE that deletes the lock key and whose waiter does not
/// join the queue. The request is for one lock in exclusive mode.
#[derive(Clone, Debug)]
pub(crate) struct Batchable {
    request: Arc<Request>,
    /// The slot of the keys, because all keys of a command must be in one slot of a Redis Cluster; `None` outside a
    /// cluster.
    slot: Option<u16>,
}

impl Batchable {
    /// Returns `None` if the request cannot be part of a batch.
    pub(crate) fn new(request: &Arc<Request>, is_clustered: bool) -> Option<Self> {
        let (Request::Acquire { subject, .. }
        | Request::Release { subject, ticket: None, keep: None, .. }) = &**request
        else {
            return None;
        };
        let [keys] = &*subject.keys else { return None };
        let slot = is_clustered.then(|| request.slot());
        matches!(keys.mode, KeyMode::Exclusive).then(|| Self { request: Arc::clone(request), slot })
    }

    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    fn subject(&self) -> &Subject {
        match &*self.request {
            Request::Acquire { subject, .. } | Request::Release { subject, .. } => subject,
            _ => unreachable!("a batch has no other requests"),
        }
    }

    fn token(&self) -> &Token {
        &self.subject().token
    }

    fn keys(&self) -> &Keys {
        &self.subject().keys[0]
    }

    /// Whether `reply`, the reply of a batch to this request, refuses an ACQUIRE whose waiter must now join the queue.
    /// A batch does not change queues, so the caller must send the request again, alone.
    pub(crate) fn has_to_queue(&self, reply: &Value) -> bool {
        matches!(&*self.request, Request::Acquire { ticket: Some(_), .. })
            && matches!(reply, Value::Array(_))
    }

    /// The ttl and the proposed fence of an ACQUIRE; `None` for a RELEASE.
    fn acquire(&self) -> Option<(Duration, u64)> {
        match &*self.request {
            Request::Acquire { ttl, proposal, .. } => Some((*ttl, *proposal)),
            _ => None,
        }
    }
}

/// Requests that go to a server as one command, each with the recipient of its reply. Never empty.
pub(crate) struct Batch<R> {
    /// The requests, in the order in which the server runs them.
    items: Vec<(Batchable, R)>,
}

impl<R> Batch<R> {
    /// Divides requests into batches of consecutive requests, and moves the RELEASEs of each batch to its front.
    pub(crate) fn plan(waiting: Vec<(Batchable, R)>) -> Vec<Self> {
        let mut batches: Vec<Self> = Vec::new();
        for item in waiting {
            match batches.last_mut().filter(|batch| batch.admits(&item.0)) {
                Some(batch) => batch.items.push(item),
                None => batches.push(Self { items: vec![item] }),
            }
        }
        for batch in &mut batches {
            batch.items.sort_by_key(|(request, _)| request.acquire().is_some());
        }
        batches
    }

    /// Whether a request can be added to this batch. A batch has one ttl argument, so all its ACQUIREs must have the
    /// same ttl.
    fn admits(&self, request: &Batchable) -> bool {
        let fits = |(other, _): &(Batchable, R)| {
            let has_other_ttl = match (other.acquire(), request.acquire()) {
                (Some((one, _)), Some((ttl, _))) => one != ttl,
                _ => false,
            };
            other.slot == request.slot && other.token() != request.token() && !has_other_ttl
        };
        self.items.len() < MAX_REQUESTS && self.items.iter().all(fits)
    }

    /// The command that runs the requests. A single request gets the command that it would get without a batch.
    pub(crate) fn command(&self, by: By) -> Cmd {
        if let [(single, _)] = &*self.items {
            return single.request.command(by);
        }
        let releases = self.items.iter().filter(|(request, _)| request.acquire().is_none()).count();
        let ttl = self.items.iter().find_map(|(request, _)| request.acquire());
        let ttl = ttl.map_or(Duration::ZERO, |(ttl, _)| ttl);
        let requests = || self.items.iter().map(|(request, _)| request);
        let queues = requests().map(|request| &*request.keys().queue);
        let locks = requests().map(|request| &*request.keys().lock);
        let fences = requests().skip(releases).map(|request| &*request.keys().fence);
        let keys: Vec<_> = queues.chain(locks).chain(fences).map(Cow::Borrowed).collect();
        let mut cmd = invoke(&BATCH, by, &keys);
        cmd.arg(releases).arg(milliseconds(ttl)).arg(counter_ttl(ttl));
        cmd.arg(requests().map(|request| request.token().as_str()).collect::<Vec<_>>());
        let proposals = requests().filter_map(Batchable::acquire).map(|(_, proposal)| proposal);
        cmd.arg(proposals.collect::<Vec<_>>());
        cmd
    }

    /// Returns the requests in the order in which the server runs them, each with the recipient of its reply.
    pub(crate) fn into_items(self) -> Vec<(Batchable, R)> {
        self.items
    }
}

/// Returns the command that loads the batch script into a server's cache of scripts. The command changes no key. It
/// names a key of `request`, because some servers refuse scripts without keys.
pub(crate) fn load(request: &Request) -> Cmd {
    let key = request.first_key().map(|keys| Cow::Borrowed(&*keys.lock));
    invoke(&BATCH, By::Source, key.as_slice()).arg(0).arg(0).arg(0).to_owned()
}

/// Divides the reply to a batch of `count` requests into one reply for each request, in the order of the batch. A reply
/// is `None` if the server did nothing for the request, which must then be sent alone. Returns `None` if the whole
/// reply is not valid.
pub(crate) fn replies(reply: Value, count: usize) -> Option<Vec<Option<Value>>> {
    let Value::Array(parts) = reply else { return None };
    let part = |part| match part {
        Value::Int(-1) => None,
        part => Some(part),
    };
    (parts.len() == count).then(|| parts.into_iter().map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::{Batch, Batchable, MAX_REQUESTS, replies};
    use crate::wire::keys::Keys;
    use crate::wire::limits::BATCH;
    use crate::wire::request::{Request, Subject};
    use crate::wire::token::MAX_TOKEN;
    use quorlock_protocol::Turns;
    use redis::Value;
    use std::sync::Arc;
    use std::time::Duration;

    const TTL: Duration = Duration::from_secs(1);

    fn subject(token: &str) -> Arc<Subject> {
        Arc::new(Subject::new([Keys::new("", token)].into(), token.into(), None))
    }

    fn acquire(token: &str, ttl: Duration) -> Request {
        let (subject, turns) = (subject(token), Turns::default());
        Request::Acquire { subject, ttl, proposal: 1, ticket: None, turns }
    }

    fn release(token: &str) -> Request {
        Request::release(&subject(token), Turns::default())
    }

    /// Returns the batches of these requests. Each request is shown as the first letter of its name and its position.
    fn plan(requests: Vec<Request>, is_clustered: bool) -> Vec<String> {
        let requests = requests.into_iter().enumerate();
        let waiting = requests.map(|(position, request)| {
            let letter = format!("{request:?}").remove(0);
            let request = Batchable::new(&Arc::new(request), is_clustered).expect("batchable");
            (request, format!("{letter}{position}"))
        });
        let batches = Batch::plan(waiting.collect());
        let shown = |batch: Batch<String>| {
            let items = batch.into_items();
            items.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>().join(" ")
        };
        batches.into_iter().map(shown).collect()
    }

    #[test]
    fn releases_of_a_batch_go_first_and_keep_their_order() {
        let requests = vec![acquire("a", TTL), release("b"), acquire("c", TTL), release("d")];
        assert_eq!(plan(requests, false), ["R1 R3 A0 A2"]);
    }

    #[test]
    fn an_undo_stays_behind_its_acquire() {
        let requests = vec![release("b"), acquire("a", TTL), release("a"), acquire("c", TTL)];
        assert_eq!(plan(requests, false), ["R0 A1", "R2 A3"]);
    }

    #[test]
    fn acquires_of_a_batch_have_the_same_ttl() {
        let requests = vec![acquire("a", TTL), acquire("b", 2 * TTL), release("c")];
        assert_eq!(plan(requests, false), ["A0", "R2 A1"]);
    }

    #[test]
    fn a_batch_has_at_most_64_requests() {
        let requests = (0..MAX_REQUESTS + 1).map(|number| release(&number.to_string())).collect();
        let sizes: Vec<_> =
            plan(requests, false).iter().map(|batch| batch.split(' ').count()).collect();
        assert_eq!(sizes, [MAX_REQUESTS, 1]);
    }

    #[test]
    fn in_a_cluster_the_keys_of_a_batch_share_a_slot() {
        let requests = || vec![acquire("{x}a", TTL), acquire("{x}b", TTL), acquire("y", TTL)];
        assert_eq!(plan(requests(), true), ["A0 A1", "A2"]);
        assert_eq!(plan(requests(), false), ["A0 A1 A2"]);
    }

    #[test]
    fn requests_that_do_more_are_never_part_of_a_batch() {
        let keys: Arc<[Keys]> = [Keys::new("", "a"), Keys::new("", "b")].into();
        let of = |keys: Arc<[Keys]>| Arc::new(Subject::new(keys, "t".into(), None));
        let turns = Turns::default();
        let subject = subject("a");
        let keep = Some(TTL);
        for request in [
            Request::release_queued(&subject, Some(4), turns),
            Request::Release { subject: Arc::clone(&subject), ticket: None, turns, keep },
            Request::release(&of(keys), turns),
            Request::release(&of([Keys::new("", "a").shared()].into()), turns),
            Request::release(&of([Keys::permit("", "s", 0, 1)].into()), turns),
            Request::Raise { subject, ttl: TTL, fence: 1 },
        ] {
            assert!(Batchable::new(&Arc::new(request), false).is_none());
        }
    }

    #[test]
    fn the_longest_reply_to_a_batch_is_within_its_limit() {
        let holder = "x".repeat(MAX_TOKEN + 1);
        let number = i64::MIN;
        let numbers = format!(":{number}\r\n").repeat(4);
        let refusal = format!("*5\r\n{numbers}${}\r\n{holder}\r\n", holder.len());
        let bytes = "*64\r\n".len() + MAX_REQUESTS * refusal.len();
        assert!(bytes <= BATCH.bytes as usize && 6 * MAX_REQUESTS < BATCH.values as usize);
    }

    #[test]
    fn a_reply_has_a_part_for_each_request() {
        let reply = || Value::Array(vec![Value::Int(1), Value::Int(-1), Value::Int(0)]);
        let parts = vec![Some(Value::Int(1)), None, Some(Value::Int(0))];
        assert_eq!(replies(reply(), 3), Some(parts));
        assert_eq!(replies(reply(), 2), None);
        assert_eq!(replies(Value::Int(1), 1), None);
    }
}
