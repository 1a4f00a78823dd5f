//! Waiting in virtual time, so that time limits can be checked exactly.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::link::Link;
use super::network;
use super::node::Node;
use super::process::{Process, within};
use super::world::{World, in_virtual_time};
use crate::{Client, ClientBuilder, ErrorCode, Lease};
use futures_util::future::join_all;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const NODES: usize = 5;
const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The time within which a notified waiter tries: enough for many messages, and much less than the random
/// delay of a waiter that is not notified.
const AT_ONCE: Duration = Duration::from_millis(15);

/// The longest random delay between two tries.
const RETRY: Duration = Duration::from_millis(200);

/// A world without random faults.
pub(super) struct Calm {
    world: Arc<World>,
}

/// A process with one client.
#[derive(Clone)]
pub(super) struct Peer {
    process: Arc<Process>,
    client: Client,
}

pub(super) fn calm<F: Future<Output = ()>>(story: impl FnOnce(Calm) -> F) {
    in_virtual_time(async {
        // The nodes' clocks differ by seconds, which must make no difference.
        let node = |number| Node::new(number, 1.0, 3_000_000 * number as i64);
        let random = fastrand::Rng::with_seed(1);
        let world = World::new((0..NODES).map(node).collect(), random, None, false);
        story(Calm { world: Arc::clone(&world) }).await;
        assert_eq!(world.violations(), Vec::<String>::new());
    });
}

impl Calm {
    fn peer(&self, number: usize) -> Peer {
        self.peer_with(number, |builder| builder)
    }

    fn peer_with(&self, number: usize, set: impl Fn(ClientBuilder) -> ClientBuilder) -> Peer {
        let links: Vec<_> = (0..NODES).map(|_| Link::new()).collect();
        let name = format!("process {number}");
        // Wall clocks are hours apart, which must make no difference.
        let error = 3_600_000_000 * number as i64;
        let process = network::start(&self.world, name, 1.0, error, links);
        let client = within(&process, || {
            let nodes = (0..NODES).map(|number| format!("memory://{number}"));
            set(Client::builder().nodes(nodes).wait(60 * SECOND)).build().expect("valid")
        });
        Peer { process, client }
    }

    fn peers(&self, count: usize) -> Vec<Peer> {
        self.peers_with(count, |builder| builder)
    }

    pub(super) fn peers_with(
        &self,
        count: usize,
        set: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Vec<Peer> {
        (0..count).map(|number| self.peer_with(number, &set)).collect()
    }

    fn now(&self) -> Duration {
        self.world.elapsed()
    }

    /// The number of requests that the busiest node has received.
    fn requests(&self) -> u64 {
        self.world.nodes.iter().map(|node| node.requests()).max().unwrap_or_default()
    }

    fn has_waiters(&self) -> bool {
        self.world.nodes.iter().any(|node| node.has_waiters())
    }
}

impl Peer {
    /// Begins an acquire in a task of the process.
    fn acquire(&self, resources: &[&str], wait: Duration) -> JoinHandle<crate::Result<Lease>> {
        let acquiring =
            within(&self.process, || self.client.lock(resources).ttl(SECOND).wait(wait).acquire());
        self.process.spawn(acquiring)
    }

    async fn get(&self, resources: &[&str]) -> Lease {
        self.acquire(resources, 60 * SECOND).await.expect("no panic").expect("it is granted")
    }

    pub(super) fn now(&self) -> Duration {
        self.process.world.elapsed()
    }

    pub(super) async fn get_permit(&self, resource: &str, limit: u32) -> Lease {
        let acquiring = within(&self.process, || self.client.semaphore(resource, limit).acquire());
        self.process.spawn(acquiring).await.expect("no panic").expect("it is granted")
    }

    pub(super) async fn release(&self, lease: Lease) {
        let releasing = within(&self.process, || lease.release());
        assert!(releasing.await, "it is held");
    }

