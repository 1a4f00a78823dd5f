//! Random requests to a real server and to an in-memory node: both must give the same replies, store the same keys and
//! notify the same waiters.

use super::server::{Content, EPOCH, Keyspace, Server, Stored, epoch};
use crate::memory::entries::NodeMemory;
use crate::node::subscription::Subscription;
use crate::wire::batch::{self, Batch, Batchable};
use crate::wire::commands::By;
use crate::wire::keys::{KeyMode, Keys};
use crate::wire::reply::{Elsewhere, Refusal, Reply, StoredLock};
use crate::wire::request::{Given, Request, Subject};
use crate::wire::token::{MARKER, Token};
use quorlock_protocol::node::entry::Time;
use quorlock_protocol::{FENCE_LIMIT, Moment, Turns};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(super) const PATIENCE: Duration = Duration::from_secs(60);
const SEQUENCES: u64 = 1_000;
const LENGTH: usize = 60;

const RESOURCES: [&str; 3] = ["a", "b", "c"];
const PREFIX: &str = "p-";

/// Time passes in steps of this length. Everything expires in the middle of a step. At the exact moment of expiry, a
/// server and an in-memory node may differ, because their clocks have different resolutions.
pub(super) const TICK: Duration = Duration::from_millis(10);
pub(super) const HALF: Duration = Duration::from_millis(5);

/// The ttl that stands for "never expires" on the in-memory node, for locks that another program took.
pub(super) const FOR_EVER: Duration = Duration::from_secs(1 << 50);

pub(super) type Calls = Arc<Mutex<Vec<String>>>;

enum Step {
    Ask(Request),
    /// Requests that reach the server in batches, and the in-memory node one by one.
    Batch(Vec<(Batchable, Request)>),
    /// Time passes.
    Wait(Duration),
    /// A key is deleted by hand.
    Delete(String),
    /// Another program takes a lock, with or without a ttl.
    Take(Keys, Option<Duration>),
    /// A fence counter is set by hand, with a ttl.
    Count(Keys, u64, Duration),
}

/// Draws random steps of a few clients. Some of their waiters are not subscribed.
struct Steps {
    random: fastrand::Rng,
    /// Whether any of the clients locks in shared mode.
    has_readers: bool,
    /// Whether some requests reach the node in batches.
    has_batches: bool,
    /// The approximate time at which the waiters arrived. Each ticket is close to this number.
    arrived: u64,
    subjects: Vec<Arc<Subject>>,
    /// The subjects of earlier TRANSFERs.
    adopters: Vec<Arc<Subject>>,
    /// The steps to take next, in reverse order.
    planned: Vec<Step>,
}

