//! Options: names, ranges, defaults and error messages, defined once for all languages.
//!
//! `client` sets options through [`Options`]; language bindings pass values as [`OptionValue`] and must not check
//! ranges themselves. This module does no IO.

use crate::config::duration::parse_duration;
use crate::config::holder::{self, Invalid, MAX_HOLDER};
use crate::config::mode::{Mode, Modes};
use crate::config::quoted::Quoted;
use crate::config::value::{Dialect, OptionValue};
use crate::error::duration::HumanDuration;
use crate::error::{Error, Result};
use quorlock_protocol::{RetryDelay, Term};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The minimum ttl. A shorter lease could end during an ordinary scheduling pause.
const MIN_TTL: Duration = Duration::from_millis(10);
/// The maximum ttl. With a longer ttl, the lease of a crashed holder would block other clients for too long.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(24 * 3600);
/// The longest `wait` or `max_hold` that counts as a limit: a hundred years. A longer value means no limit, so that no
/// sum of times overflows.
const MAX_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
const MAX_WAIT_NANOS: f64 = MAX_WAIT.as_nanos() as f64;
/// The default `node_timeout` is a twentieth of the ttl, but at most this long.
const NODE_TIMEOUT: Duration = Duration::from_millis(200);
/// The default `node_timeout` is at least this long. With a shorter timeout, an ordinary pause of a busy machine would
/// look like a dead node.
const MIN_DEFAULT_NODE_TIMEOUT: Duration = Duration::from_millis(10);

/// The checked options of a client. A lock starts with a copy of the client's options and overrides some of them.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The dialect of error messages: the dialect in which the program last set an option.
    pub(crate) dialect: Dialect,
    /// For each option of [`PER_CLIENT`], the dialect in which the option was set; `None` if the option was not set.
    pub(crate) given: [Option<Dialect>; PER_CLIENT.len()],
    /// The source of the list of nodes: the name of an option or of an environment variable.
    pub(crate) nodes_from: &'static str,
    pub(crate) ttl: Duration,
    /// How long an acquire waits for other holders; `None` means without a limit.
    pub(crate) wait: Option<Duration>,
    pub(crate) auto_extend: bool,
    /// How long a lease is renewed without a heartbeat; `None` means without a limit.
    pub(crate) heartbeat_timeout: Option<Duration>,
    /// How long a lease can be held, even if it is renewed; `None` means no limit.
    pub(crate) max_hold: Option<Duration>,
    /// The largest ttl of a lease: the `max_hold` that the program has set, or else [`MAX_TTL`].
    pub(crate) longest_ttl: Duration,
    /// The time limit of a request to a node; `None` means that [`Options::node_timeout`] derives it from the ttl.
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) connect_timeout: Duration,
    pub(crate) drift_factor: f64,
    pub(crate) retry_delay: RetryDelay,
    /// How long the votes of a restarted node do not count; `None` means that they always count.
    pub(crate) restart_guard: Option<Duration>,
    pub(crate) key_prefix: String,
    /// The name that other clients see while this client holds a lock; an empty text means no name. `None`: the default
    /// name of the process that acquires the lock.
    pub(crate) holder: Option<Arc<str>>,
    /// How long the nodes keep the key of a released lease. `None`: the nodes delete the key on release.
    pub(crate) keep: Option<Duration>,
    pub(crate) mode: Modes,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dialect: Dialect::Rust,
            given: [None; PER_CLIENT.len()],
            nodes_from: "nodes",
            ttl: Duration::from_secs(10),
            wait: Some(Duration::from_secs(10)),
            auto_extend: true,
            heartbeat_timeout: None,
            max_hold: Some(HOUR),
            longest_ttl: MAX_TTL,
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
            keep: None,
            mode: Modes::default(),
        }
    }
}

/// The default of `within`: how long a detached lease can be adopted.
const WITHIN: Duration = Duration::from_secs(30);

/// The options that a lock can override.
pub(crate) const PER_LOCK: [&str; 8] =
    ["ttl", "wait", "auto_extend", "heartbeat_timeout", "max_hold", "holder", "keep", "mode"];
