//! Recorded runs of other frameworks are imported without loss: every message, call, result and checkpoint.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use runlog_projector::{
    Config, Consistency, Projector,
    index::{
        bulk::Limits,
        failpoint::{self, Failpoints},
    },
    open,
};
use runlog_schemas::id::PartitionId;
use runlog_tests::{
    agreement::bulk::{self, Rows},
    command::Runlog,
    random::Random,
    recorded::{self, Run, check},
    server::{Launch, Server},
};
use serde_json::Value;
use tempfile::tempdir;
use tokio::runtime::Runtime;

const FORMATS: [&str; 2] = ["tau-bench", "swe-agent"];

fn import(runlog: &Runlog, format: &str, files: &[PathBuf]) -> anyhow::Result<Value> {
    let names = files.iter().map(|file| file.to_str().context("a path in UTF-8"));
    let names = names.collect::<anyhow::Result<Vec<_>>>()?;
    runlog.answer(&[&["import", format][..], &names].concat())
}

/// The rows of every partition, once its index has reached the log's end.
fn rows_of(runtime: &Runtime, projector: &Projector, partitions: u32) -> anyhow::Result<Vec<Rows>> {
    let of = |partition| {
        runtime.block_on(projector.wait(partition, Consistency::Latest, Duration::from_secs(60)))?;
        bulk::rows(&*projector.store(partition)?)
    };
    PartitionId::all(partitions).map(of).collect()
}

/// The end of every partition's log, which counts all appends.
fn ends(server: &Server) -> anyhow::Result<Vec<u64>> {
    let doctor = server.runlog().answer(&["doctor"])?;
    let partitions = doctor["partitions"].as_array().context("partitions")?;
    partitions.iter().map(|partition| partition["end"].as_u64().context("an end")).collect()
}

/// Checks the runs, two at a time.
fn check_all(runlog: &Runlog, runs: &[Run], seed: u64) -> anyhow::Result<()> {
    let work = Mutex::new(runs.iter().zip(seed..));
    let next = || work.lock().ok().and_then(|mut work| work.next());
    thread::scope(|scope| {
        let worker =
            || std::iter::from_fn(next).try_for_each(|(run, seed)| check::run(runlog, run, &mut Random::new(seed)));
        let other = scope.spawn(worker);
        worker()?;
        other.join().map_err(|_| anyhow::anyhow!("a check panicked"))?
    })
}

#[test]
fn every_recorded_run_is_found_again_and_importing_again_changes_nothing() -> anyhow::Result<()> {
    let seed = Random::seed();
    println!("RUNLOG_SEED={seed}");
    let server = Launch::temporary()?.start()?;
    let runlog = server.runlog();
    let mut all = Vec::new();
    let mut reports = Vec::new();
    for format in FORMATS {
        let files = recorded::samples(format)?;
        let mut runs = Vec::new();
        for file in &files {
            runs.extend(recorded::read(format, file)?);
        }
        let report = import(&runlog, format, &files)?;
        let calls: usize = runs.iter().map(|run| run.calls.len()).sum();
        ensure!(report["runs"] == runs.len() && report["tool_calls"] == calls, "the file's figures: {report}");
        ensure!(report["duplicates"] == 0 && report["records"].as_u64() > Some(0), "a first import: {report}");
        reports.push((format, files, report["records"].clone()));
        all.extend(runs);
    }
    check_all(&runlog, &all, seed)?;
    check_list(&runlog, &all)?;
    runlog.verified()?;

    let before = ends(&server)?;
    for (format, files, records) in &reports {
        let again = import(&runlog, format, files)?;
        ensure!(again["records"] == 0 && &again["duplicates"] == records, "a second import of {records}: {again}");
    }
    ensure!(ends(&server)? == before, "a second import appends nothing");
    ensure!(runlog.answer(&["anomalies"])?["anomalies"] == Value::Array(Vec::new()), "no record was refused");
    Ok(())
}

/// Checks that `runs` lists each run, in order, with its status.
fn check_list(runlog: &Runlog, runs: &[Run]) -> anyhow::Result<()> {
    let mut expected: Vec<_> = runs.iter().map(|run| (run.id.as_str(), run.status)).collect();
    expected.sort_unstable();
    let page = runlog.answer(&["runs", "--limit", "100000"])?;
    let rows = page["runs"].as_array().context("runs")?.iter();
    let rows: Vec<_> =
        rows.map(|run| (run["run_id"].as_str().unwrap_or(""), run["status"].as_str().unwrap_or(""))).collect();
    ensure!(rows == expected, "listed {rows:?}");
    Ok(())
}

