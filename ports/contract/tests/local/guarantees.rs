//! The port's guarantees, on a local log and over `http:`. The tests on Kafka include this file too.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails where its store does")]

use agent_sdk_core::{
    AgentErrorKind, AgentId, CheckpointPrunePolicy, CheckpointStore, EffectId, EffectIntent, EffectKind, EffectResult,
    EntityKind, EntityRef, JournalRecord, JournalRecordBase, RecoveryMarker, RetryClassification, RunCheckpoint, RunId,
    RunJournal, RunJournalReader, SourceKind, SourceRef, append_result_or_recovery, replay::journal_cursor_for_seq,
};
use anyhow::{Context, ensure};
use runlog_ports::{
    agent_sdk_core::Journal,
    producer::{self, Config, Runlog},
};
use runlog_tests::{deployment::Deployment, random::Random};
use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

const RUN: &str = "run.guarantees";

fn run() -> RunId {
    RunId::new(RUN)
}

fn base(seq: u64, id: &str) -> JournalRecordBase {
    let source = SourceRef::with_kind(SourceKind::Host, "source.test");
    let mut base = JournalRecordBase::new(seq, id, run(), AgentId::new("agent"), source);
    base.timestamp_millis = 7 * seq;
    base
}

fn intent(seq: u64, effect: &str) -> JournalRecord {
    let subject = EntityRef::new(EntityKind::ToolCall, "call");
    let source = SourceRef::with_kind(SourceKind::Host, "source.test");
    let intent = EffectIntent::new(EffectId::new(effect), EffectKind::ToolExecution, subject, source, "an effect");
    JournalRecord::effect_intent(base(seq, &format!("intent.{effect}")), intent)
}

fn result(seq: u64, effect: &str, summary: &str) -> JournalRecord {
    JournalRecord::effect_result(
        base(seq, &format!("result.{effect}.{summary}")),
        EffectResult::completed(EffectId::new(effect), summary),
    )
}

fn marker(seq: u64) -> JournalRecord {
    let marker = RecoveryMarker {
        unsafe_pending: Vec::new(),
        recovery_reason: "a result failed".into(),
        policy_refs: Vec::new(),
    };
    JournalRecord::recovery(base(seq, &format!("marker.{seq}")), marker)
}

/// Whether this file is part of the tests on Kafka.
fn on_kafka() -> bool {
    module_path!().starts_with("kafka")
}

/// A server with a journal: on a log of its own, or on a topic.
fn deployment() -> anyhow::Result<Deployment> {
    if on_kafka() { Deployment::kafka() } else { Deployment::http() }
}

/// The journal's URL and the server's.
fn urls(deployment: &Deployment) -> (String, String) {
    let server = deployment.server.url.clone();
    (deployment.topic().map_or(server.clone(), |topic| format!("kafka:{}", topic.brokers)), server)
}

/// Checks a claim on a local log and over `http:`, or on Kafka.
fn on_each(claim: impl Fn(&dyn Fn() -> Config) -> anyhow::Result<()>) -> anyhow::Result<()> {
    if !on_kafka() {
        let folder = tempfile::tempdir()?;
        claim(&|| Config::new(producer::Journal::Local(folder.path().join("log")), "test")).context("local")?;
    }
    let deployment = deployment()?;
    claim(&|| deployment.config(&deployment.server.url).expect("a journal's URL")).context("through a server")
}

#[test]
fn records_are_read_as_appended_and_only_the_next_number_is_accepted() -> anyhow::Result<()> {
    on_each(|config| {
        let journal = Journal::connect(config())?;
        ensure!(journal.records_for_run(&run())?.is_empty(), "a run without records");
        let refused = journal.append(intent(2, "early")).expect_err("the first one is 1");
        ensure!(refused.kind() == AgentErrorKind::InvalidStateTransition, "{refused}");
        let records = [intent(1, "a"), intent(2, "b"), result(3, "a", "done")];
        for record in &records {
            ensure!(journal.append(record.clone())? == journal_cursor_for_seq(record.journal_seq), "its cursor");
        }
        ensure!(journal.records_for_run(&run())? == records, "as they were");
        ensure!(journal.records_after(&run(), 1)? == records[1..], "records after the first");
        for other in [intent(5, "gap"), intent(2, "other"), intent(3, "a"), intent(0, "none")] {
            let refused = journal.append(other).expect_err("not next");
            ensure!(refused.kind() == AgentErrorKind::InvalidStateTransition, "{refused}");
        }
        let mut next_schema = intent(4, "schema");
        next_schema.journal_schema_version += 1;
        ensure!(journal.append(next_schema).is_err(), "another schema version");
        // Sent again, by this or another process.
        drop(journal);
        let journal = Journal::connect(config())?;
        for record in &records {
            ensure!(journal.append(record.clone())? == journal_cursor_for_seq(record.journal_seq), "the same cursor");
        }
        journal.append(intent(4, "c"))?;
        ensure!(journal.records_for_run(&run())?.len() == 4, "nothing twice");
        Ok(())
    })
}

