//! The claims, each on a journal of its own.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use a3s_code_core::{
    execution_identity::ExecutionIdentityV1,
    llm::{ContentBlock, Message, TokenUsage, ToolResultContentField},
    loop_checkpoint::{LOOP_CHECKPOINT_SCHEMA_VERSION, LoopCheckpoint, LoopCheckpointSink, LoopConvergenceState},
    store::{MemorySessionStore, SessionFactSourceV1, SessionStore},
    verification::VerificationReport,
};
use runlog_a3s_code_core::{
    CheckpointSink, CheckpointedStore, LoadError, SaveError,
    producer::{Json, LoopState, RecordFilter, answer::ErrorKind, payload::CheckpointPrune},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::server::Server;

const RUN: &str = "run-1";

/// The checkpoint after `turn` rounds of one tool each.
fn checkpoint(run_id: &str, turn: usize) -> LoopCheckpoint {
    let mut messages = vec![Message::user("Find the \"fault\" in it.\n")];
    for round in 1..=turn {
        messages.extend(messages_of(round));
    }
    LoopCheckpoint {
        schema_version: LOOP_CHECKPOINT_SCHEMA_VERSION,
        run_id: run_id.to_owned(),
        session_id: "session-1".to_owned(),
        capability_binding: None,
        standing_context_digest: None,
        durable_source: None,
        turn,
        messages,
        total_usage: TokenUsage { prompt_tokens: 10 * turn, ..TokenUsage::default() },
        tool_calls_count: turn,
        verification_reports: Vec::new(),
        convergence: LoopConvergenceState::default(),
        checkpoint_ms: 1_700_000_000_000 + turn as u64,
    }
}

fn messages_of(round: usize) -> [Message; 2] {
    let id = format!("call-{round}");
    let mut request = Message::assistant("Let me look:");
    let input =
        json!({ "cmd": format!("sed -n {round}p"), "share": 0.1, "far": u64::MAX, "none": null, "é": ["\u{1f980}"] });
    request.content.push(ContentBlock::ToolUse { id: id.clone(), name: "bash".to_owned(), input });
    let mut result = Message::user("");
    result.content = vec![ContentBlock::ToolResult {
        tool_use_id: id,
        content: ToolResultContentField::Text(format!("line {round}: {}", "x".repeat(1000))),
        is_error: Some(false),
        trust: Default::default(),
        redaction_reviewed: true,
    }];
    [request, result]
}

/// Everything of it, by their own serialisation.
fn text(checkpoint: &LoopCheckpoint) -> String {
    serde_json::to_string(checkpoint).unwrap()
}

fn expect_checkpoint(found: Result<Option<LoopCheckpoint>, LoadError>) -> LoopCheckpoint {
    found.unwrap().expect("a checkpoint")
}

pub(crate) async fn a_saved_checkpoint_is_loaded_complete_by_another_process(server: &mut Server) {
    let mut rich = checkpoint(RUN, 3);
    // Schema 2: bound to the facts that it was admitted by.
    let identity = ExecutionIdentityV1::derive("a3s.code.session-fact-source.v1", &("session-1", 7)).unwrap();
    rich.schema_version = 2;
    rich.durable_source = Some(SessionFactSourceV1 { sequence: 7, identity });
    rich.standing_context_digest = Some(format!("sha256:{}", "0".repeat(64)));
    rich.verification_reports = vec![VerificationReport::new("the patch", Vec::new())];
    rich.convergence.recent_tool_signatures = vec!["bash:deadbeef => ok".to_owned()];
    rich.convergence.workspace_porcelain = Some(vec![" M src/lib.rs".to_owned()]);
    let sink = server.sink().await;
    sink.try_save(&checkpoint(RUN, 2)).await.unwrap();
    sink.try_save(&rich).await.unwrap();

    let other = server.sink().await;
    assert_eq!(text(&expect_checkpoint(other.try_load(RUN).await)), text(&rich));
    assert_eq!(text(&other.load_latest(RUN).await.unwrap()), text(&rich));
    // The journal has them for everybody, as messages.
    let answered = other.runlog().checkpoint(RUN, None).await.unwrap().unwrap();
    let messages: Vec<Value> = answered.messages.unwrap().iter().map(Json::to_value).collect();
    assert_eq!(Value::from(messages), serde_json::to_value(&rich.messages).unwrap());
    assert_eq!(answered.state.unwrap().to_value()["messages"], json!([]), "no message is stored twice");
}

pub(crate) async fn none_is_answered_only_where_the_log_has_none(server: &mut Server) {
    let sink = Arc::new(server.sink().await);
    assert!(sink.try_load(RUN).await.unwrap().is_none(), "the run has no record");
    assert!(sink.resume(RUN).await.unwrap().is_none(), "it was claimed, and had no checkpoint");
    assert!(sink.load_latest(RUN).await.is_none());

    sink.try_save(&checkpoint(RUN, 1)).await.unwrap();
    let writer = sink.runlog().writer(RUN).await.unwrap();
    let prune = CheckpointPrune { prune_covered_before: 1.into(), preserve_latest_terminal: false };
    writer.write(writer.draft(None, prune).unwrap()).await.unwrap();
    assert!(sink.runlog().checkpoint(RUN, None).await.unwrap().is_none(), "it is hidden from answers");
    let error = sink.try_load(RUN).await.unwrap_err();
    assert!(matches!(error, LoadError::NotTheLast { last: 1, found: None, .. }), "{error}");
    assert!(panics(&sink, RUN).await);

    sink.resume(RUN).await.unwrap_err();
    sink.try_save(&checkpoint(RUN, 2)).await.unwrap();
    assert_eq!(expect_checkpoint(sink.try_load(RUN).await).turn, 2);
}

/// Whether the trait's load panics, which has no room for an error.
async fn panics(sink: &Arc<CheckpointSink>, run_id: &'static str) -> bool {
    let sink = sink.clone();
    tokio::spawn(async move { sink.load_latest(run_id).await }).await.is_err_and(|error| error.is_panic())
}

/// Writes a state that no sink of this build would write.
async fn write(sink: &CheckpointSink, run_id: &'static str, state: Value) {
    let state = LoopState { state: Some(state.into()), ..LoopState::default() };
    sink.runlog().writer(run_id).await.unwrap().checkpoint(&state).await.unwrap();
}

pub(crate) async fn later_versions_are_refused_and_unversioned_ones_read(server: &mut Server) {
    let sink = Arc::new(server.sink().await);
    // The bytes that the first version wrote.
    let usage = json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 });
    let first = json!({ "run_id": RUN, "session_id": "s", "turn": 1, "messages": [], "total_usage": usage,
                        "tool_calls_count": 0, "checkpoint_ms": 0 });
    write(&sink, RUN, first).await;
    let first_version = expect_checkpoint(sink.try_load(RUN).await);
    assert_eq!((first_version.schema_version, first_version.turn), (0, 1));

    // A checkpoint of the next version, with any members. The previous checkpoint must not be returned instead.
    write(&sink, RUN, json!({ "schema_version": 3, "run_id": RUN, "rounds": [1, 2] })).await;
    let error = sink.try_load(RUN).await.unwrap_err();
    assert!(matches!(error, LoadError::FutureVersion { schema_version: 3, .. }), "{error}");
    assert!(!error.passes());
    assert!(panics(&sink, RUN).await);

    // A version that no loader accepts must not replace a loadable checkpoint.
    let mut later = checkpoint("run-2", 1);
    sink.try_save(&later).await.unwrap();
    later.schema_version = 3;
    later.turn = 2;
    assert!(matches!(sink.try_save(&later).await, Err(SaveError::NotLoadable(_))));
    assert_eq!(expect_checkpoint(sink.try_load("run-2").await).turn, 1);
}

