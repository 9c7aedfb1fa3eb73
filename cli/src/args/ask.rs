//! What is typed to ask the server something.

use super::{AsOf, DeadLetterSkip, OfRun, Page, Reading, Resolve, Wait};
use crate::value;
use clap::{Args, Subcommand};
use runlog_schemas::id::{JournalSeq, PartitionId, RunId};
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: u64,
    /// Go on where a page ended: its `next_cursor`
    #[arg(long, value_name = "C")]
    pub(crate) cursor: Option<String>,
    /// Those of one status
    #[arg(long, value_name = "S", value_parser = ["open", "completed", "failed", "cancelled"])]
    pub(crate) status: Option<String>,
    /// Those whose id begins so
    #[arg(long, value_name = "P")]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) of: OfRun,
    /// Only the records that state the facts which hold at a time (RFC 3339): calls, turns, proposals
    #[arg(long, value_name = "TIME")]
    pub(crate) as_of: Option<value::AsOf>,
    /// Do not mask content by its privacy class, where that is allowed
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// The run's id [default: all runs, each partition in its order]
    #[arg(value_name = "RUN", value_parser = value::run_id)]
    pub(crate) run: Option<RunId>,
    /// Follow the changes of an index of all runs instead: tool_calls, effects or another one that verify names
    #[arg(long, value_name = "NAME", conflicts_with_all = ["run", "raw"])]
    pub(crate) index: Option<String>,
    /// beginning, end, or the cursor of a line [default: end; with --until-end beginning]
    #[arg(long, value_name = "CURSOR")]
    pub(crate) from: Option<String>,
    /// Stop at the end instead of waiting for more
    #[arg(long)]
    pub(crate) until_end: bool,
    /// Do not mask content by its privacy class, where that is allowed
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Lookup {
    #[command(flatten)]
    pub(crate) of: OfRun,
    /// The tool's name
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: String,
    /// The arguments; order of keys and white space do not matter
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) args: String,
    /// Which of the requests with this tool and arguments, from 1 [default: the last]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) occurrence: Option<u32>,
    #[command(flatten)]
    pub(crate) as_of: AsOf,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Args)]
pub(crate) struct Checkpoint {
    #[command(flatten)]
    pub(crate) of: OfRun,
    /// The latest that covers no more than this `journal_seq`
    #[arg(long, value_name = "SEQ")]
    pub(crate) at_or_before: Option<JournalSeq>,
    #[command(flatten)]
    pub(crate) as_of: AsOf,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Args)]
pub(crate) struct Recover {
    #[command(flatten)]
    pub(crate) of: OfRun,
    /// With the checkpoint's messages
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) as_of: AsOf,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Args)]
pub(crate) struct Effects {
    #[command(subcommand)]
    pub(crate) action: Option<EffectsAction>,
    /// Those without a recorded end
    #[arg(long)]
    pub(crate) pending: bool,
    /// Those that must not be run again before somebody decides
    #[arg(long)]
    pub(crate) r#unsafe: bool,
    #[command(flatten)]
    pub(crate) page: Page,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EffectsAction {
    /// Record a decision on a pending effect
    Resolve(Resolve),
}

#[derive(Debug, Args)]
pub(crate) struct Anomalies {
    /// Those of one run
    #[arg(value_name = "RUN", value_parser = value::run_id)]
    pub(crate) run: Option<RunId>,
    #[command(flatten)]
    pub(crate) page: Page,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetter {
    #[command(subcommand)]
    pub(crate) action: DeadLetterAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterAction {
    /// List what could not be read
    List(DeadLetterList),
    /// Show one, with its first bytes
    Show(DeadLetterShow),
    /// Void a record for every reader: releases a partition that stopped there
    Skip(DeadLetterSkip),
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetterList {
    #[command(flatten)]
    pub(crate) page: Page,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetterShow {
    /// Partition and offset
    #[arg(value_name = "P:O")]
    pub(crate) place: value::Place,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Args)]
pub(crate) struct Retention {
    /// The payload type whose content goes; left out, the horizons that stand are listed
    #[arg(value_name = "FAMILY", requires_all = ["until", "who", "why"])]
    pub(crate) family: Option<String>,
    /// That of the records which the log took before this time (RFC 3339)
    #[arg(long, value_name = "TIME", requires = "family")]
    pub(crate) until: Option<String>,
    /// Who decides
    #[arg(long, value_name = "W", requires = "family")]
    pub(crate) who: Option<String>,
    /// Why
    #[arg(long, value_name = "T", requires = "family")]
    pub(crate) why: Option<String>,
    /// Of one partition [default: all]
    #[arg(long, value_name = "N", requires = "family")]
    pub(crate) partition: Option<PartitionId>,
    #[command(flatten)]
    pub(crate) page: Page,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) wait: Wait,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) wait: Wait,
}

#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// What the ids of the suite's runs begin with; there must be no run of it yet [default: a random one]
    #[arg(long, value_name = "P")]
    pub(crate) prefix: Option<String>,
    /// Only this rule; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) rule: Vec<String>,
    /// List the rules and ask nobody
    #[arg(long)]
    pub(crate) list: bool,
    /// Run those rules too that take something away from whole partitions: horizons, skips. For a journal of its own
    #[arg(long)]
    pub(crate) partition_rules: bool,
    /// How long one rule may take, such as 30s [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    pub(crate) deadline: Option<Duration>,
}
