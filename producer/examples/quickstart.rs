//! The README's quick start in Rust. A test compares the two and runs this twice.

#![allow(clippy::print_stdout, reason = "the README's code is short")]

use runlog_producer::{Config, Journal, Json, LoopState, Runlog};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::var("RUNLOG_SERVER").unwrap_or("http://127.0.0.1:7070".into());
    let journal = Journal::parse(&server, None).ok_or("RUNLOG_SERVER is not a URL of a journal")?;
    let runlog = Runlog::connect(Config::new(journal, "travel-agent")).await?;

    let run = runlog.open("trip-2").await?; // claims the run, then recovers
    let flight = json!({"flight": "HAT136"});
    let booked = run
        .tool("book_flight", &flight)
        .idempotency_key("trip-2-flight") // makes a booking that may have happened safe to repeat
        .once(|call| async move {
            println!("booking with the key {}", call.idempotency_key.unwrap_or_default());
            Ok(Json::from(json!({"booking": "B-1009"})))
        })
        .await?;
    println!("{:?}, from the journal: {}", booked.result, booked.recorded);

    let messages = vec![Json::from(json!({"role": "user", "content": "a flight to London, please"}))];
    run.checkpoint(&LoopState { messages, ..LoopState::default() }).await?;
    Ok(())
}
