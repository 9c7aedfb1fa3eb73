//! Options that several commands have.

use crate::{error::Error, value};
use clap::Args;
use runlog_schemas::id::RunId;
use std::time::Duration;

/// The schema registry of the journal.
#[derive(Debug, Default, Args)]
pub(crate) struct RegistryArg {
    /// Schema registry whose ids the records carry: https://HOST:PORT; credentials in RUNLOG_REGISTRY_AUTH
    /// [default: none]
    #[arg(long, env = "RUNLOG_REGISTRY", hide_env_values = true, value_name = "URL")]
    pub(crate) registry: Option<String>,
}

/// The time limit of an answer.
#[derive(Debug, Args)]
pub(crate) struct Deadline {
    /// Time limit for the answer, such as 500ms or 10s [default: 10s; 30s to append, 1h to verify]
    #[arg(long, env = "RUNLOG_DEADLINE", value_name = "DURATION", value_parser = value::duration)]
    pub(crate) deadline: Option<Duration>,
}

/// The freshness of an answer, and its time limit.
#[derive(Debug, Args)]
pub(crate) struct ReadOptions {
    /// Freshness of the answer: eventual, latest, or at-least=PARTITION:OFFSET or PARTITION:OFFSET@LOG [default: latest for one run,
    /// eventual for lists]
    #[arg(long, env = "RUNLOG_CONSISTENCY", value_name = "LEVEL")]
    pub(crate) consistency: Option<value::Consistency>,
    #[command(flatten)]
    pub(crate) wait: Deadline,
}

/// The part of a list to return.
#[derive(Debug, Args)]
pub(crate) struct PageOptions {
    /// Maximum number of entries [default: all]
    #[arg(long, value_name = "N", value_parser = value::positive)]
    pub(crate) limit: Option<u64>,
    /// Continue a list: the `next_cursor` of its previous page
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// The run of a command.
#[derive(Debug, Args)]
pub(crate) struct RunArg {
    /// Run id
    #[arg(value_name = "RUN", value_parser = value::run_id)]
    pub(crate) run: RunId,
}

/// The position of the log to answer for.
#[derive(Debug, Args)]
pub(crate) struct AsOfArg {
    /// Answer as of this position of the run's partition, inclusive. PARTITION:OFFSET@LOG also names its log [default: now]
    #[arg(long, value_name = "PARTITION:OFFSET")]
    pub(crate) as_of: Option<value::AsOf>,
}

impl AsOfArg {
    /// Returns the position.
    ///
    /// Errors: `Usage` for a time; only `show` can answer for a time.
    pub(crate) fn position(&self) -> Result<Option<value::Place>, Error> {
        match &self.as_of {
            None => Ok(None),
            Some(value::AsOf::Position(place)) => Ok(Some(place.clone())),
            Some(value::AsOf::Time(time)) => Err(Error::usage(format!(
                "the value of --as-of is a time, {time}; this command needs a position in the log, PARTITION:OFFSET, because a call or a \
                 checkpoint has no valid time. `runlog show` prints positions"
            ))),
        }
    }
}
