//! An agent loop on a3s-code-core's types that can be killed at any time and resumes after its last saved round:
//!
//!     bin/runlog serve --local --data /tmp/journal
//!     cargo run --example resumed -- http://127.0.0.1:7171 run-1 5
//!
//! With `--wait` as fourth argument it waits for a line after each round: kill it there, start it again, and it prints where it
//! resumes.
#![allow(clippy::print_stdout, reason = "it is run by people")]

use a3s_code_core::{
    llm::{ContentBlock, Message, TokenUsage},
    loop_checkpoint::{LOOP_CHECKPOINT_SCHEMA_VERSION, LoopCheckpoint, LoopCheckpointSink, LoopConvergenceState},
};
use anyhow::Context;
use runlog_a3s_code_core::{
    CheckpointSink,
    producer::{Config, Journal, Runlog},
};
use std::{io::BufRead, sync::Arc};

/// This process's agent id in the journal.
const AGENT: &str = "resumed-example";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter("warn").with_writer(std::io::stderr).init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, run_id, rounds, waits @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: resumed URL RUN ROUNDS [--wait]");
    };
    let (rounds, waits) = (rounds.parse().context("ROUNDS is a number")?, waits == ["--wait"]);

    let journal = Journal::parse(url, None).context("URL is http://… or local:…")?;
    let sink = Arc::new(CheckpointSink::new(Runlog::connect(Config::new(journal, AGENT)).await?));
    let mut checkpoint = match sink.resume(run_id).await? {
        Some(checkpoint) => {
            println!("resumes after round {}", checkpoint.turn);
            checkpoint
        }
        None => {
            println!("starts");
            start(run_id)
        }
    };

    let saver: Arc<dyn LoopCheckpointSink> = sink.clone();
    while checkpoint.turn < rounds {
        round(&mut checkpoint);
        // The agent loop does this after each round of tools.
        saver.save_checkpoint(&checkpoint).await;
        match sink.last_error() {
            None => println!("round {} saved", checkpoint.turn),
            Some(lost) => println!("round {} lost: {}", checkpoint.turn, lost.error),
        }
        if waits {
            std::io::stdin().lock().read_line(&mut String::new())?;
        }
    }
    println!("done with {} messages", checkpoint.messages.len());
    Ok(())
}

fn start(run_id: &str) -> LoopCheckpoint {
    LoopCheckpoint {
        schema_version: LOOP_CHECKPOINT_SCHEMA_VERSION,
        run_id: run_id.to_owned(),
        session_id: "example".to_owned(),
        capability_binding: None,
        standing_context_digest: None,
        durable_source: None,
        turn: 0,
        messages: vec![Message::user("Square the numbers.")],
        total_usage: TokenUsage::default(),
        tool_calls_count: 0,
        verification_reports: Vec::new(),
        convergence: LoopConvergenceState::default(),
        checkpoint_ms: 0,
    }
}

/// A model that asks for one tool, and the tool.
fn round(checkpoint: &mut LoopCheckpoint) {
    checkpoint.turn += 1;
    checkpoint.tool_calls_count += 1;
    let (number, id) = (checkpoint.turn, format!("call-{}", checkpoint.turn));
    let mut request = Message::assistant("Next:");
    request.content.push(ContentBlock::ToolUse {
        id: id.clone(),
        name: "square".to_owned(),
        input: serde_json::json!({ "number": number }),
    });
    let mut result = Message::user("");
    result.content = vec![ContentBlock::ToolResult {
        tool_use_id: id,
        content: (number * number).to_string().into(),
        is_error: Some(false),
        trust: Default::default(),
        redaction_reviewed: false,
    }];
    checkpoint.messages.extend([request, result]);
}