impl Steps {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.usize(..all.len())]
    }

    fn next(&mut self, wall: u64) -> Step {
        if let Some(step) = self.planned.pop() {
            return step;
        }
        match self.random.u8(0..100) {
            0..3 if self.has_readers => {
                // Plan these steps, because random steps seldom let a reader join other readers after their set was
                // deleted.
                let keys = self.keys().shared();
                self.planned = vec![
                    self.read(&keys, wall),
                    Step::Delete(keys.readers().clone()),
                    self.read(&keys, wall),
                ];
                Step::Delete(keys.queue)
            }
            0..12 => {
                let seconds = self.one_of(&[0, 1, 10, 50, 61, 100, 1_000, 100_000]);
                Step::Wait(Duration::from_secs(seconds) + TICK)
            }
            12..20 => {
                let keys = self.keys().shared();
                let all = [&keys.lock, &keys.lock, &keys.fence, &keys.queue, keys.readers()];
                Step::Delete(self.one_of(&all).clone())
            }
            20..23 => {
                let expires_in = Some(self.ttl()).filter(|_| self.random.bool());
                Step::Take(self.keys(), expires_in)
            }
            23..26 => Step::Count(self.keys(), self.number(wall), self.ttl()),
            26..36 if self.has_batches => self.batch(wall),
            _ => Step::Ask(self.request(wall)),
        }
    }

    /// Returns the ACQUIRE of a new reader that does not wait in the queue.
    fn read(&mut self, keys: &Keys, wall: u64) -> Step {
        let ttl = self.ttl();
        let proposal = self.number(wall);
        let token = format!("{:040x}", self.subjects.len()).into();
        let subject = Arc::new(Subject::new([keys.clone()].into(), token, None));
        self.subjects.push(Arc::clone(&subject));
        let turns = Turns { call: Duration::ZERO, reserve: Duration::ZERO, memory: ttl };
        Step::Ask(Request::Acquire { subject, ttl, proposal, ticket: None, turns })
    }

    /// Draws ACQUIREs and RELEASEs that may be part of a batch. Half of them have a new token for one lock, because few
    /// other subjects have only one lock in exclusive mode.
    fn batch(&mut self, wall: u64) -> Step {
        let ttl = self.ttl();
        let mut batch = Vec::new();
        for _ in 0..self.random.usize(2..12) {
            let subject = match self.random.u8(0..4) {
                0 => self.new_subject(),
                1 => self.subject(),
                _ => {
                    let token = format!("{:040x}", self.subjects.len()).into();
                    let keys = [self.keys()].into();
                    let subject = Arc::new(Subject::new(keys, token, None));
                    self.subjects.push(Arc::clone(&subject));
                    subject
                }
            };
            let turns = Turns { call: TICK, reserve: TICK, memory: ttl };
            let request = if self.random.bool() {
                let (proposal, ticket) = (self.number(wall), subject.waiter.is_some().then_some(8));
                Request::Acquire { subject, ttl, proposal, ticket, turns }
            } else {
                Request::release(&subject, turns)
            };
            let batchable = Batchable::new(&Arc::new(request.clone()), false);
            batch.extend(batchable.map(|batchable| (batchable, request)));
        }
        Step::Batch(batch)
    }

    fn request(&mut self, wall: u64) -> Request {
        let ttl = self.ttl();
        let fence = self.number(wall);
        let call = self.turn();
        let reserve = self.turn();
        let memory = self.ttl();
        let turns = Turns { call, reserve, memory };
        let subject = self.subject();
        let earlier = self.arrived.saturating_sub(50);
        let ticket = self.random.bool().then(|| earlier + self.random.u64(1..20));
        let kind = self.random.u8(0..33);
        let subject =
            if kind < 6 || kind == 22 || kind == 23 { self.new_subject() } else { subject };
        let ticket = ticket.filter(|_| subject.waiter.is_some());
        match kind {
            0..7 if !subject.is_upgraded() => {
                Request::Acquire { subject, ttl, proposal: fence, ticket, turns }
            }
            7..9 => Request::Raise { subject, ttl, fence },
            9..12 => Request::Extend([(subject, ttl), (self.subject(), self.ttl())].into()),
            12..14 => {
                let other = (self.subject(), self.ttl(), self.number(wall));
                Request::Heal([(subject, ttl, fence), other].into())
            }
            14 => Request::Exists(Arc::clone(&subject.keys)),
            15 => Request::Inspect([self.keys()].into()),
            16 => Request::Forget([self.keys()].into()),
            17..20 => Request::Release { subject, ticket, turns, keep: None },
            20..22 => Request::Release { subject, ticket, turns, keep: Some(ttl) },
            // The giver's token is often for the same resources as the adopter's request, and may hold them.
            22..26 => {
                let given = self.subject();
                let keys: Arc<[Keys]> = match self.random.u8(0..4) {
                    0 => Arc::clone(&subject.keys),
                    1..3 if self.has_readers => given.keys.iter().map(upgraded).collect(),
                    _ => Arc::clone(&given.keys),
                };
                // An upgrade always uses a new token.
                let is_upgraded =
                    keys.iter().any(|keys| matches!(keys.mode, KeyMode::Upgraded { .. }));
                let subject = if is_upgraded { self.new_subject() } else { subject };
                let token = subject.token.clone();
                let giver = Some(Arc::new(given.token.clone())).filter(|giver| **giver != token);
                let giver = giver.map(|token| Given { token, until: fence, within: ttl });
                let subject = Arc::new(Subject { giver, ..Subject::new(keys, token, None) });
                self.subjects.push(Arc::clone(&subject));
                self.adopters.push(Arc::clone(&subject));
                Request::Transfer { subject, ttl, proposal: fence }
            }
            29..31 if self.has_readers => {
                let subject = Arc::new(subject.downgraded());
                self.subjects.push(Arc::clone(&subject));
                Request::Downgrade { subject, turns }
            }
            28 => {
                let channel = if self.random.bool() { "live" } else { "silent" };
                let keys = Arc::clone(&subject.keys);
                let message = wall.to_string();
                Request::Publish { keys, channel: channel.into(), message: message.into() }
            }
            _ if self.adopters.is_empty() => Request::Exists(Arc::clone(&subject.keys)),
            _ => {
                let count = self.adopters.len();
                let earliest = if self.random.bool() { count - 1 } else { 0 };
                let adopter = self.random.usize(earliest..count);
                Request::GiveBack(Arc::clone(&self.adopters[adopter]))
            }
        }
    }

    fn keys(&mut self) -> Keys {
        Keys::new(PREFIX, self.one_of(&RESOURCES))
    }

    fn ttl(&mut self) -> Duration {
        let seconds = self.one_of(&[0, 1, 10, 100, 1_000, 100_000, 3_000_000_000]);
        Duration::from_secs(seconds) + HALF
    }

    /// Draws a duration for `Turns`: zero, short, within the limit of a minute, or beyond that limit.
    fn turn(&mut self) -> Duration {
        self.one_of(&[Duration::ZERO, 100 * TICK + HALF, 5_000 * TICK + HALF, 10_000 * TICK])
    }

    /// Draws a fence: close to the clock, far from the clock, or close to the largest possible fence.
    fn number(&mut self, wall: u64) -> u64 {
        let apart =
            self.one_of(&[0, 1, 1_999_999, 2_000_000, 2_000_001, 60_000_000, 3_600_000_000]);
        let number = match self.random.u8(0..20) {
            0 => FENCE_LIMIT - self.random.u64(0..4),
            1 => self.random.u64(1..1_000),
            2..11 => wall.saturating_sub(apart),
            _ => wall.saturating_add(apart),
        };
        number.clamp(1, FENCE_LIMIT - 1)
    }

    /// Draws an earlier subject, often a recent one that may hold a lock. Creates a new subject if there is none.
    fn subject(&mut self) -> Arc<Subject> {
        let count = self.subjects.len();
        let earliest = if self.random.bool() { count.saturating_sub(3) } else { 0 };
        match count {
            0 => self.new_subject(),
            _ => Arc::clone(&self.subjects[self.random.usize(earliest..count)]),
        }
    }

    fn new_subject(&mut self) -> Arc<Subject> {
        let waiters = ["live#1", "live#1", "live#2", "live#3", "dead#1", "nonsense"];
        let waiter = waiters.get(self.random.usize(0..10)).copied();
        // A waiter always waits for the same resources.
        let resources: Vec<_> = match waiter {
            Some("live#1" | "dead#1") => vec!["a", "b"],
            Some("live#2") => vec!["b"],
            Some(_) => vec!["c", "a"],
            None => {
                let mut all = RESOURCES;
                self.random.shuffle(&mut all);
                all[..self.random.usize(1..=all.len())].to_vec()
            }
        };
        // Many subjects want to read some of their resources, or all.
        let shared = if self.has_readers { self.random.u8(0..3) } else { 0 };
        let mut keys = |resource: &&str| {
            let keys = Keys::new(PREFIX, resource);
            if self.random.u8(0..2) < shared { keys.shared() } else { keys }
        };
        let keys = resources.iter().map(&mut keys).collect();
        // Holders with and without a name.
        let name = ["", ";web-7:4121", ";;", ";\u{1b}"][self.random.usize(0..4)];
        let token = format!("{:040x}{name}", self.subjects.len()).into();
        let subject = Arc::new(Subject::new(keys, token, waiter.map(Arc::from)));
        self.subjects.push(Arc::clone(&subject));
        subject
    }
}

