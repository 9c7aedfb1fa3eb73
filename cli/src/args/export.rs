//! Flags of `export`.

use super::options::Deadline;
use crate::value::{self, LogPosition};
use clap::Args;
use runlog_schemas::id::RunId;
use std::path::PathBuf;

/// A format of other tools.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum ExportFormat {
    /// A trajectory per run: JSON in the Agent Trajectory Interchange Format, version 1.8
    Atif,
    /// Tables of all runs as of a position: runs, records, tool_calls, effects, checkpoints, anomalies. Needs --out, and a
    /// build with the feature `parquet`
    Parquet,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Runs to export [default: all, by id]
    #[arg(value_name = "RUN", value_parser = value::run_id)]
    pub(crate) runs: Vec<RunId>,
    /// Format of the files
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "atif")]
    pub(crate) format: ExportFormat,
    /// New or empty folder to write to. It appears when the export is complete [default: stdout, one line per run]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Only runs whose id starts with this text
    #[arg(long, value_name = "PREFIX", conflicts_with = "runs")]
    pub(crate) prefix: Option<String>,
    /// Only runs whose current status is this
    #[arg(long, value_name = "STATUS", value_parser = ["open", "completed", "failed", "cancelled"], conflicts_with_all = ["runs", "at"])]
    pub(crate) status: Option<String>,
    /// Export as of these positions, inclusive, one per partition; the runs of other partitions are left out [default: now]
    #[arg(long, value_name = "PARTITION:OFFSET", value_delimiter = ',')]
    pub(crate) at: Vec<LogPosition>,
    /// Also export content that its privacy class hides
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) wait: Deadline,
}
