//! codetether's write-back journal: the crate's promises, and durability.

use anyhow::{Context, bail, ensure};
use runlog_ports::{
    Blocking,
    codetether::{Checks, CommitError, Error, JournalEntry, Op, Phase, RejectReason, TxnId, WritebackJournal},
};
use runlog_producer::SideEffect;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crate::{
    deployment::Deployment,
    http_proxy::HttpProxy,
    port_fixture::{PortBackend, PortProcess, append_was_delayed, delay_next_append},
};

/// The crate's own export of the operations of [`the_export_is_the_crates_byte_for_byte`].
const GOLDEN: &str = include_str!("../../../ports/golden/codetether-agent-4.7.4.jsonl");
/// The time of its first entry, and the interval to the next entry.
const GOLDEN_MILLIS: u64 = 1_760_000_000_000;
const GOLDEN_STEP_MILLIS: u64 = 500;

/// Concurrent writers, and the changes that each stages.
const WRITERS: u64 = 8;
const STAGED_EACH: u64 = 6;

static TIME: AtomicU64 = AtomicU64::new(0);

fn stepping() -> u64 {
    TIME.fetch_add(GOLDEN_STEP_MILLIS, Ordering::Relaxed)
}

fn still() -> u64 {
    GOLDEN_MILLIS
}

fn open_journal(
    backend: &PortBackend,
    session: &str,
    clock: fn() -> u64,
    checks: Checks,
) -> anyhow::Result<WritebackJournal> {
    Ok(WritebackJournal::open(Blocking::connect(backend.config()?)?, session, clock, checks)?)
}

fn detail(text: &str) -> String {
    text.to_owned()
}

/// The claim.
pub fn the_export_is_the_crates_byte_for_byte(backend: &PortBackend) -> anyhow::Result<()> {
    TIME.store(GOLDEN_MILLIS, Ordering::Relaxed);
    let journal = open_journal(backend, "golden", stepping, Checks::default())?;
    let (bucket, key) = ("b\"ücket".to_owned(), "history/a b.jsonl".to_owned());
    let ops = [
        Op::Compaction { before: 120, after: 24 },
        Op::Save,
        Op::Reset,
        Op::ContextReset,
        Op::HistorySinkUpload { bucket, key, bytes: 4096 },
    ];
    let mut txns = Vec::new();
    for op in ops {
        txns.push(journal.stage(op)?);
    }
    ensure!(journal.pending_count() == 5, "five are staged");
    journal.commit(txns[0])?;
    journal.reject(txns[1], RejectReason::DestructiveOp)?;
    journal.reject(txns[2], RejectReason::SchemaMismatch { detail: detail("no \\ schema") })?;
    journal.reject(txns[3], RejectReason::ProvenanceFail { detail: detail("nobody's") })?;
    journal.reject(txns[4], RejectReason::InvariantViolation { detail: detail("below\nstructured") })?;
    ensure!(journal.pending_count() == 0, "all have ended");
    let exported = journal.to_jsonl()?;
    ensure!(exported == GOLDEN, "{exported}\n{GOLDEN}");
    let read: Result<Vec<JournalEntry>, _> = GOLDEN.lines().map(serde_json::from_str).collect();
    ensure!(read? == journal.entries()?, "the crate's export is readable");
    Ok(())
}

/// The claim.
pub fn only_a_staged_change_that_passes_its_checks_is_committed(backend: &PortBackend) -> anyhow::Result<()> {
    let big = |op: &Op| match op {
        Op::Compaction { before, after } if after > before => Err(detail("it grows")),
        _ => Ok(()),
    };
    let reset = |op: &Op| if *op == Op::Reset { Err(detail("no leave")) } else { Ok(()) };
    let checks = Checks::default().with(Phase::Schema, big).with(Phase::Destructive, reset);
    let journal = open_journal(backend, "checked", still, checks)?;
    let refused = |done: Result<(), CommitError>| match done {
        Err(CommitError::Rejected(reason)) => Ok(reason),
        other => Err(anyhow::anyhow!("{other:?}")),
    };
    let never = refused(journal.commit(TxnId(7)))?;
    ensure!(never == RejectReason::SchemaMismatch { detail: detail("txn TxnId(7) is not pending") }, "{never:?}");
    let (grows, resets, saves) =
        (journal.stage(Op::Compaction { before: 1, after: 2 })?, journal.stage(Op::Reset)?, journal.stage(Op::Save)?);
    let upload = journal.stage(Op::HistorySinkUpload { bucket: "b".into(), key: "../secret".into(), bytes: 1 })?;
    ensure!(refused(journal.commit(grows))? == RejectReason::SchemaMismatch { detail: detail("it grows") }, "grows");
    ensure!(refused(journal.validate(resets))? == RejectReason::DestructiveOp, "resets");
    ensure!(matches!(refused(journal.commit(upload))?, RejectReason::ProvenanceFail { .. }), "leads out");
    journal.validate(saves)?;
    journal.commit(saves)?;
    for ended in [grows, resets, saves, upload] {
        ensure!(matches!(refused(journal.commit(ended))?, RejectReason::SchemaMismatch { .. }), "{ended:?} has ended");
    }
    // A rejection is always accepted, and a commit stays committed.
    journal.reject(saves, RejectReason::DestructiveOp)?;
    journal.reject(TxnId(99), RejectReason::DestructiveOp)?;
    let phases = phases(&journal)?;
    let expected = "staged 0, staged 1, staged 2, staged 3, rejected 0, rejected 1, rejected 3, committed 2, rejected 2, \
                    rejected 99";
    ensure!(phases == expected, "{phases}");
    // A rejection of an unstaged change used a number.
    ensure!(journal.stage(Op::Save)?.0 == 4, "the next number of this life");
    assert_none_open(backend, "checked", &journal, 1)
}