    /// Acquires, holds and releases the lock `turns` times. Returns the moments at which the peer got the lock.
    async fn work(self, resources: &[&str], turns: usize, hold: Duration) -> Vec<Duration> {
        let mut got = Vec::new();
        for _ in 0..turns {
            let lease = self.get(resources).await;
            got.push(self.process.world.elapsed());
            sleep(hold).await;
            self.release(lease).await;
        }
        got
    }
}

#[test]
fn a_release_notifies_the_waiter() {
    calm(|calm| async move {
        let [holder, waiter] = [calm.peer(0), calm.peer(1)];
        for _ in 0..20 {
            let lease = holder.get(&["r"]).await;
            let waiting = waiter.acquire(&["r"], 60 * SECOND);
            sleep(SECOND).await;
            assert!(!waiting.is_finished());
            holder.release(lease).await;
            let released = calm.now();
            let lease = waiting.await.expect("no panic").expect("it is granted");
            assert!(calm.now() - released < AT_ONCE, "{:?}", calm.now() - released);
            waiter.release(lease).await;
        }
    });
}

#[test]
fn clients_are_served_in_the_order_of_arrival() {
    calm(|calm| async move {
        let holder = calm.peer(100);
        let lease = holder.get(&["r"]).await;
        let mut waiting = Vec::new();
        for (number, peer) in calm.peers(16).into_iter().enumerate() {
            let calm_world = Arc::clone(&calm.world);
            waiting.push(tokio::spawn(async move {
                let lease = peer.get(&["r"]).await;
                let got = calm_world.elapsed();
                sleep(2 * MILLISECOND).await;
                peer.release(lease).await;
                (got, number)
            }));
            sleep(AT_ONCE).await;
        }
        sleep(SECOND).await;
        let before = calm.requests();
        holder.release(lease).await;
        let mut got: Vec<_> = join_all(waiting).await.into_iter().map(|got| got.unwrap()).collect();
        got.sort_unstable();
        assert_eq!(
            got.iter().map(|(_, number)| *number).collect::<Vec<_>>(),
            Vec::from_iter(0..16)
        );
        // Between the first and the last grant, 15 clients held the lock in turn, and 15 waiters were notified.
        assert!(got[15].0 - got[0].0 < 15 * (AT_ONCE + 2 * MILLISECOND));
        let requests = calm.requests() - before;
        assert!(requests <= 16 * 3, "{requests} requests for 16 locks");
        sleep(SECOND).await;
        assert!(!calm.has_waiters());
    });
}

#[test]
fn a_returning_client_is_served_after_the_waiters() {
    calm(|calm| async move {
        let turns = 50;
        let peers = calm.peers(8).into_iter();
        let work = peers.map(|peer| tokio::spawn(peer.work(&["r"], turns, MILLISECOND)));
        let got: Vec<_> = join_all(work).await.into_iter().map(|got| got.unwrap()).collect();
        // Between two leases of a client, every other client gets one lease, except at the beginning.
        for mine in &got {
            for turn in mine[10..].windows(2) {
                let between = |at: &&Duration| **at > turn[0] && **at < turn[1];
                let others = got.iter().flatten().filter(between).count();
                assert!(others <= got.len(), "{others} others were served between two turns");
            }
        }
    });
}

#[test]
fn five_hundred_waiters_of_a_client_cost_no_more_than_one() {
    calm(|calm| async move {
        let [holder, client] = [calm.peer(0), calm.peer(1)];
        let mut loads = Vec::new();
        for count in [1, 500] {
            let lease = holder.get(&["r"]).await;
            let waiting: Vec<_> = (0..count).map(|_| client.acquire(&["r"], 5 * SECOND)).collect();
            sleep(SECOND).await;
            let before = calm.requests();
            sleep(3 * SECOND).await;
            loads.push(calm.requests() - before);
            holder.release(lease).await;
            let mut left = 0;
            for waiting in waiting {
                match waiting.await.expect("no panic") {
                    Ok(lease) => client.release(lease).await,
                    Err(error) => {
                        assert_eq!(error.code(), ErrorCode::Timeout);
                        left += 1;
                    }
                }
            }
            // After the release, the waiters had a second to acquire the lock one after the other.
            assert!(left <= count / 2, "{left} of {count} were not served");
        }
        // The number of local waiters must make no difference. The margin of 5 is for requests about the
        // holder's lease.
        assert!(loads[1] <= loads[0] + 5, "{loads:?}");
        sleep(SECOND).await;
        assert!(!calm.has_waiters());
    });
}

#[test]
fn waiters_of_a_client_are_served_in_order_and_time_out_in_time() {
    calm(|calm| async move {
        let [holder, client] = [calm.peer(0), calm.peer(1)];
        let lease = holder.get(&["r"]).await;
        let began = calm.now();
        let waits = [700, 300, 2_000, 500, 1_500, 2_000];
        let waiting = waits.map(|wait| client.acquire(&["r"], wait * MILLISECOND));
        let cancelled = client.acquire(&["r"], 60 * SECOND);
        let last = client.acquire(&["r"], 60 * SECOND);
        let [first, second, third, fourth, fifth, sixth] = waiting;
        for (waiting, wait) in [(second, 300), (fourth, 500), (first, 700), (fifth, 1_500)] {
            let error = waiting.await.expect("no panic").expect_err("it is held");
            assert_eq!(error.code(), ErrorCode::Timeout);
            assert_eq!(error.nodes().len(), NODES);
            assert!(
                error.nodes().iter().filter(|node| node.outcome.as_str() == "held").count() > 2
            );
            let waited = calm.now() - began;
            assert!(waited >= wait * MILLISECOND && waited < wait * MILLISECOND + AT_ONCE);
        }
        cancelled.abort();
        holder.release(lease).await;
        let released = calm.now();
        for waiting in [third, sixth, last] {
            let lease = waiting.await.expect("no panic").expect("it is granted");
            client.release(lease).await;
        }
        assert!(calm.now() - released < 3 * AT_ONCE);
    });
}

#[test]
fn the_lock_of_a_dead_holder_is_granted_when_its_ttl_ends() {
    calm(|calm| async move {
        for round in 0..20 {
            let [holder, waiter] = [calm.peer(2 * round), calm.peer(2 * round + 1)];
            let lease = holder.get(&["r"]).await;
            // The lease has not been renewed yet, so its keys expire one ttl from now.
            let died = calm.now();
            let waiting = waiter.acquire(&["r"], 60 * SECOND);
            sleep(u32::try_from(round).unwrap() * 10 * MILLISECOND).await;
            holder.process.kill();
            let next = waiting.await.expect("no panic").expect("it is granted");
            let after = calm.now() - died;
            assert!(after < SECOND + 100 * MILLISECOND, "after {after:?}");
            waiter.release(next).await;
            drop(lease);
        }
        sleep(6 * SECOND).await;
        assert!(!calm.has_waiters());
    });
}

#[test]
fn a_client_subscribes_only_while_it_waits() {
    calm(|calm| async move {
        let [holder, client] = [calm.peer(0), calm.peer(1)];
        let listens = |peer: &Peer| peer.process.links.iter().any(|link| link.is_listening());
        for _ in 0..2 {
            let lease = holder.get(&["r"]).await;
            assert!(!listens(&client));
            let waiting = client.acquire(&["r"], 60 * SECOND);
            sleep(SECOND).await;
            assert!(listens(&client) && !listens(&holder));
            holder.release(lease).await;
            let lease = waiting.await.unwrap().expect("it is granted");
            client.release(lease).await;
            // The client continues with a lock that is not contended.
            for _ in 0..100 {
                let lease = client.get(&["s"]).await;
                sleep(100 * MILLISECOND).await;
                client.release(lease).await;
            }
        }
        assert!(!listens(&client));
    });
}

#[test]
fn dead_waiters_are_skipped() {
    calm(|calm| async move {
        let peers = calm.peers(8);
        let lease = peers[0].get(&["r"]).await;
        let mut waiting = Vec::new();
        for peer in &peers[1..] {
            waiting.push(peer.acquire(&["r"], 60 * SECOND));
            sleep(AT_ONCE).await;
        }
        sleep(SECOND).await;
        for peer in &peers[1..7] {
            peer.process.kill();
        }
        sleep(AT_ONCE).await;
        peers[0].release(lease).await;
        let released = calm.now();
        let lease = waiting.pop().unwrap().await.expect("no panic").expect("it is granted");
        assert!(calm.now() - released < AT_ONCE);
        peers[7].release(lease).await;
        sleep(6 * SECOND).await;
        assert!(!calm.has_waiters(), "dead waiters were not removed");
    });
}

#[test]
fn a_stopped_waiter_delays_the_others_only_once() {
    calm(|calm| async move {
        let [holder, stopped, next] = [calm.peer(0), calm.peer(1), calm.peer(2)];
        let lease = holder.get(&["r"]).await;
        let waits = stopped.acquire(&["r"], 60 * SECOND);
        sleep(SECOND).await;
        let waiting = next.acquire(&["r"], 60 * SECOND);
        sleep(SECOND).await;
        stopped.process.stop();
        holder.release(lease).await;
        let released = calm.now();
        let lease = waiting.await.expect("no panic").expect("it is granted");
        assert!(calm.now() - released < 3 * RETRY, "{:?}", calm.now() - released);
        // The stopped waiter is no longer in the queue.
        let waiting = holder.acquire(&["r"], 60 * SECOND);
        sleep(SECOND).await;
        next.release(lease).await;
        let released = calm.now();
        let lease = waiting.await.expect("no panic").expect("it is granted");
        assert!(calm.now() - released < AT_ONCE);
        stopped.process.go_on(Duration::ZERO);
        sleep(SECOND).await;
        holder.release(lease).await;
        let lease = waits.await.expect("no panic").expect("it is granted");
        stopped.release(lease).await;
    });
}

#[test]
fn without_notifications_waiters_poll() {
    calm(|calm| async move {
        let [holder, waiter] = [calm.peer(0), calm.peer(1)];
        let lost = |lost| {
            for link in &waiter.process.links {
                link.loses_calls.store(lost, std::sync::atomic::Ordering::Relaxed);
            }
        };
        lost(true);
        for _ in 0..10 {
            let lease = holder.get(&["r"]).await;
            let waiting = waiter.acquire(&["r"], 60 * SECOND);
            sleep(SECOND).await;
            holder.release(lease).await;
            let released = calm.now();
            let lease = waiting.await.expect("no panic").expect("it is granted");
            assert!(calm.now() - released < RETRY + AT_ONCE);
            waiter.release(lease).await;
        }
    });
}

#[test]
fn a_waiter_gets_the_lock_as_soon_as_the_released_key_was_kept() {
    calm(|calm| async move {
        let [holder, waiter] = [calm.peer(0), calm.peer(1)];
        // The first time is shorter than the ttl of the lease, and the second time is longer.
        for keep in [300 * MILLISECOND, 5 * SECOND] {
            let lease = holder.get(&["r"]).await;
            let waiting = waiter.acquire(&["r"], 60 * SECOND);
            sleep(SECOND).await;
            let releasing = within(&holder.process, || lease.release_and_keep(keep).unwrap());
            let released = calm.now();
            assert!(releasing.await, "it is held");
            let next = waiting.await.expect("no panic").expect("it is granted");
            let took = calm.now() - released;
            assert!(took >= keep && took < keep.mul_f64(1.01) + 2 * AT_ONCE, "{keep:?}: {took:?}");
            waiter.release(next).await;
        }
    });
}

#[test]
fn a_waiter_for_two_resources_does_not_starve() {
    // A waiter reserves a resource for an eighth of its wait, so a few of these times must pass before a reservation is
    // longer than a lease of the others.
    const LONG_LEASES: u32 = 30;
    for (one, other) in [(1, 1), (3, 7), (20, 20), (30, 47), (200, 170), (2_000, 1_700)] {
        calm(|calm| async move {
            let one = one * MILLISECOND;
            let other = other * MILLISECOND;
            let mut others = Vec::new();
            for number in 0..3 {
                for (resource, hold) in [("a", one), ("b", other)] {
                    let peer = calm.peer(number);
                    let work = async move { peer.work(&[resource], usize::MAX, hold).await };
                    others.push(tokio::spawn(work));
                }
            }
            let both = calm.peer(100);
            // Enough leases to average out random delays.
            let turns = 40;
            let began = calm.now();
            let got = both.work(&["b", "a"], turns, MILLISECOND).await;
            let took = (*got.last().unwrap() - began) / u32::try_from(turns).unwrap();
            // Before each of these leases, every other client may hold and release a lease.
            let fair = 4 * (one + other + AT_ONCE);
            let limit = if one < SECOND { fair + SECOND / 4 } else { LONG_LEASES * one };
            assert!(took < limit, "{took:?} for one turn; {one:?} and {other:?}");
            others.iter().for_each(|work| work.abort());
        });
    }
}

#[test]
fn a_waiter_for_two_resources_delays_others_little() {
    calm(|calm| async move {
        let [holder, both, other] = [calm.peer(0), calm.peer(1), calm.peer(2)];
        let lease = holder.get(&["b"]).await;
        let waiting = both.acquire(&["a", "b"], 60 * SECOND);
        sleep(SECOND).await;
        // While `b` is held for a long time, other clients can use `a`.
        let began = calm.now();
        other.work(&["a"], 100, MILLISECOND).await;
        let took = calm.now() - began;
        assert!(took < 5 * SECOND, "{took:?} for 100 turns");
        holder.release(lease).await;
        let released = calm.now();
        let lease = waiting.await.expect("no panic").expect("it is granted");
        assert!(calm.now() - released < AT_ONCE);
        both.release(lease).await;
        sleep(6 * SECOND).await;
        assert!(!calm.has_waiters());
    });
}

#[test]
fn an_outage_is_reported_to_all_waiters() {
    calm(|calm| async move {
        let [holder, client] = [calm.peer(0), calm.peer(1)];
        let _lease = holder.get(&["r"]).await;
        let waiting: Vec<_> = (0..200).map(|_| client.acquire(&["r"], 60 * SECOND)).collect();
        let impatient = client.acquire(&["r"], SECOND + SECOND / 2);
        sleep(SECOND).await;
        calm.world.nodes.iter().for_each(|node| node.kill());
        let began = calm.now();
        let error = impatient.await.expect("no panic").expect_err("all nodes are down");
        assert_eq!(error.code(), ErrorCode::NoQuorum, "other waiters have found the outage");
        assert!(calm.now() - began < SECOND / 2 + AT_ONCE);
        for waiting in waiting {
            let error = waiting.await.expect("no panic").expect_err("all nodes are down");
            assert_eq!(error.code(), ErrorCode::NoQuorum);
        }
        let took = calm.now() - began;
        assert!(took < 4 * SECOND, "{took:?}");
        calm.world.nodes.iter().for_each(|node| node.start(false));
    });
}

#[test]
fn a_short_outage_at_the_deadline_of_one_waiter_ends_no_other_wait() {
    calm(|calm| async move {
        let [holder, client] = [calm.peer(0), calm.peer(1)];
        let lease = holder.get(&["r"]).await;
        let impatient = client.acquire(&["r"], 2 * SECOND);
        let patient = client.acquire(&["r"], 60 * SECOND);
        sleep(2 * SECOND - 10 * MILLISECOND).await;
        calm.world.nodes.iter().for_each(|node| node.freeze());
        let error = impatient.await.expect("no panic").expect_err("it is held");
        assert_eq!(error.code(), ErrorCode::NoQuorum, "its last round is in the outage");
        calm.world.nodes.iter().for_each(|node| node.thaw());
        holder.release(lease).await;
        let lease = patient.await.expect("no panic").expect("the outage is over");
        client.release(lease).await;
    });
}

#[test]
fn queued_local_waiters_distinguish_an_outage_from_contention() {
    calm(|calm| async move {
        let freeze = || calm.world.nodes.iter().for_each(|node| node.freeze());
        let thaw = || calm.world.nodes.iter().for_each(|node| node.thaw());
        let down = async |waiting: Vec<JoinHandle<crate::Result<Lease>>>, limit: Duration| {
            let before = calm.requests();
            let began = calm.now();
            for waiting in waiting {
                let error = waiting.await.expect("no panic").expect_err("no node answers");
                assert_eq!(error.code(), ErrorCode::NoQuorum, "{error}");
            }
            assert!(calm.now() - began < limit, "{:?}", calm.now() - began);
            thaw();
            sleep(2 * SECOND).await;
            calm.requests() - before
        };

        // First case: the waits time out before any round ends, because connecting to a frozen node takes longer than
        // the waits.
        freeze();
        let client = calm.peer(0);
        let waiting = (0..200).map(|_| client.acquire(&["r"], SECOND / 2)).collect();
        let requests = down(waiting, 2 * SECOND).await;
        assert!(requests < 20, "{requests} requests of 200 waiters");

        // Second case: the last round was long ago, because the first local waiter is far back in the nodes' queues.
        let holder = calm.peer(1);
        let lease = holder.get(&["r"]).await;
        let others: Vec<_> =
            (2..22).map(|number| calm.peer(number).acquire(&["r"], 60 * SECOND)).collect();
        sleep(SECOND).await;
        let waiting = (0..200).map(|_| client.acquire(&["r"], 5 * SECOND)).collect();
        sleep(5 * SECOND - 300 * MILLISECOND).await;
        freeze();
        down(waiting, 300 * MILLISECOND + RETRY).await;
        others.iter().for_each(JoinHandle::abort);
        drop(lease);
    });
}
