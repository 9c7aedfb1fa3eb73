//! Payloads too large for a record, stored in a folder beside a local journal: a result of 2 MiB and a checkpoint of 3
//! MiB.

use std::{
    env,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, ensure};
use runlog_producer::{Action, Answer, Config, Error, Journal, Json, LoopState, OpenOptions, Run, Runlog, failpoint};
use runlog_schemas::{
    answer::ErrorKind,
    draft::Draft,
    payload::{Payload, PayloadType, StoredPayload},
};
use runlog_tests::{
    content::{named, objects, text},
    server::Launch,
};
use serde_json::{Value, json};
use tempfile::tempdir;

const RESULT_BYTES: usize = 2 << 20;
const CHECKPOINT_BYTES: usize = 3 << 20;
const FOLDER: &str = "RUNLOG_TEST_CONTENT_FOLDER";
const DIES_AT: &str = "RUNLOG_TEST_CONTENT_DIES_AT";

fn result() -> Json {
    Json::from(json!({ "page": text(RESULT_BYTES, 1) }))
}

fn state() -> LoopState {
    LoopState { messages: vec![Json::from(json!({ "content": text(CHECKPOINT_BYTES, 2) }))], ..LoopState::default() }
}

/// Calls the tool; an effect that must not run has no result.
async fn fetch(run: &Run, result: Option<Json>) -> Result<Answer, Error> {
    let tool = run.tool("fetch", &json!({ "url": "http://example" })).idempotency_key("once");
    tool.once(|_| async { Ok(result.expect("the effect does not run")) }).await
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Dies as by `kill -9` after the upload whose number the environment names.
fn die(point: &'static str) {
    static STORED: AtomicU32 = AtomicU32::new(0);
    let at: u32 = env::var(DIES_AT).ok().and_then(|at| at.parse().ok()).unwrap_or(0);
    if point == failpoint::CONTENT_STORED && STORED.fetch_add(1, Ordering::SeqCst) + 1 == at {
        std::io::stdout().flush().ok();
        Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status().ok();
        std::thread::park();
    }
}

#[test]
#[ignore = "run by the test below, in a process that dies"]
fn an_agent_that_dies() {
    let dir = env::var(FOLDER).expect("started by the test");
    let config = Config { failpoints: die, ..Config::new(Journal::Local(dir.into()), "test") };
    runtime().expect("a runtime").block_on(async {
        let runlog = Runlog::connect(config).await.expect("a journal");
        let run = runlog.open("r").await.expect("open");
        fetch(&run, Some(result())).await.expect("a result");
        run.checkpoint(&state()).await.expect("a checkpoint");
    });
}

/// One life of the agent, which ends after the upload of its `at`-th content.
fn life(dir: &Path, at: u32) -> anyhow::Result<()> {
    let mut child = Command::new(env::current_exe()?);
    child
        .args(["--exact", "content_elsewhere::an_agent_that_dies", "--ignored"])
        .env(FOLDER, dir)
        .env(DIES_AT, at.to_string());
    let ended = child.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    ensure!(ended.code().is_none(), "the agent was not killed: {ended}");
    Ok(())
}

#[test]
fn an_agent_killed_between_upload_and_append_leaves_a_harmless_orphan() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let content = folder.path().join("content");
    life(folder.path(), 1)?;
    ensure!(objects(&content)?.len() == 1, "the result is in the store, and no record names it");
    life(folder.path(), 2)?;
    ensure!(objects(&content)?.len() == 2, "the same result again is the same object, the checkpoint is the other");
    runtime()?.block_on(async {
        let config = Config::new(Journal::Local(folder.path().to_owned()), "test");
        let runlog = Runlog::connect(config).await?;
        let run = runlog.open("r").await?;
        let recovery = run.recovery();
        ensure!(recovery.checkpoint.is_none(), "the checkpoint was stored and not appended");
        ensure!(recovery.missing_content.is_empty() && recovery.resumable, "{:?}", recovery.reason);
        let answer = fetch(&run, None).await?;
        ensure!(answer.recorded && answer.result == Some(result()), "the recorded result comes back");
        run.checkpoint(&state()).await?;
        let recovery = runlog.open("r").await?.recovery().clone();
        let messages = recovery.checkpoint.and_then(|checkpoint| checkpoint.messages);
        ensure!(messages == Some(state().messages), "the checkpoint comes back whole");
        Ok(())
    })
}