/// All options of a client.
pub(crate) const PER_CLIENT: [&str; 14] = [
    "ttl",
    "wait",
    "auto_extend",
    "heartbeat_timeout",
    "max_hold",
    "node_timeout",
    "connect_timeout",
    "drift_factor",
    "retry_delay",
    "restart_guard",
    "key_prefix",
    "holder",
    "keep",
    "credentials",
];

/// The kind of builder on which the program sets options of a lock. Some kinds do not accept all options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Lock,
    Semaphore,
    Adoption,
    Election,
}

impl Scope {
    /// Returns why this kind of builder does not accept this option of a lock, as the end of an error message. The text
    /// begins with the name of the kind. Returns `None` if the builder accepts the option.
    fn refusal(self, option: &str) -> Option<&'static str> {
        match (self, option) {
            (Self::Semaphore, "mode") => Some("a semaphore: each permit has one holder"),
            (Self::Adoption, "mode") => Some("an adoption: the lease keeps its mode"),
            (Self::Election, "mode") => Some("an election: there is one leader"),
            (Self::Election, "wait") => Some("an election: a candidate waits without a limit"),
            _ => None,
        }
    }

    /// Returns the names of all options that this kind of builder accepts. For a semaphore, the names include `limit`
    /// and `permits`, for which [`Options`] has no fields.
    fn names(self) -> Vec<&'static str> {
        let own: &[&str] = if self == Self::Semaphore { &["limit", "permits"] } else { &[] };
        let taken = PER_LOCK.iter().filter(|option| self.refusal(option).is_none());
        own.iter().chain(taken).copied().collect()
    }
}

impl Options {
    /// Sets an option of the client. `name` and `value` have the form of `dialect`.
    pub(crate) fn set(&mut self, dialect: Dialect, name: &str, value: &OptionValue) -> Result<()> {
        let option = find(&PER_CLIENT, dialect, name);
        let option = option.ok_or_else(|| unknown(dialect, name, &PER_CLIENT))?;
        self.set_known(dialect, option, value)
    }

    /// Sets an option of a single lock. `scope` is the kind of builder that has received the option.
    pub(crate) fn set_per_lock(
        &mut self,
        scope: Scope,
        dialect: Dialect,
        name: &str,
        value: &OptionValue,
    ) -> Result<()> {
        let option = find(&PER_LOCK, dialect, name);
        let option = option.ok_or_else(|| unknown(dialect, name, &scope.names()))?;
        if let Some(refusal) = scope.refusal(option) {
            return Err(Error::config(format!("{name} is not an option of {refusal}")));
        }
        self.set_known(dialect, option, value)?;
        self.check_ttl()
    }

    /// Returns the dialect in which an option of the client was set; `None` if the option was not set.
    pub(crate) fn dialect_of(&self, option: &str) -> Option<Dialect> {
        let at = PER_CLIENT.iter().position(|known| *known == option)?;
        self.given[at]
    }

    /// Returns the option's name in the dialect in which the option was set. If the option was not set, returns the
    /// name in the dialect of error messages.
    fn name_of(&self, option: &str) -> String {
        self.dialect_of(option).unwrap_or(self.dialect).name(option)
    }

    /// Fails if the ttl of these options exceeds the restart guard, for the reason that `check_guard` names.
    pub(crate) fn check_ttl(&self) -> Result<()> {
        self.check_guard(&self.name_of("ttl"), self.ttl)
    }

    /// Fails if this ttl exceeds the restart guard: after a restart, a node's votes could then count before the end of
    /// a lease that the node has forgotten. Errors call the ttl `name`.
    pub(crate) fn check_guard(&self, name: &str, ttl: Duration) -> Result<()> {
        let Some(guard) = self.restart_guard.filter(|guard| ttl > *guard) else { return Ok(()) };
        Err(Error::config(format!(
            "{} must not be longer than {}, which is {}, not {}: a node that restarts could \
             forget a lease and be counted again before its end",
            name,
            self.name_of("restart_guard"),
            HumanDuration(guard),
            HumanDuration(ttl),
        )))
    }

