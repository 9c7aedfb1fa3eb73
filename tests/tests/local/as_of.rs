//! A run as of a position, over HTTP and on the command line.

use anyhow::{Context, ensure};
use runlog_tests::{
    command::Runlog,
    server::{Launch, Server},
};
use serde_json::{Value, json};
use tempfile::tempdir;

const RUN: &str = "trip";
const ARGS: &str = r#"{"seat":1}"#;

/// What is asked, as a path without its moment.
const QUESTIONS: [&str; 5] = [
    "recovery?full=true",
    "lookup?tool=book&args=%7B%22seat%22:1%7D",
    "calls/asked?",
    "checkpoints/latest?",
    "records?raw=true&limit=1000",
];

/// A run that is written step by step, with what is answered behind each.
struct Story<'a> {
    server: &'a Server,
    steps: Vec<Step>,
}

/// A step's name, its position, and the answers behind it.
type Step = (&'static str, String, Vec<(u16, Value)>);

fn place(outcome: &Value) -> String {
    format!("{}:{}", outcome["position"]["partition"], outcome["position"]["offset"])
}

/// The answer about the run, without whether a process runs an effect: that is known only of the present.
fn ask(server: &Server, question: &str) -> anyhow::Result<(u16, Value)> {
    let (status, mut answer) = server.get(&format!("/v1/runs/{RUN}/{question}"))?;
    for pending in answer.get_mut("pending").and_then(Value::as_array_mut).into_iter().flatten() {
        let state = pending.as_object_mut().and_then(|members| members.remove("state")).context("a state")?;
        ensure!(state.is_null() == question.contains("as_of="), "{question}: {state}");
    }
    Ok((status, answer))
}

impl Story<'_> {
    fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let (status, answer) = self.server.post(&format!("/v1/runs/{RUN}/{path}"), body)?;
        ensure!(status == 200, "{path} {body}: {status} {answer}");
        Ok(answer)
    }

    fn ask(&self, question: &str, moment: &str) -> anyhow::Result<(u16, Value)> {
        ask(self.server, &format!("{question}{moment}"))
    }

    /// Does a step that comes to `outcome`, and asks everything behind it.
    fn step(&mut self, name: &'static str, path: &str, body: &Value, outcome: &str) -> anyhow::Result<Value> {
        let told = self.post(path, body)?;
        ensure!(told["outcome"].as_str().unwrap_or("applied") == outcome, "{name}: {told}");
        let answers = QUESTIONS.iter().map(|question| self.ask(question, "")).collect::<anyhow::Result<_>>()?;
        self.steps.push((name, place(&told), answers));
        Ok(told)
    }

    fn at(&self, name: &str) -> anyhow::Result<&str> {
        let step = self.steps.iter().find(|(step, ..)| *step == name).with_context(|| format!("no step {name}"))?;
        Ok(&step.1)
    }
}

fn by(claim: &Value, id: &str, payload: Value) -> Value {
    json!({ "run_id": RUN, "record_id": id, "writer_id": claim["writer_id"], "writer_epoch": claim["epoch"],
        "payload": payload })
}

/// A call is asked for, a batch staged, a second process takes over; the first one's result comes too late and is adopted;
/// then the second one goes on to the end.
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
    // Refused for its content, it takes its numbers: what follows goes on behind them.
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

#[test]
fn answers_as_of_a_record_equal_those_given_right_after_it() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = Launch::local(folder.path()).start()?;
    let story = trip(&server)?;
    for (name, position, answers) in &story.steps {
        for (question, expected) in QUESTIONS.iter().zip(answers) {
            let told = story.ask(question, &format!("&as_of={position}"))?;
            ensure!(told == *expected, "{question} as of {name}: {told:?}, then it was {expected:?}");
        }
    }
    let pages = |moment: &str| -> anyhow::Result<Vec<Value>> {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let (_, page) = story.ask("records?raw=true&limit=2", &format!("{cursor}{moment}"))?;
            found.extend(page["records"].as_array().with_context(|| format!("{page}"))?.iter().cloned());
            let Some(next) = page["next_cursor"].as_str() else { return Ok(found) };
            cursor = format!("&cursor={next}");
        }
    };
    let (_, whole) = story.ask(QUESTIONS[4], &format!("&as_of={}", story.at("late")?))?;
    ensure!(Value::from(pages(&format!("&as_of={}", story.at("late")?))?) == whole["records"], "page by page");
    // A rebuilt index folds the same again.
    let Story { steps, .. } = story;
    server.terminate()?;
    std::fs::remove_dir_all(folder.path().join("index"))?;
    let server = Launch::local(folder.path()).start()?;
    for (name, position, answers) in &steps {
        let (_, told) = ask(&server, &format!("{}&as_of={position}", QUESTIONS[0]))?;
        ensure!(told == answers[0].1, "rebuilt, as of {name}: {told}");
    }
    server.terminate()?;
    Ok(())
}