fn phase(entry: &JournalEntry) -> anyhow::Result<(String, u64)> {
    let line = serde_json::to_value(entry)?;
    let phase = line["phase"].as_str().context("a phase")?;
    Ok((phase.to_owned(), line["txn"].as_u64().context("a transaction")?))
}

/// The phases of a journal, in order.
fn phases(journal: &WritebackJournal) -> anyhow::Result<String> {
    let phases = journal.entries()?.iter().map(phase).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(phases.iter().map(|(phase, txn)| format!("{phase} {txn}")).collect::<Vec<_>>().join(", "))
}

/// Fails unless the journal itself has no open transactions.
fn assert_none_open(
    backend: &PortBackend,
    session: &str,
    journal: &WritebackJournal,
    open: usize,
) -> anyhow::Result<()> {
    let PortBackend::Served(deployment) = backend else { return Ok(()) };
    ensure!(journal.session_id() == session, "the session");
    let recovered = deployment.server.runlog().json(&["recover", session])?;
    let recovered: Value = serde_json::from_str(&recovered.stdout)?;
    ensure!(recovered["write_backs"].as_array().context("write-backs")?.len() == open, "{recovered}");
    Ok(())
}

/// The claim: from plain threads, from the workers of a runtime, and from the only thread of one.
pub fn concurrent_writers_lose_and_duplicate_nothing(backend: &PortBackend) -> anyhow::Result<()> {
    let journal = Arc::new(open_journal(backend, "shared", still, Checks::default())?);
    let write = |journal: Arc<WritebackJournal>| -> anyhow::Result<Vec<u64>> {
        let staged = (0..STAGED_EACH).map(|_| Ok(journal.stage(Op::Save)?));
        let staged: Vec<TxnId> = staged.collect::<anyhow::Result<_>>()?;
        for txn in &staged {
            journal.commit(*txn)?;
        }
        Ok(staged.iter().map(|txn| txn.0).collect())
    };
    let mut numbers = BTreeSet::new();
    let threads: Vec<_> = (0..WRITERS)
        .map(|_| {
            thread::spawn({
                let journal = journal.clone();
                move || write(journal)
            })
        })
        .collect();
    for thread in threads {
        numbers.extend(thread.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??);
    }
    let workers = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    workers.block_on(async {
        let tasks: Vec<_> = (0..WRITERS)
            .map(|_| {
                tokio::spawn({
                    let journal = journal.clone();
                    async move { write(journal) }
                })
            })
            .collect();
        for task in tasks {
            numbers.extend(task.await??);
        }
        anyhow::Ok(())
    })?;
    let single = tokio::runtime::Builder::new_current_thread().build()?;
    numbers.extend(single.block_on(async { write(journal.clone()) })?);
    let count = (2 * WRITERS + 1) * STAGED_EACH;
    ensure!(numbers == (0..count).collect(), "{numbers:?}");
    let phases: BTreeSet<_> = journal.entries()?.iter().map(phase).collect::<anyhow::Result<_>>()?;
    ensure!(phases.len() as u64 == 2 * count && journal.entries()?.len() == phases.len(), "{phases:?}");
    // A journal can also be opened and dropped inside a runtime.
    drop(journal);
    single.block_on(async { open_journal(backend, "shared", still, Checks::default()).map(drop) })
}

/// The claim.
pub fn staged_changes_survive_a_claim_of_their_own_process(backend: &PortBackend) -> anyhow::Result<()> {
    let journal =
        WritebackJournal::open(Blocking::connect(backend.delaying_config()?)?, "late", still, Checks::default())?;
    let first = [journal.stage(Op::Save)?, journal.stage(Op::Reset)?, journal.stage(Op::Save)?];
    delay_next_append();
    let late = journal.stage(Op::Save)?;
    ensure!(append_was_delayed(), "the append was in time");
    // Each change was staged in an earlier epoch, and can still be committed.
    journal.commit(first[0])?;
    journal.reject(first[1], RejectReason::DestructiveOp)?;
    journal.commit(late)?;
    journal.commit(first[2])?;
    ensure!(journal.commit(first[2]).is_err() && journal.pending_count() == 0, "each ends once");
    let phases = phases(&journal)?;
    let expected = "staged 0, staged 1, staged 2, staged 3, committed 0, rejected 1, committed 3, committed 2";
    ensure!(phases == expected, "{phases}");
    assert_none_open(backend, "late", &journal, 0)
}

