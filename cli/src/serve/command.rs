//! The commands of the protocol: turns the words of a request into a [`Command`]. Which values an option accepts is decided
//! by the core.

use quorlock::{Dialect, OptionValue, without_secrets, wrong_resource};
use std::fmt;

/// The options of `LOCK` and `ADOPT`, each with a value.
const OPTIONS: [&str; 8] =
    ["TTL", "WAIT", "MODE", "PERMITS", "LIMIT", "HOLDER", "MAXHOLD", HEARTBEAT];
/// The name of an option and of a command.
pub(crate) const HEARTBEAT: &str = "HEARTBEAT";
/// Values of options that are words.
const VALUES: [&str; 3] = ["FOREVER", "SHARED", "EXCLUSIVE"];
/// The longest name of a client, in bytes. With the name of the host, it fits into a holder name.
const MAX_NAME: usize = 64;

/// A request.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Lock {
        resources: Vec<String>,
        options: Options,
    },
    Adopt {
        text: String,
        options: Options,
    },
    Unlock(Id),
    Extend {
        id: Id,
        ttl: Option<OptionValue>,
    },
    Check(Id),
    Detach {
        id: Id,
        within: Option<OptionValue>,
    },
    Lost(Id),
    /// The status of a lock, or of a semaphore with this limit.
    Status {
        resource: String,
        limit: Option<OptionValue>,
    },
    /// The status of the daemon.
    StatusOfAll,
    Metrics,
    Ping(Option<Vec<u8>>),
    Echo(Vec<u8>),
    Hello {
        version: Option<u8>,
        name: Option<String>,
    },
    SetName(String),
    GetName,
    ClientId,
    /// Whether the connection gets push messages from now on.
    Push(bool),
    Info,
    /// Answered with `OK`, and does nothing.
    Accepted,
    /// Answered with an empty array.
    NoneKnown,
    Reset,
    Quit,
}

impl Command {
    /// Whether its reply says what has changed, so that no error may take its place.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Self::Lock { .. } | Self::Adopt { .. } | Self::Detach { .. })
    }
}

/// Options of a lock, by name.
pub(crate) type Options = Vec<(&'static str, OptionValue)>;

/// The name of a lease: the number of the connection that owns it, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    pub(crate) connection: u64,
    pub(crate) number: u64,
}

impl Id {
    fn parse(word: &[u8]) -> Option<Self> {
        let (connection, number) = std::str::from_utf8(word).ok()?.split_once('-')?;
        let is_number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number(connection) || !is_number(number) {
            return None;
        }
        Some(Self { connection: connection.parse().ok()?, number: number.parse().ok()? })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.connection, self.number)
    }
}

/// The text of an error reply: a code in upper case, and a message.
pub(crate) type Refusal = String;

/// Returns the command of the words, of which there is at least one.
pub(crate) fn parse(words: Vec<Vec<u8>>) -> Result<Command, Refusal> {
    let mut words = Words::new(words);
    let command = match &*words.command {
        "LOCK" => lock(&mut words)?,
        "ADOPT" => {
            let text = words.text("the text of a lease")?;
            let allowed = ["TTL", "WAIT", "HOLDER", "MAXHOLD", HEARTBEAT];
            Command::Adopt { text, options: words.options(&allowed)? }
        }
        "UNLOCK" => Command::Unlock(words.id()?),
        "EXTEND" => Command::Extend { id: words.id()?, ttl: words.only_option("TTL")? },
        // A check is a heartbeat.
        "CHECK" | HEARTBEAT => Command::Check(words.id()?),
        "DETACH" => Command::Detach { id: words.id()?, within: words.only_option("WITHIN")? },
        "LOST" => Command::Lost(words.id()?),
        "STATUS" if words.is_empty() => Command::StatusOfAll,
        "STATUS" => {
            let resource = words.resource(None)?;
            Command::Status { resource, limit: words.only_option("LIMIT")? }
        }
        "METRICS" => Command::Metrics,
        "PING" => Command::Ping(words.next()),
        "ECHO" => Command::Echo(words.required()?),
        "HELLO" => hello(&mut words)?,
        "AUTH" => return Err(NO_PASSWORDS.to_owned()),
        "CLIENT" => client(&mut words)?,
        "COMMAND" => {
            words.clear();
            Command::NoneKnown
        }
        "SELECT" => match &*words.required()? {
            b"0" => Command::Accepted,
            _ => return Err("ERR there is only database 0".to_owned()),
        },
        "INFO" => {
            words.clear();
            Command::Info
        }
        "RESET" => Command::Reset,
        "QUIT" => Command::Quit,
        _ => return Err(format!("ERR unknown command '{}'", shown(words.given.as_bytes()))),
    };
    if words.is_empty() { Ok(command) } else { Err(words.wrong_number()) }
}