    /// Checks and returns a ttl that was passed to `extend`.
    pub(crate) fn extension_ttl(&self, dialect: Dialect, value: &OptionValue) -> Result<Duration> {
        let ttl = GivenOption { dialect, name: "ttl", value }.duration(MIN_TTL, MAX_TTL)?;
        self.check_guard(&dialect.name("ttl"), ttl).map(|()| ttl)
    }

    /// Checks and returns the time that was passed to `detach`. If none was passed, returns 30 s or the restart guard,
    /// whichever is shorter.
    pub(crate) fn within(&self, dialect: Dialect, value: Option<&OptionValue>) -> Result<Duration> {
        let Some(value) = value else {
            return Ok(self.restart_guard.map_or(WITHIN, |guard| guard.min(WITHIN)));
        };
        let within = GivenOption { dialect, name: "within", value }.duration(MIN_TTL, MAX_TTL)?;
        self.check_guard(&dialect.name("within"), within).map(|()| within)
    }

    /// Checks and returns the name of a candidate that was passed to `hand_over`.
    pub(crate) fn successor(dialect: Dialect, value: &OptionValue) -> Result<Arc<str>> {
        let setting = GivenOption { dialect, name: "successor", value };
        // `holder` accepts a null and returns `None` for it, but a null is not the name of a candidate.
        setting.holder()?.ok_or_else(|| setting.wrong("the name of a candidate"))
    }

    /// Checks and returns the time that was passed to `release`: how long the nodes keep the key. Returns `None` if the
    /// nodes must delete the key at once.
    pub(crate) fn keep(dialect: Dialect, value: &OptionValue) -> Result<Option<Duration>> {
        GivenOption { dialect, name: "keep", value }.unless_off()
    }

    fn set_known(
        &mut self,
        dialect: Dialect,
        name: &'static str,
        value: &OptionValue,
    ) -> Result<()> {
        if dialect != Dialect::Environment {
            self.dialect = dialect;
        }
        let parsed = parsed(dialect, name, value);
        let option = GivenOption { dialect, name, value: parsed.as_ref().unwrap_or(value) };
        match name {
            "ttl" => self.ttl = option.ttl()?,
            "wait" => self.wait = option.wait()?,
            "auto_extend" => self.auto_extend = option.yes_or_no()?,
            "heartbeat_timeout" => self.heartbeat_timeout = option.unless_off()?,
            "max_hold" => {
                self.max_hold = option.max_hold()?;
                self.longest_ttl = self.max_hold.unwrap_or(MAX_TTL);
            }
            "node_timeout" => {
                self.node_timeout = match option.value {
                    OptionValue::Null => None,
                    _ => Some(option.duration(MILLISECOND, HOUR)?),
                }
            }
            "connect_timeout" => self.connect_timeout = option.duration(MILLISECOND, HOUR)?,
            "drift_factor" => self.drift_factor = option.drift_factor()?,
            "retry_delay" => self.retry_delay = option.retry_delay()?,
            "restart_guard" => self.restart_guard = option.unless_off()?,
            "key_prefix" => self.key_prefix = option.text()?,
            "holder" => self.holder = option.holder()?,
            "keep" => self.keep = option.unless_off()?,
            "mode" => self.mode = option.mode()?,
            "credentials" => option.no_function()?,
            _ => unreachable!("every listed option is set above"),
        }
        if let Some(at) = PER_CLIENT.iter().position(|known| *known == name) {
            self.given[at] = Some(dialect);
        }
        Ok(())
    }

    /// The ttl of a new lease: at most the `max_hold` that the program has set. The default of `max_hold` does not
    /// shorten the ttl, because the program has not asked for that limit.
    pub(crate) fn lease_ttl(&self) -> Duration {
        self.ttl.min(self.longest_ttl)
    }

    /// Whether a lease can have this ttl.
    pub(crate) fn is_ttl(ttl: Duration) -> bool {
        (MIN_TTL..=MAX_TTL).contains(&ttl)
    }

    /// The term of a lease with this ttl and with the drift factor of these options.
    pub(crate) fn term(&self, ttl: Duration) -> Term {
        Term { ttl, drift_factor: self.drift_factor }
    }

