//! Two processes race for one booking while the projector is paused. Their appends go to the topic regardless; the
//! effect happens once, in whichever order they learn the outcomes.
//!
//! The tests wait for both appends by reading the topic with a client of their own.

use anyhow::{Context, ensure};
use runlog_tests::{
    agent_process::AgentProcess,
    agreement::witness::{Stood, Witness},
    deployment::Deployment,
};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};

/// How long records may take to stand in the topic, and how often it is looked at.
const LAND_WAIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

fn book(key: Option<&str>) -> Value {
    json!({ "call": { "tool": "book", "args": { "seat": "1A" }, "key": key } })
}

/// A journal whose projector can be stopped, and what stands in its topic.
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

    /// Lets both go on while the projector stands still, and lets that go on when both have appended.
    fn both_append(&mut self, [one, other]: [&mut AgentProcess; 2], between: usize) -> anyhow::Result<()> {
        self.witness.read()?;
        self.deployment.server.stop()?;
        one.release()?;
        // The first one's record stands in the topic before the other goes, or both are on their way at once.
        let mut landed = self.landed(between)?;
        other.release()?;
        landed.extend(self.landed(2 - between)?);
        let shown = || {
            landed.iter().map(|record| {
                format!("{}:{} {}", record.partition, record.offset, String::from_utf8_lossy(&record.value))
            })
        };
        ensure!(landed.len() == 2, "{} records of two appends: {:?}", landed.len(), shown().collect::<Vec<_>>());
        self.deployment.server.go_on()
    }

    /// Waits until so many more records stand in the topic.
    fn landed(&mut self, records: usize) -> anyhow::Result<Vec<Stood>> {
        let (begun, mut landed) = (Instant::now(), Vec::new());
        while landed.len() < records {
            ensure!(begun.elapsed() < LAND_WAIT, "{} of {records} records landed", landed.len());
            landed.extend(self.witness.read()?);
            thread::sleep(LOOK);
        }
        Ok(landed)
    }

    /// The processes whose effects happened in a run.
    fn booked(&self, run: &str) -> anyhow::Result<Vec<u64>> {
        let ledger = self.deployment.ledger()?;
        let of_run = ledger.iter().filter(|line| line["run"] == run);
        of_run.map(|line| line["process"].as_u64().context("a process")).collect()
    }
}

/// What it comes to where nobody but an operator may say whether the first one's effect happened.
fn decided(race: &Race, run: &str, agent: &mut AgentProcess, key: Option<&str>) -> anyhow::Result<Value> {
    let said = agent.request(&book(key))?;
    if said["error"] != "reconcile_required" {
        return Ok(said);
    }
    ensure!(key.is_none() && race.booked(run)?.is_empty(), "{said}");
    let runlog = race.deployment.server.runlog();
    let recovery = runlog.json(&["recover", run])?.exits(1)?.json()?;
    let pending = recovery["pending"][0]["id"].as_str().context("an id")?;
    let why = ["--not-done", "--who", "test", "--why", "the other one was fenced", "--yes"];
    runlog.answer(&[&["effects", "resolve", run, pending], &why[..]].concat())?;
    agent.request(&book(key))
}

/// Both have read the same head, and claim it while nobody tells them what became of that.
#[test]
fn of_two_claimants_with_a_paused_projector_one_books() -> anyhow::Result<()> {
    let mut race = Race::start()?;
    for (run, between) in [("together", 0), ("one by one", 1), ("together again", 0)] {
        let [mut one, mut other] = race.at_the_head(run)?;
        race.both_append([&mut one, &mut other], between)?;
        let said = [one.receive()?, other.receive()?];
        let won: Vec<bool> = said.iter().map(|said| said["opened"]["epoch"] == 1).collect();
        let lost: Vec<bool> = said.iter().map(|said| said["error"] == "claim_lost").collect();
        ensure!(won[0] != won[1] && lost[0] == won[1] && lost[1] == won[0], "{said:?}");
        let (winner, loser) = if won[0] { (&mut one, &mut other) } else { (&mut other, &mut one) };
        let booked = winner.request(&book(None))?;
        ensure!(booked["result"].is_object() && booked["recorded"] == false, "{booked}");
        // The other one takes the run over, and is told what the first one got.
        loser.open(run)?;
        let again = loser.request(&book(None))?;
        ensure!(again["recorded"] == true && again["result"] == booked["result"], "{again}, not {booked}");
        ensure!(race.booked(run)? == [winner.id()], "{:?}", race.deployment.ledger()?);
    }
    race.deployment.verified()
}

/// One has the run and is about to append its intent; the other claims the run; nobody tells either what became of it.
#[test]
fn a_booking_that_races_a_takeover_with_a_paused_projector_happens_once() -> anyhow::Result<()> {
    let mut race = Race::start()?;
    // Which of them appends first; 0: whoever is faster.
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
            // The claim is in the log before anybody was told of the intent.
            let said = booker.receive()?;
            ensure!(said["error"] == "fenced", "{run}: {said}");
            ensure!(race.booked(&run)?.is_empty(), "{run}: {:?}", race.deployment.ledger()?);
            fenced += race.deployment.anomalies(&run)?.len();
            let said = taker.receive()?;
            ensure!(said["opened"]["epoch"] == 2, "{run}: {said}");
            let said = decided(&race, &run, &mut taker, key)?;
            ensure!(said["result"].is_object() && said["recorded"] == false, "{run}: {said}");
            ensure!(race.booked(&run)? == [taker.id()], "{run}: {:?}", race.deployment.ledger()?);
        }
    }
    // Behind the claim the intent is refused; before it, it stands.
    ensure!((2..=4).contains(&fenced), "{fenced} intents came too late");
    race.deployment.verified()
}
