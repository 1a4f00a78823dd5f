//! Prints results on stdout, and everything else on stderr. Maps failures to exit statuses.
//!
//! Only this module writes to the standard streams, except that `run` may pass on the output of its command. Everything
//! else passes [`safe`], so no text of a server, an argument or a file controls the terminal. It must never print a URL
//! from the arguments, which may contain a password.

use crate::args::{self, Shown};
use crate::exit;
use crate::writer::{Writer, aside};
use quorlock::{Error, ErrorCode, NodeReport, printable, printable_json, without_secrets};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
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

const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";
/// Moves the cursor to the top of the terminal, and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

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

    /// Waits until everything is written to stderr, for at most a second if its reader does not read.
    pub(crate) fn finish(&self) {
        if let Some(writer) = self.writer.get() {
            writer.finish();
        }
    }

    fn print_error(&self, text: &str) {
        let text = safe(text, false);
        match self.writer.get() {
            Some(writer) => writer.write(text),
            None => write(&mut io::stderr().lock(), &text),
        }
    }

    /// Counts a message that is left out.
    pub(crate) fn leave_out(&self) {
        if let Some(writer) = self.writer.get().filter(|_| !self.quiet && !self.json) {
            writer.leave_out();
        }
    }

    /// Prints a text on stdout. That the reader has closed the pipe is no error.
    pub(crate) fn print(&self, text: impl Display) -> Result<(), Failure> {
        self.print_own(&safe(&text.to_string(), self.colours))
    }

    /// Prints a text on stdout that somebody must read, on a thread of its own. A caller that cannot wait for the reader
    /// drops the future.
    pub(crate) async fn try_print_aside(&self, text: &str) -> io::Result<()> {
        self.write_own_aside(safe(text, self.colours)).await
    }

    /// Prints a text on stdout as [`Output::print`] does, on a thread of its own.
    pub(crate) async fn print_aside(&self, text: &str) -> Result<(), Failure> {
        printed(self.try_print_aside(text).await)
    }

    /// Clears the terminal that is stdout, and prints a text there, on a thread of its own.
    pub(crate) async fn redraw_aside(&self, text: &str) -> io::Result<()> {
        self.write_own_aside(format!("{CLEAR}{}", safe(text, self.colours))).await
    }

    async fn write_own_aside(&self, text: String) -> io::Result<()> {
        aside(move || try_write(&mut io::stdout().lock(), &text)).await?
    }

    /// Prints a text of this program on stdout as it is, such as a script.
    pub(crate) fn print_own(&self, text: &str) -> Result<(), Failure> {
        printed(try_write(&mut io::stdout().lock(), text))
    }

    /// Prints a value on stdout, as one line of JSON.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.print(format_args!("{}\n", json(value)))
    }

    /// Returns the word in the colour of its meaning, or unchanged if there are no colours.
    pub(crate) fn paint(&self, word: &str) -> String {
        let colour = match word {
            "free" | "ok" => GREEN,
            "held" | "warning" => YELLOW,
            "contested" | "unknown" | "error" => RED,
            _ => return word.to_owned(),
        };
        if self.colours { format!("{colour}{word}{PLAIN}") } else { word.to_owned() }
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
            self.print_error(&line);
        }
    }

    /// Returns the line that [`Output::note`] prints, if it does.
    fn line(&self, message: impl Display) -> Option<String> {
        (!self.quiet && !self.json)
            .then(|| format!("quorlock: {}\n", one_line(&message.to_string())))
    }

    /// Prints a question on stderr, also with `--quiet` and `--json`.
    pub(crate) fn ask(&self, question: impl Display) {
        write(&mut io::stderr().lock(), &safe(&question.to_string(), false));
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
        let message = failure.message();
        let nodes = failure.nodes();
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
        self.print_error(&format!("{text}\n"));
    }
}

/// Returns the lines of a text without anything that controls a terminal, except, if `colours` says so, the colours of
/// [`Output::paint`]. All that is printed passes it. Parts that others have written pass [`printable`] before, which also
/// replaces their line breaks and colours.
fn safe(text: &str, colours: bool) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['\n', '\x1b']) {
        safe += &printable(&rest[..at]);
        rest = &rest[at..];
        let own = |mark: &&&str| (colours || **mark == "\n") && rest.starts_with(**mark);
        match ["\n", GREEN, YELLOW, RED, PLAIN].iter().find(own) {
            Some(mark) => {
                safe += mark;
                rest = &rest[mark.len()..];
            }
            None => {
                safe.push('\u{fffd}');
                rest = &rest[1..];
            }
        }
    }
    safe + &printable(rest)
}