const NO_PASSWORDS: &str =
    "ERR there are no users and passwords here: whoever may open the socket may lock";

fn lock(words: &mut Words) -> Result<Command, Refusal> {
    let mut resources = Vec::new();
    if words.peek().as_deref() == Some("RESOURCES") {
        words.next();
        let count = words.required()?;
        let count = std::str::from_utf8(&count).ok().and_then(|count| count.parse().ok());
        let Some(count @ 1..) = count else {
            return Err("ERR RESOURCES takes the number of resources, and then so many".to_owned());
        };
        let several = count > 1;
        for position in 0..count {
            resources.push(words.resource(several.then_some(position))?);
        }
    } else {
        resources.push(words.resource(None)?);
        while let Some(word) = words.peek()
            && !OPTIONS.contains(&&*word)
        {
            let position = Some(resources.len());
            words.refuse_mistaken_option(&word)?;
            resources.push(words.resource(position)?);
        }
    }
    Ok(Command::Lock { resources, options: words.options(&OPTIONS)? })
}

fn hello(words: &mut Words) -> Result<Command, Refusal> {
    let version = match words.next().as_deref() {
        None => None,
        Some(b"2") => Some(2),
        Some(b"3") => Some(3),
        Some(_) => return Err("NOPROTO unsupported protocol version: it can be 2 or 3".to_owned()),
    };
    let mut name = None;
    while let Some(word) = words.next() {
        match &*word.to_ascii_uppercase() {
            b"SETNAME" => name = Some(words.name()?),
            b"AUTH" => return Err(NO_PASSWORDS.to_owned()),
            _ => return Err(words.syntax(&word)),
        }
    }
    Ok(Command::Hello { version, name })
}

fn client(words: &mut Words) -> Result<Command, Refusal> {
    let subcommand = words.required()?;
    Ok(match &*subcommand.to_ascii_uppercase() {
        b"SETNAME" => Command::SetName(words.name()?),
        b"GETNAME" => Command::GetName,
        b"ID" => Command::ClientId,
        b"PUSH" => {
            let word = words.required()?;
            match &*word.to_ascii_uppercase() {
                b"ON" => Command::Push(true),
                b"OFF" => Command::Push(false),
                _ => return Err(words.syntax(&word)),
            }
        }
        b"SETINFO" => {
            words.clear();
            Command::Accepted
        }
        _ => {
            return Err(format!("ERR unknown subcommand '{}' of CLIENT", shown(&subcommand)));
        }
    })
}

/// The words of a request that are not used yet.
struct Words {
    /// The first word, as it was given.
    given: String,
    /// The first word, in upper case.
    command: String,
    rest: std::vec::IntoIter<Vec<u8>>,
}

impl Words {
    fn new(words: Vec<Vec<u8>>) -> Self {
        let mut rest = words.into_iter();
        let first = rest.next().unwrap_or_default();
        // A name that is long is no command, and would be repeated in an error.
        let given = String::from_utf8_lossy(&first[..first.len().min(MAX_NAME)]).into_owned();
        Self { command: given.to_ascii_uppercase(), given, rest }
    }

    fn is_empty(&self) -> bool {
        self.rest.len() == 0
    }

    fn clear(&mut self) {
        self.rest = Vec::new().into_iter();
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        self.rest.next()
    }

    /// Returns the next word in upper case, if it is short enough for an option.
    fn peek(&self) -> Option<String> {
        let word = self.rest.as_slice().first()?;
        let word = word.get(..word.len().min(MAX_NAME))?;
        Some(String::from_utf8_lossy(word).to_ascii_uppercase())
    }

    /// Refuses a further resource that looks like part of an option whose name is misspelt. Otherwise
    /// `LOCK gpu LIMT 4` would lock three resources, and the caller would not have the permit that it asked
    /// for.
    fn refuse_mistaken_option(&self, word: &str) -> Result<(), Refusal> {
        let given = self.rest.as_slice().first().map_or(&[][..], |word| word);
        let is_name = given.len() > 1 && given.iter().all(u8::is_ascii_uppercase);
        let is_value = word.parse::<f64>().is_ok() || VALUES.contains(&word);
        if !is_name && !is_value {
            return Ok(());
        }
        let given = shown(given);
        Err(format!(
            "ERR '{}' is no option; to lock several resources, one of which has this name, say how \
             many they are: LOCK RESOURCES 2 a b",
            given
        ))
    }

    fn required(&mut self) -> Result<Vec<u8>, Refusal> {
        self.next().ok_or_else(|| self.wrong_number())
    }

