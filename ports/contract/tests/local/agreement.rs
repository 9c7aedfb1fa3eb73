//! Compares the SDK's `ReplayReducer`, over the records of Runlog's journal, with Runlog's own recovery of the run.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails where its store does")]

use agent_sdk_core::{
    AgentError, AgentErrorKind, AgentId, CheckpointStore, DedupeKey, EffectId, EffectIntent, EffectKind, EffectResult,
    EffectTerminalStatus, EntityKind, EntityRef, IdempotencyKey, JournalRecord, JournalRecordBase, JournalRecordKind,
    JournalRecordPayload, PendingSideEffect, RecoveryMarker, ReplayMode, ReplayReducer, RunCheckpoint, RunId,
    RunJournal, RunJournalReader, RunLifecycleRecord, SourceKind, SourceRef, TerminalResultMarker,
};
use anyhow::{Context, ensure};
use runlog_ports::{
    Blocking,
    agent_sdk_core::Journal,
    producer::{self, Config, answer::Recovery},
};
use runlog_tests::random::Random;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
    thread,
};

/// Histories of the gate; `RUNLOG_AGREEMENT_RUNS` names another number.
const RUNS: u64 = 1000;

fn journal(folder: &Path) -> anyhow::Result<(Blocking, Journal)> {
    let blocking = Blocking::connect(Config::new(producer::Journal::Local(folder.to_owned()), "agreement"))?;
    Ok((blocking.clone(), Journal::on(blocking)))
}

fn recovery(blocking: &Blocking, run: &RunId) -> anyhow::Result<Recovery> {
    let (runlog, id) = (blocking.runlog().clone(), run.as_str().to_owned());
    blocking.wait(async move { runlog.recovery(id).await })?.context("the run is there")
}

/// The known differences, and how often each occurred.
#[derive(Debug, Default)]
struct Differences {
    /// An effect whose result says that its outcome is unknown: pending in Runlog, ended for the reducer.
    unknown: usize,
    /// A marker names an effect that has ended, or that has no intent in the journal: pending for the reducer only.
    marker: usize,
    /// An effect started without an intent, by a result whose outcome is unknown, and so without a key; a marker or a later intent
    /// names a key. Runlog uses the first record, the reducer the last.
    key: usize,
}

/// Compares both answers about a run, whose checkpoints were saved and appended.
fn agree(blocking: &Blocking, journal: &Journal, run: &RunId, differ: &mut Differences) -> anyhow::Result<()> {
    let records = journal.records_for_run(run)?;
    let mut reducer = ReplayReducer::new(ReplayMode::ResumeReplay);
    records.iter().try_for_each(|record| reducer.apply(record.clone()))?;
    let (theirs, ours) = (reducer.finish()?, recovery(blocking, run)?);
    let pending: BTreeMap<_, _> = ours
        .pending
        .iter()
        .map(|effect| (effect.id.as_str(), effect.class == producer::answer::Class::RetrySafe))
        .collect();
    let mut unsafe_pending = BTreeMap::<&str, BTreeSet<bool>>::new();
    for effect in &theirs.unsafe_pending_side_effects {
        unsafe_pending.entry(effect.effect_id.as_str()).or_default().insert(effect.retry_allowed);
    }
    let marked: BTreeSet<&str> = records.iter().flat_map(marked_effects).collect();
    for (effect, retry_safe) in &pending {
        match unsafe_pending.get(effect) {
            Some(allowed) if *allowed == BTreeSet::from([*retry_safe]) => {}
            Some(allowed) => {
                let first =
                    records.iter().find(|record| is_intent_of(record, effect) || result_of(record, effect).is_some());
                let intent = first.is_some_and(|first| is_intent_of(first, effect));
                ensure!(!retry_safe && !intent, "{effect}: {retry_safe} and {allowed:?}");
                differ.key += 1;
            }
            None => {
                let last = records.iter().rev().find_map(|record| result_of(record, effect));
                ensure!(last == Some(EffectTerminalStatus::Unknown), "{effect} is pending with us alone: {last:?}");
                differ.unknown += 1;
            }
        }
    }
    for effect in unsafe_pending.keys().filter(|effect| !pending.contains_key(*effect)) {
        ensure!(marked.contains(effect), "{effect} is pending for the reducer alone");
        differ.marker += 1;
    }
    let status = theirs.terminal_status.as_deref().map_or("open", |status| status.trim_start_matches("run_"));
    ensure!(status == ours.status.as_str(), "{status} and {}", ours.status);
    let state = ours.checkpoint.and_then(|checkpoint| checkpoint.state).map(|state| state.to_value());
    let latest = theirs.latest_checkpoint.map(serde_json::to_value).transpose()?;
    ensure!(state == latest, "{state:?} and {latest:?}");
    ensure!(ours.missing_content.is_empty() && theirs.missing_content_refs.is_empty(), "no content is missing");
    ensure!(theirs.latest_journal_seq == records.len() as u64, "all of it was read");
    Ok(())
}

