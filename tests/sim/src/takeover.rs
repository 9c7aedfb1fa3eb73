//! The end of a seed whose home is lost: the mirror takes over with the records that the copier has copied.

use crate::{
    ledger::run_id,
    mirror::{Mirror, is_stopped},
    plan::LETTER,
    server::Server,
    stage::{PARTITIONS, Stage},
};
use anyhow::Context;
use axum::{body::Body, http::Request};
use runlog_log::{LogId, Offset, PartitionId};
use runlog_projector::index::projector::Decision;
use runlog_schemas::{id::RunId, partition::partition_of};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// How long a partition may take to continue after a skip.
const CONTINUES_MAX: Duration = Duration::from_secs(60);

/// A run that no process ever claimed.
const NEVER: &str = "run-that-never-was";

/// Lets the mirror take over, and checks that no process can continue a run that the lost home may have continued: before and after
/// a restart of the mirror's server, and after an operator has accepted one run.
pub(crate) async fn check(stage: &Stage, server: &Arc<Server>) -> anyhow::Result<()> {
    let Some(mirror) = &stage.mirror else { return Ok(()) };
    mirror.check_appended(stage);
    let Some(projector) = server.projector() else {
        stage.count("home lost before the mirror had a genesis");
        return Ok(());
    };
    stage.count("home lost");
    drop(projector);
    take_home(server).await?;
    continues_no_run_in_doubt(stage, mirror, server, None).await?;
    server.kill().await?;
    server.start().await?;
    read_on(server).await?;
    if all_wait_for_skips(server).await? {
        // The server has not read the takeover, and refuses the skips. The operator starts it with the same flags.
        stage.count("takeover again after a restart");
        take_home(server).await?;
    }
    continues_no_run_in_doubt(stage, mirror, server, None).await?;
    skip_stops(stage, server).await?;
    continues_no_run_in_doubt(stage, mirror, server, None).await?;
    let Some(accepted) = accept(stage, mirror, server).await? else { return Ok(()) };
    continues_no_run_in_doubt(stage, mirror, server, Some(accepted)).await
}

async fn take_home(server: &Server) -> anyhow::Result<()> {
    let projector = server.projector().context("the mirror's server is down")?;
    let lost = LogId::memory("home").context("an id")?;
    projector.take_home(&lost, Decision { who: "operator".into(), why: "the home is lost".into() }).await?;
    Ok(())
}

/// Waits until the server has read each partition to its end or to its stop. Until then it refuses as a mirror.
async fn read_on(server: &Server) -> anyhow::Result<()> {
    let projector = server.projector().context("the mirror's server is down")?;
    for partition in PartitionId::all(PARTITIONS) {
        projector.caught_up(partition, CONTINUES_MAX).await.ok();
    }
    Ok(())
}

