//! Options: names, ranges, defaults and error messages, defined once for all languages.
//!
//! `client` sets options through [`Options`]; language bindings pass values as [`OptionValue`] and
//! must not check ranges themselves. No IO.

use crate::config::holder::{self, Invalid, MAX_HOLDER};
use crate::error::duration::HumanDuration;
use crate::error::{Error, Result};
use quorlock_protocol::{MAX_NODES, RetryDelay, Term};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The environment variable with the node URLs, separated by commas. Clients that are given no
/// nodes read it.
pub const NODES_VARIABLE: &str = "QUORLOCK_NODES";

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The minimum ttl. A shorter lease could end during an ordinary scheduling pause.
const MIN_TTL: Duration = Duration::from_millis(10);
/// The maximum ttl. A longer lease of a crashed holder would block others for too long.
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);
/// The longest finite `wait` and `max_hold`: a hundred years, so that no sum of times overflows.
const MAX_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// The upper limit of the default `node_timeout`, which is a twentieth of the ttl.
const NODE_TIMEOUT: Duration = Duration::from_millis(200);
/// The lower limit of the default `node_timeout`. With a shorter one, an ordinary pause of a busy
/// machine would look like a dead node.
const MIN_DEFAULT_NODE_TIMEOUT: Duration = Duration::from_millis(10);

/// How a language writes option names and durations. Error messages use this form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// Names such as `node_timeout`; durations are a `Duration`.
    Rust,
    /// Names such as `node_timeout`; durations are in seconds.
    Python,
    /// Names such as `nodeTimeout`; durations are in milliseconds.
    JavaScript,
    /// Names such as `--node-timeout`; durations are in seconds.
    CommandLine,
}

impl Dialect {
    fn name(self, name: &str) -> String {
        match self {
            Self::Rust | Self::Python => return name.to_owned(),
            Self::CommandLine => return format!("--{}", name.replace('_', "-")),
            Self::JavaScript => {}
        }
        let mut words = name.split('_');
        let mut camel = words.next().unwrap_or_default().to_owned();
        for word in words {
            let (first, rest) = word.split_at(1);
            camel.push_str(&first.to_uppercase());
            camel.push_str(rest);
        }
        camel
    }

    /// The number of nanoseconds in the language's time unit.
    fn unit(self) -> f64 {
        if self == Self::JavaScript { 1e6 } else { 1e9 }
    }
}

/// An option's value as a language binding received it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OptionValue {
    /// `None` or `null`, which means "no limit" or "off" for options that allow it.
    Null,
    /// A Boolean.
    Bool(bool),
    /// A number: a factor, or a duration in the unit of the [`Dialect`].
    Number(f64),
    /// A pair of numbers, such as the range of `retry_delay`.
    Pair(f64, f64),
    /// A string.
    Text(String),
    /// A value of any other type, by the name of that type.
    Other(String),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("nothing"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Pair(first, second) => write!(f, "({first}, {second})"),
            Self::Text(_) => f.write_str("a string"),
            Self::Other(name) => write!(f, "a value of type {name}"),
        }
    }
}

/// The checked options of a client. A lock starts with a copy and overrides some of them.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) ttl: Duration,
    /// `None`: no limit.
    pub(crate) wait: Option<Duration>,
    pub(crate) auto_extend: bool,
    /// `None`: no limit.
    pub(crate) max_hold: Option<Duration>,
    /// `None`: derived from the ttl; see [`Options::node_timeout`].
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) connect_timeout: Duration,
    pub(crate) drift_factor: f64,
    pub(crate) retry_delay: RetryDelay,
    /// `None`: off.
    pub(crate) restart_guard: Option<Duration>,
    pub(crate) key_prefix: String,
    /// The name that others see while this client holds a lock; empty for none. `None`: the name of the
    /// process that acquires the lock.
    pub(crate) holder: Option<Arc<str>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(10),
            wait: Some(Duration::from_secs(10)),
            auto_extend: true,
            max_hold: Some(HOUR),
            node_timeout: None,
            connect_timeout: Duration::from_secs(1),
            drift_factor: 0.01,
            retry_delay: RetryDelay {
                shortest: Duration::from_millis(50),
                longest: Duration::from_millis(200),
            },
            restart_guard: None,
            key_prefix: String::new(),
            holder: None,
        }
    }
}

/// The options that a lock can override.
const PER_LOCK: [&str; 5] = ["ttl", "wait", "auto_extend", "max_hold", "holder"];
/// The options of a client.
const PER_CLIENT: [&str; 12] = [
    "ttl",
    "wait",
    "auto_extend",
    "max_hold",
    "node_timeout",
    "connect_timeout",
    "drift_factor",
    "retry_delay",
    "restart_guard",
    "key_prefix",
    "holder",
    "credentials",
];

