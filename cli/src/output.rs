//! Prints results on stdout, and everything else on stderr. Maps failures to exit statuses.
//!
//! Only this module writes to the standard streams. It must never print a URL from the arguments, which may
//! contain a password.

use crate::args::Shown;
use crate::exit;
use crate::writer::{Writer, aside};
use clap::error::{ContextKind, ContextValue};
use quorlock::{Error, ErrorCode, NodeReport};
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, OnceLock};

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An operation of the client failed.
    Quorlock(Error),
    /// A mistake in the arguments or the environment.
    Usage(String),
    /// Others held the lock. The exit status is the one that the user has chosen, or its default.
    Conflict(Error, u8),
    /// The lease could not be renewed, so the command was stopped before the lease ended.
    Lost(String),
    /// Too few nodes can vote: what `doctor --require` found.
    NoMajority(String, Vec<NodeReport>),
    /// Something else, with the exit status.
    Other(String, u8),
}

impl Failure {
    /// Returns the failure of a system operation. `what` is the beginning of the error message.
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
            Self::NoMajority(..) => exit::NO_QUORUM,
            Self::Conflict(_, status) | Self::Other(_, status) => *status,
        }
    }

    fn error(&self) -> Option<&Error> {
        match self {
            Self::Quorlock(error) | Self::Conflict(error, _) => Some(error),
            Self::Usage(_) | Self::Lost(_) | Self::NoMajority(..) | Self::Other(..) => None,
        }
    }

    fn nodes(&self) -> &[NodeReport] {
        match self {
            Self::NoMajority(_, nodes) => nodes,
            _ => self.error().map_or(&[], Error::nodes),
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Quorlock(error) | Self::Conflict(error, _) => error.code().as_str(),
            Self::Usage(_) => ErrorCode::Config.as_str(),
            Self::Lost(_) => ErrorCode::LeaseLost.as_str(),
            Self::NoMajority(..) => ErrorCode::NoQuorum.as_str(),
            Self::Other(..) => "FAILED",
        }
    }

    fn message(&self) -> &str {
        match self {
            Self::Quorlock(error) | Self::Conflict(error, _) => error.message(),
            Self::Usage(message)
            | Self::Lost(message)
            | Self::NoMajority(message, _)
            | Self::Other(message, _) => message,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Quorlock(error)
    }
}

/// A failure, as JSON.
#[derive(Serialize)]
struct FailureReport<'a> {
    error: &'static str,
    exit_status: u8,
    message: &'a str,
    resources: &'a [String],
    nodes: &'a [NodeReport],
}

/// The standard streams, and the options for the output.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// Whether results and errors are printed as JSON.
    pub(crate) json: bool,
    /// Whether informational messages, and the report of a held lock, are left out.
    pub(crate) quiet: bool,
    verbose: bool,
    colours: bool,
    /// Writes to stderr, if [`Output::write_aside`] was called.
    writer: OnceLock<Arc<Writer>>,
}

impl Output {
    pub(crate) fn new(shown: &Shown) -> Self {
        let Shown { json, quiet, verbose } = *shown;
        let is_set = |name| std::env::var_os(name).is_some_and(|value: OsString| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colours = !json && !is_dumb && !is_set("NO_COLOR") && io::stdout().is_terminal();
        Self { json, quiet, verbose, colours, writer: OnceLock::new() }
    }

    /// Writes to stderr on a thread of its own from now on, so that no message waits for its reader.
    pub(crate) fn write_aside(&self) -> Result<(), Failure> {
        let writer = Writer::start(|text| write(&mut io::stderr().lock(), text))
            .map_err(|error| Failure::own("cannot start a thread", &error))?;
        self.write_to(writer);
        Ok(())
    }

    pub(crate) fn write_to(&self, writer: Writer) {
        // Fails only if there is one already.
        let _ = self.writer.set(Arc::new(writer));
    }

    /// Counts a message that is left out.
    pub(crate) fn leave_out(&self) {
        if let Some(writer) = self.writer.get().filter(|_| !self.quiet && !self.json) {
            writer.leave_out();
        }
    }

    /// Waits until everything is written to stderr, for at most a second if its reader does not read.
    pub(crate) fn finish(&self) {
        if let Some(writer) = self.writer.get() {
            writer.finish();
        }
    }

    fn print_error(&self, text: String) {
        match self.writer.get() {
            Some(writer) => writer.write(text),
            None => write(&mut io::stderr().lock(), &text),
        }
    }

    /// Prints a text on stdout. That the reader has closed the pipe is no error.
    pub(crate) fn print(&self, text: impl Display) -> Result<(), Failure> {
        printed(try_write(&mut io::stdout().lock(), &text.to_string()))
    }

    /// Prints a value on stdout, as one line of JSON.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.print(format_args!("{}\n", json(value)))
    }

