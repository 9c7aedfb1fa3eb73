//! Starts and kills servers, and makes them reach each failpoint.

use std::{
    sync::PoisonError,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use runlog_log::{Entry, Offset};
use runlog_projector::index::failpoint;
use runlog_schemas::{
    payload::{Payload, Skip},
    record::JournalRecord,
};
use serde_json::Value;

use super::{ANYWHERE, Kill, SERVERS, SICK, Site, process_log};
use crate::{
    agent::{Agent, entry, id},
    agent_process::AgentProcess,
    foreign::append_kafka,
    programs::test_process,
};

/// How long a server may take to start, to reach a point, and to reach an expected state.
const WAIT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a server runs before it gets its kill point, so that clients can work.
const LIFE: Duration = Duration::from_millis(300);

/// The log name of a server.
pub(super) fn name(server: usize) -> String {
    format!("server-{server}")
}

/// The server that was started after a kill, and whether the kill counts.
type Next = (AgentProcess, Kill);

impl Site<'_> {
    /// Starts a server. Waits until it listens or, with `stop_at`, until it stops at that point before it listens.
    pub(super) fn start(&self, server: usize, stop_at: Option<&'static str>) -> anyhow::Result<AgentProcess> {
        let mut command = test_process("killed-server")?;
        command.args([&self.config.brokers, &self.config.topic]).arg(self.folder).arg(self.ports[server].to_string());
        command.args(stop_at).stderr(process_log::file(self.folder, &name(server))?);
        let process = AgentProcess::start(command)?;
        let report = process.receive_within(WAIT).context("it starts")?;
        let expected = stop_at.map_or(report["listening"] == true, |point| report["at"] == point);
        ensure!(expected, "{report}, and not {stop_at:?}");
        Ok(process)
    }

    /// Kills a server at the points of the plan, and starts it again each time. Returns the last server, which is running.
    pub(super) fn kill_servers(
        &self,
        server: usize,
        process: AgentProcess,
        plan: &[&'static str],
    ) -> anyhow::Result<AgentProcess> {
        let mut alive = Some(process);
        for point in plan.iter().copied() {
            let counted = self.until_counted(|| {
                thread::sleep(LIFE);
                let (next, kill) = self.kill_server(server, alive.take().context("a server")?, point)?;
                alive = Some(next);
                Ok(kill)
            });
            counted.with_context(|| format!("server {server} at {point}"))?;
        }
        alive.context("a server")
    }

    fn kill_server(&self, server: usize, mut process: AgentProcess, point: &'static str) -> anyhow::Result<Next> {
        let kill = match point {
            ANYWHERE => self.kill(process, point)?,
            failpoint::STORE_OPENED => {
                // It is killed twice: at no failpoint, and at the point during its start.
                self.kill(process, ANYWHERE)?;
                self.kill(self.start(server, Some(point))?, point)?
            }
            failpoint::VERIFY_BUILT => {
                process.arm_failpoint(point)?;
                let url = format!("{}/v1/verify", self.url(server));
                // The request gets no answer.
                let request = thread::spawn(move || post(&url));
                let kill = self.kill_at(server, process, point)?;
                drop(request.join());
                kill
            }
            failpoint::BATCH_FOLDED | failpoint::BATCH_COMMITTED => {
                process.arm_failpoint(point)?;
                self.kill_at(server, process, point)?
            }
            failpoint::STOP_REPORTED | failpoint::SKIP_VOIDED => return self.kill_at_stop(server, process, point),
            _ => return self.kill_at_rebuild(server, process, point),
        };
        Ok((self.start(server, None)?, kill))
    }

    /// Waits until it stops at the point, and kills it there.
    fn kill_at(&self, server: usize, process: AgentProcess, point: &'static str) -> anyhow::Result<Kill> {
        let report = process.receive_within(WAIT).with_context(|| match get(&self.doctor(server)) {
            Ok(doctor) => format!("{point} is not reached: {doctor}"),
            Err(error) => format!("{point} is not reached, and the server does not answer: {error:#}"),
        })?;
        ensure!(report["at"] == point, "{report}");
        self.kill(process, point)
    }

    fn kill(&self, mut process: AgentProcess, point: &'static str) -> anyhow::Result<Kill> {
        let before = self.await_in_flight()?;
        let mut ended = before;
        process.kill_then(|| ended = self.counter.appends())?;
        // An append that was sent before the kill had not ended.
        Ok(self.count("server", point, ended.ended < before.sent))
    }

    fn doctor(&self, server: usize) -> String {
        format!("{}/v1/doctor", self.url(server))
    }

    /// A record of an unknown schema stops the partition without agents; a skip continues it.
    fn kill_at_stop(&self, server: usize, mut process: AgentProcess, point: &'static str) -> anyhow::Result<Next> {
        let _sick = self.sick.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = Entry { value: [&[0xC3, 0x01], &[0xAB; 8][..], b"newer"].concat(), ..Entry::default() };
        if point == failpoint::STOP_REPORTED {
            process.arm_failpoint(point)?;
            let offset = self.append(unknown)?;
            let kill = self.kill_at(server, process, point)?;
            process = self.start(server, None)?;
            self.await_stop(server)?;
            let skip = self.skip(offset)?;
            self.await_health(skip)?;
            return Ok((process, kill));
        }
        let offset = self.append(unknown)?;
        self.await_stop(server)?;
        process.arm_failpoint(point)?;
        let skip = self.skip(offset)?;
        let kill = self.kill_at(server, process, point)?;
        process = self.start(server, None)?;
        self.await_health(skip)?;
        Ok((process, kill))
    }

    /// The skip of an applied record rebuilds the partition without agents.
    fn kill_at_rebuild(&self, server: usize, mut process: AgentProcess, point: &'static str) -> anyhow::Result<Next> {
        let _sick = self.sick.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = self.append(entry(&Agent::new("voided").turn("voided")))?;
        self.await_partition(server, |health| has_applied(health, offset))?;
        process.arm_failpoint(point)?;
        let skip = self.skip(offset)?;
        let kill = self.kill_at(server, process, point)?;
        let process = self.start(server, None)?;
        self.await_health(skip)?;
        Ok((process, kill))
    }

    fn append(&self, entry: Entry) -> anyhow::Result<Offset> {
        append_kafka(&self.config, &[(SICK.into(), entry)])?.first().copied().context("an offset")
    }

    /// Appends the skip of a record; returns the offset of the skip.
    fn skip(&self, offset: Offset) -> anyhow::Result<Offset> {
        let skip = Skip { offset, who: "kills".into(), why: "to be killed at it".into() };
        let record = JournalRecord::of_partition(id(format!("skip-{offset}")), "kills", Payload::Skip(skip));
        self.append(entry(&record))
    }

    /// Waits until `holds` accepts the partition without agents on a server. The server may be down meanwhile.
    fn await_partition(&self, server: usize, holds: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        let (begun, url) = (Instant::now(), self.doctor(server));
        loop {
            let doctor = get(&url);
            if doctor.as_ref().is_ok_and(|doctor| holds(&doctor["partitions"][usize::from(SICK)])) {
                return Ok(());
            }
            if begun.elapsed() > WAIT {
                let late = format!("partition {SICK} of server {server} is not in the expected state after {WAIT:?}");
                let doctor = doctor.with_context(|| late.clone())?;
                bail!("{late}: {doctor}");
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn await_stop(&self, server: usize) -> anyhow::Result<()> {
        self.await_partition(server, |health| health["state"] == "stopped")
    }

    /// Waits until the partition runs on every server and has applied a skip. During a rebuild it has not. So every server is
    /// healthy before the next fault.
    fn await_health(&self, skip: Offset) -> anyhow::Result<()> {
        let is_sound = |health: &Value| health["state"] == "running" && has_applied(health, skip);
        (0..SERVERS).try_for_each(|server| self.await_partition(server, is_sound))
    }
}

/// Whether a partition has applied the record at `offset`, by the doctor's report.
fn has_applied(health: &Value, offset: Offset) -> bool {
    health["applied"].as_u64() > Some(offset.get())
}

fn get(url: &str) -> anyhow::Result<Value> {
    answer(crate::server::client()?.get(url))
}

fn post(url: &str) -> anyhow::Result<Value> {
    answer(crate::server::client()?.post(url).json(&serde_json::json!({})))
}

fn answer(request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Ok(serde_json::from_str(&request.send().await?.text().await?)?) })
}