fn upgraded(keys: &Keys) -> Keys {
    if keys.is_shared() { keys.clone().upgraded() } else { keys.clone() }
}

/// Returns what the in-memory node stores, in the form of a server's keys.
fn keyspace(memory: &mut NodeMemory, time: Time) -> Keyspace {
    let mut all = Keyspace::new();
    let mut add = |key, value, expires_in: Duration| {
        let expires_in = Some(expires_in).filter(|left| *left < FOR_EVER / 2);
        all.insert(key, Stored { value, expires_in });
    };
    for resource in RESOURCES {
        let keys = Keys::new(PREFIX, resource).shared();
        let readers = keys.readers().clone();
        let Keys { lock, fence, queue, .. } = keys;
        let record = memory.record(&lock);
        if let Some((shares, expires_in)) = record.entry.stored_readers(time.now) {
            let until = |until: &Moment| until.since(Moment::from_origin(Duration::ZERO));
            let share = |(token, end): &(Token, Moment)| {
                (token.as_str().to_owned(), until(end).as_millis() as i64)
            };
            let mut shares: Vec<_> = shares.iter().map(share).collect();
            shares.sort_by(|(a, x), (b, y)| (x, a).cmp(&(y, b)));
            add(readers, Content::Sorted(shares), expires_in);
        }
        if let Some((token, expires_in)) = record.entry.stored_lock(time.now) {
            add(lock, Content::Text(token.as_str().to_owned()), expires_in);
        }
        if let Some((last, expires_in)) = record.entry.stored_fence(time.wall) {
            // Round up, because a server's resolution is a millisecond.
            let milliseconds = expires_in.as_micros().div_ceil(1_000) as u64;
            add(fence, Content::Text(last.to_string()), Duration::from_millis(milliseconds));
        }
        if let Some((waiters, expires_in)) = record.queue.stored(time.now) {
            let member = |(waiter, score): (Arc<str>, i64)| (waiter.to_string(), score);
            add(queue, Content::Sorted(waiters.into_iter().map(member).collect()), expires_in);
        }
    }
    all
}

