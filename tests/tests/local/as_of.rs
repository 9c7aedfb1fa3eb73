//! A run as of a position, over HTTP and on the command line.

use anyhow::{Context, ensure};
use runlog_tests::{
    command::Runlog,
    server::{Launch, Server},
};
use serde_json::{Value, json};

const RUN: &str = "trip";
const ARGS: &str = r#"{"seat":1}"#;

/// The queries, as paths without a position.
const QUESTIONS: [&str; 5] = [
    "recovery?full=true",
    "lookup?tool=book&args=%7B%22seat%22:1%7D",
    "calls/asked?",
    "checkpoints/latest?",
    "records?raw=true&limit=1000",
];

/// A run that is written step by step.
struct Story<'a> {
    server: &'a Server,
    /// Each step's name and its position.
    steps: Vec<(&'static str, String)>,
}

impl Story<'_> {
    /// Performs a step with `outcome`.
    fn step(&mut self, name: &'static str, path: &str, body: &Value, outcome: &str) -> anyhow::Result<Value> {
        let (status, answer) = self.server.post(&format!("/v1/runs/{RUN}/{path}"), body)?;
        let is_expected = answer["outcome"].as_str().unwrap_or("applied") == outcome;
        ensure!(status == 200 && is_expected, "{name}: {status} {answer}");
        let position = &answer["position"];
        self.steps.push((name, format!("{}:{}", position["partition"], position["offset"])));
        Ok(answer)
    }

    fn step_position(&self, name: &str) -> anyhow::Result<&str> {
        let step = self.steps.iter().find(|(step, _)| *step == name).with_context(|| format!("no step {name}"))?;
        Ok(&step.1)
    }
}

fn by(claim: &Value, id: &str, payload: Value) -> Value {
    json!({ "run_id": RUN, "record_id": id, "writer_id": claim["writer_id"], "writer_epoch": claim["epoch"],
        "payload": payload })
}

/// Writes a trip: a call is requested, a batch staged, and a second process claims the run. The result of the first
/// process arrives late and is adopted; then the second process continues to the end.
fn trip(server: &Server) -> anyhow::Result<Story<'_>> {
    let mut story = Story { server, steps: Vec::new() };
    let call = |id: &str| {
        json!({ "type": "tool_call_requested", "request_id": id, "call_id": id, "tool_name": "book",
        "arguments": { "seat": 1 } })
    };
    let done =
        |request: &str| json!({ "type": "tool_call_completed", "request_record_id": request, "result": request });
    let turn = |id: &str| json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": id });
    let one = story.step("claimed", "claims", &json!({ "claimed_by": "one" }), "applied")?;
    story.step("asked", "records", &by(&one, "asked", call("asked")), "applied")?;
    let parts = ["hello", "there"].map(|id| json!({ "run_id": RUN, "record_id": id, "payload": turn(id) }));
    story.step("batch", "records", &by(&one, "both", json!({ "type": "batch", "records": parts })), "applied")?;
    let orphan = json!({ "run_id": RUN, "record_id": "orphan", "payload": done("nobody") });
    let torn = json!({ "type": "batch", "records": [parts[0], orphan] });
    story.step("torn", "records", &by(&one, "torn", torn), "refused")?;
    let two = story.step("taken", "claims", &json!({ "claimed_by": "two" }), "applied")?;
    story.step("zombie", "records", &by(&one, "zombie", turn("zombie")), "refused")?;
    story.step("late", "records", &by(&one, "late", done("asked")), "refused")?;
    let decision =
        json!({ "decision": "adopt", "revision": 2, "evidence": "late", "who": "jo", "why": "it was booked" });
    story.step("adopted", "effects/asked/resolution", &decision, "applied")?;
    // Refused for its content, it consumes its numbers; the next record's numbers follow them.
    story.step("orphan", "records", &by(&two, "orphan", done("nobody")), "refused")?;
    story.step("again", "records", &by(&two, "again", call("again")), "applied")?;
    story.step("done", "records", &by(&two, "done", done("again")), "applied")?;
    let checkpoint = json!({ "type": "loop_checkpoint", "checkpoint_id": "c", "checkpoint_seq": 1,
        "covers_journal_seq": 3, "messages": [{ "role": "user", "content": "hello" }] });
    story.step("checkpoint", "records", &by(&two, "checkpoint", checkpoint), "applied")?;
    let ended = json!({ "type": "run_lifecycle", "status": "completed", "reason": "booked" });
    story.step("ended", "records", &by(&two, "ended", ended), "applied")?;
    Ok(story)
}

/// Runs a command about the trip as of a position. Returns its exit code and the document.
fn as_of(runlog: &Runlog, arguments: &[&str], position: &str) -> anyhow::Result<(i32, Value)> {
    let ran = runlog.json(&[arguments, &["--as-of", position]].concat())?;
    Ok((ran.code.context("a code")?, ran.json()?))
}

