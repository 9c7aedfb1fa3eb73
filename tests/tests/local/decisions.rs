//! Decisions over HTTP: based on the revision that their author saw, or refused.

use crate::record_writers::{Site, intent};
use anyhow::{Context, ensure};
use runlog_log::{
    Clock,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::index::entry::entry;
use runlog_schemas::{codec::NoRegistry, draft::Draft};
use runlog_tests::{
    command::binary,
    foreign::append_local,
    sample_journal::{self, CLAIMED},
    server::{Launch, Server},
};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};
use tempfile::tempdir;

/// How long the command may take to ask or to end.
const ASK_WAIT: Duration = Duration::from_secs(60);

/// The subject of the decisions: a call of `CLAIMED`, which has evidence.
const ASKED: &str = "asked";

fn decision(record_id: &str, decision: &str) -> Value {
    json!({ "run_id": CLAIMED, "record_id": record_id, "payload": { "type": "effect_resolution",
        "request_record_id": ASKED, "decision": decision, "who": "jo", "why": "looked" } })
}

fn only_pending(server: &Server) -> anyhow::Result<Value> {
    let (_, recovery) = server.get(&format!("/v1/runs/{CLAIMED}/recovery?consistency=latest"))?;
    let pending = recovery["pending"].as_array().with_context(|| format!("{recovery}"))?;
    ensure!(pending.len() == 1, "{recovery}");
    Ok(pending[0].clone())
}

#[test]
fn a_decision_about_a_call_whose_process_wrote_a_moment_ago_needs_force() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let claim = || -> anyhow::Result<Value> { Ok(server.post("/v1/runs/r/claims", &json!({}))?.1) };
    let record = |writer: &Value, id: &str, facts: Value, payload: Value| {
        json!({ "run_id": "r", "record_id": id, "writer_id": writer["writer_id"], "writer_epoch": writer["epoch"], "facts": facts,
            "payload": payload })
    };
    let intent = |writer: &Value, id: &str| {
        let call = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "pay",
            "arguments": id });
        record(writer, id, Value::Null, call)
    };
    let decided = |writer: &Value, id: &str, facts: Value| {
        let decision = json!({ "type": "effect_resolution", "request_record_id": id, "decision": "not_done",
            "who": "jo", "why": "looked" });
        record(writer, &format!("{id}-decided"), facts, decision)
    };
    let first = claim()?;
    for id in ["one", "two", "own", "old"] {
        let (_, outcome) = server.post("/v1/runs/r/records", &intent(&first, id))?;
        ensure!(outcome["outcome"] == "applied", "{outcome}");
    }
    let of_operator = decided(&first, "one", json!({ "revision": 1 }));
    let body = json!({ "decision": "give_up", "who": "jo", "why": "looked", "revision": 1 });
    for (path, body) in [
        ("/v1/runs/r/effects/one/resolution", &body),
        ("/v1/runs/r/records", &of_operator),
        ("/v1/runs/r/records", &json!([intent(&first, "beside"), of_operator])),
        ("/v1/runs/r/records?check=true", &of_operator),
    ] {
        let (status, problem) = server.post(path, body)?;
        let is_active = problem["kind"] == "conflict" && problem["reason"] == "active";
        ensure!(status == 409 && is_active && problem["detail"].to_string().contains("force"), "{path}: {problem}");
    }
    let applied = |path: &str, body: &Value| -> anyhow::Result<()> {
        let (status, outcome) = server.post(path, body)?;
        ensure!(status == 200 && outcome["outcome"] == "applied", "{path}: {outcome}");
        Ok(())
    };
    // The process itself knows that it did not start the effect.
    applied("/v1/runs/r/records", &decided(&first, "own", json!({ "epoch": first["epoch"] })))?;
    applied("/v1/runs/r/records?force=true", &of_operator)?;
    let mut forced = body.clone();
    forced["force"] = json!(true);
    applied("/v1/runs/r/effects/two/resolution", &forced)?;
    // It claims its own run again, for example after a lost answer. Its effect still runs.
    let (status, again) = server.post("/v1/runs/r/claims", &json!({ "writer_id": first["writer_id"] }))?;
    ensure!(status == 200 && again["writer_id"] == first["writer_id"], "{again}");
    let (status, problem) = server.post("/v1/runs/r/effects/old/resolution", &body)?;
    ensure!(status == 409 && problem["reason"] == "active", "{problem}");
    // It is alive, and has lost the run.
    let second = claim()?;
    applied("/v1/runs/r/effects/old/resolution", &body)?;
    let (_, outcome) = server.post("/v1/runs/r/records", &intent(&second, "new"))?;
    ensure!(outcome["outcome"] == "applied", "{outcome}");
    let (_, doctor) = server.get("/v1/doctor")?;
    ensure!(doctor["waiting_decisions"] == 0, "{doctor}");
    claim()?;
    let (_, doctor) = server.get("/v1/doctor")?;
    ensure!(doctor["waiting_decisions"] == 1, "{doctor}");
    server.terminate()?;
    Ok(())
}

