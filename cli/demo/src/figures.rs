//! The figures of a demo: the document of `--json`.

use crate::{audit::Audit, lookups::Way, rebuild::Rebuild, takeover::Takeover};
use serde::Serialize;
use std::path::PathBuf;

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Whether the demo found no difference.
    pub proved: bool,
    /// One sentence for each difference.
    pub differences: Vec<String>,
    pub seed: u64,
    pub agents: u32,
    /// Agents that were tasks of the demo's process.
    pub tasks: u32,
    /// Processes of the other agents. The desk is not counted.
    pub processes: u32,
    /// Processes that were killed, and runs that others took over.
    pub killed: u32,
    pub taken_over: u32,
    /// Effects that an operator decided.
    pub reconciled: u32,
    pub takeovers: Vec<Takeover>,
    /// Records in the log.
    pub records: u64,
    /// Calls that the agents made.
    pub calls: u64,
    pub audit: Audit,
    pub lookups: Vec<Way>,
    /// Calls found once more in the rebuilt index.
    pub found_after_rebuild: u64,
    pub rebuild: Rebuild,
    /// Working time of the agents.
    pub agents_seconds: f64,
    /// Run time of the demo.
    pub seconds: f64,
    /// The folder, if it is kept.
    pub data: Option<PathBuf>,
    /// The journal's URL, with `--serve`.
    pub serving: Option<String>,
    /// The call that was left pending, with `--serve`.
    pub undecided: Option<Undecided>,
}

/// The run id and the request id of the call that [`Played::serve`](crate::Played::serve) leaves pending.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Undecided {
    pub run_id: &'static str,
    pub id: &'static str,
}
