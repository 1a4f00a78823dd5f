//! Random requests about a semaphore to a real server and to an in-memory node: both must give the same replies, store
//! the same keys and notify the same waiters.
//!
//! A server has an index of the slots. The in-memory node needs no index, because it looks at the locks. Therefore, the
//! test does not compare the index as a key. Instead, after each step that uses the scripts of semaphores, the test
//! checks that the index is right.

use super::comparison::{Calls, FOR_EVER, HALF, PATIENCE, TICK, as_server, hear};
use super::server::{Content, EPOCH, Keyspace, Server, Stored, epoch};
use crate::memory::entries::NodeMemory;
use crate::node::subscription::Subscription;
use crate::wire::keys::Keys;
use crate::wire::reply::{HeldPermit, Refusal, Reply, StoredPermits};
use crate::wire::request::{Given, Request, Subject};
use quorlock_protocol::node::entry::Time;
use quorlock_protocol::node::queue::Queue;
use quorlock_protocol::{FENCE_LIMIT, Moment, Turns};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SEQUENCES: u64 = 1_000;
const LENGTH: usize = 60;

const PREFIX: &str = "p-";
const RESOURCE: &str = "a";
/// The limit that most clients use. Some clients use [`OTHER_LIMIT`].
const LIMIT: u32 = 3;
const OTHER_LIMIT: u32 = 5;

/// A script that corrects the index. First, the script sets the time of each slot in the index to the expiry of the
/// slot's lock key. It then sets the times of the offered slots. The last arguments list these slots, each followed by
/// the end of its offer.
const CORRECT: &str = "
    local time = redis.call('TIME')
    local clock = time[1] * 1000 + math.floor(time[2] / 1000)
    for _, slot in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
      local pttl = redis.call('PTTL', ARGV[1] .. slot)
      local till = pttl == -2 and 0 or pttl == -1 and '+inf' or string.format('%.0f', (clock + pttl) * 1000)
      redis.call('ZADD', KEYS[1], till, slot)
    end
    for i = 2, #ARGV, 2 do redis.call('ZADD', KEYS[1], ARGV[i + 1], ARGV[i]) end";

enum Step {
    Ask(Request),
    /// Time passes.
    Wait(Duration),
    /// A key is deleted by hand: the lock of a slot, its fence, the queue, or the index.
    Delete(String),
    /// Another program takes a slot, with or without a ttl.
    Take(Keys, Option<Duration>),
}

/// Draws random steps of a few clients. Some of their waiters are not subscribed.
struct Steps {
    random: fastrand::Rng,
    /// Whether some steps change slots without changing the server's index. After each of these steps, the test
    /// corrects the index.
    is_corrected: bool,
    has_other_limit: bool,
    /// The approximate time at which the waiters arrived. Each ticket is close to this number.
    arrived: u64,
    subjects: Vec<Arc<Subject>>,
    adopters: Vec<Arc<Subject>>,
}

