//! `recover`: the answer for a process that resumes a run.

use super::{
    payloads::{
        approval_requested, checkpoint, completed, effect_intent, lifecycle, message, request, run_message, turn, wake,
        write_back,
    },
    rule::{Rule, rule},
};
use serde_json::json;

const SECTION: &str = "Reads";

pub(crate) const RULES: &[Rule] = &[
    rule("recovery_of_run", SECTION, "a recovery reports the run's status, numbers, epoch, writer, hash and position")
        .test(|scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            scenario.append(&mut run, checkpoint("c", 1, &[message("hello")]))?;
            let (head, recovery) = (scenario.head(&run)?, scenario.recovery(&run)?);
            for member in
                ["run_id", "status", "next_journal_seq", "next_writer_seq", "epoch", "writer_id", "hash", "position"]
            {
                let pointer = format!("/{member}");
                recovery.has(&pointer, head.value_at(&pointer).clone())?;
            }
            recovery.has("/run_id", run.id.as_str())
        }),
    rule("recovery_checkpoint", SECTION, "a recovery has the latest checkpoint, with its messages if full=true").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            scenario.recovery(&run)?.has("/checkpoint", serde_json::Value::Null)?;
            scenario.append(&mut run, checkpoint("c", 1, &[message("hello")]))?;
            let recovery = scenario.recovery(&run)?;
            recovery.has("/checkpoint/checkpoint_id", "c")?;
            recovery.check(recovery.value_at("/checkpoint/messages").is_null(), "a checkpoint without messages")?;
            let full = scenario.query_run(&run, "/recovery", &[("full", "true")])?.ok()?;
            full.has("/checkpoint/messages", vec![message("hello")])
        },
    ),
    rule("recovery_after", SECTION, "a recovery counts the records after its checkpoint").test(|scenario, mut run| {
        scenario.append(&mut run, turn("a"))?;
        scenario.recovery(&run)?.has("/records_after", 1)?;
        scenario.append(&mut run, checkpoint("c", 1, &[message("hello")]))?;
        scenario.recovery(&run)?.has("/records_after", 0)?;
        scenario.append(&mut run, turn("b"))?;
        scenario.append(&mut run, turn("c"))?;
        scenario.recovery(&run)?.has("/records_after", 2)
    }),
    rule("recovery_completed", SECTION, "ended calls are listed in the order of their requests").test(
        |scenario, mut run| {
            let one = scenario.append(&mut run, request("book", &json!({"seat": 1})))?;
            let two = scenario.append(&mut run, request("book", &json!({"seat": 2})))?;
            for request_id in [&two, &one] {
                scenario.append(&mut run, completed(request_id, &json!("done")))?;
            }
            let recovery = scenario.recovery(&run)?;
            recovery.lists("/completed", "id", &[&one, &two])?;
            recovery.has("/unclaimed", 2)?;
            recovery.has("/completed/0/status", "completed")?;
            recovery.has("/completed/0/occurrence", 1)
        },
    ),
    rule("recovery_pending", SECTION, "pending calls and effects are listed, also if a checkpoint covers them").test(
        |scenario, mut run| {
            let call = scenario.pending(&mut run)?;
            scenario.append(&mut run, effect_intent("e"))?;
            scenario.append(&mut run, checkpoint("c", 2, &[message("hello")]))?;
            let recovery = scenario.recovery(&run)?;
            recovery.lists("/pending", "id", &[&call, "e"])?;
            recovery.lists("/pending", "kind", &["tool_call", "effect"])?;
            recovery.has("/pending/0/journal_seq", 1)
        },
    ),
    rule("keys_told", SECTION, "pending and ended calls are listed with their idempotency key").test(
        |scenario, mut run| {
            for (seat, key) in [(1, "key-1"), (2, "key-2")] {
                let requested = run.record(request("book", &json!({"seat": seat}))).with("idempotency_key", key);
                scenario.send(&mut run, &requested)?.expect_applied()?;
                if seat == 1 {
                    scenario.append(&mut run, completed(requested.id(), &json!("done")))?;
                }
            }
            let recovery = scenario.recovery(&run)?;
            recovery.lists("/completed", "idempotency_key", &["key-1"])?;
            recovery.lists("/pending", "idempotency_key", &["key-2"])
        },
    ),
    rule("recovery_open", SECTION, "open approvals, wakes, messages and write-backs are listed").test(
        |scenario, mut run| {
            let payloads = [
                approval_requested(&run.id, "a"),
                wake(&run.id, "w", "registered"),
                run_message(&run.id, "m", "accepted"),
                write_back("staged", 3),
            ];
            for payload in payloads {
                scenario.append(&mut run, payload)?;
            }
            let recovery = scenario.recovery(&run)?;
            for (list, id) in [("approvals", "a"), ("wakes", "w"), ("messages", "m"), ("write_backs", "3")] {
                recovery.lists(&format!("/{list}"), "id", &[id])?;
            }
            Ok(())
        },
    ),
    rule("resumable_ended", SECTION, "a run that ended is not resumable, and reason is a text").test(
        |scenario, mut run| {
            scenario.append(&mut run, lifecycle("completed"))?;
            let recovery = scenario.recovery(&run)?;
            recovery.has("/resumable", false)?;
            recovery.check(recovery.value_at("/reason").is_string(), "a reason")
        },
    ),
    rule("resumable_unsafe", SECTION, "a run with a reconcile_required effect is not resumable, and reason is a text")
        .test(|scenario, mut run| {
            scenario.pending(&mut run)?;
            let recovery = scenario.recovery(&run)?;
            recovery.has("/resumable", false)?;
            recovery.check(recovery.value_at("/reason").is_string(), "a reason")
        }),
    rule("resumable", SECTION, "a run whose pending effects are all retry_safe is resumable").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            let recovery = scenario.recovery(&run)?;
            recovery.has("/resumable", true)?;
            recovery.has("/reason", serde_json::Value::Null)?;
            let record = run.record(request("book", &json!({"seat": 1}))).with("idempotency_key", "key-1");
            scenario.send(&mut run, &record)?.expect_applied()?;
            let recovery = scenario.recovery(&run)?;
            if recovery.value_at("/pending/0/class") == "retry_safe" {
                recovery.has("/resumable", true)?;
            }
            Ok(())
        },
    ),
];
