//! Option values as language bindings pass them, and how each language writes names and values in messages. This module
//! checks no values. `options.rs`, `nodes.rs`, `permits.rs` and `resources.rs` check them.

use crate::config::quoted::Quoted;
use crate::config::secret::without_secrets;
use std::time::Duration;

/// The form in which a language writes option names and values. Error messages use the form of the program's language.
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
    /// Names of environment variables, such as `QUORLOCK_NODE_TIMEOUT`; durations are text such as `10s`.
    Environment,
    /// Names in requests to `quorlock serve`, such as `MAXHOLD`; durations are in milliseconds.
    Resp,
}

impl Dialect {
    pub(crate) fn name(self, name: &str) -> String {
        match self {
            Self::Rust | Self::Python => return name.to_owned(),
            Self::CommandLine => return format!("--{}", name.replace('_', "-")),
            Self::Environment => return format!("QUORLOCK_{}", name.to_uppercase()),
            // Option names in requests are short, so this option has a short name of its own.
            Self::Resp if name == "heartbeat_timeout" => return "HEARTBEAT".to_owned(),
            Self::Resp => return name.replace('_', "").to_uppercase(),
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
    pub(crate) fn unit(self) -> f64 {
        if self.is_in_milliseconds() { 1e6 } else { 1e9 }
    }

    pub(crate) fn unit_name(self) -> &'static str {
        if self.is_in_milliseconds() { "milliseconds" } else { "seconds" }
    }

    fn is_in_milliseconds(self) -> bool {
        matches!(self, Self::JavaScript | Self::Resp)
    }

    /// Converts a number that may have been meant in the other time unit: in milliseconds if the language uses seconds,
    /// or in seconds if the language uses milliseconds. Returns the name of this other unit, and the number converted
    /// to the language's own unit.
    pub(crate) fn in_other_unit(self, number: f64) -> (&'static str, f64) {
        match self {
            Self::JavaScript | Self::Resp => ("seconds", number * 1e3),
            _ => ("milliseconds", number / 1e3),
        }
    }

    /// Formats an option and its number as a program sets them, such as `ttl=10` or `ttl: 10000`.
    pub(crate) fn argument(self, name: &str, number: f64) -> String {
        let sign = match self {
            Self::Python => "=",
            Self::Resp => " ",
            _ => ": ",
        };
        format!("{}{sign}{}", self.name(name), self.number(number))
    }

    /// Whether the language passes a duration as a plain number. With plain numbers, a program may use the wrong unit.
    pub(crate) fn has_plain_durations(self) -> bool {
        matches!(self, Self::Python | Self::JavaScript | Self::Resp)
    }

    /// Returns the types that a duration may have, for the error about a value of another type. Empty for languages in
    /// which the value cannot have another type.
    pub(crate) fn duration_form(self) -> &'static str {
        match self {
            Self::Python => ", in seconds or as a timedelta",
            Self::JavaScript => ", in milliseconds",
            Self::Resp => ", as a whole number of milliseconds",
            Self::Rust | Self::CommandLine | Self::Environment => "",
        }
    }

    /// Formats a number together with the language's time unit.
    pub(crate) fn duration(self, number: f64) -> String {
        let unit = match self {
            _ if !number.is_finite() => "",
            Self::JavaScript | Self::Resp => " ms",
            _ => " s",
        };
        format!("{}{unit}", self.number(number))
    }

    fn number(self, number: f64) -> String {
        match number {
            number if number.is_nan() && self == Self::Python => "nan".to_owned(),
            f64::INFINITY if self == Self::JavaScript => "Infinity".to_owned(),
            f64::NEG_INFINITY if self == Self::JavaScript => "-Infinity".to_owned(),
            // Without the exponent form, the text of a large number could have hundreds of digits.
            number if number.is_finite() && number.abs() >= 1e16 => format!("{number:e}"),
            number => number.to_string(),
        }
    }

