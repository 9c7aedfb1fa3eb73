//! The life and death of agents.

use std::{fs::File, thread, time::Duration};

use anyhow::{Context, ensure};

use super::{ANYWHERE, SERVERS, Site, process::Process};
use crate::random::Random;

/// How long an agent lives before it is told where to die, ms.
const LIFE_MS: std::ops::Range<u64> = 20..600;
/// How long it may take to come there.
const POINT_WAIT: Duration = Duration::from_secs(240);
/// How long the last ones may take to end their runs.
const END_WAIT: Duration = Duration::from_secs(300);

impl Site<'_> {
    fn start_agent(&self, slot: usize) -> anyhow::Result<Process> {
        let arguments = [
            self.config.brokers.clone(),
            self.config.topic.clone(),
            self.url(slot % SERVERS),
            self.folder.to_str().context("a path in UTF-8")?.to_owned(),
            slot.to_string(),
        ];
        let path = self.folder.join(format!("agent-{slot}.stderr"));
        Process::start("kill_agent", &arguments, File::options().create(true).append(true).open(path)?)
    }

    /// Kills one agent after the other where the plan says; the last one ends its runs.
    pub(super) fn kill_agents(&self, slot: usize, plan: &[&'static str], seed: u64) -> anyhow::Result<()> {
        let mut random = Random::new(seed);
        let complaints = || std::fs::read_to_string(self.folder.join(format!("agent-{slot}.stderr")));
        for point in plan.iter().copied() {
            if self.is_failed() {
                return Ok(());
            }
            let mut agent = self.start_agent(slot)?;
            thread::sleep(Duration::from_millis(random.between(LIFE_MS.start, LIFE_MS.end)));
            agent.send(&if point == ANYWHERE { point.to_owned() } else { format!("at {point}") })?;
            let said = agent.said(POINT_WAIT).with_context(|| format!("{point}: {:?}", complaints()))?;
            ensure!(said["at"] == point && said["in_flight"].as_u64() > Some(0), "{point}: {said}");
            agent.kill().with_context(|| format!("{point}: {:?}", complaints()))?;
            self.count("agent", point);
        }
        let mut last = self.start_agent(slot)?;
        last.send("end")?;
        last.wait_for_exit(END_WAIT).with_context(|| format!("{:?}", complaints()))
    }
}