impl Steps {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.usize(..all.len())]
    }

    fn next(&mut self, wall: u64) -> Step {
        match self.random.u8(0..100) {
            0..12 => {
                let seconds = self.one_of(&[0, 0, 1, 10, 50, 61, 100, 1_000]);
                Step::Wait(Duration::from_secs(seconds) + TICK)
            }
            12..15 => {
                let keys = self.slot();
                let common = Keys::semaphore(PREFIX, RESOURCE);
                let all = [keys.lock, keys.fence, common.queue, common.lock];
                let first = usize::from(!self.is_corrected);
                Step::Delete(all[self.random.usize(first..all.len())].clone())
            }
            15..17 if self.is_corrected => {
                let expires_in = Some(self.ttl()).filter(|_| self.random.bool());
                Step::Take(self.slot(), expires_in)
            }
            _ => Step::Ask(self.request(wall)),
        }
    }

    fn request(&mut self, wall: u64) -> Request {
        let ttl = self.ttl();
        let fence = self.number(wall);
        let call = self.turn();
        let reserve = self.turn();
        let memory = self.ttl();
        let turns = Turns { call, reserve, memory };
        let kind = self.random.u8(0..40);
        let subject = if kind < 14 { self.new_subject() } else { self.subject() };
        let ticket = (self.random.u8(0..4) > 0)
            .then(|| self.arrived.saturating_sub(50) + self.random.u64(1..30));
        let ticket = ticket.filter(|_| subject.waiter.is_some());
        match kind {
            0..15 => Request::Acquire { subject, ttl, proposal: fence, ticket, turns },
            15..23 => Request::Release { subject, ticket, turns, keep: None },
            23..25 => Request::Release { subject, ticket, turns, keep: Some(ttl) },
            25..28 => Request::Extend([(subject, ttl), (self.subject(), self.ttl())].into()),
            28..30 => Request::Raise { subject, ttl, fence },
            30..33 => {
                let semaphore = Arc::new(Keys::semaphore(PREFIX, RESOURCE));
                Request::InspectPermits { semaphore }
            }
            33..35 if self.is_corrected => Request::Heal([(subject, ttl, fence)].into()),
            35..38 if self.is_corrected => {
                let giver = Some(Arc::new(subject.token.clone()));
                let giver = giver.map(|token| Given { token, until: fence, within: ttl });
                let token = format!("{:040x}", self.subjects.len()).into();
                let subject = Subject::new(Arc::clone(&subject.keys), token, None);
                let subject = Arc::new(Subject { giver, ..subject });
                self.subjects.push(Arc::clone(&subject));
                self.adopters.push(Arc::clone(&subject));
                Request::Transfer { subject, ttl, proposal: fence }
            }
            38.. if !self.adopters.is_empty() => {
                let adopter = self.random.usize(..self.adopters.len());
                Request::GiveBack(Arc::clone(&self.adopters[adopter]))
            }
            _ => Request::Exists(Arc::clone(&subject.keys)),
        }
    }

    fn slot(&mut self) -> Keys {
        Keys::permit(PREFIX, RESOURCE, self.random.u32(..OTHER_LIMIT), OTHER_LIMIT)
    }

    fn ttl(&mut self) -> Duration {
        Duration::from_secs(self.one_of(&[0, 1, 10, 100, 100, 1_000, 100_000])) + HALF
    }

    /// Draws a duration for `Turns`: zero, short, within the limit of a minute, or beyond that limit. With these
    /// durations, a turn never ends at the same time as a lock. If both ended at the same time, the server's index
    /// could not tell the turn from the lock.
    fn turn(&mut self) -> Duration {
        let apart = TICK / 100;
        self.one_of(&[
            Duration::ZERO,
            100 * TICK + apart,
            5_000 * TICK + apart,
            10_000 * TICK + apart,
        ])
    }

    /// Draws a fence: close to the clock, or far from it. The fence that a client proposes also determines which free
    /// slots a node offers first.
    fn number(&mut self, wall: u64) -> u64 {
        let apart = self.one_of(&[0, 1, 2, 1_999_999, 2_000_001, 3_600_000_000]);
        let number = match self.random.u8(0..20) {
            0 => FENCE_LIMIT - self.random.u64(0..4),
            1..10 => wall.saturating_sub(apart),
            _ => wall.saturating_add(apart),
        };
        number.clamp(1, FENCE_LIMIT - 1)
    }

    /// Draws an earlier subject, often a recent one that may hold slots. Creates a new subject if there is none.
    fn subject(&mut self) -> Arc<Subject> {
        let count = self.subjects.len();
        let earliest = if self.random.bool() { count.saturating_sub(4) } else { 0 };
        match count {
            0 => self.new_subject(),
            _ => Arc::clone(&self.subjects[self.random.usize(earliest..count)]),
        }
    }

    fn new_subject(&mut self) -> Arc<Subject> {
        let waiters = [
            "live#1*1", "live#2*1", "live#3*2", "live#4*2", "live#5*3", "dead#1*1", "dead#2*2",
            "nonsense",
        ];
        let waiter = waiters.get(self.random.usize(0..14)).copied();
        // A waiter always wants the same number of permits, but may want different slots each time.
        let count = match waiter.and_then(|waiter| waiter.split_once('*')) {
            Some((_, count)) => count.parse().unwrap(),
            None if waiter.is_some() => 1,
            None => self.one_of(&[1, 1, 2, 3]),
        };
        let limit =
            if self.has_other_limit && self.random.u8(0..3) == 0 { OTHER_LIMIT } else { LIMIT };
        let mut slots: Vec<_> = (0..limit).collect();
        self.random.shuffle(&mut slots);
        let permit = |slot: &u32| Keys::permit(PREFIX, RESOURCE, *slot, limit);
        let keys = slots[..count].iter().map(permit).collect();
        let name = self.one_of(&["", ";web-7:4121", ";;"]);
        let token = format!("{:040x}{name}", self.subjects.len()).into();
        let waiter = waiter.map(|waiter| format!("{waiter}*{limit}").into());
        let subject = Arc::new(Subject::new(keys, token, waiter));
        self.subjects.push(Arc::clone(&subject));
        subject
    }
}

