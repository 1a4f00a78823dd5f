//! The messages of the daemon on stderr, some of which its clients can cause.

use crate::output::Output;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many limited messages may come at once.
const BURST: u32 = 10;
/// The shortest time between limited messages after those.
const INTERVAL: Duration = Duration::from_secs(1);

/// Writes messages, and limits those that clients can cause.
pub(crate) struct Notes {
    output: Output,
    /// How many limited messages may come now, and since when.
    budget: Mutex<(u32, Instant)>,
}

impl Notes {
    pub(crate) fn new(output: &Output) -> Self {
        Self { output: output.clone(), budget: Mutex::new((BURST, Instant::now())) }
    }

    /// Writes a message, as [`Output::note`] does.
    pub(crate) fn note(&self, message: impl Display) {
        self.output.note(message);
    }

    /// Writes a message that any client can cause, so a limited number of them.
    pub(crate) fn note_limited(&self, message: impl Display) {
        match self.may_note() {
            true => self.output.note(message),
            false => self.output.leave_out(),
        }
    }

    fn may_note(&self) -> bool {
        let mut budget: MutexGuard<'_, _> =
            self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        if budget.1.elapsed() >= INTERVAL {
            *budget = (BURST.min(budget.0 + 1), Instant::now());
        }
        let left = budget.0.checked_sub(1);
        budget.0 = left.unwrap_or_default();
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Shown;
    use crate::writer::Writer;
    use std::sync::Arc;

    #[test]
    fn messages_that_clients_cause_are_limited() {
        let output = Output::new(&Shown { json: false, quiet: false, verbose: false });
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let reader = Arc::clone(&lines);
        let write = move |line: &str| reader.lock().expect("no panic").push(line.to_owned());
        output.write_to(Writer::start(write).expect("a thread"));
        let notes = Notes::new(&output);
        (0..1000).for_each(|number| notes.note_limited(number));
        notes.note("other");
        output.finish();
        let lines = lines.lock().expect("no panic");
        assert!(lines.len() < 100, "{}", lines.len());
        assert_eq!(lines.last().map(String::as_str), Some("quorlock: other\n"));
        assert!(lines.iter().any(|line| line.starts_with("quorlock: messages left out: ")));
    }
}
