//! The settings that must be the same in all clients of a fleet, and where this client's values come from. Called by
//! `diagnose`.

use super::diagnosis::Setting;
use crate::config::endpoint::Endpoint;
use crate::config::options::Options;
use crate::error::duration::HumanDuration;

/// Returns the values of these settings for a client of these nodes, with their sources.
pub(super) fn settings(endpoints: &[Endpoint], options: &Options) -> Vec<Setting> {
    let option = |name, value| {
        let given = options.dialect_of(name).map(|dialect| dialect.name(name));
        Setting { name, value, source: given.unwrap_or_else(|| "default".to_owned()) }
    };
    let guard = options.restart_guard;
    let source = options.nodes_from.to_owned();
    vec![
        Setting { name: "nodes", value: endpoints.len().to_string(), source },
        option(
            "restart_guard",
            guard.map_or_else(|| "off".to_owned(), |guard| HumanDuration(guard).to_string()),
        ),
        option("key_prefix", options.key_prefix.clone()),
        option("drift_factor", options.drift_factor.to_string()),
    ]
}
