//! The demo of the command: runs live agents against a local journal in this process.
//!
//! ```text
//!   agents (tasks, processes) ──HTTP──▶ journal: log ─▶ projector ─▶ index ─▶ answers
//!      │ book                              ▲  pending? resolve        │ lookup, verify
//!      ▼                                   │                          ▼
//!   desk ─▶ its own ledger ───────── operator, audit ───────────── figures
//! ```
//!
//! Reading order: this file (the steps of the demo), `fleet` and `takeover` (agents, and agents that are killed), `agent` and
//! `model` (an agent's behaviour), `desk` (the booking system), `audit`, `lookups` and `rebuild` (the checks). The command
//! prints the [`Event`]s, and starts the desk and agents as processes of its own.

mod agent;
mod audit;
mod calls;
mod demo;
mod desk;
mod dice;
mod error;
mod figures;
mod fleet;
mod journal;
mod lookups;
mod model;
mod process;
mod rebuild;
mod server;
mod takeover;

pub use agent::run_agent;
pub use desk::Counter;
pub use error::Error;
pub use figures::{Figures, Undecided};
pub use journal::Setup;
pub use lookups::Way;
pub use process::end_with_parent;
pub use takeover::Takeover;

use agent::Conversation;
use audit::Audit;
use demo::Demo;
use desk::Desk;
use dice::Dice;
use fleet::Fleet;
use journal::Journal;
use process::Process;
use rebuild::Rebuild;
use runlog_schemas::answer::{Disposition, Outcome};
use serde::Deserialize;
use serde_json::{Value, json};
use server::Server;
use std::{
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::net::TcpListener;

/// The desk's ledger in the demo's folder.
const LEDGER: &str = "desk-ledger.jsonl";
/// Time limit for starting the desk.
const DESK_WAIT: Duration = Duration::from_secs(30);

/// A part of the demo's story.
#[derive(Debug)]
pub enum Event<'a> {
    /// The title of the next step.
    Step(String),
    /// A name and a fact about it.
    Fact(&'static str, String),
    /// A fact that proves a claim, or disproves it with `false`.
    Verdict(String, bool),
    /// Another agent ended.
    AgentEnded,
    /// A run was taken over.
    TakenOver(&'a Takeover),
    /// All calls were looked up, in each of these ways. The number is the number of calls.
    LookedUp(&'a [Way], u64),
}

/// The demo after its last step. The journal is still open.
#[derive(Debug)]
pub struct Played {
    /// All figures.
    pub figures: Figures,
    journal: Journal,
}

const UNDECIDED: Undecided = Undecided { run_id: "trip-undecided", id: "booking-undecided" };

/// Runs all steps of the demo with `agents` agents. `open_files` is the limit on open files of this process.
///
/// Errors: the errors of `tell`, and failures that neither prove nor disprove the demo's claims.
pub async fn play<E: From<Error>>(
    setup: Setup,
    seed: u64,
    agents: u32,
    open_files: u64,
    mut tell: impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<Played, E> {
    let start = Instant::now();
    let ledger = setup.folder.join(LEDGER);
    let mut differences = Vec::new();
    tell(Event::Step("A journal and an airline desk".into()))?;
    let (journal, demo, desk) = open(setup, seed, &ledger, &mut tell).await?;

    tell(Event::Step(format!("{agents} agents book trips; some are killed with a booking in flight")))?;
    let working = Instant::now();
    let (conversations, takeovers) = work(&demo, agents, open_files, &mut differences, &mut tell).await?;
    let agents_seconds = working.elapsed().as_secs_f64();
    let (in_processes, ended) = (agents.min(fleet::PROCESSES), grouped(conversations.len() as u64));
    let tasks = agents - in_processes;
    let kinds = format!("{tasks} as tasks, {in_processes} as processes of their own");
    tell(Event::Fact("agents", format!("{kinds}; {ended} finished after {agents_seconds:.1} s")))?;

    tell(Event::Step("The desk's ledger against the journal, booking by booking".into()))?;
    let agent_calls = calls::from_conversations(&conversations)?;
    let calls = agent_calls.len() as u64;
    let audit = audit::audit(&demo, &ledger, &agent_calls, &mut differences).await?;
    tell_audit(&audit, calls, &mut tell)?;

    tell(Event::Step("Every call looked up by tool and arguments, with the members in another order".into()))?;
    let lookups = lookups::measure_all(&demo, &journal, &agent_calls, &mut differences).await?;
    tell(Event::LookedUp(&lookups, calls))?;
    // The remaining steps use neither the server nor the desk.
    drop((demo, desk));

    tell(Event::Step("The index deleted and rebuilt from the log".into()))?;
    let (journal, rebuild) = rebuild_index(journal, &mut differences, &mut tell).await?;
    let again = lookups::measure(seed, None, &journal, "eventual", &agent_calls, &mut differences).await?;
    tell(Event::Fact("calls", format!("{} of {} found in the new index", grouped(again.found), grouped(calls))))?;
    let count = |wanted: fn(&Takeover) -> u32| takeovers.iter().map(wanted).sum::<u32>();
    let figures = Figures {
        proved: differences.is_empty(),
        differences,
        seed,
        agents,
        tasks,
        processes: in_processes + count(|takeover| takeover.processes - 1),
        killed: count(|_| 1),
        taken_over: count(|_| 1),
        reconciled: count(|takeover| takeover.reconciled.into()),
        takeovers,
        records: rebuild.records,
        calls,
        audit,
        lookups,
        found_after_rebuild: again.found,
        rebuild,
        agents_seconds,
        seconds: start.elapsed().as_secs_f64(),
        data: None,
        serving: None,
        undecided: None,
    };
    Ok(Played { figures, journal })
}

/// Starts journal and desk. The desk is open until its process is dropped.
async fn open<E: From<Error>>(
    setup: Setup,
    seed: u64,
    ledger: &Path,
    tell: &mut impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<(Journal, Arc<Demo>, Process), E> {
    #[derive(Deserialize)]
    struct Opened {
        listening: SocketAddr,
    }
    let journal = Journal::start(setup).await?;
    let (url, partitions) = (journal.url(), journal.projector.journal().partitions);
    tell(Event::Fact("journal", format!("{url}, local log of {partitions} partitions, projector in this process")))?;
    let arguments = ["demo-desk".to_owned(), format!("--ledger={}", ledger.display())];
    let mut desk = Process::start("the desk".into(), &arguments)?;
    let Opened { listening } = desk.document(DESK_WAIT).await?;
    let number = desk.id().unwrap_or_default();
    let what = format!("{listening}, process {number}, with its own ledger and without any use of Runlog");
    tell(Event::Fact("desk", what))?;
    let demo = Demo { seed, server: Server::new(&url)?, url, desk: Desk::new(listening) };
    Ok((journal, Arc::new(demo), desk))
}

/// Lets all agents book their trips.
async fn work<E: From<Error>>(
    demo: &Arc<Demo>,
    agents: u32,
    open_files: u64,
    differences: &mut Vec<String>,
    tell: &mut impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<(Vec<Conversation>, Vec<Takeover>), E> {
    let mut fleet = Fleet::send_out(demo, agents, open_files).await?;
    let (mut conversations, mut takeovers) = (Vec::new(), Vec::new());
    while let Some(ended) = fleet.next().await? {
        tell(Event::AgentEnded)?;
        match ended {
            Ok((conversation, takeover)) => {
                conversations.push(conversation);
                takeover.iter().try_for_each(|takeover| tell(Event::TakenOver(takeover)))?;
                takeovers.extend(takeover);
            }
            Err(error) => differences.push(runlog_schemas::answer::with_causes(&error)),
        }
    }
    Ok((conversations, takeovers))
}

fn tell_audit<E>(
    Audit { in_ledger, in_journal, twice, lost, prices, calls }: &Audit,
    made: u64,
    tell: &mut impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let both = format!("{} in the ledger, {} completed in the journal", grouped(*in_ledger), grouped(*in_journal));
    tell(Event::Fact("bookings", both))?;
    tell(Event::Verdict(format!("{twice} booked twice, {lost} lost"), twice + lost == 0))?;
    let answered = format!("{} requested twice each; the desk returned {}", grouped(prices / 2), grouped(*prices));
    tell(Event::Fact("prices", answered))?;
    tell(Event::Fact("calls", format!("{} in the journal, {} made by agents", grouped(*calls), grouped(made))))
}

/// Deletes the index and rebuilds it from the log.
async fn rebuild_index<E: From<Error>>(
    journal: Journal,
    differences: &mut Vec<String>,
    tell: &mut impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<(Journal, Rebuild), E> {
    let before = rebuild::verify(&journal, differences).await?;
    let equal = if before.equal { "equal" } else { "not equal" };
    let records = grouped(before.records);
    let what = format!("{records} records read again in {:.2} s, the index is {equal}", before.seconds);
    tell(Event::Fact("verify", what))?;
    let (journal, rebuild) = rebuild::rebuild(journal, &before, differences).await?;
    let (rate, rows) = (grouped(rebuild.records_per_second as u64), grouped(rebuild.rows));
    tell(Event::Fact("rebuilt", format!("{rows} rows in {:.2} s: {rate} records/s", rebuild.seconds)))?;
    let Rebuild { digests, digests_equal, .. } = rebuild;
    tell(Event::Verdict(format!("{digests_equal} of {digests} digests as before"), digests_equal == digests))?;
    Ok((journal, rebuild))
}

impl Played {
    /// Serves the journal at another address. Leaves a call pending for a decision, as a killed process does: the
    /// booking has no recorded end and no idempotency key.
    pub async fn serve(self, listener: TcpListener) -> Result<Self, Error> {
        let Self { mut figures, journal } = self;
        let journal = Journal::start_at(journal.end().await?, listener).await?;
        journal.caught_up().await?;
        let record = |id: &str, payload: Value| json!({"run_id": UNDECIDED.run_id, "record_id": id, "agent_id": agent::AGENT, "payload": payload});
        let records = json!([
            record("started-undecided", json!({"type": "run_lifecycle", "status": "started"})),
            record(
                UNDECIDED.id,
                json!({"type": "tool_call_requested", "request_id": "turn-1", "call_id": "call-1",
                    "tool_name": "book_flight",
                    "arguments": {"flight": "AQ 101", "date": "2027-05-01", "passenger": "Ada Berg"}}),
            ),
        ]);
        let outcomes: Vec<Outcome> =
            Server::new(&journal.url())?.post(&["runs", UNDECIDED.run_id, "records"], &records).await?;
        if let Some(refused) = outcomes.iter().find(|outcome| outcome.outcome != Disposition::Applied) {
            return Err(Error::internal(format!("record {:?} was refused", refused.record_id.as_str())));
        }
        (figures.serving, figures.undecided) = (Some(journal.url()), Some(UNDECIDED));
        Ok(Self { figures, journal })
    }

    /// Closes the journal.
    pub async fn end(self) -> Result<(), Error> {
        self.journal.end().await.map(drop)
    }
}

/// Makes the seed of a demo from a random text.
pub fn seed_from(text: &str) -> u64 {
    Dice::from_text(text).below(1_000_000_000).into()
}

/// Formats `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_easily() {
        assert_eq!(
            [0, 12, 999, 1000, 123_456, 1_234_567].map(grouped),
            ["0", "12", "999", "1,000", "123,456", "1,234,567"]
        );
    }
}