#[test]
fn a_result_that_nests_too_deep_is_refused_as_a_record_and_as_a_decision() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = sample_journal::start(folder.path())?;
    let before = only_pending(&server)?;
    let result = (0..126).fold(json!(1), |inner, _| json!([inner]));
    let one =
        json!({ "decision": "done", "result": result, "who": "jo", "why": "looked", "revision": before["revision"] });
    let mut record = decision("deep", "done");
    record["payload"]["result"] = result;
    record["facts"] = json!({ "revision": before["revision"] });
    for (path, body) in [
        (format!("/v1/runs/{CLAIMED}/effects/{ASKED}/resolution"), one),
        (format!("/v1/runs/{CLAIMED}/records"), record),
    ] {
        let (status, problem) = server.post(&path, &body)?;
        ensure!(status == 400 && problem["kind"] == "invalid", "{path}: {status} {problem}");
    }
    ensure!(only_pending(&server)? == before, "no decision was applied");
    server.terminate()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_record_was_refused_a_moment_ago_is_alive() {
    let time = Arc::new(AtomicI64::new(1_000_000));
    let clock = Clock::new({
        let time = Arc::clone(&time);
        move || time.load(Ordering::Relaxed)
    });
    let log = MemoryLog::with(MemoryOptions { clock, ..MemoryOptions::default() });
    let site = Site::over(Arc::new(log)).await;
    let claim = site.post("/claims", &json!({})).await;
    let writer = json!({ "writer_id": claim["writer_id"], "writer_epoch": claim["epoch"] });
    site.post("/records", &intent(&writer, "book")).await;
    time.fetch_add(31_000, Ordering::Relaxed);
    let mut other = intent(&writer, "nothing-asked");
    other["payload"] = json!({ "type": "tool_call_completed", "request_record_id": "nobody", "result": 1 });
    let refused = site.post("/records", &other).await;
    assert_eq!(refused["reason"], "transition", "{refused}");
    let decision = json!({ "decision": "not_done", "who": "jo", "why": "looked", "revision": 1 });
    let problem = site.post("/effects/book/resolution", &decision).await;
    assert_eq!((&problem["reason"], &problem["age_millis"]), (&json!("active"), &json!(0)), "{problem}");
    time.fetch_add(30_000, Ordering::Relaxed);
    let decided = site.post("/effects/book/resolution", &decision).await;
    assert_eq!(decided["outcome"], "applied", "{decided}");
}

#[test]
fn an_old_decision_in_the_log_is_answered_with_its_position() -> anyhow::Result<()> {
    let folder = tempdir()?;
    sample_journal::start(folder.path())?.kill()?;
    let launch = Launch::local(folder.path());
    let old = decision("old", "give_up");
    let mut record = Draft::parse(&old.to_string())?.record;
    record.place.writer_id = runlog_schemas::id::WriterId::new("jo".to_owned())?.into();
    let partition = {
        let server = launch.start()?;
        let (_, run) = server.get(&format!("/v1/runs/{CLAIMED}"))?;
        server.kill()?;
        u16::try_from(run["position"]["partition"].as_u64().context("a partition")?)?
    };
    let at = append_local(folder.path(), &[(partition.into(), entry(&record, &NoRegistry)?)])?;
    // No record is applied yet: whether the decision is known shows only at the log's end.
    let server = launch.start()?;
    let (status, again) = server.post(&format!("/v1/runs/{CLAIMED}/records"), &old)?;
    ensure!(status == 200 && again["outcome"] == "repeat", "{status} {again}");
    ensure!(again["position"]["offset"] == json!(at[0]), "{again}, appended at {at:?}");
    server.terminate()?;
    Ok(())
}

/// A command at a terminal.
struct Terminal {
    child: Child,
    stdin: ChildStdin,
    shown: mpsc::Receiver<String>,
}

