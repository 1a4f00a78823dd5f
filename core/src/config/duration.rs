//! Durations as people write them, on the command line and in the environment, such as `10s`. `options.rs` decides
//! which durations an option accepts.

use crate::config::value::OptionValue;

/// The units of time, each with its length in seconds.
const UNITS: [(&str, f64); 5] =
    [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// Parses a duration. Returns the number of seconds, or `Null` for `forever` and `off`. A duration may be a sum of
/// several numbers with units, from the largest unit to the smallest, such as `1m30s`. Only 0 may have no unit, so that
/// a forgotten unit is an error. Used for the command line and for environment variables.
///
/// # Errors
///
/// A text that says how to write a duration.
pub fn parse_duration(text: &str) -> Result<OptionValue, String> {
    if ["forever", "off"].contains(&text) {
        return Ok(OptionValue::Null);
    }
    let wrong =
        || "a duration is a number with a unit, such as 500ms, 10s, 1m30s, 2h or 1d".to_owned();
    let (sign, amount) = text.strip_prefix('-').map_or((1.0, text), |amount| (-1.0, amount));
    if let Some(number) = number(amount) {
        return match number {
            0.0 => Ok(OptionValue::Number(0.0)),
            _ => Err(format!(
                "the unit is missing: write {text}s for seconds, or {text}ms, {text}m, {text}h or {text}d"
            )),
        };
    }
    let mut rest = amount;
    let mut sum = 0.0;
    let mut previous = f64::INFINITY;
    while !rest.is_empty() {
        let (part, unit, after) = first_part(rest).ok_or_else(wrong)?;
        if unit >= previous {
            return Err(wrong());
        }
        (rest, sum, previous) = (after, sum + part * unit, unit);
    }
    if previous.is_finite() { Ok(OptionValue::Number(sign * sum)) } else { Err(wrong()) }
}

/// Splits off the number and the unit at the beginning of a text. Returns the number, the length of the unit in
/// seconds, and the rest of the text; `None` if the text does not begin with a number and a known unit.
fn first_part(text: &str) -> Option<(f64, f64, &str)> {
    let is_letter = |letter: char| letter.is_ascii_alphabetic();
    let (digits, rest) = text.split_at(text.find(is_letter)?);
    let (unit, after) = rest.split_at(rest.find(|letter| !is_letter(letter)).unwrap_or(rest.len()));
    let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some((number(digits)?, *seconds, after))
}

/// Parses a number that consists of digits and at most one decimal point; `None` for any other text.
fn number(text: &str) -> Option<f64> {
    let is_plain = text.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let seconds = |text| match parse_duration(text) {
            Ok(OptionValue::Number(seconds)) => Some(seconds),
            _ => None,
        };
        let accepted = [
            ("0", 0.0),
            ("10s", 10.0),
            ("500ms", 0.5),
            (".5s", 0.5),
            ("2m", 120.0),
            ("1h", 3600.0),
            ("1d", 86400.0),
            ("1m30s", 90.0),
            ("1d2h3m4s5ms", 93784.005),
            ("1.5h30s", 5430.0),
        ];
        for (text, expected) in accepted {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for text in ["forever", "off"] {
            assert_eq!(parse_duration(text), Ok(OptionValue::Null), "{text}");
        }
        for text in [
            "", "s", "10x", "10 s", "30s1m", "1m1m", "1m30", "1m-30s", "1e3s", "ten", "10S", "inf",
            "NaN", "-", "--1s", "+1s", "10.s.", "٣s",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_unit_is_named() {
        for (text, hint) in [("10", "10s"), ("1.5", "1.5s"), ("-3", "-3s")] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.starts_with(&format!("the unit is missing: write {hint} ")), "{error}");
        }
    }
}