#[test]
fn all_pages_of_a_recovery_show_the_state_of_the_first() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = Launch::local(folder.path()).start()?;
    let mut story = Story { server: &server, steps: Vec::new() };
    let claim = story.step("claimed", "claims", &json!({ "claimed_by": "one" }), "applied")?;
    let mut call = |nth: usize| -> anyhow::Result<()> {
        let asked = json!({ "type": "tool_call_requested", "request_id": format!("r{nth}"), "call_id": "c", "tool_name": "book",
            "arguments": { "seat": nth } });
        let done = json!({ "type": "tool_call_completed", "request_record_id": format!("a{nth}"), "result": nth });
        story.step("asked", "records", &by(&claim, &format!("a{nth}"), asked), "applied")?;
        story.step("done", "records", &by(&claim, &format!("d{nth}"), done), "applied")?;
        Ok(())
    };
    (0..3).try_for_each(&mut call)?;
    let page = |more: &str| server.get(&format!("/v1/runs/{RUN}/recovery?{more}")).map(|(_, page)| page);
    let whole = page("")?;
    let mut pages = vec![page("limit=1")?];
    // It goes on between any two pages.
    while let Some(cursor) = pages[pages.len() - 1]["next_cursor"].as_str() {
        call(2 + pages.len())?;
        let next = page(&format!("limit=1&cursor={cursor}"))?;
        pages.push(next);
        ensure!(pages.len() < 20, "it ends");
    }
    let completed = pages.iter().flat_map(|page| page["completed"].as_array().into_iter().flatten().cloned());
    ensure!(completed.collect::<Value>() == whole["completed"] && pages.len() > 2, "{pages:?}");
    for member in ["position", "hash", "next_journal_seq", "epoch"] {
        ensure!(pages.iter().all(|page| page[member] == whole[member]), "{member}: {pages:?}");
    }
    server.terminate()?;
    Ok(())
}

/// Runs a command about the trip as of a position: its exit code and the document.
fn as_of(runlog: &Runlog, arguments: &[&str], position: &str) -> anyhow::Result<(i32, Value)> {
    let ran = runlog.json(&[arguments, &["--as-of", position]].concat())?;
    Ok((ran.code.context("a code")?, ran.json()?))
}

#[test]
fn the_command_tells_what_was_known_then() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = Launch::local(folder.path()).start()?;
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
        let (ended, found) = as_of(&runlog, &lookup, story.at(name)?)?;
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
        let (ended, found) = as_of(&runlog, &["recover", RUN], story.at(name)?)?;
        let of = found["pending"][0]["evidence"].as_array().map(Vec::len);
        ensure!(
            ended == 1 && found["epoch"] == epoch && of == Some(evidence) && found["pending"][0]["class"] == reason,
            "as of {name}: {found}"
        );
    }
    let (ended, found) = as_of(&runlog, &["recover", RUN], story.at("adopted")?)?;
    ensure!(ended == 0 && found["resumable"] == true && found["pending"] == json!([]), "{found}");
    ensure!(as_of(&runlog, &["checkpoint", RUN], story.at("done")?)?.0 == 1, "there was none yet");
    ensure!(as_of(&runlog, &["checkpoint", RUN], story.at("ended")?)?.1["checkpoint_id"] == "c");
    let shown = |name: &str| -> anyhow::Result<usize> {
        let ran = runlog.json(&["show", RUN, "--as-of", story.at(name)?])?.exits(0)?;
        Ok(ran.documents()?.len())
    };
    ensure!([shown("asked")?, shown("batch")?, shown("torn")?, shown("taken")?, shown("late")?] == [2, 4, 4, 5, 5]);
    server.terminate()?;
    Ok(())
}

#[test]
fn an_invalid_position_is_refused_and_at_one_before_the_run_nothing_is_found() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = Launch::local(folder.path()).start()?;
    let (story, runlog) = (trip(&server)?, server.runlog());
    let (partition, _) = story.at("asked")?.split_once(':').context("a position")?;
    let other = (partition.parse::<u32>()? + 1) % 4;
    let lookup = ["lookup", RUN, "--tool", "book", "--args", ARGS];
    for arguments in [&lookup[..], &["recover", RUN], &["checkpoint", RUN], &["show", RUN]] {
        let (code, found) = as_of(&runlog, arguments, &format!("{other}:1"))?;
        let message = found["error"]["message"].as_str().unwrap_or_default();
        let named = message.contains(&format!("in partition {partition}"));
        ensure!(code == 2 && found["error"]["kind"] == "usage" && named, "{arguments:?}: {found}");
        // A time is valid time, which only what `show` tells has.
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
            let (status, problem) = story.ask(question, &format!("&as_of={wrong}"))?;
            ensure!(status == 400 && problem["kind"] == "usage", "{question} {wrong}: {status} {problem}");
        }
    }
    server.terminate()?;
    Ok(())
}

#[test]
fn a_record_that_was_skipped_is_in_no_past() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = Launch::local(folder.path()).start()?;
    let story = trip(&server)?;
    let (partition, offset) = story.at("late")?.split_once(':').context("a position")?;
    let skip = json!({ "partition": partition.parse::<u32>()?, "offset": offset.parse::<u64>()?, "who": "jo",
        "why": "it is not to be" });
    let (status, skipped) = server.post("/v1/skips?force=true", &skip)?;
    ensure!(status == 200, "{skipped}");
    // Nothing was adopted behind it: the decision had no evidence any more.
    for name in ["late", "adopted", "orphan"] {
        let (_, found) = story.ask(QUESTIONS[0], &format!("&as_of={}", story.at(name)?))?;
        ensure!(found["pending"][0]["evidence"] == json!([]) && found["epoch"] == 2, "as of {name}: {found}");
    }
    let (_, now) = story.ask(QUESTIONS[0], "")?;
    let (_, then) = story.ask(QUESTIONS[0], &format!("&as_of={}", place(&skipped)))?;
    ensure!(now == then, "{now} {then}");
    server.terminate()?;
    Ok(())
}