#[test]
fn a_marker_follows_a_failed_result_and_is_refused_if_the_result_is_in_the_log() -> anyhow::Result<()> {
    on_each(|config| {
        let journal = Journal::connect(config())?;
        journal.append(intent(1, "a"))?;
        journal.append(result(2, "a", "done"))?;
        journal.append(intent(3, "b"))?;
        // The effect ended differently: the journal refuses the result, and the marker gets its number.
        let cursor = append_result_or_recovery(&journal, result(4, "a", "otherwise"), marker(4))?;
        ensure!(cursor == journal_cursor_for_seq(4), "the marker's");
        ensure!(journal.records_for_run(&run())?.last() == Some(&marker(4)), "the marker");
        // Acknowledged and not read back in time: without patience, the error says that the record may be in the log.
        drop(journal);
        let hasty = Config { read_back: Duration::ZERO, ..config() };
        let journal = Journal::connect(hasty)?.with_patience(Duration::ZERO);
        match journal.append(result(5, "b", "done")) {
            // This transport reports the outcome with the acknowledgement.
            Ok(_) => {}
            Err(unknown) => {
                ensure!(unknown.kind() == AgentErrorKind::JournalFailure, "{unknown}");
                ensure!(unknown.retry() == RetryClassification::RepairNeeded, "{unknown}");
                let late = journal.append(marker(5)).expect_err("the result landed");
                ensure!(late.kind() == AgentErrorKind::InvalidStateTransition, "{late}");
            }
        }
        drop(journal);
        let journal = Journal::connect(config())?;
        ensure!(journal.append(result(5, "b", "done"))? == journal_cursor_for_seq(5), "the same again is found");
        ensure!(journal.records_for_run(&run())?.len() == 5, "nothing twice");
        Ok(())
    })
}

#[test]
fn calls_work_inside_current_thread_and_multi_thread_runtimes() -> anyhow::Result<()> {
    on_each(|config| {
        let connect = config();
        let (sender, receiver) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let mut one = tokio::runtime::Builder::new_current_thread();
            let mut several = tokio::runtime::Builder::new_multi_thread();
            let runtimes = [one.enable_all().build().unwrap(), several.worker_threads(1).enable_all().build().unwrap()];
            for (nth, runtime) in (0..).zip(runtimes) {
                runtime.block_on(async {
                    let journal = Journal::connect(connect.clone()).unwrap();
                    let inside = tokio::spawn(async move {
                        journal.append(intent(2 * nth + 1, &format!("{nth}.a"))).unwrap();
                        journal.append(intent(2 * nth + 2, &format!("{nth}.b"))).unwrap();
                        journal.records_for_run(&run()).unwrap().len()
                    });
                    sender.send(inside.await.unwrap()).unwrap();
                });
            }
        });
        for read in [2, 4] {
            ensure!(receiver.recv_timeout(Duration::from_secs(120))? == read, "all of them are read");
        }
        Ok(())
    })
}

#[test]
fn appends_of_eight_threads_are_all_stored_with_dense_numbers() -> anyhow::Result<()> {
    on_each(|config| {
        let journal = Journal::connect(config())?;
        let next = AtomicU64::new(1);
        thread::scope(|scope| {
            for thread in 0..8 {
                let (journal, next) = (journal.clone(), &next);
                scope.spawn(move || {
                    for nth in 0..5 {
                        // If the number is taken, try the next number.
                        loop {
                            let number = next.load(Ordering::SeqCst);
                            match journal.append(intent(number, &format!("{thread}.{nth}"))) {
                                Ok(_) => {
                                    next.fetch_max(number + 1, Ordering::SeqCst);
                                    break;
                                }
                                Err(error) => {
                                    assert_eq!(error.kind(), AgentErrorKind::InvalidStateTransition, "{error}")
                                }
                            }
                        }
                    }
                });
            }
        });
        let records = journal.records_for_run(&run())?;
        ensure!(records.len() == 40, "{} records", records.len());
        ensure!((1..).zip(&records).all(|(number, record)| record.journal_seq == number), "dense");
        Ok(())
    })
}

