//! What is typed: the commands and their flags.
//!
//! A flag is looked for on the command line, then in the environment, then in the file of `--config`; what is in none
//! of them has the default that its help names.

use crate::{Error, value};
use clap::{ArgAction, Args, Parser, Subcommand};
use runlog_schemas::id::RunId;
use std::{path::PathBuf, time::Duration};

mod act;
mod ask;
mod schema;

pub(crate) use act::{DeadLetterSkip, Decision, Demo, DemoAgent, DemoDesk, Import, Publish, Resolve, Serve};
pub(crate) use ask::{
    Anomalies, Checkpoint, Conformance, DeadLetter, DeadLetterAction, DeadLetterList, DeadLetterShow, Doctor, Effects,
    EffectsAction, Lookup, Recover, Retention, Runs, Show, Tail, Verify,
};
pub(crate) use schema::{Schema, SchemaAction, SchemaCheck, SchemaShow};

/// The replayable journal of agent runs.
#[derive(Debug, Parser)]
#[command(name = "runlog", version, max_term_width = 120)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The server that is asked [default: http://127.0.0.1:7070]
    #[arg(long, help_heading = "Global options", global = true, env = "RUNLOG_SERVER", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// A JSON file with settings, for what neither a flag nor the environment says
    #[arg(long, help_heading = "Global options", global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print one JSON document (one per line for streams) and nothing else, errors too
    #[arg(long, help_heading = "Global options", global = true)]
    pub(crate) json: bool,
    /// Say more on stderr; twice for more
    #[arg(short, long, help_heading = "Global options", global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say errors only on stderr
    #[arg(short, long, help_heading = "Global options", global = true)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch agents book trips, die and be taken over, on a log of this process' own
    Demo(Demo),
    /// Fold the log into its indices and answer over HTTP
    Serve(Serve),
    /// Write the recorded runs of another framework into the journal
    Import(Import),
    /// Append records, one JSON object per line
    Publish(Publish),
    /// List runs, ordered by run id
    Runs(Runs),
    /// Show a run's timeline
    Show(Show),
    /// Follow a run's timeline, or the changes of an index
    Tail(Tail),
    /// Ask what is known of a tool call
    Lookup(Lookup),
    /// Print a run's latest valid checkpoint, whole
    Checkpoint(Checkpoint),
    /// Print all that a process needs to go on with a run; changes nothing
    Recover(Recover),
    /// List effects across all runs, or decide on one
    Effects(Effects),
    /// List records that were refused
    Anomalies(Anomalies),
    /// What could not be read
    DeadLetter(DeadLetter),
    /// Take the content of old records away, or list what was taken away
    Retention(Retention),
    /// Say what is wrong and what to do
    Doctor(Doctor),
    /// Build the indices again from the log, beside the live ones, and compare
    Verify(Verify),
    /// Show by scenarios whether a server keeps the journal's rules, whoever wrote it
    Conformance(Conformance),
    /// The schemas of records: what is read, and what may change
    Schema(Schema),
    /// One agent of the demo, for the demo to start
    #[command(hide = true)]
    DemoAgent(DemoAgent),
    /// The demo's airline desk, for the demo to start
    #[command(hide = true)]
    DemoDesk(DemoDesk),
    #[command(hide = true)]
    Rebuild(Later),
    #[command(hide = true)]
    Snapshot(Later),
    #[command(hide = true)]
    Bench(Later),
}

impl Cli {
    /// Whether answers and errors are printed as JSON.
    pub(crate) fn json(&self) -> bool {
        let later = match &self.command {
            Command::Rebuild(later) | Command::Snapshot(later) | Command::Bench(later) => later.json(),
            _ => false,
        };
        self.global.json || later
    }
}

/// Whatever is typed behind a command that comes later.
#[derive(Debug, Args)]
pub(crate) struct Later {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

impl Later {
    /// Whether what was typed asks for JSON: clap gives all of it to the command.
    fn json(&self) -> bool {
        self.rest.iter().any(|argument| argument == "--json")
    }
}

/// The schema registry of the journal.
#[derive(Debug, Args)]
pub(crate) struct OfRegistry {
    /// The schema registry whose ids records carry: https://USER:PASSWORD@HOST:PORT, credentials optional [default: none]
    #[arg(long, env = "RUNLOG_REGISTRY", hide_env_values = true, value_name = "URL")]
    pub(crate) registry: Option<String>,
}

/// How long to wait for an answer.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// How long to wait for the answer, such as 500ms or 10s [default: 10s; 30s to append, 1h to verify]
    #[arg(long, env = "RUNLOG_DEADLINE", value_name = "DURATION", value_parser = value::duration)]
    pub(crate) deadline: Option<Duration>,
}

/// How fresh an answer must be, and how long to wait for it.
#[derive(Debug, Args)]
pub(crate) struct Reading {
    /// eventual, latest or at-least=P:O [default: latest where a run is named, otherwise eventual]
    #[arg(long, env = "RUNLOG_CONSISTENCY", value_name = "LEVEL")]
    pub(crate) consistency: Option<value::Consistency>,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

/// Which part of a list.
#[derive(Debug, Args)]
pub(crate) struct Page {
    /// At most so many [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Go on where a page ended: its `next_cursor`
    #[arg(long, value_name = "C")]
    pub(crate) cursor: Option<String>,
}

/// The run that is asked about.
#[derive(Debug, Args)]
pub(crate) struct OfRun {
    /// The run's id
    #[arg(value_name = "RUN", value_parser = value::run_id)]
    pub(crate) run: RunId,
}

/// Which moment is asked about.
#[derive(Debug, Args)]
pub(crate) struct AsOf {
    /// As it was behind a position of the log, inclusive: the run's partition, and an offset [default: now]
    #[arg(long, value_name = "P:O")]
    pub(crate) as_of: Option<value::AsOf>,
}

impl AsOf {
    /// The position.
    ///
    /// Errors: `Usage` for a time, at which not what the log says is asked for but what held.
    pub(crate) fn position(&self) -> Result<Option<value::Place>, Error> {
        match &self.as_of {
            None => Ok(None),
            Some(value::AsOf::Position(place)) => Ok(Some(*place)),
            Some(value::AsOf::Time(time)) => Err(Error::usage(format!(
                "--as-of {time} is a time; what is known of a run, such as its checkpoint, holds at a position of the log \
                 and has no valid time: --as-of takes PARTITION:OFFSET"
            ))),
        }
    }
}
