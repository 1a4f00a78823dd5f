//! The settings of a fleet, which operators set in environment variables for all clients in all languages and for the
//! command-line tool. An option that the program sets takes precedence. Called by `ClientBuilder`.
//!
//! An empty variable counts as not set.

use crate::config::options::Options;
use crate::config::value::{Dialect, OptionValue};
use crate::error::{Error, Result};
use std::ffi::OsString;

/// The options that must be equal in all clients of a fleet.
pub(crate) const FLEET: [&str; 3] = ["restart_guard", "key_prefix", "drift_factor"];

/// Returns the value of an environment variable of this process.
pub(crate) fn process(variable: &str) -> Option<OsString> {
    std::env::var_os(variable)
}

/// Reads an environment variable with `read`. Returns its value; `None` if the variable is not set or is empty. Fails
/// if the value is not UTF-8.
pub(crate) fn text(
    variable: &str,
    read: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<String>> {
    let Some(value) = read(variable).filter(|value| !value.is_empty()) else { return Ok(None) };
    let not_text = |_| Error::config(format!("{variable} in the environment must be UTF-8 text"));
    value.into_string().map(Some).map_err(not_text)
}

impl Options {
    /// Sets the options of [`FLEET`] that the program has not set. Reads the environment variables with `read`.
    pub(crate) fn read_environment(
        &mut self,
        read: impl Fn(&str) -> Option<OsString>,
    ) -> Result<()> {
        for option in FLEET {
            if self.dialect_of(option).is_some() {
                continue;
            }
            let variable = Dialect::Environment.name(option);
            if let Some(text) = text(&variable, &read)? {
                self.set(Dialect::Environment, &variable, &OptionValue::Text(text))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::config::options::Options;
    use crate::config::value::{Dialect, OptionValue};
    use crate::error::{ErrorCode, Result};
    use serde_json::Value;
    use std::ffi::OsString;

    /// Returns a client's options, made from the options and the environment variables in one row of the test vectors.
    fn options(row: &Value) -> Result<Options> {
        let mut options = Options::default();
        for (name, value) in row["options"].as_object().into_iter().flatten() {
            let value = match value {
                Value::String(text) => OptionValue::Text(text.clone()),
                Value::Null => OptionValue::Null,
                number if name == "drift_factor" => OptionValue::Number(number.as_f64().unwrap()),
                number => OptionValue::Number(number.as_f64().unwrap() / 1e3),
            };
            options.set(Dialect::Rust, name, &value)?;
        }
        options.read_environment(|name| row["set"][name].as_str().map(OsString::from))?;
        options.check_ttl().map(|()| options)
    }

    #[test]
    fn settings_of_a_fleet_are_those_of_the_vectors() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/environment.json");
        let rows: Vec<Value> =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut checked = 0;
        // Clients that have only in-memory nodes do not read the environment. `nodes.rs` reads the nodes.
        let is_read = |row: &&Value| {
            let is_about_nodes = !row["set"]["QUORLOCK_NODES"].is_null() && !row["error"].is_null();
            row["nodes"][0] != "memory://environment" && !is_about_nodes
        };
        for row in rows.iter().filter(is_read) {
            let texts = |field: &str| row[field].as_array().cloned().unwrap_or_default();
            match options(row) {
                Err(error) => {
                    assert_eq!(
                        (error.code(), &row["error"]),
                        (ErrorCode::Config, &"CONFIG".into())
                    );
                    let message = error.message();
                    assert!(
                        texts("contains")
                            .iter()
                            .all(|text| message.contains(text.as_str().unwrap())),
                        "{row}: {error}"
                    );
                    assert!(
                        !texts("never").iter().any(|text| message.contains(text.as_str().unwrap())),
                        "{row}: {error}"
                    );
                }
                Ok(options) => {
                    assert!(row["error"].is_null(), "{row}");
                    for (name, expected) in row["settings"].as_object().unwrap() {
                        let source = options.dialect_of(name).map(|dialect| dialect.name(name));
                        let source = source.unwrap_or_else(|| "default".to_owned());
                        let expected = expected[1].as_str().unwrap().replace(['{', '}'], "");
                        assert!(name == "nodes" || source == expected, "{row}: {source}");
                    }
                }
            }
            checked += 1;
        }
        assert!(checked > 10);
    }

    #[cfg(unix)]
    #[test]
    fn variable_that_is_no_text_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let wrong = |_: &str| Some(OsString::from_vec(b"\xff".to_vec()));
        let error = Options::default().read_environment(wrong).unwrap_err();
        assert!(error.message().starts_with("QUORLOCK_RESTART_GUARD "), "{error}");
    }
}