/// Returns `kept` without the shares that have expired. The server and the in-memory node remove expired shares at
/// different times.
fn without_expired(kept: &Keyspace, wall: u64) -> Keyspace {
    let mut left = kept.clone();
    for (_, stored) in left.iter_mut().filter(|(key, _)| key.ends_with(":shared")) {
        if let Content::Sorted(shares) = &mut stored.value {
            shares.retain(|(_, till)| *till > (wall / 1_000) as i64);
        }
    }
    left
}

/// Converts a reply of the in-memory node to the reply that a server would send.
pub(super) fn as_server(reply: Reply) -> Reply {
    let known = |left: Option<Duration>| left.filter(|left| *left < FOR_EVER / 2);
    match reply {
        Reply::Held(refusal) => {
            Reply::Held(Refusal { expires_in: known(refusal.expires_in), ..refusal })
        }
        Reply::NotTransferred(other) => {
            Reply::NotTransferred(Elsewhere { expires_in: known(other.expires_in), ..other })
        }
        Reply::Seen(kept) => Reply::Seen(StoredLock { expires_in: known(kept.expires_in), ..kept }),
        other => other,
    }
}

/// Returns a label for a request and its reply. The test counts the labels, to check that all [`EXPECTED`] labels
/// occur.
fn kind(request: &Request, reply: &Result<Reply, String>, before: &Keyspace) -> String {
    let own = |subject: &Arc<Subject>| (Arc::clone(subject), subject.token.clone());
    let subjects: Vec<_> = match request {
        Request::Transfer { subject, .. } => vec![(Arc::clone(subject), subject.giver().clone())],
        Request::Acquire { subject, .. }
        | Request::GiveBack(subject)
        | Request::Downgrade { subject, .. }
        | Request::Raise { subject, .. }
        | Request::Release { subject, .. } => vec![own(subject)],
        Request::Extend(leases) => leases.iter().map(|(subject, _)| own(subject)).collect(),
        Request::Heal(leases) => leases.iter().map(|(subject, ..)| own(subject)).collect(),
        Request::Exists(_)
        | Request::Inspect(_)
        | Request::InspectPermits { .. }
        | Request::Forget(_)
        | Request::List { .. }
        | Request::Publish { .. } => Vec::new(),
    };
    let is_half_held = |(subject, token): &(Arc<Subject>, Token)| {
        let holds = |keys: &Keys| {
            let stored = |key| before.get(key).map(|stored| &stored.value);
            let reads = match stored(keys.former_readers()) {
                Some(Content::Sorted(all)) => {
                    all.iter().any(|(reader, _)| reader == token.as_str())
                }
                _ => false,
            };
            reads || stored(&keys.lock) == Some(&Content::Text(token.as_str().to_owned()))
        };
        let held = subject.keys.iter().filter(|keys| holds(keys)).count();
        held > 0 && held < subject.keys.len()
    };
    let name = |debug: String| debug.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
    let reply = match reply {
        Ok(Reply::Each(each)) if each.contains(&true) => "Yes".to_owned(),
        Ok(Reply::Held(Refusal { holder: Some(_), .. })) => "Held by a name".to_owned(),
        Ok(Reply::NotTransferred(Elsewhere { holder, .. })) => name(format!("{holder:?}")),
        Ok(reply) => name(format!("{reply:?}")),
        Err(_) => "error".to_owned(),
    };
    let half = if subjects.iter().any(is_half_held) { ", half held" } else { "" };
    let kept =
        if matches!(request, Request::Release { keep: Some(_), .. }) { ", kept" } else { "" };
    // The lock key holds the marker, but the set of readers does not exist.
    let marker = Content::Text(MARKER.to_owned());
    let lacks_set = |keys: &Keys| {
        let is_read = before.get(&keys.lock).is_some_and(|stored| stored.value == marker);
        is_read && keys.is_shared() && !before.contains_key(keys.readers())
    };
    let lacking = match request {
        Request::Acquire { subject, .. } if subject.keys.iter().any(lacks_set) => ", without a set",
        _ => "",
    };
    let mut all = subjects.iter().map(|(subject, _)| subject);
    let mode = if all.clone().any(|subject| subject.is_upgraded()) {
        ", upgraded"
    } else if all.any(|subject| subject.is_shared()) {
        ", shared"
    } else {
        ""
    };
    format!("{}: {reply}{half}{kept}{mode}{lacking}", name(format!("{request:?}")))
}

