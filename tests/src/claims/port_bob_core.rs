//! bob-core's tool journal: the promises of its trait.

use anyhow::{Context, ensure};
use bob_core::{
    error::StoreError,
    journal::{JournalEntry, ToolJournalPort},
};
use runlog_ports::bob_core::ToolJournal;
use runlog_producer::{Error, REDACTED, Redaction, Runlog};
use runlog_schemas::answer::ErrorKind;
use serde_json::{Value, json};
use std::sync::Arc;

use crate::port_fixture::{PortBackend, append_was_delayed, delay_next_append};

/// Concurrent writers, and the entries of each.
const WRITERS: usize = 8;
const ENTRIES_EACH: usize = 15;
/// Processes that are killed, one after another.
const KILLS: usize = 6;
/// More than a record can hold, bytes.
const LARGE_BYTES: usize = 2 << 20;

/// An entry of a call.
fn entry(session: &str, tool: &str, arguments: Value, result: Value, timestamp_ms: u64) -> JournalEntry {
    let call_fingerprint = JournalEntry::fingerprint(tool, &arguments);
    let (session_id, tool_name) = (session.to_owned(), tool.to_owned());
    JournalEntry { session_id, call_fingerprint, tool_name, arguments, result, is_error: false, timestamp_ms }
}

/// All of an entry as text, with the exact bits of doubles.
fn whole(entry: &JournalEntry) -> String {
    format!("{entry:?}")
}

fn check_same(found: &[JournalEntry], appended: &[JournalEntry]) -> anyhow::Result<()> {
    let (found, appended): (Vec<_>, Vec<_>) = (found.iter().map(whole).collect(), appended.iter().map(whole).collect());
    ensure!(found == appended, "appended: {appended:#?}\nfound: {found:#?}");
    Ok(())
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(WRITERS).enable_all().build()?)
}

async fn journal(backend: &PortBackend) -> anyhow::Result<ToolJournal> {
    Ok(ToolJournal::new(Runlog::connect(backend.config()?).await?))
}

/// Entries whose values are hard to keep.
fn hard() -> Vec<JournalEntry> {
    // serde_json reads this double as a neighbouring one.
    let numbers =
        json!([u64::MAX, i64::MIN, 493.212_266_839_229_47, -0.0, 1e23, 5e-324, 1.0, 1, 123_456_789_012_345_680_000.0]);
    let deep = (0..59).fold(json!([[]]), |inner, _| json!({ "": [inner] }));
    let mut failed = entry("hard", "pay", json!({ "zebra": 1, "apple": [null, true] }), Value::Null, 0);
    failed.is_error = true;
    let mut own = entry("hard", "own", json!("x"), json!(""), 1);
    own.call_fingerprint = "the host's own \u{0} fingerprint = é".into();
    vec![
        entry("hard", "count", numbers.clone(), numbers, i64::MAX.cast_unsigned()),
        entry("hard", "nest", deep, json!({ "$serde_json::private::RawValue": "[" }), 2),
        failed,
        own,
        entry("hard", "", Value::Null, json!("\u{1f600}\u{0}\"\\"), 3),
    ]
}

/// The claim.
pub fn entries_equal_the_appended_ones_and_a_lookup_returns_the_first(backend: &PortBackend) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let journal = journal(backend).await?;
        let hard = hard();
        for entry in &hard {
            journal.append(entry.clone()).await?;
        }
        check_same(&journal.entries(&"hard".into()).await?, &hard)?;
        for entry in &hard {
            let read = journal.lookup(&entry.session_id, &entry.call_fingerprint).await?;
            check_same(&[read.context("it was appended")?], std::slice::from_ref(entry))?;
        }
        // The same call in many sessions, twice in each, with different results.
        let call = |session: usize, nth: u64| {
            entry(&format!("s{session}"), "search", json!({ "q": "x" }), json!([session, nth]), nth)
        };
        for nth in 0..2 {
            for session in 0..12 {
                journal.append(call(session, nth)).await?;
            }
        }
        let fingerprint = call(0, 0).call_fingerprint;
        for session in 0..12 {
            let read = journal.lookup(&format!("s{session}"), &fingerprint).await?.context("it was appended")?;
            check_same(&[read], &[call(session, 0)])?;
            check_same(&journal.entries(&format!("s{session}")).await?, &[call(session, 0), call(session, 1)])?;
        }
        ensure!(journal.lookup(&"s1".into(), "search:{}").await?.is_none(), "another fingerprint");
        ensure!(journal.lookup(&"nobody".into(), &fingerprint).await?.is_none(), "another session");
        ensure!(journal.entries(&"nobody".into()).await?.is_empty(), "another session");
        check_refusals(&journal).await
    })
}

/// Entries that no record can hold are refused, and no record is appended.
async fn check_refusals(journal: &ToolJournal) -> anyhow::Result<()> {
    let kind = |error: &StoreError| match error {
        StoreError::Other(error) => error.downcast_ref::<Error>().map(Error::kind),
        _ => None,
    };
    for session in [String::new(), "s".repeat(1025)] {
        let usage = Some(ErrorKind::Usage);
        let appended = journal.append(entry(&session, "t", json!(1), json!(2), 3)).await;
        ensure!(appended.as_ref().err().and_then(kind) == usage, "{appended:?}");
        let read = journal.lookup(&session, "t").await;
        ensure!(read.as_ref().err().and_then(kind) == usage, "{read:?}");
        let all = journal.entries(&session).await;
        ensure!(all.as_ref().err().and_then(kind) == usage, "{all:?}");
    }
    let late = entry("refused", "t", json!(1), json!(2), u64::MAX);
    let deep = entry("refused", "t", (0..121).fold(json!(1), |inner, _| json!([inner])), json!(2), 3);
    for entry in [late, deep] {
        let appended = journal.append(entry).await;
        ensure!(matches!(appended, Err(StoreError::Serialization(_))), "{appended:?}");
    }
    ensure!(journal.entries(&"refused".into()).await?.is_empty(), "it was refused");
    Ok(())
}

