//! The tail of all runs, compared with the timeline of each run.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Stdio},
};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::{
    command, sample_journal,
    server::{Launch, Server},
};

/// The (offset, index) of each record, by partition.
type Positions = BTreeMap<u64, Vec<(u64, u64)>>;

/// The lines of a stream that ends.
fn lines(server: &Server, path: &str) -> anyhow::Result<Vec<Value>> {
    let (status, stream) = server.get(path)?;
    ensure!(status == 200, "{path}: {status} {stream}");
    let data = stream.as_str().context("a stream")?.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn positions(lines: &[Value]) -> anyhow::Result<Positions> {
    let mut positions = Positions::new();
    for line in lines {
        let number = |name: &str| line["position"][name].as_u64().with_context(|| format!("{line}"));
        positions.entry(number("partition")?).or_default().push((number("offset")?, number("index")?));
    }
    Ok(positions)
}

/// The positions in the timelines of all runs, sorted within each partition.
fn positions_of_runs(server: &Server) -> anyhow::Result<Positions> {
    let runs = server.runlog().answer(&["runs", "--consistency", "latest"])?;
    let mut all = Vec::new();
    for run in runs["runs"].as_array().context("runs")? {
        all.extend(server.runlog().json(&["show", run["run_id"].as_str().context("an id")?])?.exits(0)?.documents()?);
    }
    let mut positions = positions(&all)?;
    positions.values_mut().for_each(|positions| positions.sort_unstable());
    Ok(positions)
}

/// Every applied record is delivered once, in its partition's order, from the beginning and after any cursor. This also holds
/// on a server that was killed and lost its indices.
pub fn every_record_is_delivered_once_after_any_cursor(launch: &Launch, dir: &Path) -> anyhow::Result<()> {
    let server = launch.start()?;
    sample_journal::fill(&server, dir)?;
    let whole = lines(&server, "/v1/tail?until_end=true&consistency=latest")?;
    ensure!(positions(&whole)? == positions_of_runs(&server)?, "the timelines of all runs");
    ensure!(positions(&whole)?.len() > 1, "several partitions");
    ensure!(whole.iter().any(|line| line["position"]["index"] == 1), "a batch");
    let after = |server: &Server, nth: usize| -> anyhow::Result<()> {
        let cursor = whole[nth]["cursor"].as_str().context("a cursor")?;
        let rest = lines(server, &format!("/v1/tail?until_end=true&consistency=latest&from={cursor}"))?;
        ensure!(positions(&rest)? == positions(&whole[nth + 1..])?, "after {cursor}");
        Ok(())
    };
    (0..whole.len()).step_by(3).try_for_each(|nth| after(&server, nth))?;
    ensure!(lines(&server, "/v1/tail?until_end=true&from=end")?.is_empty(), "no lines after the end");
    server.kill()?;
    fs::remove_dir_all(launch.dir().join("index"))?;
    let server = launch.start()?;
    (1..whole.len()).step_by(7).try_for_each(|nth| after(&server, nth))?;
    server.terminate()?;
    Ok(())
}

/// A `runlog tail` process.
struct Live(Child, BufReader<ChildStdout>);

impl Live {
    fn start(server: &Server, from: &str) -> anyhow::Result<Self> {
        let mut command = command::command()?;
        command.args(["--json", "--server", &server.url, "tail", "--from", from]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        Ok(Self(child, BufReader::new(stdout)))
    }

    fn next(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        self.1.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("a tail printed {line:?}"))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A live tail delivers records of new runs, and continues after a restart from the last cursor.
pub fn a_live_tail_continues_after_a_restart(launch: &Launch) -> anyhow::Result<()> {
    let publish = |server: &Server, run: &str| -> anyhow::Result<()> {
        let record = format!(
            r#"{{"run_id":"{run}","record_id":"{run}","payload":{{"type":"run_lifecycle","status":"started"}}}}"#
        );
        server.runlog().json_with_input(&["publish"], &record)?.exits(0)?;
        Ok(())
    };
    let next = |live: &mut Live, run: &str| -> anyhow::Result<String> {
        let line = live.next()?;
        ensure!(line["run_id"] == run && line["record_id"] == run, "{run}: {line}");
        Ok(line["cursor"].as_str().context("a cursor")?.to_owned())
    };
    let server = launch.start()?;
    publish(&server, "first")?;
    let mut live = Live::start(&server, "beginning")?;
    next(&mut live, "first")?;
    publish(&server, "second")?;
    let cursor = next(&mut live, "second")?;
    server.kill()?;
    ensure!(
        live.next().is_ok_and(|problem| problem["error"]["kind"] == "unavailable"),
        "the tail reports the lost connection"
    );
    let server = launch.start()?;
    publish(&server, "third")?;
    let mut live = Live::start(&server, &cursor)?;
    next(&mut live, "third")?;
    publish(&server, "fourth")?;
    next(&mut live, "fourth")?;
    server.terminate()?;
    Ok(())
}