pub(crate) async fn checkpoints_of_another_run_session_or_agent_are_refused(server: &mut Server) {
    let sink = server.sink().await;
    sink.try_save(&checkpoint(RUN, 1)).await.unwrap();
    assert!(sink.try_load_owned(RUN, "session-1").await.unwrap().is_some());
    let error = sink.try_load_owned(RUN, "session-2").await.unwrap_err();
    assert!(matches!(error, LoadError::Refused { .. }), "{error}");

    write(&sink, RUN, serde_json::to_value(checkpoint("run-2", 1)).unwrap()).await;
    let error = sink.try_load(RUN).await.unwrap_err();
    assert!(matches!(error, LoadError::Refused { .. }), "{error}");
    write(&sink, RUN, json!({ "cursor": 3 })).await;
    let error = sink.try_load(RUN).await.unwrap_err();
    assert!(matches!(error, LoadError::NotTheirs { .. }), "{error}");
}

pub(crate) async fn a_lost_checkpoint_stops_nothing_and_the_next_save_repairs_it(server: &mut Server) {
    let sink = server.sink().await;
    sink.save_checkpoint(&checkpoint(RUN, 1)).await;
    assert!(sink.last_error().is_none(), "{:?}", sink.last_error());
    server.kill();
    sink.save_checkpoint(&checkpoint(RUN, 2)).await;
    let lost = sink.last_error().expect("it is lost");
    assert_eq!((lost.run_id.as_str(), lost.turn, sink.lost()), (RUN, 2, 1));
    assert!(sink.try_load(RUN).await.unwrap_err().passes());

    server.restart();
    sink.save_checkpoint(&checkpoint(RUN, 3)).await;
    assert!(sink.last_error().is_none(), "{:?}", sink.last_error());
    assert_eq!(text(&expect_checkpoint(server.sink().await.try_load(RUN).await)), text(&checkpoint(RUN, 3)));
}