fn slots() -> impl Iterator<Item = Keys> {
    (0..OTHER_LIMIT).map(|slot| Keys::permit(PREFIX, RESOURCE, slot, OTHER_LIMIT))
}

/// Returns what the in-memory node stores, in the form of a server's keys.
fn keyspace(memory: &mut NodeMemory, time: Time) -> Keyspace {
    let mut all = Keyspace::new();
    let mut add = |key, value, expires_in: Duration| {
        let expires_in = Some(expires_in).filter(|left| *left < FOR_EVER / 2);
        all.insert(key, Stored { value, expires_in });
    };
    for Keys { lock, fence, .. } in slots() {
        let record = memory.record(&lock);
        if let Some((token, expires_in)) = record.entry.stored_lock(time.now) {
            add(lock, Content::Text(token.as_str().to_owned()), expires_in);
        }
        if let Some((last, expires_in)) = record.entry.stored_fence(time.wall) {
            // Round up, because a server's resolution is a millisecond.
            let milliseconds = expires_in.as_micros().div_ceil(1_000) as u64;
            add(fence, Content::Text(last.to_string()), Duration::from_millis(milliseconds));
        }
    }
    let Keys { lock: index, queue, .. } = Keys::semaphore(PREFIX, RESOURCE);
    if let Some((waiters, expires_in)) = memory.permits(&index).queue.stored(time.now) {
        let member = |(waiter, score): (Arc<str>, i64)| (waiter.to_string(), score);
        add(queue, Content::Sorted(waiters.into_iter().map(member).collect()), expires_in);
    }
    all
}

/// Converts a reply of the in-memory node to the reply that a server would send.
fn expected(reply: Reply) -> Reply {
    let (waiters, known, held) = match as_server(reply) {
        Reply::SeenPermits(StoredPermits { waiters, known, held }) => (waiters, known, held),
        Reply::Held(refusal) => {
            // Round up, because a server's resolution is a millisecond.
            let milliseconds = |left: Duration| left.as_micros().div_ceil(1_000) as u64;
            let rounded = |left| Duration::from_millis(milliseconds(left));
            let expires_in = refusal.expires_in.map(rounded);
            return Reply::Held(Refusal { expires_in, ..refusal });
        }
        other => return other,
    };
    let left = |left: Duration| Some(left).filter(|left| *left < FOR_EVER / 2);
    let permit =
        |held: HeldPermit| HeldPermit { expires_in: held.expires_in.and_then(left), ..held };
    let held = held.into_iter().map(permit).collect();
    Reply::SeenPermits(StoredPermits { waiters, known, held })
}

/// A server and an in-memory node that get the same steps.
struct Pair {
    server: Server,
    memory: NodeMemory,
    wall: u64,
    index: String,
}