/// Returns an argument, such as the name of a file, as messages show it: without a password or the text of a lease, which
/// may be in the wrong place.
pub(crate) fn named(given: impl AsRef<OsStr>) -> String {
    printable(&without_secrets(&given.as_ref().to_string_lossy())).into_owned()
}

/// Returns a message, which may repeat the text of a server or a user, on one line.
pub(crate) fn one_line(text: &str) -> String {
    let lines = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
    lines.map(printable).collect::<Vec<_>>().join(" ")
}

/// Returns a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("there is nothing in it that JSON can't hold");
    printable_json(&json).into_owned()
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
    if !error.use_stderr() {
        write(&mut io::stdout().lock(), &safe(&text, false));
        return exit::OK;
    }
    text = without_values(text, arguments);
    if let Some(variable) = args::refused_variable(error, arguments) {
        text = name_variable(error, &text, &variable);
    }
    // The arguments after `--` are those of the command.
    let own = arguments.iter().take_while(|argument| *argument != "--");
    let hint = separator_hint(error, arguments);
    let has = |flags: &[&str]| own.clone().any(|given| flags.iter().any(|flag| given == flag));
    // The first paragraph is the message. Hints about the usage follow.
    let message = one_line(text.split("\n\n").next().unwrap_or_default());
    let message = format!("{}{hint}", message.trim_start_matches("error: "));
    if has(&["--json"]) {
        let error = ErrorCode::Config.as_str();
        let exit_status = exit::USAGE;
        let report =
            FailureReport { error, exit_status, message: &message, resources: &[], nodes: &[] };
        text = format!("{}\n", json(&report));
    } else if has(&["--quiet", "-q"]) {
        text = format!("quorlock: {message}\n");
    } else if !hint.is_empty() {
        // It replaces clap's advice, which would put the separator in the wrong place.
        text = format!("error: {message}\n\nFor more information, try 'quorlock run --help'.\n");
    }
    write(&mut io::stderr().lock(), &safe(&text, false));
    exit::USAGE
}

/// The largest number of short flags that are written as one argument.
const SHORT_FLAGS: usize = 8;

/// Replaces arguments and values of environment variables that may be secrets, such as a URL in the wrong place.
fn without_values(mut text: String, arguments: &[OsString]) -> String {
    let variables = std::env::vars_os()
        .filter(|(name, _)| name.to_str().is_some_and(|name| name.starts_with("QUORLOCK_")));
    let variables: Vec<_> = variables.map(|(_, value)| value).collect();
    let given = arguments.iter().chain(&variables);
    let mut secrets = Vec::new();
    for given in given.map(|given| given.to_string_lossy()) {
        // As a whole, as the value of a long flag, and as that of a short flag, which may follow others.
        let value = given.split_once('=').map(|(_, value)| value);
        let short = given.strip_prefix('-').filter(|flags| !flags.starts_with('-'));
        let ends = short.into_iter().flat_map(|flags| {
            flags.char_indices().skip(1).take(SHORT_FLAGS).map(move |(at, _)| &flags[at..])
        });
        for part in [Some(&*given), value].into_iter().flatten().chain(ends) {
            let shown = without_secrets(part);
            if shown != part {
                secrets.push((part.to_owned(), shown.into_owned()));
            }
        }
    }
    // The longest first: it may contain another.
    secrets.sort_by_key(|(part, _)| std::cmp::Reverse(part.len()));
    for (part, shown) in secrets {
        text = text.replace(&part, &shown);
    }
    text
}

/// Names the environment variable instead of the flag.
fn name_variable(error: &clap::Error, text: &str, variable: &str) -> String {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return text.to_owned();
    };
    text.replace(&format!("'{flag}'"), variable)
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
    use super::{GREEN, PLAIN, one_line, safe};

    #[test]
    fn only_own_colours_and_line_breaks_control_the_terminal() {
        let text = format!("a {GREEN}ok{PLAIN}\n\x1b]0;title\x07\u{202e}\r");
        assert_eq!(
            safe(&text, true),
            format!("a {GREEN}ok{PLAIN}\n\u{fffd}]0;title\u{fffd}\u{fffd} ")
        );
        assert!(!safe(&text, false).contains('\x1b'));
    }

    #[test]
    fn messages_have_one_line_and_no_control_characters() {
        assert_eq!(
            one_line("Parse error\nUnexpected `84`\r\n: \x1b[31mx"),
            "Parse error Unexpected `84` : \u{fffd}[31mx"
        );
    }
}