    pub(crate) fn off(self) -> &'static str {
        match self {
            Self::CommandLine | Self::Environment => "off",
            _ => self.null(),
        }
    }

    pub(crate) fn for_ever(self) -> &'static str {
        match self {
            Self::JavaScript => "null or Infinity (for ever)",
            Self::Python | Self::Rust => "None (for ever)",
            Self::CommandLine | Self::Environment => "forever",
            Self::Resp => "FOREVER",
        }
    }

    fn null(self) -> &'static str {
        match self {
            Self::Rust | Self::Python => "None",
            Self::JavaScript => "null",
            Self::CommandLine | Self::Environment => "forever or off",
            Self::Resp => "FOREVER",
        }
    }

    pub(crate) fn truth(self, value: bool) -> &'static str {
        match (self, value) {
            (Self::Python, true) => "True",
            (Self::Python, false) => "False",
            (_, true) => "true",
            (_, false) => "false",
        }
    }

    /// The language's term for a mapping of names to values.
    pub(crate) fn map(self) -> &'static str {
        match self {
            Self::JavaScript => "an object",
            Self::Python => "a dict",
            Self::Rust | Self::CommandLine | Self::Environment | Self::Resp => "a map",
        }
    }

    /// The language's term for a sequence of values.
    pub(crate) fn list(self) -> &'static str {
        if self == Self::JavaScript { "an array" } else { "a list" }
    }
}

/// The value of an option or an argument, in the form in which a language binding received it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OptionValue {
    /// `None` or `null`, which means "no limit" or "off" for options that allow it.
    Null,
    /// `undefined` as an argument or in an array. An option that is `undefined` is not set.
    Undefined,
    /// A Boolean.
    Bool(bool),
    /// A number: a factor, or a duration in the unit of the [`Dialect`].
    Number(f64),
    /// A sequence, such as the nodes or the range of `retry_delay`.
    List(Vec<OptionValue>),
    /// Names with values, such as the mode of each resource.
    Map(Vec<(String, OptionValue)>),
    /// A string.
    Text(String),
    /// A string that is not Unicode text: it has lone surrogates, or its bytes are not UTF-8.
    NotUnicode,
    /// A value of any other type. The text is how messages describe it, such as `an object of class Redis`.
    Other(String),
}

impl OptionValue {
    /// Returns a duration in the form of [`Dialect::Rust`]: a number of seconds.
    pub(crate) fn seconds(duration: Duration) -> Self {
        Self::Number(duration.as_secs_f64())
    }

    /// Returns the value as messages show it. The contents of strings are not shown, because they may be secrets.
    /// Strings from environment variables are an exception: messages show these strings without known secrets, so that
    /// operators can find a mistake.
    pub fn shown(&self, dialect: Dialect) -> String {
        match self {
            Self::Null => dialect.null().to_owned(),
            Self::Undefined => "undefined".to_owned(),
            Self::Bool(value) => dialect.truth(*value).to_owned(),
            Self::Number(number) => dialect.number(*number),
            Self::List(items) if (1..=4).contains(&items.len()) => {
                let items: Vec<_> = items.iter().map(|item| item.shown(dialect)).collect();
                match dialect {
                    Dialect::JavaScript => format!("[{}]", items.join(", ")),
                    _ => format!("({})", items.join(", ")),
                }
            }
            Self::List(items) => format!("{} of {}", dialect.list(), items.len()),
            Self::Map(_) => dialect.map().to_owned(),
            Self::Text(text) if text.is_empty() => "an empty string".to_owned(),
            Self::Text(text) if dialect == Dialect::Environment => {
                Quoted(&without_secrets(text)).to_string()
            }
            // All values in a request to `quorlock serve` are strings, so "a string" would not explain the error.
            Self::Text(_) if dialect == Dialect::Resp => "other text".to_owned(),
            Self::Text(_) => "a string".to_owned(),
            Self::NotUnicode if dialect == Dialect::Resp => "bytes that are not UTF-8".to_owned(),
            Self::NotUnicode => "a string with lone surrogates".to_owned(),
            Self::Other(name) => name.clone(),
        }
    }
}