/// The claim, with the commit in the log and without.
pub fn a_rejection_waits_until_a_commit_is_known_not_to_have_been_applied() -> anyhow::Result<()> {
    let deployment = Deployment::http()?;
    // The proxy concerns only appends, including a claim.
    let proxy = HttpProxy::start(&deployment.server.url, "/records?deadline_ms")?;
    let blocking = Blocking::connect(deployment.config(&proxy.url)?)?;
    let journal = WritebackJournal::open(blocking, "unknown", still, Checks::default())?;
    for landed in [true, false] {
        let txn = journal.stage(Op::Save)?;
        if landed {
            proxy.truncate_next_response();
        } else {
            proxy.drop_next_request();
        }
        // The two retries of the write do not find out the outcome either.
        proxy.drop_next_request();
        proxy.drop_next_request();
        match journal.commit(txn) {
            Err(CommitError::Journal(Error::Journal(error))) if error.side_effect() == SideEffect::Unknown => {}
            other => bail!("{other:?}"),
        }
        proxy.drop_next_request();
        let rejected = journal.reject(txn, RejectReason::DestructiveOp);
        ensure!(matches!(&rejected, Err(Error::Journal(_))), "the outcome of the commit is unknown: {rejected:?}");
        ensure!(journal.pending_count() == 1, "the transaction stays pending");
        let rejected = journal.reject(txn, RejectReason::DestructiveOp);
        let reported =
            if landed { matches!(&rejected, Err(Error::Committed(of)) if *of == txn) } else { rejected.is_ok() };
        ensure!(reported && journal.pending_count() == 0, "{landed}: {rejected:?}");
    }
    let phases = phases(&journal)?;
    ensure!(phases == "staged 0, committed 0, staged 1, rejected 1", "{phases}");
    assert_none_open(&PortBackend::Served(Box::new(deployment)), "unknown", &journal, 0)
}

fn order(order: &Value) -> Value {
    json!({ "codetether": ["killed", order] })
}

/// Starts a process, and fails unless `left` are its open transactions.
fn start_with_open(backend: &PortBackend, left: &Value) -> anyhow::Result<PortProcess> {
    let mut process = backend.process()?;
    let open = process.run(&order(&json!("left_open")))?;
    ensure!(open == *left, "{open} is left open, and not {left}");
    Ok(process)
}

/// The claim.
pub fn open_transactions_of_a_killed_process_are_reconciled_or_abandoned(backend: &PortBackend) -> anyhow::Result<()> {
    let stage = order(&json!({ "stage": { "op": "save" } }));
    let mut process = start_with_open(backend, &json!([]))?;
    ensure!(process.run(&stage)? == 0, "the first number");
    process.kill()?;
    let mut process = start_with_open(backend, &json!([0]))?;
    let answer = process.request(&order(&json!({ "commit": 0 })))?;
    ensure!(answer["error"].as_str().is_some_and(|error| error.contains("TxnId(0) is not pending")), "{answer}");
    ensure!(process.run(&stage)? == 1, "a number is given once");
    process.kill()?;
    // The process took the session over and was killed before it ended the transaction, which stays open.
    let mut process = start_with_open(backend, &json!([0, 1]))?;
    process.run(&order(&json!({ "reconcile": 0 })))?;
    process.kill()?;
    let mut process = start_with_open(backend, &json!([0, 1]))?;
    process.run(&order(&json!({ "reconcile": 0 })))?;
    process.run(&order(&json!({ "commit": 0 })))?;
    process.kill()?;
    let mut process = start_with_open(backend, &json!([1]))?;
    process.run(&order(&json!({ "reject": [1, { "reason": "destructive_op" }] })))?;
    process.kill()?;
    let mut process = start_with_open(backend, &json!([]))?;
    ensure!(process.run(&stage)? == 2, "a number is given once");
    process.run(&order(&json!({ "commit": 2 })))?;
    process.kill()?;
    let journal = open_journal(backend, "killed", still, Checks::default())?;
    let phases = phases(&journal)?;
    ensure!(phases == "staged 0, staged 1, committed 0, rejected 1, staged 2, committed 2", "{phases}");
    assert_none_open(backend, "killed", &journal, 0)
}

/// The claim.
pub fn only_the_process_that_took_over_writes(backend: &PortBackend) -> anyhow::Result<()> {
    let stage = order(&json!({ "stage": { "op": "reset" } }));
    let mut first = start_with_open(backend, &json!([]))?;
    ensure!(first.run(&stage)? == 0, "the first number");
    let mut second = start_with_open(backend, &json!([0]))?;
    first.expect_taken_over(&order(&json!({ "commit": 0 })))?;
    first.expect_taken_over(&stage)?;
    second.run(&order(&json!({ "reconcile": 0 })))?;
    second.run(&order(&json!({ "commit": 0 })))?;
    ensure!(second.run(&stage)? == 1, "a number is given once");
    let read = first.run(&order(&json!("jsonl")))?;
    ensure!(read.as_str().is_some_and(|text| text.lines().count() == 3), "who lost the session still reads it: {read}");
    Ok(())
}
