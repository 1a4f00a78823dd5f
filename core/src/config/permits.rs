//! The limit of a semaphore, and the number of permits that an acquire wants.

use crate::config::value::{Dialect, OptionValue};
use crate::error::{Error, Result};

/// The largest limit of a semaphore.
pub const MAX_PERMITS: u32 = 1_024;

/// Checks the limit of a semaphore: a whole number from 1 to [`MAX_PERMITS`].
pub(crate) fn checked_limit(dialect: Dialect, value: &OptionValue) -> Result<u32> {
    whole_number(value, MAX_PERMITS)
        .ok_or_else(|| wrong(dialect, "limit", &format!("from 1 to {MAX_PERMITS}"), value))
}

/// Checks a number of permits: a whole number from 1 to `limit`. A `limit` of 0 means that the program has set an
/// invalid limit, which another error reports; this function then allows up to [`MAX_PERMITS`].
pub(crate) fn checked_permits(dialect: Dialect, value: &OptionValue, limit: u32) -> Result<u32> {
    let most = if limit == 0 { MAX_PERMITS } else { limit };
    let accepted = match limit {
        0 => format!("from 1 to {MAX_PERMITS}"),
        _ => format!("from 1 to the {}, which is {limit}", dialect.name("limit")),
    };
    whole_number(value, most).ok_or_else(|| wrong(dialect, "permits", &accepted, value))
}

fn whole_number(value: &OptionValue, most: u32) -> Option<u32> {
    match value {
        OptionValue::Number(number) if number.fract() == 0.0 => {
            (1.0..=f64::from(most)).contains(number).then_some(*number as u32)
        }
        _ => None,
    }
}

fn wrong(dialect: Dialect, name: &str, accepted: &str, value: &OptionValue) -> Error {
    let name = dialect.name(name);
    let value = value.shown(dialect);
    Error::config(format!("{name} must be a whole number {accepted}, not {value}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::{checked_limit, checked_permits};
    use crate::config::value::{Dialect, OptionValue};

    #[test]
    fn limits_and_permits_are_whole_numbers_in_their_range() {
        let number = OptionValue::Number;
        for limit in [1, 2, 1_024] {
            assert_eq!(checked_limit(Dialect::Rust, &number(limit.into())).unwrap(), limit);
            assert_eq!(
                checked_permits(Dialect::Rust, &number(limit.into()), limit).unwrap(),
                limit
            );
        }
        let others = [0.0, -1.0, 1.5, 1_025.0, f64::NAN, f64::INFINITY].map(number);
        for value in others.into_iter().chain([OptionValue::Null, OptionValue::Bool(true)]) {
            let error = checked_limit(Dialect::Python, &value).unwrap_err();
            assert!(
                error.message().starts_with("limit must be a whole number from 1 to 1024, not ")
            );
            let error = checked_permits(Dialect::CommandLine, &value, 10).unwrap_err();
            let accepted =
                "--permits must be a whole number from 1 to the --limit, which is 10, not ";
            assert!(error.message().starts_with(accepted), "{error}");
        }
        assert!(checked_permits(Dialect::Rust, &number(11.0), 10).is_err());
    }
}