pub(super) fn hear(calls: &Calls) -> impl Fn(&str, &str) + Send + Sync + use<> {
    let calls = Arc::clone(calls);
    move |_, message| calls.lock().unwrap().push(message.to_owned())
}

/// A server and an in-memory node that get the same steps.
struct Pair {
    server: Server,
    memory: NodeMemory,
    wall: u64,
    /// How many requests were run in batches.
    batched: usize,
    /// How many requests were sent alone: those that a batch left out, and those that formed no batch.
    alone: usize,
}

impl Pair {
    fn time(&self) -> Time {
        let now = Moment::from_origin(Duration::from_micros(self.wall));
        Time { now, wall: self.wall }
    }

    fn set_clock(&mut self, wall: u64) {
        self.wall = wall;
        self.server.set_clock(wall);
    }

    /// Applies the step to the server and to the in-memory node. Returns the reply of each, and what each stores after
    /// the step.
    async fn take(&mut self, step: &Step) -> [(Option<Result<Reply, String>>, Keyspace); 2] {
        let time = self.time();
        let in_milliseconds = |ttl: Duration| ttl.as_millis().to_string();
        match step {
            Step::Ask(request) => {
                let (replied, kept) = self.server.ask(request).await;
                let expected = self.memory.answer(time, request).map(as_server);
                let expected = expected.map_err(str::to_owned);
                let expected = (Some(expected), keyspace(&mut self.memory, time));
                return [(Some(replied), kept), expected];
            }
            Step::Batch(requests) => self.take_batches(requests.clone()).await,
            Step::Wait(length) => self.set_clock(self.wall + length.as_micros() as u64),
            Step::Delete(key) => {
                self.server.run(&["DEL", key]).await.unwrap();
                for resource in RESOURCES {
                    let keys = Keys::new(PREFIX, resource).shared();
                    let readers = keys.readers().clone();
                    let Keys { lock, fence, queue, .. } = keys;
                    let record = self.memory.record(&lock);
                    match key {
                        key if *key == lock => record.entry.store_lock(None),
                        key if *key == readers => record.entry.delete_readers(),
                        key if *key == fence => record.entry.store_fence(None),
                        key if *key == queue => {
                            record.queue = quorlock_protocol::node::queue::Queue::default()
                        }
                        _ => {}
                    }
                }
            }
            Step::Take(keys, ttl) => {
                let mut words = vec!["SET", &keys.lock, "another program"];
                let milliseconds = ttl.map(in_milliseconds);
                words.extend(milliseconds.iter().flat_map(|ttl| ["PX", ttl]));
                self.server.run(&words).await.unwrap();
                let expires = time.now.plus(ttl.unwrap_or(FOR_EVER));
                let lock = Some(("another program".into(), expires));
                self.memory.record(&keys.lock).entry.store_lock(lock);
            }
            Step::Count(keys, fence, ttl) => {
                let text = fence.to_string();
                let milliseconds = in_milliseconds(*ttl);
                let words = ["SET", &keys.fence, &text, "PX", &milliseconds];
                self.server.run(&words).await.unwrap();
                let expires = self.wall + ttl.as_micros() as u64;
                self.memory.record(&keys.lock).entry.store_fence(Some((*fence, expires)));
            }
        }
        let time = self.time();
        let expected = keyspace(&mut self.memory, time);
        [(None, self.server.keyspace().await), (None, expected)]
    }
}

