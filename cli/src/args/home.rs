//! Flags of `home`: the journal's home, and the decisions about it.

use super::{
    decide::{Attribution, Consent},
    options::Deadline,
};
use crate::value;
use clap::{Args, Subcommand};
use runlog_schemas::id::{LogId, RunId};

#[derive(Debug, Args)]
pub(crate) struct Home {
    #[command(subcommand)]
    pub(crate) action: Option<HomeAction>,
    #[command(flatten)]
    pub(crate) wait: Deadline,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HomeAction {
    /// Make the server's log the home of a journal that has none. Once, after all servers are upgraded
    #[command(
        after_help = "Example:\n  runlog home init kafka:MkU3OEVBNTcwNTJENDM2Qk:XvNFJqY8S9-aPtxsJ-VgvA --who jo --why \
                            'agents write here'"
    )]
    Init(HomeInit),
    /// Let a run continue that was open, or is unknown here, when its home was lost. First check its effects at their receivers
    #[command(after_help = "Examples:\n  runlog home accept run-42 --who jo --why 'the airline has no booking'\n  \
                            runlog home accept --unknown-runs --who jo --why 'all receivers were checked'")]
    Accept(HomeAccept),
}

#[derive(Debug, Args)]
pub(crate) struct HomeInit {
    /// The id of the log where agents write, as `runlog home` at a server of that cluster prints it
    #[arg(value_name = "LOG_ID")]
    pub(crate) log_id: LogId,
    #[command(flatten)]
    pub(crate) attribution: Attribution,
    /// Also for a topic with message.timestamp.type=CreateTime, as topics of MirrorMaker have. No server of another cluster may
    /// write this journal
    #[arg(long)]
    pub(crate) force: bool,
    /// Show what would happen, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
    #[command(flatten)]
    pub(crate) wait: Deadline,
}

#[derive(Debug, Args)]
pub(crate) struct HomeAccept {
    /// Run id
    #[arg(value_name = "RUN", value_parser = value::run_id, required_unless_present = "unknown_runs")]
    pub(crate) run: Option<RunId>,
    /// Accept all runs that this journal does not know: the lost home may have begun some of them
    #[arg(long, conflicts_with = "run")]
    pub(crate) unknown_runs: bool,
    #[command(flatten)]
    pub(crate) attribution: Attribution,
    #[command(flatten)]
    pub(crate) consent: Consent,
    #[command(flatten)]
    pub(crate) wait: Deadline,
}