fn marked_effects(record: &JournalRecord) -> Vec<&str> {
    match &record.payload {
        JournalRecordPayload::Recovery(marker) => {
            marker.unsafe_pending.iter().map(|pending| pending.effect_id.as_str()).collect()
        }
        _ => Vec::new(),
    }
}

fn is_intent_of(record: &JournalRecord, effect: &str) -> bool {
    matches!(&record.payload, JournalRecordPayload::EffectIntent(intent) if intent.effect_id.as_str() == effect)
}

fn result_of(record: &JournalRecord, effect: &str) -> Option<EffectTerminalStatus> {
    match &record.payload {
        JournalRecordPayload::EffectResult(result) if result.effect_id.as_str() == effect => {
            Some(result.terminal_status.clone())
        }
        _ => None,
    }
}

/// One run's history, as far as the journal accepted it.
struct History<'a> {
    journal: &'a Journal,
    run: RunId,
    random: Random,
    number: u64,
    refused: usize,
}

impl History<'_> {
    fn base(&self) -> JournalRecordBase {
        let source = SourceRef::with_kind(SourceKind::Sdk, "source.agreement");
        let id = format!("record.{}", self.number);
        JournalRecordBase::new(self.number, id, self.run.clone(), AgentId::new("agent"), source)
    }

    /// A record that the journal refuses, because it contradicts an ended effect, uses no number: the next record gets it.
    fn append(&mut self, record: JournalRecord) -> Result<bool, AgentError> {
        match self.journal.append(record) {
            Ok(_) => self.number += 1,
            Err(error) if error.kind() == AgentErrorKind::InvalidStateTransition => {
                self.refused += 1;
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn step(&mut self, seq: u64) -> Result<(), AgentError> {
        let effect = EffectId::new(format!("effect.{}", self.random.between(0, 12)));
        // The keys belong to the effect, whichever record names it.
        let key = |random: u64| (random % 3 == 1).then(|| IdempotencyKey::new("key"));
        let dedupe = |random: u64| (random % 3 == 2).then(|| DedupeKey::new("dedupe"));
        let kind = effect.as_str().bytes().map(u64::from).sum::<u64>();
        let base = self.base();
        let record = match self.random.between(0, 10) {
            0..4 => {
                let subject = EntityRef::new(EntityKind::ToolCall, "call");
                let source = SourceRef::with_kind(SourceKind::Sdk, "source.agreement");
                let mut intent = EffectIntent::new(effect, EffectKind::ToolExecution, subject, source, "an effect");
                (intent.idempotency_key, intent.dedupe_key) = (key(kind), dedupe(kind));
                JournalRecord::effect_intent(base, intent)
            }
            4..7 => {
                let mut result = EffectResult::completed(effect, "its result");
                result.terminal_status = match self.random.between(0, 6) {
                    0 => EffectTerminalStatus::Failed,
                    1 => EffectTerminalStatus::TimedOut,
                    2 => EffectTerminalStatus::Cancelled,
                    3 => EffectTerminalStatus::Unknown,
                    _ => EffectTerminalStatus::Completed,
                };
                JournalRecord::effect_result(base, result)
            }
            7 => {
                let pending = PendingSideEffect {
                    effect_id: effect,
                    intent_record_id: "record".into(),
                    idempotency_key: key(kind),
                    dedupe_key: dedupe(kind),
                    unsafe_pending_reason: "its result was not appended".into(),
                };
                let marker = RecoveryMarker {
                    unsafe_pending: vec![pending],
                    recovery_reason: "a result was not appended".into(),
                    policy_refs: Vec::new(),
                };
                JournalRecord::recovery(base, marker)
            }
            _ => {
                let saved = self.checkpoint(seq);
                if self.append(JournalRecord::checkpoint(base, saved.clone()))? {
                    self.journal.save(saved, self.number - 1)?;
                }
                return Ok(());
            }
        };
        self.append(record).map(drop)
    }

    fn checkpoint(&mut self, seq: u64) -> RunCheckpoint {
        RunCheckpoint {
            checkpoint_id: format!("checkpoint.{seq}"),
            run_id: self.run.clone(),
            // Of equal checkpoints the reducer keeps the first and a store the last, so each gets its own number.
            checkpoint_seq: seq,
            covers_journal_seq: self.random.between(0, self.number),
            loop_state: "awaiting_model".into(),
            turn_id: None,
            attempt_id: None,
            runtime_package_fingerprint: "fingerprint".into(),
            pending_side_effects: Vec::new(),
            pending_approvals: Vec::new(),
            content_ref_manifest: Vec::new(),
            state_hash: "hash".into(),
            created_at_millis: 9,
            writer_id: "writer".into(),
        }
    }

    fn lifecycle(&self, status: &str) -> JournalRecord {
        let (kind, run) = (JournalRecordKind::Run, EntityRef::run(self.run.clone()));
        let payload = if self.number.is_multiple_of(2) {
            let result_record_id = format!("record.{}", self.number);
            JournalRecordPayload::TerminalResult(TerminalResultMarker {
                effect_id: EffectId::new("effect.run"),
                result_record_id,
                terminal_status: status.trim_start_matches("run_").into(),
            })
        } else {
            JournalRecordPayload::RunLifecycle(RunLifecycleRecord { status: status.into(), reason: "a reason".into() })
        };
        JournalRecord::feature_record(self.base(), kind, "run", status, run, Vec::new(), Vec::new(), payload)
    }
}

/// Writes a random history, and returns how many of its records the journal refused.
fn write_history(journal: &Journal, run: &RunId, random: Random) -> anyhow::Result<usize> {
    let mut history = History { journal, run: run.clone(), random, number: 1, refused: 0 };
    let steps = history.random.between(1, 16);
    for step in 0..steps {
        history.step(step)?;
    }
    if history.random.between(0, 2) == 0 {
        let words = ["completed", "failed", "cancelled", "run_completed", "run_failed", "run_cancelled"];
        let word = words[usize::try_from(history.random.between(0, 6))?];
        history.append(history.lifecycle(word))?;
        // After the end only checkpoints and markers are accepted.
        for step in 0..3 {
            history.step(steps + step)?;
        }
    }
    Ok(history.refused)
}

#[test]
fn their_reducer_and_runlogs_recovery_agree_on_generated_histories() -> anyhow::Result<()> {
    let runs = env::var("RUNLOG_AGREEMENT_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let folder = tempfile::tempdir()?;
    let (blocking, journal) = journal(folder.path())?;
    let (seed, threads) = (Random::seed(), 8);
    let results = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (blocking, journal) = (&blocking, &journal);
                scope.spawn(move || -> anyhow::Result<_> {
                    let (mut differ, mut refused) = (Differences::default(), 0);
                    for run in (0..runs).filter(|run| run % threads == thread) {
                        // A journal value per run, because each run has its own counter.
                        let (random, journal) = (Random::new(seed.wrapping_add(run)), journal.with_run_prefix(""));
                        refused += write_history(&journal, &RunId::new(format!("run.{run}")), random)?;
                        agree(blocking, &journal, &RunId::new(format!("run.{run}")), &mut differ)
                            .with_context(|| format!("seed {seed}, run {run}"))?;
                    }
                    Ok((differ, refused))
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a thread")).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let (mut differ, mut refused) = (Differences::default(), 0);
    for (of_thread, refused_there) in results {
        differ.unknown += of_thread.unknown;
        differ.marker += of_thread.marker;
        differ.key += of_thread.key;
        refused += refused_there;
    }
    eprintln!("{runs} histories, seed {seed}: {refused} records refused, {differ:?}");
    ensure!(
        runs < 100 || (differ.unknown > 0 && differ.marker > 0 && differ.key > 0 && refused > 0),
        "each difference came up"
    );
    Ok(())
}

/// The records among the fixtures that the SDK publishes.
fn fixtures() -> anyhow::Result<Vec<(String, JournalRecord)>> {
    let mut folders = vec![Path::new(env!("AGENT_SDK_CORE_SOURCES")).join("tests/fixtures")];
    let mut records = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "json") {
                let json: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
                collect(&path.display().to_string(), json, &mut records);
            }
        }
    }
    records.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(records)
}

fn collect(path: &str, json: Value, records: &mut Vec<(String, JournalRecord)>) {
    if let Ok(record) = serde_json::from_value::<JournalRecord>(json.clone()) {
        records.push((path.to_owned(), record));
        return;
    }
    match json {
        Value::Array(items) => items.into_iter().for_each(|item| collect(path, item, records)),
        Value::Object(members) => members.into_iter().for_each(|(_, item)| collect(path, item, records)),
        _ => {}
    }
}

#[test]
fn their_reducer_and_runlogs_recovery_agree_on_the_published_records() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (blocking, journal) = journal(folder.path())?;
    let (fixtures, mut differ) = (fixtures()?, Differences::default());
    let first =
        fixtures.iter().map(|(_, record)| record).find(|record| record.journal_seq == 1).context("a first one")?;
    for (nth, (path, record)) in fixtures.iter().enumerate() {
        // Each after the intent that it names.
        let run = RunId::new(format!("run.fixture.{nth}"));
        for (number, record) in (1..).zip(if record == first { vec![first] } else { vec![first, record] }) {
            let mut record = record.clone();
            (record.journal_seq, record.run_id) = (number, run.clone());
            if let JournalRecordPayload::Checkpoint(checkpoint) = &mut record.payload {
                checkpoint.run_id = run.clone();
            }
            journal.append(record.clone()).with_context(|| path.clone())?;
            if let JournalRecordPayload::Checkpoint(checkpoint) = record.payload {
                journal.save(checkpoint, number)?;
            }
        }
        agree(&blocking, &journal, &run, &mut differ).with_context(|| path.clone())?;
    }
    eprintln!("{} published records, {differ:?}", fixtures.len());
    ensure!(fixtures.len() >= 3, "{} records", fixtures.len());
    Ok(())
}