/// A changed copy of a format's first sample.
fn change_sample(folder: &Path, format: &str, change: impl FnOnce(String) -> String) -> anyhow::Result<PathBuf> {
    let file = recorded::samples(format)?.remove(0);
    let copy = folder.join(file.file_name().context("a name")?);
    fs::write(&copy, change(fs::read_to_string(&file)?))?;
    Ok(copy)
}

#[test]
fn one_truncated_file_prevents_the_import_of_every_file() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = Launch::local(&folder.path().join("data")).start()?;
    let before = ends(&server)?;
    for format in FORMATS {
        let cut = |text: String| {
            let middle = text.floor_char_boundary(text.len() / 2);
            text[..middle].to_owned()
        };
        let cut = change_sample(folder.path(), format, cut)?;
        let whole = recorded::samples(format)?.remove(0);
        let [whole, cut] = [&whole, &cut].map(|path| path.to_string_lossy().into_owned());
        let refused = server.runlog().json(&["import", format, &whole, &cut])?.exits(3)?;
        ensure!(refused.error_kind()? == "invalid", "{}", refused.stdout);
        let error = &refused.json()?["error"];
        ensure!(
            error["file"] == cut.as_str() && error["path"].as_str().is_some_and(|path| path.starts_with('$')),
            "{error}"
        );
    }
    ensure!(ends(&server)? == before, "something was written");
    Ok(())
}

#[test]
fn an_existing_run_with_other_content_is_refused_and_a_prefix_separates_the_two() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = Launch::local(&folder.path().join("data")).start()?;
    let runlog = server.runlog();
    let format = "swe-agent";
    let original = change_sample(folder.path(), format, |text| text)?;
    import(&runlog, format, std::slice::from_ref(&original))?;
    let run = recorded::read(format, &original)?.remove(0);

    fs::write(
        &original,
        fs::read_to_string(&original)?.replacen("\"observation\": \"", "\"observation\": \"other ", 1),
    )?;
    let other = recorded::read(format, &original)?.remove(0);
    ensure!(run.calls[0].outcome != other.calls[0].outcome, "the copy differs");
    let before = ends(&server)?;
    let file = original.to_string_lossy();
    let refused = runlog.json(&["import", format, &file])?.exits(3)?;
    ensure!(refused.error_kind()? == "invalid" && ends(&server)? == before, "{}", refused.stdout);
    check::run(&runlog, &run, &mut Random::new(1))?;

    runlog.answer(&["import", format, &file, "--run-prefix", "other/"])?;
    let id = format!("other/{}", other.id);
    check::run(&runlog, &Run { id, ..other }, &mut Random::new(2))?;
    check::run(&runlog, &run, &mut Random::new(3))
}

#[test]
fn the_indices_of_recorded_runs_are_the_same_when_they_are_built_in_bulk() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = Launch::local(folder.path()).start()?;
    for format in FORMATS {
        import(&server.runlog(), format, &recorded::samples(format)?)?;
    }
    let partitions = server.partitions;
    server.terminate()?;
    let (runtime, built) = (Runtime::new()?, Arc::new(AtomicU32::new(0)));
    let start = |bulk: Limits| {
        let built = built.clone();
        let failpoints = Failpoints::new(move |point| {
            built.fetch_add(u32::from(point == failpoint::BULK_INGESTED), Ordering::Relaxed);
        });
        let config = Config { bulk, failpoints, ..Config::new(folder.path(), || 0, || "an-id".to_owned()) };
        runtime.block_on(open::local(config))
    };
    let projector = start(Limits { offsets_min: u64::MAX, ..Limits::default() })?;
    let live = rows_of(&runtime, &projector, partitions)?;
    drop(projector);
    ensure!(built.load(Ordering::Relaxed) == 0, "the server folds as it reads");
    for memory_bytes in [256 << 20, 512 << 10, 64 << 10] {
        fs::remove_dir_all(folder.path().join("index"))?;
        let projector = start(Limits { offsets_min: 1, memory_bytes })?;
        let rows = rows_of(&runtime, &projector, partitions)?;
        ensure!(built.swap(0, Ordering::Relaxed) == partitions, "every partition is built in bulk");
        for (partition, (built, live)) in PartitionId::all(partitions).zip(rows.iter().zip(&live)) {
            bulk::same_rows(partition, built, live).with_context(|| format!("with {memory_bytes} bytes"))?;
        }
        ensure!(projector.verify()?.equal, "the indices match the log");
    }
    Ok(())
}
