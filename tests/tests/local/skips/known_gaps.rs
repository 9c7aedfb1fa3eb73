//! The known gaps after a skip, as docs/spec.md lists them.

use super::*;
use runlog_log::{Log as _, Offset, PartitionId, memory::MemoryLog};
use runlog_projector::{Config as Serving, Consistency, Projector, index::fold};
use runlog_schemas::{
    id::RecordId,
    payload::{Payload, Skip},
    record::JournalRecord,
};
use runlog_tests::agent::{Agent, entry, run_in};
use std::{path::Path, sync::Arc};

const FIRST: PartitionId = PartitionId::ZERO;
const DEADLINE: Duration = Duration::from_secs(60);

fn lookup(server: &Server, invoice: &str) -> anyhow::Result<Value> {
    Ok(server.get(&format!("/v1/runs/r/lookup?tool=pay&args=%7B%22invoice%22%3A%22{invoice}%22%7D"))?.1)
}

impl Writer {
    /// Appends a record with the numbers of the writer's second record, as a process without its state may. It must be refused. Returns
    /// its offset.
    fn refused(&self, server: &Server, id: &str, payload: &Value) -> anyhow::Result<u64> {
        let record = json!({ "run_id": RUN, "record_id": id, "writer_id": self.id, "writer_epoch": self.epoch, "writer_seq": 2,
            "journal_seq": 2, "payload": payload });
        let (_, refused) = server.post("/v1/runs/r/records?force=true", &record)?;
        ensure!(refused["outcome"] == "refused", "{refused}");
        refused["position"]["offset"].as_u64().with_context(|| refused.to_string())
    }
}

#[test]
fn a_displaced_attempt_on_a_call_with_another_end_leaves_no_trace() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let writer = Writer::claim(&server)?;
    writer.applied(&server, "pay", &request("pay"))?;
    ensure!(decide(&server, "pay", "not_done")?["outcome"] == "applied");
    let victim = writer.applied(&server, "say", &turn("poison"))?;
    let result = writer.refused(&server, "result", &completed("pay"))?;
    // It is evidence, so the call needs another decision.
    ensure!(decide(&server, "pay", "not_done")?["outcome"] == "applied");
    let again = writer.applied(&server, "again", &attempt("pay", 2))?;
    // The effect may run a second time here.
    skip(&server, victim)?;
    ensure!(outcome(&server, result)?["outcome"] == "applied", "{}", outcome(&server, result)?);
    ensure!(outcome(&server, again)?["reason"] == "transition", "{}", outcome(&server, again)?);
    ensure!(pending(&server)? == json!([]), "{}", pending(&server)?);
    let (_, contradicted) = server.get("/v1/effects?contradicted=true")?;
    ensure!(contradicted["effects"] == json!([]), "{contradicted}");
    server.terminate()?;
    Ok(())
}

#[test]
fn a_displaced_end_of_an_effect_without_other_records_leaves_no_trace() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let writer = Writer::claim(&server)?;
    let victim = writer.applied(&server, "say", &turn("poison"))?;
    let end = json!({ "type": "effect_result", "effect_id": "e", "terminal_status": "completed", "content_refs": [],
        "redacted_summary": "paid" });
    let ended = writer.applied(&server, "ended", &end)?;
    skip(&server, victim)?;
    ensure!(outcome(&server, ended)?["reason"] == "gap", "{}", outcome(&server, ended)?);
    let (_, effects) = server.get("/v1/effects")?;
    ensure!(effects["effects"] == json!([]) && pending(&server)? == json!([]), "{effects}");
    server.terminate()?;
    Ok(())
}

#[test]
fn of_two_requests_under_one_id_only_one_is_found() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let first = Writer::claim(&server)?;
    let say = first.applied(&server, "say", &turn("hello"))?;
    let second = Writer::claim(&server)?;
    let (_, refused) = first.append(&server, "pay", &request("one"))?;
    ensure!(refused["reason"] == "fenced", "{refused}");
    let ran = second.applied(&server, "pay", &request("two"))?;
    let is_pending = |invoice: &str| anyhow::Ok(lookup(&server, invoice)?["status"] == "pending");
    ensure!(is_pending("two")? && !is_pending("one")?);
    // The second claim.
    skip(&server, say + 1)?;
    ensure!(outcome(&server, ran)?["reason"] == "fenced", "{}", outcome(&server, ran)?);
    ensure!(is_pending("one")? && !is_pending("two")?);
    // A call under the id does not run without a decision.
    ensure!(of_call(&pending(&server)?, "pay")?["class"] == "reconcile_required");
    server.terminate()?;
    Ok(())
}