pub(crate) async fn a_timed_out_save_is_settled_by_the_next(server: &mut Server) {
    let sink = server.sink().await;
    sink.try_save(&checkpoint(RUN, 1)).await.unwrap();
    let sink = sink.save_wait(Duration::from_millis(300));
    server.pause();
    let late = sink.try_save(&checkpoint(RUN, 2)).await;
    assert!(matches!(late, Err(SaveError::Late(_))), "{late:?}");
    server.resume();

    // It may be in the log already, or arrive later, but not after the next checkpoint.
    let sink = sink.save_wait(Duration::from_secs(60));
    for turn in 3..=5 {
        sink.try_save(&checkpoint(RUN, turn)).await.unwrap();
        assert_eq!(text(&expect_checkpoint(server.sink().await.try_load(RUN).await)), text(&checkpoint(RUN, turn)));
    }
}

pub(crate) async fn a_load_waits_for_the_journal_to_return(server: &mut Server) {
    let sink = Arc::new(server.sink().await.load_wait(Duration::from_secs(120)));
    let hasty = Arc::new(server.sink().await.load_wait(Duration::ZERO));
    sink.try_save(&checkpoint(RUN, 1)).await.unwrap();
    server.kill();
    assert!(panics(&hasty, RUN).await, "the journal did not answer that there is none");
    let load = tokio::spawn({
        let sink = sink.clone();
        async move { sink.load_latest(RUN).await }
    });
    let child = tokio::task::spawn_blocking(server.restarter()).await.unwrap();
    server.adopt(child);
    assert_eq!(load.await.unwrap().expect("a checkpoint").turn, 1);
}

pub(crate) async fn eight_concurrent_savers_lose_no_save(server: &mut Server) {
    const SAVERS: usize = 8;
    const ROUNDS: usize = 5;
    let sink = Arc::new(server.sink().await);
    let mut savers = JoinSet::new();
    for saver in 1..=SAVERS {
        let sink = sink.clone();
        savers.spawn(async move {
            for round in 1..=ROUNDS {
                sink.save_checkpoint(&checkpoint(RUN, 10 * saver + round)).await;
            }
        });
    }
    savers.join_all().await;
    assert_eq!(sink.lost(), 0, "{:?}", sink.last_error());
    let run = sink.runlog().run(RUN).await.unwrap().unwrap();
    assert_eq!(run.next_checkpoint_seq, (SAVERS * ROUNDS + 1) as u64, "each has a number of its own");
    let last = expect_checkpoint(sink.try_load(RUN).await);
    assert_eq!(last.turn % 10, ROUNDS, "the last saved checkpoint is the last of one of the savers");
    assert_eq!(text(&last), text(&checkpoint(RUN, last.turn)));
}

