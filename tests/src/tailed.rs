//! A tail of all runs, beside what each run's timeline says.

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
    command, served,
    server::{Launch, Server},
};

/// Where a record stands: offset and index, by partition.
type Places = BTreeMap<u64, Vec<(u64, u64)>>;

/// The lines of a stream that ends.
fn lines(server: &Server, path: &str) -> anyhow::Result<Vec<Value>> {
    let (status, stream) = server.get(path)?;
    ensure!(status == 200, "{path}: {status} {stream}");
    let data = stream.as_str().context("a stream")?.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn places(lines: &[Value]) -> anyhow::Result<Places> {
    let mut places = Places::new();
    for line in lines {
        let number = |name: &str| line["position"][name].as_u64().with_context(|| format!("{line}"));
        places.entry(number("partition")?).or_default().push((number("offset")?, number("index")?));
    }
    Ok(places)
}

/// What the timelines of all runs have together, in the partitions' order.
fn of_runs(server: &Server) -> anyhow::Result<Places> {
    let runs = server.runlog().answer(&["runs", "--consistency", "latest"])?;
    let mut all = Vec::new();
    for run in runs["runs"].as_array().context("runs")? {
        all.extend(server.runlog().json(&["show", run["run_id"].as_str().context("an id")?])?.exits(0)?.documents()?);
    }
    let mut places = places(&all)?;
    places.values_mut().for_each(|places| places.sort_unstable());
    Ok(places)
}

/// Every applied record comes once, in its partition's order, from the beginning and behind any line, on a server that was
/// killed and whose indices are gone, too.
pub fn resumes_anywhere(launch: &Launch, dir: &Path) -> anyhow::Result<()> {
    let server = launch.start()?;
    served::fill(&server, dir)?;
    let whole = lines(&server, "/v1/tail?until_end=true&consistency=latest")?;
    ensure!(places(&whole)? == of_runs(&server)?, "what all runs have");
    ensure!(places(&whole)?.len() > 1, "several partitions");
    ensure!(whole.iter().any(|line| line["position"]["index"] == 1), "a batch");
    let behind = |server: &Server, nth: usize| -> anyhow::Result<()> {
        let cursor = whole[nth]["cursor"].as_str().context("a cursor")?;
        let rest = lines(server, &format!("/v1/tail?until_end=true&consistency=latest&from={cursor}"))?;
        ensure!(places(&rest)? == places(&whole[nth + 1..])?, "behind {cursor}");
        Ok(())
    };
    (0..whole.len()).step_by(3).try_for_each(|nth| behind(&server, nth))?;
    ensure!(lines(&server, "/v1/tail?until_end=true&from=end")?.is_empty(), "nothing behind the end");
    server.kill()?;
    fs::remove_dir_all(launch.dir().join("index"))?;
    let server = launch.start()?;
    (1..whole.len()).step_by(7).try_for_each(|nth| behind(&server, nth))?;
    server.terminate()?;
    Ok(())
}

/// A tail in a process of its own.
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
        serde_json::from_str(&line).with_context(|| format!("a tail says {line:?}"))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A live tail shows what comes to runs that it has never heard of, and goes on behind a restart where it was cut off.
pub fn shows_what_comes(launch: &Launch) -> anyhow::Result<()> {
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
    ensure!(live.next().is_ok_and(|problem| problem["error"]["kind"] == "unavailable"), "it says that it was cut off");
    let server = launch.start()?;
    publish(&server, "third")?;
    let mut live = Live::start(&server, &cursor)?;
    next(&mut live, "third")?;
    publish(&server, "fourth")?;
    next(&mut live, "fourth")?;
    server.terminate()?;
    Ok(())
}
