//! Two processes race for one booking while the projector is paused. Their appends go to the topic regardless; the
//! effect happens once, in whichever order they learn the outcomes.
//!
//! The tests wait for both appends by reading the topic with a separate client.

use anyhow::{Context, ensure};
use runlog_tests::{
    agent_process::{AgentProcess, booking},
    agreement::witness::{TopicRecord, Witness},
    deployment::Deployment,
};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};

/// How long records may take to appear in the topic.
const LAND_WAIT: Duration = Duration::from_secs(60);
/// The pause between two reads of the topic.
const LOOK: Duration = Duration::from_millis(10);

fn book(key: Option<&str>) -> Value {
    booking("1A", key)
}

/// A journal whose projector can be paused, and a reader of its topic.
struct Race {
    deployment: Deployment,
    witness: Witness,
}

impl Race {
    fn start() -> anyhow::Result<Self> {
        let deployment = Deployment::kafka()?;
        let witness = Witness::new(deployment.topic().context("a topic")?, deployment.server.partitions)?;
        Ok(Self { deployment, witness })
    }

    /// Two processes which have read the same head of a run and are about to claim it.
    fn at_the_head(&self, run: &str) -> anyhow::Result<[AgentProcess; 2]> {
        let mut agents = [self.deployment.agent()?, self.deployment.agent()?];
        for agent in &mut agents {
            agent.arm_failpoint("head_read")?;
            agent.run_to_failpoint("head_read", &json!({ "open": { "run": run } }))?;
        }
        Ok(agents)
    }

    /// Releases both agents while the projector is paused; resumes the projector after both records are in the topic.
    /// `between` is the number of records to await before the second agent is released.
    fn both_append(&mut self, [one, other]: [&mut AgentProcess; 2], between: usize) -> anyhow::Result<()> {
        self.witness.read()?;
        self.deployment.server.stop()?;
        one.release()?;
        // With `between` = 1 the order is fixed: the first record is in the topic before the second agent continues.
        let mut landed = self.await_records(between)?;
        other.release()?;
        landed.extend(self.await_records(2 - between)?);
        let shown = || {
            landed.iter().map(|record| {
                format!("{}:{} {}", record.partition, record.offset, String::from_utf8_lossy(&record.value))
            })
        };
        ensure!(landed.len() == 2, "{} records of two appends: {:?}", landed.len(), shown().collect::<Vec<_>>());
        self.deployment.server.resume()
    }

    /// Waits until the topic has `records` more records, and returns them.
    fn await_records(&mut self, records: usize) -> anyhow::Result<Vec<TopicRecord>> {
        let (started, mut landed) = (Instant::now(), Vec::new());
        while landed.len() < records {
            ensure!(started.elapsed() < LAND_WAIT, "{} of {records} records landed", landed.len());
            landed.extend(self.witness.read()?);
            thread::sleep(LOOK);
        }
        Ok(landed)
    }
}

/// Books, and returns the answer. Without a key the call may need a decision of an operator first: decides `not_done`
/// and books again.
fn book_with_decision(race: &Race, run: &str, agent: &mut AgentProcess, key: Option<&str>) -> anyhow::Result<Value> {
    let answer = agent.request(&book(key))?;
    if answer["error"] != "reconcile_required" {
        return Ok(answer);
    }
    ensure!(key.is_none() && race.deployment.booked_by(run)?.is_empty(), "{answer}");
    let runlog = race.deployment.server.runlog();
    let recovery = runlog.json(&["recover", run])?.exits(1)?.json()?;
    let pending = recovery["pending"][0]["id"].as_str().context("an id")?;
    let why = ["--not-done", "--who", "test", "--why", "the other process was fenced", "--yes"];
    runlog.answer(&[&["effects", "resolve", run, pending], &why[..]].concat())?;
    agent.request(&book(key))
}

/// Both agents have read the same head. They claim the run while no claim is applied or answered.
#[test]
fn one_of_two_claimants_books_while_the_projector_is_paused() -> anyhow::Result<()> {
    let mut race = Race::start()?;
    for (run, between) in [("together", 0), ("one by one", 1), ("together again", 0)] {
        let [mut one, mut other] = race.at_the_head(run)?;
        race.both_append([&mut one, &mut other], between)?;
        let answers = [one.receive()?, other.receive()?];
        let won: Vec<bool> = answers.iter().map(|answer| answer["opened"]["epoch"] == 1).collect();
        let lost: Vec<bool> = answers.iter().map(|answer| answer["error"] == "claim_lost").collect();
        ensure!(won[0] != won[1] && lost[0] == won[1] && lost[1] == won[0], "{answers:?}");
        let (winner, loser) = if won[0] { (&mut one, &mut other) } else { (&mut other, &mut one) };
        let booked = winner.request(&book(None))?;
        ensure!(booked["result"].is_object() && booked["recorded"] == false, "{booked}");
        // The loser takes the run over and gets the result of the winner's booking.
        loser.open(run)?;
        let again = loser.request(&book(None))?;
        ensure!(again["recorded"] == true && again["result"] == booked["result"], "{again}, not {booked}");
        ensure!(race.deployment.booked_by(run)? == [winner.id()], "{:?}", race.deployment.ledger()?);
    }
    race.deployment.verified()
}

/// The booker has the run and is about to append its intent while the taker claims the run. No append is applied or
/// answered meanwhile.
#[test]
fn a_booking_that_races_a_takeover_with_a_paused_projector_happens_once() -> anyhow::Result<()> {
    let mut race = Race::start()?;
    // Which record is appended first; `between` = 0 leaves the order open.
    let orders = [("intent", true, 1), ("claim", false, 1), ("either", true, 0)];
    let mut fenced = 0;
    for (key, keyed) in [(None, "keyless"), (Some("k"), "keyed")] {
        for (order, booker_first, between) in orders {
            let run = format!("{keyed}-{order}");
            let (mut booker, mut taker) = (race.deployment.agent()?, race.deployment.agent()?);
            booker.open(&run)?;
            booker.arm_failpoint("record_numbered")?;
            booker.run_to_failpoint("record_numbered", &book(key))?;
            taker.arm_failpoint("head_read")?;
            taker.run_to_failpoint("head_read", &json!({ "open": { "run": run } }))?;
            let both = if booker_first { [&mut booker, &mut taker] } else { [&mut taker, &mut booker] };
            race.both_append(both, between)?;
            // The log contains the claim before the booker gets the outcome of its intent.
            let answer = booker.receive()?;
            ensure!(answer["error"] == "fenced", "{run}: {answer}");
            ensure!(race.deployment.booked_by(&run)?.is_empty(), "{run}: {:?}", race.deployment.ledger()?);
            fenced += race.deployment.anomalies(&run)?.len();
            let answer = taker.receive()?;
            ensure!(answer["opened"]["epoch"] == 2, "{run}: {answer}");
            let answer = book_with_decision(&race, &run, &mut taker, key)?;
            ensure!(answer["result"].is_object() && answer["recorded"] == false, "{run}: {answer}");
            ensure!(race.deployment.booked_by(&run)? == [taker.id()], "{run}: {:?}", race.deployment.ledger()?);
        }
    }
    // An intent after the claim is refused; an intent before the claim is applied.
    ensure!((2..=4).contains(&fenced), "{fenced} intents were fenced");
    race.deployment.verified()
}
