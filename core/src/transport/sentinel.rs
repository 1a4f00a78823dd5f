//! A master that sentinels name: asks them, and connects to the server that a majority of them names.
//!
//! One sentinel may be out of date: frozen, or cut off from the others during a failover. So the word of a
//! minority never counts.

use crate::command::answer::Failure;
use crate::config::endpoint::Sentinels;
use crate::config::server::{Place, Server};
use crate::error::NodeOutcome;
use crate::runtime::timer::timeout;
use crate::transport::connection::{Connection, Nobody, Receive};
use crate::transport::handshake::{failure, open};
use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{RedisError, Value, from_redis_value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long the other sentinels are waited for when a majority has answered, but does not agree.
const STRAGGLERS: Duration = Duration::from_millis(100);

/// The master, connected.
pub(crate) struct Master<R: Receive> {
    pub(crate) connection: Connection<R>,
    pub(crate) server: Arc<Server>,
    /// For how long a majority of the sentinels has named it; zero if that is not known.
    pub(crate) age: Duration,
}

/// What a sentinel says.
#[derive(Clone, Debug, PartialEq)]
struct Word {
    place: Place,
    /// The configuration epoch: each failover has a higher one.
    epoch: u64,
    age: Duration,
}

/// The server that the sentinels name together.
#[derive(Debug, PartialEq)]
struct Named {
    place: Place,
    /// For how long a majority of the sentinels has named it; zero if that is not known.
    age: Duration,
    /// Whether a majority of the sentinels names it, and not a smaller part with a higher epoch.
    is_agreed: bool,
}

/// How many of so many sentinels must answer.
fn majority(sentinels: usize) -> usize {
    sentinels / 2 + 1
}

/// What the sentinels say together; `words` has one entry for each sentinel in the URL, in its order. `None`
/// if no majority of them has answered: what a minority says may be out of date.
///
/// The words with the highest epoch count: once a majority of the sentinels knows of a failover, every
/// majority includes one that does. Of several servers with that epoch, the one that most sentinels name is
/// chosen; then `current`; then the first.
fn elect(words: &[Option<Word>], current: Option<&Place>) -> Option<Named> {
    let majority = majority(words.len());
    let told = || words.iter().flatten();
    if told().count() < majority {
        return None;
    }
    let epoch = told().map(|word| word.epoch).max()?;
    let latest = || told().filter(|word| word.epoch == epoch);
    let ages = |place: &Place| {
        let mut ages: Vec<_> =
            latest().filter(|word| word.place == *place).map(|word| word.age).collect();
        ages.sort_unstable_by(|one, other| other.cmp(one));
        ages
    };
    let rank = |place: &Place| (ages(place).len(), current == Some(place));
    // Of equals, `max_by_key` takes the last.
    let words: Vec<_> = latest().collect();
    let place = words.into_iter().rev().map(|word| &word.place).max_by_key(|place| rank(place))?;
    let age = ages(place).get(majority - 1).copied();
    Some(Named { place: place.clone(), age: age.unwrap_or_default(), is_agreed: age.is_some() })
}

impl Sentinels {
    /// Connects to the master, without a time limit. The server that the sentinels name must say itself that
    /// it is a master.
    pub(crate) async fn open<R: Receive>(&self) -> Result<Master<R>, Failure> {
        let named = self.named(None).await.map_err(Failure::unreachable)?;
        self.meet(named).await
    }

    /// Whether the sentinels still name this server; `None` if too few of them answer.
    pub(crate) async fn still_name(&self, place: &Place) -> Option<bool> {
        let named = self.named(Some(place)).await.ok()?;
        Some(named.place == *place)
    }

    /// Asks all sentinels at once. Decides as soon as a majority of them agrees; if they do not, shortly
    /// after a majority has answered.
    async fn named(&self, current: Option<&Place>) -> Result<Named, String> {
        let count = self.sentinels.len();
        let ask = async |number: usize| (number, self.ask(&self.sentinels[number]).await);
        let mut asking: FuturesUnordered<_> = (0..count).map(ask).collect();
        let (mut words, mut reasons) = (vec![None; count], Vec::new());
        loop {
            let named = elect(&words, current);
            let next = match named {
                Some(named) if named.is_agreed => return Ok(named),
                Some(named) => match timeout(STRAGGLERS, asking.next()).await {
                    Ok(Some(told)) => told,
                    Ok(None) | Err(_) => return Ok(named),
                },
                None if reasons.len() > count - majority(count) => break,
                None => match asking.next().await {
                    Some(told) => told,
                    None => break,
                },
            };
            match next {
                (number, Ok(word)) => words[number] = Some(word),
                (_, Err(reason)) => reasons.push(reason),
            }
        }
        let (failed, needed, reasons) = (reasons.len(), majority(count), reasons.join("; "));
        Err(match count {
            1 => reasons,
            _ => format!("{failed} of {count} sentinels named no master, {needed} must: {reasons}"),
        })
    }

    async fn ask(&self, sentinel: &Server) -> Result<Word, String> {
        let fail = |why: String| format!("sentinel {}: {why}", sentinel.place);
        let told = async {
            let connection = Connection::<Nobody>::connect(sentinel).boxed().await?;
            let mut commands = Vec::new();
            if let Some((user, password)) = sentinel.login.credentials() {
                commands.push(redis::cmd("AUTH").arg(user).arg(password).to_owned());
            }
            // The epoch first: it must not be later than the address.
            for name in ["master", "get-master-addr-by-name"] {
                commands.push(redis::cmd("SENTINEL").arg(name).arg(&self.service).to_owned());
            }
            let mut replies = connection.query(&commands).await?;
            let (address, master) = (replies.pop(), replies.pop());
            for reply in replies {
                reply.extract_error()?;
            }
            let address = address.unwrap_or(Value::Nil).extract_error()?;
            Ok::<_, RedisError>((address, master))
        };
        let (address, master) = told.await.map_err(|error| fail(failure(&error, false).detail))?;
        let Ok(Some((host, port))) = from_redis_value::<Option<(String, u16)>>(address) else {
            return Err(fail(format!("it knows no service {:?}", self.service)));
        };
        let known: HashMap<String, String> =
            master.and_then(|master| from_redis_value(master).ok()).unwrap_or_default();
        // What it tells of another one, in a failover, says nothing of this.
        let is_this =
            known.get("ip") == Some(&host) && known.get("port") == Some(&port.to_string());
        let age = known.get("role-reported-time").filter(|_| is_this);
        let age = age.and_then(|age| age.parse().ok()).unwrap_or(0);
        let epoch = known.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        Ok(Word { place: Place::tcp(host, port), epoch, age: Duration::from_millis(age) })
    }

    async fn meet<R: Receive>(&self, named: Named) -> Result<Master<R>, Failure> {
        let Named { place, age, .. } = named;
        let (login, tls) = (self.login.clone(), self.tls.clone());
        let server = Server { place, login, tls, is_discovered: true };
        let connection = open(&server).await?;
        let asked = connection.query(&[redis::cmd("ROLE")]).await;
        let role = asked.map_err(|error| failure(&error, false).at(&server.place))?.pop();
        // Where it is not permitted to look, the first write will tell.
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
