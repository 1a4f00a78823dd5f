//! A master that sentinels name.

use crate::answer::Failure;
use crate::error::NodeOutcome;
use crate::pipe::Pipe;
use crate::server::{Login, Place, Server};
use crate::tls::Tls;
use crate::wire::{failure, open};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{RedisError, Value, from_redis_value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The port of a sentinel, unless another one is given.
pub(crate) const PORT: u16 = 26379;

/// Who knows which server is the master.
pub(crate) struct Sentinels {
    /// All of them are asked at once: one that hangs delays nobody.
    pub(crate) sentinels: Vec<Server>,
    /// What they call the master.
    pub(crate) service: String,
    /// How a client introduces itself to the master.
    pub(crate) login: Login,
    pub(crate) tls: Option<Tls>,
}

/// The master, connected.
pub(crate) struct Master {
    pub(crate) pipe: Pipe,
    pub(crate) server: Arc<Server>,
    /// For how long it has been the master, as far as a sentinel knows.
    pub(crate) age: Duration,
}

/// What a sentinel says.
struct Word {
    place: Place,
    age: Duration,
}

enum Step {
    Told(Result<Word, String>),
    Met(Result<Master, Failure>),
}

impl Sentinels {
    /// Connects to the master, without a time limit. The word of each sentinel is tried; the first server
    /// that says itself that it is a master is it.
    pub(crate) async fn open(self: &Arc<Self>) -> Result<Master, Failure> {
        let mut steps: FuturesUnordered<BoxFuture<'_, Step>> = FuturesUnordered::new();
        for sentinel in &self.sentinels {
            steps.push(self.ask(sentinel).map(Step::Told).boxed());
        }
        let (mut named, mut reasons, mut failed) = (Vec::new(), Vec::new(), None);
        while let Some(step) = steps.next().await {
            match step {
                Step::Told(Ok(word)) if named.contains(&word.place) => {}
                Step::Told(Ok(word)) => {
                    named.push(word.place.clone());
                    steps.push(self.meet(word).map(Step::Met).boxed());
                }
                Step::Told(Err(reason)) => reasons.push(reason),
                Step::Met(Ok(master)) => return Ok(master),
                Step::Met(Err(failure)) => failed = Some(failure),
            }
        }
        // What the master itself said is more to the point.
        Err(failed.unwrap_or_else(|| Failure::unreachable(reasons.join("; "))))
    }

    /// Whether not more sentinels name another server than this one. Those who do not answer do not count.
    pub(crate) async fn still_name(&self, place: &Place) -> bool {
        let mut asking: FuturesUnordered<_> =
            self.sentinels.iter().map(|sentinel| self.ask(sentinel)).collect();
        let (mut same, mut other) = (0, 0);
        while let Some(told) = asking.next().await {
            match told {
                Ok(word) if word.place == *place => same += 1,
                Ok(_) => other += 1,
                Err(_) => {}
            }
        }
        other <= same
    }

    async fn ask(&self, sentinel: &Server) -> Result<Word, String> {
        let fail = |why: String| format!("sentinel {}: {why}", sentinel.place);
        let told = async {
            let pipe = Pipe::connect(sentinel).boxed().await?;
            let mut commands = Vec::new();
            if let Some((user, password)) = sentinel.login.credentials() {
                commands.push(redis::cmd("AUTH").arg(user).arg(password).to_owned());
            }
            for name in ["get-master-addr-by-name", "master"] {
                commands.push(redis::cmd("SENTINEL").arg(name).arg(&self.service).to_owned());
            }
            let mut replies = pipe.ask_all(&commands).await?;
            let (master, address) = (replies.pop(), replies.pop());
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
        Ok(Word { place: Place::tcp(host, port), age: Duration::from_millis(age) })
    }

    async fn meet(&self, word: Word) -> Result<Master, Failure> {
        let Word { place, age } = word;
        let (login, tls) = (self.login.clone(), self.tls.clone());
        let server = Server { place, login, tls, is_found: true };
        let pipe = open(&server).await?;
        let asked = pipe.ask_all(&[redis::cmd("ROLE")]).await;
        let role = asked.map_err(|error| failure(&error, false).at(&server.place))?.pop();
        // Where it is not permitted to look, the first write will tell.
        if let Some(Value::Array(role)) = role
            && !matches!(role.first(), Some(Value::BulkString(role)) if role == b"master")
        {
            let detail = "the sentinels name it, and it is a replica".to_owned();
            let failure = Failure { outcome: NodeOutcome::Readonly, detail, sent: false };
            return Err(failure.at(&server.place));
        }
        Ok(Master { pipe, server: Arc::new(server), age })
    }
}