    /// Prints a text on stdout that somebody must read, on a thread of its own. A caller that cannot wait for the reader
    /// drops the future.
    pub(crate) async fn try_print_aside(&self, text: String) -> io::Result<()> {
        aside(move || try_write(&mut io::stdout().lock(), &text)).await?
    }

    /// Prints a text on stdout as [`Output::print`] does, on a thread of its own.
    pub(crate) async fn print_aside(&self, text: String) -> Result<(), Failure> {
        printed(self.try_print_aside(text).await)
    }

    /// Returns the word in the colour of its meaning, or unchanged if there are no colours.
    pub(crate) fn paint(&self, word: &str) -> String {
        let colour = match word {
            "free" | "ok" => 32,
            "held" | "warning" => 33,
            "contested" | "unknown" | "error" => 31,
            _ => return word.to_owned(),
        };
        if self.colours { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() }
    }

    /// Prints on stderr how each node answered, if `--verbose` is given.
    pub(crate) fn detail(&self, nodes: &[NodeReport]) {
        for node in nodes.iter().filter(|_| self.verbose) {
            self.note(format_args!("  {node}"));
        }
    }

    /// Prints a message on stderr, unless `--quiet` or `--json` is given.
    pub(crate) fn note(&self, message: impl Display) {
        if let Some(line) = self.line(message) {
            self.print_error(line);
        }
    }

    /// Returns the line that [`Output::note`] prints, if it does.
    pub(crate) fn line(&self, message: impl Display) -> Option<String> {
        (!self.quiet && !self.json)
            .then(|| format!("quorlock: {}\n", one_line(&message.to_string())))
    }

    /// Prints a question on stderr, also with `--quiet` and `--json`.
    pub(crate) fn ask(&self, question: impl Display) {
        write(&mut io::stderr().lock(), &question.to_string());
    }

    /// Reports a failure on stderr, and returns its exit status. `--quiet` silences only a held lock, and
    /// shortens other reports to one line.
    pub(crate) fn fail(&self, failure: &Failure) -> u8 {
        let exit_status = failure.status();
        if !(self.quiet && matches!(failure, Failure::Conflict(..))) {
            self.report(failure, exit_status);
        }
        exit_status
    }

    /// Reports a failure on stderr, also with `--quiet`. `exit_status` is that of this process.
    pub(crate) fn report(&self, failure: &Failure, exit_status: u8) {
        let (message, nodes) = (failure.message(), failure.nodes());
        let text = if self.json {
            let resources = failure.error().map_or(&[][..], Error::resources);
            let error = failure.code();
            json(&FailureReport { error, exit_status, message, resources, nodes })
        } else {
            let separator = if self.quiet { "; " } else { "\n  " };
            let nodes =
                nodes.iter().map(|node| separator.to_owned() + &one_line(&node.to_string()));
            format!("quorlock: {}{}", one_line(message), nodes.collect::<String>())
        };
        self.print_error(format!("{text}\n"));
    }
}

/// Replaces line breaks and other control characters, which may come from a server.
pub(crate) fn one_line(text: &str) -> String {
    let words = text.split(char::is_control).map(str::trim);
    words.filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("there is nothing in it that JSON can't hold")
}

