//! `demo`: runs live agents against a local journal in this process.
//!
//! ```text
//!   agents (tasks, processes) ──HTTP──▶ journal: log ─▶ projector ─▶ index ─▶ answers
//!      │ book                              ▲  pending? resolve        │ lookup, verify
//!      ▼                                   │                          ▼
//!   desk ─▶ its own ledger ───────── operator, audit ───────────── figures
//! ```
//!
//! Reading order: this file (the steps of the demo), `fleet` and `crash` (agents, and agents that are killed), `agent` and
//! `model` (an agent's behaviour), `desk` (the booking system), `audit`, `lookups` and `rebuild` (the checks).

use crate::{
    Error,
    args::{self, Global},
    exit::Answer,
    listen,
    output::Output,
    text::Cell,
};
use runlog_schemas::answer::ErrorKind;
use serde::Deserialize;
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

mod agent;
mod audit;
mod calls;
mod crash;
mod desk;
mod dice;
mod figures;
mod fleet;
mod folder;
mod journal;
mod lookups;
mod model;
mod process;
mod rebuild;
mod site;
mod story;
mod undecided;

pub(crate) use agent::run as run_agent;
pub(crate) use desk::run as run_desk;

use agent::Life;
use audit::Audit;
use calls::AgentCall;
use crash::Takeover;
use desk::Desk;
use figures::Figures;
use fleet::{Ended, Fleet};
use folder::Folder;
use journal::Journal;
use process::Process;
use rebuild::Rebuild;
use site::Site;
use story::{Story, grouped};
use undecided::Undecided;

/// Default number of agents.
const AGENTS: u32 = 300;
/// The desk's ledger in the demo's folder.
const LEDGER: &str = "desk-ledger.jsonl";
/// Time limit for starting the desk.
const DESK_WAIT: Duration = Duration::from_secs(30);
/// Time limit for the tasks to end when the demo is interrupted.
const END_WAIT: Duration = Duration::from_secs(5);

/// Runs the demo.
pub(crate) fn run(args: &args::Demo, global: &Global) -> Result<Answer, Error> {
    let output = Output::new(global.json, global.quiet);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Error::new(ErrorKind::Internal, "cannot start the async runtime").because(error))?;
    let folder = Folder::new(args)?;
    let result = runtime.block_on(until_ended(args, &folder, &output));
    // Aborts the remaining tasks, which kills their processes.
    runtime.shutdown_timeout(END_WAIT);
    result
}

/// Runs the demo. With `--serve` it then serves the journal until a signal.
async fn until_ended(args: &args::Demo, folder: &Folder, output: &Output) -> Result<Answer, Error> {
    let mut ending = Ending::listen()?;
    let result = tokio::select! {
        result = play(args, folder, output) => result,
        () = ending.signalled() => return Err(Error::new(ErrorKind::Unavailable, "the demo was interrupted")),
    };
    let (answer, journal) = match result {
        Ok(result) => result,
        Err(error) if error.is_output_closed() => return Err(error),
        Err(error) => {
            folder.keep();
            let what = format!("the demo failed; its log, index and ledger are in {}", folder.path().display());
            return Err(Error::new(error.kind(), what).because(error));
        }
    };
    if args.serve {
        ending.signalled().await;
    }
    journal.end().await?;
    Ok(answer)
}