#[test]
fn a_failed_upload_fails_the_append_and_the_handle_stays_usable() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let content = folder.path().join("content");
    runtime()?.block_on(async {
        let config = Config::new(Journal::Local(folder.path().to_owned()), "test");
        let runlog = Runlog::connect(config).await?;
        let run = runlog.open("r").await?;
        // A file in its place prevents the folder.
        std::fs::write(content.join("sha256"), "")?;
        let failed = run.checkpoint(&state()).await.expect_err("the store accepts nothing");
        ensure!((failed.kind(), failed.action()) == (ErrorKind::Unavailable, Action::Retry), "{failed}");
        let position = run.turn("user", "small").await?;
        run.applied(&position, std::time::Duration::from_secs(30)).await?;
        std::fs::remove_file(content.join("sha256"))?;
        let enormous = run.turn("user", &text(65 << 20, 3)).await.expect_err("no store accepts that");
        ensure!((enormous.kind(), enormous.action()) == (ErrorKind::TooLarge, Action::FixTheInput), "{enormous}");
        ensure!(objects(&content)?.is_empty());
        let position = run.checkpoint(&state()).await?;
        run.applied(&position, std::time::Duration::from_secs(30)).await?;
        Ok(())
    })
}

/// A run on a server with a small checkpoint, the result and the large checkpoint.
async fn run_on(server: &str) -> anyhow::Result<Runlog> {
    let runlog = Runlog::connect(Config::new(Journal::Http(server.to_owned()), "test")).await?;
    let run = runlog.open("r").await?;
    run.checkpoint(&LoopState::default()).await?;
    fetch(&run, Some(result())).await?;
    run.checkpoint(&state()).await?;
    Ok(runlog)
}

#[test]
fn lost_content_is_named_and_completed_calls_stay_completed() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = Launch::local(folder.path()).start()?;
    let (runlog, runtime) = (server.runlog(), runtime()?);
    let agent = runtime.block_on(run_on(&server.url))?;
    let shown = runlog.json(&["show", "r"])?.exits(0)?.documents()?;
    let (done, checkpoint) = (named(&shown, "tool_call_completed")?, named(&shown, "loop_checkpoint")?);
    let objects = objects(&folder.path().join("content"))?;
    ensure!(objects.keys().collect::<Vec<_>>().len() == 2 && objects.contains_key(&done), "{objects:?}");
    let raw = runlog.json(&["show", "r", "--raw"])?.exits(0)?.documents()?;
    let whole = raw.iter().find(|line| line["payload_type"] == "tool_call_completed").context("a result")?;
    ensure!(whole["payload"]["result"] == result().to_value(), "unmasked, it is fetched");
    ensure!(runlog.answer(&["checkpoint", "r"])?["covers_journal_seq"] == 3, "the large one");
    ensure!(runlog.answer(&["recover", "r"])?["missing_content"] == json!([]));

    let lookup = ["lookup", "r", "--tool", "fetch", "--args", r#"{"url":"http://example"}"#];
    ensure!(runlog.answer(&lookup)?["result"] == result().to_value(), "before it is lost");
    let original = std::fs::read(&objects[&done])?;
    std::fs::remove_file(&objects[&done])?;
    let answer = runlog.answer(&lookup)?;
    ensure!(answer["status"] == "completed" && answer["result"].is_null(), "{answer}");
    ensure!(answer["missing_content"][0]["sha256"] == *done && answer["missing_content"][0]["reason"] == "missing");
    let recovery = runlog.json(&["recover", "r"])?.exits(1)?.json()?;
    let missing = &recovery["missing_content"];
    ensure!(missing.as_array().is_some_and(|all| all.len() == 1) && missing[0]["sha256"] == *done, "{missing}");
    ensure!(missing[0]["payload_type"] == "tool_call_completed" && missing[0]["reason"] == "missing", "{missing}");
    ensure!(recovery["reason"].as_str().is_some_and(|reason| reason.contains(&done)), "{}", recovery["reason"]);
    // No call runs a second time because its answer is lost.
    runtime.block_on(async {
        let from_start = OpenOptions { from_start: true, ..OpenOptions::default() };
        let run = agent.open_with("r", from_start).await?;
        let error = fetch(&run, None).await.expect_err("the answer is lost");
        ensure!((error.kind(), error.action()) == (ErrorKind::MissingContent, Action::Operator), "{error}");
        std::fs::write(&objects[&done], &original)?;
        let answer = fetch(&run, None).await?;
        ensure!(answer.recorded && answer.result == Some(result()), "restored, it answers");
        anyhow::Ok(())
    })?;

    // Other content of the same length is detected on reading: the older checkpoint is the valid one.
    let mut changed = std::fs::read(&objects[&checkpoint])?;
    *changed.last_mut().context("a byte")? ^= 1;
    std::fs::write(&objects[&checkpoint], &changed)?;
    ensure!(runlog.answer(&["checkpoint", "r"])?["covers_journal_seq"] == 1, "the small one");
    let recovery = runlog.json(&["recover", "r"])?.exits(1)?.json()?;
    ensure!(recovery["checkpoint"]["covers_journal_seq"] == 1, "{}", recovery["checkpoint"]);
    let missing = &recovery["missing_content"];
    ensure!(missing[0]["sha256"] == *checkpoint && missing[0]["reason"] == "corrupt", "{missing}");
    ensure!(recovery["completed"].as_array().is_some_and(|completed| completed.len() == 1), "it is not covered now");
    Ok(())
}