    fn wrong_number(&self) -> Refusal {
        format!("ERR wrong number of arguments for '{}'", self.command.to_lowercase())
    }

    fn syntax(&self, word: &[u8]) -> Refusal {
        let command = self.command.to_lowercase();
        format!("ERR syntax error near '{}' in '{command}'", shown(word))
    }

    fn text(&mut self, what: &str) -> Result<String, Refusal> {
        let word = self.required()?;
        String::from_utf8(word).map_err(|_| format!("CONFIG {what} must be text in UTF-8"))
    }

    /// Returns a resource. `position` is given if there are several.
    fn resource(&mut self, position: Option<usize>) -> Result<String, Refusal> {
        String::from_utf8(self.required()?).map_err(|_| {
            let given = &OptionValue::NotUnicode;
            format!("CONFIG {}", wrong_resource(Dialect::Resp, position, "", given).message())
        })
    }

    fn id(&mut self) -> Result<Id, Refusal> {
        Id::parse(&self.required()?)
            .ok_or_else(|| "ERR that is not the id of a lease, such as 7-3".to_owned())
    }

    /// Returns the name of a client, by the rules of Redis.
    fn name(&mut self) -> Result<String, Refusal> {
        let name = self.required()?;
        let is_plain = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
        match String::from_utf8(name) {
            Ok(name) if is_plain && name.len() <= MAX_NAME => Ok(name),
            _ => Err(format!(
                "ERR a client's name has at most {MAX_NAME} characters: ASCII without spaces"
            )),
        }
    }

