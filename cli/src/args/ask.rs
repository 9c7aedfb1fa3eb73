//! Flags of the commands that ask the server.

use super::{
    decide::{DeadLetterSkip, Resolve},
    options::{AsOfArg, Deadline, PageOptions, ReadOptions, RunArg},
};
use crate::value;
use clap::{Args, Subcommand};
use runlog_schemas::id::{JournalSeq, RunId};

#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// Maximum number of runs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value::positive)]
    pub(crate) limit: u64,
    /// Continue after a page: its `next_cursor`
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
    /// Only runs with this status
    #[arg(long, value_name = "STATUS", value_parser = ["open", "completed", "failed", "cancelled"])]
    pub(crate) status: Option<String>,
    /// Only runs whose id starts with this text
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Sort by the time of the last record, newest first [default: by run id]
    #[arg(long)]
    pub(crate) newest: bool,
    /// Only runs with a record since a time (RFC 3339) or within a duration, such as 2h
    #[arg(long, value_name = "TIME|DURATION", value_parser = value::parse_since)]
    pub(crate) since: Option<value::Since>,
    /// Only open runs with an effect that waits for a decision, and not for its process: see `runlog effects --pending --unsafe`
    #[arg(long, conflicts_with = "status")]
    pub(crate) stuck: bool,
    /// Only open runs whose home was lost, which wait for `runlog home accept`
    #[arg(long, conflicts_with = "status")]
    pub(crate) in_doubt: bool,
    /// Only runs whose last record is at least this old, such as 30s. With `--status open` their process may be dead
    #[arg(long, value_name = "DURATION")]
    pub(crate) idle: Option<humantime::Duration>,
    /// Also show each run's agent, duration, tool calls, checkpoints and claims
    #[arg(long)]
    pub(crate) summary: bool,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) run: RunArg,
    /// Show the run as of a position of its partition (inclusive), or only the facts that were valid at a time (RFC 3339):
    /// calls, turns, proposals
    #[arg(long, value_name = "TIME|PARTITION:OFFSET")]
    pub(crate) as_of: Option<value::AsOf>,
    /// Show content unmasked, if the server allows it
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
}

#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Run id [default: all runs, each partition in its own order]
    #[arg(value_name = "RUN", value_parser = value::run_id)]
    pub(crate) run: Option<RunId>,
    /// Follow the changes of an index instead, such as tool_calls or effects; `runlog verify -v` lists the indices
    #[arg(long, value_name = "NAME", conflicts_with_all = ["run", "raw"])]
    pub(crate) index: Option<String>,
    /// Where to start: beginning, end, or the `cursor` of a line, exclusive [default: end; beginning with --until-end]
    #[arg(long, value_name = "CURSOR")]
    pub(crate) from: Option<String>,
    /// Stop at the end of the log instead of waiting for more
    #[arg(long)]
    pub(crate) until_end: bool,
    /// Show content unmasked, if the server allows it
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Lookup {
    #[command(flatten)]
    pub(crate) run: RunArg,
    /// Name of the tool
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: String,
    /// Arguments of the call; the order of keys and white space do not matter
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) args: String,
    /// Which of the requests with this tool and these arguments, counted from 1 [default: the last]
    #[arg(long, value_name = "K", value_parser = value::positive_u32)]
    pub(crate) occurrence: Option<u32>,
    #[command(flatten)]
    pub(crate) as_of: AsOfArg,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
}

#[derive(Debug, Args)]
pub(crate) struct Checkpoint {
    #[command(flatten)]
    pub(crate) run: RunArg,
    /// The latest checkpoint that covers at most this `journal_seq`, inclusive
    #[arg(long, value_name = "SEQ")]
    pub(crate) at_or_before: Option<JournalSeq>,
    #[command(flatten)]
    pub(crate) as_of: AsOfArg,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
}

#[derive(Debug, Args)]
pub(crate) struct Recover {
    #[command(flatten)]
    pub(crate) run: RunArg,
    /// Include the messages of the checkpoint
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) as_of: AsOfArg,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
}

#[derive(Debug, Args)]
pub(crate) struct Effects {
    #[command(subcommand)]
    pub(crate) action: Option<EffectsAction>,
    /// Only effects without a recorded end
    #[arg(long)]
    pub(crate) pending: bool,
    /// Only pending effects that must not run again until someone decides
    #[arg(long)]
    pub(crate) r#unsafe: bool,
    /// Only ended effects that a later result contradicts, with these results
    #[arg(long, conflicts_with_all = ["pending", "unsafe"])]
    pub(crate) contradicted: bool,
    #[command(flatten)]
    pub(crate) page: PageOptions,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EffectsAction {
    /// Record a decision on a pending effect
    Resolve(Resolve),
}

#[derive(Debug, Args)]
pub(crate) struct Anomalies {
    /// Only refused records of this run
    #[arg(value_name = "RUN", value_parser = value::run_id)]
    pub(crate) run: Option<RunId>,
    #[command(flatten)]
    pub(crate) page: PageOptions,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetter {
    #[command(subcommand)]
    pub(crate) action: DeadLetterAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterAction {
    /// List the records that could not be read
    List(DeadLetterList),
    /// Show one, with its first bytes
    Show(DeadLetterShow),
    /// Make every reader ignore a record, so that a partition that stopped there continues
    Skip(DeadLetterSkip),
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetterList {
    #[command(flatten)]
    pub(crate) page: PageOptions,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetterShow {
    /// Position of the record
    #[arg(value_name = "PARTITION:OFFSET")]
    pub(crate) position: value::LogPosition,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) wait: Deadline,
}

#[derive(Debug, Args)]
pub(crate) struct WhoAmI {
    #[command(flatten)]
    pub(crate) wait: Deadline,
}

#[derive(Debug, Args)]
pub(crate) struct Overview {
    #[command(flatten)]
    pub(crate) wait: Deadline,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) wait: Deadline,
}