/// A process that appends until another process has the run, and prints each answer.
#[test]
#[ignore = "started by other tests"]
fn a_writer() {
    let at = config(&env::var("WRITER_JOURNAL").unwrap(), &env::var("WRITER_SERVER").unwrap()).unwrap();
    let journal = Journal::connect(at).unwrap();
    let (who, mut out) = (std::process::id(), std::io::stdout());
    let mut number = journal.records_for_run(&run()).unwrap().len() as u64;
    for nth in 0_u64.. {
        number += 1;
        let (effect, save) = (format!("{who}.{nth}"), nth % 3 == 2);
        match journal.append(intent(number, &effect)) {
            Ok(cursor) => writeln!(out, "took {} {effect}", cursor.as_str()).unwrap(),
            Err(error) if error.retry() == RetryClassification::NotRetryable => {
                writeln!(out, "lost").unwrap();
                return;
            }
            // A record of another process has that number.
            Err(error) => {
                assert_eq!(error.kind(), AgentErrorKind::InvalidStateTransition, "{error}");
                number = journal.records_for_run(&run()).unwrap().len() as u64;
            }
        }
        if save && journal.save(checkpoint(&effect, number, nth), number).is_ok() {
            writeln!(out, "saved {effect}").unwrap();
        }
        out.flush().unwrap();
    }
}

fn config(journal: &str, server: &str) -> anyhow::Result<Config> {
    Ok(Config::new(producer::Journal::parse(journal, Some(server)).context("a journal's URL")?, "writer"))
}

fn writer((journal, server): &(String, String)) -> anyhow::Result<std::process::Child> {
    let mut writer = Command::new(env::current_exe()?);
    writer.args(["--ignored", "--exact", "--nocapture", "guarantees::a_writer"]).env("WRITER_JOURNAL", journal);
    Ok(writer.env("WRITER_SERVER", server).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?)
}

/// Checks that the journal contains each record and the last checkpoint that a killed writer printed.
fn check_journal(journal: &Journal, lines: &[String]) -> anyhow::Result<()> {
    let records = journal.records_for_run(&run())?;
    for line in lines {
        if let Some((cursor, effect)) = line.strip_prefix("took ").and_then(|line| line.split_once(' ')) {
            let id = format!("intent.{effect}");
            let record =
                records.iter().find(|record| record.record_id == id).with_context(|| format!("{id} is lost"))?;
            ensure!(journal_cursor_for_seq(record.journal_seq).as_str() == cursor, "{line}");
        }
    }
    if let Some(saved) = lines.iter().rev().find_map(|line| line.strip_prefix("saved ")) {
        let latest = journal.load_latest(&run())?.context("a checkpoint")?;
        ensure!(latest.checkpoint_id == saved, "{saved} was saved, and {} is the latest", latest.checkpoint_id);
    }
    ensure!((1..).zip(&records).all(|(number, record)| record.journal_seq == number), "dense");
    Ok(())
}

#[test]
fn acknowledged_records_of_a_killed_process_are_read_by_the_next() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let local = (format!("local:{}", folder.path().display()), String::new());
    let deployment = deployment()?;
    let journals = if on_kafka() { vec![urls(&deployment)] } else { vec![local, urls(&deployment)] };
    for at in journals {
        let mut all = Vec::new();
        for count in [1_usize, 2, 3, 5, 8, 13] {
            let mut writer = writer(&at)?;
            let mut reader = BufReader::new(writer.stdout.take().context("its answers")?).lines();
            let mut lines = Vec::new();
            for line in reader.by_ref() {
                let line = line?;
                if line.starts_with("took") || line.starts_with("saved") {
                    lines.push(line);
                }
                if lines.len() == count {
                    break;
                }
            }
            writer.kill()?;
            writer.wait()?;
            // Includes the remaining lines that it printed.
            let rest: Result<Vec<_>, _> = reader.collect();
            lines.extend(rest.unwrap_or_default().into_iter().filter(|line| line.split(' ').count() > 1));
            ensure!(lines.len() >= count, "it printed {lines:?}");
            all.extend(lines);
            check_journal(&Journal::connect(config(&at.0, &at.1)?)?, &all)?;
        }
    }
    Ok(())
}