type Seen = (Option<Result<Reply, String>>, Keyspace);

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
    async fn take(&mut self, step: &Step) -> [Seen; 2] {
        let time = self.time();
        match step {
            Step::Ask(request) => {
                let (replied, kept) = self.server.ask(request).await;
                let reply = self.memory.answer(time, request).map(expected).map_err(str::to_owned);
                return [(Some(replied), kept), (Some(reply), keyspace(&mut self.memory, time))];
            }
            Step::Wait(length) => self.set_clock(self.wall + length.as_micros() as u64),
            Step::Delete(key) => {
                self.server.run(&["DEL", key]).await.unwrap();
                for Keys { lock, fence, queue, .. } in slots() {
                    match key {
                        key if *key == lock => self.memory.record(&lock).entry.store_lock(None),
                        key if *key == fence => self.memory.record(&lock).entry.store_fence(None),
                        key if *key == queue => {
                            self.memory.permits(&self.index).queue = Queue::default();
                        }
                        key if *key == self.index => {
                            self.memory.permits(&self.index).forget_slots();
                        }
                        _ => {}
                    }
                }
            }
            Step::Take(keys, ttl) => {
                let mut words = vec!["SET", &keys.lock, "another program"];
                let milliseconds = ttl.map(|ttl| ttl.as_millis().to_string());
                words.extend(milliseconds.iter().flat_map(|ttl| ["PX", ttl]));
                self.server.run(&words).await.unwrap();
                let expires = time.now.plus(ttl.unwrap_or(FOR_EVER));
                let lock = Some(("another program".into(), expires));
                self.memory.record(&keys.lock).entry.store_lock(lock);
            }
        }
        let time = self.time();
        let expected = keyspace(&mut self.memory, time);
        [(None, self.server.keyspace().await), (None, expected)]
    }

    /// Corrects the server's index after a step that changed slots without changing the index.
    async fn correct(&mut self) {
        let base = Keys::semaphore(PREFIX, RESOURCE).fence;
        let mut words: Vec<_> =
            ["EVAL", CORRECT, "1", &self.index, &base].map(str::to_owned).into();
        for (slot, keys) in (0..).zip(slots()) {
            if let (None, Some(until)) = self.free_from(&keys, slot) {
                words.extend([slot.to_string(), until.to_string()]);
            }
        }
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        self.server.run(&words).await.unwrap();
    }

    /// Deletes the locks of all slots that are not in the server's index, because the server does not look for these
    /// locks. If `is_deleted` is `true`, the next step deletes the index, so this function deletes the locks of all
    /// slots.
    async fn end_unknown(&mut self, is_deleted: bool) {
        let now = self.time().now;
        let known = if is_deleted { 0 } else { self.memory.permits(&self.index).known(now) };
        for keys in slots().skip(known as usize) {
            if self.memory.record(&keys.lock).entry.token(now).is_some() {
                self.take(&Step::Delete(keys.lock)).await;
            }
        }
    }

    /// Returns the time at which the lock of a slot expires, and the time at which an offer of the slot ends, both in
    /// microseconds since the Unix epoch.
    fn free_from(&mut self, keys: &Keys, slot: u32) -> (Option<i64>, Option<i64>) {
        let time = self.time();
        let now = self.wall as i64;
        let held = self.memory.record(&keys.lock).entry.stored_lock(time.now);
        let held = held.map(|(_, left)| match left {
            left if left < FOR_EVER / 2 => now + left.as_micros() as i64,
            _ => i64::MAX,
        });
        let offered = self.memory.permits(&self.index).offered_until(time.now, slot);
        (held, offered.map(|until| now + until.since(time.now).as_micros() as i64))
    }

    /// Checks the server's index, and removes it from the stored keys. The index must have exactly the slots that the
    /// in-memory node knows. The time of a locked slot must be the end of the lock. The time of a slot that is only
    /// offered must be the end of the offer. The time of any other slot must have passed.
    fn check_index(&mut self, kept: &mut Keyspace) -> Result<(), String> {
        let time = self.time();
        let known = self.memory.permits(&self.index).known(time.now);
        let stored = kept.remove(&self.index);
        let Some(Stored { value: Content::Sorted(mut slots), .. }) = stored else {
            return if known == 0 { Ok(()) } else { Err(format!("no index, but {known} slots")) };
        };
        slots.sort_by_key(|(slot, _)| slot.parse::<u32>().unwrap());
        let expected: Vec<_> = (0..known).map(|slot| slot.to_string()).collect();
        if !slots.iter().map(|(slot, _)| slot).eq(&expected) {
            return Err(format!("the index has {slots:?}, not {known} slots"));
        }
        let now = self.wall as i64;
        for (number, (keys, (slot, free_from))) in (0..).zip(self::slots().zip(&slots)) {
            let (held, offered) = self.free_from(&keys, number);
            let is_right = match held.or(offered) {
                Some(till) => *free_from == till,
                None => *free_from <= now,
            };
            if !is_right {
                return Err(format!(
                    "{now}: slot {slot} is held until {held:?}, offered until {offered:?}, not {free_from}"
                ));
            }
        }
        Ok(())
    }
}