async fn all_wait_for_skips(server: &Server) -> anyhow::Result<bool> {
    for partition in PartitionId::all(PARTITIONS) {
        if !is_stopped(server, partition).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Asks to continue each run, and an unknown one, as a process would.
async fn continues_no_run_in_doubt(
    stage: &Stage,
    mirror: &Mirror,
    server: &Server,
    accepted: Option<u32>,
) -> anyhow::Result<()> {
    for run in 0..=LETTER {
        let id = run_id(run);
        let may_continue = accepted != Some(run) && !has_ended(stage, mirror, run)?;
        let is_unclear = is_unclear(stage, server, run).await?;
        // On the mirror a skip of the home is skipped, so an end that it displaced counts. A run that has ended starts no effect.
        let must_doubt = may_continue && !(is_unclear && has_end(stage, mirror, run)?);
        let may_doubt = may_continue || is_unclear;
        for (method, path, answer) in continuing(server, &id).await? {
            let (in_doubt, is_refused) = (answer["reason"] == "doubt", is_refused(&answer));
            if in_doubt && !may_doubt || !is_refused && must_doubt {
                let next = mirror.next(partition(&id)?);
                stage.ledger().fail(format!(
                    "after a takeover with the records before {next}, {method} {path} of run {run} is answered {answer}"
                ));
            }
        }
    }
    for (method, path, answer) in continuing(server, NEVER).await? {
        if !is_refused(&answer) {
            stage.ledger().fail(format!("after a takeover, {method} {path} of an unknown run is answered {answer}"));
        }
    }
    Ok(())
}

/// A stopped partition says nothing about a run.
fn is_refused(answer: &Value) -> bool {
    answer["reason"] == "doubt" || answer["kind"] == "partition_stopped"
}

/// Skips the records at which the partitions stop: records that cannot be read, and skips of the lost home.
async fn skip_stops(stage: &Stage, server: &Server) -> anyhow::Result<()> {
    let projector = server.projector().context("the mirror's server is down")?;
    for partition in PartitionId::all(PARTITIONS) {
        while let Some(stop) = projector.progress(partition)?.stopped {
            let body = json!({ "partition": partition, "offset": stop.offset, "who": "operator", "why": "copied" });
            let answer = ask(server, "POST", "/v1/skips?force=true&deadline_ms=5000", body.to_string()).await?;
            let continues =
                projector.wait_until(partition, |at| at.stopped.as_ref().is_none_or(|next| next.offset > stop.offset));
            let continued = timeout(CONTINUES_MAX, continues).await;
            if !matches!(continued, Ok(Ok(_))) {
                stage
                    .ledger()
                    .fail(format!("after a takeover partition {partition} stays stopped: {}: {answer}", stop.error));
                break;
            }
            stage.count("skip after a takeover");
        }
        projector.caught_up(partition, CONTINUES_MAX).await.ok();
    }
    Ok(())
}

/// The requests by which a process continues a run, and their answers.
async fn continuing(server: &Server, run_id: &str) -> anyhow::Result<Vec<(&'static str, String, Value)>> {
    let path = |of: &str| format!("/v1/runs/{run_id}{of}");
    let claim = json!({ "claimed_by": "nobody" }).to_string();
    let mut answers = Vec::new();
    // The claim is last: it may continue the run.
    for (method, path, body) in [
        ("GET", path("/recovery"), String::new()),
        ("GET", path(""), String::new()),
        ("GET", path("/checkpoints/latest"), String::new()),
        ("POST", path("/claims"), claim),
    ] {
        let answer = ask(server, method, &path, body).await?;
        answers.push((method, path, answer));
    }
    Ok(answers)
}

/// Accepts the first run in doubt whose partition has the record of the takeover, as an operator who has checked its effects.
async fn accept(stage: &Stage, mirror: &Mirror, server: &Server) -> anyhow::Result<Option<u32>> {
    for run in 0..=LETTER {
        if has_ended(stage, mirror, run)? || is_unclear(stage, server, run).await? {
            continue;
        }
        let body = json!({ "run_id": run_id(run), "who": "operator", "why": "its effects were checked" }).to_string();
        let answer = ask(server, "POST", "/v1/home/accepts", body).await?;
        if answer["outcomes"][0]["outcome"] != "applied" {
            stage.ledger().fail(format!("the accept of run {run} is answered {answer}"));
        }
        stage.count("run accepted after a takeover");
        return Ok(Some(run));
    }
    Ok(None)
}

fn partition(run_id: &str) -> anyhow::Result<PartitionId> {
    Ok(partition_of(RunId::new(run_id)?, PARTITIONS))
}

/// Whether the copied records end the run.
fn has_ended(stage: &Stage, mirror: &Mirror, run: u32) -> anyhow::Result<bool> {
    let partition = partition(&run_id(run))?;
    Ok(stage.ledger().has_ended_before(run, partition, mirror.next(partition)))
}

/// Whether the copied records contain an end of the run, applied at the home or not.
fn has_end(stage: &Stage, mirror: &Mirror, run: u32) -> anyhow::Result<bool> {
    let partition = partition(&run_id(run))?;
    Ok(stage.ledger().has_end_before(run, partition, mirror.next(partition)))
}

/// Whether the mirror cannot apply all copied records of the run's partition, because it is stopped, or a skip voids one of them. Its
/// runs may then be in doubt although the copied records end them.
async fn is_unclear(stage: &Stage, server: &Server, run: u32) -> anyhow::Result<bool> {
    let partition = partition(&run_id(run))?;
    Ok(stage.ledger().has_skip_from(partition, Offset::ZERO.get()) || is_stopped(server, partition).await?)
}

async fn ask(server: &Server, method: &str, path: &str, body: String) -> anyhow::Result<Value> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let answering = server.answer(request.body(Body::from(body))?).context("the mirror's server is down")?;
    let answer = answering.whole().await.context("no answer of the mirror's server")?;
    Ok(serde_json::from_slice(answer.body())?)
}
