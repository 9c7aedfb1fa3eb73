//! Flags of `mcp-gate`.

use crate::value;
use clap::Args;
use runlog_schemas::id::RunId;
use std::{ffi::OsString, path::PathBuf, time::Duration};

#[derive(Debug, Args)]
pub(crate) struct McpGate {
    /// Run to record the calls in. Each MCP server of an agent needs a run of its own [default: the client's thread or session
    /// with the server's name; otherwise a new run, which does not outlive this process]
    #[arg(long, env = "RUNLOG_RUN", value_name = "ID", value_parser = value::run_id)]
    pub(crate) run: Option<RunId>,
    /// JSON file with rules for tools; docs/mcp.md describes it [default: each call runs once]
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Answer every recorded call of the run again, in its order: for an agent that starts over and makes the same calls
    #[arg(long)]
    pub(crate) replay: bool,
    /// URL of an MCP server with streamable HTTP, instead of COMMAND
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub(crate) upstream: Option<String>,
    /// File with the bearer token for --upstream, which only its owner may read [default: no token]
    #[arg(long, value_name = "FILE", requires = "upstream")]
    pub(crate) upstream_token_file: Option<PathBuf>,
    /// Time for calls in flight after the client has closed its end, such as 30s. SIGTERM ends it
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "30s")]
    pub(crate) grace: Duration,
    /// Command that starts the MCP server, with its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "upstream")]
    pub(crate) command: Vec<OsString>,
}
