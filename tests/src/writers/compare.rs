//! Compares the journal's answers with the records of its writers.

use anyhow::{Context, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use super::Story;
use crate::server::Server;

/// Queries in flight at most.
const CONCURRENCY: usize = 8;
/// How long the server may take to catch up.
const CATCH_UP: &str = "deadline_ms=120000";

/// Fails unless every acknowledged record is in the log once and in order, and every call has its own outcome. No record may be
/// refused, and the indices must equal a rebuild from the log.
pub fn everything(server: &Server, stories: &[Story]) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let http = crate::server::client()?;
    let compared = stream::iter(stories).map(|story| run(&http, &server.url, story));
    runtime.block_on(compared.buffer_unordered(CONCURRENCY).try_collect::<Vec<()>>())?;
    let runlog = server.runlog();
    let anomalies = runlog.answer(&["anomalies", "--consistency", "latest"])?;
    ensure!(anomalies["anomalies"] == json!([]), "refused: {anomalies}");
    let letters = runlog.answer(&["dead-letter", "list", "--consistency", "latest"])?;
    ensure!(letters["records"] == json!([]), "unreadable: {letters}");
    let listed = runlog.answer(&["runs", "--limit", "100000"])?;
    ensure!(listed["runs"].as_array().is_some_and(|runs| runs.len() == stories.len()), "runs: {listed}");
    runlog.verified()
}

async fn get(http: &reqwest::Client, url: &str) -> anyhow::Result<Value> {
    let response = http.get(url).timeout(std::time::Duration::from_secs(150)).send().await?;
    let (status, body) = (response.status(), response.text().await?);
    ensure!(status.is_success(), "{url}: {status} {body}");
    Ok(serde_json::from_str(&body)?)
}

async fn run(http: &reqwest::Client, url: &str, story: &Story) -> anyhow::Result<()> {
    let base = format!("{url}/v1/runs/{}", story.run_id());
    records(http, &base, story).await.with_context(|| format!("records of {}", story.run_id()))?;
    for at in 0..story.calls.len() {
        call(http, &base, story, at).await.with_context(|| format!("call {at} of {}", story.run_id()))?;
    }
    let last = story
        .records
        .iter()
        .rfind(|record| record.payload.payload_type() == runlog_schemas::payload::PayloadType::LoopCheckpoint);
    if let Some(last) = last {
        let loaded = get(http, &format!("{base}/checkpoints/latest?consistency=eventual")).await?;
        let written = serde_json::to_value(&last.payload)?;
        for name in ["checkpoint_id", "covers_journal_seq", "messages"] {
            ensure!(loaded[name] == written[name], "checkpoint of {}: {loaded}", story.run_id());
        }
    }
    Ok(())
}

/// The records of a run in the journal, whole and in order.
pub(crate) async fn lines(http: &reqwest::Client, base: &str) -> anyhow::Result<Vec<Value>> {
    let mut lines = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = get(http, &format!("{base}/records?raw=true&limit=1000&{CATCH_UP}{cursor}")).await?;
        lines.extend(page["records"].as_array().context("records")?.iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else { return Ok(lines) };
        cursor = format!("&cursor={next}");
    }
}

async fn records(http: &reqwest::Client, base: &str, story: &Story) -> anyhow::Result<()> {
    let lines = lines(http, base).await?;
    for (line, record) in lines.iter().zip(&story.records) {
        let (id, place) = (&record.body.record_id, &record.place);
        ensure!(line["record_id"] == id.as_str(), "{} is at the position of {id}", line["record_id"]);
        ensure!(line["payload"] == serde_json::to_value(&record.payload)?, "{id} has other content: {line}");
        ensure!(
            line["journal_seq"] == place.journal_seq.get() && line["epoch"] == place.writer_epoch.get(),
            "{id}: {line}"
        );
    }
    ensure!(lines.len() == story.records.len(), "{} records of {} acknowledged", lines.len(), story.records.len());
    Ok(())
}

async fn call(http: &reqwest::Client, base: &str, story: &Story, at: usize) -> anyhow::Result<()> {
    let call = &story.calls[at];
    let same = |other: &&super::Made| other.tool == call.tool && other.arguments == call.arguments;
    let occurrence = story.calls[..=at].iter().filter(same).count();
    let occurrences = story.calls.iter().filter(same).count();
    let mut url = reqwest::Url::parse(&format!("{base}/lookup"))?;
    url.query_pairs_mut()
        .append_pair("tool", call.tool)
        .append_pair("args", &call.arguments.to_string())
        .append_pair("occurrence", &occurrence.to_string())
        .append_pair("consistency", "eventual");
    let lookup = get(http, url.as_str()).await?;
    let (status, result, message) = match &call.outcome {
        Some(Ok(result)) => ("completed", result.clone(), Value::Null),
        Some(Err(message)) => ("failed", Value::Null, message.as_str().into()),
        None => ("pending", Value::Null, Value::Null),
    };
    ensure!(lookup["status"] == status && lookup["occurrences"] == occurrences, "{status}, {occurrences}: {lookup}");
    ensure!(lookup["result"] == result && lookup["error"]["message"] == message, "its own outcome: {lookup}");
    Ok(())
}
