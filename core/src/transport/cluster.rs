//! Finds the masters of a Redis Cluster and their slots with CLUSTER SLOTS, and parses redirections.
//!
//! This module only queries and parses; `node/routing.rs` decides when to query. In `node`, each master has its own
//! connection, deadlines and restart guard, so a master that hangs does not delay the others.

use crate::config::endpoint::Cluster;
use crate::config::server::{Server, ServerAddress};
use crate::error::NodeOutcome;
use crate::transport::connection::Nobody;
use crate::transport::handshake::{failure, open};
use crate::wire::answer::Failure;
use crate::wire::keys::SLOTS;
use crate::wire::limits::MASTERS;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// A master of a cluster, and the slots that it serves.
#[derive(PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) place: ServerAddress,
    /// The server's id in the cluster.
    pub(crate) id: String,
    slots: Vec<RangeInclusive<u16>>,
}

impl Shard {
    pub(crate) fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|slots| slots.contains(&slot))
    }

    /// Returns the number of slots that this master serves.
    pub(crate) fn size(&self) -> usize {
        self.slots.iter().map(RangeInclusive::len).sum()
    }
}

/// The failure of a request for a slot that no known master serves.
pub(crate) fn no_master(slot: u16) -> Failure {
    Failure::refused(format!("no master of the cluster has slot {slot}"))
}

/// A redirection: the answer of a server that does not serve a slot, and that reports which server does.
pub(crate) enum Redirect {
    /// The slot has moved to this server.
    Moved(ServerAddress),
    /// The slot is being moved to this server, and the server that answered no longer has the key.
    Ask(ServerAddress),
}

impl Redirect {
    pub(crate) fn has_moved(&self) -> bool {
        matches!(self, Self::Moved(_))
    }

    pub(crate) fn of(error: &RedisError) -> Option<Self> {
        let redirect = match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => Self::Moved,
            ErrorKind::Server(ServerErrorKind::Ask) => Self::Ask,
            _ => return None,
        };
        let (host, port) = error.detail()?.split_whitespace().nth(1)?.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        // If the redirection names no host, only a new query of the slots shows which server is meant.
        let is_known = !host.is_empty() && host != "?";
        Some(redirect(ServerAddress::tcp(host, port.parse().ok().filter(|_| is_known)?)))
    }
}

impl Cluster {
    pub(crate) fn server(&self, place: ServerAddress) -> Server {
        Server { place, login: self.login.clone(), tls: self.tls.clone(), is_discovered: true }
    }

    /// Queries the seeds and the servers in `known` for the masters. Returns the first valid answer.
    ///
    /// An outdated answer is harmless here, unlike an outdated answer of a sentinel: a server that
    /// is no longer the master of a slot answers MOVED, and a server that is cut off from the
    /// majority of the masters refuses requests (CLUSTERDOWN).
    pub(crate) async fn masters(&self, known: &[ServerAddress]) -> Result<Vec<Shard>, Failure> {
        let mut places: Vec<_> = known.iter().chain(&self.seeds).collect();
        places.sort_unstable_by_key(|place| place.to_string());
        places.dedup();
        let mut queries: FuturesUnordered<_> =
            places.into_iter().map(|place| self.query_masters(place)).collect();
        let mut failed: Option<Failure> = None;
        while let Some(answered) = queries.next().await {
            match answered {
                Ok(shards) => return Ok(shards),
                // An error that a server returned explains more than a failed connection to another server.
                Err(failure) if failed.as_ref().is_none_or(Failure::is_transport) => {
                    failed = Some(failure);
                }
                Err(_) => {}
            }
        }
        Err(failed.unwrap_or_else(|| Failure::unreachable("no server is known")))
    }

    async fn query_masters(&self, place: &ServerAddress) -> Result<Vec<Shard>, Failure> {
        let connection = open::<Nobody>(&self.server(place.clone())).await?;
        let command = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
        let replied = connection
            .query(&[command])
            .await
            .and_then(|mut replies| replies.pop().unwrap_or(Value::Nil).extract_error());
        let reply = replied.map_err(|error| {
            Failure { outcome: NodeOutcome::Unreachable, ..failure(&error, false) }.at(place)
        })?;
        let unclear = |why| Failure::unreachable(why).at(place);
        let shards = parse_shards(&reply, place)
            .filter(|shards| !shards.is_empty())
            .ok_or_else(|| unclear("it does not tell the cluster's slots".to_owned()))?;
        let masters = shards.len();
        if masters > MASTERS {
            return Err(unclear(format!("it names {masters} masters, more than {MASTERS}")));
        }
        Ok(shards)
    }
}

/// Parses a reply to CLUSTER SLOTS; `None` if the reply is not valid. `queried` is the address of the server that sent
/// the reply.
fn parse_shards(reply: &Value, queried: &ServerAddress) -> Option<Vec<Shard>> {
    let Value::Array(rows) = reply else { return None };
    // Each slot has one master, so there are no more ranges than slots.
    if rows.len() > usize::from(SLOTS) {
        return None;
    }
    let mut shards: Vec<Shard> = Vec::new();
    let mut known: HashMap<ServerAddress, usize> = HashMap::new();
    for row in rows {
        let Value::Array(row) = row else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &row[..] else {
            return None;
        };
        let slots = u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?;
        let [host, Value::Int(port), Value::BulkString(id), ..] = &master[..] else { return None };
        let host = match (host, queried) {
            (Value::BulkString(host), _) if !host.is_empty() && host != b"?" => {
                String::from_utf8(host.clone()).ok()?
            }
            // The reply names no host if the server does not know its own. Use the host that was queried.
            (_, ServerAddress::Tcp { host, .. }) => host.clone(),
            _ => return None,
        };
        let place = ServerAddress::tcp(host, u16::try_from(*port).ok()?);
        match known.get(&place) {
            Some(shard) => shards[*shard].slots.push(slots),
            None => {
                let id = String::from_utf8(id.clone()).ok()?;
                known.insert(place.clone(), shards.len());
                shards.push(Shard { place, id, slots: vec![slots] });
            }
        }
    }
    Some(shards)
}

#[cfg(test)]
mod tests {
    use super::parse_shards;
    use crate::config::server::ServerAddress;
    use crate::wire::keys::SLOTS;
    use redis::Value;

    fn slots(ranges: i64) -> Value {
        let row = |number: i64| {
            let host = b"10.0.0.1".to_vec();
            let id = format!("id{number}").into_bytes();
            let master = [Value::BulkString(host), Value::Int(6379), Value::BulkString(id)];
            let slot = Value::Int(number % i64::from(SLOTS));
            Value::Array(vec![slot.clone(), slot, Value::Array(master.into())])
        };
        Value::Array((0..ranges).map(row).collect())
    }

    #[test]
    fn more_ranges_than_slots_are_refused() {
        let place = ServerAddress::tcp("10.0.0.9".to_owned(), 6379);
        let shards = parse_shards(&slots(SLOTS.into()), &place);
        assert!(
            shards
                .is_some_and(|shards| shards.len() == 1 && shards[0].size() == usize::from(SLOTS))
        );
        assert!(parse_shards(&slots(i64::from(SLOTS) + 1), &place).is_none());
        assert!(parse_shards(&slots(60_000), &place).is_none());
    }
}