/// Returns a label for a request and its reply. The test counts the labels, to check that all [`EXPECTED`] labels
/// occur.
fn kind(request: &Request, reply: &Result<Reply, String>) -> String {
    let name = |debug: String| debug.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
    let several = match request {
        Request::Acquire { subject, .. } | Request::Release { subject, .. }
            if subject.keys.len() > 1 =>
        {
            ", several"
        }
        _ => "",
    };
    let kept =
        if matches!(request, Request::Release { keep: Some(_), .. }) { ", kept" } else { "" };
    let reply = match reply {
        Ok(Reply::Each(each)) if each.contains(&true) => "Yes".to_owned(),
        Ok(Reply::Held(Refusal { permits, rank, .. })) => {
            let offer = if permits.slots.is_empty() { "Full" } else { "Held" };
            format!("{offer}{}", if rank.is_some() { ", queued" } else { "" })
        }
        Ok(reply) => name(format!("{reply:?}")),
        Err(_) => "error".to_owned(),
    };
    format!("{}: {reply}{several}{kept}", name(format!("{request:?}")))
}

/// Applies a random sequence of steps to the server and to the in-memory node. If they differ, returns a description of
/// the difference as an error.
async fn run(
    pair: &mut Pair,
    sequence: u64,
    kinds: &mut BTreeMap<String, usize>,
) -> Result<(), String> {
    // In every other sequence, some steps change slots without the scripts of semaphores. After such a step, the test
    // corrects the index.
    let is_corrected = sequence.is_multiple_of(2);
    let mut steps = Steps {
        random: fastrand::Rng::with_seed(sequence),
        is_corrected,
        has_other_limit: sequence.is_multiple_of(3),
        arrived: if sequence.is_multiple_of(4) { 0 } else { epoch(sequence) },
        subjects: Vec::new(),
        adopters: Vec::new(),
    };
    let mut history = Vec::new();
    for _ in 0..LENGTH {
        let step = steps.next(pair.wall);
        pair.end_unknown(matches!(&step, Step::Delete(key) if *key == pair.index)).await;
        history.push(match &step {
            Step::Ask(request) => format!("{request:?}"),
            Step::Wait(length) => format!("{length:?} pass"),
            Step::Delete(key) => format!("DEL {key}"),
            Step::Take(keys, ttl) => format!("{} is taken for {ttl:?}", keys.lock),
        });
        let [(replied, mut kept), (expected, expected_kept)] = pair.take(&step).await;
        let story = |what: String| format!("sequence {sequence}:\n{}\n{what}", history.join("\n"));
        match (&replied, &expected) {
            // The server and the in-memory node word errors differently.
            (Some(Err(_)), Some(Err(_))) => {}
            _ if replied == expected => {}
            _ => return Err(story(format!("replied {replied:?}\nexpected {expected:?}"))),
        }
        let is_of_semaphores = matches!(
            step,
            Step::Ask(
                Request::Acquire { .. }
                    | Request::Release { .. }
                    | Request::Extend(..)
                    | Request::Transfer { .. }
                    | Request::GiveBack(..)
                    | Request::InspectPermits { .. }
            )
        );
        if is_corrected && !is_of_semaphores {
            kept.remove(&pair.index);
            pair.correct().await;
        } else {
            pair.check_index(&mut kept).map_err(story)?;
        }
        if kept != expected_kept {
            return Err(story(format!("keeps {kept:#?}\nexpected {expected_kept:#?}")));
        }
        if let (Step::Ask(request), Some(replied)) = (&step, &replied) {
            *kinds.entry(kind(request, replied)).or_default() += 1;
        }
    }
    Ok(())
}

