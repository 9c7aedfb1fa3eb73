//! The life and death of servers, and what brings them to each failpoint.

use std::{
    fs::File,
    sync::PoisonError,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use runlog_log::{Entry, Offset};
use runlog_projector::index::failpoint;
use runlog_schemas::{
    payload::{Payload, Skip},
    record::JournalRecord,
};
use serde_json::Value;

use super::{ANYWHERE, SERVERS, SICK, Site, process::Process};
use crate::{
    agent::{Agent, entry, id},
    foreign::append_kafka,
};

/// How long a server may take to start, to come to a point, and to be where it should be.
const WAIT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a server lives before it is told where to die: clients get to work.
const LIFE: Duration = Duration::from_millis(300);

impl Site<'_> {
    /// Starts a server. Waits until it listens, or where it is to stop before that, until it stops there.
    pub(super) fn start(&self, server: usize, stop_at: Option<&'static str>) -> anyhow::Result<Process> {
        let mut arguments = vec![
            self.config.brokers.clone(),
            self.config.topic.clone(),
            self.folder.to_str().context("a path in UTF-8")?.to_owned(),
            self.ports[server].to_string(),
        ];
        arguments.extend(stop_at.map(str::to_owned));
        let path = self.folder.join(format!("server-{server}.stderr"));
        let log = File::options().create(true).append(true).open(&path)?;
        let process = Process::start("kill_server", &arguments, log)?;
        let said = process.said(WAIT).with_context(|| std::fs::read_to_string(path).unwrap_or_default())?;
        let expected = stop_at.map_or(said["listening"] == true, |point| said["at"] == point);
        ensure!(expected, "{said}, and not {stop_at:?}");
        Ok(process)
    }

    /// Kills a server where the plan says, and starts it again each time. Returns the last one, which runs.
    pub(super) fn kill_servers(
        &self,
        server: usize,
        mut process: Process,
        plan: &[&'static str],
    ) -> anyhow::Result<Process> {
        for point in plan.iter().copied() {
            if self.is_failed() {
                break;
            }
            thread::sleep(LIFE);
            let mut next = None;
            let killed = self.guarded(|| {
                next = Some(self.kill_server(server, process, point).with_context(|| format!("server at {point}"))?);
                Ok(())
            });
            killed?;
            process = next.context("a server")?;
        }
        Ok(process)
    }

    fn kill_server(&self, server: usize, mut process: Process, point: &'static str) -> anyhow::Result<Process> {
        match point {
            ANYWHERE => {
                self.kill(process, point)?;
                self.start(server, None)
            }
            failpoint::STORE_OPENED => {
                // It dies twice: where it is, and when it starts.
                self.kill(process, ANYWHERE)?;
                self.kill(self.start(server, Some(point))?, point)?;
                self.start(server, None)
            }
            failpoint::VERIFY_BUILT => {
                process.send(point)?;
                let url = format!("{}/v1/verify", self.url(server));
                // It gets no answer.
                let asked = thread::spawn(move || post(&url));
                self.kill_at(process, point)?;
                drop(asked.join());
                self.start(server, None)
            }
            failpoint::STOP_TOLD | failpoint::SKIP_VOIDED => self.kill_at_stop(server, process, point),
            failpoint::BATCH_FOLDED | failpoint::BATCH_COMMITTED => {
                process.send(point)?;
                self.kill_at(process, point)?;
                self.start(server, None)
            }
            _ => self.kill_at_rebuild(server, process, point),
        }
    }

    /// Waits until it stops at the point, and kills it there.
    fn kill_at(&self, process: Process, point: &'static str) -> anyhow::Result<()> {
        let said = process.said(WAIT)?;
        ensure!(said["at"] == point, "{said}");
        self.kill(process, point)
    }

    fn kill(&self, process: Process, point: &'static str) -> anyhow::Result<()> {
        self.await_in_flight()?;
        process.kill()?;
        self.count("server", point);
        Ok(())
    }

    /// A record of an unknown schema stops the partition without agents; a skip continues it.
    fn kill_at_stop(&self, server: usize, mut process: Process, point: &'static str) -> anyhow::Result<Process> {
        let _sick = self.sick.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = Entry { value: [&[0xC3, 0x01], &[0xAB; 8][..], b"newer"].concat(), ..Entry::default() };
        if point == failpoint::STOP_TOLD {
            process.send(point)?;
        }
        let offset = self.append(unknown)?;
        if point == failpoint::STOP_TOLD {
            self.kill_at(process, point)?;
            process = self.start(server, None)?;
        }
        self.await_partition(server, |health| health["state"] == "stopped")?;
        if point == failpoint::SKIP_VOIDED {
            process.send(point)?;
        }
        self.skip(offset)?;
        if point == failpoint::SKIP_VOIDED {
            self.kill_at(process, point)?;
            process = self.start(server, None)?;
        }
        self.await_health()?;
        Ok(process)
    }

    /// The skip of an applied record rebuilds the partition without agents.
    fn kill_at_rebuild(&self, server: usize, mut process: Process, point: &'static str) -> anyhow::Result<Process> {
        let _sick = self.sick.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = self.append(entry(&Agent::new("voided").turn("voided")))?;
        self.await_partition(server, |health| health["applied"].as_u64() > Some(offset.get()))?;
        process.send(point)?;
        self.skip(offset)?;
        self.kill_at(process, point)?;
        let process = self.start(server, None)?;
        self.await_health()?;
        Ok(process)
    }

    fn append(&self, entry: Entry) -> anyhow::Result<Offset> {
        append_kafka(&self.config, &[(SICK.into(), entry)])?.first().copied().context("an offset")
    }

    fn skip(&self, offset: Offset) -> anyhow::Result<()> {
        let skip = Skip { offset, who: "kills".into(), why: "to be killed at it".into() };
        let record = JournalRecord::of_partition(id(format!("skip-{offset}")), "kills", Payload::Skip(skip));
        self.append(entry(&record)).map(drop)
    }

    /// Waits until the partition without agents is as it should be on a server. The server may be down for a while.
    fn await_partition(&self, server: usize, holds: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        let (begun, url) = (Instant::now(), format!("{}/v1/doctor", self.url(server)));
        loop {
            let doctor = get(&url).unwrap_or_default();
            if holds(&doctor["partitions"][usize::from(SICK)]) {
                return Ok(());
            }
            ensure!(begun.elapsed() < WAIT, "partition {SICK} of server {server} after {WAIT:?}: {doctor}");
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until it runs on every server: the next sickness meets all of them sound.
    fn await_health(&self) -> anyhow::Result<()> {
        (0..SERVERS).try_for_each(|server| self.await_partition(server, |health| health["state"] == "running"))
    }
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