impl Pair {
    /// Applies requests in batches on the server and one by one to the in-memory node, which must answer the same.
    /// Requests that a batch leaves out, or that form no batch, are sent afterwards.
    async fn take_batches(&mut self, requests: Vec<(Batchable, Request)>) {
        let mut alone = Vec::new();
        for batch in Batch::plan(requests) {
            let command = batch.command(By::Source);
            let requests: Vec<_> = batch.into_items();
            let replies = match requests.len() {
                1 => vec![None],
                count => {
                    let (replied, _) = self.server.execute(command).await;
                    let replied = replied.expect("the server refuses no batch");
                    batch::replies(replied, count).expect("a reply for each request")
                }
            };
            for ((batchable, request), reply) in requests.into_iter().zip(replies) {
                let Some(reply) = reply.filter(|reply| !batchable.has_to_queue(reply)) else {
                    alone.push(Step::Ask(request));
                    continue;
                };
                let expected = self.memory.answer(self.time(), &request).map(as_server);
                let understood = request.understand(&reply);
                assert_eq!(understood, expected.ok(), "{request:?}: {reply:?}");
                self.batched += 1;
            }
        }
        for step in alone {
            let [(replied, _), (expected, _)] = Box::pin(self.take(&step)).await;
            assert_eq!(replied.map(Result::ok), expected.map(Result::ok));
            self.alone += 1;
        }
    }
}

