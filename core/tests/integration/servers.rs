//! Starts and controls real servers by running `tests/servers.py` as a subprocess. The tests of
//! `core/tests/cost`, `core/tests/hostile` and `core/src/testing/scripts` include this file too.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

pub struct Servers {
    process: Child,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    pub urls: Vec<String>,
    pub ports: Vec<u64>,
    /// The description of each server, as `tests/servers.py` returns it.
    pub all: Value,
}

/// A TCP proxy in front of a server.
pub struct Proxy<'a> {
    servers: &'a Servers,
    id: u64,
    pub url: String,
}

impl Servers {
    pub fn start(count: usize) -> Self {
        Self::start_with(json!({ "start": count }))
    }

    pub fn start_with(command: Value) -> Self {
        Self::try_start(command).unwrap_or_else(|reason| panic!("{reason}"))
    }

    /// Starts servers with a command of `tests/servers.py`. Returns the reason as an error if this machine
    /// cannot run such servers.
    pub fn try_start(command: Value) -> Result<Self, String> {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/servers.py");
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let mut process = Command::new(python)
            .arg(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let pipes = Mutex::new((input, output));
        let mut servers =
            Self { process, pipes, urls: Vec::new(), ports: Vec::new(), all: Value::Null };
        servers.all = servers.try_ask(&command)?;
        for server in servers.all.as_array().unwrap() {
            servers.urls.push(server["url"].as_str().unwrap().to_owned());
            servers.ports.push(server["port"].as_u64().unwrap());
        }
        Ok(servers)
    }

    /// Sends one command and returns its answer.
    pub fn ask(&self, command: Value) -> Value {
        self.try_ask(&command).unwrap()
    }

    fn try_ask(&self, command: &Value) -> Result<Value, String> {
        let mut pipes = self.pipes.lock().unwrap();
        writeln!(pipes.0, "{command}").unwrap();
        let mut line = String::new();
        pipes.1.read_line(&mut line).unwrap();
        let mut answer: Value = serde_json::from_str(&line).expect("the servers ended");
        match answer["error"].as_str() {
            Some(reason) if reason.starts_with("Unavailable") => Err(reason.to_owned()),
            Some(error) => panic!("{command}: {error}"),
            None => Ok(answer["ok"].take()),
        }
    }

    pub fn command(&self, server: usize, command: &[&str]) -> Value {
        let mut words = vec![json!(server)];
        words.extend(command.iter().map(|word| json!(word)));
        self.ask(json!({ "command": words }))
    }

    pub fn proxy(&self, server: usize) -> Proxy<'_> {
        let proxy = self.ask(json!({ "proxy": server }));
        let url = proxy["url"].as_str().unwrap().to_owned();
        Proxy { servers: self, id: proxy["id"].as_u64().unwrap(), url }
    }

    /// The keys on one server, except fence counters and the indexes of semaphores.
    pub fn keys(&self, server: usize) -> Vec<String> {
        let keys = self.command(server, &["KEYS", "*"]);
        let keys = keys.as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned());
        keys.filter(|key| !key.ends_with(":fence") && !key.ends_with(":permits")).collect()
    }

    /// Returns the number of scripts that the server has run.
    pub fn scripts(&self, server: usize) -> usize {
        let stats = self.command(server, &["INFO", "commandstats"]);
        let calls = |command: &str| {
            let line = stats.as_str().unwrap().split(&format!("cmdstat_{command}:calls=")).nth(1);
            line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
        };
        calls("eval") + calls("evalsha")
    }

    /// The number of client connections to the server, including the one that asks for this number.
    pub fn connections(&self, server: usize) -> usize {
        self.command(server, &["CLIENT", "LIST"]).as_str().unwrap().lines().count()
    }

    /// Whether the servers have no keys other than fence counters and indexes.
    pub fn are_empty(&self) -> bool {
        (0..self.urls.len()).all(|server| self.keys(server).is_empty())
    }
}

impl Proxy<'_> {
    pub fn mode(&self, mode: &str) {
        self.servers.ask(json!({ "proxy_mode": [self.id, mode] }));
    }

    pub fn delay(&self, seconds: f64) {
        self.servers.ask(json!({ "proxy_delay": [self.id, seconds] }));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.ask(json!({ "keep_logs": true }));
        }
        self.ask(json!({ "stop": true }));
        let _ = self.process.wait();
    }
}
