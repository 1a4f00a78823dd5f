//! A real server whose clock the test sets.

use super::servers::Servers;
use crate::config::endpoint::{Endpoint, Target};
use crate::transport::connection::{Connection, Nobody};
use crate::transport::handshake::open;
use crate::wire::commands::By;
use crate::wire::reply::Reply;
use crate::wire::request::Request;
use quorlock_protocol::FENCE_LIMIT;
use redis::{Arg, Cmd, Value, from_redis_value};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The initial time of the server's clock, in microseconds since the Unix epoch.
pub(super) const EPOCH: u64 = 1_750_000_000_000_000;

/// Returns the time at which a sequence of a test begins. Most sequences begin in this decade. The others begin in May
/// 2041, in 2100, in 2254, or when the clock is about to reach the largest fence. From 2041-05-10 on, a floating-point
/// number of microseconds cannot represent quarters of a microsecond.
pub(super) fn epoch(sequence: u64) -> u64 {
    match sequence % 20 {
        0 => FENCE_LIMIT / 10_000 * 10_000 - 100_000_000,
        1 | 2 => 2_252_000_000_000_000,
        3 | 4 => 4_103_000_000_000_000,
        5 | 6 => 8_979_000_000_000_000,
        _ => EPOCH,
    }
}

/// Dumps every key: its name, its type, its value and its PTTL (−1: never expires).
const DUMP: &str = "
    local keys = {}
    for i, key in ipairs(redis.call('KEYS', '*')) do
      local kind, value = redis.call('TYPE', key).ok, {}
      if kind == 'string' then value = {redis.call('GET', key)} end
      if kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
      keys[i] = {key, kind, value, redis.call('PTTL', key)}
    end
    return keys";

/// What a server stores under one key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stored {
    pub(super) value: Content,
    /// `None` if the key never expires.
    pub(super) expires_in: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Text(String),
    /// Members of a sorted set with their scores, in order.
    Sorted(Vec<(String, i64)>),
    /// A value of another type.
    Other(String),
}

pub(super) type Keyspace = BTreeMap<String, Stored>;

pub(super) struct Server {
    pub(super) endpoint: Endpoint,
    connection: Connection<Nobody>,
    clock: File,
    directory: PathBuf,
    _servers: Servers,
}