    /// The time limit of one request to one node, for a lease with this ttl.
    pub(crate) fn node_timeout(&self, ttl: Duration) -> Duration {
        self.node_timeout
            .unwrap_or_else(|| (ttl / 20).clamp(MIN_DEFAULT_NODE_TIMEOUT, NODE_TIMEOUT))
    }

    /// Returns advice for an error about nodes that did not answer within `node_timeout`. The advice is empty if the
    /// program has set `node_timeout`, or if a short ttl has not reduced the default.
    pub(crate) fn node_timeout_advice(&self, node_timeout: Duration) -> String {
        if self.node_timeout.is_some() || node_timeout >= NODE_TIMEOUT {
            return String::new();
        }
        let name = self.dialect.name("node_timeout");
        let ttl = self.dialect.name("ttl");
        let limit = HumanDuration(node_timeout);
        format!("; {name} is only {limit}, because the {ttl} is short: set {name} to a longer time")
    }
}

/// Returns the option that has the name `given` in this dialect; `None` if there is no such option.
fn find(options: &[&'static str], dialect: Dialect, given: &str) -> Option<&'static str> {
    options.iter().copied().find(|option| dialect.name(option) == given)
}

/// Returns the error for an option that is not one of `names`.
fn unknown(dialect: Dialect, given: &str, names: &[&str]) -> Error {
    if PER_CLIENT.iter().any(|name| dialect.name(name) == given) {
        return Error::config(format!("{given} is an option of the client, not of a lock"));
    }
    let advice = if names.contains(&"wait") { foreign(dialect, given) } else { String::new() };
    let names: Vec<_> = names.iter().map(|name| dialect.name(name)).collect();
    Error::config(format!("{given} is not an option here; it can be {}{advice}", names.join(", ")))
}

/// Returns advice for a name that other lock libraries use for an option. Empty for all other names.
fn foreign(dialect: Dialect, given: &str) -> String {
    match given.replace('_', "").to_lowercase().as_str() {
        "timeout" | "blockingtimeout" | "acquiretimeout" | "locktimeout" | "expire" | "expiry" => {
            "; wait is the time to wait for the lock, and ttl the time after which it expires"
                .into()
        }
        "blocking" | "sleep" | "retries" | "retrycount" | "retrytimes" => {
            "; wait is the time to wait for the lock, and 0 tries once".into()
        }
        "autorenewal" | "automaticextensionthreshold" => {
            format!("; {} renews the lease", dialect.name("auto_extend"))
        }
        _ => String::new(),
    }
}

/// Checks a `timeout` that was passed to a blocking method: a duration of 0 or more in the unit of
/// the dialect. Returns `None` if there is no limit. For language bindings.
///
/// # Errors
///
/// [`ErrorCode::Config`](crate::ErrorCode::Config) if `value` is neither a valid duration nor null.
pub fn timeout(dialect: Dialect, value: &OptionValue) -> Result<Option<Duration>> {
    let accepted = "a duration of 0 or more";
    GivenOption { dialect, name: "timeout", value }.unless_for_ever(Duration::ZERO, accepted)
}

/// Parses the text of an environment variable if the option is a number or a duration. Returns `None` for other
/// options, or if the text cannot be parsed. In both cases, the caller uses the text itself as the value, and fails if
/// the option does not accept text.
fn parsed(dialect: Dialect, name: &'static str, value: &OptionValue) -> Option<OptionValue> {
    let OptionValue::Text(text) = value else { return None };
    match name {
        _ if dialect != Dialect::Environment => None,
        "drift_factor" => text.parse().ok().map(OptionValue::Number),
        _ if (GivenOption { dialect, name, value }).is_duration() => parse_duration(text).ok(),
        _ => None,
    }
}

struct GivenOption<'a> {
    dialect: Dialect,
    name: &'a str,
    value: &'a OptionValue,
}

impl GivenOption<'_> {
    fn wrong(&self, accepted: &str) -> Error {
        let dialect = self.dialect;
        let name = self.dialect.name(self.name);
        let (unit, value, advice) = match self.value {
            OptionValue::Number(number) if self.is_duration() => {
                ("", dialect.duration(*number), self.unit_advice(*number))
            }
            OptionValue::Text(text) if self.is_duration() && dialect == Dialect::Environment => {
                let why = parse_duration(text).err();
                (
                    "",
                    self.value.shown(dialect),
                    why.map_or_else(String::new, |why| format!("; {why}")),
                )
            }
            value if self.is_duration() => {
                (dialect.duration_form(), value.shown(dialect), String::new())
            }
            value => ("", value.shown(dialect), String::new()),
        };
        Error::config(format!("{name} must be {accepted}{unit}, not {value}{advice}"))
    }

    fn is_duration(&self) -> bool {
        let others = ["auto_extend", "credentials", "drift_factor", "key_prefix", "holder", "mode"];
        !others.contains(&self.name) && self.name != "successor"
    }

    /// Returns advice for a number that is out of range, if it would be in range in the other time unit; otherwise, an
    /// empty text.
    fn unit_advice(&self, number: f64) -> String {
        let (unit, converted) = self.dialect.in_other_unit(number);
        let (least, most) = match self.name {
            "ttl" | "restart_guard" | "max_hold" | "keep" | "heartbeat_timeout" => {
                (MIN_TTL, MAX_TTL)
            }
            _ => (MILLISECOND, HOUR),
        };
        if self.name == "retry_delay"
            || number.is_sign_negative()
            || !self.dialect.has_plain_durations()
            || self.within(converted, least, most).is_none()
        {
            return String::new();
        }
        let argument = self.dialect.argument(self.name, converted);
        format!("; if that is in {unit}, write {argument}")
    }

    /// Returns `number` as a duration; `None` if it is outside the range.
    fn within(&self, number: f64, least: Duration, most: Duration) -> Option<Duration> {
        let nanoseconds = number * self.dialect.unit();
        let range = least.as_nanos() as f64..=most.as_nanos() as f64;
        // NaN is not within any range, so it is rejected.
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

    fn ttl(&self) -> Result<Duration> {
        let is_endless = match self.value {
            OptionValue::Null => true,
            OptionValue::Number(number) => *number == f64::INFINITY,
            _ => false,
        };
        self.duration(MIN_TTL, MAX_TTL).map_err(|error| match is_endless {
            true => Error::config(format!(
                "{}; leave it out: by default, a lease is renewed until it is released, so its ttl \
                 need not be long",
                error.message()
            )),
            false => error,
        })
    }

    fn wait(&self) -> Result<Option<Duration>> {
        self.unless_for_ever(Duration::ZERO, "a duration of 0 (one try) or more")
    }

    fn max_hold(&self) -> Result<Option<Duration>> {
        let accepted = format!("a duration of {} or more", HumanDuration(MIN_TTL));
        self.unless_for_ever(MIN_TTL, &accepted)
    }

    /// Returns a duration in the range of a ttl; `None` if the option is off.
    fn unless_off(&self) -> Result<Option<Duration>> {
        let off = self.dialect.off();
        let least = HumanDuration(MIN_TTL);
        let most = HumanDuration(MAX_TTL);
        match self.value {
            OptionValue::Null | OptionValue::Number(0.0) => Some(None),
            OptionValue::Number(number) => self.within(*number, MIN_TTL, MAX_TTL).map(Some),
            _ => None,
        }
        .ok_or_else(|| {
            let off = if off == "off" { off.to_owned() } else { format!("{off} (off)") };
            self.wrong(&format!("a duration from {least} to {most}, or {off}"))
        })
    }

    /// Returns a duration of at least `least`; `None` if there is no limit. A duration of more than [`MAX_WAIT`] also
    /// means no limit.
    fn unless_for_ever(&self, least: Duration, accepted: &str) -> Result<Option<Duration>> {
        match self.value {
            OptionValue::Null => Some(None),
            OptionValue::Number(number) if number * self.dialect.unit() > MAX_WAIT_NANOS => {
                Some(None)
            }
            OptionValue::Number(number) => self.within(*number, least, MAX_WAIT).map(Some),
            _ => None,
        }
        .ok_or_else(|| {
            let for_ever = self.dialect.for_ever();
            self.wrong(&format!("{accepted}, or {for_ever}"))
        })
    }

    fn mode(&self) -> Result<Modes> {
        let one_of = |what: &str, value: &OptionValue, more: &str| {
            let [exclusive, shared] = [Mode::Exclusive, Mode::Shared].map(Mode::as_str);
            let given = match value {
                // A mode is not a secret, so show it.
                OptionValue::Text(word) if !word.is_empty() => Quoted(word).to_string(),
                value => value.shown(self.dialect),
            };
            let message = format!("{what} must be {exclusive:?} or {shared:?}{more}, not {given}");
            Error::config(message)
        };
        let word = |value: &OptionValue| match value {
            OptionValue::Text(word) => Mode::parse(word),
            _ => None,
        };
        let name = self.dialect.name(self.name);
        let OptionValue::Map(modes) = self.value else {
            // A request to `quorlock serve` has one mode for all resources, so the error does not mention a map.
            let more = match self.dialect {
                Dialect::Resp => String::new(),
                dialect => format!(", or {} with one of these for each resource", dialect.map()),
            };
            return word(self.value)
                .map(Modes::All)
                .ok_or_else(|| one_of(&name, self.value, &more));
        };
        let of_each = modes.iter().map(|(resource, value)| {
            let what = format!("{name} of {}", Quoted(resource));
            let mode = word(value).ok_or_else(|| one_of(&what, value, ""))?;
            Ok((resource.clone(), mode))
        });
        Ok(Modes::Each(of_each.collect::<Result<_>>()?))
    }

    fn yes_or_no(&self) -> Result<bool> {
        match self.value {
            OptionValue::Bool(value) => Ok(*value),
            _ => {
                let [yes, no] = [true, false].map(|value| self.dialect.truth(value));
                Err(self.wrong(&format!("{yes} or {no}")))
            }
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
        let delays = match self.value {
            OptionValue::List(delays) => delays.as_slice(),
            _ => &[],
        };
        match *delays {
            [OptionValue::Number(shortest), OptionValue::Number(longest)]
                if shortest <= longest =>
            {
                range(shortest).zip(range(longest))
            }
            _ => None,
        }
        .map(|(shortest, longest)| RetryDelay { shortest, longest })
        .ok_or_else(|| {
            self.wrong("two durations from 1 ms to 1 h, the shortest delay and the longest")
        })
    }

    /// Accepts only null. A separate setter sets the function for credentials, so a value that arrives here is never a
    /// function.
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

/// Returns a warning about a ttl that is valid, but was probably meant in another unit: more than 1 h in Python, less
/// than 100 ms in Node.js. Returns at most one warning in each process. For language bindings.
pub fn unit_warning(dialect: Dialect, ttl: &OptionValue) -> Option<String> {
    static HAS_WARNED: AtomicBool = AtomicBool::new(false);
    let warning = doubt_about_unit(dialect, ttl)?;
    (!HAS_WARNED.swap(true, Ordering::Relaxed)).then_some(warning)
}

fn doubt_about_unit(dialect: Dialect, ttl: &OptionValue) -> Option<String> {
    let &OptionValue::Number(number) = ttl else { return None };
    let length = GivenOption { dialect, name: "ttl", value: ttl }.ttl().ok()?;
    let is_doubtful = match dialect {
        Dialect::Python => length > HOUR,
        Dialect::JavaScript => length < Duration::from_millis(100),
        Dialect::Rust | Dialect::CommandLine | Dialect::Environment | Dialect::Resp => false,
    };
    let (other, converted) = dialect.in_other_unit(number);
    let [given, meant] = [number, converted].map(|number| dialect.argument("ttl", number));
    let length = HumanDuration(length);
    let unit = dialect.unit_name();
    is_doubtful.then(|| {
        format!(
            "{given} is {length}, because durations are in {unit}; if it was meant in {other}, \
             write {meant}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_hold_that_is_set_limits_the_ttl() {
        let mut options = Options { ttl: 2 * HOUR, ..Options::default() };
        assert_eq!(options.lease_ttl(), 2 * HOUR);
        for (max_hold, ttl) in
            [(OptionValue::Number(5.0), Duration::from_secs(5)), (OptionValue::Null, 2 * HOUR)]
        {
            options.set(Dialect::Rust, "max_hold", &max_hold).expect("a duration or no limit");
            assert_eq!(options.lease_ttl(), ttl);
        }
    }
}
