//! Durations of the command line: the core parses them, and decides which ones an option accepts. Formats durations for
//! output.

pub(crate) use quorlock::parse_duration as parse;

use quorlock::OptionValue;
use std::time::Duration;

/// Returns the duration of a value, or `None` if it is negative, not finite or not a number.
pub(crate) fn of(value: &OptionValue) -> Option<Duration> {
    match value {
        OptionValue::Number(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
        _ => None,
    }
}

/// Formats a duration for people.
pub(crate) fn show(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 0.0995 => format!("{:.2} ms", seconds * 1e3),
        seconds if seconds < 99.5 => format!("{seconds:.1} s"),
        seconds => format!("{seconds:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_and_missing_durations_are_none() {
        assert_eq!(of(&parse("-1s").expect("a number")), None);
        assert_eq!(of(&OptionValue::Null), None);
    }

    #[test]
    fn durations_are_shown_with_few_digits() {
        let shown = |micros| show(Duration::from_micros(micros));
        assert_eq!(
            [shown(88), shown(5_000_000), shown(3_600_000_000)],
            ["0.09 ms", "5.0 s", "3600 s"]
        );
    }
}