impl Options {
    /// Sets an option of the client.
    pub(crate) fn set(&mut self, dialect: Dialect, name: &str, value: &OptionValue) -> Result<()> {
        if name == "nodes" {
            // Nodes have a setter of their own; a value that arrives here was not a list of
            // strings.
            return Err(wrong_nodes(value));
        }
        self.set_known(dialect, name, value, &PER_CLIENT)
    }

    /// Sets an option of one lock.
    pub(crate) fn set_per_lock(
        &mut self,
        dialect: Dialect,
        name: &str,
        value: &OptionValue,
    ) -> Result<()> {
        self.set_known(dialect, name, value, &PER_LOCK)?;
        self.check_guard(dialect, self.ttl)
    }

    /// Checks that a lease with this ttl cannot outlive the restart guard.
    pub(crate) fn check_guard(&self, dialect: Dialect, ttl: Duration) -> Result<()> {
        let Some(guard) = self.restart_guard.filter(|guard| ttl > *guard) else { return Ok(()) };
        Err(Error::config(format!(
            "{} must not be longer than {}, which is {}, not {}: a node that restarts could \
             forget a lease and be counted again before its end",
            dialect.name("ttl"),
            dialect.name("restart_guard"),
            HumanDuration(guard),
            HumanDuration(ttl),
        )))
    }

    /// Checks a ttl that was passed to `extend`.
    pub(crate) fn extension_ttl(&self, dialect: Dialect, value: &OptionValue) -> Result<Duration> {
        let ttl = Setting { dialect, name: "ttl", value }.duration(MIN_TTL, MAX_TTL)?;
        self.check_guard(dialect, ttl).map(|()| ttl)
    }

    fn set_known(
        &mut self,
        dialect: Dialect,
        given: &str,
        value: &OptionValue,
        names: &[&'static str],
    ) -> Result<()> {
        let Some(name) = names.iter().find(|name| dialect.name(name) == given) else {
            let names: Vec<_> = names.iter().map(|name| dialect.name(name)).collect();
            let names = names.join(", ");
            return Err(Error::config(format!("{given} is not an option here; it can be {names}")));
        };
        let option = Setting { dialect, name, value };
        match *name {
            "ttl" => self.ttl = option.duration(MIN_TTL, MAX_TTL)?,
            "wait" => self.wait = option.wait()?,
            "auto_extend" => self.auto_extend = option.yes_or_no()?,
            "max_hold" => self.max_hold = option.max_hold()?,
            "node_timeout" => {
                self.node_timeout = match value {
                    OptionValue::Null => None,
                    _ => Some(option.duration(MILLISECOND, HOUR)?),
                }
            }
            "connect_timeout" => self.connect_timeout = option.duration(MILLISECOND, HOUR)?,
            "drift_factor" => self.drift_factor = option.drift_factor()?,
            "retry_delay" => self.retry_delay = option.retry_delay()?,
            "restart_guard" => self.restart_guard = option.restart_guard()?,
            "key_prefix" => self.key_prefix = option.text()?,
            "holder" => self.holder = option.holder()?,
            "credentials" => option.no_function()?,
            _ => unreachable!("every listed option is set above"),
        }
        Ok(())
    }

    /// The length of a lease with this ttl, and the clock drift to allow for.
    pub(crate) fn term(&self, ttl: Duration) -> Term {
        Term { ttl, drift_factor: self.drift_factor }
    }

    /// The time limit of one request to one node, for a lease with this ttl.
    pub(crate) fn node_timeout(&self, ttl: Duration) -> Duration {
        self.node_timeout
            .unwrap_or_else(|| (ttl / 20).clamp(MIN_DEFAULT_NODE_TIMEOUT, NODE_TIMEOUT))
    }
}

/// Checks a `timeout` that was passed to a blocking method: a duration of 0 or more in the unit of
/// the dialect. Returns `None` if there is no limit. For language bindings.
///
/// # Errors
///
/// [`ErrorCode::Config`](crate::ErrorCode::Config) if `value` is not such a duration.
pub fn timeout(dialect: Dialect, value: &OptionValue) -> Result<Option<Duration>> {
    let accepted = "a duration of 0 or more";
    Setting { dialect, name: "timeout", value }.unless_for_ever(Duration::ZERO, accepted)
}

struct Setting<'a> {
    dialect: Dialect,
    name: &'a str,
    value: &'a OptionValue,
}