#[test]
fn a_record_that_was_refused_before_the_skip_leaves_a_trace_as_if_it_had_been_applied() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let writer = Writer::claim(&server)?;
    writer.applied(&server, "pay", &request("pay"))?;
    ensure!(decide(&server, "pay", "not_done")?["outcome"] == "applied");
    let victim = writer.applied(&server, "say", &turn("poison"))?;
    // A credential with `append` alone can write these.
    for (id, payload) in [("again", attempt("pay", 2)), ("never", request("book"))] {
        let record = json!({ "run_id": RUN, "record_id": id, "writer_id": writer.id, "writer_epoch": writer.epoch,
            "writer_seq": 99, "payload": payload });
        let (_, refused) = server.post("/v1/runs/r/records?force=true", &record)?;
        ensure!(refused["reason"] == "gap", "{refused}");
    }
    let before = pending(&server)?;
    ensure!(before.as_array().map(Vec::len) == Some(1), "{before}");
    ensure!(of_call(&before, "pay")?["class"] == "retry_safe", "{before}");

    skip(&server, victim)?;
    let second = Writer::claim(&server)?;
    second.applied(&server, "equal", &request("book"))?;
    let now = pending(&server)?;
    for call in ["pay", "never", "equal"] {
        ensure!(of_call(&now, call)?["class"] == "reconcile_required", "{call}: {now}");
    }
    // The refused request counts as the first of the equal calls.
    let found = lookup(&server, "book")?;
    ensure!(found["occurrence"] == 2 && found["occurrences"] == 2, "{found}");
    server.terminate()?;
    Ok(())
}

async fn serve(folder: &Path, log: &MemoryLog) -> anyhow::Result<Projector> {
    Ok(Projector::start(Serving::new(folder, || 0, || "journal".into()), Arc::new(log.clone())).await?)
}

async fn append_skip(log: &MemoryLog, id: &str, offset: Offset) -> anyhow::Result<Offset> {
    let skip = Payload::Skip(Skip { offset, who: "jo".into(), why: "poison".into() });
    let record = JournalRecord::of_partition(RecordId::new(id)?.to_owned(), "test", skip);
    log.append(FIRST, vec![entry(&record)]).await?.pop().context("an offset")
}

async fn read_to_the_end(projector: &Projector) -> anyhow::Result<()> {
    Ok(projector.wait(FIRST, Consistency::Latest, DEADLINE).await?)
}

/// The log was truncated after the first server had read a skip, and before the second one did. A skip of that skip lets the second
/// server continue, with the record. It changes nothing at the first one.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_skip_of_a_skip_only_servers_that_read_the_first_one_late_keep_the_record() -> anyhow::Result<()> {
    let (log, folders) = (MemoryLog::new(1), [tempdir()?, tempdir()?]);
    let mut agent = Agent::new(&run_in(FIRST, 1, "r"));
    let in_time = serve(folders[0].path(), &log).await?;
    let late = serve(folders[1].path(), &log).await?;
    let victim = log.append(FIRST, vec![entry(&agent.turn("poison"))]).await?[0];
    read_to_the_end(&late).await?;
    drop(late);
    let first = append_skip(&log, "first", victim).await?;
    read_to_the_end(&in_time).await?;

    log.truncate_before(FIRST, first);
    let late = serve(folders[1].path(), &log).await?;
    let stopped = late.wait_until(FIRST, |progress| progress.stopped.is_some());
    let stop = tokio::time::timeout(DEADLINE, stopped).await??.stopped.context("a stop")?;
    ensure!((stop.offset, stop.kind.as_str()) == (first, "cannot_rebuild"), "{stop:?}");
    let second = append_skip(&log, "second", first).await?;
    for projector in [&late, &in_time] {
        let read = projector.wait_until(FIRST, |progress| progress.applied > second && progress.stopped.is_none());
        tokio::time::timeout(DEADLINE, read).await??;
    }
    let voided = |projector: &Projector| -> anyhow::Result<Vec<_>> {
        Ok(fold::skips_of(&*projector.store(FIRST)?)?.into_iter().collect())
    };
    ensure!(voided(&in_time)? == [(victim, first), (first, second)], "{:?}", voided(&in_time)?);
    ensure!(voided(&late)? == [(first, second)], "{:?}", voided(&late)?);
    Ok(())
}
