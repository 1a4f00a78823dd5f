//! What is said, and where: results on stdout, everything else on stderr.

use crate::args::Shown;
use crate::exit;
use quorlock::{Error, ErrorCode, NodeReport};
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The lock did.
    Quorlock(Error),
    /// A mistake in the arguments or the environment.
    Usage(String),
    /// Others held the lock; the status is the user's choice.
    Conflict(Error, u8),
    /// The lease would have ended before the command.
    Lost(String),
    /// Something else, with the exit status.
    Other(String, u8),
}

impl Failure {
    /// Something of the system.
    pub(crate) fn own(what: &str, error: &io::Error) -> Self {
        Self::Other(format!("{what}: {error}"), exit::FAILED)
    }

    fn status(&self) -> u8 {
        match self {
            Self::Quorlock(error) => match error.code() {
                ErrorCode::Config => exit::USAGE,
                ErrorCode::Timeout => exit::CONFLICT,
                ErrorCode::NoQuorum => exit::NO_QUORUM,
                ErrorCode::LeaseLost => exit::LOST,
                _ => exit::FAILED,
            },
            Self::Usage(_) => exit::USAGE,
            Self::Lost(_) => exit::LOST,
            Self::Conflict(_, status) | Self::Other(_, status) => *status,
        }
    }

    fn error(&self) -> Option<&Error> {
        match self {
            Self::Quorlock(error) | Self::Conflict(error, _) => Some(error),
            Self::Usage(_) | Self::Lost(_) | Self::Other(..) => None,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Quorlock(error) | Self::Conflict(error, _) => error.code().as_str(),
            Self::Usage(_) => ErrorCode::Config.as_str(),
            Self::Lost(_) => ErrorCode::LeaseLost.as_str(),
            Self::Other(..) => "FAILED",
        }
    }

    fn message(&self) -> &str {
        match self {
            Self::Quorlock(error) | Self::Conflict(error, _) => error.message(),
            Self::Usage(message) | Self::Lost(message) | Self::Other(message, _) => message,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Quorlock(error)
    }
}

/// How a failure looks in JSON.
#[derive(Serialize)]
struct Told<'a> {
    error: &'static str,
    exit_status: u8,
    message: &'a str,
    resources: &'a [String],
    nodes: &'a [NodeReport],
}

/// How things are shown.
#[derive(Debug)]
pub(crate) struct Output {
    /// As JSON.
    pub(crate) json: bool,
    quiet: bool,
    verbose: bool,
    colours: bool,
}

impl Output {
    pub(crate) fn new(shown: &Shown) -> Self {
        let Shown { json, quiet, verbose } = *shown;
        let is_set = |name| std::env::var_os(name).is_some_and(|value: OsString| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colours = !json && !is_dumb && !is_set("NO_COLOR") && io::stdout().is_terminal();
        Self { json, quiet, verbose, colours }
    }

    /// A text on stdout. Nobody is told if nobody reads it.
    pub(crate) fn print(&self, text: impl Display) {
        write(&mut io::stdout().lock(), &text.to_string());
    }

    /// A value on stdout, as JSON.
    pub(crate) fn print_json(&self, value: &impl Serialize) {
        self.print(format_args!("{}\n", json(value)));
    }

    /// A word in the colour of what it says.
    pub(crate) fn paint(&self, word: &str) -> String {
        let colour = match word {
            "free" | "ok" => 32,
            "held" | "warning" => 33,
            "contested" | "unknown" | "error" => 31,
            _ => return word.to_owned(),
        };
        if self.colours { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() }
    }

    /// A message for those who want to know all.
    pub(crate) fn detail(&self, message: impl Display) {
        if self.verbose {
            self.note(message);
        }
    }

    /// A message on stderr.
    pub(crate) fn note(&self, message: impl Display) {
        if !self.quiet && !self.json {
            write(&mut io::stderr().lock(), &format!("quorlock: {message}\n"));
        }
    }

    /// A question on stderr.
    pub(crate) fn ask(&self, question: impl Display) {
        write(&mut io::stderr().lock(), &question.to_string());
    }

    /// Tells of a failure on stderr; returns the exit status.
    pub(crate) fn fail(&self, failure: &Failure) -> u8 {
        let (message, nodes) = (failure.message(), failure.error().map_or(&[][..], Error::nodes));
        let exit_status = failure.status();
        if self.json && !self.quiet {
            let resources = failure.error().map_or(&[][..], Error::resources);
            let told = Told { error: failure.code(), exit_status, message, resources, nodes };
            write(&mut io::stderr().lock(), &format!("{}\n", json(&told)));
        } else {
            let nodes: String = nodes.iter().map(|node| format!("\n  {node}")).collect();
            self.note(format_args!("{message}{nodes}"));
        }
        exit_status
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("there is nothing in it that JSON can't hold")
}

/// With one call, so that lines of several processes do not mix.
fn write(to: &mut impl Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}

/// Tells of a mistake in the usage, or the help or the version that was asked for; returns the exit status.
pub(crate) fn usage(error: &clap::Error, arguments: &[OsString]) -> u8 {
    let mut text = error.render().to_string();
    // What stands in the wrong place may be a URL, with a password.
    for argument in arguments.iter().filter_map(|argument| argument.to_str()) {
        if argument.contains("://") && argument.contains('@') {
            text = text.replace(argument, "***");
        }
    }
    if error.use_stderr() {
        write(&mut io::stderr().lock(), &text);
        exit::USAGE
    } else {
        write(&mut io::stdout().lock(), &text);
        exit::OK
    }
}
