//! From a command's arguments to its answer.
//!
//! ```text
//!   args ──▶ command/<name> ──▶ client ──▶ server
//!                  │
//!                  └──▶ output (answer) ──▶ exit code 0, or 1 where the honest answer is no
//! ```

use crate::{
    Error,
    args::{Cli, Command, DeadLetterAction, Global, Reading, Wait},
    client::{Client, Target},
    config::Config,
    demo,
    output::{self, Output},
    text::{Cell, Text},
};
use runlog_schemas::{
    answer::{Dropped, ErrorKind, MissingContent, Outcome, Position},
    id::PartitionId,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{process::ExitCode, time::Duration};

mod anomalies;
mod checkpoint;
mod conformance;
mod dead_letters;
mod doctor;
mod effects;
mod import;
mod lookup;
mod pages;
mod publish;
mod recover;
mod retention;
mod runs;
mod schema;
mod serve;
mod timeline;
mod verify;

/// How long an answer is waited for.
const READ_WAIT: Duration = Duration::from_secs(10);
/// How long the outcome of an append is waited for.
const APPEND_WAIT: Duration = Duration::from_secs(30);
/// How long a verification may take.
const VERIFY_WAIT: Duration = Duration::from_secs(60 * 60);

/// What a command that did its work has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    /// Unknown, unequal, not resumable, unhealthy, refused by the journal.
    No,
}

impl Answer {
    fn from_bool(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }

    /// Whether the journal took a record: now, or when it came first.
    fn of(outcome: &Outcome) -> Self {
        Self::from_bool(matches!(outcome.outcome.as_str(), "applied" | "repeat") && outcome.reason.is_none())
    }
}

impl From<Answer> for ExitCode {
    fn from(answer: Answer) -> Self {
        Self::from(match answer {
            Answer::Yes => 0,
            Answer::No => 1,
        })
    }
}

/// Runs one command.
pub(crate) fn run(cli: Cli) -> Result<Answer, Error> {
    log_to_stderr(&cli.global);
    match cli.command {
        Command::Demo(args) => return demo::run(&args, &cli.global),
        Command::DemoAgent(args) => return demo::run_agent(&args),
        Command::DemoDesk(args) => return demo::run_desk(&args),
        Command::Rebuild(_) => return Err(Error::later("`runlog rebuild`")),
        Command::Snapshot(_) => return Err(Error::later("`runlog snapshot`")),
        Command::Schema(args) => return schema::run(args, &Output::new(cli.global.json, cli.global.quiet)),
        Command::Bench(_) => return Err(Error::later("`runlog bench`")),
        _ => {}
    }
    let config = Config::read(cli.global.config.as_deref())?;
    if let Command::Serve(args) = cli.command {
        return serve::run(args, config);
    }
    let server = config.server(cli.global.server.as_deref());
    if let Command::Conformance(args) = cli.command {
        return conformance::run(&args, &server, &Output::new(cli.global.json, cli.global.quiet));
    }
    let client = Client::new(&server)?;
    let output = Output::new(cli.global.json, cli.global.quiet);
    let session = Session { client, output, config };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::new(ErrorKind::Internal, "no runtime to wait on").because(error))?;
    runtime.block_on(ask(&session, cli.command))
}

async fn ask(session: &Session, command: Command) -> Result<Answer, Error> {
    match command {
        Command::Import(args) => import::run(session, args).await,
        Command::Publish(args) => publish::run(session, args).await,
        Command::Runs(args) => runs::list(session, args).await,
        Command::Show(args) => timeline::show(session, args).await,
        Command::Tail(args) => timeline::tail(session, args).await,
        Command::Lookup(args) => lookup::run(session, args).await,
        Command::Checkpoint(args) => checkpoint::run(session, args).await,
        Command::Recover(args) => recover::run(session, args).await,
        Command::Effects(args) => effects::run(session, args).await,
        Command::Anomalies(args) => anomalies::run(session, args).await,
        Command::DeadLetter(args) => match args.action {
            DeadLetterAction::List(args) => dead_letters::list(session, args).await,
            DeadLetterAction::Show(args) => dead_letters::show(session, args).await,
            DeadLetterAction::Skip(args) => dead_letters::skip(session, args).await,
        },
        Command::Retention(args) => retention::run(session, args).await,
        Command::Doctor(args) => doctor::run(session, args).await,
        Command::Verify(args) => verify::run(session, args).await,
        Command::Demo(_)
        | Command::DemoAgent(_)
        | Command::DemoDesk(_)
        | Command::Serve(_)
        | Command::Conformance(_)
        | Command::Rebuild(_)
        | Command::Snapshot(_)
        | Command::Schema(_)
        | Command::Bench(_) => Err(Error::new(ErrorKind::Internal, "a command that asks no server was sent to one")),
    }
}