    /// Takes the other words as options of these names, each with a value.
    fn options(&mut self, names: &[&'static str]) -> Result<Options, Refusal> {
        let mut options = Options::new();
        while let Some(word) = self.next() {
            let is_word = |name: &&&str| word.eq_ignore_ascii_case(name.as_bytes());
            let Some(name) = names.iter().find(is_word) else { return Err(self.syntax(&word)) };
            if options.iter().any(|(given, _)| given == name) {
                return Err(format!("ERR {name} is given twice"));
            }
            let value = self.next().ok_or_else(|| format!("ERR {name} needs a value"))?;
            options.push((name, value_of(name, value)));
        }
        Ok(options)
    }

    /// Takes the other words as this option.
    fn only_option(&mut self, name: &'static str) -> Result<Option<OptionValue>, Refusal> {
        Ok(self.options(&[name])?.pop().map(|(_, value)| value))
    }
}

/// Returns a word as errors repeat it: its beginning, and nothing of a secret.
fn shown(word: &[u8]) -> String {
    let word = String::from_utf8_lossy(&word[..word.len().min(MAX_NAME)]);
    without_secrets(&word).escape_debug().to_string()
}

/// Returns the value of an option for the core, which refuses what it does not accept.
fn value_of(name: &str, word: Vec<u8>) -> OptionValue {
    let Ok(text) = String::from_utf8(word) else { return OptionValue::NotUnicode };
    match name {
        "HOLDER" => OptionValue::Text(text),
        "MODE" => OptionValue::Text(text.to_ascii_lowercase()),
        _ if text.eq_ignore_ascii_case("FOREVER") => OptionValue::Null,
        _ => {
            let digits = text.strip_prefix('-').unwrap_or(&text);
            let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            match text.parse() {
                Ok(number) if is_whole => OptionValue::Number(number),
                _ => OptionValue::Text(text),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, Refusal> {
        parse(line.split(' ').map(|word| word.as_bytes().to_vec()).collect())
    }

    fn locked(line: &str) -> (Vec<String>, Options) {
        match parsed(line) {
            Ok(Command::Lock { resources, options }) => (resources, options),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn resources_end_at_the_first_option() {
        let number = OptionValue::Number;
        let shared = OptionValue::Text("shared".to_owned());
        assert_eq!(locked("lock a"), (vec!["a".to_owned()], vec![]));
        let (resources, options) = locked("LOCK a b C ttl 500 Mode SHARED wait forever");
        assert_eq!(resources, ["a", "b", "C"]);
        let wait = OptionValue::Null;
        assert_eq!(options, [("TTL", number(500.0)), ("MODE", shared), ("WAIT", wait)]);
        // The first argument is a resource, whatever it is called.
        assert_eq!(locked("LOCK TTL TTL 500").0, ["TTL"]);
        assert_eq!(locked("LOCK wait modes").0, ["wait", "modes"]);
        assert_eq!(locked("LOCK 7 a7 A-7").0, ["7", "a7", "A-7"]);
    }

    #[test]
    fn misspelt_options_are_not_taken_for_resources() {
        for (line, expected) in [
            ("LOCK a LIMT 4", "'LIMT'"),
            ("LOCK a ttl 500 b", "'b'"),
            ("LOCK a tll 500", "'500'"),
            ("LOCK a limt -1", "'-1'"),
            ("LOCK a timeout 1.5", "'1.5'"),
            ("LOCK a wiat forever", "'forever'"),
            ("LOCK a mod Shared", "'Shared'"),
            ("LOCK a HODLER me", "'HODLER'"),
            ("LOCK a b TIMEOUT 5", "'TIMEOUT'"),
        ] {
            assert!(
                parsed(line).is_err_and(|text| text.starts_with("ERR ") && text.contains(expected)),
                "{line}"
            );
        }
        assert_eq!(locked("LOCK RESOURCES 3 a LIMT 4").0, ["a", "LIMT", "4"]);
    }

    #[test]
    fn counted_resources_may_have_any_name() {
        let (resources, options) = locked("LOCK RESOURCES 3 ttl WAIT resources HOLDER 7");
        assert_eq!(resources, ["ttl", "WAIT", "resources"]);
        assert_eq!(options, [("HOLDER", OptionValue::Text("7".to_owned()))]);
        for line in
            ["LOCK RESOURCES 0", "LOCK RESOURCES -1 a", "LOCK RESOURCES x", "LOCK RESOURCES 2 a"]
        {
            assert!(parsed(line).is_err_and(|text| text.starts_with("ERR ")), "{line}");
        }
    }

    #[test]
    fn wrong_requests_are_refused() {
        for (line, expected) in [
            ("NoSuch", "ERR unknown command 'NoSuch'"),
            ("LOCK", "ERR wrong number of arguments for 'lock'"),
            ("LOCK a TTL", "ERR TTL needs a value"),
            ("LOCK a TTL 5 ttl 6", "ERR TTL is given twice"),
            ("LOCK a TTL 5 b", "ERR syntax error near 'b' in 'lock'"),
            ("ADOPT t MODE shared", "ERR syntax error near 'MODE' in 'adopt'"),
            ("UNLOCK", "ERR wrong number of arguments for 'unlock'"),
            ("UNLOCK 1-1 1-2", "ERR wrong number of arguments for 'unlock'"),
            ("UNLOCK 7", "ERR that is not the id of a lease, such as 7-3"),
            ("UNLOCK +7-3", "ERR that is not the id of a lease, such as 7-3"),
            ("CHECK 7-", "ERR that is not the id of a lease, such as 7-3"),
            ("HELLO 4", "NOPROTO unsupported protocol version: it can be 2 or 3"),
            ("HELLO 3 AUTH me secret", NO_PASSWORDS),
            ("AUTH secret", NO_PASSWORDS),
            ("SELECT 1", "ERR there is only database 0"),
            ("CLIENT KILL", "ERR unknown subcommand 'KILL' of CLIENT"),
            ("CLIENT", "ERR wrong number of arguments for 'client'"),
            ("CLIENT PUSH", "ERR wrong number of arguments for 'client'"),
            ("CLIENT PUSH maybe", "ERR syntax error near 'maybe' in 'client'"),
        ] {
            assert_eq!(parsed(line), Err(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn ids_are_two_numbers() {
        let id = Id { connection: 7, number: 3 };
        assert_eq!(parsed("unlock 7-3"), Ok(Command::Unlock(id)));
        assert_eq!(parsed("heartbeat 7-3"), Ok(Command::Check(id)));
        assert_eq!(id.to_string(), "7-3");
        let ttl = Some(OptionValue::Number(9.0));
        assert_eq!(parsed("EXTEND 7-3 ttl 9"), Ok(Command::Extend { id, ttl }));
    }

    #[test]
    fn values_that_are_no_numbers_reach_the_core() {
        let ttl = |value: &str| locked(&format!("LOCK a TTL {value}")).1.remove(0).1;
        assert_eq!(ttl("-5"), OptionValue::Number(-5.0));
        for text in ["1e3", "inf", "NaN", "5.5", "+5", "-", "ten"] {
            assert_eq!(ttl(text), OptionValue::Text(text.to_owned()));
        }
    }

    #[test]
    fn names_follow_the_rules_of_redis() {
        assert_eq!(parsed("CLIENT SETNAME web-7"), Ok(Command::SetName("web-7".to_owned())));
        assert_eq!(
            parsed("HELLO 3 SETNAME w"),
            Ok(Command::Hello { version: Some(3), name: Some("w".to_owned()) })
        );
        for name in ["a\nb", "ä", &"x".repeat(65)] {
            assert!(parsed(&format!("CLIENT SETNAME {name}")).is_err(), "{name}");
        }
    }
}