async fn compare() {
    let server_calls = Calls::default();
    let memory_calls = Calls::default();
    let server = Server::start().await;
    let memory = NodeMemory::default();
    let mut pair = Pair { server, memory, wall: EPOCH, batched: 0, alone: 0 };
    let subscription =
        Subscription::open(&pair.server.endpoint.target, "live", hear(&server_calls), || ());
    let _subscription = subscription.await.expect("the server is up");
    let mut kinds = BTreeMap::<String, usize>::new();
    for sequence in 0..SEQUENCES {
        let random = fastrand::Rng::with_seed(sequence);
        let mut steps = Steps {
            random,
            has_readers: sequence % 2 == 0,
            has_batches: sequence % 4 == 3,
            arrived: if sequence % 3 == 0 { 0 } else { epoch(sequence) },
            subjects: Vec::new(),
            adopters: Vec::new(),
            planned: Vec::new(),
        };
        pair.server.run(&["FLUSHALL"]).await.unwrap();
        pair.memory = NodeMemory::default();
        pair.set_clock(epoch(sequence));
        let hear_memory = hear(&memory_calls);
        let listener = move |message: &str| {
            hear_memory("live", message);
            true
        };
        pair.memory.listen("live", Box::new(listener));
        let mut history = Vec::new();
        let mut before = Keyspace::new();
        for _ in 0..LENGTH {
            let step = steps.next(pair.wall);
            history.push(match &step {
                Step::Ask(request) => format!("{request:?}"),
                Step::Batch(requests) => format!("{requests:?}"),
                Step::Wait(length) => format!("{length:?} pass"),
                Step::Delete(key) => format!("DEL {key}"),
                Step::Take(keys, ttl) => format!("{} is taken for {ttl:?}", keys.lock),
                Step::Count(keys, fence, ttl) => format!("{} is {fence} for {ttl:?}", keys.fence),
            });
            let [(replied, kept), (expected, expected_kept)] = pair.take(&step).await;
            let story = || format!("sequence {sequence}:\n{}", history.join("\n"));
            match (&replied, &expected) {
                // The error texts of the server and of the in-memory node differ.
                (Some(Err(_)), Some(Err(_))) => {}
                _ => assert_eq!(replied, expected, "{}", story()),
            }
            let [left, right] =
                [&kept, &expected_kept].map(|kept| without_expired(kept, pair.wall));
            assert_eq!(left, right, "{}", story());
            if let (Step::Ask(request), Some(replied)) = (&step, &replied) {
                *kinds.entry(kind(request, replied, &before)).or_default() += 1;
            }
            before = kept;
        }
        let began = Instant::now();
        let expected = memory_calls.lock().unwrap().clone();
        while *server_calls.lock().unwrap() != expected {
            let heard = server_calls.lock().unwrap().clone();
            assert!(
                heard.len() <= expected.len() && began.elapsed() < PATIENCE,
                "sequence {sequence}:\n{}\nheard {heard:?}\nexpected {expected:?}",
                history.join("\n"),
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    println!("{kinds:#?}\n{} notifications", memory_calls.lock().unwrap().len());
    for expected in EXPECTED {
        assert!(kinds.get(*expected).is_some_and(|count| *count >= 20), "{expected}: {kinds:#?}");
    }
    assert!(memory_calls.lock().unwrap().len() > 500);
    let Pair { batched, alone, .. } = pair;
    println!("{batched} requests in batches, and {alone} sent alone");
    assert!(batched > 1_000 && alone > 1_000);
}

/// The labels, from [`kind`], that must occur often for the comparison to be meaningful.
const EXPECTED: &[&str] = &[
    "Acquire: Granted",
    "Acquire: Held",
    "Acquire: Held by a name",
    "Acquire: Own",
    "Acquire: error",
    "Transfer: Granted",
    "Transfer: Nobody",
    "Transfer: Nobody, half held",
    "Transfer: Token",
    "Transfer: Token, half held",
    "Transfer: Own",
    "Transfer: error",
    "GiveBack: Yes",
    "GiveBack: No",
    "GiveBack: No, half held",
    "Extend: Yes",
    "Extend: Each",
    "Extend: Each, half held",
    "Raise: Yes",
    "Raise: No",
    "Raise: No, half held",
    "Heal: Healed",
    "Heal: Healed, half held",
    "Release: Yes",
    "Release: No",
    "Release: No, half held",
    "Release: Yes, kept",
    "Release: No, kept",
    "Release: No, half held, kept",
    "Inspect: Seen",
    "Exists: Yes",
    "Forget: Yes",
    "Forget: No",
    "Publish: Published",
    "Acquire: Granted, shared",
    "Acquire: Granted, shared, without a set",
    "Acquire: Held, shared",
    "Acquire: Held by a name, shared",
    "Acquire: Own, shared",
    "Transfer: Granted, shared",
    "Transfer: Granted, upgraded",
    "Transfer: Nobody, shared",
    "Transfer: Nobody, upgraded",
    "Transfer: Token, shared",
    "Transfer: Token, upgraded",
    "GiveBack: Yes, shared",
    "GiveBack: Yes, upgraded",
    "GiveBack: No, shared",
    "Downgrade: Yes, shared",
    "Downgrade: No, half held, shared",
    "Extend: Yes, shared",
    "Extend: Each, upgraded",
    "Extend: Each, half held, shared",
    "Raise: Yes, shared",
    "Raise: No, half held, shared",
    "Heal: Healed, shared",
    "Heal: Healed, upgraded",
    "Heal: Healed, half held, shared",
    "Release: Yes, shared",
    "Release: No, half held, shared",
    "Release: Yes, kept, shared",
    "Release: No, kept, shared",
];

#[test]
fn a_server_and_an_in_memory_node_behave_the_same() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(compare());
}