impl Terminal {
    fn start(server: &Server, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"]);
        command.arg(binary()?).args(["--server", &server.url]).args(arguments);
        command.env("NO_COLOR", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("python3 does not start")?;
        let (stdin, stdout) = (child.stdin.take().context("stdin")?, child.stdout.take().context("stdout")?);
        let (send, shown) = mpsc::channel();
        thread::spawn(move || read(stdout, &send));
        Ok(Self { child, stdin, shown })
    }

    /// The output until the command asks.
    fn read_until_prompt(&self) -> anyhow::Result<String> {
        let mut shown = String::new();
        while !shown.contains("[y/N]") {
            shown.push_str(&self.shown.recv_timeout(ASK_WAIT).with_context(|| format!("it did not ask: {shown}"))?);
        }
        Ok(shown)
    }

    fn says(&mut self, line: &str) -> anyhow::Result<()> {
        Ok(writeln!(self.stdin, "{line}")?)
    }

    /// The output until the command ends, and its exit code.
    fn read_until_end(mut self) -> anyhow::Result<(String, Option<i32>)> {
        let mut shown = String::new();
        loop {
            match self.shown.recv_timeout(ASK_WAIT) {
                Ok(more) => shown.push_str(&more),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok((shown, self.child.wait()?.code())),
                Err(mpsc::RecvTimeoutError::Timeout) => anyhow::bail!("it did not end: {shown}"),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn read(mut stdout: ChildStdout, send: &mpsc::Sender<String>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = stdout.read(&mut bytes) {
        send.send(String::from_utf8_lossy(&bytes[..count]).into_owned()).ok();
    }
}

#[test]
fn the_command_shows_a_change_during_its_prompt_and_asks_again() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = sample_journal::start(folder.path())?;
    let before = only_pending(&server)?["revision"].as_u64().context("a revision")?;
    let resolve = ["effects", "resolve", CLAIMED, ASKED, "--give-up", "--who", "jo", "--why", "asked the bank"];
    let mut command = Terminal::start(&server, &resolve)?;
    let first = command.read_until_prompt()?;
    ensure!(first.contains("late") && !first.contains("changed"), "{first}");
    // While the operator asks the bank, another late result arrives.
    let late = json!({ "run_id": CLAIMED, "record_id": "later", "writer_id": "zombie", "writer_epoch": 0,
        "payload": { "type": "tool_call_failed", "request_record_id": ASKED, "error_kind": "bank", "error_message": "no" } });
    let (_, outcome) = server.post(&format!("/v1/runs/{CLAIMED}/records"), &late)?;
    ensure!(outcome["reason"] == "fenced", "{outcome}");
    command.says("y")?;
    let again = command.read_until_prompt()?;
    let revision = format!("revision: {}, was {before}", before + 1);
    ensure!(again.contains(&revision) && again.contains("new evidence: failed, record later"), "{again}");
    ensure!(only_pending(&server)?["revision"] == before + 1, "no decision was applied");
    command.says("y")?;
    let (shown, code) = command.read_until_end()?;
    ensure!(code == Some(0), "{code:?}: {shown}");
    let (_, recovery) = server.get(&format!("/v1/runs/{CLAIMED}/recovery?consistency=latest"))?;
    ensure!(recovery["pending"] == json!([]), "{recovery}");
    server.terminate()?;
    Ok(())
}

#[test]
fn the_command_shows_the_process_of_an_effect_and_asks_again_after_a_takeover() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let claim = |writer: &str| server.post(&format!("/v1/runs/{CLAIMED}/claims"), &json!({ "writer_id": writer }));
    claim("first")?;
    // The effect of another run whose id begins with the same characters.
    for (run, seat) in [(format!("{CLAIMED}-2"), 99), (CLAIMED.to_owned(), 12)] {
        let mut call = json!({ "run_id": run, "record_id": ASKED, "agent_id": format!("planner-{seat}"),
            "payload": { "type": "tool_call_requested", "request_id": "r", "call_id": "c", "tool_name": "book",
                "arguments": { "seat": seat } } });
        call["idempotency_key"] = format!("key-{seat}").into();
        if run == CLAIMED {
            (call["writer_id"], call["writer_epoch"]) = ("first".into(), 1.into());
        }
        let (_, outcome) = server.post(&format!("/v1/runs/{run}/records"), &call)?;
        ensure!(outcome["outcome"] == "applied", "{outcome}");
    }
    let resolve =
        ["effects", "resolve", CLAIMED, ASKED, "--give-up", "--who", "jo", "--why", "asked the bank", "--force"];
    let mut command = Terminal::start(&server, &resolve)?;
    let shown = command.read_until_prompt()?;
    let facts: Vec<Vec<&str>> = shown.lines().map(|line| line.splitn(2, "  ").map(str::trim).collect()).collect();
    for fact in [
        ["arguments", r#"{"seat":12}"#],
        ["agent", "planner-12"],
        ["idempotency key", "key-12"],
        ["writer", "first"],
        ["epoch", "1"],
        ["attempts", "1"],
        ["state", "running"],
        ["run's writer", "first"],
        ["run's epoch", "1"],
    ] {
        ensure!(facts.iter().any(|shown| shown == &fact), "{fact:?}: {shown}");
    }
    for named in ["started at", "started", "last record"] {
        let value = facts.iter().find(|fact| fact[0] == named).with_context(|| format!("{named}: {shown}"))?[1];
        ensure!(value.ends_with(" ago") || value.ends_with('Z'), "{named}: {value}");
    }
    // The basis of the effect stays, so the server would accept the decision.
    claim("second")?;
    command.says("y")?;
    let again = command.read_until_prompt()?;
    let change = r#"run: open in epoch 2 of writer "second", was open in epoch 1 of writer "first""#;
    ensure!(again.contains(change), "{again}");
    ensure!(only_pending(&server)?["revision"] == 1, "no decision was applied");
    command.says("y")?;
    let (shown, code) = command.read_until_end()?;
    ensure!(code == Some(0), "{code:?}: {shown}");
    server.terminate()?;
    Ok(())
}

/// Posts a result of a process that lost the run, which is kept as evidence.
fn late(server: &Server, id: &str, payload: &Value) -> anyhow::Result<()> {
    late_of(server, (&json!("zombie"), &json!(0)), id, payload)
}

fn late_of(server: &Server, (writer, epoch): (&Value, &Value), id: &str, payload: &Value) -> anyhow::Result<()> {
    let mut payload = payload.clone();
    payload["request_record_id"] = ASKED.into();
    let record =
        json!({ "run_id": CLAIMED, "record_id": id, "writer_id": writer, "writer_epoch": epoch, "payload": payload });
    let (_, answer) = server.post(&format!("/v1/runs/{CLAIMED}/records"), &record)?;
    ensure!(answer["reason"] == "fenced", "{answer}");
    Ok(())
}

fn completed(result: Value) -> Value {
    json!({ "type": "tool_call_completed", "result": result })
}

fn failed() -> Value {
    json!({ "type": "tool_call_failed", "error_kind": "bank", "error_message": "no such account" })
}

#[test]
fn the_command_decides_not_done_against_evidence_that_it_happened_only_if_the_newest_is_named() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = sample_journal::start(folder.path())?;
    let resolve = |more: &[&str]| {
        let words = ["effects", "resolve", CLAIMED, ASKED, "--not-done", "--who", "jo", "--why", "asked", "--yes"];
        server.runlog().json(&[&words[..], more].concat())
    };
    let refused = |more: &[&str], newest: &str| -> anyhow::Result<String> {
        let before = only_pending(&server)?;
        let ran = resolve(more)?.exits(3)?;
        let error = ran.json()?["error"].clone();
        let says =
            error["message"].as_str().is_some_and(|message| message.contains(&format!("add --against {newest}")));
        ensure!(error["kind"] == "conflict" && says && error["evidence"] == before["evidence"], "{more:?}: {error}");
        ensure!(only_pending(&server)? == before, "{more:?}: something was decided");
        Ok(ran.stderr)
    };
    let shown = refused(&[], "late")?;
    ensure!(shown.contains(r#""result":"ok""#) && shown.contains("which `--adopt` accepts"), "{shown}");
    refused(&["--against", "another"], "late")?;
    // A later failure does not weaken it, and a later completion replaces it.
    late(&server, "failure", &failed())?;
    let shown = refused(&["--against", "failure"], "late")?;
    ensure!(shown.contains("no such account"), "{shown}");
    let author = only_pending(&server)?["evidence"][0].clone();
    let author = (&author["writer_id"], &author["epoch"]);
    late_of(&server, author, "second", &completed(json!("booked")))?;
    refused(&["--against", "late"], "second")?;
    // A completion of another process does not replace it.
    late(&server, "of another", &completed(json!("nobody's")))?;
    refused(&["--against", "of another"], "second")?;
    ensure!(resolve(&["--against", "second"])?.exits(0)?.json()?["outcome"] == "applied");
    ensure!(only_pending(&server)?["class"] == "retry_safe");
    server.terminate()?;
    Ok(())
}

#[test]
fn against_accepts_only_evidence_that_the_effect_happened() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let call = json!({ "run_id": CLAIMED, "record_id": ASKED, "payload": { "type": "tool_call_requested", "request_id": "r",
        "call_id": "c", "tool_name": "book", "arguments": {} } });
    let records = format!("/v1/runs/{CLAIMED}/records");
    server.post(&records, &call)?;
    server.post(&format!("/v1/runs/{CLAIMED}/claims"), &json!({}))?;
    late(&server, "failure", &failed())?;
    let words = ["effects", "resolve", CLAIMED, ASKED, "--not-done", "--who", "jo", "--why", "asked", "--yes"];
    let ran = server.runlog().json(&[&words[..], &["--against", "failure"]].concat())?.exits(3)?;
    ensure!(ran.stdout.contains("no evidence says that it happened"), "{}", ran.stdout);
    ensure!(only_pending(&server)?["class"] == "reconcile_required", "no decision was applied");
    ensure!(server.runlog().json(&words)?.exits(0)?.json()?["outcome"] == "applied");
    server.terminate()?;
    Ok(())
}

#[test]
fn evidence_has_its_content_time_and_writer_and_says_what_adopt_accepts() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = sample_journal::start(folder.path())?;
    let before = only_pending(&server)?["evidence"][0].clone();
    ensure!(before["adoptable"] == true && before["epoch"] == 1, "{before}");
    // Another result under the same id, a failure, and a result in the content store.
    let large = "x".repeat(2 << 20);
    late(&server, "late", &completed(json!("booked")))?;
    late(&server, "failure", &failed())?;
    late_of(&server, (&before["writer_id"], &before["epoch"]), "large", &completed(json!(large)))?;
    late(&server, "last", &failed())?;
    let pending = only_pending(&server)?;
    let evidence = pending["evidence"].as_array().context("evidence")?;
    let results: Vec<_> = evidence.iter().map(|one| &one["payload"]["result"]).collect();
    ensure!(
        results == [&json!("ok"), &json!("booked"), &Value::Null, &json!(large), &Value::Null],
        "{}",
        evidence.len()
    );
    ensure!(evidence[2]["payload"]["error_message"] == "no such account", "{}", evidence[2]);
    let adoptable: Vec<_> = evidence.iter().map(|one| one["adoptable"] == true).collect();
    ensure!(adoptable == [false, false, false, true, false], "a result wins over a failure: {adoptable:?}");
    ensure!(evidence[0]["record_id"] == evidence[1]["record_id"], "one id");
    ensure!(evidence[0]["content_hash"] != evidence[1]["content_hash"]);
    ensure!(evidence[1]["writer_id"] == "zombie" && evidence[1]["epoch"] == 0, "{}", evidence[1]);
    ensure!(evidence[1]["logged_at"].as_str().is_some_and(|at| at.ends_with('Z') && at > "2026"), "{}", evidence[1]);
    // A list does not read the content store, nor does a query that excludes content.
    let claim_check = json!("stored_payload");
    let (_, recovery) = server.get(&format!("/v1/runs/{CLAIMED}/recovery?content=false"))?;
    ensure!(recovery["pending"][0]["evidence"][3]["payload"]["type"] == claim_check, "{recovery}");
    let (_, effects) = server.get("/v1/effects?pending=true&consistency=latest")?;
    let listed = effects["effects"].as_array().into_iter().flatten().find(|effect| effect["id"] == ASKED);
    let listed = &listed.context("the effect")?["evidence"];
    ensure!(listed[3]["payload"]["type"] == claim_check, "{listed}");
    for member in ["record_id", "content_hash", "logged_at", "epoch", "writer_id", "adoptable"] {
        ensure!((0..5).all(|at| listed[at][member] == evidence[at][member]), "{member}: {listed}");
    }
    // After the end no evidence can be adopted.
    let decision = json!({ "decision": "adopt", "revision": pending["revision"], "basis": pending["basis"], "evidence": "large",
        "who": "jo", "why": "it was booked" });
    let (_, outcome) = server.post(&format!("/v1/runs/{CLAIMED}/effects/{ASKED}/resolution"), &decision)?;
    ensure!(outcome["outcome"] == "applied", "{outcome}");
    let (_, call) = server.get(&format!("/v1/runs/{CLAIMED}/calls/{ASKED}"))?;
    ensure!(call["result"] == json!(large), "the piece that was said to be adoptable was adopted");
    let (_, effects) = server.get("/v1/effects?consistency=latest&limit=1000")?;
    ensure!(!effects.to_string().contains(r#""adoptable":true"#), "{effects}");
    server.terminate()?;
    Ok(())
}