impl Server {
    pub(super) async fn start() -> Self {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("quorlock-clock-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        let [library, path] = ["skewed.so", "clock"].map(|name| directory.join(name));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/skewed.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
        assert!(compiler.status().expect("a C compiler is installed").success());
        let clock = File::create_new(&path).unwrap();
        clock.write_all_at(&EPOCH.to_ne_bytes(), 0).unwrap();

        let environment = json!({ "LD_PRELOAD": library, "CLOCK": path });
        let servers = Servers::start_with(json!({ "start": 1, "environment": environment }));
        let endpoint = Endpoint::parse(1, &servers.urls[0]).unwrap();
        let Target::Server(target) = &endpoint.target else { panic!("the URL names a server") };
        let connection = open(target).await.expect("the server is up");
        Self { endpoint, connection, clock, directory, _servers: servers }
    }

    pub(super) fn set_clock(&self, microseconds: u64) {
        self.pause(microseconds, 0, Duration::ZERO);
    }

    /// Sets the server's clock. After `readings` readings, the clock jumps forward once, by `pause`.
    pub(super) fn pause(&self, microseconds: u64, readings: u64, pause: Duration) {
        let numbers = [microseconds, readings, pause.as_micros() as u64];
        let bytes: Vec<_> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        self.clock.write_all_at(&bytes, 0).unwrap();
    }

    /// Runs a command, given as its words. Returns the server's error, if any.
    pub(super) async fn run(&self, words: &[&str]) -> Result<Value, String> {
        let (first, rest) = words.split_first().unwrap();
        let mut command = redis::cmd(first);
        command.arg(rest);
        let [reply] = self.all([command]).await;
        reply
    }

    /// Sends a request. Returns the reply or the server's error, and what the server stores afterwards.
    pub(super) async fn ask(&self, request: &Request) -> (Result<Reply, String>, Keyspace) {
        let (replied, stored) = self.execute(request.command(By::Source)).await;
        (understood(request, replied), stored)
    }

    /// Sends the command of a request or of a batch. Returns the reply or the server's error, and what the server
    /// stores afterwards.
    pub(super) async fn execute(&self, command: Cmd) -> (Result<Value, String>, Keyspace) {
        let mut dump = redis::cmd("EVAL");
        dump.arg(DUMP).arg(0);
        let [limited, user, replied, back, dumped] =
            self.all(self.strictly(command, dump, "")).await;
        limited.and(user).and(back).expect("the user may do that");
        (replied, keyspace(dumped.unwrap()))
    }

    /// Sends a request, without reading the keys afterwards. Returns the reply or the server's error.
    pub(super) async fn reply(&self, request: &Request) -> Result<Reply, String> {
        let [replied] = self.all([request.command(By::Source)]).await;
        understood(request, replied)
    }

    /// Sends a request as a user who lacks permission for the command `denied`. Returns the reply or the server's
    /// error.
    pub(super) async fn reply_without(
        &self,
        denied: &str,
        request: &Request,
    ) -> Result<Reply, String> {
        understood(request, self.execute_without(denied, request.command(By::Source)).await)
    }

    /// Sends a command as [`Server::reply_without`] does.
    pub(super) async fn execute_without(
        &self,
        denied: &str,
        command: Cmd,
    ) -> Result<Value, String> {
        let ping = redis::cmd("PING");
        let [limited, user, replied, back, _] =
            self.all(self.strictly(command, ping, denied)).await;
        limited.and(user).and(back).expect("the user may do that");
        replied
    }

    /// Returns commands that send `command` as a restricted user, and then send another command as the default user.
    /// The restricted user has access only to the keys that `command` declares, and lacks permission for the command
    /// `denied`.
    fn strictly(&self, command: Cmd, then: Cmd, denied: &str) -> [Cmd; 5] {
        let mut limit = redis::cmd("ACL");
        limit.arg(&["SETUSER", "strict", "reset", "on", "nopass", "&*", "+@all"][..]);
        if !denied.is_empty() {
            limit.arg(format!("-{denied}"));
        }
        limit.arg(declared(&command));
        let user = |name| redis::cmd("AUTH").arg(name).arg("any").to_owned();
        [limit, user("strict"), command, user("default"), then]
    }

    pub(super) async fn keyspace(&self) -> Keyspace {
        keyspace(self.run(&["EVAL", DUMP, "0"]).await.unwrap())
    }

    async fn all<const N: usize>(&self, commands: [Cmd; N]) -> [Result<Value, String>; N] {
        let replies = self.connection.query(&commands).await.expect("the server is up");
        let replies: Vec<_> = replies
            .into_iter()
            .map(|reply| reply.extract_error().map_err(|error| error.to_string()))
            .collect();
        replies.try_into().expect("one reply per command")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns the keys that a command declares, as patterns of an ACL.
fn declared(command: &Cmd) -> Vec<String> {
    let words: Vec<_> = command
        .args_iter()
        .filter_map(|word| match word {
            Arg::Simple(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        })
        .collect();
    let keys = match words[0] {
        "EVAL" => words[3..][..words[2].parse().unwrap()].to_vec(),
        "EXISTS" => words[1..].to_vec(),
        _ => Vec::new(),
    };
    // LIST looks at all keys and declares none. INSPECT of a semaphore declares so many keys that the server would take
    // long to compare each key with each pattern. So for both requests, the user gets access to all keys.
    if words[0] == "EVAL" && (keys.is_empty() || keys.len() > 100) {
        return vec!["~*".to_owned()];
    }
    keys.into_iter().map(|key| format!("~{}", key.replace(['\\', '*', '?', '['], "?"))).collect()
}

fn understood(request: &Request, replied: Result<Value, String>) -> Result<Reply, String> {
    let understand =
        |value| request.understand(&value).unwrap_or_else(|| panic!("{request:?}: {value:?}"));
    replied.map(understand)
}

fn keyspace(dumped: Value) -> Keyspace {
    type Row = (String, String, Vec<String>, i64);
    let rows: Vec<Row> = from_redis_value(dumped).unwrap();
    let stored = |(key, kind, value, expires_in): Row| {
        let value = match &*kind {
            "string" => Content::Text(value.concat()),
            "zset" => {
                let score = |text: &str| text.parse::<f64>().unwrap() as i64;
                Content::Sorted(value.chunks(2).map(|m| (m[0].clone(), score(&m[1]))).collect())
            }
            _ => Content::Other(kind),
        };
        let expires_in = u64::try_from(expires_in).ok().map(Duration::from_millis);
        (key, Stored { value, expires_in })
    };
    rows.into_iter().map(stored).collect()
}
