//! Agent processes, each with many runs in progress, are killed at random moments, and a new process takes their runs
//! over. Everything acknowledged to any of them is in the journal, and ledger and journal agree.

use std::{
    env,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde_json::json;

use crate::{agent_process::AgentProcess, chaos::audit::Evidence, deployment::Deployment, random::Random};

/// Kills of each process, unless `RUNLOG_KILLS` is set.
const KILLS: u32 = 5;
/// Processes at a time.
const PROCESSES: usize = 4;
/// Runs of each at a time.
const RUNS_EACH: usize = 30;
/// The moments of the kills in a round, ms.
const MOMENTS_MS: std::ops::Range<u64> = 200..2000;
/// How long the last processes may take to end their runs.
const END_WAIT: Duration = Duration::from_secs(120);

fn start(deployment: &Deployment, process: usize) -> anyhow::Result<AgentProcess> {
    let mut agent = deployment.agent()?;
    let work = json!({ "slot": process.to_string(), "threads": 1, "runs_each": RUNS_EACH });
    agent.send(&json!({ "work": work }))?;
    Ok(agent)
}

/// Kills each process at a random moment, and starts another in its place.
fn kill_round(deployment: &Deployment, agents: &mut [AgentProcess], random: &mut Random) -> anyhow::Result<()> {
    let mut moments: Vec<(Duration, usize)> = (0..agents.len())
        .map(|process| (Duration::from_millis(random.between(MOMENTS_MS.start, MOMENTS_MS.end)), process))
        .collect();
    moments.sort_unstable();
    let started = Instant::now();
    for (moment, process) in moments {
        sleep(moment.saturating_sub(started.elapsed()));
        // The process has ended before the next process opens its runs.
        agents[process].kill_then(|| ()).with_context(|| format!("process {process}"))?;
        agents[process] = start(deployment, process)?;
    }
    Ok(())
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
    let mut agents =
        (0..PROCESSES).map(|process| start(deployment, process)).collect::<anyhow::Result<Vec<AgentProcess>>>()?;
    for round in 0..kills {
        kill_round(deployment, &mut agents, &mut random).with_context(|| format!("round {round}"))?;
    }
    agents.iter_mut().try_for_each(|agent| agent.send(&json!("end")))?;
    agents.into_iter().try_for_each(|agent| agent.wait_for_exit(END_WAIT))?;
    let evidence = Evidence::read(deployment.folder())?;
    let calls = evidence.check(&deployment.server.url)?;
    let runs = check_runs(deployment, &evidence)?;
    let met = evidence.count("met", "class");
    println!(
        "{} processes killed, {runs} runs, {} acknowledged records found, {} effects of {calls} calls; pending at a \
         takeover: {met:?}, decided: {:?}; {} answers from the journal",
        u64::from(kills) * PROCESSES as u64,
        evidence.acknowledged(),
        evidence.effects(),
        evidence.count("decided", "decision"),
        evidence.lines("answer").filter(|line| line["recorded"] == true).count(),
    );
    ensure!(met.len() == 2, "no kill left a pending call of each class: {met:?}");
    Ok(())
}

/// Fails unless the journal has the runs of the agents, each completed. No operation may have failed, and appends may be
/// refused only because a killed process had them in flight. Returns the number of runs.
fn check_runs(deployment: &Deployment, evidence: &Evidence) -> anyhow::Result<usize> {
    let runlog = deployment.server.runlog();
    let listed = runlog.answer(&["runs", "--limit", "100000", "--consistency", "latest"])?;
    let listed = listed["runs"].as_array().context("runs")?;
    let all_completed = listed.iter().all(|run| run["status"] == "completed");
    ensure!(all_completed && listed.len() == evidence.runs().count(), "{listed:?}");
    let failed: Vec<_> = evidence.lines("failed").collect();
    ensure!(failed.is_empty(), "{failed:?}");
    let refused = runlog.answer(&["anomalies", "--consistency", "latest", "--limit", "100000"])?;
    let refused = refused["anomalies"].as_array().context("anomalies")?;
    ensure!(refused.iter().all(|record| record["reason"] == "fenced"), "{refused:?}");
    Ok(listed.len())
}
