//! The requests: commands in which `$key`, `$token` and `$time` stand for what differs between requests.
//!
//! The floor does not know which commands these are. `bench/commands.py` records the commands of quorlock and
//! describes the format.

use serde_json::Value;
use std::time::SystemTime;

/// The number of hexadecimal digits of a token, and the number of digits of a time in microseconds.
const TOKEN: usize = 40;
const TIME: usize = 16;

type Command = Vec<String>;

/// All commands of the floor.
pub struct Commands {
    /// Sent once to each node, before the first cycle.
    pub load: Vec<Command>,
    pub acquire: Vec<Command>,
    pub release: Vec<Command>,
}

impl Commands {
    pub fn parse(text: &str) -> Self {
        let all = quorlock_bench::parse(text);
        let commands = |name: &str| all[name].as_array().expect("commands").iter().map(words);
        Self {
            load: commands("load").collect(),
            acquire: commands("acquire").collect(),
            release: commands("release").collect(),
        }
    }
}

fn words(command: &Value) -> Command {
    let words = command.as_array().expect("words").iter();
    words.map(|word| word.as_str().expect("a word").to_owned()).collect()
}

/// An encoded request for one key. It is encoded once; the token and the time are then overwritten in place.
pub struct Message {
    pub bytes: Vec<u8>,
    /// The number of commands, and so of answers.
    pub commands: usize,
    tokens: Vec<usize>,
    times: Vec<usize>,
}

impl Message {
    pub fn new(commands: &[Command], key: &str) -> Self {
        let (token, time) = ("T".repeat(TOKEN), "#".repeat(TIME));
        let mut bytes = Vec::new();
        for command in commands {
            let fill = |word: &String| {
                word.replace("$token", &token).replace("$time", &time).replace("$key", key)
            };
            bytes.extend(encode(&command.iter().map(fill).collect::<Vec<_>>()));
        }
        let (tokens, times) = (positions(&bytes, &token), positions(&bytes, &time));
        Self { bytes, commands: commands.len(), tokens, times }
    }

    /// Sets the token, and the time to the present.
    pub fn renew(&mut self, token: &str) {
        for &at in &self.tokens {
            self.bytes[at..at + TOKEN].copy_from_slice(token.as_bytes());
        }
        if !self.times.is_empty() {
            let now = SystemTime::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_micros();
            let text = format!("{now:0TIME$}");
            for &at in &self.times {
                self.bytes[at..at + TIME].copy_from_slice(text.as_bytes());
            }
        }
    }
}

fn positions(bytes: &[u8], part: &str) -> Vec<usize> {
    let windows = bytes.windows(part.len()).enumerate();
    windows.filter(|(_, window)| *window == part.as_bytes()).map(|(at, _)| at).collect()
}

/// Encodes a command in the protocol of the server.
pub fn encode(words: &[String]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text += &format!("${}\r\n{word}\r\n", word.len());
    }
    text.into_bytes()
}

/// Returns 20 random bytes as hexadecimal digits.
pub fn token() -> String {
    let mut bytes = [0; TOKEN / 2];
    getrandom::fill(&mut bytes).expect("random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
