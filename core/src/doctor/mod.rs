//! The doctor: checks whether each node meets the assumptions of the lock, and reports every problem.
//!
//! This module owns the checks and their findings. It opens its own connections, and must not change any key on the
//! servers. `Client::doctor` and `Client::votes` call it.
//!
//! Reading order: `diagnosis.rs` (the report), `examine.rs` (queries the servers), `judge.rs` (findings about one
//! node), `together.rs` (findings about all nodes), `settings.rs` (where the client's settings come from), `votes.rs`
//! (which nodes can vote, for probes).

mod diagnosis;
mod examine;
mod judge;
mod settings;
mod together;
mod votes;

pub use diagnosis::{Diagnosis, Finding, Level, NodeDiagnosis, Permission, Setting};
pub(crate) use votes::votes;

use crate::config::endpoint::Endpoint;
use crate::config::options::Options;
use examine::{Depth, examine};
use futures_util::future::join_all;
use judge::judge;
use settings::settings;
use together::judge_together;

/// Examines all nodes at the same time, and returns the report.
pub(crate) async fn diagnose(endpoints: &[Endpoint], options: &Options) -> Diagnosis {
    let examining = endpoints.iter().map(|endpoint| examine(endpoint, options, Depth::Everything));
    let examined = join_all(examining).await;
    let findings = judge_together(&examined, options);
    let judged = examined.into_iter().map(|servers| judge(servers, options));
    Diagnosis::new(findings, judged.collect(), settings(endpoints, options))
}