#[test]
fn one_of_eight_processes_has_the_run_and_the_others_get_an_error() -> anyhow::Result<()> {
    let deployment = deployment()?;
    let mut writers = (0..8).map(|_| writer(&urls(&deployment))).collect::<anyhow::Result<Vec<_>>>()?;
    let (sender, receiver) = std::sync::mpsc::channel();
    for (nth, writer) in writers.iter_mut().enumerate() {
        let (sender, out) = (sender.clone(), writer.stdout.take().context("its answers")?);
        thread::spawn(move || {
            let is_report = |line: &String| ["took", "saved", "lost"].iter().any(|word| line.starts_with(word));
            for line in BufReader::new(out).lines().map_while(Result::ok).filter(is_report) {
                let _ = sender.send((nth, line));
            }
        });
    }
    let (mut lines, mut lost) = (Vec::new(), Vec::new());
    while lost.len() < 7 {
        let (nth, line) = receiver.recv_timeout(Duration::from_secs(120))?;
        if line == "lost" {
            lost.push(nth);
        }
        lines.push(line);
    }
    let winner = (0..8).find(|nth| !lost.contains(nth)).context("one has it")?;
    // It can still append.
    for _ in 0..5 {
        let (nth, line) = receiver.recv_timeout(Duration::from_secs(120))?;
        ensure!(nth == winner, "{nth} continues, and {winner} has the run");
        lines.push(line);
    }
    writers.iter_mut().try_for_each(|writer| writer.kill().and_then(|()| writer.wait().map(drop)))?;
    lines.retain(|line| line.starts_with("took"));
    check_journal(&Journal::connect(deployment.config(&deployment.server.url)?)?, &lines)
}

fn checkpoint(id: &str, covers: u64, seq: u64) -> RunCheckpoint {
    let states = ["awaiting_model", "terminal:completed", "awaiting_tool", "Completed", "failed"];
    RunCheckpoint {
        checkpoint_id: id.into(),
        run_id: run(),
        checkpoint_seq: seq,
        covers_journal_seq: covers,
        loop_state: states[usize::try_from(seq).unwrap() % states.len()].into(),
        turn_id: None,
        attempt_id: None,
        runtime_package_fingerprint: "fingerprint".into(),
        pending_side_effects: Vec::new(),
        pending_approvals: vec!["approval".into()],
        content_ref_manifest: Vec::new(),
        state_hash: "hash".into(),
        created_at_millis: seq / 2,
        writer_id: "writer".into(),
    }
}

#[test]
fn the_checkpoint_store_answers_as_the_sdks_after_any_restart() -> anyhow::Result<()> {
    on_each(|config| {
        // The SDK's own store is the reference.
        let theirs = sdk::InMemoryCheckpointStore::new();
        let mut random = Random::new(7);
        let mut ours = Journal::connect(config())?;
        (1..=6).try_for_each(|number| ours.append(intent(number, &number.to_string())).map(drop))?;
        for step in 0..80_u64 {
            let (covers, latest) = (random.between(0, 8), random.between(0, 8));
            match random.between(0, 5) {
                0 => {
                    drop(ours);
                    ours = Journal::connect(config())?;
                }
                1 if step % 3 == 0 => {
                    let preserve_latest_terminal = random.between(0, 2) == 0;
                    let policy = CheckpointPrunePolicy { prune_covered_before: covers, preserve_latest_terminal };
                    let (mine, right) = (ours.prune(&run(), policy)?, theirs.prune(&run(), policy)?);
                    ensure!(mine == right, "step {step}: {mine:?} is not {right:?}");
                }
                _ => {
                    let saved =
                        checkpoint(&format!("checkpoint.{}", random.between(0, 9)), covers, random.between(0, 20));
                    let (mine, right) = (ours.save(saved.clone(), latest), theirs.save(saved, latest));
                    ensure!(mine == right, "step {step}: {mine:?} is not {right:?}");
                }
            }
            let (mine, right) = (ours.load_latest(&run())?, theirs.load_latest(&run())?);
            ensure!(mine == right, "step {step}: {mine:?} is not {right:?}");
            let cursor = journal_cursor_for_seq(random.between(0, 8));
            let (mine, right) = (ours.load_at_or_before(&run(), &cursor)?, theirs.load_at_or_before(&run(), &cursor)?);
            ensure!(mine == right, "step {step}: {mine:?} is not {right:?}");
        }
        ensure!(ours.records_for_run(&run())?.len() == 6, "checkpoints are no records of the run's");
        ours.append(intent(7, "7"))?;
        // Runlog's own answer about a run whose checkpoints grow.
        let grown = checkpoint("checkpoint.last", 7, 100);
        ours.save(grown.clone(), 7)?;
        drop(ours);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let answer = runtime.block_on(async { Runlog::connect(config()).await?.checkpoint(RUN, None).await })?;
        let latest = answer.context("a checkpoint")?;
        ensure!(latest.checkpoint_id == "checkpoint.last" && latest.covers_journal_seq.get() == 7, "{latest:?}");
        ensure!(latest.state.map(|state| state.to_value()) == Some(serde_json::to_value(&grown)?), "its state");
        Ok(())
    })
}