/// Runs all steps of the demo and leaves the journal open.
async fn play(args: &args::Demo, folder: &Folder, output: &Output) -> Result<(Answer, Journal), Error> {
    let start = Instant::now();
    let agents = args.agents.unwrap_or(AGENTS);
    let seed = args.seed.unwrap_or_else(|| dice::Dice::from_text(&crate::random_id()).below(1_000_000_000).into());
    if let Some(address) = &args.listen {
        // Fail now rather than after the demo. The port is bound again at the end.
        let listener = listen::bind(address).await?;
        if !listener.local_addr().is_ok_and(|address| address.ip().is_loopback()) {
            return Err(Error::usage(format!(
                "the demo is for this machine only: {address} is not a loopback address, such as 127.0.0.1:7071"
            )));
        }
    }
    let mut story = Story::new(output);
    let stays = if folder.stays() { "stays" } else { "is deleted at the end; --keep keeps it" };
    story.say(
        Cell::from(format!("Runlog: {agents} live agents, a crash in the middle of a booking, an index deleted"))
            .strong(),
    )?;
    story.say(Cell::from(format!("seed {seed}, folder {} ({stays})", folder.path().display())).dim())?;
    let stage = open(&mut story, folder, seed).await?;
    let mut differences = Vec::new();
    let Work { lives, takeovers, seconds } = work(&mut story, output, &stage.site, agents, &mut differences).await?;
    let agent_calls = calls::from_lives(&lives)?;
    let audit = compare(&mut story, &stage, folder, &agent_calls, &mut differences).await?;
    story.step("Every call again, by tool and arguments, their keys shuffled")?;
    let lookups = lookups::measure_all(&stage.site, &stage.journal, &agent_calls, &mut differences).await?;
    story.lookups(&lookups, agent_calls.len() as u64)?;
    let Stage { site, journal, desk } = stage;
    // The remaining steps use neither of them.
    drop((site, desk));
    let (journal, rebuild) = throw_away(&mut story, journal, folder, &mut differences).await?;
    let after_rebuild = lookups::measure_in_process(seed, &journal, "eventual", &agent_calls, &mut differences).await?;
    story.fact(
        "calls",
        format!("{} of {} found in the new index", grouped(after_rebuild.found), grouped(agent_calls.len() as u64)),
    )?;
    let (journal, served) =
        if args.serve { serve(journal, folder, args.listen.as_deref()).await? } else { (journal, None) };
    let (serving, undecided) = served.unzip();
    if !differences.is_empty() {
        folder.keep();
    }
    let in_processes = agents.min(fleet::PROCESSES);
    let figures = Figures {
        proved: differences.is_empty(),
        differences,
        seed,
        agents,
        tasks: agents - in_processes,
        processes: in_processes + takeovers.iter().map(|takeover| takeover.processes - 1).sum::<u32>(),
        killed: takeovers.len() as u32,
        taken_over: takeovers.len() as u32,
        reconciled: takeovers.iter().filter(|takeover| takeover.reconciled).count() as u32,
        takeovers,
        records: rebuild.records,
        calls: agent_calls.len() as u64,
        audit,
        lookups,
        found_after_rebuild: after_rebuild.found,
        rebuild,
        agents_seconds: seconds,
        seconds: start.elapsed().as_secs_f64(),
        data: folder.stays().then(|| folder.path().to_owned()),
        serving,
        undecided,
    };
    print_end(&story, output, &figures)?;
    Ok((if figures.proved { Answer::Yes } else { Answer::No }, journal))
}

/// The parts of the running demo.
struct Stage {
    site: Arc<Site>,
    journal: Journal,
    /// The desk, which is open until this value is dropped.
    desk: Process,
}

async fn open(story: &mut Story<'_>, folder: &Folder, seed: u64) -> Result<Stage, Error> {
    #[derive(Deserialize)]
    struct Opened {
        listening: SocketAddr,
    }
    story.step("A journal and an airline desk")?;
    let journal = Journal::start(folder.path(), journal::any_port().await?).await?;
    let partitions = journal.projector().journal().partitions;
    story.fact(
        "journal",
        format!("{}, local log of {partitions} partitions, projector in this process", journal.url()),
    )?;
    let ledger = folder.path().join(LEDGER);
    let mut desk =
        Process::start("the desk".into(), &["demo-desk".to_owned(), format!("--ledger={}", ledger.display())])?;
    let Opened { listening } = desk.document(DESK_WAIT).await?;
    let number = desk.id().unwrap_or_default();
    story.fact("desk", format!("{listening}, process {number}, with its own ledger and without any use of Runlog"))?;
    let site = Arc::new(Site::new(seed, journal.url(), Desk::new(listening))?);
    Ok(Stage { site, journal, desk })
}

struct Work {
    lives: Vec<Life>,
    takeovers: Vec<Takeover>,
    seconds: f64,
}

/// Lets all agents book their trips.
async fn work(
    story: &mut Story<'_>,
    output: &Output,
    site: &Arc<Site>,
    agents: u32,
    differences: &mut Vec<String>,
) -> Result<Work, Error> {
    story.step(&format!("{agents} agents book trips; some are killed with a booking in flight"))?;
    let start = Instant::now();
    let progress = output.progress("trips", agents.into());
    let mut fleet = Fleet::send_out(site, agents).await?;
    let (mut lives, mut takeovers) = (Vec::new(), Vec::new());
    while let Some(ended) = fleet.next().await? {
        progress.advance(1);
        let Ended { life, takeover } = match ended {
            Ok(ended) => ended,
            Err(error) => {
                differences.push(error.chain());
                continue;
            }
        };
        lives.push(life);
        if let Some(takeover) = takeover {
            progress.clear();
            story.takeover(&takeover)?;
            takeovers.push(takeover);
        }
    }
    drop(progress);
    let seconds = start.elapsed().as_secs_f64();
    let processes = agents.min(fleet::PROCESSES);
    let kinds = format!("{} as tasks, {processes} as processes of their own", agents - processes);
    story.fact("agents", format!("{kinds}; {} through after {seconds:.1} s", grouped(lives.len() as u64)))?;
    Ok(Work { lives, takeovers, seconds })
}