async fn compare() {
    let server_calls = Calls::default();
    let memory_calls = Calls::default();
    let server = Server::start().await;
    let index = Keys::semaphore(PREFIX, RESOURCE).lock;
    let mut pair = Pair { server, memory: NodeMemory::default(), wall: EPOCH, index };
    let subscription =
        Subscription::open(&pair.server.endpoint.target, "live", hear(&server_calls), || ());
    let _subscription = subscription.await.expect("the server is up");
    let (mut kinds, mut failures) = (BTreeMap::<String, usize>::new(), Vec::new());
    for sequence in 0..SEQUENCES {
        pair.server.run(&["FLUSHALL"]).await.unwrap();
        pair.memory = NodeMemory::default();
        pair.set_clock(epoch(sequence));
        let hear_memory = hear(&memory_calls);
        let listener = move |message: &str| {
            hear_memory("live", message);
            true
        };
        pair.memory.listen("live", Box::new(listener));
        failures.extend(run(&mut pair, sequence, &mut kinds).await.err());
        let began = Instant::now();
        while failures.is_empty() {
            let expected = memory_calls.lock().unwrap().clone();
            let heard = server_calls.lock().unwrap().clone();
            if heard == expected {
                break;
            }
            if heard.len() > expected.len() || began.elapsed() > PATIENCE {
                let at = heard.iter().zip(&expected).take_while(|(a, b)| a == b).count();
                failures.push(format!(
                    "sequence {sequence}: heard {:?}\nexpected {:?}",
                    &heard[at..],
                    &expected[at..]
                ));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let count = failures.len();
    failures.sort_by_key(String::len);
    failures.truncate(3);
    assert!(count == 0, "{count} sequences differ, the shortest are:\n{}", failures.join("\n\n"));
    println!("{kinds:#?}\n{} notifications", memory_calls.lock().unwrap().len());
    for expected in EXPECTED {
        assert!(kinds.get(*expected).is_some_and(|count| *count >= 20), "{expected}: {kinds:#?}");
    }
    assert!(memory_calls.lock().unwrap().len() > 500);
}

/// The labels, from [`kind`], that must occur often for the comparison to be meaningful.
const EXPECTED: &[&str] = &[
    "Acquire: Granted",
    "Acquire: Granted, several",
    "Acquire: Held",
    "Acquire: Held, queued",
    "Acquire: Held, several",
    "Acquire: Held, queued, several",
    "Acquire: Full",
    "Acquire: Full, queued",
    "Acquire: Full, several",
    "Acquire: Full, queued, several",
    "Acquire: Own",
    "Acquire: error",
    "Release: Yes",
    "Release: Yes, several",
    "Release: No",
    "Release: No, several",
    "Release: Yes, kept",
    "Release: No, several, kept",
    "Extend: Yes",
    "Extend: Each",
    "Raise: Yes",
    "Raise: No",
    "Heal: Healed",
    "Transfer: Granted",
    "Transfer: NotTransferred",
    "GiveBack: Yes",
    "InspectPermits: SeenPermits",
];

#[test]
fn a_semaphore_behaves_the_same_on_a_server_and_on_an_in_memory_node() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(compare());
}