/// A checkpoint whose record is so large that no batch can hold it together with another.
fn large(id: &str, covers: u64) -> RunCheckpoint {
    let loop_state = format!("terminal:{}", "x".repeat(1_047_200));
    RunCheckpoint { loop_state, ..checkpoint(id, covers, covers) }
}

/// Returns the state of the checkpoint in Runlog's own answer.
fn answered_state(config: Config, at_or_before: u32) -> anyhow::Result<Option<serde_json::Value>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let checkpoint = async { Runlog::connect(config).await?.checkpoint(RUN, Some(at_or_before.into())).await };
    Ok(runtime.block_on(checkpoint)?.and_then(|checkpoint| checkpoint.state).map(|state| state.to_value()))
}

/// Saves two small checkpoints, and between them a terminal one, which prunes keep.
fn with_a_large_one(journal: &Journal) -> anyhow::Result<RunCheckpoint> {
    for seq in 1..=4 {
        journal.append(intent(seq, &seq.to_string()))?;
    }
    let large = large("large", 2);
    journal.save(checkpoint("first", 1, 0), 4)?;
    journal.save(large.clone(), 4)?;
    journal.save(checkpoint("last", 4, 5), 4)?;
    Ok(large)
}

const BEFORE_THREE: CheckpointPrunePolicy =
    CheckpointPrunePolicy { prune_covered_before: 3, preserve_latest_terminal: true };

#[test]
fn a_prune_keeps_a_terminal_checkpoint_that_is_too_large_for_a_batch() -> anyhow::Result<()> {
    on_each(|config| {
        let journal = Journal::connect(config())?;
        let large = with_a_large_one(&journal)?;
        let report = journal.prune(&run(), BEFORE_THREE)?;
        ensure!((report.pruned_count, report.retained_count) == (1, 2), "{report:?}");
        ensure!(journal.load_at_or_before(&run(), &journal_cursor_for_seq(3))?.as_ref() == Some(&large), "it is kept");
        ensure!(journal.prune(&run(), BEFORE_THREE)?.pruned_count == 0, "nothing more");
        drop(journal);
        ensure!(
            answered_state(config(), 3)? == Some(serde_json::to_value(&large)?),
            "and Runlog itself answers with it"
        );
        Ok(())
    })
}

#[test]
fn the_next_prune_completes_an_interrupted_one() -> anyhow::Result<()> {
    let deployment = Deployment::http()?;
    let proxy = runlog_tests::http_proxy::HttpProxy::start(&deployment.server.url, "/records?deadline_ms")?;
    let journal = Journal::connect(deployment.config(&proxy.url)?)?.with_patience(Duration::ZERO);
    let large = with_a_large_one(&journal)?;
    // The batch is refused, and then only the prune itself is written.
    proxy.skip(2);
    proxy.drop_next_request();
    journal.prune(&run(), BEFORE_THREE).expect_err("it broke off");
    ensure!(journal.load_at_or_before(&run(), &journal_cursor_for_seq(3))?.as_ref() == Some(&large), "it is kept");
    let config = || deployment.config(&deployment.server.url).expect("a journal's URL");
    ensure!(answered_state(config(), 3)?.is_none(), "Runlog's own answer still lacks it");
    ensure!(journal.prune(&run(), BEFORE_THREE)?.pruned_count == 0, "the first prune removed all");
    ensure!(answered_state(config(), 3)? == Some(serde_json::to_value(&large)?), "Runlog's own answer has it");
    Ok(())
}