/// The claim.
pub fn a_result_too_large_for_a_record_is_read_back_complete(backend: &PortBackend) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let journal = journal(backend).await?;
        let large =
            entry("large", "read", json!({ "path": "a" }), json!("0123456789abcdef".repeat(LARGE_BYTES / 16)), 1);
        journal.append(large.clone()).await?;
        let read = journal.lookup(&large.session_id, &large.call_fingerprint).await?.context("it was appended")?;
        ensure!(read.result == large.result, "another result");
        ensure!(journal.entries(&large.session_id).await?.len() == 1, "one entry");
        Ok(())
    })
}

/// The claim.
pub fn a_redacted_call_is_still_found(backend: &PortBackend) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let redaction = Redaction::new("secrets").texts(|text| text.replace("4111", REDACTED).into());
        let config = runlog_producer::Config { redaction: Some(redaction), ..backend.config()? };
        let journal = ToolJournal::new(Runlog::connect(config).await?);
        let (first, second) = (json!({ "card": "4111" }), json!({ "card": REDACTED }));
        for arguments in [&first, &second] {
            journal.append(entry("redacted", "pay", arguments.clone(), arguments.clone(), 1)).await?;
        }
        let fingerprint = JournalEntry::fingerprint("pay", &first);
        let read = journal.lookup(&"redacted".into(), &fingerprint).await?.context("it was appended")?;
        ensure!(read.call_fingerprint == fingerprint && read.arguments == second, "{read:?}");
        let text = format!("{:?}", journal.entries(&"redacted".into()).await?);
        ensure!(!text.contains("4111") && text.contains(REDACTED), "{text}");
        Ok(())
    })
}

/// The claim.
pub fn concurrent_writers_lose_and_duplicate_nothing(backend: &PortBackend) -> anyhow::Result<()> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let journal = Arc::new(journal(backend).await?);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let journal = journal.clone();
                tokio::spawn(async move {
                    for nth in 0..ENTRIES_EACH {
                        journal.append(entry("shared", "t", json!([writer, nth]), json!(nth), 0)).await?;
                    }
                    Ok::<_, StoreError>(())
                })
            })
            .collect();
        for writer in writers {
            writer.await??;
        }
        let entries = journal.entries(&"shared".into()).await?;
        // The entries of each writer are in the order in which it wrote them.
        for writer in 0..WRITERS {
            let own: Vec<_> = entries.iter().filter(|entry| entry.arguments[0] == writer).cloned().collect();
            let wrote: Vec<_> =
                (0..ENTRIES_EACH).map(|nth| entry("shared", "t", json!([writer, nth]), json!(nth), 0)).collect();
            check_same(&own, &wrote)?;
        }
        ensure!(entries.len() == WRITERS * ENTRIES_EACH, "{} entries", entries.len());
        Ok(())
    })
}

/// The claim.
pub fn an_append_with_an_unknown_outcome_is_stored_once(backend: &PortBackend) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let journal = ToolJournal::new(Runlog::connect(backend.delaying_config()?).await?);
        let all: Vec<_> = (0..3).map(|nth| entry("late", "t", json!(nth), json!(nth), nth)).collect();
        journal.append(all[0].clone()).await?;
        delay_next_append();
        journal.append(all[1].clone()).await?;
        ensure!(append_was_delayed(), "the append was in time");
        journal.append(all[2].clone()).await?;
        check_same(&journal.entries(&"late".into()).await?, &all)
    })
}

/// The claim.
pub fn appends_of_a_killed_process_are_found_by_the_next(backend: &PortBackend) -> anyhow::Result<()> {
    let mut appended = Vec::new();
    for life in 0..KILLS {
        let mut process = backend.process()?;
        let read = process.run(&json!({ "bob_core": { "entries": "killed" } }))?;
        ensure!(read == json!(appended), "life {life}: {read} and not {appended:?}");
        let next = entry("killed", "charge", json!({ "life": life }), json!({ "receipt": life }), life as u64);
        ensure!(
            process.run(&json!({ "bob_core": { "lookup": ["killed", next.call_fingerprint] } }))? == Value::Null,
            "it was never appended"
        );
        process.run(&json!({ "bob_core": { "append": next } }))?;
        process.kill()?;
        appended.push(next);
    }
    let mut process = backend.process()?;
    for entry in &appended {
        let read = process.run(&json!({ "bob_core": { "lookup": ["killed", entry.call_fingerprint] } }))?;
        ensure!(read == json!(entry), "{read} and not {entry:?}");
    }
    Ok(())
}

/// The claim.
pub fn only_the_process_that_took_over_appends(backend: &PortBackend) -> anyhow::Result<()> {
    let (mut first, mut second) = (backend.process()?, backend.process()?);
    let call = |nth: u64| entry("wanted", "t", json!(nth), json!(nth), nth);
    let append = |nth: u64| json!({ "bob_core": { "append": call(nth) } });
    first.run(&append(1))?;
    second.run(&append(2))?;
    first.expect_taken_over(&append(3))?;
    first.expect_taken_over(&append(4))?;
    second.run(&append(5))?;
    // A process that lost the run can still read it.
    let expected = json!([call(1), call(2), call(5)]);
    for process in [&mut first, &mut second] {
        let read = process.run(&json!({ "bob_core": { "entries": "wanted" } }))?;
        ensure!(read == expected, "{read}");
    }
    Ok(())
}
