//! An agent books a trip. Each tool call goes through the gate, and the loop's state is recorded after each tool round.
//!
//! ```text
//!   cargo run -p runlog-producer --features embedded --example booking_agent [DIR]
//! ```
//!
//! The journal is the folder DIR, by default a temporary one. Run it twice with the same DIR: the second time the run has
//! ended, and the agent books no flight. Read it with `runlog serve --local --data DIR`, then `runlog show trip-1`.

#![allow(clippy::print_stdout, reason = "an example")]

use anyhow::Context;
use runlog_producer::{Config, Failure, Journal, Json, LoopState, Outcome, Runlog, answer::RunStatus};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let temporary = tempfile::tempdir()?;
    let dir = std::env::args().nth(1).map_or_else(|| temporary.path().to_owned(), Into::into);
    let runlog = Runlog::connect(Config::new(Journal::Local(dir), "booking-agent")).await?;
    let run = runlog.open("trip-1").await?;
    if run.recovery().status != RunStatus::Open {
        println!("run {} has ended: nothing to do", run.id());
        return Ok(());
    }
    let mut messages = vec![Json::of(&json!({ "role": "user", "content": "Book me a flight from Zurich to Oslo." }))?];

    // A read may happen twice without harm, so it needs no key. If a process dies during the call, its run waits for a
    // decision, because the journal cannot know that this tool only reads.
    let route = json!({ "from": "ZRH", "to": "OSL" });
    let search_result = run.tool("search_flights", &route).once(|_| async { Ok(search(&route).into()) }).await?;
    let flights = search_result.result.context("the search failed")?.to_value();
    messages.push(Json::of(&json!({ "role": "tool", "content": flights }))?);
    run.checkpoint(&state(1, &messages)).await?;

    // A booking happens at most once. The key makes a pending booking safe to send again: the airline recognises it.
    let order = json!({ "flight": flights[0], "passenger": "Ada" });
    let booking = run.tool("book_flight", &order).idempotency_key("trip-1/flight");
    let booked = booking.once(|call| async move { book(call.idempotency_key.as_deref().unwrap_or_default()) }).await?;
    match (&booked.result, &booked.error) {
        (Some(ticket), _) => println!("booked {} (from the journal: {})", ticket.to_value(), booked.recorded),
        (_, Some(failure)) => println!("not booked: {}", failure.message),
        _ => {}
    }
    messages.push(Json::of(&json!({ "role": "tool", "content": booked.result.map(|ticket| ticket.to_value()) }))?);
    run.checkpoint(&state(2, &messages)).await?;

    run.end(Outcome::Completed).await?;
    println!("run {} is completed", run.id());
    Ok(())
}

fn state(turn: u64, messages: &[Json]) -> LoopState {
    LoopState { turn, messages: messages.to_vec(), tool_calls_count: turn, ..LoopState::default() }
}

/// Stands for the airline's search.
fn search(route: &Value) -> Value {
    json!([format!("{}-{} 07:10", route["from"].as_str().unwrap_or("?"), route["to"].as_str().unwrap_or("?"))])
}

/// Simulates the airline's booking, which accepts an idempotency key. A [`Failure`] is an answer too, and is recorded.
fn book(key: &str) -> Result<Json, Failure> {
    if key.is_empty() {
        return Err(Failure { kind: "no_key".into(), message: "the airline wants a key".into() });
    }
    Ok(json!({ "ticket": "T-1", "key": key }).into())
}
