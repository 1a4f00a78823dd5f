//! A whole Redis Cluster as one node: which master has which keys, and the way of requests to them.
//!
//! Each master is a node of its own, with a connection, a deadline and a restart guard: one that hangs
//! concerns nobody else. What is asked about a resource goes to the master that has its slot.

use crate::command::answer::Failure;
use crate::config::endpoint::Cluster;
use crate::config::server::{Place, Server};
use crate::error::NodeOutcome;
use crate::transport::connection::Nobody;
use crate::transport::handshake::{failure, open};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use std::ops::RangeInclusive;

/// A master, and its part of the slots.
pub(crate) struct Shard {
    pub(crate) place: Place,
    /// What the cluster calls the server, for as long as it is one of it.
    pub(crate) id: String,
    slots: Vec<RangeInclusive<u16>>,
}

impl Shard {
    pub(crate) fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|slots| slots.contains(&slot))
    }

    /// How many slots it has.
    pub(crate) fn size(&self) -> usize {
        self.slots.iter().map(RangeInclusive::len).sum()
    }
}

/// Why nobody can be asked about this slot.
pub(crate) fn no_master(slot: u16) -> Failure {
    Failure::refused(format!("no master of the cluster has slot {slot}"))
}

/// Where a slot is, as the server says that was asked in vain.
pub(crate) enum Elsewhere {
    /// It is there now.
    Moved(Place),
    /// It is on its way there, and so is this key.
    Ask(Place),
}

impl Elsewhere {
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self, Self::Moved(_))
    }

    pub(crate) fn of(error: &RedisError) -> Option<Self> {
        let elsewhere = match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => Self::Moved,
            ErrorKind::Server(ServerErrorKind::Ask) => Self::Ask,
            _ => return None,
        };
        let (host, port) = error.detail()?.split_whitespace().nth(1)?.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        // Without a host, it is one that only the next look at the cluster tells.
        let is_told = !host.is_empty() && host != "?";
        Some(elsewhere(Place::tcp(host, port.parse().ok().filter(|_| is_told)?)))
    }
}

impl Cluster {
    /// One of its servers.
    pub(crate) fn server(&self, place: Place) -> Server {
        Server { place, login: self.login.clone(), tls: self.tls.clone(), is_discovered: true }
    }

    /// Asks these servers and the seeds which masters there are; the first answer counts. An old answer is
    /// no danger, unlike that of a sentinel: a server that was replaced as the master of a slot answers
    /// MOVED, and one that is cut off from the majority of the masters refuses requests (CLUSTERDOWN).
    pub(crate) async fn masters(&self, known: &[Place]) -> Result<Vec<Shard>, Failure> {
        let mut places: Vec<_> = known.iter().chain(&self.seeds).collect();
        places.sort_unstable_by_key(|place| place.to_string());
        places.dedup();
        let mut asking: FuturesUnordered<_> =
            places.into_iter().map(|place| self.ask(place)).collect();
        let mut failed: Option<Failure> = None;
        while let Some(answered) = asking.next().await {
            match answered {
                Ok(shards) => return Ok(shards),
                // What a server said is more to the point than that there is none.
                Err(failure) if failed.as_ref().is_none_or(Failure::is_transport) => {
                    failed = Some(failure);
                }
                Err(_) => {}
            }
        }
        Err(failed.unwrap_or_else(|| Failure::unreachable("no server is known")))
    }

    async fn ask(&self, place: &Place) -> Result<Vec<Shard>, Failure> {
        let connection = open::<Nobody>(&self.server(place.clone())).await?;
        let command = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
        let asked = connection
            .query(&[command])
            .await
            .and_then(|mut replies| replies.pop().unwrap_or(Value::Nil).extract_error());
        let told = asked.map_err(|error| {
            Failure { outcome: NodeOutcome::Unreachable, ..failure(&error, false) }.at(place)
        })?;
        let unclear = || Failure::unreachable("it does not tell the cluster's slots").at(place);
        shards(&told, place).filter(|shards| !shards.is_empty()).ok_or_else(unclear)
    }
}

/// Understands the answer of the server at `asked` to CLUSTER SLOTS.
fn shards(told: &Value, asked: &Place) -> Option<Vec<Shard>> {
    let Value::Array(rows) = told else { return None };
    let mut shards: Vec<Shard> = Vec::new();
    for row in rows {
        let Value::Array(row) = row else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &row[..] else {
            return None;
        };
        let slots = u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?;
        let [host, Value::Int(port), Value::BulkString(id), ..] = &master[..] else { return None };
        let host = match (host, asked) {
            (Value::BulkString(host), _) if !host.is_empty() && host != b"?" => {
                String::from_utf8(host.clone()).ok()?
            }
            // It knows no name for itself but that by which it was reached.
            (_, Place::Tcp { host, .. }) => host.clone(),
            _ => return None,
        };
        let place = Place::tcp(host, u16::try_from(*port).ok()?);
        match shards.iter_mut().find(|shard| shard.place == place) {
            Some(shard) => shard.slots.push(slots),
            None => {
                let id = String::from_utf8(id.clone()).ok()?;
                shards.push(Shard { place, id, slots: vec![slots] });
            }
        }
    }
    Some(shards)
}
