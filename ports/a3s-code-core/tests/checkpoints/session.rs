//! A complete a3s session with a scripted model: its own loop saves, and another session resumes.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use a3s_code_core::{
    Agent, AgentSession, PlanningMode, SessionOptions,
    config::{CodeConfig, ModelConfig, ProviderConfig},
    llm::{ContentBlock, LlmClient, LlmResponse, Message, StreamEvent, TokenUsage, ToolDefinition},
    permissions::PermissionPolicy,
    store::{MemorySessionStore, SessionStore},
};
use runlog_a3s_code_core::{CheckpointSink, CheckpointedStore};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::server::{Server, sink};

const RUN: &str = "run-1";
const ROUNDS: usize = 2;

/// Requests the listing of a number of folders, and then answers, or never answers.
struct Model {
    rounds: usize,
    answers: bool,
    calls: AtomicUsize,
    /// Told when the rounds are over.
    behind: Notify,
    /// Tool results that it was shown in its last call.
    shown: AtomicUsize,
}

impl Model {
    fn new(rounds: usize, answers: bool) -> Arc<Self> {
        let (calls, shown) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { rounds, answers, calls, behind: Notify::new(), shown })
    }
}

fn response(content: ContentBlock, stop_reason: &str) -> LlmResponse {
    let mut message = Message::assistant("");
    message.content = vec![content];
    LlmResponse {
        message,
        usage: TokenUsage { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2, ..TokenUsage::default() },
        stop_reason: Some(stop_reason.to_owned()),
        token_logprobs: Vec::new(),
        meta: None,
    }
}

#[async_trait::async_trait]
impl LlmClient for Model {
    async fn complete(&self, _: &[Message], _: Option<&str>, _: &[ToolDefinition]) -> anyhow::Result<LlmResponse> {
        anyhow::bail!("the loop streams")
    }

    async fn complete_streaming(
        &self,
        messages: &[Message],
        _: Option<&str>,
        _: &[ToolDefinition],
        cancelled: CancellationToken,
    ) -> anyhow::Result<mpsc::Receiver<StreamEvent>> {
        let blocks = messages.iter().flat_map(|message| &message.content);
        let results = blocks.filter(|block| matches!(block, ContentBlock::ToolResult { .. }));
        self.shown.store(results.count(), Ordering::SeqCst);
        let (tell, told) = mpsc::channel(2);
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        if call < self.rounds {
            let input = serde_json::json!({ "path": format!("folder-{call}") });
            let tool = ContentBlock::ToolUse { id: format!("call-{call}"), name: "ls".to_owned(), input };
            tell.send(StreamEvent::Done(response(tool, "tool_use"))).await?;
        } else if self.answers {
            let text = ContentBlock::Text { text: "That is all.".to_owned() };
            tell.send(StreamEvent::TextDelta("That is all.".to_owned())).await?;
            tell.send(StreamEvent::Done(response(text, "end_turn"))).await?;
        } else {
            self.behind.notify_one();
            tokio::spawn(async move {
                cancelled.cancelled().await;
                drop(tell);
            });
        }
        Ok(told)
    }
}

async fn session(folder: &Path, model: Arc<Model>, sink: &Arc<CheckpointSink>) -> AgentSession {
    let model_config = ModelConfig {
        id: "told".to_owned(),
        name: "Told".to_owned(),
        family: "fixture".to_owned(),
        api_key: None,
        base_url: None,
        headers: HashMap::new(),
        session_id_header: None,
        attachment: false,
        reasoning: false,
        tool_call: true,
        temperature: true,
        release_date: None,
        modalities: Default::default(),
        cost: Default::default(),
        limit: Default::default(),
    };
    let provider = ProviderConfig {
        name: "fixture".to_owned(),
        api_key: Some("offline".to_owned()),
        base_url: None,
        headers: HashMap::new(),
        session_id_header: None,
        models: vec![model_config],
    };
    let config = CodeConfig {
        default_model: Some("fixture/told".to_owned()),
        providers: vec![provider],
        ..CodeConfig::default()
    };
    let rest: Arc<dyn SessionStore> = Arc::new(MemorySessionStore::new());
    let options = SessionOptions::new()
        .with_session_id("session-1")
        .with_session_store(Arc::new(CheckpointedStore::new(sink.clone(), rest)))
        .with_llm_client(model)
        .with_permission_policy(PermissionPolicy::new().allow("ls(*)"))
        .with_planning_mode(PlanningMode::Disabled)
        .with_auto_delegation_enabled(false)
        .with_manual_delegation_enabled(false)
        .with_continuation(false)
        .with_max_tool_rounds(5);
    let agent = Agent::from_config(config).await.unwrap();
    agent.session_async(folder.display().to_string(), Some(options)).await.unwrap()
}

/// Names the server and the folder to the child process that will be killed, which is this test again.
const FIRST: &str = "RUNLOG_TEST_FIRST_SESSION";
const BEHIND: &str = "behind its rounds";

/// In the child process: runs the rounds, reports them, and waits to be killed.
pub(crate) async fn runs_its_rounds_if_it_is_the_first() {
    let Ok(first) = std::env::var(FIRST) else { return };
    let (url, folder) = first.split_once(' ').unwrap();
    let (stuck, sink) = (Model::new(ROUNDS, false), Arc::new(sink(url).await));
    let session = session(Path::new(folder), stuck.clone(), &sink).await;
    let _run = session.spawn_run_with_id(RUN, "List the folders.").await.unwrap();
    stuck.behind.notified().await;
    assert!(sink.last_error().is_none(), "{:?}", sink.last_error());
    eprintln!("{BEHIND}");
    std::future::pending().await
}

/// Runs the first process until its rounds are done, and kills it.
fn first_is_killed(url: &str, folder: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let this = std::thread::current();
    command.args([this.name().expect("the test's name"), "--exact", "--nocapture"]);
    command.env(FIRST, format!("{url} {}", folder.display()));
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines: Vec<String> = BufReader::new(process.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .take_while(|line| line != BEHIND)
        .collect();
    let ended = process.try_wait().unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(ended.is_none(), "it ended by itself: {lines:?}");
}

pub(crate) async fn a_killed_session_is_resumed_by_another_with_all_of_its_rounds(server: &mut Server) {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..ROUNDS {
        std::fs::create_dir(folder.path().join(format!("folder-{round}"))).unwrap();
    }
    first_is_killed(&server.url(), folder.path());

    let sink = Arc::new(server.sink().await);
    let checkpoint = sink.try_load(RUN).await.unwrap().expect("a checkpoint");
    assert_eq!(
        (checkpoint.turn, checkpoint.tool_calls_count, checkpoint.session_id.as_str()),
        (ROUNDS, ROUNDS, "session-1")
    );
    let answers = Model::new(0, true);
    let second = session(folder.path(), answers.clone(), &sink).await;
    let result = second.resume_run(RUN).await.unwrap();
    assert_eq!(result.text, "That is all.");
    assert_eq!(answers.shown.load(Ordering::SeqCst), ROUNDS, "the model gets the recorded answers of its tools");
    assert_eq!(answers.calls.load(Ordering::SeqCst), 1, "no round is asked for again");
}
