//! `make bench`: Runlog's figures, each with an alternative, in one run. Needs Docker and the Kafka image.
//!
//! Ways alternate from round to round. Machines are noisy, so the ratios of one round count, and CPU time is reported next
//! to wall time. `bench compare` shows which ratios of two reports differ beyond their spread.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the figures of a command")]

mod append;
mod compare;
mod consume;
mod fold;
mod gate;
mod kafka_tools;
mod load;
mod machine;
mod measure;
mod peers;
mod plot;
mod questions;
mod records;
mod report;
mod savers;
mod served;
mod soak;
mod streams;
mod visible;

use anyhow::ensure;
use clap::{Parser, Subcommand, ValueEnum};
use kafka_tools::KafkaTools;
use peers::{Peer, Peers};
use report::{Figure, Report};
use runlog_tests::kafka::Broker;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use streams::Streams;

/// The same allocator as the binary's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Approximate records of a run of the projected journal.
const RECORDS_PER_RUN: u64 = 100;

/// The time of records that a projector itself writes: only the genesis here.
fn clock() -> u64 {
    1_700_000_000_000
}

fn id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Benchmarks of Runlog.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure, and write report.md, report.json and plots.
    Run {
        /// Under five minutes: fewer and shorter rounds, fewer records.
        #[arg(long, env = "QUICK", value_parser = clap::builder::FalseyValueParser::new())]
        quick: bool,
        /// Only this figure; repeatable.
        #[arg(long = "only", value_enum)]
        only: Vec<Subject>,
        /// Leave this peer out; repeatable, or several separated by commas. Otherwise the run fails at its end if a peer could
        /// not be installed.
        #[arg(long, env = "WITHOUT", value_enum, value_delimiter = ',')]
        without: Vec<Peer>,
        /// Records of the projected journal.
        #[arg(long, env = "RUNLOG_BENCH_RECORDS")]
        records: Option<u64>,
        /// The folder of the report.
        #[arg(long, default_value = "target/bench")]
        out: PathBuf,
    },
    /// Project small records at full speed, and print the memory of the server each minute.
    Soak {
        /// The duration in minutes.
        #[arg(long, default_value_t = 60)]
        minutes: u64,
        /// The folder of the indices, on the measured disk. Default: a new folder in the system's temporary folder.
        #[arg(long)]
        data: Option<PathBuf>,
    },
    /// Print which ratios of two reports differ beyond their spread.
    Compare {
        /// A report's folder, or its report.json.
        before: PathBuf,
        after: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    Append,
    Consume,
    Fold,
    Questions,
    Served,
    Visible,
    Gate,
    Load,
    Savers,
    Streams,
}

impl Subject {
    fn needs_broker(self) -> bool {
        !matches!(self, Self::Fold | Self::Questions | Self::Savers)
    }
}

/// The size of a run.
#[derive(Clone, Copy, Debug)]
struct Scale {
    rounds: usize,
    /// The duration of a round of one way, if time bounds it.
    round: Duration,
    /// Records of the projected journal.
    records: u64,
    /// Queries of a round.
    questions: u32,
    /// Threads of each of LangGraph's savers.
    threads: u32,
}

impl Scale {
    const WHOLE: Self =
        Self { rounds: 5, round: Duration::from_secs(8), records: 1_000_000, questions: 10_000, threads: 5 };
    const QUICK: Self =
        Self { rounds: 3, round: Duration::from_secs(3), records: 100_000, questions: 1_000, threads: 2 };
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Run { quick, only, without, records, out } => {
            let scale = if quick { Scale::QUICK } else { Scale::WHOLE };
            let scale = Scale { records: records.unwrap_or(scale.records), ..scale };
            let report = measure_all(&only, Peers::new(without), &scale, &out)?;
            println!("{}", report.markdown());
            eprintln!("the report is {}", out.join("report.md").display());
            let missing: Vec<_> =
                report.not_run.iter().filter(|peer| !peer.left_out).map(|peer| peer.peer.name()).collect();
            ensure!(missing.is_empty(), "not run: {} (WITHOUT leaves peers out)", missing.join(", "));
        }
        Command::Soak { minutes, data } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let temporary = tempfile::tempdir()?;
            soak::run(&runtime, minutes, data.as_deref().unwrap_or(temporary.path()))?;
        }
        Command::Compare { before, after } => {
            println!("{}", compare::table(&Report::read(&before)?, &Report::read(&after)?));
        }
    }
    Ok(())
}

/// Measures, and writes the report to `out` after each figure, so that an interrupted run keeps its figures.
fn measure_all(only: &[Subject], peers: Peers, scale: &Scale, out: &Path) -> anyhow::Result<Report> {
    let machine = machine::Machine::here();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let wanted = |subject| only.is_empty() || only.contains(&subject);
    let mut report = Report { machine, command: command(), not_run: Vec::new(), figures: Vec::new() };
    let mut done = |figure: Figure| {
        eprintln!("measured: {}", figure.title);
        report.figures.push(figure);
        report.write(out)
    };
    // These run first, before a broker uses the machine.
    if wanted(Subject::Fold) {
        done(fold::run(&runtime, scale)?)?;
    }
    if wanted(Subject::Questions) {
        done(questions::run(scale)?)?;
    }
    if wanted(Subject::Savers) {
        savers::run(scale, &peers)?.into_iter().try_for_each(&mut done)?;
    }
    if only.is_empty() || only.iter().any(|subject| subject.needs_broker()) {
        let broker = Broker::start()?;
        if wanted(Subject::Append) || wanted(Subject::Consume) {
            let tools = peers.get(Peer::KafkaTools, KafkaTools::install);
            if wanted(Subject::Append) {
                done(append::run(&runtime, &broker, scale, tools.as_ref())?)?;
            }
            if wanted(Subject::Consume) {
                done(consume::run(&runtime, &broker, scale, tools.as_ref())?)?;
            }
        }
        if wanted(Subject::Visible) {
            done(visible::run(&runtime, &broker, scale)?)?;
        }
        if wanted(Subject::Gate) {
            done(runtime.block_on(gate::run(&broker, scale))?)?;
        }
        if wanted(Subject::Served) {
            runtime.block_on(served::run(&broker, scale))?.into_iter().try_for_each(&mut done)?;
        }
        if wanted(Subject::Load) {
            done(runtime.block_on(load::run(&broker, scale))?)?;
        }
        if wanted(Subject::Streams)
            && let Some(streams) = peers.get(Peer::Streams, Streams::install)
        {
            done(streams::run(&runtime, &broker, scale, &streams)?)?;
        }
    }
    report.not_run = peers.not_run();
    report.write(out)?;
    Ok(report)
}

/// The command line, with the variables of the environment that change the run.
fn command() -> String {
    let set =
        |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty()).map(|value| format!("{name}={value}"));
    let environment = ["QUICK", "WITHOUT", "RUNLOG_BENCH_RECORDS"].into_iter().filter_map(set);
    environment.chain(std::env::args()).collect::<Vec<_>>().join(" ")
}