pub(crate) async fn with_eight_processes_on_a_run_the_last_save_is_loaded(server: &mut Server) {
    let mut savers = JoinSet::new();
    for saver in 1..=8 {
        let sink = server.sink().await;
        savers.spawn(async move {
            for round in 1..=3 {
                sink.save_checkpoint(&checkpoint(RUN, 10 * saver + round)).await;
            }
            sink
        });
    }
    let sinks = savers.join_all().await;
    let mut last = None;
    for (turn, sink) in (100..).zip(&sinks) {
        match sink.try_save(&checkpoint(RUN, turn)).await {
            Ok(()) => last = Some(turn),
            Err(SaveError::Journal(error)) => {
                assert!(matches!(error.kind(), ErrorKind::ClaimLost | ErrorKind::Fenced), "{error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    let last = last.expect("one of them has the run");
    assert_eq!(text(&expect_checkpoint(sinks[0].try_load(RUN).await)), text(&checkpoint(RUN, last)));
}

pub(crate) async fn a_process_that_was_taken_over_saves_nothing(server: &mut Server) {
    let (old, new) = (server.sink().await, server.sink().await);
    old.try_save(&checkpoint(RUN, 1)).await.unwrap();
    assert_eq!(expect_checkpoint(new.resume(RUN).await).turn, 1);
    for turn in 2..=3 {
        let refused = old.try_save(&checkpoint(RUN, turn)).await;
        let Err(SaveError::Journal(error)) = refused else { panic!("{refused:?}") };
        assert!(matches!(error.kind(), ErrorKind::ClaimLost | ErrorKind::Fenced), "{error}");
    }
    assert_eq!(expect_checkpoint(old.try_load(RUN).await).turn, 1);
    new.try_save(&checkpoint(RUN, 4)).await.unwrap();
    // Back by decision.
    assert_eq!(expect_checkpoint(old.resume(RUN).await).turn, 4);
    old.try_save(&checkpoint(RUN, 5)).await.unwrap();
    assert_eq!(expect_checkpoint(new.try_load(RUN).await).turn, 5);
}

pub(crate) async fn a_round_writes_only_its_new_messages(server: &mut Server) {
    const ROUNDS: usize = 60;
    let sink = server.sink().await;
    for turn in 1..=ROUNDS {
        sink.try_save(&checkpoint(RUN, turn)).await.unwrap();
    }
    let whole = text(&checkpoint(RUN, ROUNDS)).len();
    let (written, _) = record_bytes(&sink).await;
    // Each checkpoint has its state, its envelope and the name of its base. Whole lists would take eight times as much.
    assert!(written < whole + ROUNDS * 4096, "{written} bytes for a last checkpoint of {whole}");

    // Another process builds on the list that it loads.
    let other = server.sink().await;
    other.try_save(&checkpoint(RUN, ROUNDS + 1)).await.unwrap();
    let (_, last) = record_bytes(&other).await;
    assert!(last < 8192, "{last} bytes for another round");
    assert_eq!(text(&expect_checkpoint(sink.try_load(RUN).await)), text(&checkpoint(RUN, ROUNDS + 1)));
}

pub(crate) async fn a_session_store_moves_only_its_loop_checkpoints_to_runlog(server: &mut Server) {
    let rest = Arc::new(MemorySessionStore::new());
    let store: Arc<dyn SessionStore> = Arc::new(CheckpointedStore::new(Arc::new(server.sink().await), rest.clone()));
    store.health_check().await.unwrap();
    store.delete_loop_checkpoint(RUN).await.unwrap();
    assert!(server.runlog().await.run(RUN).await.unwrap().is_none(), "a delete without checkpoints writes no record");
    store.save_loop_checkpoint(RUN, &checkpoint(RUN, 1)).await.unwrap();
    store.save_loop_checkpoint("run-2", &checkpoint(RUN, 2)).await.expect_err("another run's");
    store.save_trace_events("session-1", &[]).await.unwrap();
    assert!(rest.load_loop_checkpoint(RUN).await.unwrap().is_none());
    assert_eq!(rest.load_trace_events("session-1").await.unwrap(), Some(Vec::new()));

    let sink = server.sink().await;
    assert_eq!(text(&expect_checkpoint(sink.try_load(RUN).await)), text(&checkpoint(RUN, 1)));
    // A run that came to its end has no checkpoint to resume from, and can have one again.
    store.delete_loop_checkpoint(RUN).await.unwrap();
    assert!(sink.try_load(RUN).await.unwrap().is_none());
    assert!(store.load_loop_checkpoint(RUN).await.unwrap().is_none());
    store.save_loop_checkpoint(RUN, &checkpoint(RUN, 3)).await.unwrap();
    assert_eq!(text(&expect_checkpoint(sink.try_load(RUN).await)), text(&checkpoint(RUN, 3)));
    server.kill();
    store.load_loop_checkpoint(RUN).await.expect_err("the journal did not answer that there is none");
    store.health_check().await.expect_err("the journal does not answer");
}

/// Bytes of the run's records as JSON, and of the last record.
async fn record_bytes(sink: &CheckpointSink) -> (usize, usize) {
    let page = sink.runlog().records(RUN, &RecordFilter::default(), None, 1000).await.unwrap();
    let records = page.records.iter().map(|read| serde_json::to_string(read.record.as_ref().unwrap()).unwrap().len());
    let records: Vec<usize> = records.collect();
    (records.iter().sum(), *records.last().unwrap())
}

/// The example, which waits after each of its rounds.
struct Loop {
    process: Child,
    stdout: BufReader<ChildStdout>,
}

impl Loop {
    fn start(url: &str, rounds: usize) -> Self {
        // Beside the folder of this test.
        let here = std::env::current_exe().unwrap();
        let program = here.parent().and_then(|deps| deps.parent()).unwrap().join("examples/resumed");
        let mut command = Command::new(program);
        command.args([url, RUN, &rounds.to_string(), "--wait"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the example");
        let stdout = BufReader::new(process.stdout.take().unwrap());
        Self { process, stdout }
    }

    fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// SIGKILL.
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

pub(crate) async fn a_killed_loop_continues_after_its_last_saved_round(server: &mut Server) {
    kill_after_each_round(&server.url(), || {
        // The server as well.
        server.kill();
        server.restart();
    });
}

#[cfg(feature = "embedded")]
pub(crate) fn a_killed_loop_with_an_embedded_journal_continues_after_its_last_saved_round() {
    let dir = tempfile::tempdir().unwrap();
    kill_after_each_round(&format!("local:{}", dir.path().display()), || {});
}

/// Kills the example after each of its rounds, and calls `halfway` once to kill more.
fn kill_after_each_round(url: &str, halfway: impl FnOnce()) {
    const ROUNDS: usize = 8;
    let mut halfway = Some(halfway);
    for round in 1..=ROUNDS {
        let mut process = Loop::start(url, ROUNDS);
        let resumption = format!("resumes after round {}", round - 1);
        assert_eq!(process.next_line(), if round == 1 { "starts" } else { &resumption });
        assert_eq!(process.next_line(), format!("round {round} saved"));
        process.kill();
        if let Some(halfway) = halfway.take_if(|_| round == ROUNDS / 2) {
            halfway();
        }
    }
    let mut process = Loop::start(url, ROUNDS);
    assert_eq!(process.next_line(), format!("resumes after round {ROUNDS}"));
    assert_eq!(process.next_line(), format!("done with {} messages", 1 + 2 * ROUNDS));
}