/// Compares the desk's ledger with the journal.
async fn compare(
    story: &mut Story<'_>,
    stage: &Stage,
    folder: &Folder,
    agent_calls: &[AgentCall],
    differences: &mut Vec<String>,
) -> Result<Audit, Error> {
    story.step("The desk's ledger against the journal, booking by booking")?;
    let audit = audit::audit(&stage.site, &folder.path().join(LEDGER), agent_calls, differences).await?;
    let Audit { in_ledger, in_journal, twice, lost, prices, calls } = audit;
    let both = format!("{} in the ledger, {} completed in the journal", grouped(in_ledger), grouped(in_journal));
    story.fact("bookings", both)?;
    let verdict = Cell::from(format!("{twice} booked twice, {lost} lost"));
    story.fact("", if twice + lost == 0 { verdict.good() } else { verdict.bad() })?;
    story
        .fact("prices", format!("{} asked for, each twice: the desk gave {}", grouped(prices / 2), grouped(prices)))?;
    story.fact(
        "calls",
        format!("{} in the journal, {} made by agents", grouped(calls), grouped(agent_calls.len() as u64)),
    )?;
    Ok(audit)
}

/// Deletes the index and rebuilds it from the log.
async fn throw_away(
    story: &mut Story<'_>,
    journal: Journal,
    folder: &Folder,
    differences: &mut Vec<String>,
) -> Result<(Journal, Rebuild), Error> {
    story.step("The index deleted and rebuilt from the log")?;
    let before = rebuild::verify(&journal, differences).await?;
    let what = format!("{} records read again in {:.2} s, the index is", grouped(before.records), before.seconds);
    story.fact("verify", format!("{what} {}", if before.equal { "equal" } else { "not equal" }))?;
    let (journal, rebuild) = rebuild::rebuild(journal, &before, folder.path(), differences).await?;
    let (rate, rows) = (grouped(rebuild.records_per_second as u64), grouped(rebuild.rows));
    story.fact("rebuilt", format!("{rows} rows in {:.2} s: {rate} records/s", rebuild.seconds))?;
    let digests = Cell::from(format!("{} of {} digests as before", rebuild.digests_equal, rebuild.digests));
    story.fact("", if rebuild.digests_equal == rebuild.digests { digests.good() } else { digests.bad() })?;
    Ok((journal, rebuild))
}

/// Serves the journal at `address`, by default at the default address or, if that is in use, at a free port. Leaves a call
/// pending for a decision.
async fn serve(
    journal: Journal,
    folder: &Folder,
    address: Option<&str>,
) -> Result<(Journal, Option<(String, Undecided)>), Error> {
    journal.end().await?;
    let listener = match address {
        Some(address) => listen::bind(address).await?,
        None => match listen::bind(listen::DEFAULT).await {
            Ok(listener) => listener,
            Err(_) => journal::any_port().await?,
        },
    };
    let journal = Journal::start(folder.path(), listener).await?;
    journal.caught_up().await?;
    let url = journal.url();
    let undecided = undecided::leave(&url).await?;
    Ok((journal, Some((url, undecided))))
}

/// Prints the end of the demo, or its figures.
fn print_end(story: &Story<'_>, output: &Output, figures: &Figures) -> Result<(), Error> {
    story.end(figures)?;
    if figures.proved {
        story.next(figures)?;
    }
    if figures.data.is_some() || figures.serving.is_some() {
        story.say(Cell::default())?;
    }
    if let Some(data) = &figures.data {
        story.say(Cell::from(format!("Log, index and ledger are in {}", data.display())).dim())?;
    }
    if let Some(url) = &figures.serving {
        story.say(Cell::from(format!("Serving {url} until Ctrl-C")).strong())?;
    }
    output.conclude(figures)
}

/// The signals that end the demo.
struct Ending {
    terminate: Signal,
    interrupt: Signal,
}

impl Ending {
    fn listen() -> Result<Self, Error> {
        let unheard = |error| Error::new(ErrorKind::Internal, "cannot listen for signals").because(error);
        let listen = |kind| signal(kind).map_err(unheard);
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn signalled(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
