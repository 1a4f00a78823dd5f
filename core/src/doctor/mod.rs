//! The doctor: looks at each node as the promises of the lock assume it, and says what is amiss.
//! It changes nothing on the servers.

mod diagnosis;
mod examine;
mod judge;

pub use diagnosis::{Diagnosis, Finding, Level, NodeDiagnosis, Permission};

use crate::config::endpoint::Endpoint;
use crate::config::options::Options;
use examine::examine;
use futures_util::future::join_all;
use judge::{judge, judge_together};

/// Looks at all nodes at once.
pub(crate) async fn diagnose(endpoints: &[Endpoint], options: &Options) -> Diagnosis {
    let examined = join_all(endpoints.iter().map(|endpoint| examine(endpoint, options))).await;
    let findings = judge_together(&examined, options);
    let judged = examined.into_iter().map(|servers| judge(servers, options));
    Diagnosis::new(findings, judged.collect())
}
