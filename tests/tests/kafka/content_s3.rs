//! Content in a real S3-compatible store, of a journal on Kafka.

use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use anyhow::{Context, ensure};
use runlog_content::{Config as Content, Kind, Reference, Store};
use runlog_producer::{Config, Journal, Json, LoopState, Runlog};
use runlog_tests::{
    content::{S3, named, text},
    kafka::Broker,
    server::Launch,
};
use serde_json::{Value, json};
use tempfile::tempdir;

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

#[test]
fn content_on_s3_is_verified_and_missing_or_corrupt_content_is_detected() -> anyhow::Result<()> {
    let s3 = S3::start()?;
    runtime()?.block_on(async {
        let store = Store::open(&s3.bucket("content").await?)?;
        let content = text(5 << 20, 4).into_bytes();
        let reference = Reference::compute(&content);
        ensure!(!store.has(&reference).await?);
        ensure!(store.get(&reference).await.map_err(|error| error.kind()) == Err(Kind::Missing));
        // Concurrent puts of one object all succeed: the store puts only if the object is absent.
        let puts = futures_util::future::join_all((0..8).map(|_| store.put(content.clone()))).await;
        for put in puts {
            ensure!(put? == reference);
        }
        ensure!(store.has(&reference).await? && store.get(&reference).await? == content);
        let name = reference.sha256.to_string();
        s3.meddle("PUT", "content", &name, b"short".to_vec()).await?;
        ensure!(store.has(&reference).await.map_err(|error| error.kind()) == Err(Kind::Corrupt));
        let mut changed = content.clone();
        changed[77] ^= 1;
        s3.meddle("PUT", "content", &name, changed).await?;
        ensure!(store.has(&reference).await?, "its length is right");
        ensure!(store.get(&reference).await.map_err(|error| error.kind()) == Err(Kind::Corrupt));
        s3.meddle("DELETE", "content", &name, Vec::new()).await?;
        ensure!(!store.has(&reference).await?);
        ensure!(store.put(content.clone()).await? == reference && store.get(&reference).await? == content);
        Ok(())
    })
}

#[test]
fn content_of_an_unreachable_store_is_unavailable_and_not_missing() -> anyhow::Result<()> {
    let s3 = S3::start()?;
    runtime()?.block_on(async {
        let config = s3.bucket("content").await?;
        let hasty = Store::open(&Content { deadline: Duration::from_millis(500), ..config.clone() })?;
        let reference = hasty.put(&b"content"[..]).await?;
        drop(s3);
        for kind in [
            hasty.get(&reference).await.map(drop),
            hasty.has(&reference).await.map(drop),
            hasty.put(&b"other"[..]).await.map(drop),
        ] {
            ensure!(kind.map_err(|error| error.kind()) == Err(Kind::Unavailable));
        }
        Ok(())
    })
}

#[test]
fn an_agent_on_kafka_keeps_large_content_on_s3_and_the_server_answers_with_it() -> anyhow::Result<()> {
    let s3 = S3::start()?;
    let runtime = runtime()?;
    let content = runtime.block_on(s3.bucket("content"))?;
    let folder = tempdir()?;
    let kafka = Broker::shared().unique_topic();
    let config = folder.path().join("config.json");
    let file = json!({"content": {"url": content.url, "options": content.options}});
    std::fs::write(&config, file.to_string())?;
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o600))?;
    let named_config = config.to_str().context("UTF-8")?;
    let launch = Launch::kafka(&folder.path().join("data"), &kafka).partitions(4).with("--config").with(named_config);
    let server = launch.start()?;
    let result = Json::from(json!({ "page": text(2 << 20, 5) }));
    let state = LoopState { messages: vec![Json::from(json!(text(3 << 20, 6)))], ..LoopState::default() };
    let journal = Journal::Kafka { brokers: kafka.brokers.clone(), server: server.url.clone() };
    runtime.block_on(async {
        let config = Config { content: Some(content.clone()), ..Config::new(journal, "test") };
        let run = Runlog::connect(config).await?.open("r").await?;
        let answer = run.tool("fetch", &json!({})).once(|_| async { Ok(result.clone()) }).await?;
        ensure!(answer.result.as_ref() == Some(&result) && !answer.recorded);
        let position = run.checkpoint(&state).await?;
        run.applied(&position, Duration::from_secs(30)).await?;
        anyhow::Ok(())
    })?;
    let runlog = server.runlog();
    let lookup = ["lookup", "r", "--tool", "fetch", "--args", "{}"];
    ensure!(runlog.answer(&lookup)?["result"] == result.to_value(), "by way of S3");
    let checkpoint = runlog.answer(&["checkpoint", "r"])?;
    ensure!(checkpoint["messages"] == json!([state.messages[0].to_value()]), "by way of S3");
    let shown = runlog.json(&["show", "r"])?.exits(0)?.documents()?;
    let done = named(&shown, "tool_call_completed")?;
    runtime.block_on(s3.meddle("DELETE", "content", &done, Vec::new()))?;
    let missing = |kind: &Value| kind["missing_content"][0]["sha256"] == *done;
    let completed = runlog.answer(&lookup)?;
    ensure!(completed["status"] == "completed" && missing(&completed), "{completed}");
    ensure!(missing(&runlog.json(&["recover", "r"])?.exits(1)?.json()?));
    // An import directly to Kafka also puts its content there.
    let long_text = text(2 << 20, 7);
    let traj = json!([{"role": "user", "content": long_text}, {"role": "assistant", "content": "I see"}]);
    let recorded = json!([{"task_id": 1, "trial": 0, "reward": 1.0, "traj": traj}]);
    let path = folder.path().join("recorded.json");
    std::fs::write(&path, recorded.to_string())?;
    let path = path.to_str().context("UTF-8")?;
    let import = ["import", "tau-bench", path, "--brokers", &kafka.brokers, "--topic", &kafka.topic];
    ensure!(runlog.json(&import)?.exits(3)?.error_kind()? == "invalid", "without the store it is too large");
    runlog.answer(&[&["--config", named_config][..], &import[..]].concat())?;
    let checkpoint = runlog.answer(&["checkpoint", "tau-bench:1:0"])?;
    ensure!(checkpoint["messages"] == recorded[0]["traj"], "by way of S3");
    // While the store does not answer, its content is unknown: the server returns no older checkpoint and no "missing".
    drop(s3);
    let completed = runlog.answer(&lookup)?;
    ensure!(
        completed["status"] == "completed" && completed["missing_content"][0]["reason"] == "unavailable",
        "{completed}"
    );
    ensure!(runlog.json(&["checkpoint", "r"])?.exits(4)?.error_kind()? == "unavailable");
    ensure!(runlog.json(&["recover", "r"])?.exits(4)?.error_kind()? == "unavailable");
    Ok(())
}
