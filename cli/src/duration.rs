//! Parses the durations of the command line, such as `10s`, and formats durations for output. The core
//! decides which values an option accepts.

use quorlock::OptionValue;
use std::time::Duration;

/// The units, and their length in seconds.
const UNITS: [(&str, f64); 5] =
    [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// Parses the value of an option: a number of seconds, or `Null` for `forever` and `off`.
pub(crate) fn parse(text: &str) -> Result<OptionValue, String> {
    if ["forever", "off"].contains(&text) {
        return Ok(OptionValue::Null);
    }
    let end = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "" => Some(1.0),
        unit => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds),
    };
    number.parse::<f64>().ok().zip(seconds).map(|(number, unit)| OptionValue::Number(number * unit)).ok_or_else(|| {
        "a duration is a number with a unit, ms, s, m, h or d, such as 10s; without one, it is seconds".to_owned()
    })
}

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
    fn durations_have_units() {
        let seconds = |text| of(&parse(text).ok()?).map(|duration| duration.as_secs_f64());
        let accepted = [
            ("0", 0.0),
            ("10", 10.0),
            ("1.5", 1.5),
            ("10s", 10.0),
            ("500ms", 0.5),
            (".5s", 0.5),
            ("2m", 120.0),
            ("1h", 3600.0),
            ("1d", 86400.0),
        ];
        for (text, expected) in accepted {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for text in ["forever", "off"] {
            assert_eq!(parse(text), Ok(OptionValue::Null), "{text}");
        }
        for text in
            ["", "s", "10x", "10 s", "1h30m", "1e3", "ten", "10S", "inf", "NaN", "-", "10.s.", "٣s"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

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