#[test]
fn indices_are_built_and_verified_without_the_content() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let launch = Launch::local(folder.path());
    let server = launch.start()?;
    runtime()?.block_on(run_on(&server.url))?;
    let before = server.runlog().answer(&["verify"])?;
    ensure!(before["equal"] == true);
    server.terminate()?;
    std::fs::rename(folder.path().join("content"), folder.path().join("moved"))?;
    std::fs::remove_dir_all(folder.path().join("index"))?;
    let server = launch.start()?;
    let runlog = server.runlog();
    runlog.answer(&["runs", "--consistency", "latest"])?;
    let after = runlog.answer(&["verify"])?;
    ensure!(after["equal"] == true && after["partitions"] == before["partitions"], "{before}\n{after}");
    let indices = after["partitions"].as_array().context("partitions")?.iter();
    let rows: u64 = indices
        .flat_map(|of| of["indices"].as_array().into_iter().flatten())
        .filter(|index| index["name"] == "contents")
        .filter_map(|index| index["rows"].as_u64())
        .sum();
    ensure!(rows == 2, "{rows} rows name stored content");
    let lookup = ["lookup", "r", "--tool", "fetch", "--args", r#"{"url":"http://example"}"#];
    ensure!(runlog.answer(&lookup)?["status"] == "completed");
    Ok(())
}

#[test]
fn a_claim_check_is_accepted_only_for_stored_content_that_matches_the_record() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = Launch::local(folder.path()).start()?;
    let turn = |content: &str| {
        json!({"run_id": "r", "record_id": "1", "payload":
            {"type": "conversation_turn", "message_id": "m", "kind": "user", "content": content}})
    };
    let draft = Draft::parse(&turn("x").to_string())?;
    let content = runlog_schemas::datum::Datum::to_bytes(&draft.record.payload);
    let mut checked = draft.record.clone();
    checked.payload = Payload::from(StoredPayload::of(PayloadType::ConversationTurn, &content));
    // The server numbers it.
    let send = |record: &Value| {
        let mut record = record.clone();
        let members = record.as_object_mut().context("an object")?;
        members.retain(|name, _| !["writer_id", "writer_epoch", "writer_seq", "journal_seq"].contains(&name.as_str()));
        server.post("/v1/runs/r/records", &record)
    };
    let (status, problem) = send(&serde_json::to_value(&checked)?)?;
    ensure!((status, &problem["kind"]) == (409, &json!("missing_content")), "{problem}");
    let name = draft.record.payload.payload_type();
    let sha256 = StoredPayload::of(name, &content).sha256.to_string();
    let object = folder.path().join("content/sha256").join(&sha256[..2]).join(&sha256);
    std::fs::create_dir_all(object.parent().context("a folder")?)?;
    std::fs::write(&object, &content)?;
    let mut lying = checked.clone();
    lying.body.facts.status = Some("completed".into());
    let (status, problem) = send(&serde_json::to_value(&lying)?)?;
    ensure!((status, &problem["kind"]) == (400, &json!("invalid")), "{problem}");
    let (status, outcome) = send(&serde_json::to_value(&checked)?)?;
    ensure!(status == 200 && outcome["outcome"] == "applied", "{outcome}");
    // With its whole payload it is the same record: the storage of the payload is not part of the record's content.
    let (status, outcome) = send(&serde_json::to_value(&draft.record)?)?;
    ensure!(status == 200 && outcome["outcome"] == "repeat", "{outcome}");
    let raw = server.runlog().json(&["show", "r", "--raw"])?.exits(0)?.json()?;
    ensure!(raw["payload"]["content"] == "x", "{raw}");
    // A dry run stores nothing.
    let large = turn(&text(400 << 10, 9));
    let (status, outcome) = server.post("/v1/runs/other/records?check=true", &{
        let mut other = large.clone();
        other["run_id"] = "other".into();
        other
    })?;
    ensure!(status == 200 && outcome["outcome"] == "applied", "{outcome}");
    ensure!(objects(&folder.path().join("content"))?.len() == 1, "the dry run stored no content");
    Ok(())
}