/// Writes the text with one system call where possible, so that lines of several processes do not mix.
fn try_write(to: &mut impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes()).and_then(|()| to.flush())
}

/// Maps the result of printing. That the reader has closed the pipe is no error.
fn printed(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::own("the result cannot be printed", &error))
        }
        _ => Ok(()),
    }
}

/// Writes the text. Ignores errors.
fn write(to: &mut impl Write, text: &str) {
    let _ = try_write(to, text);
}

/// Prints what clap reports: an error in the usage, or the requested help or version. Returns the exit status.
pub(crate) fn usage(error: &clap::Error, arguments: &[OsString]) -> u8 {
    let mut text = error.render().to_string();
    // A misplaced argument may be a URL with a password, or the text of a lease.
    for argument in arguments.iter().filter_map(|argument| argument.to_str()) {
        let is_secret = argument.contains("://") && argument.contains('@');
        let is_lease = ["quorlock-lease-", "quorlock-handover-"];
        if is_secret || is_lease.iter().any(|mark| argument.contains(mark)) {
            text = text.replace(argument, "***");
        }
    }
    if !error.use_stderr() {
        write(&mut io::stdout().lock(), &text);
        return exit::OK;
    }
    text = name_variable(error, text, arguments);
    // The arguments after `--` are those of the command.
    let own = arguments.iter().take_while(|argument| *argument != "--");
    let hint = separator_hint(error, arguments);
    let has = |flags: &[&str]| own.clone().any(|given| flags.iter().any(|flag| given == flag));
    // The first paragraph is the message. Hints about the usage follow.
    let message = one_line(text.split("\n\n").next().unwrap_or_default());
    let message = format!("{}{hint}", message.trim_start_matches("error: "));
    if has(&["--json"]) {
        let (error, exit_status) = (ErrorCode::Config.as_str(), exit::USAGE);
        let report =
            FailureReport { error, exit_status, message: &message, resources: &[], nodes: &[] };
        text = format!("{}\n", json(&report));
    } else if has(&["--quiet", "-q"]) {
        text = format!("quorlock: {message}\n");
    } else if !hint.is_empty() {
        // It replaces clap's advice, which would put the separator in the wrong place.
        text = format!("error: {message}\n\nFor more information, try 'quorlock run --help'.\n");
    }
    write(&mut io::stderr().lock(), &text);
    exit::USAGE
}

/// Names the environment variable instead of the flag if an invalid value is from there.
fn name_variable(error: &clap::Error, text: String, arguments: &[OsString]) -> String {
    use ContextValue::String as Text;
    let parts = (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue));
    let (Some(Text(flag)), Some(Text(value))) = parts else { return text };
    let name = flag.trim_start_matches('-').split(' ').next().unwrap_or_default();
    let variable = format!("QUORLOCK_{}", name.replace('-', "_").to_uppercase());
    let is_given = arguments.iter().any(|given| given.to_string_lossy().ends_with(value.as_str()));
    if is_given || std::env::var_os(&variable).is_none_or(|set| set != value.as_str()) {
        return text;
    }
    text.replace(&format!("'{flag}'"), &variable)
}

/// Returns a hint if the command of `run` seems to be given without the separator `--`, else nothing.
fn separator_hint(error: &clap::Error, arguments: &[OsString]) -> &'static str {
    use clap::error::ErrorKind::{MissingRequiredArgument, UnknownArgument};
    let is_run = arguments.iter().skip(1).any(|argument| argument == "run");
    let has_separator = arguments.iter().any(|argument| argument == "--");
    match error.kind() {
        MissingRequiredArgument | UnknownArgument if is_run && !has_separator => {
            "; put -- between the resource and the command: quorlock run RESOURCE -- COMMAND"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn messages_have_one_line_and_no_control_characters() {
        assert_eq!(
            one_line("Parse error\nUnexpected `84`\r\n: \x1b[31mx"),
            "Parse error Unexpected `84` : [31mx"
        );
    }
}