/// What every command that asks a server has at hand.
#[derive(Debug)]
struct Session {
    client: Client,
    output: Output,
    config: Config,
}

impl Session {
    /// Asks for something, as fresh as `reading` says.
    async fn read<T: DeserializeOwned>(&self, target: Target, reading: &Reading) -> Result<T, Error> {
        let target = target.with_some("consistency", self.config.consistency(reading));
        self.client.get(target, self.wait(&reading.wait, READ_WAIT)).await
    }

    fn wait(&self, given: &Wait, default: Duration) -> Duration {
        self.config.deadline(given.deadline).unwrap_or(default)
    }
}

/// The log goes to stderr: `RUST_LOG` decides, otherwise the flags.
fn log_to_stderr(global: &Global) {
    use tracing_subscriber::EnvFilter;
    let level = match (global.quiet, global.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let ansi = output::may_colour(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).init();
}

/// A request's body.
fn body(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|error| Error::new(ErrorKind::Internal, "the request does not serialise").because(error))
}

/// A position as people read it: `P:O`, and the index within a batch where there is one.
fn place(position: &Position) -> Cell {
    let Position { partition, offset, index, .. } = position;
    if *index == 0 { format!("{partition}:{offset}").into() } else { format!("{partition}:{offset}.{index}").into() }
}

/// Of which partitions a list tells only what was known before they stopped.
fn unavailable(partitions: &[PartitionId], text: &mut Text) {
    if !partitions.is_empty() {
        let partitions: Vec<String> = partitions.iter().map(PartitionId::to_string).collect();
        let missing = format!("partitions that could not be asked: {}; see runlog doctor", partitions.join(", "));
        text.line([Cell::from(missing).warn()]);
    }
}

/// Says where a list goes on.
fn more(cursor: Option<&str>, text: &mut Text) {
    if let Some(cursor) = cursor {
        text.line([Cell::from(format!("more: --cursor {cursor}")).dim()]);
    }
}

/// Content that could not be had; says nothing where there is none.
fn missing(contents: &[MissingContent], text: &mut Text) {
    if contents.is_empty() {
        return;
    }
    text.title(format!("{} missing in the content store", contents.len()));
    let row = |content: &MissingContent| {
        [
            Cell::from(&content.payload_type),
            place(&content.position),
            Cell::from(&content.reason).bad(),
            content.bytes.into(),
            Cell::from(&content.sha256),
        ]
    };
    text.table(["WHAT", "POSITION", "REASON", "BYTES", "SHA256"], contents.iter().map(row).collect(), "none");
}

/// Content that retention took away; says nothing where there is none.
fn dropped(contents: &[Dropped], text: &mut Text) {
    if contents.is_empty() {
        return;
    }
    text.title(format!("{} dropped by retention", contents.len()));
    let row = |content: &Dropped| {
        [
            Cell::from(&content.payload_type),
            place(&content.position),
            place(&content.dropped),
            (&content.record_id).into(),
        ]
    };
    text.table(["WHAT", "POSITION", "HORIZON", "RECORD"], contents.iter().map(row).collect(), "none");
}

/// What became of one appended record.
fn outcome(outcome: &Outcome, text: &mut Text) {
    text.columns([
        (8, Cell::word(&outcome.outcome)),
        (10, place(&outcome.position)),
        (10, Cell::from(outcome.reason.as_deref().unwrap_or_default()).bad()),
        (0, Cell::from(&outcome.record_id).dim()),
    ]);
}