#[test]
fn the_command_answers_with_the_state_at_the_position() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let (story, runlog) = (trip(&server)?, server.runlog());
    let lookup = ["lookup", RUN, "--tool", "book", "--args", ARGS];
    for (name, code, status, occurrences) in [
        ("claimed", 1, "unknown", 0),
        ("asked", 6, "pending", 1),
        ("late", 6, "pending", 1),
        ("adopted", 0, "completed", 1),
        ("again", 6, "pending", 2),
        ("done", 0, "completed", 2),
    ] {
        let (ended, found) = as_of(&runlog, &lookup, story.step_position(name)?)?;
        ensure!(
            (ended, &found["status"], &found["occurrences"]) == (code, &json!(status), &json!(occurrences)),
            "as of {name}: {ended} {found}"
        );
    }
    for (name, epoch, evidence, reason) in [
        ("asked", 1, 0, "reconcile_required"),
        ("zombie", 2, 0, "reconcile_required"),
        ("late", 2, 1, "reconcile_required"),
    ] {
        let (ended, found) = as_of(&runlog, &["recover", RUN], story.step_position(name)?)?;
        let of = found["pending"][0]["evidence"].as_array().map(Vec::len);
        ensure!(
            ended == 1 && found["epoch"] == epoch && of == Some(evidence) && found["pending"][0]["class"] == reason,
            "as of {name}: {found}"
        );
        ensure!(found["pending"][0]["state"].is_null(), "whether a process runs it is known only of the present");
    }
    let (ended, found) = as_of(&runlog, &["recover", RUN], story.step_position("adopted")?)?;
    ensure!(ended == 0 && found["resumable"] == true && found["pending"] == json!([]), "{found}");
    ensure!(as_of(&runlog, &["checkpoint", RUN], story.step_position("done")?)?.0 == 1, "there was none yet");
    ensure!(as_of(&runlog, &["checkpoint", RUN], story.step_position("ended")?)?.1["checkpoint_id"] == "c");
    let shown = |name: &str| -> anyhow::Result<usize> {
        let ran = runlog.json(&["show", RUN, "--as-of", story.step_position(name)?])?.exits(0)?;
        Ok(ran.documents()?.len())
    };
    ensure!([shown("asked")?, shown("batch")?, shown("torn")?, shown("taken")?, shown("late")?] == [2, 4, 4, 5, 5]);
    server.terminate()?;
    Ok(())
}

#[test]
fn an_invalid_position_is_refused_and_a_position_before_the_run_has_no_run() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let (story, runlog) = (trip(&server)?, server.runlog());
    let (partition, _) = story.step_position("asked")?.split_once(':').context("a position")?;
    let other = (partition.parse::<u32>()? + 1) % 4;
    let lookup = ["lookup", RUN, "--tool", "book", "--args", ARGS];
    for arguments in [&lookup[..], &["recover", RUN], &["checkpoint", RUN], &["show", RUN]] {
        let (code, found) = as_of(&runlog, arguments, &format!("{other}:1"))?;
        let message = found["error"]["message"].as_str().unwrap_or_default();
        let named = message.contains(&format!("in partition {partition}"));
        ensure!(code == 2 && found["error"]["kind"] == "usage" && named, "{arguments:?}: {found}");
        // A time is valid time, which only the output of `show` has.
        if arguments[0] != "show" {
            let (code, found) = as_of(&runlog, arguments, "2026-11-22T12:00:00Z")?;
            ensure!(code == 2 && found["error"]["kind"] == "usage", "{arguments:?}: {found}");
        }
        let later = [arguments, &["--deadline", "100ms"]].concat();
        let (code, found) = as_of(&runlog, &later, &format!("{partition}:1000000"))?;
        ensure!(code == 4 && found["error"]["kind"] == "stale" && found["error"]["lag"] != 0, "{arguments:?}: {found}");
        // The genesis is before every run.
        let before = as_of(&runlog, arguments, &format!("{partition}:0"))?;
        let unknown: Vec<&str> = arguments.iter().map(|word| if *word == RUN { "nobody" } else { word }).collect();
        let ran = runlog.json(&unknown)?;
        let kind = |document: &Value| document["error"]["kind"].clone();
        ensure!((ran.code, kind(&ran.json()?)) == (Some(before.0), kind(&before.1)), "{arguments:?}: {before:?}");
    }
    ensure!(as_of(&runlog, &lookup, &format!("{partition}:0"))?.1["status"] == "unknown");
    for wrong in ["1", "-1:0", "0:1:2", "2026-11-22T12:00:00Z", "%2B0:1", "now"] {
        for question in QUESTIONS {
            let (status, problem) = server.get(&format!("/v1/runs/{RUN}/{question}&as_of={wrong}"))?;
            ensure!(status == 400 && problem["kind"] == "usage", "{question} {wrong}: {status} {problem}");
        }
    }
    server.terminate()?;
    Ok(())
}
