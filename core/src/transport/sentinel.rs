//! Finds a master through sentinels, and connects to the server that their reports name.
//!
//! A single sentinel may be out of date: it may be frozen, or cut off from the others during a failover. So this module
//! decides only after a majority of the sentinels has answered. `node/connection.rs` and `node/subscription.rs` call
//! this module; their callers set the time limits.

use crate::config::endpoint::Sentinels;
use crate::config::server::{Server, ServerAddress};
use crate::error::NodeOutcome;
use crate::runtime::timer::timeout;
use crate::transport::connection::{Connection, Nobody, Receive};
use crate::transport::handshake::{failure, open};
use crate::wire::answer::Failure;
use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{RedisError, Value, from_redis_value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for the other sentinels if a majority has answered, but does not report the same master.
// Unit tests use a longer time, because a loaded machine may delay them.
const STRAGGLERS: Duration = Duration::from_millis(if cfg!(test) { 1_000 } else { 100 });

/// A connection to the master that the sentinels report.
pub(crate) struct Master<R: Receive> {
    pub(crate) connection: Connection<R>,
    pub(crate) server: Arc<Server>,
    /// How long a majority of the sentinels has been reporting this master; zero if that time is unknown.
    pub(crate) age: Duration,
}

/// What one sentinel reports about the master.
#[derive(Clone, Debug, PartialEq)]
struct Report {
    place: ServerAddress,
    /// The configuration epoch: a number that each failover raises.
    epoch: u64,
    age: Duration,
}

/// The server that the sentinels' reports, taken together, name as the master.
#[derive(Debug, PartialEq)]
struct Elected {
    place: ServerAddress,
    /// How long a majority of the sentinels has been reporting this master; zero if that time is unknown.
    age: Duration,
    /// Whether a majority of the sentinels reports this master with the highest epoch.
    is_agreed: bool,
}

/// Returns the number of sentinels that are a majority.
fn majority(sentinels: usize) -> usize {
    sentinels / 2 + 1
}

/// Decides from the sentinels' reports which server is the master. `reports` has one entry for each sentinel, in the
/// order of the URL; an entry is `None` if the sentinel has not answered. Returns `None` if no majority has answered,
/// because a minority may be out of date.
///
/// If a majority of the sentinels knows of a failover, every majority includes a sentinel that knows of this failover.
/// So this function ignores all reports except those with the highest epoch. Of the servers in these reports, it
/// chooses the one that most reports name. In a tie, it chooses `current` if `current` is among the tied servers, and
/// otherwise the server that is named first in `reports`.
fn elect(reports: &[Option<Report>], current: Option<&ServerAddress>) -> Option<Elected> {
    let majority = majority(reports.len());
    let received = || reports.iter().flatten();
    if received().count() < majority {
        return None;
    }
    let epoch = received().map(|report| report.epoch).max()?;
    let latest = || received().filter(|report| report.epoch == epoch);
    let ages = |place: &ServerAddress| {
        let mut ages: Vec<_> =
            latest().filter(|report| report.place == *place).map(|report| report.age).collect();
        ages.sort_unstable_by(|one, other| other.cmp(one));
        ages
    };
    let rank = |place: &ServerAddress| (ages(place).len(), current == Some(place));
    // `max_by_key` returns the last of equal elements, but the first one must win a tie, hence `rev`.
    let reports: Vec<_> = latest().collect();
    let place =
        reports.into_iter().rev().map(|report| &report.place).max_by_key(|place| rank(place))?;
    let age = ages(place).get(majority - 1).copied();
    Some(Elected { place: place.clone(), age: age.unwrap_or_default(), is_agreed: age.is_some() })
}

impl Sentinels {
    /// Connects to the server that the sentinels report. Fails if that server reports that it is not a master. Has no
    /// time limit.
    pub(crate) async fn open<R: Receive>(&self) -> Result<Master<R>, Failure> {
        let named = self.named(None).await.map_err(Failure::unreachable)?;
        self.connect_to(named).await
    }

    /// Whether the sentinels still report this master; `None` if too few of them answer.
    pub(crate) async fn still_name(&self, place: &ServerAddress) -> Option<bool> {
        let named = self.named(Some(place)).await.ok()?;
        Some(named.place == *place)
    }

    /// Queries all sentinels at the same time. Returns as soon as a majority reports the same master, or a little later
    /// if a majority answers without agreeing.
    async fn named(&self, current: Option<&ServerAddress>) -> Result<Elected, String> {
        let count = self.sentinels.len();
        let query = async |number: usize| (number, self.query(&self.sentinels[number]).await);
        let mut queries: FuturesUnordered<_> = (0..count).map(query).collect();
        let mut reports = vec![None; count];
        let mut reasons = Vec::new();
        loop {
            let named = elect(&reports, current);
            let next = match named {
                Some(named) if named.is_agreed => return Ok(named),
                Some(named) => match timeout(STRAGGLERS, queries.next()).await {
                    Ok(Some(answer)) => answer,
                    Ok(None) | Err(_) => return Ok(named),
                },
                None if reasons.len() > count - majority(count) => break,
                None => match queries.next().await {
                    Some(answer) => answer,
                    None => break,
                },
            };
            match next {
                (number, Ok(report)) => reports[number] = Some(report),
                (_, Err(reason)) => reasons.push(reason),
            }
        }
        let failed = reasons.len();
        let needed = majority(count);
        let reasons = reasons.join("; ");
        Err(match count {
            1 => reasons,
            _ => format!("{failed} of {count} sentinels named no master, {needed} must: {reasons}"),
        })
    }

    async fn query(&self, sentinel: &Server) -> Result<Report, String> {
        let fail = |why: String| format!("sentinel {}: {why}", sentinel.place);
        let replied = async {
            let connection = Connection::<Nobody>::connect(sentinel).boxed().await?;
            let mut commands = Vec::new();
            if let Some((user, password)) = sentinel.login.credentials() {
                commands.push(redis::cmd("AUTH").arg(user).arg(password).to_owned());
            }
            // The epoch is read before the address, so that it is never newer than the address.
            for name in ["master", "get-master-addr-by-name"] {
                commands.push(redis::cmd("SENTINEL").arg(name).arg(&self.service).to_owned());
            }
            let mut replies = connection.query(&commands).await?;
            let address = replies.pop();
            let master = replies.pop();
            for reply in replies {
                reply.extract_error()?;
            }
            let address = address.unwrap_or(Value::Nil).extract_error()?;
            Ok::<_, RedisError>((address, master))
        };
        let (address, master) =
            replied.await.map_err(|error| fail(failure(&error, false).detail))?;
        let Ok(Some((host, port))) = from_redis_value::<Option<(String, u16)>>(address) else {
            return Err(fail(format!("it knows no service {:?}", self.service)));
        };
        let known: HashMap<String, String> =
            master.and_then(|master| from_redis_value(master).ok()).unwrap_or_default();
        // During a failover, the reply to SENTINEL master may describe another server than the address names. Its times
        // then do not apply.
        let is_this =
            known.get("ip") == Some(&host) && known.get("port") == Some(&port.to_string());
        let age = known.get("role-reported-time").filter(|_| is_this);
        let age = age.and_then(|age| age.parse().ok()).unwrap_or(0);
        let epoch = known.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        Ok(Report { place: ServerAddress::tcp(host, port), epoch, age: Duration::from_millis(age) })
    }

    async fn connect_to<R: Receive>(&self, named: Elected) -> Result<Master<R>, Failure> {
        let Elected { place, age, .. } = named;
        let login = self.login.clone();
        let tls = self.tls.clone();
        let server = Server { place, login, tls, is_discovered: true };
        let connection = open(&server).await?;
        let replied = connection.query(&[redis::cmd("ROLE")]).await;
        let role = replied.map_err(|error| failure(&error, false).at(&server.place))?.pop();
        // If ROLE is not permitted, the first write shows whether the server is a replica.
        if let Some(Value::Array(role)) = role
            && !matches!(role.first(), Some(Value::BulkString(role)) if role == b"master")
        {
            let detail = "the sentinels name it, and it is a replica".to_owned();
            let failure = Failure { outcome: NodeOutcome::Readonly, detail, sent: false };
            return Err(failure.at(&server.place));
        }
        Ok(Master { connection, server: Arc::new(server), age })
    }
}

#[cfg(test)]
mod tests;