impl Setting<'_> {
    fn wrong(&self, accepted: &str) -> Error {
        let (name, value) = (self.dialect.name(self.name), self.value);
        let value = match value {
            OptionValue::Number(number) if self.is_duration() => self.show(*number),
            value => value.to_string(),
        };
        Error::config(format!("{name} must be {accepted}, not {value}"))
    }

    fn is_duration(&self) -> bool {
        !["auto_extend", "credentials", "drift_factor", "key_prefix", "holder"].contains(&self.name)
    }

    fn show(&self, number: f64) -> String {
        let unit = if self.dialect == Dialect::JavaScript { "ms" } else { "s" };
        format!("{number} {unit}")
    }

    /// Returns `number` as a duration; `None` if it is outside the range.
    fn within(&self, number: f64, least: Duration, most: Duration) -> Option<Duration> {
        let nanoseconds = number * self.dialect.unit();
        let range = least.as_nanos() as f64..=most.as_nanos() as f64;
        // NaN is within no range, so it is rejected, too.
        range.contains(&nanoseconds).then(|| Duration::from_nanos(nanoseconds as u64))
    }

    fn duration(&self, least: Duration, most: Duration) -> Result<Duration> {
        let accepted =
            || format!("a duration from {} to {}", HumanDuration(least), HumanDuration(most));
        match self.value {
            OptionValue::Number(number) => self.within(*number, least, most),
            _ => None,
        }
        .ok_or_else(|| self.wrong(&accepted()))
    }

    fn wait(&self) -> Result<Option<Duration>> {
        self.unless_for_ever(Duration::ZERO, "a duration of 0 (one try) or more")
    }

    fn max_hold(&self) -> Result<Option<Duration>> {
        let accepted = format!("a duration of {} or more", HumanDuration(MIN_TTL));
        self.unless_for_ever(MIN_TTL, &accepted)
    }

    fn restart_guard(&self) -> Result<Option<Duration>> {
        let (off, least, most) = (self.null(), HumanDuration(MIN_TTL), HumanDuration(MAX_TTL));
        match self.value {
            OptionValue::Null | OptionValue::Number(0.0) => Some(None),
            OptionValue::Number(number) => self.within(*number, MIN_TTL, MAX_TTL).map(Some),
            _ => None,
        }
        .ok_or_else(|| self.wrong(&format!("a duration from {least} to {most}, or {off} (off)")))
    }

    fn null(&self) -> &'static str {
        match self.dialect {
            Dialect::Rust | Dialect::Python => "None",
            Dialect::JavaScript => "null",
            Dialect::CommandLine => "0",
        }
    }

    /// Returns a duration of at least `least`; `None` if there is no limit.
    fn unless_for_ever(&self, least: Duration, accepted: &str) -> Result<Option<Duration>> {
        match self.value {
            OptionValue::Null => Some(None),
            OptionValue::Number(number) if *number == f64::INFINITY => Some(None),
            OptionValue::Number(number) => self.within(*number, least, MAX_WAIT).map(Some),
            _ => None,
        }
        .ok_or_else(|| {
            let for_ever = match self.dialect {
                Dialect::JavaScript => "null or Infinity",
                Dialect::Python | Dialect::Rust => "None",
                Dialect::CommandLine => return self.wrong(&format!("{accepted}, or forever")),
            };
            self.wrong(&format!("{accepted}, or {for_ever} (for ever)"))
        })
    }

    fn yes_or_no(&self) -> Result<bool> {
        match self.value {
            OptionValue::Bool(value) => Ok(*value),
            _ => Err(self.wrong("true or false")),
        }
    }

    fn drift_factor(&self) -> Result<f64> {
        match self.value {
            OptionValue::Number(number) if (0.0..=0.5).contains(number) => Ok(*number),
            _ => Err(self.wrong("a number from 0 to 0.5")),
        }
    }

    fn retry_delay(&self) -> Result<RetryDelay> {
        let range = |number| self.within(number, MILLISECOND, HOUR);
        match *self.value {
            OptionValue::Pair(shortest, longest) if shortest <= longest => {
                range(shortest).zip(range(longest))
            }
            _ => None,
        }
        .map(|(shortest, longest)| RetryDelay { shortest, longest })
        .ok_or_else(|| {
            self.wrong("two durations from 1 ms to 1 h, the shortest delay and the longest")
        })
    }

    /// Functions for credentials have a setter of their own. A value that arrives here is none.
    fn no_function(&self) -> Result<()> {
        match self.value {
            OptionValue::Null => Ok(()),
            _ => Err(self
                .wrong("a function that takes a node's address and returns a user and a password")),
        }
    }

    fn text(&self) -> Result<String> {
        match self.value {
            OptionValue::Text(text) => Ok(text.clone()),
            _ => Err(self.wrong("a string of Unicode characters")),
        }
    }

    fn holder(&self) -> Result<Option<Arc<str>>> {
        let accepted = format!(
            "a string of Unicode characters, at most {MAX_HOLDER} bytes in UTF-8, without control characters"
        );
        match self.value {
            OptionValue::Null => Ok(None),
            OptionValue::Text(name) if holder::is_valid(name) => Ok(Some((&**name).into())),
            OptionValue::Text(name) => {
                let option = self.dialect.name(self.name);
                Err(Error::config(format!("{option} must be {accepted}, not {}", Invalid(name))))
            }
            _ => Err(self.wrong(&accepted)),
        }
    }
}

pub(crate) fn wrong_nodes(given: impl fmt::Display) -> Error {
    Error::config(format!(
        "nodes must be a list of 1 to {MAX_NODES} URLs, given to the client or in the environment \
         variable {NODES_VARIABLE}, not {given}"
    ))
}
