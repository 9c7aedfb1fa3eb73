//! What is typed to run something or to append something.

use super::{OfRegistry, OfRun, Wait};
use crate::{import::Format, value};
use clap::Args;
use runlog_schemas::id::RecordId;
use std::{net::SocketAddr, path::PathBuf};

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How many agents
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) agents: Option<u32>,
    /// Where log, index and ledger go [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Leave the folder behind
    #[arg(long)]
    pub(crate) keep: bool,
    /// Serve the result until Ctrl-C
    #[arg(long)]
    pub(crate) serve: bool,
    /// What the agents' trips follow from [default: another one each time]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoAgent {
    /// The journal's URL
    #[arg(long, value_name = "URL")]
    pub(crate) journal: String,
    /// Where the desk listens
    #[arg(long, value_name = "ADDR")]
    pub(crate) desk: SocketAddr,
    /// What the agents' trips follow from
    #[arg(long, value_name = "N")]
    pub(crate) seed: u64,
    /// Which agent
    #[arg(long, value_name = "N")]
    pub(crate) number: u32,
    /// Its bookings have idempotency keys
    #[arg(long)]
    pub(crate) keyed: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoDesk {
    /// The file that bookings are appended to; there must be none
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Keep the log in this process, under DIR/log
    #[arg(long, conflicts_with = "brokers")]
    pub(crate) local: bool,
    /// The log is in Kafka: HOST:PORT, several separated by commas [env: RUNLOG_BROKERS, unless --local]
    #[arg(long, value_name = "LIST")]
    pub(crate) brokers: Option<String>,
    /// Where the indices go; DIR/index may be deleted while nothing runs
    #[arg(long, env = "RUNLOG_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Where HTTP is served; port 0 takes a free one [default: 127.0.0.1:7070]
    #[arg(long, env = "RUNLOG_LISTEN", value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// The journal's topic [default: runlog.journal]
    #[arg(long, env = "RUNLOG_TOPIC", value_name = "NAME")]
    pub(crate) topic: Option<String>,
    /// The journal's partition count, for a new journal [default: 4 local, 16 on Kafka] or to insist on
    #[arg(long, env = "RUNLOG_PARTITIONS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) partitions: Option<u32>,
    /// Where payloads go that are too large for a record: file:DIR or s3://BUCKET/PREFIX, with AWS_ENDPOINT_URL,
    /// AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY [default: DIR/content with --local, otherwise none]
    #[arg(long, env = "RUNLOG_CONTENT", value_name = "URL")]
    pub(crate) content: Option<String>,
    #[command(flatten)]
    pub(crate) of: OfRegistry,
    /// Serve the indices as they are and consume nothing
    #[arg(long)]
    pub(crate) paused: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Who wrote the files
    #[arg(value_enum)]
    pub(crate) format: Format,
    /// The files; a malformed one among them and nothing is written
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Append straight to Kafka, without a server: HOST:PORT, several separated by commas
    #[arg(long, value_name = "LIST")]
    pub(crate) brokers: Option<String>,
    /// The journal's topic, with --brokers [default: runlog.journal]
    #[arg(long, env = "RUNLOG_TOPIC", value_name = "NAME")]
    pub(crate) topic: Option<String>,
    /// The journal's content store, with --brokers: what `runlog serve` was given
    #[arg(long, env = "RUNLOG_CONTENT", value_name = "URL")]
    pub(crate) content: Option<String>,
    #[command(flatten)]
    pub(crate) of: OfRegistry,
    /// Put before every run id, as it is
    #[arg(long, value_name = "P")]
    pub(crate) run_prefix: Option<String>,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

#[derive(Debug, Args)]
pub(crate) struct Publish {
    /// Where the lines are; - is stdin
    #[arg(default_value = "-", value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

#[derive(Debug, Args)]
pub(crate) struct Resolve {
    #[command(flatten)]
    pub(crate) of: OfRun,
    /// The effect: its request's record id
    #[arg(value_name = "ID", value_parser = value::record_id)]
    pub(crate) id: RecordId,
    #[command(flatten)]
    pub(crate) decision: Decision,
    #[command(flatten)]
    pub(crate) signed: Signed,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Decision {
    /// It happened, with this result
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) done: Option<String>,
    /// It happened; the refused result that is kept as evidence is true
    #[arg(long)]
    pub(crate) adopt: bool,
    /// It did not happen, and the process that could still do it is dead
    #[arg(long)]
    pub(crate) not_done: bool,
    /// Nobody will find out
    #[arg(long)]
    pub(crate) give_up: bool,
}

/// Who stands for a decision.
#[derive(Debug, Args)]
pub(crate) struct Signed {
    /// Who decides
    #[arg(long, value_name = "W")]
    pub(crate) who: String,
    /// Why
    #[arg(long, value_name = "T")]
    pub(crate) why: String,
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetterSkip {
    /// Partition and offset
    #[arg(value_name = "P:O")]
    pub(crate) place: value::Place,
    #[command(flatten)]
    pub(crate) signed: Signed,
    #[command(flatten)]
    pub(crate) wait: Wait,
}
