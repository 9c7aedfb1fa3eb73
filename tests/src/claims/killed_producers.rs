//! Agent processes, each with many runs in progress, are killed at random moments, and a new process takes their runs
//! over. Everything acknowledged to any of them is in the journal, and ledger and journal agree.
//!
//! ```text
//!   agent ──▶ journal, through the producer           agent ──▶ ledger: its effects
//!     └─────▶ its own list: its acknowledgements
//!   compare: every line of every list in the journal; every call of the journal once in the ledger, with its result
//! ```

use std::{
    collections::HashMap,
    env,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::{
    agent_process::AgentProcess,
    audit::{self, Calls},
    deployment::{Deployment, lines},
    random::Random,
};

/// Kills of each process, unless `RUNLOG_KILLS` is set.
const KILLS: u32 = 5;
/// Processes at a time.
const PROCESSES: usize = 4;
/// Runs of each.
const RUNS_EACH: usize = 30;
/// How long the last processes may take to end their runs.
const END_WAIT: Duration = Duration::from_secs(120);

/// The running processes, and counts of all processes.
struct Fleet<'a> {
    deployment: &'a Deployment,
    agents: Vec<AgentProcess>,
    /// The number of processes so far, by slot.
    lives: Vec<u32>,
}

fn runs_of(process: usize) -> Vec<String> {
    (0..RUNS_EACH).map(|run| format!("run-{process}-{run:02}")).collect()
}

impl Fleet<'_> {
    fn start(&mut self, process: usize) -> anyhow::Result<AgentProcess> {
        let acknowledged = self.deployment.path(&format!("acknowledged-{process}-{}", self.lives[process]));
        self.lives[process] += 1;
        let mut agent = self.deployment.agent()?;
        agent.send(&json!({ "work": { "runs": runs_of(process), "acknowledged": acknowledged } }))?;
        Ok(agent)
    }

    /// Kills each process at a random moment, and starts another in its place.
    fn kill_round(&mut self, random: &mut Random) -> anyhow::Result<()> {
        let mut moments: Vec<(Duration, usize)> =
            (0..PROCESSES).map(|process| (Duration::from_millis(random.between(200, 2000)), process)).collect();
        moments.sort_unstable();
        let started = Instant::now();
        for (moment, process) in moments {
            sleep(moment.saturating_sub(started.elapsed()));
            // The process has ended before the next one opens its runs.
            self.agents.remove(process).kill().with_context(|| format!("process {process}"))?;
            let next = self.start(process)?;
            self.agents.insert(process, next);
        }
        Ok(())
    }

    /// The acknowledgements of all processes, by run.
    fn acknowledged(&self) -> anyhow::Result<HashMap<String, Vec<Value>>> {
        let mut lists: HashMap<String, Vec<Value>> = HashMap::new();
        for (process, lives) in self.lives.iter().enumerate() {
            for life in 0..*lives {
                for line in lines(&self.deployment.path(&format!("acknowledged-{process}-{life}")))? {
                    lists.entry(line["run"].as_str().context("a run")?.to_owned()).or_default().push(line);
                }
            }
        }
        Ok(lists)
    }
}

/// The claim.
#[allow(clippy::print_stdout, reason = "the seed and the figures of a test")]
pub fn acknowledgements_to_killed_agents_hold_and_no_effect_happens_twice(
    deployment: &Deployment,
) -> anyhow::Result<()> {
    let seed = Random::seed();
    let kills: u32 = env::var("RUNLOG_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    println!("RUNLOG_SEED={seed} RUNLOG_KILLS={kills}");
    let mut random = Random::new(seed);
    let mut fleet = Fleet { deployment, agents: Vec::new(), lives: vec![0; PROCESSES] };
    for process in 0..PROCESSES {
        let agent = fleet.start(process)?;
        fleet.agents.push(agent);
    }
    for round in 0..kills {
        fleet.kill_round(&mut random).with_context(|| format!("round {round}"))?;
    }
    fleet.agents.iter_mut().try_for_each(|agent| agent.send(&json!("end")))?;
    for agent in std::mem::take(&mut fleet.agents) {
        agent.wait_for_exit(END_WAIT)?;
    }
    let lists = fleet.acknowledged()?;
    let journal = check_lists(deployment, &lists)?;
    audit::effects(deployment.ledger()?, &journal.calls)?;
    deployment.verified()?;
    figures(deployment, kills, &lists, &journal)
}

/// Prints the figures; fails if no kill met a call.
#[allow(clippy::print_stdout, reason = "the figures of a test")]
fn figures(
    deployment: &Deployment,
    kills: u32,
    lists: &HashMap<String, Vec<Value>>,
    journal: &Journal,
) -> anyhow::Result<()> {
    let count = |what: &str, test: &dyn Fn(&Value) -> bool| {
        lists.values().flatten().filter(|line| line["what"] == what && test(line)).count()
    };
    let met = |class: &'static str| count("met", &|line| line["class"] == class);
    let decided = |decision: &'static str| count("decided", &|line| line["decision"] == decision);
    let (safe, unsafe_ones) = (met("retry_safe"), met("reconcile_required"));
    println!(
        "{} processes killed, {} runs, {} acknowledgements found, {} calls; pending at a takeover: {safe} with a key, \
         {unsafe_ones} without (decided: {} done, {} not done); {} answers from the journal; {} lines in the ledger",
        u64::from(kills) * PROCESSES as u64,
        journal.runs,
        lists.values().map(Vec::len).sum::<usize>(),
        journal.calls.len(),
        decided("done"),
        decided("not_done"),
        count("answer", &|line| line["recorded"] == true),
        deployment.ledger()?.len()
    );
    ensure!(safe > 0 && unsafe_ones > 0, "no kill left a pending call of each class");
    Ok(())
}

#[derive(Debug, Default)]
struct Journal {
    runs: usize,
    calls: Calls,
}

/// Fails unless the journal has every line of the lists; returns the journal.
fn check_lists(deployment: &Deployment, lists: &HashMap<String, Vec<Value>>) -> anyhow::Result<Journal> {
    let runs: Vec<String> = (0..PROCESSES).flat_map(runs_of).collect();
    let silent: Vec<&String> = runs.iter().filter(|run| !lists.contains_key(*run)).collect();
    ensure!(silent.is_empty(), "no record of {silent:?} was acknowledged");
    let calls = audit::acknowledged(&deployment.server.url, lists)?;
    let runlog = deployment.server.runlog();
    let listed = runlog.answer(&["runs", "--limit", "100000", "--consistency", "latest"])?;
    let listed = listed["runs"].as_array().context("runs")?;
    ensure!(listed.len() == runs.len() && listed.iter().all(|run| run["status"] == "completed"), "{listed:?}");
    let refused = runlog.answer(&["anomalies", "--consistency", "latest", "--limit", "100000"])?;
    let refused = refused["anomalies"].as_array().context("anomalies")?;
    // Appends that a killed process had in flight.
    ensure!(refused.iter().all(|record| record["reason"] == "fenced"), "{refused:?}");
    Ok(Journal { runs: listed.len(), calls })
}
