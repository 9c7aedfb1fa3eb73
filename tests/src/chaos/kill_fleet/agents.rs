//! Starts and kills agents.

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use serde_json::json;

use super::{Kill, RUNS_AT_ONCE, SERVERS, Site, content, process_log};
use crate::{agent_process::AgentProcess, append_counter::Appends, programs::test_process, random::Random};

/// How long an agent works before it gets its kill point, ms.
const LIFE_MS: std::ops::Range<u64> = 20..1200;
/// How long it may take to reach the point.
const POINT_WAIT: Duration = Duration::from_secs(240);
/// How long the last agent of a slot may take to end its runs.
const END_WAIT: Duration = Duration::from_secs(300);

/// The log name of the agent of a slot.
pub(super) fn name(slot: usize) -> String {
    format!("agent-{slot}")
}

/// The file with the append counts of the agent of a slot.
pub fn appends_file(folder: &Path, slot: &str) -> PathBuf {
    folder.join(format!("appends-{slot}"))
}

impl Site<'_> {
    fn start_agent(&self, slot: usize) -> anyhow::Result<AgentProcess> {
        let (journal, url) = (format!("kafka:{}", self.config.brokers), self.url(slot % SERVERS));
        let mut command = test_process("agent")?;
        command.args([&journal, &url]).arg(self.folder).arg(slot.to_string());
        command.arg(&self.config.topic).arg(content(self.folder)?.url);
        command.stderr(process_log::file(self.folder, &name(slot))?);
        let mut agent = AgentProcess::start(command)?;
        let work = json!({ "slot": slot.to_string(), "threads": RUNS_AT_ONCE, "runs_each": 1 });
        agent.send(&json!({ "work": work }))?;
        Ok(agent)
    }

    /// Kills one agent after the other at the points of the plan; the last agent ends its runs.
    pub(super) fn kill_agents(&self, slot: usize, plan: &[&'static str], seed: u64) -> anyhow::Result<()> {
        let mut random = Random::new(seed);
        for point in plan.iter().copied() {
            let counted = self.until_counted(|| self.kill_agent(slot, point, &mut random));
            counted.with_context(|| format!("agent {slot} at {point}"))?;
        }
        if self.is_failed() {
            return Ok(());
        }
        let mut last = self.start_agent(slot)?;
        last.send(&json!("end"))?;
        last.wait_for_exit(END_WAIT).with_context(|| format!("the end of agent {slot}"))
    }

    fn kill_agent(&self, slot: usize, point: &'static str, random: &mut Random) -> anyhow::Result<Kill> {
        let mut agent = self.start_agent(slot)?;
        thread::sleep(Duration::from_millis(random.between(LIFE_MS.start, LIFE_MS.end)));
        agent.arm_failpoint(point)?;
        let report = agent.receive_within(POINT_WAIT)?;
        ensure!(report["at"] == point, "{report}");
        agent.kill()?;
        // The counts of the agent at the moment of the kill.
        let appends = Appends::left_in(&appends_file(self.folder, &slot.to_string()))?;
        Ok(self.count("agent", point, appends.in_flight() > 0))
    }
}
