//! Records the conversation and the tool calls of a workspace. After a crash each is in the store, once.
//!
//! ```text
//!   observability JOURNAL SERVER     local:DIR with an empty SERVER, http://HOST:PORT twice, or kafka:BROKERS and a server
//! ```
//!
//! It records four turns, each with a tool call. After each write it prints a line and waits for one: kill it anywhere, and start
//! it again. Writing the same row again changes nothing.

use runlog_ports::{
    Blocking,
    observability::{
        Config, ConversationTurn, ObservabilityStore, Relation, Store, ToolCallDone, ToolCallReq, ToolStatus, Validity,
    },
    producer::{self, Journal},
};
use serde_json::json;
use std::{
    error::Error,
    io::{BufRead, Write, stdin, stdout},
};
use uuid::Uuid;

const TURNS: u128 = 4;
const WORKSPACE: &str = "observability-example";

/// A tokio program like ploke: the store's methods block, and may be called inside the runtime.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let [journal, server] = <[String; 2]>::try_from(std::env::args().skip(1).collect::<Vec<_>>())
        .map_err(|_| "usage: observability JOURNAL SERVER")?;
    let journal = Journal::parse(&journal, Some(&server)).ok_or("no journal's URL")?;
    let journal = Blocking::connect(producer::Config::new(journal, "observability-example"))?;
    let store = Store::open(journal, WORKSPACE, Config::default())?;
    store.register_callback(Relation::ToolCalls, 64, |change| {
        // Called after the write, which does not wait for it.
        drop(change);
    })?;
    for n in 0..TURNS {
        let (message, at) = (Uuid::from_u128(n), Validity { at: 1_000 * i64::try_from(n)?, is_valid: true });
        store.upsert_conversation_turn(ConversationTurn {
            id: message,
            parent_id: None,
            message_id: message,
            kind: "assistant".into(),
            content: format!("turn {n}"),
            created_at: at,
            thread_id: None,
        })?;
        print_and_wait(&json!({ "turn": n }))?;
        store.record_tool_call_requested(ToolCallReq {
            request_id: message,
            call_id: "call".into(),
            parent_id: message,
            vendor: "openai".into(),
            tool_name: "request_code_context".into(),
            args_sha256: format!("hash {n}"),
            arguments_json: Some("{}".into()),
            started_at: at,
        })?;
        print_and_wait(&json!({ "requested": n }))?;
        store.record_tool_call_done(ToolCallDone {
            request_id: message,
            call_id: "call".into(),
            ended_at: Validity { at: at.at + 10, is_valid: true },
            latency_ms: 10,
            outcome_json: Some("[]".into()),
            error_kind: None,
            error_msg: None,
            status: ToolStatus::Completed,
        })?;
        print_and_wait(&json!({ "done": n }))?;
    }
    let turns = store.list_conversation_since(0, 100)?;
    let mut ended = 0;
    for turn in &turns {
        let calls = store.list_tool_calls_by_parent(turn.id, 100)?;
        ended += calls.iter().filter(|(_, done)| done.is_some()).count();
    }
    print_and_wait(&json!({ "turns": turns.len(), "ended": ended }))
}

/// Prints a line, then waits for one on standard input.
fn print_and_wait(what: &serde_json::Value) -> Result<(), Box<dyn Error>> {
    writeln!(stdout(), "{what}")?;
    stdin().lock().read_line(&mut String::new())?;
    Ok(())
}
