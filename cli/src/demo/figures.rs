//! The figures of a demo: the document of `--json`.

use super::{audit::Audit, crash::Takeover, lookups::Way, rebuild::Rebuild, undecided::Undecided};
use serde::Serialize;
use std::path::PathBuf;

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    /// Whether the demo found no difference.
    pub(super) proved: bool,
    /// One sentence for each difference.
    pub(super) differences: Vec<String>,
    pub(super) seed: u64,
    pub(super) agents: u32,
    /// Agents that were tasks of the demo's process.
    pub(super) tasks: u32,
    /// Processes of the other agents. The desk is not counted.
    pub(super) processes: u32,
    /// Processes that were killed, and runs that others took over.
    pub(super) killed: u32,
    pub(super) taken_over: u32,
    /// Effects that an operator decided.
    pub(super) reconciled: u32,
    pub(super) takeovers: Vec<Takeover>,
    /// Records in the log.
    pub(super) records: u64,
    /// Calls that the agents made.
    pub(super) calls: u64,
    pub(super) audit: Audit,
    pub(super) lookups: Vec<Way>,
    /// Calls found once more in the rebuilt index.
    pub(super) found_after_rebuild: u64,
    pub(super) rebuild: Rebuild,
    /// Working time of the agents.
    pub(super) agents_seconds: f64,
    /// Run time of the demo.
    pub(super) seconds: f64,
    /// The folder, if it is kept.
    pub(super) data: Option<PathBuf>,
    /// The journal's URL, with `--serve`.
    pub(super) serving: Option<String>,
    /// The call that was left pending, with `--serve`.
    pub(super) undecided: Option<Undecided>,
}
